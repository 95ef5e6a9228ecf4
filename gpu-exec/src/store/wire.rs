//! What a store's client and server say: frames of a little-endian `u32` length and postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// No frame is longer.
pub(super) const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, Serialize, serde::Deserialize)]
pub(super) enum Request {
    Set { key: String, value: Vec<u8> },
    Get { key: String, timeout_ns: u64 },
    Add { key: String, by: i64 },
    Wait { keys: Vec<String>, timeout_ns: u64 },
    CompareSet { key: String, expected: Vec<u8>, desired: Vec<u8> },
    Check { keys: Vec<String> },
    DeleteKey { key: String },
}

#[derive(Debug, Serialize, serde::Deserialize)]
pub(super) enum Answer {
    Done,
    Value(Vec<u8>),
    Number(i64),
    Truth(bool),
    Timeout { key: String },
    NotANumber,
}

pub(super) fn write_frame(stream: &mut impl Write, body: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(body, frame).map_err(io::Error::other)?;
    let bytes = frame.len() - 4;
    if bytes > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{bytes} bytes")));
    }
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    stream.write_all(&frame)
}

pub(super) fn read_frame<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        let why = format!("a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    postcard::from_bytes(&frame).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not a store's frame: {error}"))
    })
}
