//! The engine: virtual time, the ranks' programs and the events that wake them.
//!
//! One event of the queue is handled at a time; programs that it wakes go on a list that is worked off before
//! the next event, so that no call nests and the order never depends on anything but the plan. A message
//! costs one queue entry, or none if nothing looks at it ([`super::arrivals`]).

use super::arrivals::CountedMessages;
use super::call_time::Meetings;
use super::calls_in_flight::CallsInFlight;
use super::choice::Choosing;
use super::comm_stream::Channel;
use super::compute_stream::ComputeStream;
use super::config::{SimConfig, SimError};
use super::memory::Memory;
use super::network::Network;
use super::prepared::Prepared;
use super::queue::EventQueue;
use super::record::Recorder;
use super::rings::Whole;
use super::state::{Doing, Due, Engine, Rank, Woken};
use super::step_sends::StepSends;
use super::transfer::FromAny;
use lockstep_core::group::{GroupId, SequenceNumbers};
use lockstep_core::plan::{Plan, STOPPED, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{
    CallCollector, CallLog, Origin, Outcome, Trace, TraceEnd, TraceHeader, What,
};
use lockstep_core::watch::{Reached, Unwatched, Watch};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Between two reports to a watch so many entries of the queue are handled, about a millisecond's work; more where
/// there are more ranks, since a report counts the operations of all of them.
const HANDLED_BETWEEN_REPORTS: u64 = 4096;

/// Simulates a plan to its end.
///
/// # Errors
/// When the plan cannot be run, or records more than [`SimConfig::max_events`].
pub fn simulate(plan: &Plan, config: &SimConfig) -> Result<Trace, SimError> {
    simulate_watched(plan, config, &mut Unwatched)
}

/// Simulates a plan to its end, or until its watch ends it.
///
/// # Errors
/// As [`simulate`], and [`SimError::Stopped`] with the trace so far.
pub fn simulate_watched(
    plan: &Plan,
    config: &SimConfig,
    watch: &mut dyn Watch,
) -> Result<Trace, SimError> {
    let ended = run(Arc::new(plan.clone()), config, watch, Keeps::Events)?;
    let trace = Trace { header: ended.header, events: ended.recorder.events, end: ended.end };
    match ended.stopped {
        true => Err(SimError::Stopped(Box::new(trace))),
        false => Ok(trace),
    }
}

/// The calls of a simulation whose events were not kept.
#[derive(Debug)]
pub struct SimulatedCalls {
    /// The calls of every rank.
    pub calls: CallLog,
    /// The end; [`Outcome::Cancelled`] if its watch ended it.
    pub end: Option<TraceEnd>,
    /// The number of events that its trace would have.
    pub events: usize,
}

impl From<&Trace> for SimulatedCalls {
    fn from(trace: &Trace) -> SimulatedCalls {
        SimulatedCalls {
            calls: CallLog::of(trace),
            end: trace.end.clone(),
            events: trace.events.len(),
        }
    }
}

/// Simulates a plan to its end, or until its watch ends it, and keeps only its calls: the events of a large plan
/// take many times their memory.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_calls(
    plan: Arc<Plan>,
    config: &SimConfig,
    watch: &mut dyn Watch,
) -> Result<SimulatedCalls, SimError> {
    let Ended { header, mut recorder, end, .. } = run(plan, config, watch, Keeps::Calls)?;
    let events = recorder.recorded();
    let collector = recorder.collector.take().unwrap_or_else(|| CallCollector::new(&header));
    Ok(SimulatedCalls { calls: collector.finish(end.as_ref()), end, events })
}

/// A simulation keeps its events, or only the calls among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Events,
    Calls,
}

/// A simulation that has ended.
struct Ended {
    header: TraceHeader,
    recorder: Recorder,
    end: Option<TraceEnd>,
    /// True if its watch ended it.
    stopped: bool,
}

