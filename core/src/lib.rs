//! The words of Lockstep as types: process groups, collectives, schedules and their proof, plans
//! and traces.
//!
//! This crate knows no I/O, clock, thread or unseeded randomness, and never panics on input. It
//! builds for the host and for `wasm32-unknown-unknown` from the same source. The crates in the
//! folders beside it hold what builds on these words: PyTorch, foreign files, the diagnosis.

pub mod collective;
pub mod dtype;
pub mod group;
pub mod plan;
pub mod rank;
pub mod reduce;
pub mod schedule;
pub mod stop;
pub mod trace;
pub mod watch;
pub mod words;
