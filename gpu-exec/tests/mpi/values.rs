//! The results of collectives on 1, 2 and 4 ranks, for every collective, type and operation.
//!
//! Integers, and floats that are only moved or compared, must have `core`'s bits. MPI adds and
//! multiplies floats in an order of its own (that of the call's algorithm, which depends on size
//! and ranks): of two ranks there is only one order, so the bits are the same; of more, the
//! result of every order of n - 1 rounded additions is within γ(n-1)·Σ|x| of the exact sum, with
//! γ(k) = k·u / (1 - k·u) and u half the distance of 1 to the next number (Higham, "Accuracy and
//! Stability of Numerical Algorithms", section 4.2); of multiplications, within γ(n-1)·|Πx|. AVG and
//! PREMUL_SUM of floats round once more, when they scale.
//!
//! Sums of 8-bit and 16-bit integers that pass their range are left out: PyTorch's other backends
//! wrap, and so does MPICH; Open MPI 4.1 saturates where its operations use AVX, and wraps in what is
//! left of a vector (`ompi/mca/op/avx`; seen with 100 + 100 in int8: 127, and -56 at the end).

use crate::cases::{Case, check_bits, check_bits_where, check_promise, every_collective, plan_of};
use crate::{result, run};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, PlanBuilder, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{Factor, ReduceOp, combine, premultiplier, premultiply};
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{TensorValue, Trace};

fn default_of(call: Collective) -> Algorithm {
    Algorithm::default_of(call, BackendName::Host)
}

/// Every collective, also those that PyTorch's MPI group lacks.
#[test]
fn every_collective_gives_what_it_promises() {
    for n in [1, 2, 4] {
        let ops = [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
        let bitwise = [ReduceOp::Band, ReduceOp::Bor, ReduceOp::Bxor];
        let calls = ops.into_iter().chain(bitwise).flat_map(|op| every_collective(n, op));
        let calls = calls.map(|call| (call, default_of(call), Dtype::Int64, 13));
        let (plan, cases) = plan_of(n, BackendName::Host, Fill::Iota, calls);
        check_promise(&run(&plan), n, &cases);
    }
}

/// Two ranks have only one order of additions. Types that MPI lacks are refused, and not tested here. No sum
/// of 8-bit integers passes their range: the module's text says why.
#[test]
fn every_type_and_operation_has_cores_bits_among_two() {
    let half = ReduceOp::PremulSum(Factor::new(0.5).unwrap());
    let has_type =
        |dtype: &Dtype| !matches!(dtype, Dtype::Float16 | Dtype::Bfloat16) && !dtype.is_float8();
    let calls = ReduceOp::ALL.into_iter().chain([half]).flat_map(|op| {
        let types = Dtype::COMPUTABLE.into_iter().filter(has_type);
        let types = types.filter(move |dtype| op.supports(*dtype));
        let calls = |op| [Collective::AllReduce { op }, Collective::ReduceScatter { op }];
        types.flat_map(move |dtype| {
            let count = if dtype.size_bytes() == 1 { 21 } else { 33 };
            calls(op).map(|call| (call, Algorithm::Ring, dtype, count))
        })
    });
    let (plan, cases) = plan_of(2, BackendName::Host, Fill::Iota, calls);
    assert!(cases.len() > 100, "{}", cases.len());
    check_bits(&run(&plan), 2, &cases);
}

/// On a group of the backend mpi, with PyTorch's table.
#[test]
fn what_pytorchs_table_has_has_cores_bits() {
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
    let types = [
        Dtype::Uint8,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Float32,
        Dtype::Float64,
    ];
    let calls = ops.into_iter().flat_map(|op| {
        types.into_iter().flat_map(move |dtype| {
            let calls = every_collective(2, op).into_iter();
            let calls = calls.filter(|call| !matches!(call, Collective::ReduceScatter { .. }));
            calls.map(move |call| (call, default_of(call), dtype, 21))
        })
    });
    let (plan, cases) = plan_of(2, BackendName::Mpi, Fill::Iota, calls);
    check_promised_bits(&run(&plan), 2, &cases);
}

/// Calls that only move data, in every type, and calls that compare, among four.
#[test]
fn what_moves_and_what_is_compared_has_cores_bits_among_four() {
    let moved = Dtype::COMPUTABLE.into_iter().flat_map(|dtype| {
        let calls = every_collective(4, ReduceOp::Sum).into_iter();
        let calls = calls.filter(|call| call.reduce_op().is_none());
        calls.map(move |call| (call, default_of(call), dtype, 17))
    });
    let compared = [ReduceOp::Min, ReduceOp::Max].into_iter().flat_map(|op| {
        [Dtype::Float32, Dtype::Float64]
            .map(|dtype| (Collective::AllReduce { op }, Algorithm::Ring, dtype, 100))
    });
    let fill = Fill::Seeded { seed: 11 };
    let (plan, cases) = plan_of(4, BackendName::Host, fill, moved.chain(compared));
    check_promised_bits(&run(&plan), 4, &cases);
}

/// Compares only the ranks that the collective promises a result: MPI leaves the others' tensors as they
/// were, while a schedule may have used them.
fn check_promised_bits(trace: &Trace, n: u32, cases: &[Case]) {
    check_bits_where(trace, n, cases, |collective, rank| collective.promises(rank));
}

/// Floats as numbers.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        Dtype::Float32 => {
            bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
        }
        _ => bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
    }
}

