//! Compute streams: what a rank's program has put on its device, in order.
//!
//! On a rank with a device the program only enqueues. A computation, a call's start and the wait
//! for a call are items of the compute stream; the communication streams are the groups' channels,
//! which begin a call when the compute stream has come to it, as NCCL's stream waits for the event
//! that c10d records on the current one (`ProcessGroupNCCL::collective`, `syncStream`).

use crate::engine::{Doing, Due, Engine, Woken};
use crate::record::Recorder;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::What;
use std::collections::VecDeque;

/// One rank's compute stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComputeStream {
    items: VecDeque<StreamItem>,
    /// The first item has begun, and it takes time.
    begun: bool,
}

/// What a program puts on its compute stream.
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

impl ComputeStream {
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

    /// Whether the first item waits for the calls of operation `op`.
    pub(crate) fn waits_for(&self, op: u32) -> bool {
        matches!(self.items.front(), Some(StreamItem::WaitFor { op: waited, .. }) if *waited == op)
    }
}

impl Engine {
    /// Puts an item at the end of a rank's compute stream.
    pub(crate) fn put_on_stream(&mut self, rank: GlobalRank, item: StreamItem) {
        if let Some(stream) = &mut self.ranks[rank.index()].stream {
            stream.items.push_back(item);
            self.woken.push_back(Woken::Stream(rank));
        }
    }

    /// Carries a rank's compute stream on as far as it goes now.
    pub(crate) fn run_stream(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        loop {
            let state = &mut self.ranks[rank.index()];
            let Some(stream) = &mut state.stream else { return };
            let Some(&item) = stream.items.front() else {
                if matches!(state.doing, Doing::Synchronizing | Doing::Draining) {
                    self.woken.push_back(Woken::Rank(rank));
                }
                return;
            };
            match (item, stream.begun) {
                (StreamItem::Compute { .. }, true) => return,
                (StreamItem::Compute { op, duration_ps }, false) => {
                    stream.begun = true;
                    recorder.record(self.now, rank, || What::StreamBegan { op });
                    self.queue.push(self.now.saturating_add(duration_ps), Due::Stream(rank));
                    return;
                }
                (StreamItem::Copy { op }, _) => {
                    stream.items.pop_front();
                    let plan = std::sync::Arc::clone(&self.plan);
                    let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
                    if let Some(op) = ops.get(op as usize) {
                        self.ranks[rank.index()].memory.copy(&self.plan, &op.action);
                    }
                }
                (StreamItem::Release { work }, _) => {
                    stream.items.pop_front();
                    self.release(rank, work, recorder);
                }
                (StreamItem::WaitFor { op, by }, begun) => {
                    let waits = !state.completed(op);
                    let Some(stream) = &mut self.ranks[rank.index()].stream else { return };
                    stream.begun = waits;
                    match (begun, waits) {
                        (true, true) => return,
                        (false, true) => {
                            recorder.record(self.now, rank, || What::StreamBegan { op: by });
                            return;
                        }
                        (_, false) => {
                            stream.items.pop_front();
                            if begun {
                                recorder.record(self.now, rank, || What::StreamEnded { op: by });
                            }
                        }
                    }
                }
            }
        }
    }

    /// The stream's computation is over.
    pub(crate) fn end_stream_item(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let Some(stream) = &mut self.ranks[rank.index()].stream else { return };
        if let Some(StreamItem::Compute { op, .. }) = stream.items.front().copied() {
            stream.items.pop_front();
            stream.begun = false;
            recorder.record(self.now, rank, || What::StreamEnded { op });
        }
        self.woken.push_back(Woken::Stream(rank));
    }
}
