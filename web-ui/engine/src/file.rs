//! A file that was dropped: its bytes, and what it is.

use js_sys::Uint8Array;
use lockstep_formats::{archive, goal};
use web_sys::File;

/// A file's bytes.
pub(super) async fn read(file: &File) -> Result<Vec<u8>, String> {
    let promise = wasm_bindgen_futures::JsFuture::from(file.array_buffer());
    let buffer = promise.await.map_err(|error| {
        format!(
            "the browser could not read it: {}",
            lockstep_web_protocol::browser::words_of(&error)
        )
    })?;
    let bytes = Uint8Array::new(&buffer).to_vec();
    // A byte-order mark is no part of a text.
    Ok(bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes))
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A trace of ours.
    Trace,
    /// A plan in either form of ours, or as GOAL has it.
    Plan,
    /// An archive of files.
    Archive,
    /// A piece of a job's recording, or what nobody can read.
    Piece,
}

impl Kind {
    pub(super) fn of(bytes: &[u8]) -> Kind {
        let start = &bytes[..bytes.len().min(64)];
        if start.starts_with(b"LKSTRCE") || start.windows(14).any(|text| text == b"lockstep.trace")
        {
            return Kind::Trace;
        }
        // The schema stands first in what we write; a plan that was edited may have it further on.
        let start = &bytes[..bytes.len().min(4096)];
        let schema = start.windows(14).any(|text| text == b"\"lockstep.plan");
        if bytes.starts_with(b"LKSPLAN") || schema || goal::looks_like_goal(bytes) {
            return Kind::Plan;
        }
        match archive::is_archive(bytes) {
            true => Kind::Archive,
            false => Kind::Piece,
        }
    }
}
