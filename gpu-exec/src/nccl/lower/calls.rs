//! Calls of torch.distributed as steps: their streams, their order, and NCCL's own collectives.

use super::elements::{Element, Operation, Reduction};
use super::{CommunicatorId, Lane, Lowering, Mark, Memory, Message, Span, Step, Unsupported};
use crate::nccl::Collectives;
use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Action, Call, Signature};
use lockstep_core::rank::GroupRank;

/// Bytes of a token: one float32, which NCCL's barrier reduces.
const TOKEN_BYTES: u64 = 4;

impl Lowering<'_> {
    /// The calls of an operation. True if they hold the compute stream and not the program.
    pub(super) fn calls(&mut self, action: &Action) -> Result<bool, Unsupported> {
        let calls = action.calls();
        let first = self.works;
        let mut on_stream = true;
        // Calls of a batch that go to one communicator at once.
        let mut batch: Option<Batch> = None;
        for (part, call) in (0..).zip(calls) {
            let group = call.group();
            on_stream &= self.on_stream(group);
            let work = self.works;
            self.works += 1;
            let numbers = if call.is_p2p() { &mut self.p2p } else { &mut self.collectives };
            let seq = numbers.next(group);
            self.steps.push(Step::Make { work, part, seq, group });
            let communicator = self.communicator(call, calls.len() == 1 && batch_of_one(action))?;
            if call.is_p2p() {
                match &mut batch {
                    Some(open) if open.communicator == communicator => {
                        open.add(self, call, work)?
                    }
                    _ => {
                        self.finish(batch.take());
                        let mut open = Batch::new(communicator);
                        open.add(self, call, work)?;
                        batch = Some(open);
                    }
                }
                continue;
            }
            self.finish(batch.take());
            let lane = Lane::Of(communicator);
            self.steps.push(Step::Follow { lane, on: Lane::Compute });
            self.steps.push(Step::Mark { lane, marks: vec![Mark::Started { work }] });
            match self.way.collectives {
                Collectives::Library => self.by_library(call, communicator)?,
                Collectives::Schedules => self.by_schedule(call, communicator, work)?,
            }
            self.steps.push(Step::Mark { lane, marks: vec![Mark::Completed { work }] });
        }
        self.finish(batch.take());
        let works = first..self.works;
        if !action.is_async() {
            let barrier = calls.iter().any(|c| c.collective().is_some_and(Collective::is_barrier));
            if on_stream && !barrier {
                let lane = Lane::Compute;
                self.steps.extend(works.map(|work| Step::Await { lane, work }));
            } else {
                self.steps.push(Step::HoldFor { works, timeout_ms: None });
            }
        }
        Ok(on_stream)
    }

    fn communicator(&self, call: &Call, single: bool) -> Result<CommunicatorId, Unsupported> {
        let group = call.group();
        let me = GroupRank(self.member(call)?);
        let found = match call {
            Call::Recv { peer: None, .. } => return Err(Unsupported::AnySource { op: self.op }),
            Call::Send { peer, .. } | Call::Recv { peer: Some(peer), .. } if single => {
                self.communicators.pair(group, me, *peer)
            }
            _ => self.communicators.group(group),
        };
        found.ok_or(self.broken("a call without a communicator"))
    }

    /// A batch's calls on their stream.
    fn finish(&mut self, batch: Option<Batch>) {
        let Some(batch) = batch else { return };
        let communicator = batch.communicator;
        let lane = Lane::Of(communicator);
        let started = batch.works.iter().map(|work| Mark::Started { work: *work });
        let mut before: Vec<Mark> = started.collect();
        let mut after = Vec::new();
        if self.way.messages {
            before.extend(batch.sent.iter().map(|message| Mark::Sent(*message)));
            let received = batch.received.iter();
            after.extend(received.map(|m| Mark::Received { message: *m, reduced: false }));
        }
        after.extend(batch.works.iter().map(|work| Mark::Completed { work: *work }));
        let (sends, receives) = (batch.sends, batch.receives);
        self.steps.extend([
            Step::Follow { lane, on: Lane::Compute },
            Step::Mark { lane, marks: before },
            Step::Exchange { communicator, sends, receives },
            Step::Mark { lane, marks: after },
        ]);
    }

    /// The tensors of a call as spans of so many elements; an empty one where it passes none.
    pub(super) fn operand(
        &self,
        tensor: Option<lockstep_core::plan::TensorId>,
        bytes: u64,
    ) -> Result<Span, Unsupported> {
        let Some(tensor) = tensor else { return Err(self.broken("a call without its tensor")) };
        let whole = self.tensor(tensor)?;
        match bytes <= whole.bytes {
            true => Ok(Span { bytes, ..whole }),
            false => Err(self.broken("a call on more elements than its tensor has")),
        }
    }

    pub(super) fn token(&mut self, communicator: CommunicatorId) -> Span {
        let memory = Memory::Token(communicator);
        self.reserve(memory, TOKEN_BYTES);
        Span { memory, offset: 0, bytes: TOKEN_BYTES }
    }

    fn by_library(&mut self, call: &Call, communicator: CommunicatorId) -> Result<(), Unsupported> {
        let Call::Collective { collective, input, output, splits, .. } = call else {
            return Err(self.broken("no collective"));
        };
        let signature = self.plan.signature(self.rank, call);
        let Signature { schedule, dtype, count } =
            signature.ok_or(self.broken("a collective that its rank cannot call"))?;
        let (size, me) = (schedule.size(), self.member(call)?);
        let bytes = |elements: u64| elements.saturating_mul(dtype.size_bytes());
        let collective = *collective;
        let (operation, input, output) = match collective {
            Collective::Barrier => {
                // As `ProcessGroupNCCL::barrier`: an all_reduce of one element.
                let token = self.token(communicator);
                self.steps.push(Step::Collective {
                    communicator,
                    operation: Operation::AllReduce(Reduction::Sum),
                    element: Element::Float32,
                    count: 1,
                    input: token,
                    output: token,
                });
                return Ok(());
            }
            Collective::MonitoredBarrier { .. } => {
                return Err(Unsupported::MonitoredBarrier { op: self.op });
            }
            Collective::Gather { .. } | Collective::Scatter { .. } | Collective::AllToAll => {
                return self.by_exchange(call, communicator, dtype, count, [size, me], splits);
            }
            Collective::AllReduce { op } => {
                let tensor = self.operand(*output, bytes(count))?;
                (Operation::AllReduce(self.reduction(op, dtype, size)?), tensor, tensor)
            }
            Collective::Reduce { op, root } => {
                let tensor = self.operand(*output, bytes(count))?;
                (Operation::Reduce(self.reduction(op, dtype, size)?, root.0), tensor, tensor)
            }
            Collective::Broadcast { root } => {
                let tensor = self.operand(*output, bytes(count))?;
                (Operation::Broadcast(root.0), tensor, tensor)
            }
            Collective::ReduceScatter { op } => {
                let all = count.saturating_mul(size.into());
                let input = self.operand(*input, bytes(all))?;
                let output = self.operand(*output, bytes(count))?;
                (Operation::ReduceScatter(self.reduction(op, dtype, size)?), input, output)
            }
            Collective::AllGather => {
                let all = count.saturating_mul(size.into());
                let input = self.operand(*input, bytes(count))?;
                (Operation::AllGather, input, self.operand(*output, bytes(all))?)
            }
        };
        // Calls that only move data send bytes, so that every type works.
        let (element, count) = match collective.reduce_op() {
            Some(_) => {
                let element = Element::reduced(dtype);
                let (element, each) = element.ok_or(self.broken("a type that NCCL has not"))?;
                (element, count.saturating_mul(each))
            }
            None => (Element::Uint8, bytes(count)),
        };
        self.steps.push(Step::Collective {
            communicator,
            operation,
            element,
            count,
            input,
            output,
        });
        Ok(())
    }

    fn reduction(
        &self,
        op: lockstep_core::reduce::ReduceOp,
        dtype: Dtype,
        size: u32,
    ) -> Result<Reduction, Unsupported> {
        let reduction = Reduction::of(op, dtype);
        let reduction =
            reduction.map_err(|refused| Unsupported::Reduction { op: self.op, refused })?;
        // The mean of one is its sum; NCCL's kernel for one rank refuses that of 8-bit floats
        // (`ncclLaunchOneRank` in `onerank.cu` asks for an architecture in its host code).
        Ok(match reduction {
            Reduction::Avg if size == 1 => Reduction::Sum,
            reduction => reduction,
        })
    }

    /// Calls that c10d makes of sends and receives too (`torch/csrc/cuda/nccl.cpp`: `gather`,
    /// `scatter`, `all2all_single_equal_split`, `all2all_single_unequal_split`); a rank's own part
    /// is a copy.
    fn by_exchange(
        &mut self,
        call: &Call,
        communicator: CommunicatorId,
        dtype: Dtype,
        count: u64,
        [size, me]: [u32; 2],
        splits: &Option<Box<Splits>>,
    ) -> Result<(), Unsupported> {
        let Call::Collective { collective, input, output, .. } = call else {
            return Err(self.broken("no collective"));
        };
        let even = || vec![count; size as usize];
        let one = |rank: u32| (0..size).map(|r| if r == rank { count } else { 0 }).collect();
        let none = || vec![0; size as usize];
        // Elements to each rank and from each.
        let (to, from): (Vec<u64>, Vec<u64>) = match (collective, splits) {
            (_, Some(splits)) => (splits.input.clone(), splits.output.clone()),
            (Collective::Gather { root }, _) if root.0 == me => (one(me), even()),
            (Collective::Gather { root }, _) => (one(root.0), none()),
            (Collective::Scatter { root }, _) if root.0 == me => (even(), one(me)),
            (Collective::Scatter { root }, _) => (none(), one(root.0)),
            _ => (even(), even()),
        };
        let bytes = |elements: u64| elements.saturating_mul(dtype.size_bytes());
        let parts = |tensor: Span, elements: &[u64]| -> Vec<Span> {
            let mut offset = 0;
            let part = |elements: &u64| {
                let span = Span { memory: tensor.memory, offset, bytes: bytes(*elements) };
                offset += span.bytes;
                span
            };
            elements.iter().map(part).collect()
        };
        let spans = |this: &Self, tensor, elements: &[u64]| {
            let all = elements.iter().fold(0, |all: u64, part| all.saturating_add(*part));
            if all == 0 {
                return Ok(Vec::new());
            }
            Ok(parts(this.operand(tensor, bytes(all))?, elements))
        };
        let sends = spans(self, *input, &to)?;
        let receives = spans(self, *output, &from)?;
        let own = |spans: &[Span]| spans.get(me as usize).copied().filter(|span| span.bytes > 0);
        if let (Some(from), Some(into)) = (own(&sends), own(&receives)) {
            self.steps.push(Step::Copy { lane: Lane::Of(communicator), from, into });
        }
        let others = |spans: Vec<Span>| -> Vec<(u32, Span)> {
            let all = (0..).zip(spans);
            all.filter(|(peer, span)| *peer != me && span.bytes > 0).collect()
        };
        let (sends, receives) = (others(sends), others(receives));
        if !sends.is_empty() || !receives.is_empty() {
            self.steps.push(Step::Exchange { communicator, sends, receives });
        }
        Ok(())
    }
}

