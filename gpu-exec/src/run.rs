//! A run in progress, whoever carries it out.

use crate::{Backend, RunError, RunOptions};
use lockstep_core::plan::Plan;
use lockstep_core::trace::{Event, Outcome, Trace, TraceEnd, TraceHeader};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a run reports while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// Some events, in the order in which they arrived: those of one rank in time order.
    Events(Vec<Event>),
    /// How it ended; nothing follows.
    Ended(TraceEnd),
}

/// Stops a run; can be cloned and sent anywhere.
#[derive(Clone)]
pub struct Canceller {
    cancel: Arc<dyn Fn() + Send + Sync>,
}

impl Canceller {
    pub(crate) fn new(cancel: impl Fn() + Send + Sync + 'static) -> Canceller {
        Canceller { cancel: Arc::new(cancel) }
    }

    /// Asks the run to end as cancelled. Returns at once; a run that has ended stays as it is.
    pub fn cancel(&self) {
        (self.cancel)();
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canceller")
    }
}

/// A run in progress. Dropping it cancels the run and waits until its processes are gone.
#[derive(Debug)]
pub struct RunHandle {
    header: TraceHeader,
    pids: Vec<u32>,
    events: Receiver<RunEvent>,
    canceller: Canceller,
    /// `None` once joined.
    coordinator: Option<JoinHandle<TraceEnd>>,
}

impl RunHandle {
    pub(crate) fn new(
        header: TraceHeader,
        pids: Vec<u32>,
        events: Receiver<RunEvent>,
        canceller: Canceller,
        coordinator: JoinHandle<TraceEnd>,
    ) -> RunHandle {
        RunHandle { header, pids, events, canceller, coordinator: Some(coordinator) }
    }

    /// The head of the run's trace.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The process of each rank, in rank order.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// What the run reports, as it happens. The channel keeps what is not read, without bound:
    /// read it, or drop the handle.
    pub fn events(&self) -> &Receiver<RunEvent> {
        &self.events
    }

    /// The next report, or `None` once the run has ended and everything was read, or when
    /// nothing came within `timeout`.
    pub fn next_event(&self, timeout: Duration) -> Option<RunEvent> {
        self.events.recv_timeout(timeout).ok()
    }

    /// What stops the run from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Asks the run to end as cancelled.
    pub fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Waits until the run has ended and its processes are gone. That is bounded by the
    /// options' `max_duration`.
    pub fn join(mut self) -> TraceEnd {
        self.wait()
    }

    /// Waits like [`RunHandle::join`] and returns all that was reported and not yet read.
    pub fn into_trace(mut self) -> Trace {
        let end = self.wait();
        let mut events = Vec::new();
        loop {
            match self.events.try_recv() {
                Ok(RunEvent::Events(mut batch)) => events.append(&mut batch),
                Ok(RunEvent::Ended(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        Trace { header: self.header.clone(), events, end: Some(end) }
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

/// Runs a plan to its end and returns its whole trace.
///
/// # Errors
/// When the run cannot be started. How it ended is in the trace.
pub fn run_to_trace(
    backend: &dyn Backend,
    plan: Plan,
    options: RunOptions,
) -> Result<Trace, RunError> {
    Ok(backend.start(plan, options)?.into_trace())
}
