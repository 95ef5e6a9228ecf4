//! The results of collectives, by NCCL's own and by the plan's schedules, with a process a rank and
//! with logical ranks on one device.

use crate::cases::{by_all, check_bits, check_promise, every_collective, plan_of};
use crate::{Machine, assert_completed, result};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, PlanBuilder, TensorCopy};
use lockstep_core::reduce::{Factor, ReduceOp, allowed};
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::TensorValue;
use lockstep_gpu_exec::Sharing;

#[test]
fn nccls_own_collectives_give_what_they_promise() {
    for n in [1, 3] {
        let calls = [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max]
            .iter()
            .flat_map(|op| every_collective(n, *op))
            .map(|call| (call, Algorithm::default_of(call, BackendName::Nccl), Dtype::Int64, 13));
        let (plan, cases) = plan_of(n, BackendName::Nccl, Fill::Iota, calls);
        check_promise(&Machine::new().run(plan), n, &cases);
    }
}

#[test]
fn every_type_and_operation_that_nccl_has_reaches_it() {
    let half = ReduceOp::PremulSum(Factor::new(0.5).unwrap());
    let ops = ReduceOp::ALL.into_iter().chain([half]);
    let calls = ops.flat_map(|op| {
        let types = Dtype::COMPUTABLE.into_iter();
        let types = types.filter(move |dtype| allowed(BackendName::Nccl, op, *dtype).is_ok());
        types.map(move |dtype| (Collective::AllReduce { op }, Algorithm::Ring, dtype, 33))
    });
    let (plan, cases) = plan_of(2, BackendName::Nccl, Fill::Iota, calls);
    assert!(cases.len() > 60, "{}", cases.len());
    // Two ranks add in one order only: what the ring leaves is what anybody would.
    check_bits(&Machine::new().run(plan), 2, &cases);
}

#[test]
fn schedules_leave_the_bits_of_every_algorithm() {
    for n in [2, 3, 4] {
        let calls = every_collective(n, ReduceOp::Sum).map(|call| (call, 101));
        let calls = by_all(n, Dtype::Float32, calls);
        let (plan, cases) = plan_of(n, BackendName::Nccl, Fill::Seeded { seed: 7 }, calls);
        let one_process = Machine::new().sharing(Sharing::OneProcess);
        check_bits(&one_process.run(plan.clone()), n, &cases);
        if n == 3 {
            check_bits(&Machine::new().by_schedules().run(plan), n, &cases);
        }
    }
}

/// The text of the kernels against core, with numbers that round, overflow and are none.
#[test]
fn kernels_reduce_every_type_as_core_does() {
    let factor = ReduceOp::PremulSum(Factor::new(0.3).unwrap());
    let ops = ReduceOp::ALL.into_iter().chain([factor]);
    let calls: Vec<_> = ops
        .flat_map(|op| {
            let types = Dtype::COMPUTABLE.into_iter().filter(move |dtype| op.supports(*dtype));
            types.map(move |dtype| (Collective::AllReduce { op }, Algorithm::Ring, dtype, 1000))
        })
        .collect();
    assert!(calls.len() > 80, "{}", calls.len());
    for fill in [Fill::Seeded { seed: 3 }, Fill::Iota] {
        let (plan, cases) = plan_of(3, BackendName::Nccl, fill, calls.iter().copied());
        check_bits(&Machine::new().sharing(Sharing::OneProcess).run(plan), 3, &cases);
    }
}

/// All pairs of 16-bit and 8-bit floats' patterns that a tensor of random bytes holds: infinities,
/// subnormals and NaNs of every kind.
#[test]
fn kernels_reduce_patterns_that_no_number_has() {
    let n = 2;
    let floats = Dtype::COMPUTABLE.into_iter().filter(|dtype| dtype.is_float());
    for dtype in floats {
        let numel = 1 << 12;
        let mut plan = PlanBuilder::new("patterns", n, BackendName::Nccl).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes: Vec<u8> = (0..2 * numel * dtype.size_bytes())
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        // A copy inside the rank reduces too: `into = into op from`.
        let mut pairs = Vec::new();
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
            let into = plan.tensor("into", dtype, numel, Fill::Data);
            let from = plan.tensor("from", dtype, numel, Fill::Data);
            pairs.push((op, into, from));
        }
        let plan = plan.every_rank(|_, program| {
            for (op, into, from) in &pairs {
                program.push(Action::Copy(Box::new(TensorCopy {
                    group: GroupId::WORLD,
                    from: *from,
                    from_offset: 0,
                    into: *into,
                    into_offset: 0,
                    count: numel,
                    reduce: Some(*op),
                })));
            }
            program.barrier(GroupId::WORLD);
        });
        let mut plan = plan.unwrap();
        for (_, into, from) in &pairs {
            plan.tensors[into.index()].data.0 = first.to_vec();
            plan.tensors[from.index()].data.0 = second.to_vec();
        }
        let trace = Machine::new().sharing(Sharing::OneProcess).run(plan);
        assert_completed(&trace);
        for (op, into, _) in pairs {
            let mut expected = first.to_vec();
            lockstep_core::reduce::combine(dtype, op, &mut expected, second);
            let held = result(&trace, 0, into);
            assert!(*held == TensorValue::of(&expected), "{op} of {dtype}");
        }
    }
}
