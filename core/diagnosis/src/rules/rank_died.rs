//! The finding of a rank that died: its last words tell what kind of death it was.

use crate::claim::deed_text::FIX_UNUSED;
use crate::claim::{Claim, evidence, no_call};
use crate::facts::alternatives::Alternatives;
use crate::facts::{Facts, rows_without};
use crate::kinds::Kind;
use crate::model::index::{Job, Made};
use crate::report::Evidence;
use crate::rules::ddp_models;
use crate::rules::ddp_models::Sides;
use crate::rules::on_gloo;
use crate::rules::store_wait;
use crate::words;
use crate::words::{cap_ranks, capital, waits};
use lockstep_core::plan::leaves_at_once;
use lockstep_core::plan::remark::STORE_GROUP;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, RankLog, RankState};
use lockstep_core::words::sentence;

/// So many other ways in which ranks died are told.
const MAX_OTHERS: usize = 3;

/// The ranks that died as `rank` did, in the same words, ascending: none of them died of another's
/// death.
pub(crate) fn alike(job: &Job<'_>, rank: GlobalRank) -> Vec<GlobalRank> {
    let own = died(job, rank);
    let ranks = job.log.logs().map(|(rank, _)| rank);
    ranks.filter(|other| *other == rank || (own.is_some() && died(job, *other) == own)).collect()
}

/// True if others completed calls that a rank without any in the recording must have made with them.
fn lost_calls(job: &Job<'_>, rank: GlobalRank) -> bool {
    let with_all = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"];
    let made_with_it = |record: &CallRecord| {
        record.state == CallState::Completed
            && with_all.iter().any(|op| record.call.op.starts_with(op))
            && job.group(record.call.group).is_some_and(|it| it.group_rank(rank).is_some())
    };
    job.log.recorded && job.log.logs().flat_map(|(_, log)| &log.calls).any(made_with_it)
}

/// The manner of a rank's death, if it died.
fn died<'a>(job: &'a Job<'_>, rank: GlobalRank) -> Option<&'a str> {
    match job.rank(rank).map(|own| &own.state) {
        Some(RankState::Died { how }) => Some(how),
        _ => None,
    }
}

/// The fix where `join()` threw: the loop is in it.
const FIX_JOIN: &str = "Give every rank the same number of batches (DistributedSampler, \
                        drop_last=True), or leave throw_on_early_termination=True away: join() then \
                        has the ranks without input shadow the others' calls.";

/// The error that `join(throw_on_early_termination=True)` raises on a rank that has no inputs left,
/// and on all others because of it.
const EXHAUSTED: &str = " exhausted all inputs";
const OTHERS_EXHAUSTED: &str = "at least one rank that exhausted inputs";

/// The ranks that ran out of inputs, where `how` a rank died says that some did, and they say so
/// themselves: they are to blame for the exceptions of the others, whoever died first.
fn exhausted(job: &Job<'_>, how: &str) -> Option<Vec<GlobalRank>> {
    if !how.contains(OTHERS_EXHAUSTED) && !how.contains(EXHAUSTED) {
        return None;
    }
    let ranks = job.log.logs().map(|(rank, _)| rank);
    let ranks = ranks.filter(|rank| died(job, *rank).is_some_and(|how| how.contains(EXHAUSTED)));
    let ranks: Vec<GlobalRank> = ranks.collect();
    (!ranks.is_empty()).then_some(ranks)
}

