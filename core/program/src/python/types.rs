//! Types that have no name in a program: the answers of `type(group)`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::classes::objects::InstanceValue;
use crate::dist::values::ReduceOpValue;
use crate::python::type_error::class_of;
use crate::stores::handle::StoreValue;
use allocative::Allocative;
use starlark::starlark_simple_value;
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
