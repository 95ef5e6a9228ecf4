//! The comparison for a finished plan: the errors that its ranks would raise instead of hanging.

use super::{look, op_type};
use crate::c10d::backend::Device;
use crate::c10d::error::DistError;
use crate::c10d::fingerprint::{Check, FingerPrint, Look, Members, compare};
use crate::c10d::tensor::{Grad, Layout, Tensor};
use lockstep_core::collective::Collective;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Op, Plan, SourceLine, TensorId};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

const NS_PER_MS: u64 = 1_000_000;

/// A rank that would raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailRaise {
    /// The rank.
    pub rank: GlobalRank,
    /// The operation of its program that raises.
    pub op: u32,
    /// That operation's line.
    pub at: Option<SourceLine>,
    /// The error that it raises.
    pub error: DistError,
}

/// The errors that the ranks of a plan raise under `TORCH_DISTRIBUTED_DEBUG=DETAIL`, by rank.
///
/// A rank that sleeps or computes for longer than the timeout of its group never comes. `None` when
/// the plan has point-to-point calls: the wrapper does not compare those, and how far a rank gets
/// between them is not known here.
pub fn detail_of(plan: &Plan) -> Option<Vec<DetailRaise>> {
    let ranks = (0..plan.world_size).map(GlobalRank);
    let checks: Option<Vec<_>> = ranks.map(|rank| checks_of(plan, rank)).collect();
    let checks = checks?;
    let groups: Vec<Members<'_>> = plan
        .groups
        .iter()
        .map(|group| Members { ranks: group.ranks(), timeout_ms: group.timeout_ms() })
        .collect();
    let raised = compare(&checks, &groups).into_iter().filter_map(|raised| {
        let op = checks.get(raised.rank.index())?.get(raised.check)?.before;
        let at = plan.program(raised.rank)?.ops.get(op)?.at;
        Some(DetailRaise { rank: raised.rank, op: op as u32, at, error: raised.error })
    });
    let mut raised: Vec<DetailRaise> = raised.collect();
    raised.sort_by_key(|raised| raised.rank);
    Some(raised)
}

/// The collectives that a rank comes to, in its order; `None` if there are other calls.
fn checks_of(plan: &Plan, rank: GlobalRank) -> Option<Vec<Check>> {
    let (mut checks, mut made) = (Vec::new(), BTreeMap::<GroupId, u64>::new());
    let ops = plan.program(rank).map(|program| &program.ops[..]).unwrap_or_default();
    let patience_ms = plan.groups.iter().map(|group| group.timeout_ms()).min().unwrap_or(u64::MAX);
    for (index, op) in ops.iter().enumerate() {
        let late = op.action.duration_ns().is_some_and(|ns| ns / NS_PER_MS >= patience_ms);
        if late || op.action.ends_by().is_some() {
            break;
        }
        // The forms of several tensors are one collective of the wrapper's.
        let calls = op.action.calls();
        let together = matches!(via(op), "all_reduce_coalesced" | "all_gather_coalesced");
        let compared = if together { calls.get(..1).unwrap_or_default() } else { calls };
        for call in compared {
            let Call::Collective { group, collective, input, output, .. } = call else {
                return None;
            };
            if matches!(collective, Collective::MonitoredBarrier { .. }) {
                continue;
            }
            let nccl = plan.group(*group)?.backend() == BackendName::Nccl;
            let device = if nccl { Device::Cuda } else { Device::Cpu };
            let (op_type, tensor) = compared_in(via(op), *collective, *input, *output);
            let tensors = tensor.and_then(|id| look_of(plan, id, device)).into_iter().collect();
            let seq = made.entry(*group).or_default();
            let print = FingerPrint { op_type, seq: *seq, tensors };
            *seq += 1;
            checks.push(Check { group: *group, print, before: index });
        }
    }
    Some(checks)
}

/// The call that made an operation, if a plan says it.
fn via(op: &Op) -> &str {
    op.via.as_deref().unwrap_or_default()
}

