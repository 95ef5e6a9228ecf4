//! The plans that are run: plans whose results another backend has too.

use anyhow::Result;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder, PlanError};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{Factor, ReduceOp, allowed};
use lockstep_core::trace::{Trace, What};
use lockstep_gpu_exec::Collectives;
use lockstep_torch::ddp::model::{Device, mlp, named};
use lockstep_torch::ddp::plan::{Training, training_plan};

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

fn builder(name: &str, ranks: u32) -> Result<PlanBuilder, PlanError> {
    PlanBuilder::new(name, ranks, BackendName::Nccl)
}

/// One small call.
pub(super) fn smoke(ranks: u32) -> Result<Plan, PlanError> {
    let mut plan = builder("smoke", ranks)?;
    let tensor = plan.tensor("t", Dtype::Float32, 1024, Fill::Rank);
    plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, SUM, 1024, None, Some(tensor));
    })
}

/// Every collective in two types, and every type and operation as an all_reduce, a plan for each type, at all
/// sizes (in elements), with its name and type.
///
/// NCCL's own collectives add in an order of their own. They are asked to reduce whole numbers that every
/// type adds exactly in any order; schedules get numbers that round.
pub(super) fn values(
    ranks: u32,
    sizes: &[u64],
    by: Collectives,
) -> Result<Vec<(String, Dtype, Plan)>, PlanError> {
    let fill = match by {
        Collectives::Library => Fill::Rank,
        Collectives::Schedules => Fill::Seeded { seed: 11 },
    };
    let root = root_of(ranks);
    let op = ReduceOp::Sum;
    let every = Collective::every(op, root);
    let mut plans = Vec::new();
    for dtype in [Dtype::Float32, Dtype::Int64] {
        let calls = every.iter().flat_map(|call| sizes.iter().map(|count| (*call, *count)));
        let what = format!("every collective, {dtype}");
        plans.push((what, dtype, calls_on(ranks, dtype, fill, calls)?));
    }
    let factor = Factor::new(0.5).map(ReduceOp::PremulSum);
    for dtype in Dtype::COMPUTABLE {
        // Sums of more than two round in 8-bit floats.
        if by == Collectives::Library && dtype.is_float8() && ranks > 2 {
            continue;
        }
        let ops = ReduceOp::ALL.into_iter().chain(factor).filter(|op| match by {
            Collectives::Library => allowed(BackendName::Nccl, *op, dtype).is_ok(),
            Collectives::Schedules => op.supports(dtype),
        });
        let calls: Vec<_> = ops
            .flat_map(|op| sizes.iter().map(move |count| (Collective::AllReduce { op }, *count)))
            .collect();
        if calls.is_empty() {
            continue;
        }
        let what = format!("every operation, {dtype}");
        plans.push((what, dtype, calls_on(ranks, dtype, fill, calls)?));
    }
    Ok(plans)
}

/// The root of calls that have one: neither the first rank nor the last.
fn root_of(ranks: u32) -> GroupRank {
    GroupRank((ranks - 1) / 2)
}

/// Removes from a trace the results of `reduce` on ranks that it promises nothing: partial sums by our
/// schedules, the input by NCCL.
pub(super) fn leave_out_partial(plan: &Plan, trace: &mut Trace) {
    let root = root_of(plan.world_size);
    trace.events.retain(|event| match &event.what {
        What::Result { tensor, .. } => {
            let name = plan.tensor(*tensor).map(|tensor| tensor.name.as_str());
            name != Some("reduce out") || event.rank.0 == root.0
        }
        _ => true,
    });
}

fn calls_on(
    ranks: u32,
    dtype: Dtype,
    fill: Fill,
    calls: impl IntoIterator<Item = (Collective, u64)>,
) -> Result<Plan, PlanError> {
    let mut plan = builder("values", ranks)?;
    let mut all = Vec::new();
    for (call, count) in calls {
        let count = if call.is_barrier() { 0 } else { count };
        let most = |elements: fn(Collective, u32, GroupRank, u64) -> Option<u64>| {
            (0..ranks).filter_map(|rank| elements(call, ranks, GroupRank(rank), count)).max()
        };
        let out_fill = if call.in_place() { fill } else { Fill::Zeros };
        let (input, output) = (most(Collective::input_elements), most(Collective::output_elements));
        let input = input.map(|numel| plan.tensor(format!("{call} in"), dtype, numel, fill));
        let output = output.map(|numel| plan.tensor(format!("{call} out"), dtype, numel, out_fill));
        all.push((call, count, input, output));
    }
    plan.every_rank(|_, program| {
        for (call, count, input, output) in &all {
            program.collective(GroupId::WORLD, *call, *count, *input, *output);
        }
    })
}

