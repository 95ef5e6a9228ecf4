//! The four views. A view a file.

mod exports;
mod hangs;
pub(crate) mod recording;
mod runs;
mod simulation;
mod step;
mod step_choice;

pub(crate) use hangs::Hangs;
pub(crate) use recording::Recording;
pub(crate) use runs::Runs;
pub(crate) use step::Step;
