//! Programs: what each rank does, written in Python's words, and the plan that comes of it.
//!
//! The language is Starlark, the deterministic Python dialect, with torch.distributed's functions
//! under their names; Python's `import`, `with`, `while`, `raise`, `assert`, `is` and f-strings are
//! understood too. `compile` (of the feature `program`) executes the text once for each rank: `run(main, world_size = 8)`
//! says how many there are, and each process then runs `main()`, from a fresh start as every
//! process of a real job does. What it calls is recorded by [`c10d`](crate::c10d), with the line.
//!
//! ```
//! # #[cfg(feature = "program")] {
//! use lockstep_core::program::{Options, compile};
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
//! # }
//! # Ok::<(), lockstep_core::program::ProgramError>(())
//! ```
//!
//! A program is bounded in steps, memory and nesting ([`Limits`]). A rank that raises ends there,
//! as a process does, and the others go on: that is a plan too. A tensor's values are not known
//! while a program is recorded, so that nothing can be decided by them.

// `unsafe impl` of marker traits, by which the interpreter knows our types.
#![allow(unsafe_code, reason = "starlark's macros expand to it; there is none of ours here")]

mod compiled;
mod error;

// What executes is left out of the page's own module, which hands programs to another one.
#[cfg(feature = "program")]
mod absent;
#[cfg(feature = "program")]
mod amp;
#[cfg(feature = "program")]
mod arguments;
#[cfg(feature = "program")]
mod attempts;
#[cfg(feature = "program")]
mod augmented;
#[cfg(feature = "program")]
mod backend_class;
#[cfg(feature = "program")]
mod batch_sampler;
#[cfg(feature = "program")]
mod callable;
#[cfg(feature = "program")]
mod checkpoint;
#[cfg(feature = "program")]
mod class_functions;
#[cfg(feature = "program")]
mod class_members;
#[cfg(feature = "program")]
mod classes;
#[cfg(feature = "program")]
mod collections;
#[cfg(feature = "program")]
mod compile;
#[cfg(feature = "program")]
mod contexts;
#[cfg(feature = "program")]
mod cuda;
#[cfg(feature = "program")]
mod data;
#[cfg(feature = "program")]
mod dialect;
#[cfg(feature = "program")]
mod dist;
#[cfg(feature = "program")]
mod elements;
#[cfg(feature = "program")]
mod environ;
#[cfg(feature = "program")]
mod everyday;
#[cfg(feature = "program")]
mod exceptions;
#[cfg(feature = "program")]
mod execute;
#[cfg(feature = "program")]
mod held;
#[cfg(feature = "program")]
mod hints;
#[cfg(feature = "program")]
mod in_place;
#[cfg(feature = "program")]
mod items;
#[cfg(feature = "program")]
mod iterated;
#[cfg(feature = "program")]
mod iterators;
#[cfg(feature = "program")]
mod job;
#[cfg(feature = "program")]
mod join;
#[cfg(feature = "program")]
mod json;
#[cfg(feature = "program")]
mod keys;
#[cfg(feature = "program")]
mod known;
#[cfg(feature = "program")]
mod leaving;
#[cfg(feature = "program")]
mod leftovers;
#[cfg(feature = "program")]
mod lineage;
#[cfg(feature = "program")]
mod logging;
#[cfg(feature = "program")]
mod losses;
#[cfg(feature = "program")]
mod mesh;
#[cfg(feature = "program")]
mod mesh_ranks;
#[cfg(feature = "program")]
mod missing;
#[cfg(feature = "program")]
mod models;
#[cfg(feature = "program")]
mod module;
#[cfg(feature = "program")]
mod module_list;
#[cfg(feature = "program")]
mod module_parts;
#[cfg(feature = "program")]
mod module_value;
#[cfg(feature = "program")]
mod objects;
#[cfg(feature = "program")]
mod objects_shown;
#[cfg(feature = "program")]
mod operand;
#[cfg(feature = "program")]
mod operation;
#[cfg(feature = "program")]
mod optimizer;
#[cfg(feature = "program")]
mod output_shape;
#[cfg(feature = "program")]
mod output_value;
#[cfg(feature = "program")]
mod own_data;
#[cfg(feature = "program")]
mod own_modules;
#[cfg(feature = "program")]
mod own_operators;
#[cfg(feature = "program")]
mod parameters;
#[cfg(feature = "program")]
mod pickled;
#[cfg(feature = "program")]
mod prints;
#[cfg(feature = "program")]
mod process;
#[cfg(feature = "program")]
mod processes;
#[cfg(feature = "program")]
mod promotion;
#[cfg(feature = "program")]
mod python;
#[cfg(feature = "program")]
mod reduce_ops;
#[cfg(feature = "program")]
mod shown;
#[cfg(feature = "program")]
mod size_value;
#[cfg(feature = "program")]
mod special;
#[cfg(feature = "program")]
mod stores;
#[cfg(feature = "program")]
mod streams;
#[cfg(feature = "program")]
mod subsets;
#[cfg(feature = "program")]
mod tensor_each;
#[cfg(feature = "program")]
mod tensor_functions;
#[cfg(feature = "program")]
mod tensor_math;
#[cfg(feature = "program")]
mod tensor_moves;
#[cfg(feature = "program")]
mod tensor_parts;
#[cfg(feature = "program")]
mod tensor_products;
#[cfg(feature = "program")]
mod tensor_reduce;
#[cfg(feature = "program")]
mod tensor_shapes;
#[cfg(feature = "program")]
mod tensor_shown;
#[cfg(feature = "program")]
mod tensor_triangles;
#[cfg(feature = "program")]
mod tensor_value;
#[cfg(feature = "program")]
mod then;
#[cfg(feature = "program")]
mod torch;
#[cfg(feature = "program")]
mod torch_parts;
#[cfg(feature = "program")]
mod torch_settings;
#[cfg(feature = "program")]
mod transposed;
#[cfg(feature = "program")]
mod undecided;
#[cfg(feature = "program")]
mod values;
#[cfg(feature = "program")]
mod work;

#[cfg(all(test, feature = "program"))]
mod tests;
#[cfg(all(test, feature = "program"))]
mod tests_attempts;
#[cfg(all(test, feature = "program"))]
mod tests_classes;
#[cfg(all(test, feature = "program"))]
mod tests_computed;
#[cfg(all(test, feature = "program"))]
mod tests_ddp;
#[cfg(all(test, feature = "program"))]
mod tests_mesh;
#[cfg(all(test, feature = "program"))]
mod tests_objects;
#[cfg(all(test, feature = "program"))]
mod tests_ordinary;
#[cfg(all(test, feature = "program"))]
mod tests_python;
#[cfg(all(test, feature = "program"))]
mod tests_recorded;
#[cfg(all(test, feature = "program"))]
mod tests_scripts;
#[cfg(all(test, feature = "program"))]
mod tests_special;
#[cfg(all(test, feature = "program"))]
mod tests_tensors;
#[cfg(all(test, feature = "program"))]
mod tests_tutorials;
#[cfg(all(test, feature = "program"))]
mod tests_undecided;
#[cfg(all(test, feature = "program"))]
mod tests_unknown;
#[cfg(all(test, feature = "program"))]
mod tests_users;
#[cfg(all(test, feature = "program"))]
mod tests_values;

#[cfg(feature = "program")]
pub use compile::compile;
pub use compiled::{Compiled, Limits, Options, Printed};
pub use error::ProgramError;
