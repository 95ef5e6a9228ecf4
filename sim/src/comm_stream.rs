//! A rank's communication stream of one group, as the engine keeps it.

use super::active::Active;
use super::fifo::Fifo;
use lockstep_core::group::GroupId;
use lockstep_core::rank::{GlobalRank, GroupRank};

#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) group: GroupId,
    pub(crate) me: GroupRank,
    /// The rank, or a switch's number behind all ranks.
    pub(crate) rank: GlobalRank,
    pub(crate) is_switch: bool,
    /// Calls that wait for the stream.
    pub(crate) queue: Fifo<u32>,
    /// The call being carried out, or the last one that was.
    pub(crate) active: Option<Active>,
    /// Arrived messages that no step has taken yet.
    #[expect(clippy::box_collection, reason = "one pointer where none wait")]
    mailbox: Option<Box<Vec<u32>>>,
}

impl Channel {
    pub(crate) fn new(group: GroupId, me: GroupRank, rank: GlobalRank, is_switch: bool) -> Channel {
        let queue = Fifo::new();
        Channel { group, me, rank, is_switch, queue, active: None, mailbox: None }
    }

    /// Arrived messages that no step has taken yet.
    pub(crate) fn mailbox(&self) -> &[u32] {
        self.mailbox.as_ref().map(|mailbox| mailbox.as_slice()).unwrap_or_default()
    }

    /// Keeps a message that no step waits for.
    pub(crate) fn keep(&mut self, message: u32) {
        self.mailbox.get_or_insert_default().push(message);
    }

    /// Takes out all messages that no step has taken yet.
    pub(crate) fn empty_mailbox(&mut self) -> Vec<u32> {
        self.mailbox.as_mut().map(|mailbox| std::mem::take(&mut **mailbox)).unwrap_or_default()
    }

    pub(crate) fn enqueue(&mut self, work: u32) {
        self.queue.push(work);
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
