//! Refusals of plans, with the place that each names.

use super::*;
use crate::group::BackendName;
use crate::plan::binary::PLAN_MAGIC;
use crate::plan::{CollectiveLab, Fill, PlanBuilder, ProgramBuilder};
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use proptest::prelude::*;

const WORLD: GroupId = GroupId::WORLD;

/// A broadcast of a few ranks.
fn broadcast() -> Plan {
    CollectiveLab::new(Collective::Broadcast { root: GroupRank(1) }, 4, 8).plan().unwrap()
}

fn refusal(write: impl Fn(&mut ProgramBuilder, TensorId)) -> String {
    let mut plan = PlanBuilder::new("p", 4, BackendName::Host).unwrap();
    let x = plan.tensor("x", Dtype::Float32, 8, Fill::Zeros);
    let source = plan.source("train.py", "");
    let plan = plan.every_rank(|_, program| write(program.line(source, 7), x));
    plan.unwrap_err().to_string()
}

#[test]
fn refusals_say_who_where_and_what_would_be_right() {
    insta::assert_snapshot!([
        PlanBuilder::new("p", 0, BackendName::Host).unwrap_err().to_string(),
        refusal(|program, x| {
            let root = GroupRank(4);
            program.collective(WORLD, Collective::Broadcast { root }, 8, None, Some(x));
        }),
        refusal(|program, x| {
            program.collective(WORLD, Collective::AllGather, 8, Some(x), Some(x));
        }),
        refusal(|program, x| {
            let op = ReduceOp::Band;
            program.collective(WORLD, Collective::AllReduce { op }, 8, None, Some(x));
        }),
        refusal(|program, _| {
            program.collective(GroupId(3), Collective::Barrier, 0, None, None);
        }),
        refusal(|program, x| {
            program.send(WORLD, GroupRank(0), x);
        }),
        refusal(|program, _| {
            program.barrier(WORLD);
            program.wait(0);
        }),
        refusal(|program, _| {
            program.wait(5);
        }),
    ].join("\n"), @r#"
world_size is 0; a job needs at least one rank
rank 0, operation 0 (broadcast) at train.py:7: broadcast: root 4 is outside the group of 4 ranks (0 to 3)
rank 0, operation 0 (all_gather) at train.py:7: its output "x" has 8 elements, but 8 a rank in a group of 4 need 32
rank 0, operation 0 (all_reduce) at train.py:7: ReduceOp.BAND does not work on float32
rank 0, operation 0 (barrier) at train.py:7: the plan has no group 3
rank 0, operation 0 (send) at train.py:7: a rank cannot send to or receive from itself
rank 0, operation 1 (wait) at train.py:7: operation 0 is not asynchronous
rank 0, operation 0 (wait) at train.py:7: there is no earlier operation 5 to wait for
"#);
}

/// No executor has a moment in which a call could complete within no time.
#[test]
fn a_timeout_of_0_is_refused_where_it_is_read() {
    let plan = broadcast().to_json();
    let timed = |ms: u64| {
        let mut plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        plan["groups"][0]["timeout_ms"] = ms.into();
        Plan::read(plan.to_string().as_bytes())
    };
    assert!(timed(1).is_ok());
    let error = timed(0).unwrap_err().to_string();
    assert!(error.contains("group \"0\" has timeout_ms 0") && error.contains("give 1"), "{error}");
    let waits = refusal(|program, x| {
        let broadcast = Collective::Broadcast { root: GroupRank(0) };
        let op = program.async_op().collective(WORLD, broadcast, 8, None, Some(x));
        program.push(Action::Wait { op, timeout_ms: Some(0) });
    });
    assert!(waits.contains("(wait) at train.py:7") && waits.contains("null"), "{waits}");
}

#[test]
fn other_versions_are_refused() {
    let plan = broadcast();
    let other = plan.to_json().replace("lockstep.plan/2", "lockstep.plan/1");
    let error = Plan::from_json(&other).unwrap_err().to_string();
    assert!(error.contains("\"lockstep.plan/1\""), "{error}");
    let mut other = plan.to_bytes();
    other[7] = 9;
    let error = Plan::from_bytes(&other).unwrap_err().to_string();
    assert!(error.contains("binary version is 9"), "{error}");
}

/// The plan of one barrier in a helper of line 2, which line 7 of `main` and line 9 of the module have called.
fn called_by_two() -> Plan {
    let mut plan = PlanBuilder::new("p", 2, BackendName::Host).unwrap();
    let source = plan.source("train.py", "");
    let lines = || [7, 9].map(|line| SourceLine { source, line });
    let called_from = plan.callers(lines());
    assert_eq!(plan.callers(lines()), called_from, "equal lists are one");
    assert_eq!(plan.callers([]), None);
    plan.every_rank(|_, program| {
        program.line(source, 2).called_from(called_from).barrier(WORLD);
    })
    .unwrap()
}

#[test]
fn callers_survive_both_forms_and_are_in_the_calls_stack() {
    let plan = called_by_two();
    assert_eq!(plan.callers.len(), 1);
    for read in [Plan::from_json(&plan.to_json()), Plan::from_bytes(&plan.to_bytes())] {
        assert_eq!(read.unwrap(), plan);
    }
    let stack = plan.call(GlobalRank(1), 0, 0, 1).unwrap().stack;
    assert_eq!(stack.iter().map(|frame| frame.line).collect::<Vec<_>>(), [2, 7, 9]);
    // A plan that was written before there were callers.
    let mut old: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
    old.as_object_mut().unwrap().remove("callers");
    old["programs"][0]["ops"][0].as_object_mut().unwrap().remove("called_from");
    assert_eq!(
        Plan::read(old.to_string().as_bytes()).unwrap().programs[0].ops[0].called_from,
        None
    );
}

#[test]
fn callers_that_are_not_there_or_too_many_are_refused() {
    let changed = |change: fn(&mut Plan)| {
        let mut plan = called_by_two();
        change(&mut plan);
        Plan::read(&plan.to_bytes()).unwrap_err().to_string()
    };
    let unknown = changed(|plan| plan.callers.clear());
    assert!(
        unknown.contains("(barrier) at train.py:2: the plan has no list of callers 0"),
        "{unknown}"
    );
    let of_no_text = changed(|plan| plan.callers[0].0[1].source = 5);
    assert!(of_no_text.contains("that names a source that it does not have"), "{of_no_text}");
    let deep = changed(|plan| plan.callers[0].0 = vec![SourceLine { source: 0, line: 1 }; 33]);
    assert!(deep.contains("over its limit"), "{deep}");
}

proptest! {
    #[test]
    fn no_bytes_panic_the_reader(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Plan::read(&tail);
        let _ = Plan::read(&[&PLAN_MAGIC[..], &tail].concat());
    }

    #[test]
    fn a_damaged_plan_is_refused_or_still_a_plan(at in any::<prop::sample::Index>(), byte: u8) {
        let plan = broadcast();
        let mut bytes = plan.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(plan) = Plan::read(&bytes) {
            plan.check().unwrap();
        }
        prop_assert!(Plan::read(&bytes[..at]).is_err());
    }
}