/// True if an operation is one call by itself and not a batch.
fn batch_of_one(action: &Action) -> bool {
    matches!(action, Action::Call { .. })
}

/// Sends and receives that start together.
struct Batch {
    communicator: CommunicatorId,
    works: Vec<u32>,
    sends: Vec<(u32, Span)>,
    receives: Vec<(u32, Span)>,
    sent: Vec<Message>,
    received: Vec<Message>,
}

impl Batch {
    fn new(communicator: CommunicatorId) -> Batch {
        Batch {
            communicator,
            works: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    fn add(&mut self, of: &Lowering<'_>, call: &Call, work: u32) -> Result<(), Unsupported> {
        let (Call::Send { peer, tensor, .. } | Call::Recv { peer: Some(peer), tensor, .. }) = call
        else {
            return Err(Unsupported::AnySource { op: of.op });
        };
        let global = of.plan.group(call.group()).and_then(|group| group.global_rank(*peer));
        let global = global.ok_or(of.broken("a peer outside the group"))?;
        let members = of.communicators.members(self.communicator);
        let place = members.iter().position(|member| *member == global);
        let place = place.ok_or(of.broken("a peer outside the communicator"))? as u32;
        let span = of.tensor(*tensor)?;
        let message = Message { work, step: 0, peer: global, slice: None, bytes: span.bytes };
        self.works.push(work);
        match call {
            Call::Send { .. } => {
                self.sends.push((place, span));
                self.sent.push(message);
            }
            _ => {
                self.receives.push((place, span));
                self.received.push(message);
            }
        }
        Ok(())
    }
}
