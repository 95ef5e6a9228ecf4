//! Lockstep's own traces, binary and JSON, whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_core::trace::{Trace, TraceReader};

fuzz_target!(|bytes: &[u8]| {
    let _ = Trace::read(bytes);
    let mut reader = TraceReader::new();
    for piece in bytes.chunks(7) {
        if reader.push(piece).is_err() {
            break;
        }
    }
});
