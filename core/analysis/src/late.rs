//! Ranks that come late to collectives, and the time that it costs the others.

use crate::meetings::Meetings;
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};

/// A rank that came last to collectives of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRank {
    /// The rank.
    pub rank: GlobalRank,
    /// The collectives in which it was ready last.
    pub came_last: u64,
    /// The collectives of its groups of which all members' calls are known.
    pub of: u64,
    /// Its distance from the member before it, in all of those, in picoseconds: the job would win at most that if it
    /// were as fast.
    pub behind_ps: u64,
    /// The time that all others waited for it, together, in picoseconds.
    pub waited_ps: u64,
}

/// Every rank that came last in some collective, those that held up the others longest first.
pub(crate) fn late_ranks(meetings: &Meetings, ranks: usize) -> Vec<LateRank> {
    let mut late: Vec<LateRank> = (0..ranks as u32)
        .map(|rank| LateRank {
            rank: GlobalRank(rank),
            came_last: 0,
            of: 0,
            behind_ps: 0,
            waited_ps: 0,
        })
        .collect();
    for collective in &meetings.collectives {
        for (_, (rank, _)) in &collective.calls {
            if let Some(own) = late.get_mut(rank.index()) {
                own.of += 1;
            }
        }
        let [.., before, last] = collective.calls.as_slice() else { continue };
        let ((before_ps, _), (last_ps, (rank, _))) = (before, last);
        let Some(own) = late.get_mut(rank.index()).filter(|_| last_ps > before_ps) else {
            continue;
        };
        own.came_last += 1;
        own.behind_ps = own.behind_ps.saturating_add(last_ps - before_ps);
        let waited = collective.calls.iter().map(|(ready_ps, _)| last_ps - ready_ps);
        own.waited_ps = waited.fold(own.waited_ps, u64::saturating_add);
    }
    late.retain(|own| own.came_last > 0);
    late.sort_by_key(|own| (std::cmp::Reverse(own.behind_ps), own.rank));
    late
}
