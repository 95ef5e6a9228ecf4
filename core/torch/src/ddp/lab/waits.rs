//! The waits of a pass for the calls that it has launched.

use super::LabRun;
use super::pass::Pass;
use crate::ddp::call::Purpose;
use crate::ddp::notes::{StepKind, StepNotes};
use lockstep_core::plan::Action;
use std::collections::BTreeSet;

impl LabRun<'_> {
    /// The calls of a rank, by operation, that the program waits for in a step.
    pub(super) fn waited(&self, rank: u32, step: &StepNotes) -> BTreeSet<u32> {
        let after = self.notes(rank).iter().find(|after| after.first_op > step.first_op);
        let ops = self.ops(rank);
        let until = after.map_or(ops.len(), |after| after.first_op as usize);
        let own = ops.get(step.first_op as usize..until).unwrap_or_default();
        let waited = own.iter().filter_map(|op| match op.action {
            Action::Wait { op, .. } => Some(op),
            _ => None,
        });
        waited.collect()
    }
}

/// The compute stream waits for asynchronous calls in their order: gradients' at the end of the
/// backward pass, a sharded optimizer's after its step. Where the reducer is left with a bucket,
/// it waits for none.
pub(super) fn wait(pass: &mut Pass, unwaited: &BTreeSet<usize>) {
    let mut now = pass.backward_end_ps;
    let trains = pass.kind == StepKind::Training;
    for (at, call) in pass.calls.iter_mut().enumerate() {
        if call.blocking {
            // A rank that shadows does nothing else than this.
            now = if trains { now } else { now.max(call.end_ps) };
            continue;
        }
        if call.purpose == Purpose::Shard
            && let Some((_, end)) = pass.optimizer
        {
            now = now.max(end);
        }
        if call.end_ps <= now || unwaited.contains(&at) {
            continue;
        }
        call.waited_ps = Some((now, call.end_ps));
        let exposed = call.end_ps - now;
        pass.exposed_ps = pass.exposed_ps.saturating_add(exposed);
        if let Some(fate) = call.of_bucket().and_then(|b| pass.buckets.get_mut(b as usize)) {
            fate.exposed_ps = fate.exposed_ps.saturating_add(exposed);
        }
        now = call.end_ps;
    }
}
