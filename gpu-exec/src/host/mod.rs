//! The `host` backend: one process per rank on this machine, data through shared memory.
//!
//! The coordinator is a thread of the program that starts the run; each rank is that program
//! again, started so that it calls [`rank_main`]. They talk over a socket pair (orders and
//! reports), a store on 127.0.0.1 (joining) and one shared memory (data). None of these has a
//! name in the file system, so nothing can be left behind.

mod control;
mod coordinator;
mod limits;
mod process;
mod rank;
mod wiring;

use crate::run::Canceller;
use crate::shm::Patience;
use crate::{Backend, RunError, RunHandle, RunOptions};
use coordinator::Coordinator;
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;
use lockstep_core::trace::{Origin, TraceHeader};
use rustix::event::EventfdFlags;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

pub use rank::rank_main;

/// What is executed for each rank: a program that calls [`rank_main`] when started so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLauncher {
    /// The program: usually `std::env::current_exe()`.
    pub program: PathBuf,
    /// Its arguments: for `lockstep`, the hidden subcommand.
    pub args: Vec<OsString>,
}

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

/// A plan that was checked against this machine's limits.
struct Checked {
    plan: Plan,
    options: RunOptions,
    patience: Patience,
}

impl Backend for HostBackend {
    fn name(&self) -> BackendName {
        BackendName::Host
    }

    fn start(&self, plan: Plan, options: RunOptions) -> Result<RunHandle, RunError> {
        plan.check()?;
        limits::check(&plan, &options)?;
        limits::carried_out(&plan)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ranks = plan.world_size;
        let patience = Patience::of(ranks, cores);
        let mut header = TraceHeader {
            origin: Origin::Run {
                backend: BackendName::Host.name().to_owned(),
                device: format!("{ranks} processes on {cores} CPU cores"),
            },
            world_size: ranks,
            groups: plan.groups.clone(),
            plan: Some(plan.clone()),
            epoch_ns: 0,
        };
        let cancelled = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(RunError::system("create an eventfd"))?;
        let cancelled = Arc::new(cancelled);
        let (events, reported) = mpsc::channel();
        let (joined, all_joined) = mpsc::channel();
        let checked = Checked { plan, options, patience };
        let coordinator =
            Coordinator::new(checked, self.launcher.clone(), cancelled.clone(), events);
        // The ranks' parent must be a thread that lives as long as they do.
        let coordinator = std::thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || coordinator.run(&joined))
            .map_err(RunError::system("start the coordinator's thread"))?;
        // Bounded by the options' join_timeout; hung up only by a panic.
        let joined = all_joined.recv().unwrap_or_else(|_| {
            let source = std::io::Error::other("its thread panicked; this is a bug in Lockstep");
            Err(RunError::System { doing: "start the run", source })
        });
        let joined = match joined {
            Ok(joined) => joined,
            Err(error) => {
                let _ = coordinator.join();
                return Err(error);
            }
        };
        header.epoch_ns = joined.epoch_ns;
        let canceller = Canceller::new(move || {
            // It fails only when the counter is full: cancelled often enough.
            let _ = rustix::io::write(&*cancelled, &1u64.to_ne_bytes());
        });
        Ok(RunHandle::new(header, joined.pids, reported, canceller, coordinator))
    }
}
