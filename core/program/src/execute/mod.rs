//! Executing a program once for each of its ranks, and what is known only when all have been executed.
//!
//! `compile` is the entry. `ranks` executes the text rank by rank, each in a `process`; `job` has what a
//! program finds besides PyTorch (`run`, `tensor`, `compute`); `undecided` are answers that only a run
//! gives.

pub(crate) mod compile;
pub(crate) mod hints;
pub(crate) mod job;
pub(crate) mod known_by_all;
pub(crate) mod launched_processes;
pub(crate) mod leftovers;
pub(crate) mod missing_imports;
pub(crate) mod prints;
pub(crate) mod process;
pub(crate) mod ranks;
pub(crate) mod scenario_plan;
pub(crate) mod undecided;