/// A subgroup, a pair and a ring of sends; needs two ranks.
pub(super) fn groups(ranks: u32) -> Result<Option<Plan>> {
    if ranks < 2 {
        return Ok(None);
    }
    let mut plan = builder("groups", ranks)?;
    let members: Vec<GlobalRank> = (0..ranks).rev().step_by(2).map(GlobalRank).collect();
    let some = ProcessGroup::new("some", BackendName::Nccl, members.clone())?;
    let group = plan.group(some);
    let world = plan.tensor("world", Dtype::Int64, 1000, Fill::Iota);
    let part = plan.tensor("part", Dtype::Int64, 1000, Fill::Iota);
    let sent = plan.tensor("sent", Dtype::Int64, 1000, Fill::Iota);
    let got = plan.tensor("got", Dtype::Int64, 1000, Fill::Zeros);
    let tag = 0;
    let plan = plan.every_rank(|rank, program| {
        program.collective(GroupId::WORLD, SUM, 1000, None, Some(world));
        if members.contains(&rank) {
            program.collective(group, SUM, 1000, None, Some(part));
        }
        match rank.0 {
            0 => drop(program.send(GroupId::WORLD, GroupRank(1), sent)),
            1 => drop(program.recv(GroupId::WORLD, GroupRank(0), got)),
            _ => {}
        }
        let (next, last) =
            (GroupRank((rank.0 + 1) % ranks), GroupRank((rank.0 + ranks - 1) % ranks));
        let group = GroupId::WORLD;
        program.coalesced(vec![
            Call::Send { group, peer: next, tensor: sent, tag },
            Call::Recv { group, peer: Some(last), tensor: got, tag },
        ]);
        program.barrier(GroupId::WORLD);
    })?;
    Ok(Some(plan))
}

/// DDP on a small model: compute kernels on one stream, buckets on another.
pub(super) fn training(ranks: u32, quick: bool) -> Result<Plan> {
    let device = Device::named("A100").ok_or_else(|| anyhow::anyhow!("no A100 is known"))?;
    let model = match quick {
        true => mlp("three layers", &[256, 256, 256, 10], Dtype::Float32),
        false => named("resnet18").ok_or_else(|| anyhow::anyhow!("no resnet18 is known"))?,
    };
    let training = Training {
        backend: BackendName::Nccl,
        batch: 16,
        steps: 2,
        ..Training::new(ranks, device)
    };
    Ok(training_plan(&model, &training)?)
}

/// Three ways to hang.
pub(super) fn hangs(ranks: u32) -> Result<Vec<(&'static str, Plan)>, PlanError> {
    let last = ranks - 1;
    let make = |write: &dyn Fn(bool, &mut lockstep_core::plan::ProgramBuilder, _)| {
        let mut plan = builder("hang", ranks)?;
        let tensor = plan.tensor("t", Dtype::Float32, 1024, Fill::Rank);
        plan.every_rank(|rank, program| {
            program.collective(GroupId::WORLD, SUM, 1024, None, Some(tensor));
            write(rank.0 == last, program, tensor);
        })
    };
    let skipped = make(&|culprit, program, tensor| {
        if !culprit {
            program.collective(GroupId::WORLD, SUM, 1024, None, Some(tensor));
        }
    })?;
    let stuck = make(&|culprit, program, tensor| {
        if culprit {
            program.sleep("data loader", 3_600_000_000_000);
        }
        program.collective(GroupId::WORLD, SUM, 1024, None, Some(tensor));
    })?;
    let early = make(&|culprit, program, tensor| {
        if !culprit {
            program.collective(GroupId::WORLD, SUM, 1024, None, Some(tensor));
            program.compute("backward", 1_000_000);
            program.barrier(GroupId::WORLD);
        }
    })?;
    Ok(vec![
        ("hang: a skipped all_reduce", skipped),
        ("hang: a rank stuck before its call", stuck),
        ("hang: a rank that ends early", early),
    ])
}
