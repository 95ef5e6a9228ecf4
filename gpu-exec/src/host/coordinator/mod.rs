//! The thread that carries one run from its first process to its last: starts ranks and lets them join
//! ([`joining`]), merges their reports, carries out faults whose time comes ([`alarms`]), and ends everything
//! when the first thing goes wrong, or nothing goes on ([`stillness`]).
//!
//! One loop over `poll`: sockets, process ends (pidfds), commands to the run, and the next deadline.

mod alarms;
mod joining;
pub(super) mod state;
mod stillness;

use super::carrier::Checked;
use super::control::{Asked, Order, Report, frame};
use super::launched::Meeting;
use super::launcher::RankLauncher;
use super::process::RankProcess;
use super::standing::HELD;
use crate::{Command, RankDump, RunError, RunEvent, clock};
use lockstep_core::trace::{Event, Outcome, TraceEnd, What};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use state::{Alarm, Coordinator, Joined, Phase, Stillness};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// After how long ranks hear again that this process is there.
const ALIVE_NS: u64 = 1_000_000_000;

/// The interval if calls may take hardly any time.
const ALIVE_SOON_NS: u64 = 50_000_000;

/// After a silence of this process of so long, which is half the least that ranks started by others wait, a
/// rank whose connection ends may have given this process up.
const SILENCE_NS: u64 = 2_500_000_000;

/// A rank that is still making progress may take so many times the usual grace to end: a busy machine takes
/// long to write down the rank's records.
const GRACES: u64 = 10;

impl Coordinator {
    pub(super) fn new(
        checked: Checked,
        launcher: RankLauncher,
        told: Arc<OwnedFd>,
        commands: Receiver<Command>,
        events: Sender<RunEvent>,
        meeting: Option<Meeting>,
    ) -> Coordinator {
        let join_timeout = clock::nanoseconds(checked.options.join_timeout);
        let now = clock::now_ns();
        Coordinator {
            checked,
            launcher,
            told,
            commands,
            events,
            ranks: Vec::new(),
            devices: Vec::new(),
            store: None,
            meeting,
            alive_ns: now,
            silent_ns: 0,
            offsets_ns: BTreeMap::new(),
            memory: None,
            over_tcp: false,
            introduced: false,
            phase: Phase::Joining { deadline_ns: now.saturating_add(join_timeout) },
            alarms: Vec::new(),
            stillness: Stillness::default(),
            last_dumps: Vec::new(),
            start_ns: now,
            outcome: None,
        }
    }

    /// The whole run. `joined` gets one message, when all ranks have joined or will not.
    pub(super) fn run(mut self, joined: &Sender<Result<Joined, RunError>>) -> TraceEnd {
        let started = self.start_ranks().and_then(|()| self.wait_for_all());
        self.memory = None;
        if let Err(error) = started {
            // Those that others started are told: a line that only ends is a rank 0 that was lost.
            self.order(&Order::Abort);
            self.ranks.iter_mut().for_each(RankProcess::let_go);
            // Dropping the others kills and reaps them, before anybody hears of it.
            self.ranks.clear();
            let outcome = Outcome::Failed { why: error.to_string() };
            let _ = joined.send(Err(error));
            return TraceEnd { time_ps: 0, outcome };
        }
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Logical ranks share the one process that there is.
        let ranks = self.checked.plan.world_size as usize;
        let pids = self.ranks.iter().map(RankProcess::pid).cycle().take(ranks).collect();
        let devices = std::mem::take(&mut self.devices);
        let epoch_ns = clock::nanoseconds(epoch);
        let over = if self.over_tcp { " over TCP" } else { "" };
        let _ = joined.send(Ok(Joined { pids, epoch_ns, devices, over }));
        self.begin();
        while !self.ranks.iter().all(|rank| rank.ended.is_some()) {
            self.turn();
        }
        self.ranks.clear();
        self.store = None;
        let outcome = self.outcome.take();
        let (outcome, ended_ns) = outcome.unwrap_or((Outcome::Completed, clock::now_ns()));
        // A rank that has gone through its program may be the one that others wait for.
        for dump in std::mem::take(&mut self.last_dumps) {
            if outcome != Outcome::Completed {
                let _ = self.events.send(RunEvent::Dumped(dump));
            }
        }
        let time_ps = clock::picoseconds_between(self.start_ns, ended_ns);
        let end = TraceEnd { time_ps, outcome };
        let _ = self.events.send(RunEvent::Ended(end.clone()));
        end
    }

