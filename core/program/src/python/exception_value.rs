//! An exception as a value, and the exceptions of a program's own classes.

#![allow(clippy::panic, reason = "an exception is never written out")]

use crate::classes::objects::{self, ClassValue, InstanceValue};
use crate::python::exception_classes::{OF_SYSTEM, is_below, named};
use crate::torch::callable::Callable;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::values::tuple::TupleRef;
use starlark::values::{NoSerialize, Trace, Value, ValueLike};
use std::fmt;

/// `ValueError("why")`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct ExceptionValue<'v> {
    pub(crate) class: String,
    pub(crate) args: Vec<Value<'v>>,
    /// `str()` of it.
    pub(crate) text: String,
    /// The text between its brackets in `repr()`.
    pub(crate) inside: String,
}

impl fmt::Display for ExceptionValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.class.rsplit('.').next().unwrap_or(&self.class);
        write!(f, "{name}({})", self.inside)
    }
}

/// The exception that a class of the program's comes from: of several the one that is below the others.
pub(crate) fn native_of(class: &ClassValue<'_>) -> Option<&'static str> {
    let own = class.above.iter().filter_map(|above| above.downcast_ref::<Callable>());
    let natives = own.filter_map(|own| match OF_SYSTEM.contains(&own.name()) {
        true => Some("OSError"),
        false => named(own.name()),
    });
    natives.reduce(|first, next| if is_below(next, first) { next } else { first })
}

/// An exception of a class of the program's, with its class.
pub(crate) fn of_program<'v>(value: Value<'v>) -> Option<(&'v InstanceValue<'v>, &'static str)> {
    let own = value.downcast_ref::<InstanceValue<'v>>()?;
    Some((own, native_of(own.class()?)?))
}

/// The arguments of an exception of a class of the program's.
pub(crate) fn args_of<'v>(own: &InstanceValue<'v>) -> Vec<Value<'v>> {
    let args = own.state().and_then(|state| objects::found(&state.attributes, "args"));
    args.and_then(TupleRef::from_value).map(|args| args.content().to_vec()).unwrap_or_default()
}
