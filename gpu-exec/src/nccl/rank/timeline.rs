//! The times of events on a rank and its device, in one order.
//!
//! The program's events are recorded when they happen; those of streams are marked by events on the device
//! and learnt of later, from a thread that looks whether they have passed. So nothing goes to the clerk
//! before everything earlier is known: an event that has not passed when the thread looks will pass later
//! than that.
//!
//! The device's clock is tied to the shared one by an anchor, an event of known time. Differences of events
//! are float32 milliseconds, which are as fine as 60 ns up to a second: so an anchor that is older is set
//! anew as soon as no stream has more than one event ahead. While streams are busier than that the old one
//! stays, and times get coarser with its age: 1 µs after 16 s.

use crate::clock;
use crate::host::rank::clerk::Clerk;
use crate::host::rank::failure::{RankFailure, cannot};
use crate::host::rank::note;
use crate::host::rank::note::Note;
use crate::host::rank::works::Works;
use crate::nccl::communicator::Communicator;
use crate::nccl::device::{Device, Event, Stream};
use crate::nccl::error::DeviceError;
use crate::nccl::lower::Mark;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sleep of the thread between two looks while something is under way.
const LOOK: Duration = Duration::from_micros(40);

/// Interval at which communicators are asked for errors, in nanoseconds.
const ASK_NS: u64 = 2_000_000;

/// Greatest age of an anchor, in nanoseconds.
const ANCHOR_NS: u64 = 1_000_000_000;

/// Time that the first anchor may take: others may fill the device.
const FIRST_ANCHOR: Duration = Duration::from_secs(10);

/// Time that the next ones may take: the thread has streams to look at.
const NEXT_ANCHOR: Duration = Duration::from_millis(2);

