//! The trait that every executor implements, and the search for one by name.

use super::{RunError, RunHandle, RunOptions};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;
use lockstep_core::trace::Trace;
use std::fmt;

/// Runs plans for real.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The backend's name in traces.
    fn name(&self) -> BackendName;

    /// Starts the plan's ranks and returns once all have joined. The run then goes on by itself.
    ///
    /// # Errors
    /// When the plan or the machine does not allow it; no process is left behind.
    fn start(&self, plan: Plan, options: RunOptions) -> Result<RunHandle, RunError>;
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
