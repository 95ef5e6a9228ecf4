//! One group's collectives on one rank: the schedule's actions, step by step, over the group's
//! rings. The same schedules as the simulator's, in the same order of additions.

use super::clerk::{Clerk, Message};
use super::memory::{Memory, Slice};
use super::transfer::{Header, Incoming, Moved, Outgoing};
use crate::shm::{Doorbell, Patience, Receiver, Sender};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Call, Plan, Signature, Splits, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{self, ReduceOp};
use lockstep_core::schedule::{self, Buffer, Layout, Schedule};

/// A rank's side of a group's channels.
#[derive(Debug)]
pub(super) struct GroupLink {
    pub(super) me: GroupRank,
    pub(super) bell: Doorbell,
    /// By group rank.
    pub(super) peers: Vec<Peer>,
    pub(super) patience: Patience,
    scratch: Memory,
    /// What the current call reads in place of its input: the input, premultiplied.
    scaled_input: Option<Memory>,
    actions: Vec<schedule::Action>,
    flights: Vec<Flight>,
}

/// Another member, or the rank itself, who has no rings.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: GlobalRank,
    pub(super) bell: Doorbell,
    pub(super) to: Option<Sender>,
    pub(super) from: Option<Receiver>,
    /// The step's last message to this peer and from it: those of one way go in order.
    pub(super) last: [Option<usize>; 2],
}

/// A message of the current step.
#[derive(Debug)]
struct Flight {
    peer: usize,
    way: Way,
    message: Message,
    /// The message to or from the same peer that goes before.
    after: Option<usize>,
    through: bool,
}

#[derive(Debug)]
enum Way {
    Out(Outgoing),
    In(Incoming, bool),
}

/// A collective as one rank makes it.
#[derive(Clone, Debug)]
pub(super) struct CollectiveCall {
    schedule: Schedule,
    count: u64,
    dtype: Dtype,
    input: Option<Memory>,
    output: Option<Memory>,
    splits: Option<Splits>,
    fingerprint: u64,
}

impl CollectiveCall {
    /// The call that an operation of the rank's program makes; `None` if it makes none.
    ///
    /// # Errors
    /// When the plan was not checked.
    pub(super) fn of(
        plan: &Plan,
        rank: GlobalRank,
        call: &Call,
        memory: impl Fn(TensorId) -> Option<Memory>,
    ) -> Result<Option<CollectiveCall>, String> {
        let Call::Collective { input, output, splits, .. } = call else { return Ok(None) };
        let Signature { schedule, dtype, count } =
            plan.signature(rank, call).ok_or("a collective that its rank cannot call")?;
        let lanes = (schedule.channels(), schedule.segments(), schedule.ranks_per_node());
        let table = schedule.table().map(|table| table.digest());
        let how = (schedule.collective(), schedule.algorithm(), lanes, table);
        let fingerprint = fingerprint(&(how, count, dtype));
        Ok(Some(CollectiveCall {
            schedule,
            count,
            dtype,
            input: input.and_then(&memory),
            output: output.and_then(&memory),
            splits: splits.clone(),
            fingerprint,
        }))
    }

    fn reduction(&self) -> Option<ReduceOp> {
        self.schedule.collective().reduce_op()
    }

    /// Premultiplies what the rank contributes, if the reduction asks for it: an in-place call's
    /// tensor where it is, another call's input in a copy, which is returned.
    fn premultiplied(&self) -> Option<Memory> {
        let factor = reduce::premultiplier(self.reduction()?, self.dtype, self.schedule.size())?;
        if self.schedule.collective().in_place() {
            reduce::premultiply(self.dtype, factor, &mut self.output.as_ref()?.lock());
            return None;
        }
        let mut scaled = self.input.as_ref()?.lock().to_vec();
        reduce::premultiply(self.dtype, factor, &mut scaled);
        Some(Memory::new(scaled))
    }
}

/// XXH3 of the binary form of what the ranks of a call must agree on.
pub(super) fn fingerprint(agreed: &impl serde::Serialize) -> u64 {
    // postcard fails only on types of unknown length.
    xxhash_rust::xxh3::xxh3_64(&postcard::to_stdvec(agreed).unwrap_or_default())
}

impl GroupLink {
    pub(super) fn new(
        me: GroupRank,
        bell: Doorbell,
        peers: Vec<Peer>,
        patience: Patience,
    ) -> GroupLink {
        GroupLink {
            me,
            bell,
            peers,
            patience,
            scratch: Memory::new(Vec::new()),
            scaled_input: None,
            actions: Vec::new(),
            flights: Vec::new(),
        }
    }

    /// Carries out a call; returns when this rank's part is done, which a watchdog limits.
    pub(super) fn run(
        &mut self,
        call: &CollectiveCall,
        work: u32,
        seq: u64,
        clerk: &Clerk,
    ) -> Result<(), String> {
        let layout = Layout::new(call.schedule.clone(), call.count, call.dtype.size_bytes())
            .with_splits(call.splits.clone());
        let elements = layout.grid(self.me, Buffer::Scratch).elements;
        let bytes = elements.saturating_mul(call.dtype.size_bytes()) as usize;
        if bytes > 0 {
            let mut scratch = self.scratch.lock();
            if scratch.len() < bytes {
                scratch.resize(bytes, 0);
            }
        }
        self.scaled_input = call.premultiplied();
        for step in 0..call.schedule.steps() {
            self.begin_step(call, &layout, work, seq, step)?;
            if self.flights.is_empty() {
                continue;
            }
            // Each round tries every message; only when none moves does the rank wait.
            loop {
                match advance(&mut self.flights, &mut self.peers, clerk) {
                    Moved::All => break,
                    Moved::Some => {}
                    Moved::Nothing => {
                        let (flights, peers) = (&mut self.flights, &mut self.peers);
                        let mut last = Moved::Nothing;
                        self.bell.wait_for(self.patience, || {
                            last = advance(flights, peers, clerk);
                            last != Moved::Nothing
                        });
                        if last == Moved::All {
                            break;
                        }
                    }
                }
            }
        }
        self.finish_average(call, &layout)
    }

