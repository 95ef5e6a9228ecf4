//! Compute streams: the items that a rank's program has put on its device, in order.
//!
//! On a rank with a device the program only enqueues. A computation, a call's start and the wait for a call
//! are items of the compute stream; the communication streams are the groups' channels, which begin a call
//! when the compute stream has come to it, as NCCL's stream waits for the event that c10d records on the
//! current one (`ProcessGroupNCCL::collective`, `syncStream`).

use super::compute_stream::StreamItem;
use super::record::Recorder;
use super::state::{Doing, Due, Engine, Woken};
use lockstep_core::plan::Action;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::What;

impl Engine {
    /// Puts an item at the end of a rank's compute stream.
    pub(crate) fn put_on_stream(&mut self, rank: GlobalRank, item: StreamItem) {
        if let Some(stream) = &mut self.ranks[rank.index()].stream {
            stream.push(item);
            // Behind others it begins when they are done.
            if stream.len() == 1 {
                self.woken.push_back(Woken::Stream(rank));
            }
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
                    let op = plan.program(rank).and_then(|program| program.ops.get(op as usize));
                    if let Some(Action::Copy(copy)) = op.map(|op| &op.action) {
                        self.ranks[rank.index()].memory.copy(&plan, copy);
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
