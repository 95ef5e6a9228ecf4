//! A recorded call as a call of a plan: its tensors, root and reduction, with what the recording leaves out.

use crate::assumption::Assumption;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Fill, PlanBuilder, TensorId};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, Called, TensorShape};
use std::collections::{BTreeMap, BTreeSet};

/// More elements a plan does not take.
const MAX_NUMEL: u64 = 1 << 40;

/// The tensors of a plan that is being recovered: one for each type and size.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    known: BTreeMap<(Dtype, u64), TensorId>,
}

impl Tensors {
    fn of(&mut self, plan: &mut PlanBuilder, dtype: Dtype, numel: u64) -> TensorId {
        let numel = numel.clamp(1, MAX_NUMEL);
        *self.known.entry((dtype, numel)).or_insert_with(|| {
            // What was in it is in no recording.
            plan.tensor(format!("{}[{numel}]", dtype.name()), dtype, numel, Fill::Unknown)
        })
    }
}

/// Elements of all tensors.
fn numel(tensors: &[TensorShape]) -> u64 {
    tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
}

/// The most elements that a member passes to, or gets from, an uneven all_to_all under each number of a group;
/// none of those whose sends and receives do not add up.
pub(crate) fn uneven_exchanges(log: &CallLog) -> BTreeMap<(GroupId, u64), u64> {
    let mut rows: BTreeMap<(GroupId, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for (_, own) in log.logs() {
        for record in own.calls.iter().filter(|record| record.call.op == "all_to_all") {
            let sizes = (numel(&record.call.inputs), numel(&record.call.outputs));
            if let Some(seq) = record.seq {
                rows.entry((record.call.group, seq)).or_default().push(sizes);
            }
        }
    }
    let most = |(call, sizes): ((GroupId, u64), Vec<(u64, u64)>)| {
        let (sent, received) =
            sizes.iter().fold((0u64, 0u64), |(sent, received), (input, output)| {
                (sent.saturating_add(*input), received.saturating_add(*output))
            });
        let first = sizes.first()?.0;
        let even = sizes.iter().all(|(input, output)| *input == first && *output == first);
        let most = sizes.iter().map(|(input, output)| *input.max(output)).max()?;
        (!even && sent == received).then_some((call, most))
    };
    rows.into_iter().filter_map(most).collect()
}

/// A recorded call in a group of the plan; `uneven` is its row's value of [`uneven_exchanges`].
pub(crate) fn call_of(
    called: &Called,
    (group, members): (GroupId, &ProcessGroup),
    (plan, tensors): (&mut PlanBuilder, &mut Tensors),
    uneven: Option<u64>,
    assumed: &mut BTreeSet<Assumption>,
) -> Call {
    let shapes = called.inputs.iter().chain(&called.outputs);
    let dtype = shapes.map(|tensor| tensor.dtype).next().unwrap_or(Dtype::Float32);
    let dtype = match Dtype::COMPUTABLE.contains(&dtype) {
        true => dtype,
        false => {
            assumed.insert(Assumption::Bytes { dtype: dtype.name().to_owned() });
            Dtype::Uint8
        }
    };
    let (input, output) = (numel(&called.inputs), numel(&called.outputs));
    let either = if input == 0 { output } else { input };
    if called.p2p {
        let tensor = tensors.of(plan, dtype, either);
        let tag = called.tag;
        return match (called.op.contains("send"), called.peer) {
            (true, peer) => Call::Send { group, peer: peer.unwrap_or(GroupRank(0)), tensor, tag },
            (false, peer) => Call::Recv { group, peer, tensor, tag },
        };
    }
    let collective = collective_of(called, assumed);
    if either == 0 && !collective.is_barrier() {
        assumed.insert(Assumption::NoSizes);
    }
    let size = u64::from(members.size()).max(1);
    let count = match collective {
        Collective::Barrier | Collective::MonitoredBarrier { .. } => 0,
        Collective::AllGather | Collective::Gather { .. } if input > 0 => input,
        Collective::AllGather | Collective::Gather { .. } => output.div_ceil(size),
        Collective::ReduceScatter { .. } | Collective::Scatter { .. } if output > 0 => output,
        Collective::ReduceScatter { .. } | Collective::Scatter { .. } => input.div_ceil(size),
        Collective::AllToAll => {
            if uneven.is_some() || !input.is_multiple_of(size) || input != output {
                assumed.insert(Assumption::EvenParts);
            }
            // Members of an uneven call pass different sizes: all of them get the largest.
            uneven.unwrap_or(input.max(output)).div_ceil(size)
        }
        _ => either,
    };
    let count = match collective.is_barrier() {
        true => 0,
        false => count.clamp(1, MAX_NUMEL / size),
    };
    // Programs are shared between ranks: who passes none passes one that nobody looks at.
    let whole = count.saturating_mul(size);
    let (input, output) = match collective {
        Collective::Barrier | Collective::MonitoredBarrier { .. } => (None, None),
        Collective::AllGather | Collective::Gather { .. } => (Some(count), Some(whole)),
        Collective::ReduceScatter { .. } | Collective::Scatter { .. } => (Some(whole), Some(count)),
        Collective::AllToAll => (Some(whole), Some(whole)),
        _ => (None, Some(count)),
    };
    let input = input.map(|numel| tensors.of(plan, dtype, numel));
    let output = output.map(|numel| tensors.of(plan, dtype, numel));
    Call::collective_of(group, collective, count, input, output)
}

fn collective_of(called: &Called, assumed: &mut BTreeSet<Assumption>) -> Collective {
    let op = called.op.strip_suffix("_coalesced").unwrap_or(&called.op);
    let mut reduction = || {
        called.reduce_op.unwrap_or_else(|| {
            assumed.insert(Assumption::Sums);
            ReduceOp::Sum
        })
    };
    match op {
        "all_reduce" => return Collective::AllReduce { op: reduction() },
        "reduce_scatter" => return Collective::ReduceScatter { op: reduction() },
        _ => {}
    }
    let reduce = (op == "reduce").then(reduction);
    let mut root = || {
        called.root.unwrap_or_else(|| {
            assumed.insert(Assumption::FirstRankIsRoot);
            GroupRank(0)
        })
    };
    match (op, reduce) {
        ("reduce", Some(op)) => Collective::Reduce { op, root: root() },
        ("broadcast", _) => Collective::Broadcast { root: root() },
        ("gather", _) => Collective::Gather { root: root() },
        ("scatter", _) => Collective::Scatter { root: root() },
        ("all_gather", _) => Collective::AllGather,
        ("all_to_all", _) => Collective::AllToAll,
        ("barrier", _) => Collective::Barrier,
        ("monitored_barrier", _) => Collective::MonitoredBarrier { wait_all_ranks: false },
        (op, _) => {
            assumed.insert(Assumption::UnknownCall { op: op.to_owned() });
            Collective::Barrier
        }
    }
}
