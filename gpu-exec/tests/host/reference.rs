//! The expected results of collectives, computed in the plainest way: a schedule re-executed one
//! message after the other in one memory, and for integers arithmetic that knows no schedule.

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, Tensor};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{ReduceOp, combine, divide, divisor, premultiplier, premultiply};
use lockstep_core::schedule::{Action, Algorithm, Buffer, Layout, Schedule, Slice};

/// The output of every rank of a world of `n`, or `None` where a rank has none. Inputs and
/// outputs are filled by their tensors.
pub(crate) fn re_execute(
    collective: Collective,
    algorithm: Algorithm,
    n: u32,
    count: u64,
    input: Option<&Tensor>,
    output: Option<&Tensor>,
    dtype: Dtype,
) -> Vec<Vec<u8>> {
    let schedule = Schedule::new(collective, algorithm, n).unwrap();
    // In as many segments as a plan that names none has.
    let schedule = schedule.sized(count * dtype.size_bytes());
    let layout = Layout::new(schedule.clone(), count, dtype.size_bytes());
    let size = dtype.size_bytes() as usize;
    let make = |tensor: Option<&Tensor>, rank: u32| {
        tensor.map(|tensor| initial_bytes(tensor, GlobalRank(rank))).unwrap_or_default()
    };
    // [input, output, scratch] of every rank.
    let mut memory: Vec<[Vec<u8>; 3]> = (0..n)
        .map(|rank| {
            let scratch = layout.grid(GroupRank(rank), Buffer::Scratch).elements as usize;
            let mut memory = [make(input, rank), make(output, rank), vec![0; scratch * size]];
            let factor = collective.reduce_op().and_then(|op| premultiplier(op, dtype, n));
            if let Some(factor) = factor {
                premultiply(dtype, factor, &mut memory[usize::from(collective.in_place())]);
            }
            memory
        })
        .collect();
    let which = |buffer| match buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    };
    let bytes = |rank: u32, slice: Slice| {
        let range = layout.range(GroupRank(rank), slice);
        range.start as usize * size..range.end as usize * size
    };
    let mut actions = Vec::new();
    for step in 0..schedule.steps() {
        let mut messages: Vec<(u32, u32, Vec<u8>)> = Vec::new();
        for rank in 0..n {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                if let Action::Send { peer, from } = *action {
                    let sent =
                        memory[rank as usize][which(from.buffer)][bytes(rank, from)].to_vec();
                    messages.push((rank, peer.0, sent));
                }
            }
        }
        for rank in 0..n {
            let me = rank as usize;
            // Messages between two ranks are received in the order in which they were sent.
            let mut came = |from: GroupRank| {
                let next = messages.iter().position(|(f, to, _)| *f == from.0 && *to == rank);
                messages.remove(next.unwrap()).2
            };
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                let (into, value) = match *action {
                    Action::Send { .. } => continue,
                    Action::Copy { from, into } => {
                        (into, memory[me][which(from.buffer)][bytes(rank, from)].to_vec())
                    }
                    Action::Reduce { local, from, into } => {
                        let mut own = memory[me][which(local.buffer)][bytes(rank, local)].to_vec();
                        let other = memory[me][which(from.buffer)][bytes(rank, from)].to_vec();
                        if let Some(op) = collective.reduce_op() {
                            combine(dtype, op, &mut own, &other);
                        }
                        (into, own)
                    }
                    Action::Receive { peer, into } => (into, came(peer)),
                    Action::ReceiveReduce { peer, local, into } => {
                        let mut own = memory[me][which(local.buffer)][bytes(rank, local)].to_vec();
                        if let Some(op) = collective.reduce_op() {
                            combine(dtype, op, &mut own, &came(peer));
                        }
                        (into, own)
                    }
                };
                memory[me][which(into.buffer)][bytes(rank, into)].copy_from_slice(&value);
            }
        }
    }
    if let Some(divisor) = collective.reduce_op().and_then(|op| divisor(op, dtype, n)) {
        for rank in (0..n).filter(|rank| collective.promises(GroupRank(*rank))) {
            divide(dtype, &mut memory[rank as usize][1], divisor);
        }
    }
    memory.into_iter().map(|[_, output, _]| output).collect()
}

/// The promised result of an int64 collective on `rank` of `n`, without any schedule; inputs are `Iota`.
pub(crate) fn promised_int64(collective: Collective, n: u64, rank: u64, count: u64) -> Vec<i64> {
    // Element i of the tensor that `from` passes in, of `numel` elements.
    let passed = |from: u64, numel: u64, i: u64| (from * numel + i) as i64;
    let reduced = |op: ReduceOp, numel: u64, i: u64| -> i64 {
        let values = (0..n).map(|from| passed(from, numel, i));
        match op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Avg => values.sum::<i64>() / n as i64,
            ReduceOp::Product => values.fold(1, i64::wrapping_mul),
            ReduceOp::Min => values.min().unwrap(),
            ReduceOp::Max => values.max().unwrap(),
            ReduceOp::Band => values.fold(-1, |a, b| a & b),
            ReduceOp::Bor => values.fold(0, |a, b| a | b),
            ReduceOp::Bxor => values.fold(0, |a, b| a ^ b),
            ReduceOp::PremulSum(_) => unreachable!("integers have no PREMUL_SUM"),
        }
    };
    let all = || (0..n).flat_map(|from| (0..count).map(move |i| passed(from, count, i)));
    match collective {
        Collective::Broadcast { root } => {
            (0..count).map(|i| passed(root.0.into(), count, i)).collect()
        }
        Collective::AllReduce { op } | Collective::Reduce { op, .. } => {
            (0..count).map(|i| reduced(op, count, i)).collect()
        }
        Collective::AllGather | Collective::Gather { .. } => all().collect(),
        Collective::Scatter { root } => {
            (0..count).map(|i| passed(root.0.into(), count * n, rank * count + i)).collect()
        }
        Collective::ReduceScatter { op } => {
            (0..count).map(|i| reduced(op, count * n, rank * count + i)).collect()
        }
        Collective::AllToAll => (0..n)
            .flat_map(|from| (0..count).map(move |i| passed(from, count * n, rank * count + i)))
            .collect(),
        Collective::Barrier | Collective::MonitoredBarrier { .. } => Vec::new(),
    }
}

/// A tensor named after its purpose.
pub(crate) fn tensor(name: &str, dtype: Dtype, numel: u64, fill: Fill) -> Tensor {
    Tensor { name: name.into(), dtype, numel, fill, data: Default::default() }
}
