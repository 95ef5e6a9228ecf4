//! The engine: virtual time, the ranks' programs and what wakes them.
//!
//! One event of the queue is handled at a time; what it wakes goes on a list that is worked off
//! before the next event, so that no call nests and the order never depends on anything but the
//! plan. A message costs one queue entry.

use crate::channel::Channel;
use crate::memory::Memory;
use crate::network::Network;
use crate::p2p::{Posted, Transfer};
use crate::prepared::Prepared;
use crate::queue::EventQueue;
use crate::record::Recorder;
use crate::topology::Topology;
use lockstep_core::group::{GroupId, SequenceNumbers};
use lockstep_core::plan::{Action, Op, Plan, PlanError, Signature, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Origin, Outcome, TensorValue, Trace, TraceEnd, TraceHeader, What};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a plan is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// What messages cost.
    pub topology: Topology,
    /// The seed of whatever is random; nothing is yet, but traces name it.
    pub seed: u64,
    /// Plans whose tensors and scratch take more bytes than this, over all ranks, are simulated
    /// without values: times only.
    pub max_value_bytes: u64,
    /// Whether single messages are recorded, not only calls.
    pub record_messages: bool,
    /// The simulation is refused once it has recorded this many events.
    pub max_events: usize,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            topology: Topology::default(),
            seed: 0,
            max_value_bytes: 64 << 20,
            record_messages: true,
            max_events: 5_000_000,
        }
    }
}

/// Why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The plan itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The trace would not fit.
    #[error(
        "the simulation recorded {limit} events and is not done; \
         simulate fewer ranks or operations, or leave single messages out of the recording"
    )]
    TooManyEvents {
        /// The limit that was set.
        limit: usize,
    },
    /// A moment past the end was asked for.
    #[error("there is no moment {moment}; the last one is {last}")]
    NoSuchMoment {
        /// What was asked for.
        moment: usize,
        /// The last one there is.
        last: usize,
    },
}

/// Simulates a plan to its end.
///
/// # Errors
/// When the plan cannot be run, or records more than [`SimConfig::max_events`].
pub fn simulate(plan: &Plan, config: &SimConfig) -> Result<Trace, SimError> {
    plan.check()?;
    let mut engine = Engine::new(Arc::new(plan.clone()), config);
    let mut recorder = Recorder { on: true, messages: config.record_messages, events: Vec::new() };
    while engine.advance(&mut recorder) {
        if recorder.events.len() > config.max_events {
            return Err(SimError::TooManyEvents { limit: config.max_events });
        }
    }
    Ok(Trace { header: engine.header(config), events: recorder.events, end: engine.end() })
}

/// What is due at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// A rank's busy or idle time is over.
    Rank(GlobalRank),
    /// A message has arrived.
    Message(u32),
    /// A channel's sends of a step have all left.
    Sent(u32),
    /// A point-to-point transfer has arrived.
    Transfer(u32),
}

/// What an event has woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Woken {
    Rank(GlobalRank),
    Channel(u32),
}

/// What a rank's program is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is about to begin operation `pc`.
    Ready,
    /// Busy or idle for a time.
    Busy,
    /// It waits for a work of its own.
    Blocked {
        work: u32,
    },
    /// Its program is over, but calls of its are still in flight.
    Draining,
    Finished,
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) op: u32,
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
    pub(crate) p2p: SequenceNumbers,
    pub(crate) memory: Memory,
}

/// Calls whose groups share a timeout, in the order in which they were made: the first that has
/// not completed is the next to time out.
#[derive(Clone, Debug)]
struct Deadlines {
    timeout_ps: u64,
    calls: VecDeque<(u64, GlobalRank, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) now: u64,
    pub(crate) queue: EventQueue<Due>,
    pub(crate) woken: VecDeque<Woken>,
    pub(crate) network: Network,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) messages: crate::channel::Messages,
    /// Every signature called so far, numbered: messages carry the number.
    pub(crate) signatures: BTreeMap<Signature, u32>,
    pub(crate) posted: BTreeMap<crate::p2p::Pair, Posted>,
    pub(crate) transfers: Vec<Transfer>,
    deadlines: Vec<Deadlines>,
    unfinished: u32,
    outcome: Option<Outcome>,
}

