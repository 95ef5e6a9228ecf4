//! The views. A view a file.

mod asked;
mod backend_table;
mod call_choice;
mod collective_choice;
mod ddp;
mod debugger;
mod exports;
mod gallery;
mod hangs;
mod learn;
mod mesh;
mod program;
mod reading;
pub(crate) mod recording;
mod reduce_choice;
mod runs;
mod schedule_file;
mod simulation;
mod standing;
mod step;
mod step_call;
mod step_choice;
mod stepping;
mod topology_choice;

pub(crate) use ddp::Ddp;
pub(crate) use gallery::Gallery;
pub(crate) use hangs::Hangs;
pub(crate) use learn::Learn;
pub(crate) use mesh::Mesh;
pub(crate) use program::Program;
pub(crate) use recording::Recording;
pub(crate) use runs::Runs;
pub(crate) use step::Step;
pub(crate) use topology_choice::written as network;
