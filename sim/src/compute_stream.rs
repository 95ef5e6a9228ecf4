//! A rank's compute stream, as the engine keeps it.

use std::collections::VecDeque;

/// One rank's compute stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComputeStream {
    pub(crate) items: VecDeque<StreamItem>,
    /// The first item has begun, and it takes time.
    pub(crate) begun: bool,
}

/// An item that a program puts on its compute stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamItem {
    /// A computation.
    Compute { op: u32, duration_ps: u64 },
    /// A step among the rank's own tensors, which takes no time.
    Copy { op: u32 },
    /// A call may begin.
    Release { work: u32 },
    /// The stream waits for the calls of operation `op`; operation `by` said so.
    WaitFor { op: u32, by: u32 },
}

/// A call's start and the wait for it: many programs put no more on their stream at once.
const FIRST_ITEMS: usize = 2;

impl ComputeStream {
    pub(crate) fn push(&mut self, item: StreamItem) {
        if self.items.capacity() == 0 {
            self.items.reserve_exact(FIRST_ITEMS);
        }
        self.items.push_back(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Items that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The operation of the item that has begun, and whether it waits for calls.
    pub(crate) fn current(&self) -> Option<(u32, bool)> {
        match self.items.front().filter(|_| self.begun)? {
            StreamItem::Compute { op, .. } => Some((*op, false)),
            StreamItem::WaitFor { by, .. } => Some((*by, true)),
            StreamItem::Copy { .. } | StreamItem::Release { .. } => None,
        }
    }

    /// True if the first item waits for the calls of operation `op`.
    pub(crate) fn waits_for(&self, op: u32) -> bool {
        matches!(self.items.front(), Some(StreamItem::WaitFor { op: waited, .. }) if *waited == op)
    }
}
