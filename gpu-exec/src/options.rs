//! The options of a run besides its plan.

use lockstep_core::plan::Fault;
use std::time::Duration;

/// The strategies for sharing memory between processes, by torch.multiprocessing's names
/// (`torch.multiprocessing.set_sharing_strategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharingStrategy {
    /// `file_descriptor`: memory without a name, passed over each rank's socket.
    #[default]
    FileDescriptor,
    /// `file_system`: a file in /dev/shm, which must be large enough for all tensors; a process
    /// beside the run removes its name even if the run's own is killed.
    FileSystem,
}

/// The carrier of messages between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where all ranks are on one machine, else TCP.
    #[default]
    Auto,
    /// Shared memory only.
    SharedMemory,
    /// TCP between all ranks, also of one machine.
    Tcp,
}

/// The options of a run. The default suits a person who waits for the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Replaces the timeout of every group of the plan, if given: PyTorch's default of 30 minutes is too long
    /// for watching a hang.
    pub timeout: Option<Duration>,
    /// True to record every message of a schedule as sent and received. Benchmarks turn it off; calls,
    /// operations and results are recorded in any case.
    pub record_messages: bool,
    /// The whole run is ended after this long, as failed.
    pub max_duration: Duration,
    /// Time that ranks may take to start, fill their tensors and join.
    pub join_timeout: Duration,
    /// Time that ranks may take to hand in their trace and exit when a run is ended early; then they are
    /// killed if they are stopped or out of reach, and after ten times as long in any case.
    pub grace: Duration,
    /// The most rank processes that one run may start.
    pub max_ranks: u32,
    /// The most shared memory that one run may map for messages, in bytes; tensors come on top. Only used
    /// pages are backed by real memory.
    pub max_shared_bytes: u64,
    /// The most memory that tensors, scratch, scaled copies and landing messages of all ranks may take
    /// together, in bytes; memory on devices does not count. `None`: three quarters of the machine's
    /// available memory.
    pub max_tensor_bytes: Option<u64>,
    /// The carrier of messages between ranks.
    pub transport: Transport,
    /// The faults that are injected into ranks.
    pub faults: Vec<Fault>,
    /// Calls that each rank's flight recorder holds; older ones are overwritten. PyTorch's
    /// `TORCH_FR_BUFFER_SIZE`; 0 for no recorder.
    pub recorded_calls: u32,
    /// True if ranks hand in their recorders' dumps when the run ends before its program does.
    pub dump_at_end: bool,
    /// The strategy by which ranks get hold of the shared memory.
    pub sharing: SharingStrategy,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            timeout: None,
            record_messages: true,
            max_duration: Duration::from_secs(3600),
            join_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            max_ranks: 256,
            max_shared_bytes: 1 << 30,
            max_tensor_bytes: None,
            transport: Transport::default(),
            faults: Vec::new(),
            recorded_calls: 2000,
            dump_at_end: false,
            sharing: SharingStrategy::default(),
        }
    }
}
