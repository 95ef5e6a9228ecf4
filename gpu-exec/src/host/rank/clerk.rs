//! The clerk: records events of the rank, sends them to the coordinator while the program runs, and watches
//! the timeouts of its calls.
//!
//! The records are small and copied under one lock; a thread of its own turns them into trace events and
//! sends them some fifty times a second, and sleeps when nothing happens.

use super::desk::{Desk, MANY, touched};
use super::failure::{RankFailure, cannot};
use super::made::{Began, Ended, Made};
use super::note::{Message, Note};
use super::recorder::{Recorder, Recording};
use crate::host::control::{Asked, Report, dump_reports, frame};
use crate::{RankDump, clock};
use lockstep_core::plan::{Plan, SignalKind, exit_status};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, What};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which notes are gathered before they are sent, in nanoseconds.
const GATHER_NS: u64 = 20_000_000;

/// Longest interval between the clerk's looks for late calls, in nanoseconds: a call of a group
/// with hardly any time is found late by then.
const LATE_LOOK_NS: u64 = 5_000_000;

/// … and whoever writes more waits until they are: memory stays bounded.
const TOO_MANY: usize = 4 * MANY;

/// Notes that there is memory for from the start: a call costs less than its first use of a page.
const FIRST_NOTES: usize = 4096;

/// Events a message to the coordinator: some 100 KB.
const EVENTS_PER_FRAME: usize = 4096;

/// Results can be as large as [`MAX_WHOLE_BYTES`](lockstep_core::trace::TensorValue::MAX_WHOLE_BYTES) each: fewer a message.
const RESULTS_PER_FRAME: usize = 64;

/// The facts that a clerk needs about its rank.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Arc<Plan>,
    pub(crate) rank: GlobalRank,
    pub(crate) start_ns: u64,
    /// True if single messages are recorded.
    pub(crate) messages: bool,
    /// The shortest timeout of the plan's groups: no new call can be late sooner.
    pub(crate) shortest_timeout_ns: u64,
    /// See [`Setup`](crate::host::control::Setup).
    pub(crate) word_every_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Clerk {
    plan: Arc<Plan>,
    rank: GlobalRank,
    start_ns: u64,
    /// The wall clock at `start_ns`, in nanoseconds since 1970.
    epoch_ns: u64,
    /// True if an abort asks for a dump too.
    dump_at_end: bool,
    /// True if single messages are recorded.
    messages: bool,
    /// The shortest timeout of the plan's groups: no new call can be late sooner.
    shortest_timeout_ns: u64,
    /// See [`Setup`](crate::host::control::Setup).
    word_every_ns: Option<u64>,
    /// Locked before `desk`, by whoever sends: so notes arrive in order.
    socket: Arc<Mutex<UnixStream>>,
    desk: Mutex<Desk>,
    /// The thread has something to do.
    called: Condvar,
    /// The desk has been cleared.
    cleared: Condvar,
}

