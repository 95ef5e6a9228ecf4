//! The proof of a whole world: every participant, step by step.
//!
//! Since a message is received in the step it was sent in, all participants can be taken through
//! the steps together: first everything that a step sends is read, then everything is matched and
//! received. A step in which each receive has its message and each message its receive cannot
//! block, so a schedule that gets through here never waits for ever.

use super::error::ProofError;
use super::laws::{check_hazards, check_peer, check_slices};
use super::promise::{Content, Promise};
use super::sampled::last_written;
use super::standing::{Holding, Loss, Standing};
use super::{Actions, Proof};
use crate::rank::GroupRank;
use crate::schedule::{Action, Buffer, Schedule, Slice};

/// A message of the step: its sender and receiver, and the position of its contents.
#[derive(Clone, Copy)]
struct Message {
    to: u32,
    from: u32,
    start: usize,
    chunks: u32,
}

/// A receive of the step.
#[derive(Clone, Copy)]
struct Receive {
    to: u32,
    from: u32,
    local: Option<Slice>,
    into: Slice,
}

type Memory = [Vec<Option<Content>>; 3];

pub(super) struct World<'a> {
    schedule: &'a Schedule,
    actions: &'a Actions<'a>,
    promise: Promise<'a>,
    /// By participant and buffer.
    memory: Vec<Memory>,
    messages: Vec<Message>,
    contents: Vec<Content>,
    receives: Vec<Receive>,
    proof: Proof,
    /// The chunk that is watched, when a loss is looked for.
    watch: Option<Watch>,
}

/// A part whose data of some ranks a result lacks, and the first write over it.
struct Watch {
    missing: Missing,
    step: u32,
    found: Option<Loss>,
}

/// The missing part of a result, and the ranks whose data is missing.
pub(super) struct Missing {
    part: u32,
    ranks: Vec<u32>,
}

impl<'a> World<'a> {
    pub(super) fn new(schedule: &'a Schedule, actions: &'a Actions<'a>) -> World<'a> {
        let promise = Promise::of(schedule);
        let memory = (0..schedule.participants()).map(GroupRank).map(|participant| {
            [Buffer::Input, Buffer::Output, Buffer::Scratch].map(|buffer| {
                let chunks = 0..schedule.chunks(participant, buffer);
                chunks.map(|chunk| promise.begins_with(participant, buffer, chunk)).collect()
            })
        });
        World {
            schedule,
            actions,
            memory: memory.collect(),
            promise,
            messages: Vec::new(),
            contents: Vec::new(),
            receives: Vec::new(),
            proof: Proof::default(),
            watch: None,
        }
    }

    pub(super) fn run(mut self) -> Result<Proof, ProofError> {
        for step in 0..self.schedule.steps() {
            self.take(step)?;
        }
        self.check_promise()?;
        Ok(self.proof)
    }

    /// Takes every participant through a step.
    fn take(&mut self, step: u32) -> Result<(), ProofError> {
        let mut actions = Vec::new();
        self.messages.clear();
        self.contents.clear();
        self.receives.clear();
        for participant in 0..self.schedule.participants() {
            (self.actions)(GroupRank(participant), step, &mut actions);
            self.begin(participant, step, &actions)?;
        }
        self.exchange(step)
    }

    /// The part of the promise that a result lacks, once all steps are taken.
    pub(super) fn missing(mut self, rank: GroupRank, at: Buffer, chunk: u32) -> Option<Missing> {
        for step in 0..self.schedule.steps() {
            self.take(step).ok()?;
        }
        let promised = self.promise.ends_with(rank, chunk)?;
        let held = self.memory.get(rank.index())?[at as usize].get(chunk as usize)?.as_ref()?;
        let world = self.schedule.size();
        let lacks = |rank: &u32| promised.ranks.has(*rank, world) && !held.ranks.has(*rank, world);
        let ranks: Vec<u32> = (0..world).filter(lacks).collect();
        (held.part == promised.part).then_some(Missing { part: promised.part, ranks })
    }

    /// The first write over some of it, by something that has none of that.
    pub(super) fn first_loss(mut self, missing: Missing) -> Option<Loss> {
        self.watch = Some(Watch { missing, step: 0, found: None });
        for step in 0..self.schedule.steps() {
            if let Some(watch) = &mut self.watch {
                watch.step = step;
            }
            self.take(step).ok()?;
            if let Some(found) = self.watch.as_mut().and_then(|watch| watch.found.take()) {
                return Some(found);
            }
        }
        None
    }

    /// Notes a write that overwrites the watched contributions.
    fn look(&mut self, me: u32, slice: Slice, content: &Content) {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.found.is_none()) else { return };
        let old = &self.memory[me as usize][slice.buffer as usize];
        let Some(old) = old.get(slice.chunk as usize).and_then(Option::as_ref) else { return };
        let (part, world) = (watch.missing.part, self.schedule.size());
        let lost = |rank: &u32| {
            let kept = content.part == part && content.ranks.has(*rank, world);
            old.ranks.has(*rank, world) && !kept
        };
        if old.part != part || !watch.missing.ranks.iter().any(lost) {
            return;
        }
        let found = Loss {
            rank: GroupRank(me),
            step: watch.step,
            buffer: slice.buffer,
            chunk: slice.chunk,
            held: self.promise.words(Some(old)),
            wrote: self.promise.words(Some(content)),
        };
        if let Some(watch) = &mut self.watch {
            watch.found = Some(found);
        }
    }

