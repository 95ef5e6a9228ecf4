//! Point-to-point calls, as the engine keeps them: posted, and matched.

use super::sharing::FlowId;
use lockstep_core::group::GroupId;
use lockstep_core::plan::TensorId;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, VecDeque};

/// The values that must be equal for a send and a receive to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) group: GroupId,
    pub(crate) from: GlobalRank,
    pub(crate) to: GlobalRank,
    pub(crate) tag: u32,
}

/// Calls of a pair whose other side has not come yet, or does not fit: then both wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posted {
    pub(crate) sends: VecDeque<Side>,
    pub(crate) receives: VecDeque<Side>,
}

/// Receives from any source whose message has not come yet, by group, receiver and tag.
pub(crate) type FromAny = BTreeMap<(GroupId, GlobalRank, u32), VecDeque<Side>>;

/// One side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) work: u32,
    pub(crate) tensor: TensorId,
    /// When it was posted, among all: the first posted matches first.
    pub(crate) order: u64,
}

/// A matched pair on its way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) pair: Pair,
    pub(crate) send: Side,
    pub(crate) receive: Side,
    pub(crate) bytes: u64,
    pub(crate) departs: u64,
    pub(crate) way: Way,
}

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Its bytes leave, as a flow over links that others share: until when, as things are, and how long the
    /// last of them is on its way then.
    Leaving {
        flow: FlowId,
        ends: u64,
        latency_ps: u64,
    },
    /// It arrives then.
    Arriving {
        at: u64,
    },
    Arrived,
}

impl Transfer {
    /// Its arrival, as things are; `None` if it has arrived.
    pub(crate) fn arrives(&self) -> Option<u64> {
        match self.way {
            Way::Leaving { ends, latency_ps, .. } => Some(ends.saturating_add(latency_ps)),
            Way::Arriving { at } => Some(at),
            Way::Arrived => None,
        }
    }

    /// The time at which its next event is due. Others of it are out of date.
    pub(crate) fn due(&self) -> Option<u64> {
        match self.way {
            Way::Leaving { ends, .. } => Some(ends),
            Way::Arriving { at } => Some(at),
            Way::Arrived => None,
        }
    }
}
