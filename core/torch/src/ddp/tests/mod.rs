//! PyTorch's records (`tests/data/pytorch`), held against this crate.

use serde_json::Value;

mod averaging;
mod buckets;
mod cases;
mod errors;
mod features;
mod models;
mod runs;

/// A recorded file.
pub(in crate::ddp) fn recorded(name: &str) -> Value {
    let path = format!("{}/../../tests/data/pytorch/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The entries of a list.
pub(in crate::ddp) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap()
}

/// A list of numbers.
pub(in crate::ddp) fn numbers(value: &Value) -> Vec<u64> {
    list(value).iter().map(|n| n.as_u64().unwrap()).collect()
}
