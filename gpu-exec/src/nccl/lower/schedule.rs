//! A collective by the plan's own schedule: copies, grouped sends and receives, and kernels that
//! reduce, step by step, in the order in which simulator and host executor do them. So the result
//! is the same bits.

use super::{CommunicatorId, Lane, Lowering, Mark, Memory, Message, Span, Step, Unsupported};
use lockstep_core::plan::{Call, Signature, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce;
use lockstep_core::schedule::{self, Buffer, Layout};

/// A message from a peer that has to be combined once the step's messages are through.
struct Reducing {
    local: Span,
    from: Span,
    into: Span,
}

/// A call whose schedule is written out.
struct Scheduled<'a> {
    layout: &'a Layout,
    communicator: CommunicatorId,
    me: GroupRank,
    element_bytes: u64,
    input: Option<TensorId>,
    output: Option<TensorId>,
    /// The input was premultiplied into a memory of its own.
    scaled: bool,
}

impl Scheduled<'_> {
    /// The memory of a slice.
    fn span(&self, of: &Lowering<'_>, slice: schedule::Slice) -> Result<Span, Unsupported> {
        let range = self.layout.range(self.me, slice);
        let memory = match slice.buffer {
            Buffer::Input if self.scaled => Some(Memory::Scaled(self.communicator)),
            Buffer::Input => self.input.map(Memory::Tensor),
            Buffer::Output => self.output.map(Memory::Tensor),
            Buffer::Scratch => Some(Memory::Scratch(self.communicator)),
        };
        let offset = range.start.saturating_mul(self.element_bytes);
        let bytes = (range.end - range.start).saturating_mul(self.element_bytes);
        match memory {
            Some(memory) => Ok(Span { memory, offset, bytes }),
            None if bytes == 0 => {
                Ok(Span { memory: Memory::Token(self.communicator), offset: 0, bytes })
            }
            None => Err(of.broken("a schedule that uses a buffer which the call does not pass")),
        }
    }
}

impl Lowering<'_> {
    pub(super) fn by_schedule(
        &mut self,
        call: &Call,
        communicator: CommunicatorId,
        work: u32,
    ) -> Result<(), Unsupported> {
        let Call::Collective { input, output, splits, .. } = call else {
            return Err(self.broken("no collective"));
        };
        let signature = self.plan.signature(self.rank, call);
        let Signature { schedule, dtype, count } =
            signature.ok_or(self.broken("a collective that its rank cannot call"))?;
        let me = GroupRank(self.member(call)?);
        let lane = Lane::Of(communicator);
        let element_bytes = dtype.size_bytes();
        let layout =
            Layout::new(schedule.clone(), count, element_bytes).with_splits(splits.clone());
        let bytes_of = |buffer| layout.grid(me, buffer).elements.saturating_mul(element_bytes);
        self.reserve(Memory::Scratch(communicator), bytes_of(Buffer::Scratch));
        let token = self.token(communicator);
        let op = schedule.collective().reduce_op();
        let premultiplier = op.and_then(|op| reduce::premultiplier(op, dtype, schedule.size()));
        let in_place = schedule.collective().in_place();
        if let Some(factor) = premultiplier {
            let (from, into) = if in_place {
                let tensor = self.operand(*output, bytes_of(Buffer::Output))?;
                (tensor, tensor)
            } else {
                let from = self.operand(*input, bytes_of(Buffer::Input))?;
                let memory = Memory::Scaled(communicator);
                self.reserve(memory, from.bytes);
                (from, Span { memory, ..from })
            };
            self.steps.push(Step::Premultiply { lane, dtype, factor, from, into });
        }
        let scheduled = Scheduled {
            layout: &layout,
            communicator,
            me,
            element_bytes,
            input: *input,
            output: *output,
            scaled: premultiplier.is_some() && !in_place,
        };
        let members = self.communicators.members(communicator).to_vec();
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            let (mut sends, mut receives, mut reducing) = (Vec::new(), Vec::new(), Vec::new());
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            let mut incoming = 0;
            for action in &actions {
                // A message without data still has to arrive: a barrier's signals.
                let carried = |span: Span| if span.bytes == 0 { token } else { span };
                let message = |peer: GroupRank, slice, span: Span| Message {
                    work,
                    step,
                    peer: members.get(peer.index()).map_or(GlobalRank(0), |rank| *rank),
                    slice: Some(slice),
                    bytes: span.bytes,
                };
                match *action {
                    schedule::Action::Copy { from, into } => {
                        let from = scheduled.span(self, from)?;
                        let into = scheduled.span(self, into)?;
                        if into.bytes > 0 {
                            self.steps.push(Step::Copy { lane, from, into });
                        }
                    }
                    schedule::Action::Reduce { local, from, into } => {
                        let [local, from, into] =
                            [local, from, into].map(|slice| scheduled.span(self, slice));
                        let (local, from, into) = (local?, from?, into?);
                        if let Some(op) = op.filter(|_| into.bytes > 0) {
                            self.steps.push(Step::Combine { lane, dtype, op, local, from, into });
                        }
                    }
                    schedule::Action::Send { peer, from } => {
                        let span = scheduled.span(self, from)?;
                        sent.push(Mark::Sent(message(peer, from, span)));
                        sends.push((peer.0, carried(span)));
                    }
                    schedule::Action::Receive { peer, into } => {
                        let span = scheduled.span(self, into)?;
                        let message = message(peer, into, span);
                        received.push(Mark::Received { message, reduced: false });
                        receives.push((peer.0, carried(span)));
                    }
                    schedule::Action::ReceiveReduce { peer, local, into } => {
                        let local = scheduled.span(self, local)?;
                        let span = scheduled.span(self, into)?;
                        let message = message(peer, into, span);
                        received.push(Mark::Received { message, reduced: true });
                        if span.bytes == 0 {
                            receives.push((peer.0, token));
                            continue;
                        }
                        let memory = Memory::Incoming(communicator);
                        let from = Span { memory, offset: incoming, bytes: span.bytes };
                        incoming += span.bytes.next_multiple_of(16);
                        receives.push((peer.0, from));
                        reducing.push(Reducing { local, from, into: span });
                    }
                }
            }
            if sends.is_empty() && receives.is_empty() {
                continue;
            }
            self.reserve(Memory::Incoming(communicator), incoming);
            if self.way.messages && !sent.is_empty() {
                self.steps.push(Step::Mark { lane, marks: sent });
            }
            self.steps.push(Step::Exchange { communicator, sends, receives });
            for Reducing { local, from, into } in reducing {
                if let Some(op) = op {
                    self.steps.push(Step::Combine { lane, dtype, op, local, from, into });
                }
            }
            if self.way.messages && !received.is_empty() {
                self.steps.push(Step::Mark { lane, marks: received });
            }
        }
        if let Some(op) = op
            && let Some(by) = reduce::divisor(op, dtype, schedule.size())
            && schedule.collective().promises(me)
        {
            let span = self.operand(*output, bytes_of(Buffer::Output))?;
            self.steps.push(Step::Divide { lane, dtype, by, span });
        }
        Ok(())
    }
}
