//! Programs: each rank's code, written in Python's words, and the plan that results from it.
//!
//! The language is Starlark, the deterministic Python dialect, with torch.distributed's functions under their
//! names; Python's `import`, `with`, `while`, `raise`, `assert`, `is` and f-strings are understood too.
//! `compile` executes the text once for each rank: `run(main, world_size = 8)` gives their number, and each
//! process then runs `main()`, from a fresh start as every process of a real job does. Its calls are recorded
//! by [`c10d`](lockstep_torch::c10d), with the line.
//!
#![doc = concat!("```\n", include_str!("../tests/compiling_a_program.rs"), "```")]
//!
//! A program is bounded in steps, memory and nesting ([`Limits`](lockstep_scenarios::program::Limits)). A rank that raises ends there,
//! as a process does, and the others go on: that is a plan too. A tensor's values are not known
//! while a program is recorded, so that nothing can be decided by them.

// `unsafe impl` of marker traits, by which the interpreter knows our types.
#![allow(unsafe_code, reason = "starlark's macros expand to it; there is none of ours here")]

mod bundle;
mod classes;
mod data;
mod dialect;
mod dist;
mod execute;
mod nn;
mod process;
mod python;
mod stores;
mod tensor;
mod torch;

#[cfg(test)]
mod tests;

pub use bundle::siblings;
pub use execute::compile::compile;
pub use execute::scenario_plan::{ScenarioError, scenario_plan};
