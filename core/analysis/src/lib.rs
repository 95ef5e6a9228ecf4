//! Reports where the time of a job went.
//!
//! [`Activity`] holds the calls and computations of every rank, from a simulation, a run or a recording
//! alike: its calls, and its computations where they are known. `meetings` finds the calls that belong
//! together, and so the peer that each call waited for. From these [`Analysis`] gives the shares of time per
//! rank and step, the cost of each kind of collective, the ranks that came last, and the critical path across
//! ranks.
//!
//! At any moment a rank computes, or else communicates (*exposed* communication, which no computation hides),
//! or else waits for a peer that has not made the call yet (*skew*), or else is idle. The four add up to the
//! time.
//!
//! The types are written as JSON and in postcard, so they leave out no field.

mod activity;
mod analysis;
mod bandwidth;
mod critical_path;
mod kinds;
mod late;
mod marked_steps;
mod meetings;
mod segments;
mod steps;
mod text;

pub use activity::{Activity, Computation, NO_KERNEL, RankActivity, TimedCall};
pub use analysis::{Analysis, RankTime, Share, StepTime, Stretch};
pub use bandwidth::bus_factor;
pub use critical_path::{Cause, CriticalPath, PathKind, PathPart};
pub use kinds::CallKind;
pub use late::LateRank;
pub use meetings::{Transfer, knows_ends, member_times, transfers};
pub use steps::StepOps;
