//! Python's `bytes`, which stores answer with: they equal no text, and are decoded to one.
//! `text.encode()` makes them.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike};
use std::fmt;

/// `bytes`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct BytesValue(pub(crate) Vec<u8>);
starlark_simple_value!(BytesValue);

impl fmt::Display for BytesValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains(&b'\'') && !self.0.contains(&b'"') { '"' } else { '\'' };
        write!(f, "b{quote}")?;
        for &byte in &self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                b'\t' => f.write_str("\\t")?,
                _ if char::from(byte) == quote => write!(f, "\\{quote}")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        write!(f, "{quote}")
    }
}

/// The bytes of an argument: those of a text, or bytes.
pub(crate) fn bytes_of(value: Value<'_>) -> Option<Vec<u8>> {
    let bytes = value.downcast_ref::<BytesValue>().map(|bytes| bytes.0.clone());
    bytes.or_else(|| value.unpack_str().map(|text| text.as_bytes().to_vec()))
}