impl Clerk {
    /// A clerk at work, on a socket that it may share with the clerks of other logical ranks.
    pub(crate) fn employ(
        job: Job,
        recording: Recording,
        socket: Arc<Mutex<UnixStream>>,
    ) -> Result<Arc<Clerk>, RankFailure> {
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since_start_ns = clock::now_ns().saturating_sub(job.start_ns);
        let recorder = Recorder::new(job.plan.clone(), job.rank, recording.calls);
        let clerk = Arc::new(Clerk {
            plan: job.plan,
            rank: job.rank,
            start_ns: job.start_ns,
            epoch_ns: clock::nanoseconds(wall_ns).saturating_sub(since_start_ns),
            dump_at_end: recording.at_end,
            messages: job.messages,
            shortest_timeout_ns: job.shortest_timeout_ns.max(LATE_LOOK_NS),
            word_every_ns: job.word_every_ns,
            socket,
            desk: Mutex::new(Desk {
                notes: touched(FIRST_NOTES),
                recorder: Some(recorder),
                heard_ns: clock::now_ns(),
                ..Desk::default()
            }),
            called: Condvar::new(),
            cleared: Condvar::new(),
        });
        let working = clerk.clone();
        std::thread::Builder::new()
            .name("clerk".to_owned())
            .spawn(move || working.work())
            .map_err(cannot("cannot start a thread"))?;
        Ok(clerk)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one thing down, now.
    pub(crate) fn note(&self, note: Note) {
        let mut desk = self.wait_for_room(self.desk());
        if desk.write(note) {
            self.called.notify_one();
        }
    }

    /// Records an event of a device that happened at `time_ns` on the shared clock. A rank's events stay in
    /// time order, so it is never earlier than the recorded ones.
    pub(crate) fn note_at(&self, time_ns: u64, note: Note) {
        let mut desk = self.wait_for_room(self.desk());
        if desk.write_at(time_ns, note) {
            self.called.notify_one();
        }
    }

    /// Writes down that an operation began at `time_ns`, unless that is written down already.
    pub(crate) fn began(&self, op: u32, time_ns: u64) {
        let mut desk = self.wait_for_room(self.desk());
        if desk.begin(op, time_ns) {
            self.called.notify_one();
        }
    }

    /// Writes down that a call ended with its operation, unless that is written down already, and
    /// watches it no more. Returns the time on the shared clock.
    pub(super) fn ended(&self, ended: Ended) -> u64 {
        let mut desk = self.wait_for_room(self.desk());
        let now = clock::now_ns();
        if desk.end(ended, now) {
            self.called.notify_one();
        }
        now
    }

    /// Watches a call that was made: it is late when it has not completed by then.
    pub(crate) fn watch(&self, work: u32, timeout_ns: u64) {
        self.desk().pending.insert(work, clock::now_ns().saturating_add(timeout_ns));
    }

    /// Watches a call that has completed no more.
    pub(crate) fn unwatch(&self, work: u32) {
        self.desk().pending.remove(work);
    }

    /// True if single messages are recorded.
    pub(super) fn writes_messages(&self) -> bool {
        self.messages
    }

    /// Writes a message down, if messages are.
    pub(crate) fn sent(&self, message: Message) {
        if self.messages {
            self.note(Note::Sent(message));
        }
    }

    /// Writes a message down, if messages are.
    pub(crate) fn received(&self, message: Message, reduced: bool) {
        if self.messages {
            self.note(Note::Received { message, reduced });
        }
    }

    /// Records a call that was made at `made_ns` on the shared clock or when its operation began, and watches
    /// it from then on; if it `starts` at once, its start too, and first the end of the operation before it.
    /// One lock for all of it and at most one look at the clock: small calls take no longer than a few of
    /// those.
    pub(super) fn scheduled(&self, made: &Made, made_ns: Option<u64>, starts: bool) {
        let &Made { work, op, part, seq, .. } = made;
        let mut desk = self.wait_for_room(self.desk());
        let mut call = false;
        let began_ns = match made.began {
            Began::At(began_ns) => began_ns,
            Began::With(ended) => {
                let now = clock::now_ns();
                call = desk.end(ended, now);
                now
            }
        };
        let now = made_ns.unwrap_or(began_ns);
        if starts && part == 0 && desk.begun.replace(op) != Some(op) {
            let began_ns = began_ns.max(desk.last_ns);
            call |= desk.write_at(now, Note::Entered { work, op, seq, began_ns });
        } else {
            call |= desk.begin(op, began_ns);
            call |= desk.write_at(now, Note::Scheduled { work, op, part, seq });
            if starts {
                call |= desk.write_at(now, Note::Started { work });
            }
        }
        // The clerk never sleeps longer than the shortest timeout: no need to call it for this.
        desk.pending.insert(work, now.saturating_add(made.timeout_ns));
        drop(desk);
        if call {
            self.called.notify_one();
        }
    }

    /// Gives a call that has not completed at most so long from now on.
    pub(crate) fn limit(&self, work: u32, timeout_ns: u64) {
        let due = clock::now_ns().saturating_add(timeout_ns);
        self.desk().pending.limit(work, due);
        self.called.notify_one();
    }

    /// Writes down that a call completed, and watches it no more. Returns when that was, on the
    /// shared clock.
    pub(super) fn completed(&self, work: u32) -> u64 {
        let mut desk = self.wait_for_room(self.desk());
        let now = clock::now_ns();
        let call = desk.write_at(now, Note::Completed { work });
        desk.pending.remove(work);
        drop(desk);
        if call {
            self.called.notify_one();
        }
        now
    }

    fn wait_for_room<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        while desk.notes.len() >= TOO_MANY && !desk.closed {
            desk = self.cleared.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        desk
    }

    /// The thread: sends the gathered notes, and reports late calls.
    fn work(&self) {
        let mut desk = self.desk();
        loop {
            let now = clock::now_ns();
            let watches = desk.paused_ns.is_none() && self.silence(&desk, now).is_none();
            let late = if watches { desk.pending.late(now) } else { Vec::new() };
            for &work in &late {
                desk.pending.remove(work);
                desk.late = true;
                // Not by `put`: nobody else would clear a full desk.
                desk.write(Note::TimedOut { work });
            }
            let send_at = desk.notes.first().map(|(first, _)| first.saturating_add(GATHER_NS));
            let full = desk.notes.len() >= MANY;
            if !late.is_empty() || full || send_at.is_some_and(|at| at <= now) {
                drop(desk);
                self.send_notes();
                if !late.is_empty() {
                    self.send(&frame(&Report::TimedOut));
                }
                desk = self.desk();
                continue;
            }
            let next_late = desk.pending.next_late().filter(|_| watches);
            let unknown_late = now.saturating_add(self.shortest_timeout_ns);
            let wake_at = [send_at, next_late, Some(unknown_late)].into_iter().flatten().min();
            let left = Duration::from_nanos(wake_at.unwrap_or(now).saturating_sub(now));
            desk = self.called.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Clears the desk and sends its notes.
    pub(crate) fn send_notes(&self) {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut desk = self.desk();
        let spare = std::mem::take(&mut desk.spare);
        let mut notes = std::mem::replace(&mut desk.notes, spare);
        drop(desk);
        self.cleared.notify_all();
        let mut events = Vec::with_capacity(notes.len().min(EVENTS_PER_FRAME));
        let mut results = 0;
        for (time_ns, note) in notes.drain(..) {
            results += usize::from(matches!(note, Note::Result { .. }));
            for (time_ns, note) in note.parts(time_ns).into_iter().flatten() {
                if let Some(what) = self.what(note) {
                    let time_ps = clock::picoseconds_between(self.start_ns, time_ns);
                    events.push(Event { time_ps, rank: self.rank, what });
                }
            }
            if events.len() >= EVENTS_PER_FRAME || results >= RESULTS_PER_FRAME {
                write(&mut socket, &frame(&Report::Events(std::mem::take(&mut events))));
                results = 0;
            }
        }
        if !events.is_empty() {
            write(&mut socket, &frame(&Report::Events(events)));
        }
        self.desk().spare = notes;
    }

    fn send(&self, frame: &[u8]) {
        write(&mut self.socket.lock().unwrap_or_else(PoisonError::into_inner), frame);
    }

    /// Sends the rest and reports that the program is finished. Its dump is asked for when another rank goes
    /// on to wait for it.
    pub(crate) fn finish(&self) {
        self.finish_part();
        self.send(&frame(&Report::Done));
    }

    /// As above for one of several logical ranks, whose process has not finished.
    pub(crate) fn finish_part(&self) {
        self.send_notes();
        if self.dump_at_end {
            self.send_dump(Asked::AtTheEnd);
        }
    }

    /// Returns once the rank has done something that was reported, or the time is over.
    pub(super) fn wait_for_first_words(&self, at_most: Duration) {
        let nothing = |desk: &mut Desk| desk.last_ns == 0;
        let waited = self.cleared.wait_timeout_while(self.desk(), at_most, nothing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends the notes so far and accepts no more: the rank is to end.
    pub(crate) fn abort(&self) {
        self.desk().closed = true;
        self.send_notes();
        if self.dump_at_end {
            self.dump();
        }
    }

    /// Sends the flight recorder's entries.
    pub(super) fn dump(&self) {
        self.send_dump(Asked::Now);
    }

    /// True if a call has timed out, even if the thread that reports it is blocked in sending.
    pub(super) fn is_late(&self) -> bool {
        let desk = self.desk();
        let now = clock::now_ns();
        let due = desk.pending.next_late().filter(|_| desk.paused_ns.is_none());
        desk.late || due.is_some_and(|due| due <= now)
    }

    /// The flight recorder's contents, for another reader than the coordinator: nothing more is recorded, and
    /// nothing that waits for the coordinator is waited for.
    pub(super) fn last_dump(&self) -> Option<RankDump> {
        let mut desk = self.desk();
        desk.closed = true;
        let recorder = desk.recorder.take();
        drop(desk);
        let pickle = recorder?.to_pickle(self.start_ns, self.epoch_ns);
        Some(RankDump { rank: self.rank, pickle })
    }

    fn send_dump(&self, asked: Asked) {
        let recorder = self.desk().recorder.clone();
        if let Some(recorder) = recorder {
            let pickle = recorder.to_pickle(self.start_ns, self.epoch_ns);
            // In one go: the coordinator puts the parts together as they come.
            let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            for report in dump_reports(self.rank, asked, &pickle) {
                write(&mut socket, &frame(&report));
            }
        }
    }

    /// Lets no timeout pass from now on, or lets them pass again: paused time does not count.
    pub(super) fn pause(&self, paused: bool) {
        let mut desk = self.desk();
        let now = clock::now_ns();
        match (paused, desk.paused_ns) {
            (true, None) => desk.paused_ns = Some(now),
            (false, Some(since)) => {
                desk.paused_ns = None;
                let paused = now.saturating_sub(since);
                desk.pending.postpone(paused);
            }
            _ => {}
        }
        drop(desk);
        self.called.notify_one();
    }

    /// The time in nanoseconds for which the coordinator has been silent, if it has missed sending a word.
    fn silence(&self, desk: &Desk, now: u64) -> Option<u64> {
        let every = self.word_every_ns?;
        let silent = now.saturating_sub(desk.heard_ns);
        (silent > every.saturating_mul(2)).then_some(silent)
    }

    /// The coordinator is there. If it was not, ranks have waited for it to take their notes, and then for
    /// each other: no timeout passed meanwhile.
    pub(super) fn hear_word(&self) {
        let mut desk = self.desk();
        let now = clock::now_ns();
        let silent = self.silence(&desk, now);
        desk.heard_ns = now;
        if let Some(silent) = silent.filter(|_| desk.paused_ns.is_none()) {
            desk.pending.postpone(silent);
            drop(desk);
            self.called.notify_one();
        }
    }

    /// Sends the notes so far, and reports that the rank has come to a signal of its own.
    pub(super) fn at_signal(&self, signal: SignalKind) {
        self.send_notes();
        self.send(&frame(&Report::AtSignal(signal)));
    }

    /// Ends the process, after the notes so far: the rank cannot go on.
    pub(crate) fn fail(&self, why: String) -> ! {
        self.send_notes();
        let status = exit_status(&why);
        self.send(&frame(&Report::Failed { why, time_ns: clock::now_ns() }));
        std::process::exit(status.into());
    }

    fn what(&self, note: Note) -> Option<What> {
        Some(match note {
            Note::OpBegan { op } => What::OpBegan { op },
            Note::OpEnded { op } => What::OpEnded { op },
            Note::StreamBegan { op } => What::StreamBegan { op },
            Note::StreamEnded { op } => What::StreamEnded { op },
            Note::Scheduled { work, op, part, seq } => {
                let call = Arc::new(self.plan.call(self.rank, op, part, seq)?);
                What::Scheduled { work, call }
            }
            Note::Started { work } => What::Started { work },
            Note::Completed { work } => What::Completed { work },
            // Events of their parts.
            Note::Entered { .. } | Note::Left { .. } => return None,
            Note::TimedOut { work } => What::TimedOut { work },
            Note::Sent(Message { work, step, peer, slice, bytes }) => {
                What::Sent { work, step, peer, slice, bytes }
            }
            Note::Received { message: Message { work, step, peer, slice, bytes }, reduced } => {
                What::Received { work, step, peer, slice, bytes, reduced }
            }
            Note::Result { tensor, value } => What::Result { tensor, value },
            Note::Answered { op, answer } => What::Answered { op, answer: answer.to_owned() },
            Note::Finished => What::Finished,
        })
    }
}

fn write(socket: &mut UnixStream, frame: &[u8]) {
    // A coordinator that is gone ends this process through the other thread.
    let _ = socket.write_all(frame);
}

impl Began {
    /// When that was, once it is written down.
    pub(super) fn known(&mut self, clerk: &Clerk) -> u64 {
        let began_ns = match *self {
            Began::At(began_ns) => began_ns,
            Began::With(ended) => clerk.ended(ended),
        };
        *self = Began::At(began_ns);
        began_ns
    }
}

impl Made {
    /// Writes the call down, and has it watched from now on.
    pub(crate) fn scheduled(&self, clerk: &Clerk) {
        clerk.scheduled(self, Some(clock::now_ns()), false);
    }
}
