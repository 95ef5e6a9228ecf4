//! The engine's state at a moment: its ranks, and the events due.

use super::arrivals::CountedMessages;
use super::call_time::{Meetings, Timed};
use super::calls_in_flight::CallsInFlight;
use super::choice::Choosing;
use super::comm_stream::Channel;
use super::compute_stream::ComputeStream;
use super::memory::Memory;
use super::network::Network;
use super::path::Paths;
use super::prepared::Prepared;
use super::queue::EventQueue;
use super::rings::Whole;
use super::step_sends::StepSends;
use super::transfer::{FromAny, Posted, Transfer};
use lockstep_core::group::SequenceNumbers;
use lockstep_core::plan::{Call, CallTimes, Plan, Signature};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::{Action, Grid};
use lockstep_core::trace::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// An event that is due at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// A rank's busy or idle time is over.
    Rank(GlobalRank),
    /// A message has arrived.
    Message(u32),
    /// A channel's sends of a step have all left.
    Sent(u32),
    /// The last of a step's messages has arrived on a channel, where they are counted.
    Step(u32),
    /// A point-to-point transfer has arrived.
    Transfer(u32),
    /// A rank's compute stream is done with a computation.
    Stream(GlobalRank),
    /// A ring that was worked out as a whole is done on this channel.
    Whole(u32),
    /// The time of a call is over on this channel.
    Timed(u32),
}

/// A waiter that an event has woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Woken {
    Rank(GlobalRank),
    Channel(u32),
    Stream(GlobalRank),
}

/// The state of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is about to begin operation `pc`.
    Ready,
    /// Busy or idle for a time.
    Busy,
    /// Its process stands stopped, and nothing continues it.
    Stopped,
    /// It waits for the calls of an operation of its own.
    Blocked {
        op: u32,
    },
    /// It waits until its streams are empty.
    Synchronizing,
    /// It has done an operation that takes it no time, and stands there for a moment.
    Standing,
    /// Its program is over, but its streams are not empty or calls of its are in flight.
    Draining,
    /// Before a receive that could have a send which a receive from any source could take: whether it
    /// is called before that send comes is chosen.
    Holding,
    /// The choice was to call it.
    Posting,
    Finished,
    /// Its process has ended.
    Died,
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) op: u32,
    /// The index of the call in its operation.
    pub(crate) part: u32,
    pub(crate) seq: u64,
    pub(crate) completed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Rank {
    pub(crate) pc: u32,
    pub(crate) doing: Doing,
    /// In call order, and so in the order of their operations.
    pub(crate) works: Vec<Work>,
    pub(crate) in_flight: u32,
    pub(crate) collectives: SequenceNumbers,
    /// Of point-to-point calls, once there is one.
    pub(crate) p2p: Option<Box<SequenceNumbers>>,
    pub(crate) memory: Memory,
    /// The index of the first work of the operation that [`Rank::completed`] was asked about last.
    pub(crate) last_asked: u32,
    /// The compute stream of a rank with a device.
    pub(crate) stream: Option<ComputeStream>,
}

/// The number of works that are looked at one by one before a binary search.
const NEAR: usize = 8;

impl Rank {
    /// The works of an operation: neighbours, since works are numbered in call order.
    pub(crate) fn works_of(&self, op: u32) -> Range<usize> {
        let before = |work: &Work| work.op < op;
        // Operations are mostly asked for in order, and a search among thousands of works misses the cache in each step.
        let last = (self.last_asked as usize).min(self.works.len());
        let (passed, ahead) = self.works.split_at(last);
        let near = ahead.iter().take(NEAR).take_while(|work| before(work)).count();
        let first = match passed.last().is_none_or(before) {
            true if near < NEAR => last + near,
            true => last + ahead.partition_point(before),
            false => passed.partition_point(before),
        };
        first..first + self.works[first..].iter().take_while(|work| work.op == op).count()
    }

    /// True if every call of an operation has completed.
    pub(crate) fn completed(&mut self, op: u32) -> bool {
        let works = self.works_of(op);
        self.last_asked = works.start as u32;
        self.works[works].iter().all(|work| work.completed)
    }

