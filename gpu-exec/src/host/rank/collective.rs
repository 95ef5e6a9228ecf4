//! One group's collectives on one rank: the schedule's actions, step by step, over the group's
//! channels. The same schedules as the simulator's, in the same order of additions.

use super::act::{Act, Place};
use super::call::CollectiveCall;
use super::clerk::Clerk;
use super::combine::{Blocks, Operand, Reduction};
use super::failure::RankFailure;
use super::in_place::{Exchange, InPlace};
use super::note::Message;
use super::transfer::{How, Incoming, Left, Moved, Outgoing, arrived};
use crate::host::arena::Memory;
use crate::shm::{Doorbell, Header, Patience, Payload, Receiver, Segment, Sender};
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::sync::Arc;

/// The work that a call does once its first messages are on their way, unless it was done.
pub(super) type Aside<'a> = Option<&'a mut dyn FnMut()>;

/// A rank's side of a group's channels.
#[derive(Debug)]
pub(super) struct GroupLink {
    pub(super) me: GroupRank,
    segment: Arc<Segment>,
    bell: Doorbell,
    /// By group rank.
    pub(super) peers: Vec<Peer>,
    patience: Patience,
    blocks: Blocks,
    flights: Vec<Flight>,
    /// Memory that peers may still read.
    lent: Vec<Lent>,
    /// The operands of an addition in place, and where its result goes.
    operands: Vec<Operand>,
    targets: Vec<usize>,
}

/// Another member, or the rank itself, which has no channels.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: GlobalRank,
    pub(super) bell: Doorbell,
    pub(super) to: Option<Sender>,
    pub(super) from: Option<Receiver>,
    /// The step's last message to this peer and from it: those of one way go in order.
    pub(super) last: [Option<usize>; 2],
}

/// A message of the current step: no more than differs from one to the other, since it is written
/// while peers wait for it.
#[derive(Debug)]
struct Flight {
    what: Exchange,
    way: Way,
    /// The message to or from the same peer that goes before.
    after: Option<usize>,
    through: bool,
}

impl Flight {
    /// Sends it if there is room.
    fn leaves(&self, current: Current<'_>, peer: &mut Peer, lent: &mut Vec<Lent>) -> bool {
        let (Way::Out(how), Some(to)) = (&self.way, &mut peer.to) else { return false };
        let outgoing = Outgoing {
            header: current.header(&self.what),
            from: self.what.place.memory,
            how: *how,
        };
        let Some(Left { number, in_place }) = outgoing.advance(to, &peer.bell) else {
            return false;
        };
        if in_place {
            lent.push(Lent { peer: self.what.peer, number, memory: outgoing.from });
        }
        current.clerk.sent(current.message(&self.what, peer.rank));
        to.make_ready(if in_place { 0 } else { outgoing.from.bytes });
        true
    }
}

#[derive(Debug)]
enum Way {
    Out(How),
    /// The rank's own operand, if the received chunk is added to one.
    In(Option<Memory>),
    /// Looked for, and left where it is.
    Found(Option<Payload>),
}

/// Memory that a peer may still read.
#[derive(Clone, Copy, Debug)]
struct Lent {
    peer: usize,
    number: u64,
    memory: Memory,
}

/// A call under way: the identity of its messages.
#[derive(Clone, Copy)]
struct Current<'a> {
    call: &'a CollectiveCall,
    work: u32,
    seq: u64,
    clerk: &'a Clerk,
}

