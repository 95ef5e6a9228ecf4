//! `TypeError` in Python's words, and Python's names of types.

use crate::process::raised::refused;
use lockstep_torch::c10d::{DistError, ErrorKind};
use starlark::values::Value;

/// Python's name of a value's type.
pub(crate) fn class_of(value: Value<'_>) -> &'static str {
    match value.get_type() {
        "string" => "str",
        other => other,
    }
}

/// `TypeError` in Python's words.
pub(crate) fn type_error(text: impl Into<String>) -> anyhow::Error {
    refused(DistError::new(ErrorKind::TypeError, text))
}