    /// Does the step's copies and prepares its messages.
    fn begin_step(
        &mut self,
        call: &CollectiveCall,
        layout: &Layout,
        work: u32,
        seq: u64,
        step: u32,
    ) -> Result<(), String> {
        let mut actions = std::mem::take(&mut self.actions);
        call.schedule.actions(self.me, step, &mut actions);
        for flight in self.flights.drain(..) {
            self.peers[flight.peer].last = [None; 2];
        }
        for action in &actions {
            let place = |slice| self.place(call, layout, slice);
            let header = |slice: &Slice| Header {
                seq,
                fingerprint: call.fingerprint,
                bytes: slice.bytes() as u64,
                mark: step.into(),
            };
            let (peer, named, way, bytes) = match *action {
                schedule::Action::Copy { from, into } => {
                    place(into)?.copy(&place(from)?);
                    continue;
                }
                schedule::Action::Reduce { local, from, into } => {
                    if let Some(op) = call.reduction() {
                        let from = place(from)?;
                        let operand = from.read(0, from.bytes(), <[u8]>::to_vec);
                        place(into)?.reduce(&place(local)?, 0, &operand, call.dtype, op);
                    }
                    continue;
                }
                schedule::Action::Send { peer, from } => {
                    let slice = place(from)?;
                    let bytes = slice.bytes();
                    (peer, from, Way::Out(Outgoing::new(header(&slice), slice)), bytes)
                }
                schedule::Action::Receive { peer, into } => {
                    let slice = place(into)?;
                    let bytes = slice.bytes();
                    let incoming = Incoming::new(header(&slice), slice, None);
                    (peer, into, Way::In(incoming, false), bytes)
                }
                schedule::Action::ReceiveReduce { peer, local, into } => {
                    let slice = place(into)?;
                    let bytes = slice.bytes();
                    let local = place(local)?;
                    let combine = call.reduction().map(|op| (local, call.dtype, op));
                    let incoming = Incoming::new(header(&slice), slice, combine);
                    (peer, into, Way::In(incoming, true), bytes)
                }
            };
            let member = self.peers.get_mut(peer.index()).ok_or("a peer outside the group")?;
            let message =
                Message { work, step, peer: member.rank, slice: Some(named), bytes: bytes as u64 };
            let last = &mut member.last[usize::from(matches!(way, Way::In(..)))];
            let after = last.replace(self.flights.len());
            self.flights.push(Flight { peer: peer.index(), way, message, after, through: false });
        }
        self.actions = actions;
        Ok(())
    }

    /// Where a slice of the schedule lies in this rank's memory.
    fn place(
        &self,
        call: &CollectiveCall,
        layout: &Layout,
        slice: schedule::Slice,
    ) -> Result<Slice, String> {
        let range = layout.range(self.me, slice);
        if range.is_empty() {
            return Ok(Slice::EMPTY);
        }
        let memory = match slice.buffer {
            Buffer::Input => self.scaled_input.as_ref().or(call.input.as_ref()),
            Buffer::Output => call.output.as_ref(),
            Buffer::Scratch => Some(&self.scratch),
        };
        let memory = memory.ok_or("a buffer that the call does not pass")?;
        let size = call.dtype.size_bytes();
        memory.slice(range.start.saturating_mul(size), range.end.saturating_mul(size))
    }

    /// What a mean of integers has left to do: divide what this rank was promised.
    fn finish_average(&self, call: &CollectiveCall, layout: &Layout) -> Result<(), String> {
        let collective: Collective = call.schedule.collective();
        if let Some(op) = call.reduction()
            && let Some(divisor) = reduce::divisor(op, call.dtype, call.schedule.size())
            && collective.promises(self.me)
            && let Some(output) = &call.output
        {
            let elements = layout.grid(self.me, Buffer::Output).elements;
            let bytes = elements.saturating_mul(call.dtype.size_bytes());
            output.slice(0, bytes)?.divide(call.dtype, divisor);
        }
        Ok(())
    }
}

/// Tries every message of the step once.
fn advance(flights: &mut [Flight], peers: &mut [Peer], clerk: &Clerk) -> Moved {
    let (mut any, mut all) = (false, true);
    for index in 0..flights.len() {
        let (before, rest) = flights.split_at_mut(index);
        let Some(flight) = rest.first_mut().filter(|flight| !flight.through) else { continue };
        if flight.after.is_some_and(|after| !before[after].through) {
            all = false;
            continue;
        }
        let peer = &mut peers[flight.peer];
        let moved = match (&mut flight.way, &mut peer.to, &mut peer.from) {
            (Way::Out(outgoing), Some(ring), _) => {
                let had_left = outgoing.left;
                let moved = outgoing.advance(ring, &peer.bell);
                if outgoing.left && !had_left {
                    clerk.sent(flight.message);
                }
                moved
            }
            (Way::In(incoming, reduced), _, Some(ring)) => {
                let moved = incoming.advance(ring, &peer.bell);
                if moved == Moved::All {
                    clerk.received(flight.message, *reduced);
                }
                moved
            }
            // No such channel: the wiring is made from the same schedules, so there is one.
            _ => Moved::Nothing,
        };
        any |= moved != Moved::Nothing;
        flight.through = moved == Moved::All;
        all &= flight.through;
    }
    match (any, all) {
        (_, true) => Moved::All,
        (true, false) => Moved::Some,
        (false, false) => Moved::Nothing,
    }
}
