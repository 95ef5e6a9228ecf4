//! A plan written as GOAL and read back: the same messages, and it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule};
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_formats::goal;
use lockstep_sim::{SimConfig, simulate};
use std::collections::BTreeMap;

fn run(plan: &Plan) -> Trace {
    let trace = simulate(plan, &SimConfig::default()).unwrap();
    let outcome = trace.end.as_ref().map(|end| end.outcome.clone());
    assert_eq!(outcome, Some(Outcome::Completed), "{}", plan.name);
    trace
}

/// By sender and receiver, the bytes of every message, sorted.
fn messages(plan: &Plan) -> BTreeMap<(u32, u32), Vec<u64>> {
    let mut found: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
    for event in &run(plan).events {
        if let What::Sent { peer, bytes, .. } = event.what {
            found.entry((event.rank.0, peer.0)).or_default().push(bytes);
        }
    }
    found.values_mut().for_each(|sizes| sizes.sort_unstable());
    found
}

fn assert_comes_back(plan: &Plan) {
    let text = goal::write(plan).unwrap_or_else(|error| panic!("{}: {error}", plan.name));
    assert!(goal::looks_like_goal(text.as_bytes()));
    let back = goal::read("back.goal", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(messages(&back.plan), messages(plan), "{}\n{text}", plan.name);
    assert_eq!(back.held_back, 0, "{}\n{text}", plan.name);
}

/// When the last rank has finished, in nanoseconds.
fn end_ns(plan: &Plan) -> u64 {
    run(plan).events.iter().map(|event| event.time_ps).max().unwrap_or(0) / 1000
}

#[test]
fn every_family_comes_back_with_its_messages() {
    let collectives = Collective::every(ReduceOp::Sum, GroupRank(1));
    for size in 2..=9 {
        for collective in collectives {
            for &algorithm in Algorithm::of(collective) {
                let mut lab = CollectiveLab::new(collective, size, 37);
                lab.algorithm = algorithm;
                let plan = lab.plan().unwrap();
                let schedule = Schedule::new(collective, algorithm, size).unwrap();
                if schedule.participants() > size {
                    assert!(goal::write(&plan).is_err());
                    continue;
                }
                assert_comes_back(&plan);
                let back = goal::read("back.goal", &goal::write(&plan).unwrap()).unwrap().plan;
                let (there, here) = (end_ns(&plan), end_ns(&back));
                // What a step does inside its rank takes no time in GOAL.
                let apart = here.abs_diff(there);
                assert!(apart <= 30, "{}: {there} ns, and as GOAL {here}", plan.name);
            }
        }
    }
}

/// Groups side by side, calls in the background, messages of users with tags and from any source.
#[test]
fn a_program_of_everything_comes_back() {
    let mut builder = PlanBuilder::new("everything", 4, BackendName::Host).unwrap();
    let evens = ProcessGroup::new("evens", BackendName::Host, vec![GlobalRank(0), GlobalRank(2)]);
    let evens = builder.group(evens.unwrap());
    let grad = builder.tensor("grad", Dtype::Float32, 100, Fill::Iota);
    let small = builder.tensor("small", Dtype::Float32, 3, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = builder
        .every_rank(|rank, program| {
            let world = GroupId::WORLD;
            let first = program.async_op().collective(world, sum, 100, None, Some(grad));
            program.compute("forward", 500);
            if rank.0.is_multiple_of(2) {
                program.collective(evens, sum, 3, None, Some(small));
            }
            program.wait(first);
            let call = |tag, peer, sends| match sends {
                true => Call::Send { group: world, peer: GroupRank(peer), tensor: small, tag },
                false => {
                    Call::Recv { group: world, peer: Some(GroupRank(peer)), tensor: small, tag }
                }
            };
            let (next, previous) = ((rank.0 + 1) % 4, (rank.0 + 3) % 4);
            program.coalesced(vec![call(7, next, true), call(7, previous, false)]);
            if rank.0 == 3 {
                program.call(Call::Recv { group: world, peer: None, tensor: small, tag: 9 });
            } else if rank.0 == 1 {
                program.call(call(9, 3, true));
            }
            program.barrier(world);
            program.collective(world, sum, 100, None, Some(grad));
        })
        .unwrap();
    let text = goal::write(&plan).unwrap();
    let back = goal::read("back.goal", &text).unwrap();
    assert_eq!(messages(&back.plan), messages(&plan), "{text}");
}