impl Engine {
    /// An engine at time 0 of a checked plan.
    pub(crate) fn new(plan: Arc<Plan>, config: &SimConfig) -> Engine {
        let prepared = Prepared::new(&plan, config.max_value_bytes);
        let world = plan.world_size;
        let ranks = (0..world).map(GlobalRank).map(|rank| {
            let program = plan.program_of[rank.index()] as usize;
            let used: &[TensorId] = if prepared.values { &prepared.used[program] } else { &[] };
            Rank {
                pc: 0,
                doing: Doing::Ready,
                works: Vec::new(),
                in_flight: 0,
                collectives: SequenceNumbers::default(),
                p2p: SequenceNumbers::default(),
                memory: Memory::new(&plan, rank, used),
            }
        });
        let ranks = ranks.collect();
        let mut channels = Vec::with_capacity(prepared.channels as usize);
        for (id, group) in plan.groups.iter().enumerate() {
            let members = group.ranks().iter().zip(0..);
            channels.extend(members.map(|(rank, member)| {
                Channel::new(GroupId(id as u32), lockstep_core::rank::GroupRank(member), *rank)
            }));
        }
        let mut queue = EventQueue::new();
        for rank in (0..world).map(GlobalRank) {
            queue.push(0, Due::Rank(rank));
        }
        Engine {
            network: Network::new(config.topology, world),
            prepared: Arc::new(prepared),
            plan,
            now: 0,
            queue,
            woken: VecDeque::new(),
            ranks,
            channels,
            messages: crate::channel::Messages::default(),
            signatures: BTreeMap::new(),
            posted: BTreeMap::new(),
            transfers: Vec::new(),
            deadlines: Vec::new(),
            unfinished: world,
            outcome: None,
        }
    }

    pub(crate) fn header(&self, config: &SimConfig) -> TraceHeader {
        TraceHeader {
            origin: Origin::Simulated {
                version: env!("CARGO_PKG_VERSION").into(),
                topology: config.topology.to_string(),
                seed: config.seed,
            },
            world_size: self.plan.world_size,
            groups: self.plan.groups.clone(),
            plan: Some((*self.plan).clone()),
            epoch_ns: 0,
        }
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    pub(crate) fn end(&self) -> Option<TraceEnd> {
        Some(TraceEnd { time_ps: self.now, outcome: self.outcome.clone()? })
    }

    /// Handles everything that is due at the next time; false once the simulation has ended.
    pub(crate) fn advance(&mut self, recorder: &mut Recorder) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        match (self.queue.next_time(), self.next_deadline()) {
            // What is due at the very moment of a timeout still counts.
            (Some(due), deadline) if deadline.is_none_or(|deadline| due <= deadline) => {
                self.now = due;
                while self.queue.next_time() == Some(due) {
                    if let Some((_, due)) = self.queue.pop() {
                        self.handle(due, recorder);
                        self.work_off(recorder);
                    }
                }
            }
            (_, Some(deadline)) => self.time_out(deadline, recorder),
            (_, None) => {}
        }
        if self.unfinished == 0 && self.outcome.is_none() {
            self.outcome = Some(Outcome::Completed);
        } else if self.outcome.is_none()
            && self.queue.next_time().is_none()
            && self.next_deadline().is_none()
        {
            // A waiting rank waits for a call, and every call has a deadline.
            let why = "the simulator has lost a waiting rank; please report the plan".into();
            self.outcome = Some(Outcome::Failed { why });
        }
        true
    }

    fn handle(&mut self, due: Due, recorder: &mut Recorder) {
        match due {
            Due::Rank(rank) => {
                if self.ranks[rank.index()].doing == Doing::Busy {
                    self.end_op(rank, recorder);
                }
                self.woken.push_back(Woken::Rank(rank));
            }
            Due::Message(message) => self.deliver(message, recorder),
            Due::Sent(channel) => self.woken.push_back(Woken::Channel(channel)),
            Due::Transfer(transfer) => self.finish_transfer(transfer, recorder),
        }
    }

    fn work_off(&mut self, recorder: &mut Recorder) {
        while let Some(woken) = self.woken.pop_front() {
            match woken {
                Woken::Rank(rank) => self.run_program(rank, recorder),
                Woken::Channel(channel) => self.run_channel(channel, recorder),
            }
        }
    }

    /// Runs a rank's program until it waits.
    fn run_program(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let plan = Arc::clone(&self.plan);
        let Some(program) = plan.program(rank) else {
            return;
        };
        loop {
            let state = &mut self.ranks[rank.index()];
            match state.doing {
                Doing::Busy | Doing::Finished => return,
                Doing::Blocked { work } => {
                    if !state.works[work as usize].completed {
                        return;
                    }
                    state.doing = Doing::Ready;
                    self.end_op(rank, recorder);
                    continue;
                }
                Doing::Ready | Doing::Draining => {}
            }
            let Some(op) = program.ops.get(state.pc as usize) else {
                self.finish_program(rank, recorder);
                return;
            };
            let index = state.pc;
            recorder.record(self.now, rank, || What::OpBegan { op: index });
            self.begin_op(rank, index, op, recorder);
        }
    }

