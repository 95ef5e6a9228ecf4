//! `monitored_barrier`: what gloo itself says of who is missing, so that a user finds the same words
//! in the log (`ProcessGroupGloo::monitoredBarrier`).

use crate::facts::Facts;
use crate::model::index::Row;
use lockstep_core::collective::Collective;
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::{GlobalRank, GroupRank};

/// The line that PyTorch raises where `missing` never came to the barrier of `row`; `None` for
/// other calls.
pub(crate) fn said(facts: &Facts<'_, '_>, row: &Row<'_>, missing: &[GlobalRank]) -> Option<String> {
    let made = row.made.first()?;
    if made.record.call.op != "monitored_barrier" {
        return None;
    }
    let group = facts.job.group(row.group)?;
    let first = group.global_rank(GroupRank(0))?;
    if missing.contains(&first) {
        let waits = group.group_rank(row.waiting().first().copied()?)?;
        return Some(format!(
            "Rank {waits} successfully reached monitoredBarrier, but received errors while waiting \
             for send/recv from rank 0. Please check rank 0 logs for faulty rank."
        ));
    }
    let plan = facts.job.log.plan.as_deref();
    let asked = plan.zip(row.of(first).and_then(|made| made.record.plan_op));
    let (wait_all_ranks, timeout_ms) =
        asked.and_then(|(plan, op)| arguments(plan, group, first, op)).unwrap_or((false, None));
    let timeout_ms = timeout_ms.unwrap_or(group.timeout_ms());
    let mut places: Vec<_> = missing.iter().filter_map(|rank| group.group_rank(*rank)).collect();
    places.sort_unstable();
    let places: Vec<_> = places.iter().map(ToString::to_string).collect();
    let who = match wait_all_ranks {
        true => format!("Ranks {}", places.join(", ")),
        false => format!("Rank {}", places.first()?),
    };
    Some(format!("[Rank 0]: {who} failed to pass monitoredBarrier in {timeout_ms} ms"))
}

/// `wait_all_ranks` and the timeout of the call itself, as operation `op` of `rank` passed them.
fn arguments(
    plan: &Plan,
    group: &ProcessGroup,
    rank: GlobalRank,
    op: u32,
) -> Option<(bool, Option<u64>)> {
    let ops = &plan.program(rank)?.ops;
    let all =
        ops.get(op as usize)?.action.calls().iter().find_map(|call| match call.collective() {
            Some(Collective::MonitoredBarrier { wait_all_ranks }) => Some(wait_all_ranks),
            _ => None,
        })?;
    let timeout = ops.iter().find_map(|later| match later.action {
        Action::Wait { op: waited, timeout_ms } if waited == op => timeout_ms,
        _ => None,
    });
    Some((all, timeout.map(|timeout| timeout.min(group.timeout_ms()))))
}