/// The finding of the rank whose death ended the job, and of those that died as it did.
pub(crate) fn claim(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<Claim> {
    let log = facts.job.log;
    let own = facts.job.rank(rank);
    let how = match (&log.outcome, own.map(|own| &own.state)) {
        (lockstep_core::trace::Outcome::RankDied { how, .. }, _) => how.clone(),
        (_, Some(RankState::Died { how })) => how.clone(),
        _ => store_wait::raised(facts.job, rank)
            .unwrap_or_else(|| "for an unknown reason".to_owned()),
    };
    let last = own.and_then(|own| last_call(log, own)).map(|record| Made { rank, record });
    let line = line_of_death(facts, rank);
    // A rank that is killed from outside loses the events of its last milliseconds.
    let told_all = log.simulated || log.recorded || line.is_some() || how.starts_with("exited");
    let stood = match (last, told_all) {
        (Some(last), true) => format!(" Its last call was {}.", words::call(log, last)),
        (Some(last), false) => {
            format!(" The last call that was heard of it was {}.", words::call(log, last))
        }
        (None, true) if lost_calls(facts.job, rank) => {
            " None of its calls are recorded.".to_owned()
        }
        (None, true) => " It had not made a call yet.".to_owned(),
        (None, false) => " No call was heard of it.".to_owned(),
    };
    let (row, _) =
        rows_without(facts, rank).min_by_key(|(row, _)| (row.first_ps(), row.group)).unzip();
    let alive = |rank: &GlobalRank| died(facts.job, *rank).is_none();
    let still = row.map(|row| (row, row.waiting().into_iter().filter(alive).collect::<Vec<_>>()));
    let waiting = match still.filter(|(_, waiting)| !waiting.is_empty()) {
        Some((row, waiting)) => format!(
            " {} in {}.{}",
            capital(&waits(&waiting)),
            row.made.first().map(|made| words::call(log, *made)).unwrap_or_default(),
            on_gloo::of_death(facts, row.made.first().map(|made| &*made.record.call))
        ),
        None => String::new(),
    };
    let call = row.and_then(|row| row.made.first().copied()).or(last);
    let (kind, fix) = death_by(&how);
    if kind == Kind::DdpModelMismatch
        && let Some(sides) = ddp_models::sides(facts, &how)
    {
        return Some(models_differ(facts, &sides, call, &how, fix));
    }
    if let Some(lost) = store_wait::of_death(facts, rank) {
        return Some(Claim {
            group: call.map(|made| made.record.call.group).filter(|_| row.is_some()),
            message: format!("{}{waiting}", lost.message.said).into(),
            ..lost
        });
    }
    let culprits = exhausted(facts.job, &how).unwrap_or_else(|| alike(facts.job, rank));
    // Whoever is to blame is told of first, in its own words.
    let first = culprits.first().copied().unwrap_or(rank);
    let (how, line, stood) = match died(facts.job, first).filter(|_| first != rank) {
        Some(how) => (how.to_owned(), line_of_death(facts, first), String::new()),
        None => (how, line, stood),
    };
    let told = alike(facts.job, first);
    let at = line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
    let last_of = |rank: GlobalRank| facts.job.rank(rank).and_then(|own| last_call(log, own));
    let seen = |rank: &GlobalRank| match last_of(*rank) {
        Some(record) => evidence(facts, Made { rank: *rank, record }, "last called"),
        None => {
            let frame = line_of_death(facts, *rank);
            let what = match lost_calls(facts.job, *rank) {
                true => "died; none of its calls are recorded",
                false => "died before its first call",
            };
            Evidence { frame, ..no_call(*rank, what) }
        }
    };
    let shown = culprits.iter().take(16).map(seen).collect();
    let who = cap_ranks(&told);
    let stood = if told.len() == 1 { stood } else { String::new() };
    let others = others_that_died(facts, &told);
    Some(Claim {
        kind,
        culprits,
        also_victims: Vec::new(),
        group: call.map(|made| made.record.call.group),
        seq: call.and_then(|made| made.record.seq),
        op: call.map(|made| made.record.call.op.clone()),
        alternatives: Alternatives::None,
        message: format!("{who} died{at}: {}{stood}{waiting}{others}", sentence(&how)).into(),
        fix: fix.to_owned(),
        evidence: shown,
    })
}

/// The finding of models that differ: whoever ended first, the minority is to blame.
fn models_differ(
    facts: &Facts<'_, '_>,
    sides: &Sides,
    call: Option<Made<'_>>,
    how: &str,
    fix: &str,
) -> Claim {
    let said = how.split_once("Error: ").map_or(how, |(_, said)| said);
    let tie = match sides.tie {
        true => " No model has a majority, so who is wrong cannot be told.",
        false => "",
    };
    let others = (0..facts.job.log.world_size).map(GlobalRank);
    let seen = |rank: &GlobalRank| match facts.job.rank(*rank).and_then(|own| own.calls.last()) {
        Some(record) => evidence(facts, Made { rank: *rank, record }, "last called"),
        None => {
            let frame = line_of_death(facts, *rank);
            Evidence { frame, ..no_call(*rank, "ended in DDP's constructor") }
        }
    };
    Claim {
        kind: Kind::DdpModelMismatch,
        culprits: sides.culprits.clone(),
        also_victims: others.filter(|rank| !sides.culprits.contains(rank)).collect(),
        group: call.map(|made| made.record.call.group),
        seq: call.and_then(|made| made.record.seq),
        op: call.map(|made| made.record.call.op.clone()),
        alternatives: if sides.tie { Alternatives::AsLikely } else { Alternatives::None },
        message: format!(
            "The ranks gave DDP different models: {}.{tie} Its constructor ended the job: \"{}\"",
            sides.said,
            said.trim()
        )
        .into(),
        fix: fix.to_owned(),
        evidence: sides.culprits.iter().take(16).map(seen).collect(),
    }
}

/// A rank's last call, but for what it does with stores: those messages are none of its program's.
fn last_call<'a>(log: &CallLog, own: &'a RankLog) -> Option<&'a CallRecord> {
    let of_store = |record: &CallRecord| {
        log.groups.get(record.call.group.index()).is_some_and(|group| group.desc() == STORE_GROUP)
    };
    own.calls.iter().rev().find(|record| !of_store(record))
}

