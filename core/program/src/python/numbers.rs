//! Numbers that a program hands over.

use crate::process::undecided::{self, UnknownValue};
use crate::python::float::float_of;
use crate::python::type_error::{class_of, type_error};
use starlark::values::{Heap, Value, ValueLike};

/// A whole number.
pub(crate) fn whole(value: Value<'_>, what: &str) -> anyhow::Result<i64> {
    if let Some(unknown) = value.downcast_ref::<UnknownValue>() {
        return Err(anyhow::anyhow!(unknown.what().to_string()));
    }
    let number = value.unpack_i32().map(i64::from).or_else(|| value.to_str().parse().ok());
    let number = number.filter(|_| value.get_type() == "int");
    number.ok_or_else(|| type_error(format!("{what} is a {}, not an int", class_of(value))))
}

/// A number, whole or not; Python's booleans are 0 and 1.
pub(crate) fn number(value: Value<'_>, what: &str) -> anyhow::Result<f64> {
    if let Some(yes) = value.unpack_bool() {
        return Ok(f64::from(u8::from(yes)));
    }
    if let Some(float) = float_of(value) {
        return Ok(float);
    }
    let number = whole(value, what)?;
    anyhow::ensure!(
        (number as f64) as i128 == i128::from(number),
        "{number} is beyond 2^53: what a tensor is filled with is carried as a float here, which would \
         round it"
    );
    Ok(number as f64)
}

/// A whole number, if one is given.
pub(crate) fn whole_or_none(value: Value<'_>, what: &str) -> anyhow::Result<Option<i64>> {
    if value.is_none() { Ok(None) } else { whole(value, what).map(Some) }
}

/// True counts one.
pub(crate) fn counted<'v>(value: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    value.unpack_bool().map_or(value, |yes| heap.alloc(i32::from(yes)))
}

/// A number as a float.
pub(crate) fn real(value: Value<'_>) -> anyhow::Result<f64> {
    match value.unpack_bool() {
        Some(yes) => Ok(f64::from(u8::from(yes))),
        None => {
            let class = class_of(value);
            anyhow::ensure!(class != "Tensor", undecided::VALUES);
            let refuses = value.downcast_ref::<UnknownValue>().is_some();
            let known = refuses || matches!(value.get_type(), "int" | "float");
            if !known {
                return Err(type_error(format!("must be real number, not {class}")));
            }
            match value.get_type() {
                // Past 64 bits as well.
                "int" => Ok(value.to_str().parse()?),
                _ => number(value, "a number"),
            }
        }
    }
}

/// True if a value is a number from a tensor that is not known.
pub(crate) fn is_value(value: Value<'_>) -> bool {
    value.downcast_ref::<UnknownValue>().is_some_and(UnknownValue::is_value)
}