    /// The contents of all buffers before step `until`, or before the first step that breaks a law.
    pub(super) fn stand(mut self, until: u32) -> Standing {
        let until = until.min(self.schedule.steps());
        let mut step = 0;
        while step < until {
            // A step that goes wrong has done a part of its work.
            let before = self.memory.clone();
            if self.take(step).is_err() {
                self.memory = before;
                break;
            }
            step += 1;
        }
        let holding = |content: &Option<Content>| Holding {
            words: self.promise.words(content.as_ref()),
            contributors: content.as_ref().map_or(0, |c| c.ranks.words(self.schedule.size()).0),
        };
        let participants = self.memory.iter().map(|memory| {
            [0, 1, 2].map(|buffer| memory[buffer].iter().map(holding).collect::<Vec<_>>())
        });
        Standing { step, participants: participants.collect() }
    }

    /// Carries out a participant's local actions, and notes its sends and receives.
    fn begin(&mut self, me: u32, step: u32, actions: &[Action]) -> Result<(), ProofError> {
        check_slices(self.schedule, GroupRank(me), step, actions)?;
        check_hazards(GroupRank(me), step, actions)?;
        for action in actions {
            match *action {
                Action::Copy { from, into } => {
                    for chunk in 0..into.chunks {
                        let content = self.read(me, step, nth(from, chunk))?.clone();
                        self.write(me, nth(into, chunk), content);
                    }
                }
                Action::Reduce { local, from, into } => {
                    for chunk in 0..into.chunks {
                        let other = self.read(me, step, nth(from, chunk))?.clone();
                        self.reduce(me, step, nth(local, chunk), nth(into, chunk), &other)?;
                    }
                }
                Action::Send { peer, from } => {
                    check_peer(self.schedule, GroupRank(me), peer, step)?;
                    let start = self.contents.len();
                    for chunk in 0..from.chunks {
                        let content = self.read(me, step, nth(from, chunk))?.clone();
                        self.contents.push(content);
                    }
                    let chunks = from.chunks;
                    self.proof.messages += 1;
                    self.proof.chunks_moved += u64::from(chunks);
                    self.messages.push(Message { to: peer.0, from: me, start, chunks });
                }
                Action::Receive { peer, into } => {
                    self.receives.push(Receive { to: me, from: peer.0, local: None, into });
                }
                Action::ReceiveReduce { peer, local, into } => {
                    let local = Some(local);
                    self.receives.push(Receive { to: me, from: peer.0, local, into });
                }
            }
        }
        Ok(())
    }

    /// Matches the step's messages with its receives, in order, and receives them.
    fn exchange(&mut self, step: u32) -> Result<(), ProofError> {
        self.messages.sort_by_key(|message| (message.to, message.from));
        self.receives.sort_by_key(|receive| (receive.to, receive.from));
        let contents = std::mem::take(&mut self.contents);
        let messages = std::mem::take(&mut self.messages);
        let receives = std::mem::take(&mut self.receives);
        let mut left = messages.iter().peekable();
        for receive in &receives {
            let (to, from) = (receive.to, receive.from);
            let Some(message) = left.next_if(|message| (message.to, message.from) <= (to, from))
            else {
                let (rank, peer) = (GroupRank(to), GroupRank(from));
                return Err(ProofError::Stuck { rank, step, peer });
            };
            if (message.to, message.from) != (to, from) {
                return Err(nobody_receives(message, step));
            }
            if message.chunks != receive.into.chunks {
                let why = "sender and receiver disagree on its length";
                let (from, to) = (GroupRank(from), GroupRank(to));
                return Err(ProofError::BadMessage { from, to, step, why });
            }
            let came = &contents[message.start..message.start + message.chunks as usize];
            for (chunk, content) in (0..).zip(came) {
                let into = nth(receive.into, chunk);
                match receive.local {
                    None => self.write(to, into, content.clone()),
                    Some(local) => self.reduce(to, step, nth(local, chunk), into, content)?,
                }
            }
        }
        if let Some(message) = left.next() {
            return Err(nobody_receives(message, step));
        }
        (self.contents, self.messages, self.receives) = (contents, messages, receives);
        Ok(())
    }

