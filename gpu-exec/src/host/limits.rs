//! What this machine can carry.

use crate::{RunError, RunOptions};
use lockstep_core::plan::{Action, Op, Plan, Program, TensorId};

/// The tensors that a program names, in order: those that its ranks make and report.
pub(super) fn tensors_of(program: &Program) -> Vec<TensorId> {
    let named = |op: &Op| match op.action {
        Action::Collective { input, output, .. } => [input, output],
        Action::Send { tensor, .. } | Action::Recv { tensor, .. } => [Some(tensor), None],
        Action::Wait { .. } | Action::Compute { .. } | Action::Sleep { .. } => [None, None],
    };
    let mut tensors: Vec<_> = program.ops.iter().flat_map(named).flatten().collect();
    tensors.sort_unstable();
    tensors.dedup();
    tensors
}

/// Refuses what would bring the machine down.
pub(super) fn check(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if plan.world_size > options.max_ranks {
        let (ranks, limit) = (plan.world_size, options.max_ranks);
        return Err(RunError::TooManyRanks { ranks, limit });
    }
    let per_program: Vec<u64> = plan
        .programs
        .iter()
        .map(|program| {
            let sizes = tensors_of(program).into_iter().filter_map(|id| plan.tensor(id));
            sizes.fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes()))
        })
        .collect();
    let of_rank = |program: &u32| per_program.get(*program as usize).copied().unwrap_or(0);
    let bytes = plan.program_of.iter().map(of_rank).fold(0, u64::saturating_add);
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
