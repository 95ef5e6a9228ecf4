//! `init_process_group`: the arguments that it accepts, and the errors that it raises before any collective
//! does.

use super::args::{Arg, InitProcessGroup};
use super::backend::{Backend, Device};
use super::dist::Dist;
use super::error::{
    DistError, assertion_error, network_error, runtime_error, store_error, value_error,
};
use super::new_group::{MakeGroup, group_timeout};
use super::process_group::Group;
use super::rendezvous::{MeetingPlace, Rendezvous, integer, rendezvous};
use lockstep_core::rank::GlobalRank;
use std::sync::Arc;

impl Dist<'_> {
    /// `dist.init_process_group(…)`.
    ///
    /// The process says which rank it is; PyTorch believes it. Lockstep knows its processes by the
    /// `RANK` that torchrun would give them, so a process that says otherwise is refused: with
    /// PyTorch's own end where that is certain (nobody serves the store, or not everybody comes),
    /// else in our words.
    ///
    /// # Errors
    /// PyTorch's refusals, in the order in which it finds them.
    pub fn init_process_group(
        &mut self,
        options: impl Into<InitProcessGroup>,
    ) -> Result<(), DistError> {
        let options = options.into();
        if self.is_initialized() {
            return Err(value_error("trying to initialize the default process group twice!"));
        }
        if options.store && options.init_method.is_some() {
            return Err(assertion_error("Cannot specify both init_method and store."));
        }
        if options.store && options.world_size <= 0 {
            return Err(assertion_error("world_size must be positive if using store"));
        }
        if options.store && options.rank < 0 {
            return Err(assertion_error("rank must be non-negative if using store"));
        }
        let backend = match (&options.backend, options.device_id) {
            (Some(name), _) => Backend::new(name),
            (None, Some(_)) => Backend::new("nccl"),
            (None, None) => Backend::undefined(),
        };
        let timeout_ms = group_timeout(options.timeout_ms.as_ref(), &backend)?;
        if backend.as_str() == "mpi" {
            let InitProcessGroup { world_size, rank, .. } = options;
            if world_size != -1 || rank != -1 {
                self.warn(format!(
                    "For MPI backend, world_size ({world_size}) and rank ({rank}) are ignored \
                     since they are assigned by the MPI runtime."
                ));
            }
        } else {
            let met = if options.store {
                let place = MeetingPlace::File { path: String::new() };
                Rendezvous { place, rank: options.rank, world_size: options.world_size }
            } else {
                let url = options.init_method.as_deref().unwrap_or("env://");
                let environment = self.shared.environment(self.rank);
                rendezvous(url, options.rank, options.world_size, &environment)?
            };
            self.comes_together(&met, options.timeout_ms.as_ref(), timeout_ms)?;
        }
        self.state.world.group_count = 1;
        let ranks: Arc<[GlobalRank]> = self.shared.world();
        let made = self.make_group(MakeGroup {
            name: "0".into(),
            ranks,
            backend,
            timeout_ms,
            desc: Some("default_pg"),
            device_id: options.device_id,
            via: "init_process_group",
        });
        // A refused call has used up its name all the same, but nothing can tell.
        match made? {
            Group::Member(handle) => self.state.world.default = Some(handle),
            Group::NonMember => {}
        }
        self.state.world.epoch += 1;
        self.copy_early();
        Ok(())
    }

    /// `dist.get_node_local_rank(fallback_rank)`: the rank on its node, as torchrun says.
    ///
    /// # Errors
    /// `RuntimeError` when the environment does not say it and there is no fallback, `ValueError`
    /// when it says no number.
    pub fn get_node_local_rank(&self, fallback_rank: Option<i64>) -> Result<i64, DistError> {
        match (self.environ("LOCAL_RANK"), fallback_rank) {
            (Some(text), _) => integer(&text),
            (None, Some(rank)) => Ok(rank),
            (None, None) => Err(runtime_error(
                "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow \
                 `get_node_local_rank` to work, assuming you are not running in a multi-device \
                 context and want the code to run locally instead.",
            )),
        }
    }

    /// `dist.is_backend_available(backend)` for this process's machine.
    pub fn is_backend_available(&self, backend: &str) -> bool {
        match backend.to_lowercase().as_str() {
            "mpi" => self.shared.machine.mpi,
            // Built in, as in the wheels; whether there is a GPU is another question.
            "gloo" | "nccl" | "host" => true,
            _ => false,
        }
    }

    /// `dist.get_default_backend_for_device(device)`.
    pub fn get_default_backend_for_device(&self, device: Device) -> &'static str {
        match device {
            Device::Cpu => "gloo",
            Device::Cuda => "nccl",
            Device::Xpu => "xccl",
        }
    }

    /// `dist.get_pg_count()`: how many groups the rank has counted, the default group among them.
    pub fn get_pg_count(&self) -> u32 {
        self.state.world.group_count
    }

    /// Passes if all processes of the job meet as they say they will.
    fn comes_together(
        &self,
        met: &Rendezvous,
        given: Option<&Arg<u64>>,
        timeout_ms: u64,
    ) -> Result<(), DistError> {
        let (processes, process) = (i64::from(self.shared.world_size), i64::from(self.rank.0));
        if (met.rank, met.world_size) == (process, processes) {
            return Ok(());
        }
        let waits_ms = if given.is_some() { timeout_ms } else { 300_000 };
        let only_one = processes == 1;
        match &met.place {
            // Rank 0 serves the store, and no process is rank 0.
            MeetingPlace::Tcp { host, port } if only_one && met.rank != 0 => {
                Err(network_error(format!(
                    "The client socket has timed out after {waits_ms}ms while trying to connect to \
                     ({host}, {port})."
                ))
                .with_help(format!(
                    "This process says that it is rank {} of {}; rank 0 serves the store, and no \
                     process is rank 0.",
                    met.rank, met.world_size
                )))
            }
            MeetingPlace::Tcp { .. } if only_one && met.world_size > 1 => {
                Err(store_error(format!(
                    "Timed out after {} seconds waiting for clients. 1/{} clients joined.",
                    waits_ms / 1000 + 1,
                    met.world_size
                ))
                .with_help("The job has one process."))
            }
            _ => Err(super::error::unsupported(format!(
                "process {process} of {processes} says that it is rank {} of {}",
                met.rank, met.world_size
            ))
            .with_help(
                "Lockstep numbers processes by the rank that torchrun gives them: leave rank and \
                 world_size out, or pass RANK and WORLD_SIZE of the environment. A rank that is \
                 drawn from a store (store.add(key, 1) - 1) is another in every run; write rank = \
                 int(os.environ[\"RANK\"]) in its place.",
            )),
        }
    }
}
