//! Plans: our own, GOAL files and MSCCL programs. What was read can be written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_core::plan::Plan;
use lockstep_formats::{goal, msccl};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(plan) = Plan::read(bytes) {
        assert_eq!(Plan::from_json(&plan.to_json()).as_ref(), Ok(&plan));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = goal::read("a.goal", text);
        let _ = msccl::read(text);
    }
});