/// A call's `OpType`, and the tensor that the wrapper compares.
fn compared_in(
    via: &str,
    collective: Collective,
    input: Option<TensorId>,
    output: Option<TensorId>,
) -> (i64, Option<TensorId>) {
    match via {
        "all_reduce_coalesced" => (2, None),
        "all_gather_into_tensor" => (5, input),
        "all_gather_coalesced" => (6, None),
        "all_to_all_single" => (10, None),
        "reduce_scatter_tensor" => (16, input),
        _ => {
            let tensor = match collective {
                Collective::AllGather | Collective::Gather { .. } => input,
                Collective::AllToAll => None,
                _ => output,
            };
            (op_type(collective), tensor)
        }
    }
}

fn look_of(plan: &Plan, storage: TensorId, device: Device) -> Option<Look> {
    let tensor = plan.tensor(storage)?;
    Some(look(&Tensor {
        storage,
        offset: 0,
        storage_numel: tensor.numel,
        shape: vec![tensor.numel],
        dtype: tensor.dtype,
        device,
        device_index: 0,
        layout: Layout::Strided,
        contiguous: true,
        in_parts: false,
        grad: Grad::Leaf,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c10d::{Dist, FromRank, InGroup, Job, Reduction};
    use lockstep_core::dtype::Dtype;
    use lockstep_core::plan::Fill;

    type Script = fn(&mut Dist<'_>, u32) -> Result<(), DistError>;

    fn job(detail: bool, script: Script) -> Job {
        let mut job = Job::new("detail", 3).unwrap();
        if detail {
            job.debug_detail();
        }
        job.run(|dist| {
            dist.init_process_group("gloo")?;
            let rank = dist.process().0;
            script(dist, rank)
        });
        job
    }

    /// A plan that was recorded without the wrapper raises the same errors as its calls recorded with the
    /// wrapper, which is tested against PyTorch's words.
    #[test]
    fn a_plan_raises_what_its_calls_do() {
        let scripts: [Script; 4] = [
            |dist, rank| {
                let x = dist.tensor("x", Dtype::Float32, 4 + u64::from(rank), Fill::Rank);
                dist.all_reduce(&x, Reduction::default()).map(drop)
            },
            |dist, rank| {
                let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
                dist.barrier(InGroup::default())?;
                match rank {
                    1 => dist.broadcast(&x, FromRank::src(0)).map(drop),
                    _ => dist.all_reduce(&x, Reduction::default()).map(drop),
                }
            },
            |dist, rank| {
                let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
                match rank {
                    1 => Ok(()),
                    _ => dist.all_reduce(&x, Reduction::default()).map(drop),
                }
            },
            |dist, _| {
                let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
                dist.all_reduce(&x, Reduction::default())?;
                dist.barrier(InGroup::default()).map(drop)
            },
        ];
        for script in scripts {
            let with = job(true, script);
            let plan = job(false, script).finish().unwrap();
            let raised = detail_of(&plan).unwrap();
            for rank in (0..3).map(GlobalRank) {
                let said = raised.iter().find(|raised| raised.rank == rank);
                assert_eq!(said.map(|raised| &raised.error), with.raised(rank));
            }
        }
    }

    /// Only the hang of sends among the examples is not caught; a repaired example raises nothing.
    #[test]
    fn hangs_become_errors() {
        use lockstep_scenarios::{ScenarioOptions, find};
        let plan = |id: &str, repaired: bool| {
            let options = ScenarioOptions { world_size: 4, repaired, ..ScenarioOptions::default() };
            lockstep_program::scenario_plan(find(id).unwrap(), &options).unwrap()
        };
        for id in ["skipped-all-reduce", "mismatched-collectives", "uneven-last-batch"] {
            let raised = detail_of(&plan(id, false)).unwrap();
            assert!(raised.len() >= 3, "{id}: {raised:?}");
            let words = "Detected mismatch between collectives on ranks.";
            assert!(raised.iter().all(|one| one.error.text.starts_with(words)), "{raised:?}");
            assert_eq!(detail_of(&plan(id, true)).unwrap(), []);
        }
        let stuck = detail_of(&plan("stuck-data-loader", false)).unwrap();
        assert!(stuck[0].error.text.contains("Ranks 3 failed to pass monitoredBarrier"));
        assert_eq!(detail_of(&plan("facing-sends", false)), None);
    }
}
