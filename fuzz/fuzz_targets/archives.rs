//! tar, zip and gzip. What is handed on stays within the limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_formats::archive::{Limits, for_each_file};

const LIMITS: Limits = Limits { file_bytes: 1 << 20, total_bytes: 4 << 20 };

fuzz_target!(|bytes: &[u8]| {
    let mut total = 0;
    let mut take = |_: &str, file: &[u8]| {
        assert!(file.len() as u64 <= LIMITS.file_bytes);
        total += file.len() as u64;
    };
    let _ = for_each_file("archive", bytes, LIMITS, &mut take);
    assert!(total <= LIMITS.total_bytes);
});