impl Current<'_> {
    fn header(&self, what: &Exchange) -> Header {
        let (seq, fingerprint) = (self.seq, self.call.fingerprint);
        let bytes = what.place.memory.bytes as u64;
        Header { seq, fingerprint, bytes, mark: what.step.into() }
    }

    /// The message, as the trace records it.
    fn message(&self, what: &Exchange, peer: GlobalRank) -> Message {
        let Exchange { step, place: Place { named, memory }, .. } = *what;
        let bytes = memory.bytes as u64;
        Message { work: self.work, step, peer, slice: Some(named), bytes }
    }

    /// Takes note of another look; `ended` is the look's result. A call that has waited for long drops
    /// messages that peers sent in another call of this number, or before: this rank will never expect them,
    /// and a rank that only sends goes on as in the simulator, and as over TCP. The message may be too long
    /// to be copied, and no other rank will ever take it.
    fn waits(&self, ended: bool, looks: &mut u32, peers: &mut [Peer]) -> bool {
        *looks = looks.saturating_add(1);
        if !ended && *looks > SOON {
            let (seq, fingerprint) = (self.seq, self.call.fingerprint);
            for peer in peers {
                let Some(from) = &mut peer.from else { continue };
                let stray = |header: Header| {
                    header.seq < seq || (header.seq == seq && header.fingerprint != fingerprint)
                };
                while from.next().is_some_and(|(header, _)| stray(header)) {
                    from.take();
                    peer.bell.ring();
                }
            }
        }
        ended
    }
}

/// The number of looks that takes longer than messages that are already on their way.
const SOON: u32 = 256;

/// The number of those that a rank which lets others run in between leaves out: each takes long then.
fn soon(patience: Patience) -> u32 {
    if patience.spin_ns > 0 { 0 } else { SOON }
}

