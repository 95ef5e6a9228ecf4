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
            // No recording holds the values.
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

/// The reduction and the root that members of a row tell; `None` where none tells it, or two tell different ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RowFacts {
    reduce_op: Option<ReduceOp>,
    root: Option<GroupRank>,
}

/// The facts of each row of which a member tells some.
pub(crate) fn row_facts(log: &CallLog) -> BTreeMap<(GroupId, u64), RowFacts> {
    let mut rows: BTreeMap<(GroupId, u64), (RowFacts, [bool; 2])> = BTreeMap::new();
    for record in log.logs().flat_map(|(_, own)| &own.calls).filter(|record| !record.call.p2p) {
        let (reduce_op, root) = (record.call.reduce_op, record.call.root);
        let Some(seq) = record.seq.filter(|_| reduce_op.is_some() || root.is_some()) else {
            continue;
        };
        let first = || (RowFacts { reduce_op, root }, [false; 2]);
        let (known, differ) = rows.entry((record.call.group, seq)).or_insert_with(first);
        differ[0] |= reduce_op.is_some() && known.reduce_op.is_some_and(|op| Some(op) != reduce_op);
        differ[1] |= root.is_some() && known.root.is_some_and(|known| Some(known) != root);
        known.reduce_op = known.reduce_op.or(reduce_op);
        known.root = known.root.or(root);
    }
    let agreed = |(row, (known, [ops, roots])): (_, (RowFacts, [bool; 2]))| {
        let reduce_op = known.reduce_op.filter(|_| !ops);
        (row, RowFacts { reduce_op, root: known.root.filter(|_| !roots) })
    };
    rows.into_iter().map(agreed).collect()
}

/// Beside a call, what the other members' calls of its row tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct OfRow {
    /// Its row's value of [`uneven_exchanges`].
    pub(crate) uneven: Option<u64>,
    /// Its row's value of [`row_facts`].
    pub(crate) facts: RowFacts,
}

/// A recorded call in a group of the plan.
pub(crate) fn call_of(
    called: &Called,
    (group, members): (GroupId, &ProcessGroup),
    (plan, tensors): (&mut PlanBuilder, &mut Tensors),
    OfRow { uneven, facts }: OfRow,
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
    let (mut input, mut output) = (numel(&called.inputs), numel(&called.outputs));
    if input.max(output) > MAX_NUMEL {
        assumed.insert(Assumption::HugeSizes);
        (input, output) = (1, 1);
    }
    let either = if input == 0 { output } else { input };
    if called.p2p {
        let tensor = tensors.of(plan, dtype, either);
        let tag = called.tag;
        return match (called.op.contains("send"), called.peer) {
            (true, peer) => Call::Send { group, peer: peer.unwrap_or(GroupRank(0)), tensor, tag },
            (false, peer) => Call::Recv { group, peer, tensor, tag },
        };
    }
    let collective = collective_of(called, facts, assumed);
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

fn collective_of(
    called: &Called,
    facts: RowFacts,
    assumed: &mut BTreeSet<Assumption>,
) -> Collective {
    let op = called.op.strip_suffix("_coalesced").unwrap_or(&called.op);
    let mut reduction = || {
        called.reduce_op.unwrap_or_else(|| {
            let by_rule = Assumption::Sums;
            assumed.insert(facts.reduce_op.map_or(by_rule, |_| Assumption::OfAnotherMember));
            facts.reduce_op.unwrap_or(ReduceOp::Sum)
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
            let by_rule = Assumption::FirstRankIsRoot;
            assumed.insert(facts.root.map_or(by_rule, |_| Assumption::OfAnotherMember));
            facts.root.unwrap_or(GroupRank(0))
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
