//! The times in traces.

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, Plan, PlanBuilder, PlanError};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Trace, What};
use std::collections::BTreeMap;

/// As nccl-tests: calls that are not counted, and those whose mean is taken.
pub(super) const WARM_UP: u32 = 5;
pub(super) const COUNTED: u32 = 20;

/// Bytes of the tensors that are reduced.
pub(super) fn sizes(quick: bool) -> Vec<u64> {
    let largest = if quick { 16 } else { 28 };
    (12..=largest).step_by(4).map(|power| 1 << power).collect()
}

/// all_reduce after all_reduce, none waited for.
pub(super) fn plan(ranks: u32, bytes: u64) -> Result<Plan, PlanError> {
    let mut plan = PlanBuilder::new("speed", ranks, BackendName::Nccl)?;
    let count = bytes / 4;
    let tensor = plan.tensor("t", Dtype::Float32, count, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plan.every_rank(|_, program| {
        for _ in 0..WARM_UP + COUNTED {
            program.async_op().collective(GroupId::WORLD, sum, count, None, Some(tensor));
        }
    })
}

/// Microseconds of one, the mean of the slowest rank.
pub(super) fn time_us(trace: &Trace) -> Option<f64> {
    let mut spans: BTreeMap<GlobalRank, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for event in &trace.events {
        let span = spans.entry(event.rank).or_default();
        match event.what {
            What::Started { work } if work == WARM_UP => span.0 = Some(event.time_ps),
            What::Completed { work } if work == WARM_UP + COUNTED - 1 => {
                span.1 = Some(event.time_ps)
            }
            _ => {}
        }
    }
    let of_rank = |(began, ended): (Option<u64>, Option<u64>)| Some(ended?.saturating_sub(began?));
    let slowest = spans.into_values().filter_map(of_rank).max()?;
    Some(slowest as f64 / 1e6 / f64::from(COUNTED))
}

/// The times of a training run's compute stream and calls, on rank 0.
pub(super) fn training(plan: &Plan, trace: &Trace) -> String {
    let program = plan.program(GlobalRank(0));
    let ops = program.map_or(&[][..], |program| &program.ops);
    let asked = |op: u32| match ops.get(op as usize).map(|op| &op.action) {
        Some(Action::Compute { duration_ns, .. }) => Some(*duration_ns),
        _ => None,
    };
    let asked_ns: u64 = (0..ops.len() as u32).filter_map(asked).sum();
    let (mut computing, mut calls) = (Vec::new(), Vec::new());
    let (mut began, mut started) = (BTreeMap::new(), BTreeMap::new());
    for event in trace.events.iter().filter(|event| event.rank == GlobalRank(0)) {
        let at = event.time_ps;
        match event.what {
            What::StreamBegan { op } if asked(op).is_some() => drop(began.insert(op, at)),
            What::StreamEnded { op } => computing.extend(began.remove(&op).map(|from| (from, at))),
            What::Started { work } => drop(started.insert(work, at)),
            What::Completed { work } => calls.extend(started.remove(&work).map(|from| (from, at))),
            _ => {}
        }
    }
    let length = |spans: &[(u64, u64)]| spans.iter().map(|(from, to)| to - from).sum::<u64>();
    let overlap: u64 = calls
        .iter()
        .flat_map(|call| computing.iter().map(move |layer| (call, layer)))
        .map(|(call, layer)| call.1.min(layer.1).saturating_sub(call.0.max(layer.0)))
        .sum();
    let ms = |ps: u64| ps as f64 / 1e9;
    let (computed, communicated) = (length(&computing), length(&calls));
    format!(
        "compute asked {:.3} ms, took {:.3} ms; calls {:.3} ms, of which {:.0}% beside computing; \
         {:.3} ms in all",
        asked_ns as f64 / 1e6,
        ms(computed),
        ms(communicated),
        100.0 * overlap as f64 / communicated.max(1) as f64,
        ms(trace.end.as_ref().map_or(0, |end| end.time_ps)),
    )
}
