//! Ranks whose processes did not answer when the run was ended: somebody had stopped them, or their machine
//! is out of reach. Their calls do not show that.

use crate::claim::{Claim, evidence, no_call};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::Row;
use crate::report::Evidence;
use crate::words;
use crate::words::s;
use lockstep_core::plan::{Action, STOPPED};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankState;

const FIX: &str = "Look for what stops it: Ctrl-Z, a debugger, a scheduler that suspends jobs (scontrol \
                   suspend), os.kill(…, SIGSTOP). kill -CONT PID lets a stopped process go on. Of a machine \
                   that does not answer, look at its network.";

/// Tells of such ranks: where another finding blames them already, why; else in a finding of their own, in
/// place of the one that a call never completed for no reason that is seen.
pub(crate) fn tell(facts: &Facts<'_, '_>, claims: &mut Vec<Claim>) {
    let quiet =
        facts.job.log.logs().filter_map(|(rank, own)| Some((rank, own.unresponsive.as_deref()?)));
    let mut found = Vec::new();
    for (rank, how) in quiet {
        let told = |claim: &Claim| claim.kind == Kind::RankUnresponsive && claim.culprits == [rank];
        if claims.iter().any(told) {
            continue;
        }
        let hangs = |claim: &&mut Claim| claim.culprits == [rank] && !passes(claim.kind);
        match claims.iter_mut().find(hangs) {
            Some(claim) => {
                // The claim already says where the rank is.
                let told = claim.kind == Kind::RankNeverJoined && signalled(facts, rank);
                if !told {
                    let line = stands(facts, rank).1.frame.filter(|_| signalled(facts, rank));
                    let at = line.map(|line| format!(", at {line}")).unwrap_or_default();
                    claim.message.added.push(format!("At the end {how}{at}."));
                }
                if claim.kind == Kind::RankNeverJoined {
                    claim.fix = FIX.to_owned();
                }
            }
            None => found.push(own_finding(facts, rank, how)),
        }
    }
    // That call did not complete for a reason now.
    claims.retain(|claim| {
        let same = |found: &Claim| (found.group, found.seq) == (claim.group, claim.seq);
        claim.kind != Kind::CallNeverCompleted || claim.group.is_none() || !found.iter().any(same)
    });
    claims.extend(found);
}

/// True if a process that did not answer is all that is known of a rank: no rule may say what it called.
pub(crate) fn is_unknown(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let own = facts.job.rank(rank);
    facts.job.log.plan.is_none()
        && own.is_some_and(|own| own.unresponsive.is_some() && own.calls.is_empty())
}

/// The finding of a rank of which only its silence is known.
pub(crate) fn unknown(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<Claim> {
    let how = facts.job.rank(rank)?.unresponsive.as_deref()?;
    let row = facts.job.open_rows().map(|(_, row)| row).find(|row| row.lacks(rank));
    let waiting = row.map(Row::waiting).unwrap_or_default();
    let first = row.and_then(|row| row.made.iter().find(|made| made.pending()));
    let victims = first.map(|first| {
        let call = words::call(facts.job.log, *first);
        format!(" {} wait{} in {call}.", words::cap_ranks(&waiting), s(&waiting))
    });
    let message = format!(
        "Rank {rank} is unresponsive: {how}. What it called is not known.{}",
        victims.unwrap_or_default()
    );
    Some(Claim {
        kind: Kind::RankUnresponsive,
        culprits: vec![rank],
        also_victims: waiting,
        group: row.map(|row| row.group),
        seq: first.and_then(|first| first.record.seq),
        op: first.map(|first| first.record.call.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: message.into(),
        fix: FIX.to_owned(),
        evidence: vec![no_call(rank, "does not answer")],
    })
}

/// True for findings that a job goes on in spite of.
fn passes(kind: Kind) -> bool {
    matches!(kind, Kind::Straggler | Kind::WorkDropped)
}

fn own_finding(facts: &Facts<'_, '_>, rank: GlobalRank, how: &str) -> Claim {
    let job = facts.job;
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
        Some(made) if signalled(facts, rank) => {
            let (at, seen) = stands(facts, rank);
            let others = wait(&format!("in {}", words::call(job.log, made)));
            (format!("Rank {rank} does not go on{at}: {how}.{others}"), seen)
        }
        Some(made) => {
            let call = words::call(job.log, made);
            let message = format!("Rank {rank} does not go on in {call}: {how}.{}", wait("there"));
            (message, evidence(facts, made, "stands in"))
        }
        None => {
            let (at, seen) = stands(facts, rank);
            let waited_for = job.open_rows().map(|(_, row)| row).find(|row| row.lacks(rank));
            let waiting = waited_for.and_then(|row| row.made.iter().find(|made| made.pending()));
            let message = match (waited_for, waiting) {
                (Some(row), Some(first)) => {
                    let waiting = row.waiting();
                    format!(
                        "Rank {rank} does not go on{at}: {how}. {} wait{} for it in {}.",
                        words::cap_ranks(&waiting),
                        s(&waiting),
                        words::call(job.log, *first)
                    )
                }
                _ => format!(
                    "Rank {rank} does not go on{at}: {how}. Nobody waits for it in a call, so that no timeout \
                     passes: without an end from outside the job stays like this."
                ),
            };
            (message, seen)
        }
    };
    Claim {
        kind: Kind::RankUnresponsive,
        culprits: vec![rank],
        also_victims: victims,
        group: made.map(|made| made.record.call.group),
        seq: made.and_then(|made| made.record.seq),
        op: made.map(|made| made.record.call.op.clone()),
        alternatives: if how == STOPPED { Alternatives::None } else { Alternatives::LessLikely },
        message: message.into(),
        fix: FIX.to_owned(),
        evidence: vec![seen],
    }
}

/// True if a rank is at the operation that stopped it.
fn signalled(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let state = facts.job.rank(rank).map(|own| &own.state);
    let Some(RankState::AtOp(at)) = state else { return false };
    let program = facts.job.log.plan.as_deref().and_then(|plan| plan.program(rank));
    let op = program.and_then(|program| program.ops.get(at.op as usize));
    op.is_some_and(|op| matches!(op.action, Action::Signal(_)))
}

/// The position of a rank in its program.
fn stands(facts: &Facts<'_, '_>, rank: GlobalRank) -> (String, Evidence) {
    match facts.job.rank(rank).map(|own| &own.state) {
        Some(RankState::AtOp(at)) => {
            let (name, line) = (&at.name, &at.line);
            let at = format!(" in {name}{}", words::at_line(line.clone()));
            let note = format!("stands in {name}");
            (at, Evidence { frame: line.clone(), ..no_call(rank, note) })
        }
        _ => (String::new(), no_call(rank, "does not answer")),
    }
}
