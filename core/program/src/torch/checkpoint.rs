//! The result of `state_dict()` and `torch.load(…)`: a program has no files, and nothing is read of it.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// The contents of a model or optimizer, or a file of them: nothing can be read of it here.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct CheckpointValue;
starlark_simple_value!(CheckpointValue);

impl fmt::Display for CheckpointValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<a checkpoint, of which nothing is known here>")
    }
}

impl CheckpointValue {
    fn refused<T>() -> starlark::Result<T> {
        Err(starlark::Error::new_native(anyhow::anyhow!(
            "what a checkpoint holds is not known here: a program has no files. It is what \
             load_state_dict takes; write down what else is read of it"
        )))
    }
}

#[starlark_value(type = "dict")]
impl<'v> StarlarkValue<'v> for CheckpointValue {
    /// `checkpoint["model"]` may be one itself.
    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let name = index.unpack_str().unwrap_or_default().to_lowercase();
        match ["model", "state", "opt", "sched", "snapshot"].iter().any(|part| name.contains(part))
        {
            true => Ok(heap.alloc(CheckpointValue)),
            false => CheckpointValue::refused(),
        }
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        if other.is_none() { Ok(false) } else { CheckpointValue::refused() }
    }

    fn length(&self) -> starlark::Result<i32> {
        CheckpointValue::refused()
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        CheckpointValue::refused()
    }

    fn is_in(&self, _other: Value<'v>) -> starlark::Result<bool> {
        CheckpointValue::refused()
    }
}

/// `load_state_dict(state)`: of a checkpoint, or of the program's own dict.
pub(crate) fn loaded(state: Value<'_>) -> anyhow::Result<NoneType> {
    let known = state.downcast_ref::<CheckpointValue>().is_some();
    if known || DictRef::from_value(state).is_some() {
        return Ok(NoneType);
    }
    Err(type_error(format!(
        "Expected state_dict to be dict-like, got <class '{}'>.",
        class_of(state)
    )))
}
