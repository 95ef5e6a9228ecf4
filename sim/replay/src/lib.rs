//! A recording is a plan again: recovered from what was recorded, simulated, and repaired.
//!
//! [`recover()`] turns the calls of a recording into a plan; what the recording does not tell is assumed by a stated
//! rule and listed. [`repair()`] changes such a plan so that the ranks that a finding blames call as the others do,
//! and simulates it: a repair that completes is proved, and [`with_tried_repairs`] says so in a report. [`script`] makes the plan of a script that PyTorch ran.
//! [`fit_links`] finds the links with which the simulator's times are the recorded ones, and [`what_if()`] compares a job
//! with a changed one.

mod answers;
mod assumption;
mod between;
mod buckets;
mod continued;
mod fit;
mod given_up;
mod measured;
mod operation;
mod proof;
mod proved_report;
mod python;
mod rank_programs;
mod recorded_times;
mod recover;
mod repair;
mod replayed_report;
pub mod script;
mod what_if;
mod window;

pub use assumption::Assumption;
pub use fit::{Fitted, fit_links, fit_links_watched};
pub use measured::with_measured_computations;
pub use proof::Repair;
pub use proved_report::{MOST_CALLS, with_tried_repairs};
pub use python::{PythonError, python_program};
pub use recorded_times::recorded_times;
pub use recover::{RecordedCalls, RecordingEnd, RecoverError, Recovered, recover};
pub use repair::{Recording, RepairError, can_be_repaired, repair, repair_watched};
pub use replayed_report::{replayed_report, report_beside_recording};
pub use what_if::{Compared, Elsewhere, Side, Variation, VariationError, recorded_steps, what_if};
