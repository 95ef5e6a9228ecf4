//! The thread that carries one run from its first process to its last: starts ranks, lets them
//! join, merges what they report, and ends everything when the first thing goes wrong.
//!
//! One loop over `poll`: sockets, process ends (pidfds), the canceller, and the next deadline.

use super::control::{Order, Report, Setup, frame};
use super::process::RankProcess;
use super::wiring::Wiring;
use super::{Checked, RankLauncher};
use crate::clock;
use crate::store::StoreServer;
use crate::{RunError, RunEvent};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, Outcome, TraceEnd, What};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the coordinator looks whether all have joined.
const JOIN_LOOK: Duration = Duration::from_millis(2);

/// What `start` hears once all ranks have joined.
pub(super) struct Joined {
    pub(super) pids: Vec<u32>,
    /// Nanoseconds since 1970 at time 0.
    pub(super) epoch_ns: u64,
}

/// A run from the coordinator's side.
pub(super) struct Coordinator {
    checked: Checked,
    launcher: RankLauncher,
    /// Readable once somebody cancels.
    cancelled: std::sync::Arc<OwnedFd>,
    events: Sender<RunEvent>,
    ranks: Vec<RankProcess>,
    store: Option<StoreServer>,
    phase: Phase,
    /// Time 0 of the trace.
    start_ns: u64,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until all have joined or the deadline, on the clock.
    Joining { deadline_ns: u64 },
    /// Until all are done, something goes wrong, or the deadline.
    Running { deadline_ns: u64 },
    /// Told to end: who is still there at the deadline is killed.
    Ending { deadline_ns: u64 },
    /// Everything was killed; it takes as long as the kernel takes.
    Killed,
}

impl Coordinator {
    pub(super) fn new(
        checked: Checked,
        launcher: RankLauncher,
        cancelled: std::sync::Arc<OwnedFd>,
        events: Sender<RunEvent>,
    ) -> Coordinator {
        let join_timeout = clock::nanoseconds(checked.options.join_timeout);
        let now = clock::now_ns();
        Coordinator {
            checked,
            launcher,
            cancelled,
            events,
            ranks: Vec::new(),
            store: None,
            phase: Phase::Joining { deadline_ns: now.saturating_add(join_timeout) },
            start_ns: now,
            outcome: None,
        }
    }

    /// The whole run. `joined` is told once, when all ranks have joined or will not.
    pub(super) fn run(mut self, joined: &Sender<Result<Joined, RunError>>) -> TraceEnd {
        let started = self.start_ranks().and_then(|()| self.wait_for_all());
        if let Err(error) = started {
            // Dropping the ranks kills and reaps them, before anybody hears of it.
            self.ranks.clear();
            let outcome = Outcome::Failed { why: error.to_string() };
            let _ = joined.send(Err(error));
            return TraceEnd { time_ps: 0, outcome };
        }
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let pids = self.ranks.iter().map(RankProcess::pid).collect();
        let _ = joined.send(Ok(Joined { pids, epoch_ns: clock::nanoseconds(epoch) }));
        self.begin();
        while !self.ranks.iter().all(|rank| rank.ended.is_some()) {
            self.turn();
        }
        self.ranks.clear();
        self.store = None;
        let outcome = self.outcome.take().unwrap_or(Outcome::Completed);
        let time_ps = clock::picoseconds_between(self.start_ns, clock::now_ns());
        let end = TraceEnd { time_ps, outcome };
        let _ = self.events.send(RunEvent::Ended(end.clone()));
        end
    }

    fn start_ranks(&mut self) -> Result<(), RunError> {
        let plan = &self.checked.plan;
        let options = &self.checked.options;
        let wiring = Wiring::of(plan, options.max_shared_bytes)?;
        let memory = crate::shm::Segment::create(wiring.segment_bytes())
            .map_err(RunError::system("create shared memory"))?;
        let store = StoreServer::start().map_err(RunError::system("serve the store"))?;
        let address = store.address();
        self.store = Some(store);
        let bytes = plan.to_bytes();
        for rank in (0..plan.world_size).map(GlobalRank) {
            let mut process =
                RankProcess::start(&self.launcher, rank, &memory).map_err(|source| {
                    RunError::Spawn { rank, program: self.launcher.program.clone(), source }
                })?;
            process.send(&frame(&Order::Setup(Box::new(Setup {
                rank,
                plan: bytes.clone(),
                wiring: wiring.of_rank(plan, rank),
                store: address,
                join_timeout_ns: clock::nanoseconds(options.join_timeout),
                timeout_ns: options.timeout.map(clock::nanoseconds),
                record_messages: options.record_messages,
                patience: self.checked.patience,
            }))));
            self.ranks.push(process);
        }
        Ok(())
    }

    /// Returns once every rank has joined.
    fn wait_for_all(&mut self) -> Result<(), RunError> {
        loop {
            let Phase::Joining { deadline_ns } = self.phase else { return Ok(()) };
            let joined = |rank: GlobalRank| {
                self.store.as_ref().is_some_and(|store| store.has(&joined_key(rank)))
            };
            let Some(absent) = self.ranks.iter().find(|rank| !joined(rank.rank)) else {
                return Ok(());
            };
            let late = clock::now_ns() >= deadline_ns;
            if late {
                let why = format!("it did not within {:?}", self.checked.options.join_timeout);
                return Err(RunError::DidNotJoin { rank: absent.rank, why });
            }
            self.wait_for_something(Some(JOIN_LOOK));
            for rank in &mut self.ranks {
                for report in rank.receive() {
                    if let Report::Failed { why } = report {
                        rank.failure = Some(why);
                    }
                }
                rank.reap();
                if rank.ended.is_some() {
                    let why = rank.how_it_ended();
                    return Err(RunError::DidNotJoin { rank: rank.rank, why });
                }
            }
        }
    }