    /// Waits for the next thing to happen and deals with all that has.
    fn turn(&mut self) {
        let now = clock::now_ns();
        let deadline_ns = match self.phase {
            Phase::Joining { deadline_ns }
            | Phase::Running { deadline_ns }
            | Phase::Ending { deadline_ns, .. } => Some(deadline_ns),
            Phase::Killed => None,
        };
        let next_alarm = self.alarms.iter().map(|(due, _)| *due).min();
        let next_look = self.next_look_ns();
        let wake_at =
            deadline_ns.into_iter().chain(next_alarm).chain([self.alive_ns]).chain(next_look).min();
        let left = wake_at.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        self.wait_for_something(left);
        self.take_commands();
        self.take_alarms();
        self.say_alive();
        for index in 0..self.ranks.len() {
            self.look_at(index);
        }
        self.look_for_stillness();
        if self.ranks.iter().all(|rank| rank.done)
            && let Phase::Running { .. } = self.phase
        {
            self.outcome.get_or_insert((Outcome::Completed, clock::now_ns()));
            self.order(&Order::Leave);
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
                Phase::Ending { last_ns, .. } => {
                    let last = clock::now_ns() >= last_ns;
                    self.kill_unresponsive(last);
                    if !last {
                        self.phase = Phase::Ending { deadline_ns: last_ns, last_ns };
                    } else {
                        self.ranks.iter_mut().for_each(RankProcess::kill);
                        self.phase = Phase::Killed;
                    }
                }
                Phase::Joining { .. } | Phase::Killed => {}
            }
        }
    }

    /// Blocks until something happens, at most `left`.
    fn wait_for_something(&self, left: Option<Duration>) {
        let mut watched = vec![PollFd::from_borrowed_fd(self.told.as_fd(), PollFlags::IN)];
        for rank in &self.ranks {
            if rank.ended.is_none()
                && let Some(pidfd) = rank.pidfd()
            {
                watched.push(PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
            }
            if rank.connected {
                let writes = if rank.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
                watched.push(PollFd::from_borrowed_fd(rank.socket(), PollFlags::IN | writes));
            }
        }
        // An interruption is answered by looking at everything, as any event is.
        let _ = poll(&mut watched, left.map(clock::timespec).as_ref());
    }

    /// Carries out the commands that were sent to the run.
    fn take_commands(&mut self) {
        // Emptied first: what is told from now on makes it readable again.
        let _ = rustix::io::read(&*self.told, &mut [0; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Cancel => self.end(Outcome::Cancelled),
                // A run that ends does so, paused or not.
                _ if self.outcome.is_some() => {}
                Command::Pause => self.order(&Order::Pause),
                Command::Resume => self.order(&Order::Resume),
                Command::Dump => self.order(&Order::Dump),
            }
        }
    }

    /// Sends the ranks a sign of life. After a long silence ranks that others started take this process for
    /// lost. The others learn that it was stopped (a terminal's Ctrl-Z) and took nothing from them, so that
    /// they wait for it and not for each other.
    fn say_alive(&mut self) {
        let now = clock::now_ns();
        let Some(late) = now.checked_sub(self.alive_ns) else { return };
        self.silent_ns = self.silent_ns.max(late);
        if let Phase::Running { deadline_ns } = &mut self.phase
            && late >= ALIVE_NS
        {
            *deadline_ns = deadline_ns.saturating_add(late);
        }
        self.alive_ns = now.saturating_add(self.word_every_ns());
        self.order(&Order::Alive);
    }

    /// After how long: a silence of twice that is seen before any call can be late by it.
    fn word_every_ns(&self) -> u64 {
        let shortest = match (self.meeting.is_some(), self.checked.options.timeout) {
            (true, _) => Duration::MAX,
            (false, Some(timeout)) => timeout,
            (false, None) => {
                let groups = self.checked.plan.groups.iter();
                groups
                    .map(|group| Duration::from_millis(group.timeout_ms()))
                    .min()
                    .unwrap_or_default()
            }
        };
        (clock::nanoseconds(shortest) / 4).clamp(ALIVE_SOON_NS, ALIVE_NS)
    }

    fn order(&mut self, order: &Order) {
        let order: Arc<[u8]> = frame(order).into();
        self.ranks.iter_mut().for_each(|rank| rank.send(order.clone()));
    }

    /// Takes one rank's messages, and notes if it has ended.
    fn look_at(&mut self, index: usize) {
        let rank = &mut self.ranks[index];
        let reports = rank.hear();
        let ends_now =
            rank.ended.is_some() && !std::mem::replace(&mut rank.end_seen, rank.ended.is_some());
        let mut timed_out = false;
        for report in reports {
            match report {
                Report::Events(events) => {
                    let _ = self.events.send(RunEvent::Events(events));
                }
                Report::TimedOut => timed_out = true,
                Report::Device(_) | Report::Joined | Report::Listening { .. } => {}
                // Put together by now.
                Report::DumpPart(_) => {}
                Report::Dumped { rank, asked, rest: pickle } => {
                    let dump = RankDump { rank, pickle };
                    match asked {
                        Asked::Now => {
                            let _ = self.events.send(RunEvent::Dumped(dump));
                        }
                        Asked::AtTheEnd => self.last_dumps.push(dump),
                    }
                }
                Report::AtSignal(signal) => match signal.deadly() {
                    Some(deadly) => rank.killed_by = Some(deadly),
                    None => self.alarms.push((clock::now_ns(), Alarm::of(rank.rank, signal))),
                },
                Report::Done => rank.done = true,
                // The first reason is why; more come of it.
                Report::Failed { why, .. } => drop(rank.failure.get_or_insert(why)),
            }
        }
        let (number, done) = (rank.rank, rank.done);
        // A rank that is done stays until all are, if it has a connection of its own.
        let how = (ends_now && (!done || rank.is_elsewhere())).then(|| rank.how_it_ended());
        let own_death = rank.was_meant_to_die(&self.checked.plan) || rank.was_killed_by_others();
        // It may have been stopped since it last looked at the time.
        let late_ns = clock::now_ns().saturating_sub(self.alive_ns);
        let silent_ns = self.silent_ns.max(late_ns);
        let lost_us = rank.is_lost() && silent_ns >= SILENCE_NS && self.outcome.is_none();
        let stood = ends_now && rank.is_held_far() && !rank.done && self.outcome.is_some();
        if timed_out {
            self.end(Outcome::TimedOut);
        }
        if stood {
            self.tell_unresponsive(number, HELD);
        }
        // Whoever was told to end, or was killed for not ending, has not "died", but for those that come to
        // their own end, or are killed from outside, at the time of another's.
        let died = match &self.outcome {
            None => true,
            Some((Outcome::RankDied { .. }, _)) => own_death,
            Some(_) => false,
        };
        if how.is_some() && lost_us {
            let seconds = silent_ns / 1_000_000_000;
            self.end(Outcome::Failed {
                why: format!(
                    "the process of rank 0 stood still for {seconds} s (stopped, or without a processor), and \
                     rank {number} is gone, which may have given it up"
                ),
            });
        } else if let Some(how) = how.filter(|_| died) {
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
        self.outcome = Some((outcome, clock::now_ns()));
        self.order(&Order::Abort);
        self.begin_ending();
    }

    fn begin_ending(&mut self) {
        let grace = clock::nanoseconds(self.checked.options.grace);
        let now = clock::now_ns();
        self.phase = Phase::Ending {
            deadline_ns: now.saturating_add(grace),
            last_ns: now.saturating_add(grace.saturating_mul(GRACES)),
        };
    }
}
