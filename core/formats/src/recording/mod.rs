//! A job's files joined into one recording.
//!
//! [`Piece::read`] reads a file with the table of readers, [`Sources`] gathers the pieces of a job, and
//! [`Sources::join`] joins their contributions by kind: what one source of calls lacks another fills in
//! (`fill.rs`, `profiled.rs` the kernels, and `watchdog_ends.rs` bounds the ends beside a profile), also whole ranks (`taken_over.rs` of a job that hung, `missing_ranks.rs` of one that
//! did not), the ranks' clocks are aligned by the collectives that they made together (`clocks.rs`),
//! files of another job or time are left out (`apart.rs`), and the notes say what came from where. No format is known here by its name, and nobody asks what is
//! wrong with the job: that is `lockstep-diagnosis`.

mod apart;
mod clocks;
mod file_ranks;
mod fill;
mod join;
mod judged_files;
mod missing_ranks;
mod names;
mod piece;
mod profiled;
mod same_call;
mod stack_notes;
mod taken_over;
mod watchdog_ends;

pub use join::{JoinError, RecordedJob, Sources};
pub use names::{name_in, names_of};
pub use piece::Piece;
