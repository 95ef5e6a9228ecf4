//! A collective by the plan's own schedule: copies, grouped sends and receives, and kernels that
//! reduce, step by step, in the order in which simulator and host executor do them. So the result
//! is the same bits.

use super::{CommunicatorId, Lane, Lowering, Mark, Memory, Message, Span, Step, Unsupported};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Call, Signature, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{self, ReduceOp};
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
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            let exchange = self.exchange(&scheduled, &actions, (work, step), (dtype, op))?;
            self.push_exchange(exchange, communicator, (dtype, op));
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

    /// The messages of one step. Its copies and local reductions become steps of their own at once.
    fn exchange(
        &mut self,
        scheduled: &Scheduled<'_>,
        actions: &[schedule::Action],
        (work, step): (u32, u32),
        (dtype, op): (Dtype, Option<ReduceOp>),
    ) -> Result<Exchange, Unsupported> {
        let communicator = scheduled.communicator;
        let lane = Lane::Of(communicator);
        let token = self.token(communicator);
        // A message without bytes still has to arrive: a barrier's signal.
        let carried = |span: Span| if span.bytes == 0 { token } else { span };
        let members = self.communicators.members(communicator).to_vec();
        let message = |peer: GroupRank, slice, span: Span| Message {
            work,
            step,
            peer: members.get(peer.index()).map_or(GlobalRank(0), |rank| *rank),
            slice: Some(slice),
            bytes: span.bytes,
        };
        let mut exchange = Exchange::default();
        for action in actions {
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
                    exchange.sent.push(Mark::Sent(message(peer, from, span)));
                    exchange.sends.push((peer.0, carried(span)));
                }
                schedule::Action::Receive { peer, into } => {
                    let span = scheduled.span(self, into)?;
                    let message = message(peer, into, span);
                    exchange.received.push(Mark::Received { message, reduced: false });
                    exchange.receives.push((peer.0, carried(span)));
                }
                schedule::Action::ReceiveReduce { peer, local, into } => {
                    let local = scheduled.span(self, local)?;
                    let span = scheduled.span(self, into)?;
                    let message = message(peer, into, span);
                    exchange.received.push(Mark::Received { message, reduced: true });
                    if span.bytes == 0 {
                        exchange.receives.push((peer.0, token));
                        continue;
                    }
                    let memory = Memory::Incoming(communicator);
                    let from = Span { memory, offset: exchange.incoming, bytes: span.bytes };
                    exchange.incoming += span.bytes.next_multiple_of(16);
                    exchange.receives.push((peer.0, from));
                    exchange.reducing.push(Reducing { local, from, into: span });
                }
            }
        }
        Ok(exchange)
    }

    fn push_exchange(
        &mut self,
        exchange: Exchange,
        communicator: CommunicatorId,
        (dtype, op): (Dtype, Option<ReduceOp>),
    ) {
        let lane = Lane::Of(communicator);
        let Exchange { sends, receives, reducing, sent, received, incoming } = exchange;
        if sends.is_empty() && receives.is_empty() {
            return;
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
}

/// The messages of one step of a schedule.
#[derive(Default)]
struct Exchange {
    /// By peer in the communicator.
    sends: Vec<(u32, Span)>,
    receives: Vec<(u32, Span)>,
    /// The received parts that are reduced into others once they are there.
    reducing: Vec<Reducing>,
    sent: Vec<Mark>,
    received: Vec<Mark>,
    /// The bytes that come in to be reduced.
    incoming: u64,
}
