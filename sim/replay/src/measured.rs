//! A plan whose computations take as long as they did in a trace of it.

use crate::rank_programs::set_program;
use lockstep_analysis::Activity;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;

/// The plan of a trace with the durations of its computations and pauses as `activity`, which is of the same trace,
/// has measured them. What the trace does not show keeps its planned duration.
pub fn with_measured_computations(plan: &Plan, activity: &Activity) -> Plan {
    let mut measured = Plan { programs: Vec::new(), ..plan.clone() };
    for (rank, own) in (0..plan.world_size).map(GlobalRank).zip(&activity.ranks) {
        let Some(mut program) = plan.program(rank).cloned() else { continue };
        for one in &own.computations {
            let op = one.op.and_then(|op| program.ops.get_mut(op as usize));
            if let Some(Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. }) =
                op.map(|op| &mut op.action)
            {
                *duration_ns = (one.to_ps - one.from_ps) / 1000;
            }
        }
        set_program(&mut measured, rank, program);
    }
    measured
}
