//! Trace files: which form.

use anyhow::{Context, Result};
use lockstep_core::trace::Trace;
use std::path::Path;

/// Writes a trace: as JSON if the file is called so, else binary.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, trace: &Trace) -> Result<()> {
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => trace.to_json().into_bytes(),
        _ => trace.to_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
