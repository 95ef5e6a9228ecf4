//! The clock of a rank: the time since all ranks met.

use super::recorded::Recorded;
use lockstep_core::plan::{Action, Op};

/// The time of a rank since all ranks met, from the compute and sleep times of its program.
/// Messages take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The number of times all ranks have met: in `init_process_group`, in barriers.
    pub meetings: u32,
    /// Nanoseconds since they last did.
    pub ns: u64,
    /// True if the rank has since made a call that may have delayed it further.
    pub loose: bool,
}

impl Clock {
    /// All ranks meet, and go on together.
    pub(super) fn all_meet(&mut self) {
        *self = Clock { meetings: self.meetings + 1, ..Clock::default() };
    }

    /// The rank does this.
    pub(super) fn goes_on(&mut self, recorded: &Recorded) {
        match recorded {
            Recorded::Op(Op {
                action: Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. },
                ..
            }) => self.ns = self.ns.saturating_add(*duration_ns),
            _ => self.loose = true,
        }
    }
}
