//! What this machine can carry.

use crate::{RunError, RunOptions};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;

/// Refuses what would bring the machine down.
pub(super) fn check(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if plan.world_size > options.max_ranks {
        let (ranks, limit) = (plan.world_size, options.max_ranks);
        return Err(RunError::TooManyRanks { ranks, limit });
    }
    let bytes = plan.tensor_bytes().saturating_add(plan.scratch_bytes());
    let limit = options.max_tensor_bytes.or_else(comfortable_bytes).unwrap_or(u64::MAX);
    if bytes > limit {
        return Err(RunError::TooMuchMemory { bytes, limit });
    }
    Ok(())
}

/// Three quarters of what the machine has available, or `None` if it does not say.
fn comfortable_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024) / 4 * 3)
}

/// Refuses what processes cannot carry out.
pub(super) fn carried_out(plan: &Plan) -> Result<(), RunError> {
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    for call in ops.flat_map(|op| op.action.calls()) {
        if let Some(Ok(schedule)) = plan.schedule(call)
            && schedule.switches() > 0
            && let Some(algorithm) = schedule.algorithm()
        {
            let (backend, collective) = (BackendName::Host, schedule.collective());
            return Err(RunError::NeedsSwitch { backend, collective, algorithm });
        }
    }
    Ok(())
}
