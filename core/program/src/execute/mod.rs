//! Executes a program once for each of its ranks, and adds the facts that are known only when all have been
//! executed.
//!
//! `compile` is the entry. `ranks` executes the text rank by rank, each in a `process`; `job` has the
//! program's functions besides PyTorch (`run`, `tensor`, `compute`); `failure` is a process's early end.

pub(crate) mod compile;
pub(crate) mod failure;
pub(crate) mod hints;
pub(crate) mod job;
pub(crate) mod launched_processes;
pub(crate) mod leftovers;
pub(crate) mod missing_imports;
pub(crate) mod ranks;
pub(crate) mod scenario_plan;
