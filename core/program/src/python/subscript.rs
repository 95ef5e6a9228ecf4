//! `x[key]` on an object, or on a dict that makes missing values: the functions that the dialect writes for
//! it, for loops with an `else`, and for properties that are set.

use crate::classes::objects::InstanceValue;
use crate::classes::special_methods::method;
use crate::data::subsets::SubsetValue;
use crate::dialect::properties::SETTER;
use crate::process::state::process;
use crate::python::collections::missing;
use crate::python::type_error::type_error;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};

/// The class name of an object of the program's.
fn class_name<'v>(of: Value<'v>) -> Option<&'v str> {
    let class = of.downcast_ref::<InstanceValue<'v>>()?.class()?;
    Some(class.name.as_str())
}

/// The error for an object without items.
fn refused(name: &str, what: &str) -> starlark::Error {
    starlark::Error::new_native(type_error(format!("'{name}' object {what}")))
}

/// `del x[key]` of an object with `__delitem__`; returns false if the value is not an object.
///
/// # Errors
/// An exception that the method raises, or an object without it.
pub(crate) fn deleted<'v>(
    of: Value<'v>,
    key: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    let Some(name) = class_name(of) else { return Ok(false) };
    match method(of, "__delitem__", &[key], eval)? {
        Some(_) => Ok(true),
        None => Err(refused(name, "doesn't support item deletion")),
    }
}

/// `of[key]`.
///
/// # Errors
/// An exception that `__getitem__` raises, or a value without items or without this key.
pub(crate) fn item<'v>(
    of: Value<'v>,
    key: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if let Some(name) = class_name(of) {
        if let Some(answer) = method(of, "__getitem__", &[key], eval)? {
            return Ok(answer);
        }
        return match crate::python::collections::field(of, key)? {
            Some(field) => Ok(field),
            None => Err(refused(name, "is not subscriptable")),
        };
    }
    if of.downcast_ref::<SubsetValue<'v>>().is_some() {
        return crate::data::subsets::row(of, key, eval);
    }
    if let Some(dict) = DictRef::from_value(of)
        && dict.get(key)?.is_none()
    {
        drop(dict);
        if let Some(made) = missing(of, key, eval)? {
            return Ok(made);
        }
    }
    of.at(key, eval.heap())
}

/// `of[key] = value`.
///
/// # Errors
/// An exception that `__setitem__` raises, or a value that takes no items.
pub(crate) fn set_item<'v>(
    of: Value<'v>,
    key: Value<'v>,
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<NoneType> {
    match class_name(of) {
        None => of.set_at(key, value)?,
        Some(name) => {
            let set = method(of, "__setitem__", &[key, value], eval)?;
            set.ok_or_else(|| refused(name, "does not support item assignment"))?;
        }
    }
    Ok(NoneType)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn _item<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] key: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        item(of, key, eval)
    }

    fn _set_item<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] key: Value<'v>,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        set_item(of, key, value, eval)
    }

    /// `x.name = value`, where a class has a property of that name that can be set.
    fn _set_property<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        if method(of, &format!("{name}{SETTER}"), &[value], eval)?.is_none() {
            of.set_attr(name, value)?;
        }
        Ok(NoneType)
    }

    /// A loop with an `else` is left by `break`.
    fn _breaks<'v>(
        #[starlark(require = pos)] name: u32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        process(eval)?.broken.insert(name);
        Ok(NoneType)
    }

    /// True if `_breaks` was called for this loop since the last time.
    fn _broke<'v>(
        #[starlark(require = pos)] name: u32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<bool> {
        Ok(process(eval)?.broken.remove(&name))
    }
}

/// Adds the functions that the dialect writes.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
