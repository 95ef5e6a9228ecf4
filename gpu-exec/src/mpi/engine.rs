//! The thread that calls MPI: starts what the program has posted and asks what is under way whether
//! it is done. It never blocks in MPI, so that it can end the job whatever its peers do.
//!
//! Collectives of a group run one after the other, as the plan's rules say; groups, sends and
//! receives run side by side.

use super::call::{Arrived, Buffer, Communicator, MpiError, Pending};
use super::lower::{How, Lowered};
use super::tensors::Tensors;
use crate::host::rank::clerk::Clerk;
use crate::host::rank::failure::RankFailure;
use crate::host::rank::note::{Message, Note};
use crate::host::rank::works::Works;
use lockstep_core::group::GroupId;
use lockstep_core::plan::Plan;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{divide, premultiply};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of times calls under way are polled without a pause, yielding to others that want the core …
const EAGER: u32 = 200;

/// … and how long the pauses are from then on: doubled up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Sleep of the thread with nothing under way, if nothing wakes it.
const IDLE: Duration = Duration::from_millis(100);

/// The plan and state that a rank's works use.
pub(super) struct Rank {
    pub(super) plan: Arc<Plan>,
    pub(super) tensors: Tensors,
    pub(super) works: Arc<Works>,
    pub(super) clerk: Arc<Clerk>,
}

/// A call that the program has made.
pub(super) struct Posted {
    pub(super) work: u32,
    pub(super) lowered: Lowered,
    /// Its ranks disagree: MPI is not given it.
    pub(super) held_back: bool,
    pub(super) rank: Arc<Rank>,
}

/// The end of the rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everybody is done.
    Complete,
    /// Before that: the run was ended, or the rank cannot go on.
    Early,
}

/// Messages from other threads to this one.
#[derive(Default)]
pub(super) struct Inbox {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    posted: VecDeque<Posted>,
    ending: Option<Ending>,
    /// The reason that a call failed, for the program's thread.
    failure: Option<RankFailure>,
}

impl Inbox {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a call over.
    pub(super) fn post(&self, posted: Posted) {
        self.told().posted.push_back(posted);
        self.changed.notify_all();
    }

    /// The thread stops: the first that says how is believed.
    pub(super) fn end(&self, ending: Ending) {
        self.told().ending.get_or_insert(ending);
        self.changed.notify_all();
    }

    /// Says that a call has failed.
    fn fail(&self, why: RankFailure) {
        self.told().failure.get_or_insert(why);
        self.changed.notify_all();
    }

