//! Types that have no name in a program: what `type(group)` answers.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::super::stores::StoreValue;
use crate::classes::objects;
use crate::classes::objects::InstanceValue;
use crate::dist::arguments::class_of;
use crate::dist::values::ReduceOpValue;
use crate::python::exceptions;
use crate::torch::callable::Callable;
use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::tuple::TupleRef;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// A type, by its name.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct TypeValue(pub(crate) String);
starlark_simple_value!(TypeValue);

impl fmt::Display for TypeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class '{}'>", qualified(&self.0))
    }
}

/// Classes that Python shows with the module that they are of, by their own names.
const QUALIFIED: [(&str, &str); 9] = [
    ("Tensor", "torch.Tensor"),
    ("Size", "torch.Size"),
    ("dtype", "torch.dtype"),
    ("device", "torch.device"),
    ("timedelta", "datetime.timedelta"),
    ("ProcessGroup", "torch.distributed.distributed_c10d.ProcessGroup"),
    ("Work", "torch.distributed.distributed_c10d.Work"),
    ("P2POp", "torch.distributed.distributed_c10d.P2POp"),
    ("DeviceMesh", "torch.distributed.device_mesh.DeviceMesh"),
];

fn qualified(class: &str) -> &str {
    QUALIFIED.iter().find(|(own, _)| *own == class).map_or(class, |(_, whole)| *whole)
}

/// Python's text for a value's class between `<class '` and `'>`.
pub(crate) fn whole_class(value: Value<'_>) -> String {
    if let Some(own) = value.downcast_ref::<InstanceValue<'_>>().and_then(InstanceValue::class) {
        return format!("__main__.{}", own.name);
    }
    if let Some(op) = value.downcast_ref::<ReduceOpValue>() {
        return op.class().to_owned();
    }
    if let Some(store) = value.downcast_ref::<StoreValue>() {
        return store.class();
    }
    qualified(class_of(value)).to_owned()
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for TypeValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<TypeValue>().is_some_and(|other| other.0 == self.0))
    }
}

/// The classes that `isinstance` compares with, by name.
pub(super) fn names(class: Value<'_>) -> Vec<String> {
    match TupleRef::from_value(class) {
        Some(classes) => classes.content().iter().flat_map(|class| names(*class)).collect(),
        None => match class.downcast_ref::<TypeValue>() {
            Some(class) => vec![class.0.clone()],
            None => vec![class.to_repr().trim_matches(['<', '>']).to_owned()],
        },
    }
}

/// The name of a class of exceptions.
fn callable(class: Value<'_>) -> Option<&'static str> {
    class.downcast_ref::<Callable>().map(Callable::name)
}

/// `issubclass(class, of)`.
///
/// # Errors
/// What is no class.
pub(super) fn is_below<'v>(class: Value<'v>, of: Value<'v>) -> anyhow::Result<bool> {
    if let Some(several) = TupleRef::from_value(of) {
        for of in several.content() {
            if is_below(class, *of)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if let Some(own) = objects::class(class) {
        if let Some(of) = objects::class(of) {
            return Ok(own.is(of));
        }
        let above = exceptions::native_of(own);
        return Ok(above.zip(callable(of)).is_some_and(|(own, of)| exceptions::is_below(own, of)));
    }
    if let Some(own) = callable(class).filter(|own| exceptions::is_class(own)) {
        return Ok(callable(of).is_some_and(|of| exceptions::is_below(own, of)));
    }
    let (own, of_names) = (names(class), names(of));
    let below = |own: &String| {
        let base = own == "bool" && of_names.iter().any(|of| of == "int");
        base || of_names.contains(own) || of_names.iter().any(|of| of == "object")
    };
    Ok(own.iter().any(below))
}