impl GroupLink {
    pub(super) fn new(
        me: GroupRank,
        segment: Arc<Segment>,
        bell: Doorbell,
        peers: Vec<Peer>,
        patience: Patience,
    ) -> GroupLink {
        GroupLink {
            me,
            segment,
            bell,
            peers,
            patience,
            blocks: Blocks::new(),
            flights: Vec::new(),
            lent: Vec::new(),
            operands: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Carries out a call; returns when this rank's part is done and no peer reads its memory any more, which
    /// a watchdog limits. Calls `aside` when the first messages are on their way, before it looks for any.
    pub(super) fn run(
        &mut self,
        call: &CollectiveCall,
        work: u32,
        seq: u64,
        clerk: &Clerk,
        mut aside: Aside<'_>,
    ) -> Result<(), RankFailure> {
        let current = Current { call, work, seq, clerk };
        if let Some(scale) = call.premultiply {
            let (dtype, factor, into) = (scale.dtype, scale.factor, scale.into.offset);
            self.blocks.premultiply(&self.segment, dtype, factor, scale.from, into);
        }
        match (&call.in_place, call.reduction) {
            (Some(in_place), Some(reduction)) => {
                self.add_in_place(current, in_place, reduction, &mut aside)?;
            }
            _ => self.step_by_step(current, &mut aside)?,
        }
        // A call without messages.
        if let Some(aside) = aside {
            aside();
        }
        // Whoever is elsewhere by now will never take what this call expected of nobody.
        self.settle(|_| true, seq);
        if let Some(divide) = call.divide {
            self.blocks.divide(&self.segment, divide.dtype, divide.size, divide.what);
        }
        Ok(())
    }

    fn step_by_step(
        &mut self,
        current: Current<'_>,
        aside: &mut Aside<'_>,
    ) -> Result<(), RankFailure> {
        for (step, acts) in (0..).zip(&current.call.steps) {
            // A step may overwrite what an earlier one sent, once it was read.
            if !self.lent.is_empty() {
                for written in acts.iter().filter_map(Act::writes) {
                    let before = current.seq.wrapping_sub(1);
                    self.settle(|lent| lent.memory.overlaps(written), before);
                }
            }
            for act in acts {
                self.begin(current, step, act)?;
            }
            self.drive(current, aside);
        }
        Ok(())
    }

    /// Carries out the local actions, and prepares messages.
    fn begin(&mut self, current: Current<'_>, step: u32, act: &Act) -> Result<(), RankFailure> {
        let reduction = current.call.reduction;
        match *act {
            Act::Copy { from, into } => {
                self.segment.copy(from.offset, into.offset, from.bytes.min(into.bytes));
                Ok(())
            }
            Act::Reduce { local, from, into } => {
                if let Some(how) = reduction {
                    let operand = Operand::At(from.offset);
                    self.blocks.reduce(&self.segment, how, local, &[operand], &[into.offset]);
                }
                Ok(())
            }
            Act::Send { peer, from } => {
                self.fly(Exchange { step, peer, place: from }, Way::Out(How::ByLength))
            }
            Act::Receive { peer, into } => {
                self.fly(Exchange { step, peer, place: into }, Way::In(None))
            }
            Act::ReceiveReduce { peer, local, into } => {
                let own = reduction.map(|_| local);
                self.fly(Exchange { step, peer, place: into }, Way::In(own))
            }
        }
    }

    /// Prepares a message.
    fn fly(&mut self, what: Exchange, way: Way) -> Result<(), RankFailure> {
        let member = self
            .peers
            .get_mut(what.peer)
            .ok_or(RankFailure::Unchecked("a peer outside the group"))?;
        let last = &mut member.last[usize::from(!matches!(way, Way::Out(_)))];
        let after = last.replace(self.flights.len());
        self.flights.push(Flight { what, way, after, through: false });
        Ok(())
    }

    /// Returns when all messages that were prepared are through.
    fn drive(&mut self, current: Current<'_>, aside: &mut Aside<'_>) {
        if self.flights.is_empty() {
            return;
        }
        self.depart(current, aside);
        let GroupLink { flights, peers, blocks, lent, bell, patience, .. } = self;
        // Each round tries every message; only when none moves does the rank wait.
        let mut moved = advance(current, flights, peers, blocks, lent);
        if let Some(aside) = aside.take() {
            aside();
        }
        loop {
            match moved {
                Moved::All => break,
                Moved::Some => moved = advance(current, flights, peers, blocks, lent),
                Moved::Nothing => {
                    let mut looks = soon(*patience);
                    bell.wait_for(*patience, || {
                        moved = advance(current, flights, peers, blocks, lent);
                        current.waits(moved != Moved::Nothing, &mut looks, peers)
                    });
                }
            }
        }
        for flight in flights.drain(..) {
            if let Some(peer) = peers.get_mut(flight.what.peer) {
                peer.last = [None; 2];
            }
        }
    }

    /// Sends the messages that can leave, and then calls `aside` once, while the lines of incoming messages
    /// are on their way from the peers' cores. A rank that only receives looks first: its peers may be far
    /// ahead.
    fn depart(&mut self, current: Current<'_>, aside: &mut Aside<'_>) {
        let GroupLink { flights, peers, lent, .. } = self;
        if !flights.iter().any(|flight| matches!(flight.way, Way::Out(_))) {
            return;
        }
        let Some(aside) = aside.take() else { return };
        for index in 0..flights.len() {
            let (before, rest) = flights.split_at_mut(index);
            let Some(flight) = rest.first_mut() else { continue };
            let peer = &mut peers[flight.what.peer];
            match (&flight.way, &peer.from) {
                (Way::Out(_), _) if flight.after.is_none_or(|after| before[after].through) => {
                    flight.through = flight.leaves(current, peer, lent);
                }
                (Way::In(_) | Way::Found(..), Some(from)) => from.make_ready(),
                _ => {}
            }
        }
        aside();
    }

    /// See [`InPlace`].
    fn add_in_place(
        &mut self,
        current: Current<'_>,
        plan: &InPlace,
        how: Reduction,
        aside: &mut Aside<'_>,
    ) -> Result<(), RankFailure> {
        for lend in &plan.lends {
            let way = if lend.comes_back { How::Lent } else { How::ByLength };
            self.fly(lend.message, Way::Out(way))?;
        }
        for add in &plan.adds {
            self.fly(*add, Way::Found(None))?;
        }
        self.depart(current, aside);
        let GroupLink { flights, peers, blocks, lent, bell, patience, .. } = self;
        let arrived = advance(current, flights, peers, blocks, lent) == Moved::All;
        if let Some(aside) = aside.take() {
            aside();
        }
        if !arrived {
            let mut looks = soon(*patience);
            bell.wait_for(*patience, || {
                let all = advance(current, flights, peers, blocks, lent) == Moved::All;
                current.waits(all, &mut looks, peers)
            });
        }
        // The result goes where it belongs, and where peers will receive it.
        self.targets.clear();
        self.targets.push(plan.into.offset);
        self.operands.clear();
        let mut delivered = Vec::new();
        for flight in &self.flights {
            let Way::Found(Some(payload)) = flight.way else { continue };
            self.operands.extend(Operand::of(payload));
            if let Payload::Lent(offset) = payload
                && plan.returns.iter().any(|back| back.peer == flight.what.peer)
            {
                self.targets.push(offset);
                delivered.push(flight.what.peer);
            }
        }
        self.blocks.reduce(&self.segment, how, plan.local, &self.operands, &self.targets);
        for flight in self.flights.drain(..) {
            let Some(peer) = self.peers.get_mut(flight.what.peer) else { continue };
            peer.last = [None; 2];
            if let (Way::Found(..), Some(from)) = (flight.way, &mut peer.from) {
                current.clerk.received(current.message(&flight.what, peer.rank), true);
                from.take();
                peer.bell.ring();
            }
        }
        for back in &plan.returns {
            let there = delivered.contains(&back.peer);
            self.fly(*back, Way::Out(if there { How::Delivered } else { How::ByLength }))?;
        }
        for receive in &plan.receives {
            self.fly(*receive, Way::In(None))?;
        }
        self.drive(current, aside);
        Ok(())
    }

    /// Returns when no peer reads the `wanted` memory any more. Meanwhile messages up to call `seq` are
    /// dropped: this rank will never expect them, and their senders may wait.
    fn settle(&mut self, wanted: impl Fn(&Lent) -> bool, seq: u64) {
        let GroupLink { peers, lent, bell, patience, .. } = self;
        let mut settled = || {
            lent.retain(|lent| {
                let to = peers.get_mut(lent.peer).and_then(|peer| peer.to.as_mut());
                to.is_some_and(|to| !to.was_taken(lent.number))
            });
            if !lent.iter().any(&wanted) {
                return true;
            }
            for peer in peers.iter_mut() {
                let Some(from) = &mut peer.from else { continue };
                while from.next().is_some_and(|(header, _)| header.seq <= seq) {
                    from.take();
                    peer.bell.ring();
                }
            }
            false
        };
        if !settled() {
            bell.wait_for(*patience, settled);
        }
    }
}

/// Tries every message of the step once.
fn advance(
    current: Current<'_>,
    flights: &mut [Flight],
    peers: &mut [Peer],
    blocks: &mut Blocks,
    lent: &mut Vec<Lent>,
) -> Moved {
    let (mut any, mut all) = (false, true);
    for index in 0..flights.len() {
        let (before, rest) = flights.split_at_mut(index);
        let Some(flight) = rest.first_mut().filter(|flight| !flight.through) else { continue };
        if flight.after.is_some_and(|after| !before[after].through) {
            all = false;
            continue;
        }
        let peer = &mut peers[flight.what.peer];
        let moved = match (&mut flight.way, &mut peer.to, &mut peer.from) {
            (Way::Out(_), Some(_), _) => match flight.leaves(current, peer, lent) {
                true => Moved::All,
                false => Moved::Nothing,
            },
            (Way::In(own), _, Some(from)) => {
                let combine = own.zip(current.call.reduction);
                let expected = current.header(&flight.what);
                let incoming = Incoming { expected, into: flight.what.place.memory, combine };
                let moved = incoming.advance(from, &peer.bell, blocks);
                if moved == Moved::All {
                    let message = current.message(&flight.what, peer.rank);
                    current.clerk.received(message, combine.is_some());
                }
                moved
            }
            (Way::Found(found), _, Some(from)) => {
                let expected = current.header(&flight.what);
                let (payload, moved) = arrived(expected, from, &peer.bell);
                *found = payload;
                if payload.is_some() { Moved::All } else { moved }
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