    /// Waits until a call has failed, and returns why; `None` once the thread has stopped.
    pub(super) fn failure(&self) -> Option<RankFailure> {
        let mut told = self.told();
        loop {
            if let Some(why) = told.failure.take() {
                return Some(why);
            }
            if told.ending.is_some() {
                return None;
            }
            told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A group's collectives.
#[derive(Default)]
struct Line {
    queue: VecDeque<Posted>,
    current: Option<(Posted, Pending)>,
    /// True if a call that never completes comes before all others.
    blocked: bool,
}

/// See the module.
pub(super) struct Engine {
    communicators: BTreeMap<GroupId, Communicator>,
    lines: BTreeMap<GroupId, Line>,
    transfers: Vec<(Posted, Pending)>,
}

impl Engine {
    pub(super) fn new(communicators: BTreeMap<GroupId, Communicator>) -> Engine {
        Engine { communicators, lines: BTreeMap::new(), transfers: Vec::new() }
    }

    /// Works until it learns how the rank's part ends.
    pub(super) fn run(&mut self, inbox: &Inbox) -> Ending {
        let mut fruitless = 0;
        loop {
            let posted = {
                let mut told = inbox.told();
                if let Some(ending) = told.ending {
                    return ending;
                }
                let pause = self.pause(fruitless);
                if told.posted.is_empty() && !pause.is_zero() {
                    let waited = inbox.changed.wait_timeout(told, pause);
                    told = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                std::mem::take(&mut told.posted)
            };
            let mut moved = !posted.is_empty();
            let turn = posted.into_iter().try_for_each(|posted| self.take(posted));
            match turn.and_then(|()| self.advance()) {
                Ok(any) => moved |= any,
                Err(why) => inbox.fail(why),
            }
            fruitless = if moved { 0 } else { fruitless.saturating_add(1) };
            if fruitless > 0 && fruitless <= EAGER {
                std::thread::yield_now();
            }
        }
    }

    fn pause(&self, fruitless: u32) -> Duration {
        let idle =
            self.transfers.is_empty() && self.lines.values().all(|line| line.current.is_none());
        match fruitless.checked_sub(EAGER) {
            _ if idle => IDLE,
            None => Duration::ZERO,
            Some(pauses) => {
                let doubled = SHORTEST_PAUSE.saturating_mul(1 << (pauses / 16).min(10));
                doubled.min(LONGEST_PAUSE)
            }
        }
    }

    fn take(&mut self, posted: Posted) -> Result<(), RankFailure> {
        let group = posted.lowered.group;
        if let How::Send { .. } | How::Receive { .. } = posted.lowered.how {
            if let Some(pending) = self.begin(&posted)? {
                self.transfers.push((posted, pending));
            }
            return Ok(());
        }
        self.lines.entry(group).or_default().queue.push_back(posted);
        self.next_of(group)
    }

    /// Starts the group's next collective if none is under way.
    fn next_of(&mut self, group: GroupId) -> Result<(), RankFailure> {
        let Some(line) = self.lines.get_mut(&group) else { return Ok(()) };
        if line.current.is_some() || line.blocked {
            return Ok(());
        }
        let Some(posted) = line.queue.pop_front() else { return Ok(()) };
        let begun = self.begin(&posted)?;
        if let Some(line) = self.lines.get_mut(&group) {
            match begun {
                Some(pending) => line.current = Some((posted, pending)),
                None => line.blocked = true,
            }
        }
        Ok(())
    }

    /// Starts a call; `None` if it is one that never completes.
    fn begin(&self, posted: &Posted) -> Result<Option<Pending>, RankFailure> {
        let Posted { work, lowered, rank, .. } = posted;
        rank.clerk.note(Note::Started { work: *work });
        if posted.held_back {
            return Ok(None);
        }
        let communicator = self.communicators.get(&lowered.group);
        let communicator =
            communicator.ok_or(RankFailure::Unchecked("a group without a communicator"))?;
        let send = match lowered.send {
            None => Buffer::default(),
            Some(part) => {
                let mut bytes = rank.tensors.read(part.tensor, 0..part.bytes)?;
                if let Some((dtype, factor)) = lowered.scale {
                    premultiply(dtype, factor, &mut bytes);
                }
                Buffer::of(&bytes)
            }
        };
        let receive = Buffer::zeros(lowered.receive.map_or(0, |part| part.bytes));
        let begun = communicator.begin(&lowered.how, lowered.element, send, receive);
        Ok(Some(begun?))
    }

    /// Asks everything that is under way once; true if anything was done.
    fn advance(&mut self) -> Result<bool, RankFailure> {
        let mut any = false;
        let groups: Vec<GroupId> = self.lines.keys().copied().collect();
        for group in groups {
            while let Some(line) = self.lines.get_mut(&group) {
                let Some((posted, pending)) = &mut line.current else { break };
                match tested(pending)? {
                    Tested::UnderWay => break,
                    Tested::Never => line.blocked = true,
                    Tested::Done(arrived) => finish(posted, &arrived)?,
                }
                line.current = None;
                any = true;
                self.next_of(group)?;
            }
        }
        let mut index = 0;
        while let Some((posted, pending)) = self.transfers.get_mut(index) {
            match tested(pending)? {
                Tested::UnderWay => {
                    index += 1;
                    continue;
                }
                Tested::Never => {}
                Tested::Done(arrived) => finish(posted, &arrived)?,
            }
            self.transfers.remove(index);
            any = true;
        }
        Ok(any)
    }
}

/// The state of a call.
enum Tested {
    UnderWay,
    Done(Arrived),
    /// The message has another size than was expected: to a plan, a call that never completes.
    Never,
}

fn tested(pending: &mut Pending) -> Result<Tested, RankFailure> {
    match pending.test() {
        Ok(None) => Ok(Tested::UnderWay),
        Ok(Some(arrived)) => Ok(Tested::Done(arrived)),
        Err(MpiError::Truncated { .. }) => Ok(Tested::Never),
        Err(error) => Err(error.into()),
    }
}

/// Puts a call's result where it goes, and says that it has completed.
fn finish(posted: &Posted, arrived: &Arrived) -> Result<(), RankFailure> {
    let Posted { work, lowered, rank, .. } = posted;
    if let Some(part) = lowered.receive {
        let mut bytes = arrived.receive.to_bytes();
        if let Some((dtype, by)) = lowered.divide {
            divide(dtype, &mut bytes, by);
        }
        rank.tensors.write(part.tensor, 0, &bytes)?;
    }
    let message = |peer: i32, bytes: usize| {
        let peer = global(rank, lowered.group, peer)?;
        Some(Message { work: *work, step: 0, peer, slice: None, bytes: bytes as u64 })
    };
    match lowered.how {
        How::Send { peer, .. } => {
            let sent = message(peer, lowered.send.map_or(0, |part| part.bytes));
            sent.into_iter().for_each(|message| rank.clerk.sent(message));
        }
        How::Receive { .. } => {
            let received = message(arrived.source, lowered.receive.map_or(0, |part| part.bytes));
            received.into_iter().for_each(|message| rank.clerk.received(message, false));
        }
        _ => {}
    }
    rank.clerk.unwatch(*work);
    rank.clerk.note(Note::Completed { work: *work });
    rank.works.complete(*work);
    Ok(())
}

fn global(rank: &Rank, group: GroupId, peer: i32) -> Option<GlobalRank> {
    rank.plan.group(group)?.global_rank(GroupRank(u32::try_from(peer).ok()?))
}