/// ` Rank 2 died as well, at …: …` of those that ended by other words than the first.
fn others_that_died(facts: &Facts<'_, '_>, told: &[GlobalRank]) -> String {
    let mut others: Vec<(&str, Option<String>, Vec<GlobalRank>)> = Vec::new();
    for (rank, own) in facts.job.log.logs().filter(|(rank, _)| !told.contains(rank)) {
        let RankState::Died { how } = &own.state else { continue };
        let line = line_of_death(facts, rank);
        match others.iter_mut().find(|(known, at, _)| known == how && *at == line) {
            Some((_, _, ranks)) => ranks.push(rank),
            None => others.push((how, line, vec![rank])),
        }
    }
    let shown = others.iter().take(MAX_OTHERS).map(|(how, line, ranks)| {
        let at = line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
        format!(" {} died as well{at}: {}", cap_ranks(ranks), sentence(how))
    });
    let more = others.len().saturating_sub(MAX_OTHERS);
    let more =
        if more > 0 { format!(" So did others, in {more} other ways.") } else { String::new() };
    shown.collect::<String>() + &more
}

/// The line that a rank's plan has it die at.
fn line_of_death(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<String> {
    let plan = facts.job.log.plan.as_deref()?;
    let ops = &plan.program(rank)?.ops;
    let died = ops.iter().find(|op| op.action.ends_by().is_some())?;
    died.at.map(|at| plan.describe_line(at))
}

/// True if a process ended by an exception of its own, in Python's words.
fn is_exception(how: &str) -> bool {
    // As an executor has it.
    let said = how.strip_prefix("exited with status ").and_then(|rest| rest.split_once(": "));
    let how = said.map_or(how, |(_, said)| said);
    let class = how.split([':', ' ']).next().unwrap_or_default();
    ["Error", "Exception", "Iteration", "SystemExit"].iter().any(|end| class.ends_with(end))
}

/// The kind of death that its last words tell of, and the fix.
fn death_by(how: &str) -> (Kind, &'static str) {
    let said = |words: &[&str]| words.iter().any(|words| how.contains(words));
    // `reducer.cpp`: what a rank says that skipped a bucket, when its next pass begins.
    if said(&["Expected to have finished reduction in the prior iteration"]) {
        return (Kind::DdpUnusedParameters, FIX_UNUSED);
    }
    // `verify_params_across_processes` in `reducer.cpp`.
    if said(&["DDP expects same model across all ranks", "appears not to match sizes of the same"])
    {
        return (
            Kind::DdpModelMismatch,
            "Build the same model on every rank, with its parameters in the same order: look for \
             layers made in the order of a set, for a config or a checkpoint that differs, for a \
             branch on the rank.",
        );
    }
    // `Join` with throw_on_early_termination.
    if said(&[EXHAUSTED, OTHERS_EXHAUSTED]) {
        return (Kind::DdpUnevenInputs, FIX_JOIN);
    }
    // `TCPStore.cpp` and `FileStore.cpp`.
    if said(&["wait timeout after", "Timeout waiting for key", "Error: Wait timeout"]) {
        return (
            Kind::RankDied,
            "No rank set the key that it waited for, or not in time: look for a key under another \
             name or prefix, and for a rank that skips the line that sets it or comes to it only \
             later.",
        );
    }
    if leaves_at_once(how) {
        return (
            Kind::RankDied,
            "Mend what has the program end its own process there: the others only waited for it.",
        );
    }
    if is_exception(how) {
        return (
            Kind::RankDied,
            "Mend the line that raised: the exception ended the rank, and the others only waited \
             for it.",
        );
    }
    (
        Kind::RankDied,
        "Look at the end of the rank's own log and at its machine (out of memory, a device error, \
         a preemption): the others only waited for it.",
    )
}
