//! The coordinator's knowledge of a run.

use crate::host::carrier::Checked;
use crate::host::launched::Meeting;
use crate::host::launcher::RankLauncher;
use crate::host::process::RankProcess;
use crate::host::sharing::SharedMemory;
use crate::store::StoreServer;
use crate::{Command, RankDump, RunEvent};
use lockstep_core::plan::SignalKind;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Outcome;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// The message that `start` gets once all ranks have joined.
pub(in crate::host) struct Joined {
    pub(in crate::host) pids: Vec<u32>,
    /// Nanoseconds since 1970 at time 0.
    pub(in crate::host) epoch_ns: u64,
    /// The carrier of messages, if it is not shared memory.
    pub(in crate::host) over: &'static str,
    /// The devices that ranks reported to compute on, in rank order.
    pub(in crate::host) devices: Vec<String>,
}

/// A run from the coordinator's side.
pub(in crate::host) struct Coordinator {
    pub(super) checked: Checked,
    pub(super) launcher: RankLauncher,
    /// Readable once a command was sent to the run.
    pub(super) told: Arc<OwnedFd>,
    pub(super) commands: Receiver<Command>,
    pub(super) events: Sender<RunEvent>,
    pub(super) ranks: Vec<RankProcess>,
    pub(super) devices: Vec<String>,
    pub(super) store: Option<StoreServer>,
    /// The meeting that ranks which others start come to; open as long as the run.
    pub(super) meeting: Option<Meeting>,
    /// The time on the clock at which they next get a sign of life from this process.
    pub(super) alive_ns: u64,
    /// The longest time in nanoseconds for which ranks that others started have not heard from this process:
    /// it was stopped, or had no processor.
    pub(super) silent_ns: u64,
    /// The clocks of such ranks minus ours, in nanoseconds.
    pub(super) offsets_ns: BTreeMap<GlobalRank, i64>,
    /// Until all ranks have it.
    pub(super) memory: Option<SharedMemory>,
    /// True if messages go over TCP; `introduced` is true once ranks know each other's addresses.
    pub(super) over_tcp: bool,
    pub(super) introduced: bool,
    pub(super) phase: Phase,
    /// The faults that are due later, each with its time on the clock.
    pub(super) alarms: Vec<(u64, Alarm)>,
    pub(super) stillness: Stillness,
    /// The dumps of ranks whose programs have finished.
    pub(super) last_dumps: Vec<RankDump>,
    /// Time 0 of the trace.
    pub(super) start_ns: u64,
    /// The end of the run, and the time on the clock since which it is known: only leaving remains.
    pub(super) outcome: Option<(Outcome, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Until all have joined or the deadline, on the clock.
    Joining { deadline_ns: u64 },
    /// Until all are done, something goes wrong, or the deadline.
    Running { deadline_ns: u64 },
    /// Asked to end: a rank that is stopped at the deadline is killed, and every rank that is left at the
    /// last one.
    Ending { deadline_ns: u64, last_ns: u64 },
    /// Everything was killed; it takes as long as the kernel takes.
    Killed,
}

/// A fault whose time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    Kill(GlobalRank),
    /// For so many milliseconds, or for ever.
    Stop(GlobalRank, Option<u64>),
    Continue(GlobalRank),
}

impl Alarm {
    pub(super) fn of(rank: GlobalRank, what: SignalKind) -> Alarm {
        match what {
            SignalKind::Kill | SignalKind::End(_) => Alarm::Kill(rank),
            SignalKind::Stop { for_ms } => Alarm::Stop(rank, for_ms),
        }
    }
}

/// Since when nothing happens.
#[derive(Debug, Default)]
pub(super) struct Stillness {
    pub(super) since_ns: Option<u64>,
    /// When it is looked next, on the clock.
    pub(super) look_ns: u64,
}