    pub(crate) fn idle(&self) -> bool {
        self.in_flight == 0 && self.stream.as_ref().is_none_or(ComputeStream::is_empty)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) now: u64,
    pub(crate) queue: EventQueue<Due>,
    /// Entries of the queue that were handled: a measure of the work, for whoever watches it.
    pub(crate) handled: u64,
    pub(crate) woken: VecDeque<Woken>,
    pub(crate) network: Network,
    pub(crate) ranks: Vec<Rank>,
    /// The memory of switches for tensors, which is empty.
    pub(crate) switch_memory: Memory,
    pub(crate) channels: Vec<Channel>,
    pub(crate) messages: crate::message::Messages,
    /// Every signature called so far, numbered: messages carry the number.
    pub(crate) signatures: BTreeMap<Arc<Signature>, u32>,
    /// The call that was begun last in each group. Mostly the next rank begins the same one.
    pub(crate) last_begun: Vec<Option<Arc<BegunCall>>>,
    /// The cuts of the buffers of the call that was begun last: most ranks' are the same.
    pub(crate) last_cuts: Option<Arc<[Grid; 3]>>,
    pub(crate) posted: BTreeMap<crate::transfer::Pair, Posted>,
    pub(crate) from_any: FromAny,
    pub(crate) p2p_streams: crate::p2p_queue::P2pStreams,
    /// Point-to-point calls posted so far.
    pub(crate) posts: u64,
    pub(crate) transfers: Vec<Transfer>,
    /// Rings that are carried out as a whole, where that is possible.
    pub(crate) whole: Option<Whole>,
    /// Times of calls as a whole, if they are known.
    pub(crate) call_times: Option<Arc<CallTimes>>,
    /// True if the steps of calls with known times are laid over these: somebody looks at them.
    pub(crate) lays_steps: bool,
    /// Collectives in flight, where they share links with others.
    pub(crate) in_flight: Option<CallsInFlight>,
    /// Calls that need no messages, where there can be such.
    pub(crate) meetings: Option<Meetings>,
    /// Messages that are only counted, where that is possible.
    pub(crate) counted: Option<CountedMessages>,
    /// The actions of the step that is being begun, where its receives are counted.
    pub(crate) step_actions: Vec<Action>,
    /// The messages of the step of a rotation that was begun last.
    pub(crate) step_sends: StepSends,
    /// The causes of each time, if they are asked for.
    pub(crate) paths: Option<Box<Paths>>,
    pub(crate) deadlines: Vec<Deadlines>,
    /// The rule for choosing between orders that the plan leaves open, if there is one.
    pub(crate) choosing: Option<Choosing>,
    /// True if an operation that takes no time still gets a moment of its own. The events and their order are
    /// the same.
    pub(crate) stands: bool,
    /// True if a rank has reached such an operation: this moment is over.
    pub(crate) standing: bool,
    pub(crate) unfinished: u32,
    pub(crate) outcome: Option<Outcome>,
    /// The first rank whose process ended early, and how.
    pub(crate) died: Option<(GlobalRank, String)>,
}

/// A collective that a rank has begun, with its signature and time: they hold for each rank that begins the same one.
#[derive(Clone, Debug)]
pub(crate) struct BegunCall {
    pub(crate) call: Call,
    pub(crate) signature: Arc<Signature>,
    /// Equal numbers are equal signatures.
    pub(crate) signature_number: u32,
    /// Its time as a whole, if that is known.
    pub(crate) timed: Option<Timed>,
    /// When its steps end, where they are laid over that time.
    pub(crate) laid: Option<Arc<[u64]>>,
}

/// Calls whose groups share a timeout, in the order in which they were made: the first that has
/// not completed is the next to time out.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    pub(crate) timeout_ps: u64,
    pub(crate) calls: VecDeque<(u64, GlobalRank, u32)>,
}

/// The tensors of a rank, or a switch's, which has none.
pub(super) fn memory_of<'a>(
    ranks: &'a mut [Rank],
    switch_memory: &'a mut Memory,
    rank: GlobalRank,
) -> &'a mut Memory {
    match ranks.get_mut(rank.index()) {
        Some(rank) => &mut rank.memory,
        None => switch_memory,
    }
}