/// See the module. `reference` is what one order gives: it is as far from the exact result as MPI's
/// may be, so that both together may be twice as far apart.
fn bound(op: ReduceOp, dtype: Dtype, passed: &[f64], reference: f64) -> f64 {
    let u = if dtype == Dtype::Float32 { 2f64.powi(-24) } else { 2f64.powi(-53) };
    let k = (passed.len() - 1) as f64;
    let gamma = k * u / (1.0 - k * u);
    match op {
        ReduceOp::Product => 2.0 * gamma / (1.0 - gamma) * reference.abs(),
        _ => 2.0 * gamma * passed.iter().map(|x| x.abs()).sum::<f64>(),
    }
}

/// More than two ranks add in MPI's order.
#[test]
fn floats_among_four_are_within_the_bound_of_any_order() {
    let (n, numel) = (4, 5000);
    let factor = ReduceOp::PremulSum(Factor::new(0.3).unwrap());
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Avg, factor];
    let mut plan = PlanBuilder::new("floats", n, BackendName::Host).unwrap();
    let mut calls: Vec<(ReduceOp, Dtype, TensorId)> = Vec::new();
    for op in ops {
        for dtype in [Dtype::Float32, Dtype::Float64] {
            calls.push((op, dtype, plan.tensor("t", dtype, numel, Fill::Seeded { seed: 5 })));
        }
    }
    let plan = plan.every_rank(|_, program| {
        for (op, _, tensor) in &calls {
            let all_reduce = Collective::AllReduce { op: *op };
            program.collective(GroupId::WORLD, all_reduce, numel, None, Some(*tensor));
        }
    });
    let plan = plan.unwrap();
    let trace = run(&plan);
    for (op, dtype, tensor) in calls {
        let passed: Vec<Vec<u8>> = (0..n)
            .map(|rank| {
                let mut bytes = initial_bytes(&plan.tensors[tensor.index()], GlobalRank(rank));
                if let Some(factor) = premultiplier(op, dtype, n) {
                    premultiply(dtype, factor, &mut bytes);
                }
                bytes
            })
            .collect();
        let mut reference = passed[0].clone();
        passed[1..].iter().for_each(|other| combine(dtype, op, &mut reference, other));
        let passed: Vec<Vec<f64>> = passed.iter().map(|bytes| numbers(dtype, bytes)).collect();
        let TensorValue::Bytes(first) = result(&trace, 0, tensor) else { panic!("too large") };
        for rank in 1..n {
            assert_eq!(result(&trace, rank, tensor), result(&trace, 0, tensor), "rank {rank}");
        }
        let pairs = numbers(dtype, first).into_iter().zip(numbers(dtype, &reference));
        for (at, (held, reference)) in pairs.enumerate() {
            let passed: Vec<f64> = passed.iter().map(|rank| rank[at]).collect();
            let bound = bound(op, dtype, &passed, reference);
            assert!((held - reference).abs() <= bound, "{op} of {dtype}[{at}]: {passed:?} {held}");
        }
    }
}

/// Groups of some ranks, in an order of their own, beside each other and overlapping.
#[test]
fn groups_have_communicators_of_their_own() {
    let mut plan = PlanBuilder::new("groups", 4, BackendName::Host).unwrap();
    let ranks = |ranks: &[u32]| ranks.iter().map(|rank| GlobalRank(*rank)).collect::<Vec<_>>();
    let mut made = Vec::new();
    for (name, members) in [("backwards", &[3, 1, 0][..]), ("even", &[0, 2]), ("odd", &[1, 3])] {
        let group = ProcessGroup::new(name, BackendName::Host, ranks(members)).unwrap();
        let id = plan.group(group);
        let input = plan.tensor("in", Dtype::Int32, 3, Fill::Iota);
        let output = plan.tensor("out", Dtype::Int32, 3 * members.len() as u64, Fill::Zeros);
        made.push((id, members, input, output));
    }
    let plan = plan.every_rank(|rank, program| {
        for (id, members, input, output) in &made {
            if members.contains(&rank.0) {
                let gather = Collective::AllGather;
                program.collective(*id, gather, 3, Some(*input), Some(*output));
            }
        }
    });
    let trace = run(&plan.unwrap());
    for (_, members, _, output) in made {
        let gathered = members.iter().flat_map(|rank| (0..3).map(move |i| (rank * 3 + i) as i32));
        let expected: Vec<u8> = gathered.flat_map(i32::to_le_bytes).collect();
        for rank in members {
            let held = result(&trace, *rank, output);
            assert_eq!(*held, TensorValue::Bytes(expected.clone()), "rank {rank}");
        }
    }
}
