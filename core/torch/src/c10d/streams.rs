//! CUDA streams of the user's (`torch.cuda.Stream`), as far as a plan can express them.
//!
//! A plan's rank has one compute stream, and one for each group's communication. A user's stream adds another
//! waiter: a call made on it blocks that stream, and the compute stream goes on until it waits for the other
//! one. So such a call is asynchronous in the plan, and waiting for the stream is waiting for its works.
//! Computing on a second stream cannot be expressed.

use super::dist::Dist;
use super::error::DistError;
use super::recorded::Recorded;
use super::stream::{Stream, StreamEvent};
use super::work::Work;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Action, Call};

/// At most so many streams of a rank.
const MAX_STREAMS: usize = 1000;

impl Dist<'_> {
    /// `torch.cuda.Stream()`; `None` when the rank has a thousand.
    pub fn new_stream(&mut self) -> Option<Stream> {
        let streams = &mut self.state.streams;
        if streams.works.len() >= MAX_STREAMS {
            return None;
        }
        streams.works.push(Vec::new());
        Some(Stream(streams.works.len() as u32))
    }

    /// `torch.cuda.current_stream()`.
    pub fn current_stream(&self) -> Stream {
        self.state.streams.current
    }

    /// `torch.cuda.set_stream(stream)`: the stream before.
    pub fn set_stream(&mut self, stream: Stream) -> Stream {
        std::mem::replace(&mut self.state.streams.current, stream)
    }

    /// `event.record(stream)`.
    pub fn record_event(&self, stream: Stream) -> StreamEvent {
        StreamEvent(self.state.streams.of(stream).to_vec())
    }

    /// `stream.wait_event(event)`, and `stream.wait_stream(other)` with an event of now. A stream
    /// that waits for the default one needs nothing: a call begins when that has come to it.
    ///
    /// # Errors
    /// Those of [`Dist::wait`].
    pub fn wait_event(&mut self, stream: Stream, event: &StreamEvent) -> Result<(), DistError> {
        match self.state.streams.works.get_mut((stream.0 as usize).wrapping_sub(1)) {
            Some(works) => works.extend_from_slice(&event.0),
            None => event.0.iter().try_for_each(|work| self.wait_here(*work, None).map(|_| ()))?,
        }
        Ok(())
    }

    /// `stream.synchronize()` and `event.synchronize()`: the process waits.
    ///
    /// # Errors
    /// Those of [`Dist::wait`].
    pub fn synchronize_event(&mut self, event: &StreamEvent) -> Result<(), DistError> {
        self.wait_event(Stream::DEFAULT, event)?;
        self.synchronize();
        Ok(())
    }

    /// The process reads an element of a tensor on the GPU (`x.item()`, `x.tolist()`, `print(x)`): it
    /// waits until its stream has come to it, and so for every call of NCCL's that the stream waits for.
    /// Calls that nobody has waited for are on streams of their own, and the process does not wait for
    /// them: where there are some, nothing is recorded, since a plan's process waits for all.
    pub fn read_on_device(&mut self) {
        let since = std::mem::replace(&mut self.state.read_to, self.state.recorded.len());
        let recorded = self.state.recorded.get(since..).unwrap_or_default();
        let nccl = |call: &Call| self.shared.backend(call.group()) == BackendName::Nccl;
        let held = recorded.iter().any(|recorded| match recorded {
            Recorded::Op(op) | Recorded::Sized(op, _) => match &op.action {
                Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } => {
                    !*async_op && op.action.calls().iter().all(nccl)
                }
                Action::Wait { .. } => true,
                _ => false,
            },
            _ => false,
        });
        let open = self.state.works.iter().any(|work| work.on_nccl && !work.waited);
        match (held, open) {
            (true, false) => self.synchronize(),
            // Looked at again when the works are waited for.
            (true, true) => self.state.read_to = since,
            (false, _) => {}
        }
    }

    /// The stream that a call waits on, if that is one of the user's and its backend has streams.
    pub(super) fn side_stream(&self, calls: &[Call]) -> Option<Stream> {
        let current = self.state.streams.current;
        let on_device =
            calls.iter().all(|call| self.shared.backend(call.group()) == BackendName::Nccl);
        (current != Stream::DEFAULT && !calls.is_empty() && on_device).then_some(current)
    }

    /// Notes that a stream waits for a work.
    pub(super) fn waits_on(&mut self, stream: Stream, work: Work) {
        if let Some(works) = self.state.streams.works.get_mut((stream.0 as usize).wrapping_sub(1)) {
            works.push(work);
        }
    }
}
