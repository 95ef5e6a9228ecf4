//! A rank's communication stream of one group, as the engine keeps it.

use super::active::Active;
use lockstep_core::group::GroupId;
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) group: GroupId,
    pub(crate) me: GroupRank,
    /// The rank, or a switch's number behind all ranks.
    pub(crate) rank: GlobalRank,
    pub(crate) is_switch: bool,
    /// Calls that wait for the stream.
    pub(crate) queue: VecDeque<u32>,
    /// The call being carried out, or the last one that was.
    pub(crate) active: Option<Active>,
    /// Arrived messages that no step has taken yet.
    pub(crate) mailbox: Vec<u32>,
}

impl Channel {
    pub(crate) fn new(group: GroupId, me: GroupRank, rank: GlobalRank, is_switch: bool) -> Channel {
        let (queue, mailbox) = (VecDeque::new(), Vec::new());
        Channel { group, me, rank, is_switch, queue, active: None, mailbox }
    }

    pub(crate) fn enqueue(&mut self, work: u32) {
        self.queue.push_back(work);
    }

    /// Calls that wait for the stream.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// True if the stream carries out a call.
    pub(crate) fn is_busy(&self) -> bool {
        self.active.as_ref().is_some_and(|active| !active.done)
    }
}
