//! Every reader of a job's files (`core/formats/src/readers.rs`): pickles, JSON, profiles, logs, stacks, and what
//! is joined from them. The first byte chooses the name, which some readers look at.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_formats::recording::{Piece, Sources};

const NAMES: [&str; 8] = [
    "nccl_trace_rank_0",
    "rank_0.json",
    "trace.json",
    "job.log",
    "stacks.txt",
    "nccl.log",
    "rank_3.err",
    "torchfrtrace.txt",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let mut sources = Sources::default();
    // Two files, as of two ranks.
    let (one, other) = bytes.split_at(if first & 8 == 0 { bytes.len() } else { bytes.len() / 2 });
    sources.take(Piece::read(NAMES[usize::from(first & 7)], one));
    if !other.is_empty() {
        sources.take(Piece::read("nccl_trace_rank_1", other));
    }
    if let Ok(job) = sources.join() {
        let _ = format!("{job:?}").len();
    }
});
