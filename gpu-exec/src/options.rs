//! What a run can be told besides its plan.

use std::time::Duration;

/// How a plan is run. The default suits a person who waits for the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Replaces the timeout of every group of the plan, if given: PyTorch's default of 30 minutes
    /// is more than somebody who watches a hang wants to wait.
    pub timeout: Option<Duration>,
    /// Whether every message of a schedule is recorded as sent and received. Benchmarks turn it
    /// off; calls, operations and results are recorded in any case.
    pub record_messages: bool,
    /// The whole run is ended after this long, as failed.
    pub max_duration: Duration,
    /// How long ranks may take to start, fill their tensors and join.
    pub join_timeout: Duration,
    /// How long ranks may take to hand in their trace and exit when a run is ended early; then
    /// they are killed.
    pub grace: Duration,
    /// The most rank processes that one run may start.
    pub max_ranks: u32,
    /// The most shared memory that one run may map, in bytes. Only what is used is backed by
    /// real memory.
    pub max_shared_bytes: u64,
    /// The most memory that tensors and scratch of all ranks may take together, in bytes. `None`:
    /// three quarters of what the machine has available.
    pub max_tensor_bytes: Option<u64>,
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
        }
    }
}
