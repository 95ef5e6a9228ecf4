//! A run in progress, whoever carries it out.

use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, Outcome, Trace, TraceEnd, TraceHeader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A report of a run while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// Some events, in the order in which they arrived: those of one rank in time order.
    Events(Vec<Event>),
    /// The contents of a rank's flight recorder.
    Dumped(RankDump),
    /// The end of the run; nothing follows.
    Ended(TraceEnd),
}

/// The contents of a rank's flight recorder when it was asked, or when the run ended early: the
/// pickle that PyTorch's `_dump_fr_trace()` returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankDump {
    /// The rank of the recorder.
    pub rank: GlobalRank,
    /// The pickle.
    pub pickle: Vec<u8>,
}

/// The name of PyTorch's dumps, without the rank at its end.
const FILE_NAME: &str = "nccl_trace_rank_";

impl RankDump {
    /// PyTorch's name for the file: `nccl_trace_rank_3`.
    pub fn file_name(&self) -> String {
        format!("{FILE_NAME}{}", self.rank)
    }

    /// The rank whose dump a file of that name is, if it is one.
    pub fn rank_of_file(name: &str) -> Option<GlobalRank> {
        let digits = name.strip_prefix(FILE_NAME)?;
        let rank: u32 = digits.parse().ok()?;
        // "01" is nobody's.
        (rank.to_string() == digits).then_some(GlobalRank(rank))
    }
}

/// A command to a run in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Every rank holds before its next operation; no timeout passes meanwhile but the run's own.
    Pause,
    /// The ranks go on.
    Resume,
    /// Every rank hands in its flight recorder's entries.
    Dump,
    /// The run ends as cancelled.
    Cancel,
}

/// Tells a run something; can be cloned and sent anywhere.
#[derive(Clone)]
pub struct RunControl {
    tell: Arc<dyn Fn(Command) + Send + Sync>,
}

impl RunControl {
    pub(crate) fn new(tell: impl Fn(Command) + Send + Sync + 'static) -> RunControl {
        RunControl { tell: Arc::new(tell) }
    }

    /// Tells the run; returns at once. A run that has ended stays as it is.
    pub fn tell(&self, command: Command) {
        (self.tell)(command);
    }
}

impl fmt::Debug for RunControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunControl")
    }
}

/// A run in progress. Dropping it cancels the run and waits until its processes are gone.
#[derive(Debug)]
pub struct RunHandle {
    header: TraceHeader,
    pids: Vec<u32>,
    events: Receiver<RunEvent>,
    control: RunControl,
    /// `None` once joined.
    coordinator: Option<JoinHandle<TraceEnd>>,
}

impl RunHandle {
    pub(crate) fn new(
        header: TraceHeader,
        pids: Vec<u32>,
        events: Receiver<RunEvent>,
        control: RunControl,
        coordinator: JoinHandle<TraceEnd>,
    ) -> RunHandle {
        let coordinator = Some(coordinator);
        RunHandle { header, pids, events, control, coordinator }
    }

    /// The head of the run's trace.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The process of each rank, in rank order.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The run's reports, as they happen. The channel keeps unread reports, without bound: read it, or drop
    /// the handle.
    pub fn events(&self) -> &Receiver<RunEvent> {
        &self.events
    }

    /// The next report, or `None` once the run has ended and everything was read, or when
    /// nothing came within `timeout`.
    pub fn next_event(&self, timeout: Duration) -> Option<RunEvent> {
        self.events.recv_timeout(timeout).ok()
    }

    /// A handle that pauses the run, asks for its dumps and ends it, from elsewhere.
    pub fn control(&self) -> RunControl {
        self.control.clone()
    }

    /// Asks the run to end as cancelled.
    pub fn cancel(&self) {
        self.control.tell(Command::Cancel);
    }

    /// Waits until the run has ended and its processes are gone. That is bounded by the
    /// options' `max_duration`.
    pub fn join(mut self) -> TraceEnd {
        self.wait()
    }

    /// Waits like [`RunHandle::join`] and returns all that was reported and not yet read.
    pub fn into_trace(self) -> Trace {
        self.into_trace_and_dumps().0
    }

    /// Waits like [`RunHandle::into_trace`] and also returns the last dump that each rank handed
    /// in, in rank order.
    pub fn into_trace_and_dumps(mut self) -> (Trace, Vec<RankDump>) {
        let end = self.wait();
        let mut events = Vec::new();
        let mut dumps = BTreeMap::new();
        loop {
            match self.events.try_recv() {
                Ok(RunEvent::Events(mut batch)) => events.append(&mut batch),
                Ok(RunEvent::Dumped(dump)) => {
                    dumps.insert(dump.rank, dump);
                }
                Ok(RunEvent::Ended(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let trace = Trace { header: self.header.clone(), events, end: Some(end) };
        (trace, dumps.into_values().collect())
    }

    fn wait(&mut self) -> TraceEnd {
        let failed =
            |why: &str| TraceEnd { time_ps: 0, outcome: Outcome::Failed { why: why.to_owned() } };
        match self.coordinator.take().map(JoinHandle::join) {
            Some(Ok(end)) => end,
            Some(Err(_)) => failed("the coordinator panicked; this is a bug in Lockstep"),
            None => failed("the run was already joined"),
        }
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.coordinator.is_some() {
            self.cancel();
            self.wait();
        }
    }
}
