//! Types that have no name in a program: what `type(group)` answers.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// A type, by its name.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(in super::super) struct TypeValue(pub(in super::super) String);
starlark_simple_value!(TypeValue);

impl fmt::Display for TypeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class '{}'>", self.0)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for TypeValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<TypeValue>().is_some_and(|other| other.0 == self.0))
    }
}
