//! Every reader of a job's files (`core/formats/src/readers.rs`): pickles, JSON, profiles, logs, stacks, and what
//! is joined from them. An input is one file, or two with [`BORDER`] between them. Its first byte and its length
//! choose the name, which some readers look at, so that a file of `tests/data` is an input as it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_formats::recording::{Piece, Sources};

const BORDER: &[u8] = b"\n==> next file <==\n";

const JSON_NAMES: [&str; 3] = ["trace.json", "rank_0.json", "nccl_trace_rank_0"];

const TEXT_NAMES: [&str; 6] =
    ["job.log", "stacks.txt", "nccl.log", "rank_3.err", "torchfrtrace.txt", "ncclras.txt"];

fn name(bytes: &[u8]) -> &'static str {
    match bytes.trim_ascii_start().first() {
        Some(b'{' | b'[') => JSON_NAMES[bytes.len() % JSON_NAMES.len()],
        Some(0x80..) => "nccl_trace_rank_0",
        _ => TEXT_NAMES[bytes.len() % TEXT_NAMES.len()],
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut sources = Sources::default();
    let border = bytes.windows(BORDER.len()).position(|window| window == BORDER);
    let one = &bytes[..border.unwrap_or(bytes.len())];
    sources.take(Piece::read(name(one), one));
    if let Some(border) = border {
        sources.take(Piece::read("nccl_trace_rank_1", &bytes[border + BORDER.len()..]));
    }
    if let Ok(job) = sources.join() {
        let _ = format!("{job:?}").len();
    }
});
