//! The limits of this machine.

use super::arena::Arena;
use super::carrier::Carrier;
use super::control::{MAX_FRAME_BYTES, bytes_frame};
use super::landings::Landings;
use crate::nccl::options::Collectives;
use crate::{MemoryGroup, RunError, RunOptions};
use lockstep_core::plan::{Action, Plan, Signal, SignalKind};
use lockstep_core::rank::GlobalRank;
use std::sync::Arc;

/// Refuses plans that would exhaust the machine. Memory that ranks hold `elsewhere` is checked there: on a
/// device, which refuses by itself, or on the machines of MPI's ranks.
pub(super) fn check(plan: &Plan, options: &RunOptions, elsewhere: bool) -> Result<(), RunError> {
    if plan.world_size > options.max_ranks {
        let (ranks, limit) = (plan.world_size, options.max_ranks);
        return Err(RunError::TooManyRanks { ranks, limit });
    }
    if elsewhere {
        return Ok(());
    }
    // First what cannot overflow.
    fits(plan.tensor_bytes().saturating_add(plan.scratch_bytes()), options)?;
    check_landings(plan, &Landings::default(), options)
}

/// Refuses plans that would exhaust the machine with the places in which messages land.
pub(super) fn check_landings(
    plan: &Plan,
    landings: &Landings,
    options: &RunOptions,
) -> Result<(), RunError> {
    let ranks = (0..plan.world_size).map(GlobalRank);
    let arenas = ranks.map(|rank| Arena::of(plan, rank).bytes() as u64);
    fits(arenas.fold(landings.bytes(), u64::saturating_add), options)
}

pub(crate) fn fits(bytes: u64, options: &RunOptions) -> Result<(), RunError> {
    let limit = options.max_tensor_bytes.or_else(comfortable_bytes).unwrap_or(u64::MAX);
    if bytes > limit { Err(RunError::TooMuchMemory { bytes, limit }) } else { Ok(()) }
}

/// Three quarters of the machine's available memory, within our cgroup's limit; `None` if neither is known.
fn comfortable_bytes() -> Option<u64> {
    let group = MemoryGroup::now().free_bytes;
    let least = [machine_bytes(), group].into_iter().flatten().min()?;
    Some(least / 4 * 3)
}

fn machine_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The plan as ranks are sent it.
///
/// # Errors
/// When it is longer than every rank is to read.
pub(super) fn plan_frame(plan: &Plan) -> Result<Arc<[u8]>, RunError> {
    let bytes = plan.to_bytes();
    if bytes.len() > MAX_FRAME_BYTES {
        let (bytes, limit) = (bytes.len(), MAX_FRAME_BYTES);
        return Err(RunError::PlanTooLong { bytes, limit });
    }
    Ok(bytes_frame(&bytes).into())
}

/// Refuses signals that do not reach ranks which others have started. Rank 0 can hang up on one, which ends
/// it, but can stop by the clock only processes on its own machine, which are known once all ranks have come.
pub(super) fn signals_reach(signals: &[Signal]) -> Result<(), RunError> {
    let stops = |signal: &Signal| matches!(signal.what, SignalKind::Stop { .. });
    match signals.iter().find(|signal| signal.rank.0 > 0 && stops(signal)) {
        Some(signal) => Err(RunError::CannotStop { rank: signal.rank }),
        None => Ok(()),
    }
}

/// True if an operation of the plan sends a signal to its own rank.
pub(super) fn sends_signals(plan: &Plan) -> bool {
    let mut ops = plan.programs.iter().flat_map(|program| &program.ops);
    ops.any(|op| matches!(op.action, Action::Signal(_)))
}

/// Refuses operations that processes cannot carry out.
pub(super) fn carried_out(plan: &Plan, carrier: &Carrier) -> Result<(), RunError> {
    match carrier {
        Carrier::Host => {}
        // A library's own collectives do not follow the plan's schedules.
        Carrier::Device(device) if device.collectives == Collectives::Library => return Ok(()),
        Carrier::Device(_) => {}
        #[cfg(feature = "mpi")]
        Carrier::Mpi => return Ok(()),
    }
    let backend = carrier.backend();
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    for call in ops.flat_map(|op| op.action.calls()) {
        if let Some(Ok(schedule)) = plan.schedule(call)
            && schedule.switches() > 0
            && let Some(algorithm) = schedule.algorithm()
        {
            let collective = schedule.collective();
            return Err(RunError::NeedsSwitch { backend, collective, algorithm });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;

    fn plan(numel: u64) -> Plan {
        let mut plan = PlanBuilder::new("large", 2, BackendName::Host).unwrap();
        let whole = plan.tensor("whole", Dtype::Float32, 2 * numel, Fill::Zeros);
        let part = plan.tensor("part", Dtype::Float32, numel, Fill::Zeros);
        let average = Collective::ReduceScatter { op: ReduceOp::Avg };
        plan.every_rank(|_, program| {
            program.collective(GroupId::WORLD, average, numel, Some(whole), Some(part));
        })
        .unwrap()
    }

    fn refused(plan: &Plan, limit: u64, landings: &Landings) -> bool {
        let options = RunOptions { max_tensor_bytes: Some(limit), ..RunOptions::default() };
        let checked = check(plan, &options, false);
        checked.and_then(|()| check_landings(plan, landings, &options)).is_err()
    }

    /// An average over gloo is a sum of inputs that were scaled before: in a copy, if the input is not the
    /// output.
    #[test]
    fn scaled_copies_and_landings_count() {
        let plan = plan(1 << 20);
        let tensors = plan.tensor_bytes() + plan.scratch_bytes();
        let arenas = (0..2).map(|rank| Arena::of(&plan, GlobalRank(rank)).bytes() as u64);
        let arenas: u64 = arenas.sum();
        assert!(arenas >= tensors + 2 * 8 * (1 << 20), "{arenas} {tensors}");
        assert!(refused(&plan, arenas - 1, &Landings::default()));
        assert!(!refused(&plan, arenas, &Landings::default()));
        let landings = Landings::of(&plan);
        assert!(landings.bytes() > 0);
        assert!(refused(&plan, arenas + landings.bytes() - 1, &landings));
        assert!(!refused(&plan, arenas + landings.bytes(), &landings));
    }

    #[test]
    fn what_devices_keep_is_not_this_machines() {
        let options = RunOptions { max_tensor_bytes: Some(1), ..RunOptions::default() };
        assert!(check(&plan(1 << 40 >> 1), &options, true).is_ok());
        assert!(check(&plan(1), &options, false).is_err());
    }

    #[test]
    fn a_plan_that_no_rank_reads_is_refused_with_both_numbers() {
        let mut plan = plan(4);
        plan.sources.push(lockstep_core::plan::Source {
            path: "train.py".into(),
            text: "x".repeat(MAX_FRAME_BYTES),
        });
        let error = plan_frame(&plan).unwrap_err().to_string();
        assert!(error.contains("the limit is 67108864"), "{error}");
    }

    #[test]
    fn a_stop_by_the_clock_reaches_only_rank_0() {
        let signal = |rank, what| Signal { rank: GlobalRank(rank), after_ms: 40, what };
        let stop = SignalKind::Stop { for_ms: Some(5) };
        assert!(signals_reach(&[signal(0, stop), signal(1, SignalKind::Kill)]).is_ok());
        let error = signals_reach(&[signal(1, stop)]).unwrap_err().to_string();
        assert!(error.starts_with("rank 1 was started by a launcher"), "{error}");
    }
}
