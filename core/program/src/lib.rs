//! Programs: what each rank does, written in Python's words, and the plan that comes of it.
//!
//! The language is Starlark, the deterministic Python dialect, with torch.distributed's functions
//! under their names; Python's `import`, `with`, `while`, `raise`, `assert`, `is` and f-strings are
//! understood too. `compile` executes the text once for each rank: `run(main, world_size = 8)`
//! says how many there are, and each process then runs `main()`, from a fresh start as every
//! process of a real job does. What it calls is recorded by [`c10d`](lockstep_torch::c10d), with the line.
//!
//! ```
//! use lockstep_program::compile;
//! use lockstep_scenarios::program::Options;
//!
//! let text = r#"
//! import torch.distributed as dist
//!
//! def main():
//!     dist.init_process_group("gloo")
//!     grad = tensor(1024, fill = dist.get_rank())
//!     if dist.get_rank() != 2:       # the bug
//!         dist.all_reduce(grad)
//!
//! run(main, world_size = 4)
//! "#;
//! let compiled = compile("train.py", text, &Options::default())?;
//! assert_eq!(compiled.plan.world_size, 4);
//! # Ok::<(), lockstep_scenarios::program::ProgramError>(())
//! ```
//!
//! A program is bounded in steps, memory and nesting ([`Limits`](lockstep_scenarios::program::Limits)). A rank that raises ends there,
//! as a process does, and the others go on: that is a plan too. A tensor's values are not known
//! while a program is recorded, so that nothing can be decided by them.

// `unsafe impl` of marker traits, by which the interpreter knows our types.
#![allow(unsafe_code, reason = "starlark's macros expand to it; there is none of ours here")]

mod absent;
mod amp;
mod arguments;
mod attempts;
mod augmented;
mod backend_class;
mod batch_sampler;
mod callable;
mod checkpoint;
mod class_functions;
mod class_members;
mod classes;
mod collections;
mod compile;
mod contexts;
mod cuda;
mod data;
mod dialect;
mod dist;
mod elements;
mod environ;
mod everyday;
mod exceptions;
mod execute;
mod held;
mod hints;
mod in_place;
mod items;
mod iterated;
mod iterators;
mod job;
mod join;
mod json;
mod keys;
mod known;
mod leaving;
mod leftovers;
mod lineage;
mod logging;
mod losses;
mod mesh;
mod mesh_ranks;
mod missing;
mod models;
mod module;
mod module_list;
mod module_parts;
mod module_value;
mod objects;
mod objects_shown;
mod operand;
mod operation;
mod optimizer;
mod output_shape;
mod output_value;
mod own_data;
mod own_modules;
mod own_operators;
mod parameters;
mod pickled;
mod prints;
mod process;
mod processes;
mod promotion;
mod python;
mod reduce_ops;
mod scenario_plan;
mod shown;
mod size_value;
mod special;
mod stores;
mod streams;
mod subsets;
mod tensor_each;
mod tensor_functions;
mod tensor_math;
mod tensor_moves;
mod tensor_parts;
mod tensor_products;
mod tensor_reduce;
mod tensor_shapes;
mod tensor_shown;
mod tensor_triangles;
mod tensor_value;
mod then;
mod torch;
mod torch_parts;
mod torch_settings;
mod transposed;
mod undecided;
mod values;
mod work;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_attempts;
#[cfg(test)]
mod tests_classes;
#[cfg(test)]
mod tests_computed;
#[cfg(test)]
mod tests_ddp;
#[cfg(test)]
mod tests_mesh;
#[cfg(test)]
mod tests_objects;
#[cfg(test)]
mod tests_ordinary;
#[cfg(test)]
mod tests_python;
#[cfg(test)]
mod tests_recorded;
#[cfg(test)]
mod tests_scripts;
#[cfg(test)]
mod tests_special;
#[cfg(test)]
mod tests_tensors;
#[cfg(test)]
mod tests_tutorials;
#[cfg(test)]
mod tests_undecided;
#[cfg(test)]
mod tests_unknown;
#[cfg(test)]
mod tests_users;
#[cfg(test)]
mod tests_values;

pub use compile::compile;
pub use scenario_plan::{ScenarioError, scenario_plan};