    fn begin_op(&mut self, rank: GlobalRank, index: u32, op: &Op, recorder: &mut Recorder) {
        match &op.action {
            Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } => {
                let over = self.now.saturating_add(duration_ns.saturating_mul(1000));
                self.ranks[rank.index()].doing = Doing::Busy;
                self.queue.push(over, Due::Rank(rank));
            }
            Action::Wait { op } => {
                let works = &self.ranks[rank.index()].works;
                let found = works.binary_search_by_key(op, |work| work.op);
                match found {
                    Ok(work) => {
                        let work = work as u32;
                        self.ranks[rank.index()].doing = Doing::Blocked { work };
                    }
                    // A checked plan waits only for earlier calls.
                    Err(_) => self.end_op(rank, recorder),
                }
            }
            Action::Collective { group, .. } => {
                let work = self.make_call(rank, index, *group, false, recorder);
                if let Some(member) = self.plan.group(*group).and_then(|g| g.group_rank(rank)) {
                    let channel = self.prepared.channel(*group, member);
                    self.channels[channel as usize].enqueue(work);
                    self.woken.push_back(Woken::Channel(channel));
                }
                self.hold_for(rank, work, op, recorder);
            }
            Action::Send { group, .. } | Action::Recv { group, .. } => {
                let work = self.make_call(rank, index, *group, true, recorder);
                self.post(rank, work, &op.action, recorder);
                self.hold_for(rank, work, op, recorder);
            }
        }
    }

    /// After a call: a synchronous one holds the program, an asynchronous one does not.
    fn hold_for(&mut self, rank: GlobalRank, work: u32, op: &Op, recorder: &mut Recorder) {
        if op.action.is_async() {
            self.end_op(rank, recorder);
        } else {
            self.ranks[rank.index()].doing = Doing::Blocked { work };
        }
    }

    fn end_op(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        let op = state.pc;
        state.pc += 1;
        state.doing = Doing::Ready;
        recorder.record(self.now, rank, || What::OpEnded { op });
    }

    /// Numbers a call, records it and sets its deadline.
    fn make_call(
        &mut self,
        rank: GlobalRank,
        index: u32,
        group: GroupId,
        p2p: bool,
        recorder: &mut Recorder,
    ) -> u32 {
        let state = &mut self.ranks[rank.index()];
        let seq = if p2p { state.p2p.next(group) } else { state.collectives.next(group) };
        let work = state.works.len() as u32;
        state.works.push(Work { op: index, seq, completed: false });
        state.in_flight += 1;
        let plan = &self.plan;
        if recorder.on
            && let Some(call) = plan.call(rank, index, seq)
        {
            recorder.record(self.now, rank, || What::Scheduled { work, call: Box::new(call) });
        }
        let timeout_ms = plan.group(group).map_or(u64::MAX, |group| group.timeout_ms());
        let timeout_ps = timeout_ms.saturating_mul(1_000_000_000);
        let deadline = (self.now.saturating_add(timeout_ps), rank, work);
        match self.deadlines.iter_mut().find(|known| known.timeout_ps == timeout_ps) {
            Some(known) => known.calls.push_back(deadline),
            None => {
                self.deadlines.push(Deadlines { timeout_ps, calls: VecDeque::from([deadline]) });
            }
        }
        work
    }

    /// Marks a call completed on its rank and wakes whoever waits for it.
    pub(crate) fn complete(&mut self, rank: GlobalRank, work: u32, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        state.works[work as usize].completed = true;
        state.in_flight -= 1;
        recorder.record(self.now, rank, || What::Completed { work });
        if state.doing == (Doing::Blocked { work }) || state.doing == Doing::Draining {
            self.woken.push_back(Woken::Rank(rank));
        }
    }

    fn finish_program(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        if state.in_flight > 0 {
            state.doing = Doing::Draining;
            return;
        }
        state.doing = Doing::Finished;
        self.unfinished -= 1;
        let program = self.plan.program_of[rank.index()] as usize;
        for &tensor in &self.prepared.used[program] {
            if let Some(bytes) = state.memory.get(tensor) {
                let what = || What::Result { tensor, value: TensorValue::of(bytes) };
                recorder.record(self.now, rank, what);
            }
        }
        recorder.record(self.now, rank, || What::Finished);
    }

    fn next_deadline(&mut self) -> Option<u64> {
        let ranks = &self.ranks;
        let firsts = self.deadlines.iter_mut().filter_map(|deadlines| {
            while let Some(&(deadline, rank, work)) = deadlines.calls.front() {
                if !ranks[rank.index()].works[work as usize].completed {
                    return Some(deadline);
                }
                deadlines.calls.pop_front();
            }
            None
        });
        firsts.min()
    }

    /// The watchdogs fire: every call whose time is up, and with it the run, ends.
    fn time_out(&mut self, deadline: u64, recorder: &mut Recorder) {
        self.now = deadline;
        let mut late: Vec<_> = self
            .deadlines
            .iter()
            .flat_map(|deadlines| deadlines.calls.iter())
            .filter(|(due, rank, work)| {
                *due == deadline && !self.ranks[rank.index()].works[*work as usize].completed
            })
            .map(|(_, rank, work)| (*rank, *work))
            .collect();
        late.sort_unstable();
        for (rank, work) in late {
            recorder.record(deadline, rank, || What::TimedOut { work });
        }
        self.outcome = Some(Outcome::TimedOut);
    }
}
