//! The views. A view a file.

mod collective_choice;
mod exports;
mod gallery;
mod hangs;
pub(crate) mod recording;
mod runs;
mod simulation;
mod step;
mod step_choice;
mod topology_choice;

pub(crate) use gallery::Gallery;
pub(crate) use hangs::Hangs;
pub(crate) use recording::Recording;
pub(crate) use runs::Runs;
pub(crate) use step::Step;
