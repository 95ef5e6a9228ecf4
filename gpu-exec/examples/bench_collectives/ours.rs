//! Calls on the host backend.

use crate::Wanted;
use crate::machine::median;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{Outcome, What};
use lockstep_gpu_exec::{HostBackend, RankLauncher, RunOptions, run_to_trace};
use std::collections::BTreeMap;
use std::error::Error;

pub(crate) const RANK_ARGUMENT: &str = "--rank";

/// The median time of a call, in microseconds. Calls are recorded, single messages are not.
pub(crate) fn microseconds(
    op: &str,
    ranks: u32,
    bytes: u64,
    calls: u64,
    wanted: &Wanted,
) -> Result<f64, Box<dyn Error>> {
    let warm_up = calls / 5 + 3;
    let (plan, ops_a_call) = plan(op, ranks, bytes, calls + warm_up, wanted.algorithm.as_deref())?;
    let launcher =
        RankLauncher { program: std::env::current_exe()?, args: vec![RANK_ARGUMENT.into()] };
    let options = RunOptions {
        record_messages: false,
        recorded_calls: wanted.recorded,
        ..RunOptions::default()
    };
    let trace = run_to_trace(&HostBackend::new(launcher), plan, options)?;
    match trace.end {
        Some(end) if end.outcome == Outcome::Completed => {}
        end => return Err(format!("the run ended as {end:?}").into()),
    }
    let mut began = BTreeMap::new();
    let mut slowest: BTreeMap<u32, u64> = BTreeMap::new();
    for event in &trace.events {
        match event.what {
            What::OpBegan { op } => {
                began.insert((event.rank, op), event.time_ps);
            }
            What::OpEnded { op } => {
                let took = began.get(&(event.rank, op)).map_or(0, |began| event.time_ps - began);
                let most = slowest.entry(op).or_default();
                *most = took.max(*most);
            }
            _ => {}
        }
    }
    let measured = |op: &u32| {
        let (call, part) = (u64::from(*op) / ops_a_call, u64::from(*op) % ops_a_call);
        call >= warm_up && part + 1 == ops_a_call
    };
    let took = slowest.iter().filter(|(op, _)| measured(op));
    Ok(median(took.map(|(_, took)| *took as f64 / 1e6).collect()))
}

/// Calls one after the other, and how many operations belong to each: a broadcast follows a
/// barrier.
fn plan(
    op: &str,
    ranks: u32,
    bytes: u64,
    calls: u64,
    by: Option<&str>,
) -> Result<(Plan, u64), Box<dyn Error>> {
    let count = (bytes / 4).max(1);
    let part = count.div_ceil(u64::from(ranks));
    let whole = part * u64::from(ranks);
    let mut plan = PlanBuilder::new(format!("bench {op}"), ranks, BackendName::Host)?;
    // Zeros: sums of them do not overflow, however many calls.
    let mut tensor =
        |name: &str, numel| Some(plan.tensor(name, Dtype::Float32, numel, Fill::Zeros));
    let sum = ReduceOp::Sum;
    let (collective, count, input, output) = match op {
        "all_reduce" => (Collective::AllReduce { op: sum }, count, None, tensor("t", count)),
        "broadcast" => {
            (Collective::Broadcast { root: GroupRank(0) }, count, None, tensor("t", count))
        }
        "all_gather" => (Collective::AllGather, part, tensor("in", part), tensor("out", whole)),
        "reduce_scatter" => {
            let collective = Collective::ReduceScatter { op: sum };
            (collective, part, tensor("in", whole), tensor("out", part))
        }
        _ => (Collective::AllToAll, part, tensor("in", whole), tensor("out", whole)),
    };
    let known = |name| Algorithm::of(collective).iter().copied().find(|by| by.name() == name);
    let by = match by {
        Some(name) => Some(known(name).ok_or_else(|| format!("{op} cannot be done by {name:?}"))?),
        None => None,
    };
    let barrier = op == "broadcast";
    let plan = plan.every_rank(|_, program| {
        for _ in 0..calls {
            if barrier {
                program.barrier(GroupId::WORLD);
            }
            program.collective_by(GroupId::WORLD, collective, count, input, output, by);
        }
    })?;
    Ok((plan, 1 + u64::from(barrier)))
}
