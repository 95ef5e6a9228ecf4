//! Concurrency of the program, the compute stream, the communication streams.

use crate::{Machine, assert_completed, options, result};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Origin, TensorValue, Trace, What};
use lockstep_gpu_exec::{RunOptions, Sharing, run_to_trace};
use std::time::Duration;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// A machine for each way to carry a plan out.
fn every_way() -> [Machine; 3] {
    [Machine::new(), Machine::new().by_schedules(), Machine::new().sharing(Sharing::OneProcess)]
}

/// When something first happened on a rank.
fn when(trace: &Trace, rank: u32, wanted: impl Fn(&What) -> bool) -> u64 {
    let found = trace.events.iter().find(|e| e.rank == GlobalRank(rank) && wanted(&e.what));
    found.unwrap().time_ps
}

#[test]
fn a_trace_says_what_carried_it_out() {
    let mut plan = PlanBuilder::new("one", 2, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let plan = plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
    });
    let plan = plan.unwrap();
    let device = |machine: Machine| {
        let trace = machine.run(plan.clone());
        assert_completed(&trace);
        match trace.header.origin {
            Origin::Run { backend, device } => {
                assert_eq!(backend, "nccl");
                device
            }
            other => panic!("{other:?}"),
        }
    };
    let words = "[stand-in built by Lockstep's tests: the CPU, no GPU]";
    let gpu = "stand-in for a GPU (sm_90, CUDA 13.0";
    let two = device(Machine::new());
    assert!(two.starts_with(&format!("2 × {gpu}")), "{two}");
    assert!(two.ends_with(&format!(", NCCL 2.28.0 {words}")), "{two}");
    let one = device(Machine::new().sharing(Sharing::OneProcess));
    assert!(one.starts_with(&format!("2 logical ranks on one {gpu}")), "{one}");
    assert!(one.ends_with(&format!(", no NCCL {words}")), "{one}");
}

/// DDP's pattern: a bucket is reduced while the next layer computes, and the program waits for
/// neither until it synchronises.
fn overlapping() -> (Plan, u32) {
    let mut plan = PlanBuilder::new("overlap", 2, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("bucket", Dtype::Float32, 1000, Fill::Rank);
    let mut last = 0;
    let plan = plan.every_rank(|_, program| {
        program.compute("layer 2", 30_000_000);
        let reduced = program.async_op().collective(GroupId::WORLD, SUM, 1000, None, Some(tensor));
        program.compute("layer 1", 30_000_000);
        program.wait(reduced);
        last = program.compute("optimizer", 1_000_000);
    });
    (plan.unwrap(), last)
}

#[test]
fn calls_follow_the_compute_stream_and_the_program_goes_ahead() {
    let (plan, last) = overlapping();
    for machine in every_way() {
        let trace = machine.run(plan.clone());
        assert_completed(&trace);
        for rank in 0..2 {
            let at = |wanted: What| when(&trace, rank, |what| *what == wanted);
            // The call begins behind the first layer, and the optimizer behind the call.
            assert!(at(What::StreamEnded { op: 0 }) <= at(What::Started { work: 0 }));
            assert!(at(What::Completed { work: 0 }) <= at(What::StreamBegan { op: last }));
            // The program has put everything on its streams before the first layer has ended.
            assert!(at(What::OpEnded { op: last }) < at(What::StreamEnded { op: 0 }));
            let times = trace.events.iter().filter(|event| event.rank == GlobalRank(rank));
            assert!(times.map(|event| event.time_ps).is_sorted());
        }
    }
}

#[test]
fn groups_pairs_and_batches_have_their_own_communicators() {
    let n = 3;
    let mut plan = PlanBuilder::new("many", n, BackendName::Nccl).unwrap();
    let members = vec![GlobalRank(2), GlobalRank(0)];
    let group = plan.group(ProcessGroup::new("some", BackendName::Nccl, members).unwrap());
    let world = plan.tensor("world", Dtype::Int64, 5, Fill::Rank);
    let some = plan.tensor("some", Dtype::Int64, 6, Fill::Rank);
    let sent = plan.tensor("sent", Dtype::Int64, 7, Fill::Rank);
    let got = plan.tensor("got", Dtype::Int64, 7, Fill::Zeros);
    let batched = plan.tensor("batched", Dtype::Int64, 7, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        program.collective(GroupId::WORLD, SUM, 5, None, Some(world));
        if rank.0 != 1 {
            program.collective(group, SUM, 6, None, Some(some));
        }
        // A pair by itself, then a ring in one batch.
        match rank.0 {
            0 => drop(program.send(GroupId::WORLD, GroupRank(1), sent)),
            1 => drop(program.recv(GroupId::WORLD, GroupRank(0), got)),
            _ => {}
        }
        let (next, last) = (GroupRank((rank.0 + 1) % n), GroupRank((rank.0 + n - 1) % n));
        let (world, tag) = (GroupId::WORLD, 0);
        program.coalesced(vec![
            Call::Send { group: world, peer: next, tensor: sent, tag },
            Call::Recv { group: world, peer: Some(last), tensor: batched, tag },
        ]);
        program.barrier(GroupId::WORLD);
    });
    let plan = plan.unwrap();
    let int64 = |value: i64, numel: usize| TensorValue::Bytes(value.to_le_bytes().repeat(numel));
    for machine in every_way() {
        let trace = machine.run(plan.clone());
        assert_completed(&trace);
        for rank in 0..n {
            assert_eq!(*result(&trace, rank, world), int64(3, 5));
            assert_eq!(*result(&trace, rank, batched), int64(((rank + n - 1) % n).into(), 7));
        }
        assert_eq!(*result(&trace, 0, some), int64(2, 6));
        assert_eq!(*result(&trace, 2, some), int64(2, 6));
        assert_eq!(*result(&trace, 1, got), int64(0, 7));
    }
}

/// On a group of another backend a call holds the program, as there is no stream to hold.
#[test]
fn groups_of_other_backends_hold_the_program() {
    let mut plan = PlanBuilder::new("held", 2, BackendName::Gloo).unwrap();
    let tensor = plan.tensor("t", Dtype::Int64, 8, Fill::Rank);
    let plan = plan.every_rank(|_, program| {
        program.compute("before", 5_000_000);
        program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
    });
    let trace = Machine::new().run(plan.unwrap());
    assert_completed(&trace);
    for rank in 0..2 {
        let at = |wanted: What| when(&trace, rank, |what| *what == wanted);
        assert!(at(What::StreamEnded { op: 0 }) <= at(What::OpEnded { op: 0 }));
        assert!(at(What::Completed { work: 0 }) <= at(What::OpEnded { op: 1 }));
    }
}

/// A stream takes some thousand commands that it has not come to; putting another one blocks inside the
/// driver, with every other caller. A rank that is far ahead of one that it waits for, in the same process,
/// must not get there: neither would ever go on.
#[test]
fn a_program_runs_ahead_of_its_streams_by_less_than_they_take() {
    let mut plan = PlanBuilder::new("ahead", 2, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Int64, 8, Fill::Rank);
    let plan = plan.every_rank(|rank, program| {
        if rank.0 == 1 {
            program.sleep("late", 300_000_000);
        }
        for _ in 0..400 {
            program.async_op().collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
    });
    let plan = plan.unwrap();
    let machine = Machine::new().sharing(Sharing::OneProcess);
    let options = RunOptions { timeout: Some(Duration::from_secs(20)), ..options() };
    let trace = run_to_trace(&machine.backend(), plan, options).unwrap();
    assert_completed(&trace);
}
