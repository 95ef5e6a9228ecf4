//! The time of a call that takes a known time as a whole, and how many of its ranks have begun it.

use crate::prepared::Prepared;
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use std::collections::BTreeMap;

/// The time of a call on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// So long after its last step, in picoseconds.
    Takes(u64),
    /// It is done then, in picoseconds.
    Until(u64),
    /// One of its ranks has ended in the middle of it.
    Never,
}

/// Calls that not all ranks have begun and that need no messages: how many have, by group,
/// sequence number and signature.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meetings {
    pub(crate) begun: BTreeMap<(GroupId, u64, u32), u32>,
}

impl Meetings {
    /// `None` if calls need their messages: for values, or because ranks may leave calls half done.
    pub(crate) fn new(prepared: &Prepared) -> Option<Meetings> {
        (!prepared.values && !prepared.half_done).then(Meetings::default)
    }
}

/// True if no rank is done with such a call before every rank has begun it.
pub(crate) fn is_mutual(collective: Collective) -> bool {
    match collective {
        Collective::AllReduce { .. }
        | Collective::AllGather
        | Collective::ReduceScatter { .. }
        | Collective::AllToAll
        | Collective::Barrier => true,
        Collective::Broadcast { .. }
        | Collective::Reduce { .. }
        | Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::MonitoredBarrier { .. } => false,
    }
}
