//! The members of a program's classes besides functions: decorated functions, methods that are
//! bound to their object, and `super()`.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::objects::InstanceValue;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;

/// A method of an object.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct MethodValue<'v> {
    pub(crate) function: Value<'v>,
    pub(crate) this: Value<'v>,
}

/// `super()`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct SuperValue<'v> {
    pub(crate) class: Value<'v>,
    pub(crate) this: Value<'v>,
}

/// `@staticmethod`: a function that gets no object.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct StaticValue<'v>(pub(crate) Value<'v>);

/// `@property`: a function that is called when the attribute is read.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct PropertyValue<'v>(pub(crate) Value<'v>);

/// `@classmethod`: a function that gets the class.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct OfClassValue<'v>(pub(crate) Value<'v>);

/// `field(default_factory = list)`: the function that makes a field of each new object, if there is one.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct FieldValue<'v>(pub(crate) Option<Value<'v>>);

/// The member of its class as an object has it: functions get the object first.
pub(crate) fn bound<'v>(member: Value<'v>, this: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    if let Some(own) = member.downcast_ref::<StaticValue<'v>>() {
        return own.0;
    }
    if let Some(own) = member.downcast_ref::<OfClassValue<'v>>() {
        let state = this.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::state);
        let this = state.map_or(this, |state| state.class);
        return heap.alloc_complex_no_freeze(MethodValue { function: own.0, this });
    }
    match member.get_type() {
        "function" => heap.alloc_complex_no_freeze(MethodValue { function: member, this }),
        _ => member,
    }
}

/// The text of values that no program prints on purpose.
macro_rules! shown_as {
    ($($value:ident: $text:literal),* $(,)?) => {$(
        impl fmt::Display for $value<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }
    )*};
}

shown_as! {
    MethodValue: "<bound method>",
    SuperValue: "<super>",
    StaticValue: "<staticmethod>",
    PropertyValue: "<property>",
    OfClassValue: "<classmethod>",
    FieldValue: "<field>",
}

#[starlark_value(type = "staticmethod")]
impl<'v> StarlarkValue<'v> for StaticValue<'v> {}

#[starlark_value(type = "property")]
impl<'v> StarlarkValue<'v> for PropertyValue<'v> {}

#[starlark_value(type = "classmethod")]
impl<'v> StarlarkValue<'v> for OfClassValue<'v> {}

#[starlark_value(type = "field")]
impl<'v> StarlarkValue<'v> for FieldValue<'v> {}
