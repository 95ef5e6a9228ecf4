//! Functions and classes of PyTorch's that are called alike and distinguished by their names.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// The function behind a call of one, by its name.
pub(crate) type Call = for<'v, 'a, 'b, 'c, 'd> fn(
    &'static str,
    &'a Arguments<'v, 'b>,
    &'a mut Evaluator<'v, 'c, 'd>,
) -> starlark::Result<Value<'v>>;

/// One of them.
#[derive(Clone, Copy, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct Callable {
    name: &'static str,
    #[allocative(skip)]
    call: Call,
}
starlark_simple_value!(Callable);

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for Callable {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        (self.call)(self.name, args, eval)
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let short = self.name.rsplit('.').next().unwrap_or(self.name);
        (attribute == "__name__").then(|| heap.alloc(short))
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<Callable>().is_some_and(|other| other.name == self.name))
    }
}

impl Callable {
    /// The one of that name.
    pub(crate) fn new(name: &'static str, call: Call) -> Callable {
        Callable { name, call }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// Adds them by their names.
pub(crate) fn add(builder: &mut GlobalsBuilder, names: &[&'static str], call: Call) {
    for name in names {
        builder.set(name, Callable::new(name, call));
    }
}