fn run(
    plan: Arc<Plan>,
    config: &SimConfig,
    watch: &mut dyn Watch,
    keeps: Keeps,
) -> Result<Ended, SimError> {
    plan.check()?;
    let mut engine = Engine::new(Arc::clone(&plan), config);
    if config.order.is_none() {
        engine.take_calls_whole(config);
        engine.count_messages(config);
    }
    let header = engine.header(config);
    let new_recorder = || Recorder {
        collector: (keeps == Keeps::Calls).then(|| CallCollector::new(&header)),
        ..Recorder::new(config)
    };
    let mut recorder = new_recorder();
    let between_reports = HANDLED_BETWEEN_REPORTS.max(plan.world_size.into());
    let mut next_report = between_reports;
    while engine.advance(&mut recorder) {
        if engine.network.is_ambiguous() {
            // Again by messages, counted or not, which always has an answer.
            engine = Engine::new(Arc::clone(&plan), config);
            engine.count_messages(config);
            recorder = new_recorder();
            next_report = between_reports;
            continue;
        }
        if recorder.recorded() > config.max_events {
            return Err(SimError::TooManyEvents { limit: config.max_events });
        }
        if engine.handled >= next_report {
            next_report = engine.handled + between_reports;
            if watch.reached(engine.reached()).is_break() && engine.outcome.is_none() {
                let end = TraceEnd { time_ps: engine.now, outcome: Outcome::Cancelled };
                return Ok(Ended { header, recorder, end: Some(end), stopped: true });
            }
        }
    }
    Ok(Ended { end: engine.end(), header, recorder, stopped: false })
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
                works: Vec::with_capacity(prepared.calls[program]),
                last_asked: 0,
                in_flight: 0,
                collectives: SequenceNumbers::default(),
                p2p: None,
                memory: Memory::new(&plan, rank, used),
                stream: prepared.on_device[rank.index()].then(ComputeStream::default),
            }
        });
        let ranks = ranks.collect();
        let mut channels = Vec::with_capacity(prepared.channels as usize);
        // Switches have numbers behind the ranks'.
        let mut switches = 0;
        for (id, group) in (0..).map(GroupId).zip(&plan.groups) {
            let own = prepared.switches(id);
            let numbers = (switches..switches + own).map(|switch| GlobalRank(world + switch));
            let members = group.ranks().iter().copied().chain(numbers);
            channels.extend(members.zip(0..).map(|(rank, member)| {
                Channel::new(id, GroupRank(member), rank, member >= group.size())
            }));
            switches += own;
        }
        let mut queue = EventQueue::new();
        for rank in (0..world).map(GlobalRank) {
            queue.push(0, Due::Rank(rank));
        }
        Engine {
            network: Network::new(config.topology, world.saturating_add(switches)),
            switch_memory: Memory::default(),
            prepared: Arc::new(prepared),
            plan,
            now: 0,
            queue,
            handled: 0,
            woken: VecDeque::new(),
            ranks,
            channels,
            messages: crate::message::Messages::default(),
            signatures: BTreeMap::new(),
            last_begun: Vec::new(),
            last_cuts: None,
            posted: BTreeMap::new(),
            from_any: FromAny::new(),
            p2p_streams: BTreeMap::new(),
            posts: 0,
            transfers: Vec::new(),
            whole: None,
            in_flight: config
                .call_times
                .as_ref()
                .filter(|times| times.has_loads())
                .map(|_| CallsInFlight::default()),
            call_times: config.call_times.clone(),
            lays_steps: false,
            meetings: None,
            counted: None,
            step_actions: Vec::new(),
            step_sends: StepSends::default(),
            paths: None,
            deadlines: Vec::new(),
            choosing: config.order.as_ref().map(|order| Choosing::new(order, world)),
            stands: false,
            standing: false,
            unfinished: world,
            outcome: None,
            died: None,
        }
    }

    /// Works calls out as a whole from now on, where nothing speaks against it.
    pub(crate) fn take_calls_whole(&mut self, config: &SimConfig) {
        if self.call_times.is_some() {
            self.meetings = Meetings::new(&self.prepared);
            return;
        }
        self.whole = Whole::new(&self.plan, &self.prepared, config);
        if self.whole.is_some() {
            self.network.watch_order();
        }
    }

    /// Lays the steps of calls with known times over these from now on. An order that was found without that
    /// has other moments. Calls that share links with others are over when the others let them.
    pub(crate) fn lay_steps(&mut self, config: &SimConfig) {
        let knows_times = config.call_times.is_some() && self.in_flight.is_none();
        self.lays_steps = knows_times && config.order.is_none();
    }

    /// Only counts messages from now on, where nobody looks at them.
    fn count_messages(&mut self, config: &SimConfig) {
        self.counted = CountedMessages::new(&self.plan, &self.prepared, config);
    }

    pub(crate) fn header(&self, config: &SimConfig) -> TraceHeader {
        let times = config.call_times.as_deref();
        let topology = match times {
            Some(times) => times.machine.clone(),
            None => config.topology.to_string(),
        };
        let (version, seed) = (env!("CARGO_PKG_VERSION").to_owned(), config.seed);
        let origin = match times.and_then(|times| times.cluster.clone()) {
            Some(cluster) => Origin::SimulatedOnCluster { version, topology, seed, cluster },
            None => Origin::Simulated { version, topology, seed },
        };
        TraceHeader {
            origin,
            world_size: self.plan.world_size,
            groups: self.plan.groups.clone(),
            plan: Some(Arc::clone(&self.plan)),
            epoch_ns: 0,
        }
    }

    /// The operations that ranks have come past, of all that the plan has.
    fn reached(&self) -> Reached {
        let operations = |program: &u32| {
            self.plan.programs.get(*program as usize).map_or(0, |program| program.ops.len() as u64)
        };
        Reached {
            done: self.ranks.iter().map(|rank| u64::from(rank.pc)).sum(),
            total: self.plan.program_of.iter().map(operations).sum(),
            what: "operations simulated",
        }
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    pub(crate) fn end(&self) -> Option<TraceEnd> {
        Some(TraceEnd { time_ps: self.now, outcome: self.outcome.clone()? })
    }

    /// Handles everything that is due at the next time, or up to where a rank stands; false once the
    /// simulation has ended.
    pub(crate) fn advance(&mut self, recorder: &mut Recorder) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        if std::mem::take(&mut self.standing) {
            self.work_off(recorder);
            if self.woken.is_empty() && self.queue.next_time() == Some(self.now) {
                self.handle_due(self.now, recorder);
            }
            self.conclude(recorder);
            return true;
        }
        if self.choosing.is_some() && self.is_settled() && self.choose_next(recorder) {
            return true;
        }
        match (self.queue.next_time(), self.next_deadline()) {
            // Events at the very moment of a timeout still count.
            (Some(due), deadline) if deadline.is_none_or(|deadline| due <= deadline) => {
                self.now = due;
                self.handle_due(due, recorder);
            }
            (_, Some(deadline)) => self.time_out(deadline, recorder),
            (_, None) => {}
        }
        self.conclude(recorder);
        true
    }

    /// Handles the events that are due at a time, until a rank has reached an operation of its own moment.
    fn handle_due(&mut self, time: u64, recorder: &mut Recorder) {
        while !self.standing
            && let Some(due) = self.queue.pop_at(time)
        {
            self.handled += 1;
            self.handle(due, recorder);
            if !self.woken.is_empty() {
                self.work_off(recorder);
            }
        }
    }

    /// Says how it has ended, if it has.
    fn conclude(&mut self, recorder: &mut Recorder) {
        if self.unfinished == 0 && self.outcome.is_none() {
            self.outcome = Some(self.ended_as(Outcome::Completed));
        } else if self.outcome.is_none()
            && !self.standing
            && self.queue.next_time().is_none()
            && self.next_deadline().is_none()
        {
            self.outcome = Some(match self.find_stopped(recorder) {
                Some(rank) => self.ended_as(Outcome::RankStopped { rank, how: STOPPED.to_owned() }),
                // A waiting rank waits for a call, and every call has a deadline.
                None => Outcome::Failed {
                    why: "the simulator has lost a waiting rank; please report the plan".into(),
                },
            });
        }
    }

    /// Records which ranks stand stopped, as an executor finds them at the end; the first of them.
    pub(crate) fn find_stopped(&self, recorder: &mut Recorder) -> Option<GlobalRank> {
        let ranks = (0..self.plan.world_size).map(GlobalRank);
        let stopped = ranks.filter(|rank| self.ranks[rank.index()].doing == Doing::Stopped);
        stopped.fold(None, |first, rank| {
            recorder.record(self.now, rank, || What::Unresponsive { how: STOPPED.to_owned() });
            first.or(Some(rank))
        })
    }

    /// The end of a run that would otherwise end as `outcome`: if a process died, that is the end
    /// of all.
    pub(crate) fn ended_as(&self, outcome: Outcome) -> Outcome {
        match &self.died {
            Some((rank, how)) => Outcome::RankDied { rank: *rank, how: how.clone() },
            None => outcome,
        }
    }

    /// True if the process of a rank has ended early. Switches do not die.
    pub(crate) fn is_dead(&self, rank: GlobalRank) -> bool {
        self.died.is_some()
            && self.ranks.get(rank.index()).is_some_and(|rank| rank.doing == Doing::Died)
    }

    /// True if a rank's side of a group's calls goes no further: it stops with its process, unless a device
    /// carries the calls out by itself.
    pub(crate) fn stands_still(&self, channel: u32) -> bool {
        let channel = &self.channels[channel as usize];
        let rank = self.ranks.get(channel.rank.index());
        let stopped = rank.is_some_and(|rank| rank.doing == Doing::Stopped);
        self.is_dead(channel.rank) || (stopped && !self.prepared.is_nccl(channel.group))
    }

    fn handle(&mut self, due: Due, recorder: &mut Recorder) {
        if let Some(paths) = &mut self.paths {
            match due {
                Due::Message(message) => paths.message_came(self.now, message),
                Due::Sent(channel) => paths.sends_left(self.now, channel),
                Due::Rank(_)
                | Due::Step(_)
                | Due::Transfer(_)
                | Due::Stream(_)
                | Due::Whole(_)
                | Due::Timed(_) => paths.other(self.now),
            }
        }
        match due {
            Due::Rank(rank) | Due::Stream(rank) if self.is_dead(rank) => {}
            Due::Rank(rank) => {
                if self.ranks[rank.index()].doing == Doing::Busy {
                    self.end_op(rank, recorder);
                }
                self.woken.push_back(Woken::Rank(rank));
            }
            Due::Message(message) => self.deliver(message, recorder),
            Due::Sent(channel) => self.woken.push_back(Woken::Channel(channel)),
            Due::Step(channel) => self.end_step(channel, recorder),
            Due::Transfer(transfer) => self.go_on_with_transfer(transfer, recorder),
            Due::Stream(rank) => self.end_stream_item(rank, recorder),
            Due::Whole(channel) => {
                self.finish_whole(channel);
                self.woken.push_back(Woken::Channel(channel));
            }
            Due::Timed(channel) => {
                self.end_time(channel);
                self.woken.push_back(Woken::Channel(channel));
            }
        }
    }

    pub(crate) fn work_off(&mut self, recorder: &mut Recorder) {
        while !self.standing
            && let Some(woken) = self.woken.pop_front()
        {
            let still = match woken {
                Woken::Rank(rank) | Woken::Stream(rank) => self.is_dead(rank),
                Woken::Channel(channel) => self.stands_still(channel),
            };
            if still {
                continue;
            }
            match woken {
                Woken::Rank(rank) => self.run_program(rank, recorder),
                Woken::Channel(channel) => self.run_channel(channel, recorder),
                Woken::Stream(rank) => self.run_stream(rank, recorder),
            }
        }
    }
}
