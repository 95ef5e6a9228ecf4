//! The words of Lockstep as types: process groups, collectives, schedules and their proof, plans,
//! traces, the readers of others' recordings, and the diagnosis.
//!
//! This crate knows no I/O, clock, thread or unseeded randomness, and never panics on input. It
//! builds for the host and for `wasm32-unknown-unknown` from the same source.

pub mod archive;
pub mod c10d;
pub mod collective;
pub mod ddp;
pub mod diagnosis;
pub mod dtype;
pub mod flight_recorder;
pub mod goal;
pub mod group;
pub mod job_log;
pub mod kineto;
pub mod nccl_log;
pub mod pickle;
pub mod plan;
pub mod program;
pub mod rank;
pub mod recording;
pub mod reduce;
pub mod scenario;
pub mod schedule;
pub mod stop;
pub mod trace;
pub mod value;
pub mod words;