    /// Starts the clock and lets the ranks go.
    fn begin(&mut self) {
        self.start_ns = clock::now_ns();
        let limit = clock::nanoseconds(self.checked.options.max_duration);
        self.phase = Phase::Running { deadline_ns: self.start_ns.saturating_add(limit) };
        if let Some(store) = &self.store {
            store.set(START_KEY, self.start_ns.to_string().as_bytes());
        }
    }

    /// Waits for the next thing to happen and deals with all that has.
    fn turn(&mut self) {
        let now = clock::now_ns();
        let deadline_ns = match self.phase {
            Phase::Joining { deadline_ns }
            | Phase::Running { deadline_ns }
            | Phase::Ending { deadline_ns } => Some(deadline_ns),
            Phase::Killed => None,
        };
        let left = deadline_ns.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)));
        let cancelled = self.wait_for_something(left);
        if cancelled {
            self.end(Outcome::Cancelled);
        }
        for index in 0..self.ranks.len() {
            self.look_at(index);
        }
        if self.ranks.iter().all(|rank| rank.done)
            && let Phase::Running { .. } = self.phase
        {
            self.outcome.get_or_insert(Outcome::Completed);
            self.begin_ending();
        }
        if deadline_ns.is_some_and(|deadline| clock::now_ns() >= deadline) {
            match self.phase {
                Phase::Running { .. } => {
                    let limit = self.checked.options.max_duration;
                    self.end(Outcome::Failed {
                        why: format!("the run passed its limit of {limit:?}"),
                    });
                }
                Phase::Ending { .. } => {
                    self.ranks.iter_mut().for_each(RankProcess::kill);
                    self.phase = Phase::Killed;
                }
                Phase::Joining { .. } | Phase::Killed => {}
            }
        }
    }

    /// Blocks until something happens, at most `left`. True if somebody has cancelled.
    fn wait_for_something(&self, left: Option<Duration>) -> bool {
        let mut watched = vec![PollFd::from_borrowed_fd(self.cancelled.as_fd(), PollFlags::IN)];
        for rank in &self.ranks {
            if rank.ended.is_none() {
                watched.push(PollFd::from_borrowed_fd(rank.pidfd(), PollFlags::IN));
            }
            if rank.connected {
                let writes = if rank.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
                watched.push(PollFd::from_borrowed_fd(rank.socket(), PollFlags::IN | writes));
            }
        }
        // Once ending, the canceller stays readable and says nothing new.
        let first = usize::from(matches!(self.phase, Phase::Ending { .. } | Phase::Killed));
        // An interruption is answered by looking at everything, as any event is.
        let _ = poll(&mut watched[first..], left.map(clock::timespec).as_ref());
        first == 0 && watched[0].revents().contains(PollFlags::IN)
    }

    /// Takes what one rank has said, and whether it has ended.
    fn look_at(&mut self, index: usize) {
        let rank = &mut self.ranks[index];
        rank.flush();
        let had_ended = rank.ended.is_some();
        // First the end, then the socket: what a process wrote before it ended is then all there.
        rank.reap();
        let ends_now = rank.ended.is_some() && !had_ended;
        let mut timed_out = false;
        for report in rank.receive() {
            match report {
                Report::Events(events) => {
                    let _ = self.events.send(RunEvent::Events(events));
                }
                Report::TimedOut => timed_out = true,
                Report::Done => rank.done = true,
                Report::Failed { why } => rank.failure = Some(why),
            }
        }
        let (number, done) = (rank.rank, rank.done);
        let how = (ends_now && !done).then(|| rank.how_it_ended());
        if timed_out {
            self.end(Outcome::TimedOut);
        }
        // Whoever was told to end, or was killed for not ending, has not "died".
        if let Some(how) = how
            && self.outcome.is_none()
        {
            let time_ps = clock::picoseconds_between(self.start_ns, clock::now_ns());
            let what = What::Died { how: how.clone() };
            let died = Event { time_ps, rank: number, what };
            let _ = self.events.send(RunEvent::Events(vec![died]));
            self.end(Outcome::RankDied { rank: number, how });
        }
    }

    /// Ends the run for the first reason that comes: every rank hands in its trace and exits.
    fn end(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        let abort = frame(&Order::Abort);
        for rank in &mut self.ranks {
            rank.send(&abort);
        }
        self.begin_ending();
    }

    fn begin_ending(&mut self) {
        let grace = clock::nanoseconds(self.checked.options.grace);
        self.phase = Phase::Ending { deadline_ns: clock::now_ns().saturating_add(grace) };
    }
}

/// The store's key that a rank sets when it has joined.
pub(super) fn joined_key(rank: GlobalRank) -> String {
    format!("joined/{rank}")
}

/// The store's key under which ranks find time 0 of the run on the shared clock.
pub(super) const START_KEY: &str = "start_ns";
