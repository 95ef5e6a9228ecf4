//! Plans of calls and what they must leave behind, for every backend.

use crate::reference::{promised_int64, re_execute, tensor};
use crate::{assert_completed, result};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, Tensor, TensorId};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule};
use lockstep_core::trace::{TensorValue, Trace};

/// One call of a plan, and its tensors.
pub(crate) struct Case {
    pub(crate) collective: Collective,
    algorithm: Algorithm,
    dtype: Dtype,
    count: u64,
    input: Option<(TensorId, Tensor)>,
    output: Option<(TensorId, Tensor)>,
}

/// The algorithms that need no switch: those that do are refused, see the limits.
fn algorithms(collective: Collective, n: u32) -> Vec<Algorithm> {
    let without_switch = |algorithm: &&Algorithm| {
        Schedule::new(collective, **algorithm, n).is_ok_and(|schedule| schedule.switches() == 0)
    };
    Algorithm::of(collective).iter().filter(without_switch).copied().collect()
}

/// A plan that makes all calls one after the other, each on tensors of its own.
pub(crate) fn plan_of(
    n: u32,
    backend: BackendName,
    fill: Fill,
    calls: impl IntoIterator<Item = (Collective, Algorithm, Dtype, u64)>,
) -> (Plan, Vec<Case>) {
    let mut plan = PlanBuilder::new("values", n, backend).unwrap();
    let mut cases = Vec::new();
    for (collective, algorithm, dtype, count) in calls {
        let count = if collective == Collective::Barrier { 0 } else { count };
        // The root passes the most: a shared program names its tensors on every rank.
        let most = |elements: fn(Collective, u32, GroupRank, u64) -> Option<u64>| {
            (0..n).filter_map(|rank| elements(collective, n, GroupRank(rank), count)).max()
        };
        let mut make = |name: &str, numel: Option<u64>, fill: Fill| {
            let made = tensor(name, dtype, numel?, fill);
            Some((plan.tensor(name, dtype, made.numel, fill), made))
        };
        let out_fill = if collective.in_place() { fill } else { Fill::Zeros };
        let input = make("in", most(Collective::input_elements), fill);
        let output = make("out", most(Collective::output_elements), out_fill);
        cases.push(Case { collective, algorithm, dtype, count, input, output });
    }
    let plan = plan
        .every_rank(|_, program| {
            for case in &cases {
                let id = |tensor: &Option<(TensorId, Tensor)>| tensor.as_ref().map(|t| t.0);
                program.collective_by(
                    GroupId::WORLD,
                    case.collective,
                    case.count,
                    id(&case.input),
                    id(&case.output),
                    Some(case.algorithm),
                );
            }
        })
        .unwrap();
    (plan, cases)
}

/// Every rank has the schedule's result, to the bit.
pub(crate) fn check_bits(trace: &Trace, n: u32, cases: &[Case]) {
    check_bits_where(trace, n, cases, |_, _| true);
}

/// The same of those ranks only that are looked at.
pub(crate) fn check_bits_where(
    trace: &Trace,
    n: u32,
    cases: &[Case],
    looked_at: impl Fn(Collective, GroupRank) -> bool,
) {
    assert_completed(trace);
    for case in cases {
        let Some((id, output)) = &case.output else { continue };
        let input = case.input.as_ref().map(|(_, tensor)| tensor);
        let (call, algorithm, dtype) = (case.collective, case.algorithm, case.dtype);
        let expected = re_execute(call, algorithm, n, case.count, input, Some(output), dtype);
        for rank in (0..n).filter(|rank| looked_at(call, GroupRank(*rank))) {
            assert!(
                *result(trace, rank, *id) == TensorValue::of(&expected[rank as usize]),
                "{dtype} {call:?} of {} by {algorithm} among {n}: rank {rank}",
                case.count
            );
        }
    }
}

/// Every rank has the result that the call promises, whatever the order of the additions: integers.
pub(crate) fn check_promise(trace: &Trace, n: u32, cases: &[Case]) {
    assert_completed(trace);
    for case in cases {
        let Some((id, _)) = case.output else { continue };
        for rank in (0..n).filter(|rank| case.collective.promises(GroupRank(*rank))) {
            let expected = promised_int64(case.collective, n.into(), rank.into(), case.count);
            let expected: Vec<u8> = expected.iter().flat_map(|v| v.to_le_bytes()).collect();
            let held = result(trace, rank, id);
            let call = case.collective;
            assert_eq!(*held, TensorValue::Bytes(expected), "{call:?} among {n}: rank {rank}");
        }
    }
}

/// Each call by each of its algorithms.
pub(crate) fn by_all(
    n: u32,
    dtype: Dtype,
    calls: impl IntoIterator<Item = (Collective, u64)>,
) -> Vec<(Collective, Algorithm, Dtype, u64)> {
    let each = |(call, count): (Collective, u64)| {
        algorithms(call, n).into_iter().map(move |by| (call, by, dtype, count))
    };
    calls.into_iter().flat_map(each).collect()
}

/// Every collective, rooted in the middle.
pub(crate) fn every_collective(n: u32, op: ReduceOp) -> [Collective; 9] {
    Collective::every(op, GroupRank((n - 1) / 2))
}