/// See the module.
pub(super) struct Timeline {
    device: Arc<Device>,
    clerk: Arc<Clerk>,
    works: Arc<Works>,
    communicators: Vec<Arc<Communicator>>,
    desk: Mutex<Desk>,
    /// Held while notes are on their way from the desk to the clerk: closing the timeline waits for them.
    telling: Mutex<()>,
    /// The process is about to end: the device's errors from now on are not its failure.
    closing: AtomicBool,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An event of a stream, with the marks that happen when the stream has passed it.
type Ahead = (Arc<Event>, Vec<Mark>);

#[derive(Default)]
struct Desk {
    /// The marks that streams have not come to yet, in the order of each stream.
    ahead: BTreeMap<usize, VecDeque<Ahead>>,
    /// The notes of past events that may not be sent yet, by time and order of arrival.
    known: BTreeMap<(u64, u64), Note>,
    arrivals: u64,
    /// No more events come: the thread ends when all are reported.
    stopped: bool,
}

impl Desk {
    fn insert(&mut self, time_ns: u64, note: Note) {
        self.arrivals += 1;
        self.known.insert((time_ns, self.arrivals), note);
    }
}

impl Timeline {
    /// A timeline with its thread at work; `stream` is one that nothing else uses.
    pub(super) fn start(
        device: Arc<Device>,
        clerk: Arc<Clerk>,
        works: Arc<Works>,
        communicators: Vec<Arc<Communicator>>,
        stream: Stream,
    ) -> Result<Arc<Timeline>, RankFailure> {
        let timeline = Arc::new(Timeline {
            device,
            clerk,
            works,
            communicators,
            desk: Mutex::default(),
            telling: Mutex::default(),
            closing: AtomicBool::new(false),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        let working = timeline.clone();
        let thread = std::thread::Builder::new()
            .name("timeline".to_owned())
            .spawn(move || {
                if let Err(error) = working.work(stream)
                    && !working.closing.load(Ordering::Acquire)
                {
                    working.fail(error.to_string());
                }
            })
            .map_err(cannot("cannot start a thread"))?;
        *timeline.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(timeline)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of the program now.
    pub(super) fn note(&self, note: Note) {
        let mut desk = self.desk();
        desk.insert(clock::now_ns(), note);
        drop(desk);
        self.changed.notify_one();
    }

    /// Writes `marks` down when stream `lane` has passed the event.
    pub(super) fn mark(&self, lane: usize, event: Arc<Event>, marks: Vec<Mark>) {
        self.desk().ahead.entry(lane).or_default().push_back((event, marks));
        self.changed.notify_one();
    }

    /// Returns when nothing is ahead of any stream and all is reported.
    pub(super) fn drain(&self) {
        let mut desk = self.desk();
        while !(desk.ahead.values().all(VecDeque::is_empty) && desk.known.is_empty()) {
            desk = self.wait(desk, LOOK);
        }
    }

    /// Returns when all is reported and the thread has ended: the device may go then.
    pub(super) fn stop(&self) {
        self.desk().stopped = true;
        self.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It panics no more than it fails: both end the process.
            let _ = thread.join();
        }
    }

    fn wait<'a>(&'a self, desk: MutexGuard<'a, Desk>, most: Duration) -> MutexGuard<'a, Desk> {
        self.changed.wait_timeout(desk, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the process: the rank cannot go on.
    fn fail(&self, why: String) -> ! {
        self.close();
        // With its dump, as c10d's watchdog leaves one when NCCL reports an error.
        self.clerk.abort();
        self.clerk.fail(why)
    }

    fn work(&self, stream: Stream) -> Result<(), DeviceError> {
        self.device.make_current()?;
        let anchor = self.device.anchor(stream, FIRST_ANCHOR)?;
        let seconds = FIRST_ANCHOR.as_secs();
        let mut anchor = anchor.ok_or(DeviceError::Late { call: "cuEventQuery", seconds })?;
        let mut looked_ns = clock::now_ns();
        let mut asked_ns = 0;
        loop {
            if self.closing.load(Ordering::Acquire) {
                return Ok(());
            }
            let mut desk = self.desk();
            if desk.ahead.values().all(VecDeque::is_empty) && desk.known.is_empty() {
                if desk.stopped {
                    return Ok(());
                }
                // Communicators can fail while the program does something else.
                desk = self.wait(desk, Duration::from_millis(20));
            }
            drop(desk);
            let now = clock::now_ns();
            if now.saturating_sub(asked_ns) > ASK_NS {
                asked_ns = now;
                if let Some(error) = self.communicators.iter().find_map(|c| c.asynchronous_error())
                {
                    return Err(error);
                }
            }
            if now.saturating_sub(anchor.1) > ANCHOR_NS && self.is_idle() {
                // One that does not come is tried again at the next look.
                anchor = self.device.anchor(stream, NEXT_ANCHOR)?.unwrap_or(anchor);
            }
            let now = clock::now_ns();
            let nothing_ahead = self.look(&anchor, looked_ns, now)?;
            looked_ns = now;
            self.tell(now);
            if !nothing_ahead {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// True if no stream has an event ahead that could be older than this anchor.
    fn is_idle(&self) -> bool {
        self.desk().ahead.values().all(|ahead| ahead.len() < 2)
    }

    /// Takes the events that streams have passed since the last look. True if nothing is left ahead.
    fn look(
        &self,
        (anchor, anchor_ns): &(Event, u64),
        last_look_ns: u64,
        now: u64,
    ) -> Result<bool, DeviceError> {
        let lanes: Vec<usize> = self.desk().ahead.keys().copied().collect();
        for lane in lanes {
            loop {
                let first =
                    self.desk().ahead.get(&lane).and_then(|a| a.front()).map(|a| a.0.clone());
                let Some(event) = first else { break };
                if !self.device.has_passed(&event)? {
                    break;
                }
                let since = self.device.nanoseconds_between(anchor, &event)?;
                let time = anchor_ns.saturating_add_signed(since);
                // It had not passed at the last look, whatever two clocks say.
                let time = time.clamp(last_look_ns, clock::now_ns().max(now));
                let mut desk = self.desk();
                let marks = desk.ahead.get_mut(&lane).and_then(VecDeque::pop_front);
                for mark in marks.map(|(_, marks)| marks).unwrap_or_default() {
                    self.passed(&mut desk, time, mark);
                }
            }
        }
        Ok(self.desk().ahead.values().all(VecDeque::is_empty))
    }

    fn passed(&self, desk: &mut Desk, time_ns: u64, mark: Mark) {
        let message = |m: crate::nccl::lower::Message| note::Message {
            work: m.work,
            step: m.step,
            peer: m.peer,
            slice: m.slice,
            bytes: m.bytes,
        };
        let note = match mark {
            Mark::Started { work } => Note::Started { work },
            Mark::Completed { work } => {
                self.clerk.unwatch(work);
                self.works.complete(work);
                Note::Completed { work }
            }
            Mark::StreamBegan { op } => Note::StreamBegan { op },
            Mark::StreamEnded { op } => Note::StreamEnded { op },
            Mark::Sent(sent) => Note::Sent(message(sent)),
            Mark::Received { message: received, reduced } => {
                Note::Received { message: message(received), reduced }
            }
        };
        desk.insert(time_ns, note);
    }

    /// Gives the clerk the events before `now`: nothing earlier can come any more.
    fn tell(&self, now: u64) {
        self.tell_before((now, 0));
        self.changed.notify_all();
    }

    /// Tells everything that is known, for a process that is about to end.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.tell_before((u64::MAX, u64::MAX));
    }

    fn tell_before(&self, end: (u64, u64)) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut desk = self.desk();
        let later = desk.known.split_off(&end);
        let told = std::mem::replace(&mut desk.known, later);
        drop(desk);
        for ((time, _), note) in told {
            self.clerk.note_at(time, note);
        }
    }
}
