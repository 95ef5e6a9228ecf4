//! Ranks whose processes did not answer when the run was ended: somebody had stopped them, or their machine
//! is out of reach. Their calls do not show that.

use super::causes::{Cause, Scene, evidence, no_call};
use super::report::{Certainty, Evidence, Kind};
use super::words::{self, s};
use lockstep_core::plan::{Action, STOPPED};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankState;

const FIX: &str = "Look for what stops it: Ctrl-Z, a debugger, a scheduler that suspends jobs (scontrol \
                   suspend), os.kill(…, SIGSTOP). kill -CONT PID lets a stopped process go on. Of a machine \
                   that does not answer, look at its network.";

/// Tells of such ranks: where another finding blames them already, why; else in a finding of their own, in
/// place of the one that a call never completed for no reason that is seen.
pub(super) fn tell(scene: &Scene<'_, '_>, causes: &mut Vec<Cause>) {
    let quiet =
        scene.job.log.logs().filter_map(|(rank, own)| Some((rank, own.unresponsive.as_deref()?)));
    let mut found = Vec::new();
    for (rank, how) in quiet {
        let hangs = |cause: &&mut Cause| cause.culprits == [rank] && !passes(cause.kind);
        match causes.iter_mut().find(hangs) {
            Some(cause) => {
                // Where it stands may say so already.
                if !cause.message.contains("SIGSTOP") {
                    let line = stands(scene, rank).1.frame.filter(|_| signalled(scene, rank));
                    let at = line.map(|line| format!(", at {line}")).unwrap_or_default();
                    cause.message = format!("{} At the end {how}{at}.", cause.message);
                }
                if cause.kind == Kind::RankNeverJoined {
                    cause.fix = FIX.to_owned();
                }
            }
            None => found.push(own_finding(scene, rank, how)),
        }
    }
    // That call did not complete for a reason now.
    causes.retain(|cause| {
        let same = |found: &Cause| (found.group, found.seq) == (cause.group, cause.seq);
        cause.kind != Kind::CallNeverCompleted || cause.group.is_none() || !found.iter().any(same)
    });
    causes.extend(found);
}

/// What a job goes on in spite of.
fn passes(kind: Kind) -> bool {
    matches!(kind, Kind::Straggler | Kind::WorkDropped)
}

fn own_finding(scene: &Scene<'_, '_>, rank: GlobalRank, how: &str) -> Cause {
    let job = scene.job;
    let mut rows = job.open_rows().map(|(_, row)| row);
    let row = rows.find(|row| row.of(rank).is_some_and(|made| made.pending()));
    let made = row.and_then(|row| row.of(rank));
    let mut victims = row.map(|row| row.waiting()).unwrap_or_default();
    victims.retain(|waiting| *waiting != rank);
    let wait = |there: &str| match victims.as_slice() {
        [] => String::new(),
        others => format!(" {} wait{} for it {there}.", words::cap_ranks(others), s(others)),
    };
    let (message, seen) = match made {
        Some(made) if signalled(scene, rank) => {
            let (at, seen) = stands(scene, rank);
            let others = wait(&format!("in {}", words::call(job.log, made)));
            (format!("Rank {rank} does not go on{at}: {how}.{others}"), seen)
        }
        Some(made) => {
            let call = words::call(job.log, made);
            let message = format!("Rank {rank} does not go on in {call}: {how}.{}", wait("there"));
            (message, evidence(scene, made, "stands in"))
        }
        None => {
            let (at, seen) = stands(scene, rank);
            let message = format!(
                "Rank {rank} does not go on{at}: {how}. Nobody waits for it in a call, so that no timeout \
                 passes: without an end from outside the job stays like this."
            );
            (message, seen)
        }
    };
    Cause {
        kind: Kind::RankUnresponsive,
        culprits: vec![rank],
        also_victims: victims,
        group: made.map(|made| made.record.call.group),
        seq: made.and_then(|made| made.record.seq),
        op: made.map(|made| made.record.call.op.clone()),
        certainty: if how == STOPPED { Certainty::Certain } else { Certainty::Likely },
        message,
        fix: FIX.to_owned(),
        evidence: vec![seen],
    }
}

/// Whether a rank stands at the operation that stopped it.
fn signalled(scene: &Scene<'_, '_>, rank: GlobalRank) -> bool {
    let state = scene.job.rank(rank).map(|own| &own.state);
    let Some(RankState::AtOp { op, .. }) = state else { return false };
    let program = scene.job.log.plan.as_ref().and_then(|plan| plan.program(rank));
    let op = program.and_then(|program| program.ops.get(*op as usize));
    op.is_some_and(|op| matches!(op.action, Action::Signal(_)))
}

/// Where a rank stands in its program.
fn stands(scene: &Scene<'_, '_>, rank: GlobalRank) -> (String, Evidence) {
    match scene.job.rank(rank).map(|own| &own.state) {
        Some(RankState::AtOp { name, line, .. }) => {
            let at = format!(" in {name}{}", words::at_line(line.clone()));
            let note = format!("stands in {name}");
            (at, Evidence { rank, entry: None, frame: line.clone(), note })
        }
        _ => (String::new(), no_call(rank, "does not answer")),
    }
}
