//! A file that was dropped: its bytes, and what it is.

use js_sys::Uint8Array;
use lockstep_formats::{archive, goal};
use wasm_bindgen::JsValue;
use web_sys::{Blob, File};

/// Some of a file's bytes as they are.
pub(super) async fn read_slice(file: &File, from: f64, to: f64) -> Result<Vec<u8>, String> {
    match file.slice_with_f64_and_f64(from, to) {
        Ok(part) => bytes_of(&part).await,
        Err(error) => Err(not_read(&error)),
    }
}

async fn bytes_of(blob: &Blob) -> Result<Vec<u8>, String> {
    let buffer = wasm_bindgen_futures::JsFuture::from(blob.array_buffer()).await;
    Ok(Uint8Array::new(&buffer.map_err(|error| not_read(&error))?).to_vec())
}

fn not_read(error: &JsValue) -> String {
    format!("the browser could not read it: {}", lockstep_web_protocol::browser::words_of(error))
}

/// A file's bytes.
pub(super) async fn read(file: &File) -> Result<Vec<u8>, String> {
    let bytes = bytes_of(file).await?;
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
