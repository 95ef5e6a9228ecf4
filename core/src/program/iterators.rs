//! `iter`, `next` and `len`: what is gone through piece by piece, and what says itself how long it is.

#![allow(clippy::panic, reason = "an iterator is never written out")]

use super::arguments as take;
use super::classes::InstanceValue;
use super::process::Raised;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cell::Cell;
use std::fmt;

/// What `iter(values)` returns.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct IteratorValue<'v> {
    items: Vec<Value<'v>>,
    /// How many of them are taken.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    at: Cell<usize>,
}

impl fmt::Display for IteratorValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<iterator object at 0xADDR>")
    }
}

#[starlark_value(type = "iterator")]
impl<'v> StarlarkValue<'v> for IteratorValue<'v> {
    /// The rest of it.
    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let rest = self.items.get(self.at.get()..).unwrap_or_default().to_vec();
        self.at.set(self.items.len());
        Ok(rest)
    }
}

/// How long an object of a program's class says that it is.
pub(super) fn length<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<i32>> {
    let own = of.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class);
    let Some(method) = own.and_then(|class| class.find("__len__", 0)) else { return Ok(None) };
    let length = eval.eval_function(method, &[of], &[])?;
    let wrong = || {
        let class = take::class_of(length);
        let text = format!("'{class}' object cannot be interpreted as an integer");
        starlark::Error::new_native(take::type_error(text))
    };
    length.unpack_i32().map(Some).ok_or_else(wrong)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn len<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<i32> {
        match length(of, eval)? {
            Some(length) => Ok(length),
            None => of.length(),
        }
    }

    fn iter<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        if of.downcast_ref::<IteratorValue<'v>>().is_some() {
            return Ok(of);
        }
        let items = of.iterate(heap)?.collect();
        Ok(heap.alloc_complex_no_freeze(IteratorValue { items, at: Cell::new(0) }))
    }

    /// Of what else is gone through, such as `model.parameters()`, the first piece.
    fn next<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] default: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let found = match of.downcast_ref::<IteratorValue<'v>>() {
            Some(own) => {
                let found = own.items.get(own.at.get()).copied();
                own.at.set(own.at.get().saturating_add(1));
                found
            }
            None => of.iterate(heap)?.next(),
        };
        found.or(default).ok_or_else(|| {
            let raised = Raised { text: "StopIteration".to_owned(), help: None };
            starlark::Error::new_native(anyhow::Error::new(raised))
        })
    }
}

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
