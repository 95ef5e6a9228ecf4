//! The start of a run: its plan checked, its ranks started, or met if others start them.

use super::carrier::{Carrier, Checked};
use super::coordinator::state::Coordinator;
use super::launched::Meeting;
use super::launcher::RankLauncher;
use super::limits;
use crate::run::RunControl;
use crate::shm::Patience;
use crate::{Backend, RunError, RunHandle, RunOptions};
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Injected, Plan};
use lockstep_core::trace::{Origin, TraceHeader};
use lockstep_core::words::counted;
use rustix::event::EventfdFlags;
use std::sync::{Arc, mpsc};

/// Runs plans as processes on this machine.
#[derive(Clone, Debug)]
pub struct HostBackend {
    launcher: RankLauncher,
}

impl HostBackend {
    /// A backend that starts its ranks so.
    pub fn new(launcher: RankLauncher) -> HostBackend {
        HostBackend { launcher }
    }
}

impl Backend for HostBackend {
    fn name(&self) -> BackendName {
        BackendName::Host
    }

    fn start(&self, plan: Plan, options: RunOptions) -> Result<RunHandle, RunError> {
        start(self.launcher.clone(), plan, options, Carrier::Host)
    }
}

/// Starts a process for each rank of the plan, or for all that share a device, and lets them join.
pub(crate) fn start(
    launcher: RankLauncher,
    plan: Plan,
    options: RunOptions,
    carrier: Carrier,
) -> Result<RunHandle, RunError> {
    let injected = injected(&plan, &options, &carrier, false)?;
    start_with(launcher, injected, options, carrier, None)
}

/// A plan with the faults of its run, if they can be done to ranks of that kind: whether others start them.
pub(crate) fn injected(
    plan: &Plan,
    options: &RunOptions,
    carrier: &Carrier,
    launched: bool,
) -> Result<Injected, RunError> {
    plan.check()?;
    let injected = plan.with_faults(&options.faults)?;
    let signals = &injected.signals;
    if !carrier.is_host() && (!signals.is_empty() || limits::sends_signals(&injected.plan)) {
        return Err(RunError::NoSignals { backend: carrier.backend() });
    }
    if launched {
        limits::signals_reach(signals)?;
    }
    Ok(injected)
}

/// As [`start`] does, with ranks that others start and that come to a meeting; the plan has its faults.
pub(crate) fn start_with(
    launcher: RankLauncher,
    Injected { plan, signals }: Injected,
    options: RunOptions,
    carrier: Carrier,
    meeting: Option<Meeting>,
) -> Result<RunHandle, RunError> {
    let backend = carrier.backend();
    limits::check(&plan, &options, !carrier.is_host())?;
    limits::carried_out(&plan, &carrier)?;
    let plan_frame = limits::plan_frame(&plan)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ranks = plan.world_size;
    let patience = Patience::of(ranks, cores);
    let told = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(RunError::system("create an eventfd"))?;
    let told = Arc::new(told);
    let (commands, taken) = mpsc::channel();
    let (events, reported) = mpsc::channel();
    let (joined, all_joined) = mpsc::channel();
    let (groups, recorded) = (plan.groups.clone(), Some(plan.clone()));
    let with_faults = with(&options);
    let checked = Checked { plan, options, patience, carrier, signals, plan_frame };
    let coordinator = Coordinator::new(checked, launcher, told.clone(), taken, events, meeting);
    // The ranks' parent must be a thread that lives as long as they do.
    let coordinator = std::thread::Builder::new()
        .name("coordinator".to_owned())
        .spawn(move || coordinator.run(&joined))
        .map_err(RunError::system("start the coordinator's thread"))?;
    // Bounded by the options' join_timeout; hung up only by a panic.
    let joined = all_joined.recv().unwrap_or_else(|_| {
        let cause = std::io::Error::other("its thread panicked; this is a bug in Lockstep");
        Err(RunError::System { doing: "start the run", cause })
    });
    let joined = match joined {
        Ok(joined) => joined,
        Err(error) => {
            let _ = coordinator.join();
            return Err(error);
        }
    };
    let device = match backend {
        BackendName::Nccl => crate::nccl::options::describe_devices(&joined.devices, ranks),
        BackendName::Mpi => format!("{}, {}", counted(ranks, "process"), joined.devices.join("; ")),
        _ => {
            let (processes, cores) = (counted(ranks, "process"), counted(cores, "CPU core"));
            format!("{processes} on {cores}{}", joined.over)
        }
    } + &with_faults;
    let header = TraceHeader {
        origin: Origin::Run { backend: backend.name().to_owned(), device },
        world_size: ranks,
        groups,
        plan: recorded.map(Arc::new),
        epoch_ns: joined.epoch_ns,
    };
    let control = RunControl::new(move |command| {
        // Fails only when the run has ended, and then there is nothing to tell.
        let _ = commands.send(command);
        // Fails only when the counter is full: told often enough.
        let _ = rustix::io::write(&*told, &1u64.to_ne_bytes());
    });
    Ok(RunHandle::new(header, joined.pids, reported, control, coordinator))
}

/// `, with kill:rank=1,call=3`: an injected fault must not be taken for the machine's.
fn with(options: &RunOptions) -> String {
    let faults: Vec<String> = options.faults.iter().map(ToString::to_string).collect();
    if faults.is_empty() { String::new() } else { format!(", with {}", faults.join(" and ")) }
}
