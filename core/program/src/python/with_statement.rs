//! The contexts that `with` enters and leaves: those of PyTorch, and objects of a program's own classes.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::special_methods;
use crate::dist;
use crate::dist::mesh::MeshValue;
use crate::dist::values::{Context, ContextValue};
use crate::nn::join;
use crate::process::state::{Process, process};
use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;

/// Values that `with` cannot enter in Python either.
const PLAIN: [&str; 9] =
    ["int", "float", "bool", "str", "list", "tuple", "dict", "NoneType", "Tensor"];

/// Begins `with context:`.
///
/// # Errors
/// A value that is not a context manager, or an exception that `__enter__` raises.
pub(crate) fn entered<'v>(
    context: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    match special_methods::enter(context, eval)? {
        Some(own) => Ok(own),
        None => known(context, eval).map_err(starlark::Error::new_native),
    }
}

/// Enters a context that is not an object of the program's classes.
fn known<'v>(context: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
    // `with mesh:` names the current mesh, which nothing here asks for.
    let handed = context.downcast_ref::<HandsOn<'v>>().map(|own| own.0);
    let nothing = context.downcast_ref::<MeshValue>().is_some() || handed.is_some();
    let mesh = nothing.then_some(&ContextValue(Context::Nothing));
    let Some(entered) = context.downcast_ref::<ContextValue>().or(mesh) else {
        let class = class_of(context);
        // Not all other contexts of Python are known here.
        anyhow::ensure!(PLAIN.contains(&class), "`with` of a {class} is not followed");
        return Err(type_error(format!(
            "'{class}' object does not support the context manager protocol"
        )));
    };
    let process = process(eval)?;
    anyhow::ensure!(process.contexts.len() < 1000, "too many `with` blocks are open");
    let mut entering = entered.0.clone();
    match &mut entering {
        Context::Join { model, throw } => join::enter(process, *model, *throw)?,
        Context::Stream { stream, before } => *before = process.dist()?.set_stream(*stream),
        Context::Coalescing(at) => dist::enter(process, *at)?,
        Context::NoSync(_)
        | Context::Grad(_)
        | Context::Autocast(_)
        | Context::Own
        | Context::Nothing => {}
    }
    process.enter(entering);
    Ok(handed.unwrap_or(context))
}

/// Ends the innermost `with` block.
///
/// # Errors
/// An exception that `__exit__` raises.
pub(crate) fn left<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
    let process = process(eval).map_err(starlark::Error::new_native)?;
    let last = process.leave();
    if matches!(last, Some(Context::Own)) {
        let depth = process.contexts.len();
        special_methods::exit(depth, None, eval)?;
        return Ok(NoneType);
    }
    ends(last, process).map_err(starlark::Error::new_native)?;
    Ok(NoneType)
}

/// Ends a context that is not an object of the program's classes.
fn ends(context: Option<Context>, process: &mut Process<'_>) -> anyhow::Result<()> {
    match context {
        Some(Context::Join { .. }) => join::leave(process)?,
        Some(Context::Stream { before, .. }) => {
            process.dist()?.set_stream(before);
        }
        Some(Context::Coalescing(at)) => dist::leave(process, at)?,
        Some(
            Context::NoSync(_)
            | Context::Grad(_)
            | Context::Autocast(_)
            | Context::Own
            | Context::Nothing,
        )
        | None => {}
    }
    Ok(())
}

#[starlark_module]
fn of_contextlib(builder: &mut GlobalsBuilder) {
    /// A context that changes nothing, and passes its argument on to `as`.
    fn nullcontext<'v>(
        #[starlark(default = NoneType)] enter_result: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc_complex_no_freeze(HandsOn(enter_result)))
    }
}

/// `nullcontext(x)`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct HandsOn<'v>(Value<'v>);

impl fmt::Display for HandsOn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<contextlib.nullcontext object at 0xADDR>")
    }
}

#[starlark_value(type = "nullcontext")]
impl<'v> StarlarkValue<'v> for HandsOn<'v> {}

/// Adds `contextlib`, and the names that programs import from it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    of_contextlib(builder);
    builder.namespace("contextlib", of_contextlib);
}
