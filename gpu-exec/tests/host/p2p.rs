//! Sends and receives.

use crate::{assert_completed, events_of, options, result, run, run_with};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Fill, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{Outcome, TensorValue, What};
use lockstep_diagnosis::{Kind, diagnose_trace};
use lockstep_gpu_exec::RunOptions;
use std::time::Duration;

const WORLD: GroupId = GroupId::WORLD;

fn int32(values: impl Iterator<Item = i32>) -> TensorValue {
    TensorValue::of(&values.flat_map(i32::to_le_bytes).collect::<Vec<u8>>())
}

#[test]
fn a_pipeline_passes_a_tensor_on() {
    let mut plan = PlanBuilder::new("pipeline", 3, BackendName::Host).unwrap();
    // Larger than a ring.
    let numel = 400_000;
    let tensor = plan.tensor("t", Dtype::Int32, numel, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| {
            if rank.0 > 0 {
                program.recv(WORLD, GroupRank(rank.0 - 1), tensor);
            }
            if rank.0 < 2 {
                program.send(WORLD, GroupRank(rank.0 + 1), tensor);
            }
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    for rank in 0..3 {
        assert_eq!(*result(&trace, rank, tensor), int32(0..numel as i32));
    }
}

#[test]
fn both_ways_at_once_and_tags_in_any_order() {
    let mut plan = PlanBuilder::new("tags", 2, BackendName::Host).unwrap();
    let members = vec![GlobalRank(1), GlobalRank(0)];
    let swapped = plan.group(ProcessGroup::new("swapped", BackendName::Host, members).unwrap());
    let out = plan.tensor("out", Dtype::Int32, 300_000, Fill::Iota);
    let back: Vec<_> = (0..4)
        .map(|tag| plan.tensor(format!("in{tag}"), Dtype::Int32, 300_000, Fill::Zeros))
        .collect();
    let plan = plan
        .every_rank(|rank, program| {
            // Members are swapped: the other one has this rank's number.
            let peer = GroupRank(rank.0);
            let group = swapped;
            let mut calls = Vec::new();
            for tag in 0..4 {
                program.async_op();
                calls.push(program.call(Call::Send { group, peer, tensor: out, tag }));
            }
            for tag in [2, 0, 3, 1] {
                let tensor = back[tag as usize];
                program.async_op();
                calls.push(program.call(Call::Recv { group, peer: Some(peer), tensor, tag }));
            }
            calls.into_iter().rev().for_each(|call| {
                program.wait(call);
            });
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    for rank in 0..2i32 {
        let start = (1 - rank) * 300_000;
        for tensor in &back {
            assert_eq!(*result(&trace, rank as u32, *tensor), int32(start..start + 300_000));
        }
    }
}

#[test]
fn a_send_does_not_complete_before_its_receive() {
    let mut plan = PlanBuilder::new("rendezvous", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Int32, 1, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| match rank.0 {
            0 => {
                program.send(WORLD, GroupRank(1), tensor);
            }
            _ => {
                program.sleep("late", 100_000_000);
                program.recv(WORLD, GroupRank(0), tensor);
            }
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    let completed = events_of(&trace, 0).find(|e| matches!(e.what, What::Completed { .. }));
    assert!(completed.unwrap().time_ps >= 100_000_000_000);
}

#[test]
fn sends_that_wait_for_each_other_hang() {
    let mut plan = PlanBuilder::new("unsafe", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Int32, 1, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| {
            program.send(WORLD, GroupRank(1 - rank.0), tensor);
            program.recv(WORLD, GroupRank(1 - rank.0), tensor);
        })
        .unwrap();
    let options = RunOptions { timeout: Some(Duration::from_millis(300)), ..options() };
    let trace = run_with(plan, options);
    assert_eq!(trace.end.unwrap().outcome, Outcome::TimedOut);
}

#[test]
fn what_a_receive_from_any_source_has_no_room_for_is_told_of_both_sides() {
    let mut plan = PlanBuilder::new("sizes", 2, BackendName::Gloo).unwrap();
    let small = plan.tensor("small", Dtype::Int32, 4, Fill::Zeros);
    let large = plan.tensor("large", Dtype::Int32, 8, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| match rank.0 {
            0 => {
                program.call(Call::Recv { group: WORLD, peer: None, tensor: small, tag: 0 });
            }
            _ => {
                program.send(WORLD, GroupRank(0), large);
            }
        })
        .unwrap();
    let options = RunOptions { timeout: Some(Duration::from_millis(300)), ..options() };
    let report = diagnose_trace(&run_with(plan, options));
    let told: Vec<_> = report.findings.iter().map(|it| (it.kind, &*it.culprits)).collect();
    let pair = [GlobalRank(0), GlobalRank(1)];
    assert_eq!(told, [(Kind::P2pMismatch, &pair[..])], "{}", report.to_text());
}
