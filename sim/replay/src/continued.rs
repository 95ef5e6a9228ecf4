//! A changed plan, simulated. Recordings of ranks end at different calls: where ranks wait for others whose recordings
//! are over, these are assumed to come to the call as well.

use crate::rank_programs::{holding, named, set_program, share_programs};
use lockstep_core::plan::{Op, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome as End, RankState};
use lockstep_core::watch::Watch;
use lockstep_diagnosis::{Finding, diagnose, who_waits};
use lockstep_sim::{SimConfig, simulate_calls};
use std::sync::Arc;

/// So many times the recordings of ranks are continued by calls that others wait for.
const CONTINUED: usize = 64;

/// An end of a changed job in the simulator.
pub(crate) enum Outcome {
    /// Everything completes.
    Completes,
    /// Something else is wrong with it.
    EndsIn(Box<Finding>),
    /// It neither completes nor has a finding; the sentence says why.
    Cannot(String),
    /// Its watch ended the simulation.
    Stopped,
}

/// Simulates a changed plan, and adds calls to it as long as that helps; `assumed` gets their names.
pub(crate) fn tried(plan: &mut Plan, assumed: &mut Vec<String>, watch: &mut dyn Watch) -> Outcome {
    for _ in 0..CONTINUED {
        let simulated = SimConfig::default()
            .for_calls_of(plan)
            .and_then(|config| simulate_calls(Arc::new(plan.clone()), &config, watch));
        let log = match simulated {
            Ok(simulated) => simulated.calls,
            Err(error) => {
                return Outcome::Cannot(format!("The changed plan cannot be simulated: {error}."));
            }
        };
        match log.outcome {
            End::Completed => return Outcome::Completes,
            End::Cancelled => return Outcome::Stopped,
            _ => {}
        }
        let added = continued(plan, &log);
        if added.is_empty() {
            return match diagnose(&log).findings.into_iter().next() {
                Some(finding) => Outcome::EndsIn(Box::new(finding)),
                None => Outcome::Cannot("Changed so, it does not complete.".to_owned()),
            };
        }
        for name in added {
            if !assumed.contains(&name) {
                assumed.push(name);
            }
        }
        share_programs(plan);
    }
    Outcome::Cannot(format!("Changed so, it does not complete after {CONTINUED} continuations."))
}

/// Adds to the programs of ranks that have finished the calls in which others wait for them; their names.
fn continued(plan: &mut Plan, log: &CallLog) -> Vec<String> {
    let mut added = Vec::new();
    let mut given: Vec<GlobalRank> = Vec::new();
    let mut waits = who_waits(log);
    // A rank comes to the calls of its smaller groups first: the world's close a step.
    waits.sort_by_key(|wait| wait.group.ranks.len());
    for wait in waits {
        let waiting = log.ranks.get(wait.rank.index()).and_then(Option::as_ref);
        let record = waiting.and_then(|own| own.calls.iter().find(|it| it.work == wait.work));
        let Some(op) = record.and_then(|record| record.plan_op) else { continue };
        for rank in wait.waits_for {
            let over = log.ranks.get(rank.index()).and_then(Option::as_ref);
            let over = over.is_some_and(|own| own.state == RankState::Finished);
            // One call at a time: what it unblocks may come first.
            if !over || given.contains(&rank) {
                continue;
            }
            let Some(op) = next_call(plan, (wait.rank, op), rank) else { continue };
            let Some(mut own) = plan.program(rank).cloned() else { continue };
            own.ops.push(op.clone());
            set_program(plan, rank, own);
            given.push(rank);
            let name = named(plan, &op);
            if !added.contains(&name) {
                added.push(name);
            }
        }
    }
    added
}

/// The call of a waiting rank's group that another rank has yet to make, at the latest the one that is waited in.
fn next_call(plan: &Plan, (waiting, at): (GlobalRank, u32), rank: GlobalRank) -> Option<Op> {
    let theirs = plan.program(waiting)?.ops.get(..=at as usize)?;
    let group = theirs.last()?.action.calls().first().filter(|call| !call.is_p2p())?.group();
    let in_group = |op: &&Op| {
        let calls = op.action.calls();
        calls.first().is_some_and(|call| call.group() == group && !call.is_p2p())
    };
    let made = plan.program(rank)?.ops.iter().filter(in_group).count();
    theirs.iter().filter(in_group).nth(made).or(theirs.last()).map(holding)
}