    fn reduce(
        &mut self,
        me: u32,
        step: u32,
        local: Slice,
        into: Slice,
        other: &Content,
    ) -> Result<(), ProofError> {
        let own = self.read(me, step, local)?;
        let sum = self.promise.sum(own, other).map_err(|why| ProofError::BadReduction {
            rank: GroupRank(me),
            step,
            slice: into,
            why,
        })?;
        self.proof.chunks_reduced += 1;
        self.write(me, into, sum);
        Ok(())
    }

    /// The contents of a slice of one chunk.
    fn read(&self, me: u32, step: u32, slice: Slice) -> Result<&Content, ProofError> {
        let chunks = &self.memory[me as usize][slice.buffer as usize];
        let content = chunks.get(slice.chunk as usize).and_then(Option::as_ref);
        content.ok_or(ProofError::Unwritten { rank: GroupRank(me), step, slice })
    }

    fn write(&mut self, me: u32, slice: Slice, content: Content) {
        if self.watch.is_some() {
            self.look(me, slice, &content);
        }
        let chunks = &mut self.memory[me as usize][slice.buffer as usize];
        if let Some(chunk) = chunks.get_mut(slice.chunk as usize) {
            *chunk = Some(content);
        }
    }

    fn check_promise(&self) -> Result<(), ProofError> {
        for rank in (0..self.schedule.size()).map(GroupRank) {
            let Some(buffer) = self.promise.result(rank) else { continue };
            for (chunk, content) in (0..).zip(&self.memory[rank.index()][buffer as usize]) {
                let promised = self.promise.ends_with(rank, chunk);
                if promised.is_some() && *content != promised {
                    let step = last_written(self.schedule, rank, buffer, chunk, self.actions);
                    let holds = self.promise.words(content.as_ref());
                    let promised = self.promise.words(promised.as_ref());
                    return Err(ProofError::WrongResult {
                        rank,
                        buffer,
                        chunk,
                        step,
                        holds,
                        promised,
                    });
                }
            }
        }
        Ok(())
    }
}

fn nobody_receives(message: &Message, step: u32) -> ProofError {
    let (from, to) = (GroupRank(message.from), GroupRank(message.to));
    ProofError::BadMessage { from, to, step, why: "nobody receives the message in its step" }
}

/// One chunk of a slice.
fn nth(slice: Slice, chunk: u32) -> Slice {
    Slice::one(slice.buffer, slice.chunk.saturating_add(chunk))
}

impl Loss {
    /// The first write of `schedule` that loses the contributions that the wrong result of `error` lacks;
    /// `None` if they were never lost (no rank sent them), or if the error is another.
    pub(in crate::schedule) fn of(schedule: &Schedule, error: &ProofError) -> Option<Loss> {
        let ProofError::WrongResult { rank, buffer, chunk, .. } = *error else { return None };
        let actions = |rank: GroupRank, step: u32, actions: &mut Vec<_>| {
            schedule.actions(rank, step, actions);
        };
        let missing = World::new(schedule, &actions).missing(rank, buffer, chunk)?;
        World::new(schedule, &actions).first_loss(missing)
    }
}

impl Standing {
    /// The contents of all buffers before `step` of `schedule`, or before the first step that breaks a law.
    pub(in crate::schedule) fn before(schedule: &Schedule, step: u32) -> Standing {
        let actions = |rank: GroupRank, step: u32, actions: &mut Vec<_>| {
            schedule.actions(rank, step, actions);
        };
        World::new(schedule, &actions).stand(step)
    }
}

/// Executes the schedule symbolically for all of its participants.
///
/// # Errors
/// The first step, participant and chunk at which the schedule breaks one of its laws, or the
/// first rank and chunk that does not end as promised.
pub fn prove(schedule: &Schedule) -> Result<Proof, ProofError> {
    prove_actions(schedule, &|rank, step, actions| schedule.actions(rank, step, actions))
}

/// Proves that `actions` carries out the collective of `schedule`, on its buffers and in its steps.
pub(super) fn prove_actions(
    schedule: &Schedule,
    actions: &Actions<'_>,
) -> Result<Proof, ProofError> {
    World::new(schedule, actions).run()
}
