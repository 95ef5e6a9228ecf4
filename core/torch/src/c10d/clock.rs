//! How far a rank is since all ranks met.

use super::recorded::Recorded;
use lockstep_core::plan::{Action, Op};

/// How far a rank is since all ranks met, by the times that its program says: what compute and
/// sleep take. Messages take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// How often all ranks have met: in `init_process_group`, in barriers.
    pub meetings: u32,
    /// Nanoseconds since they last did.
    pub ns: u64,
    /// Whether the rank has called anything since then that may have kept it for longer.
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
