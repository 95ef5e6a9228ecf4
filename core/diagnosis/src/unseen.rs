//! Healthy means evidence: what keeps calls without a finding from showing that all is well.
//!
//! A report is healthy only where calls were seen to end on all ranks. Each function here gives one
//! reason why that was not seen, in a sentence.

use crate::words;
use crate::words::{cap_ranks, group_label};
use lockstep_core::plan::Plan;
use lockstep_core::plan::remark::Remark;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallState, Outcome, RankLog};
use lockstep_core::words::counted;
use std::collections::BTreeMap;

/// So many calls that had not ended are named.
const MOST_CALLS: usize = 4;

/// The reasons that the calls of a job without findings are no evidence of health; empty where they are.
pub(crate) fn reasons(log: &CallLog) -> Vec<String> {
    match log.recorded {
        true => {
            let mut reasons: Vec<String> = nothing_recorded(log).into_iter().collect();
            reasons.extend(not_ended(log));
            reasons.extend(counted_only(log));
            reasons.extend(issued_only(log));
            reasons.extend(dropped_messages(log));
            reasons.extend(group_without_calls(log));
            reasons
        }
        false => {
            let mut reasons: Vec<String> = not_completed(log).into_iter().collect();
            reasons.extend(log.plan.as_deref().map(not_followed).unwrap_or_default());
            reasons
        }
    }
}

/// The same of calls of which the recording does not tell whether they ended.
pub(crate) fn without_ends(log: &CallLog) -> Vec<String> {
    let made = "The recording tells which calls were made, and not which of them ended.".to_owned();
    nothing_recorded(log).into_iter().chain([made]).collect()
}

/// Ranks of which nothing was recorded.
fn nothing_recorded(log: &CallLog) -> Option<String> {
    let missing = (0..log.world_size).map(GlobalRank);
    let missing = missing.filter(|rank| log.ranks.get(rank.index()).is_none_or(Option::is_none));
    let missing: Vec<GlobalRank> = missing.collect();
    (!missing.is_empty()).then(|| format!("Nothing was recorded of {}.", words::ranks(&missing)))
}

/// Calls that had not ended when they were recorded.
fn not_ended(log: &CallLog) -> Vec<String> {
    let mut calls: BTreeMap<_, (String, Vec<GlobalRank>)> = BTreeMap::new();
    for (rank, own) in log.logs() {
        // Later calls of the rank only wait for their turn.
        let first = own.calls.iter().find(|record| record.state != CallState::Completed);
        let Some(record) = first else { continue };
        let number = record.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        let label = group_label(log, record.call.group);
        let text = format!("{}{number} of {label}", record.call.op);
        let key = (record.call.group, record.seq, record.call.op.clone());
        calls.entry(key).or_insert((text, Vec::new())).1.push(rank);
    }
    let more = calls.len().saturating_sub(MOST_CALLS);
    let told = calls.into_values().take(MOST_CALLS).map(|(call, ranks)| {
        format!("{} had not come out of {call} when that was recorded.", cap_ranks(&ranks))
    });
    let more = (more > 0).then(|| format!("{more} more calls had not ended."));
    told.chain(more).collect()
}

/// Calls that a group counts and the recorder does not hold: gloo's sends and receives, and what is
/// made of them.
fn counted_only(log: &CallLog) -> Option<String> {
    let mut ranks = Vec::new();
    let mut most = 0;
    for (rank, own) in log.logs() {
        let calls: u64 = own.recording.unrecorded.values().sum();
        if calls > 0 {
            ranks.push(rank);
            most = calls.max(most);
        }
    }
    (!ranks.is_empty()).then(|| {
        format!(
            "gloo counts up to {} of {} that it does not record: sends, receives and \
             monitored_barrier leave no entry, and one of them may still wait.",
            counted(most, "call"),
            words::ranks(&ranks)
        )
    })
}

/// Ranks whose recorder notes when a call is issued and not when it ends.
fn issued_only(log: &CallLog) -> Option<String> {
    let ranks = log.logs().filter(|(_, own)| own.recording.issued_only).map(|(rank, _)| rank);
    let ranks: Vec<GlobalRank> = ranks.collect();
    (!ranks.is_empty()).then(|| {
        format!(
            "The recorder of {} retires calls when they are issued: torch does not follow this backend's calls \
             to their end, so that the last ones may still wait.",
            words::ranks(&ranks)
        )
    })
}

/// Sends and receives that a ring may have dropped: a recorder keeps no count of them.
fn dropped_messages(log: &CallLog) -> Option<String> {
    let dropped = log.logs().any(|(_, own)| {
        own.is_cut()
            && own.calls.iter().any(|record| record.call.p2p)
            && !own.recording.dropped_ended
    });
    dropped.then(|| {
        "Rings have dropped the first calls of some ranks, sends and receives among them, of which a \
         recorder keeps no count: one of those may still wait. Record with a larger \
         TORCH_FR_BUFFER_SIZE."
            .to_owned()
    })
}

/// Ranks that made a group last in which they called nothing: `new_group` waits for all ranks of the job, and
/// leaves no entry.
fn group_without_calls(log: &CallLog) -> Option<String> {
    let made =
        |(rank, own): (GlobalRank, &RankLog)| Some((rank, own.recording.group_without_calls?));
    let made: Vec<(GlobalRank, u32)> = log.logs().filter_map(made).collect();
    let (_, size) = *made.first()?;
    let ranks: Vec<GlobalRank> = made.iter().map(|(rank, _)| *rank).collect();
    let last = made.first().and_then(|(rank, _)| {
        let record = log.ranks.get(rank.index())?.as_ref()?.calls.last()?;
        words::line_of(log, *rank, record)
    });
    let behind = last.map(|line| format!(" behind {line}")).unwrap_or_default();
    Some(format!(
        "{} last made a group of {} in which {} called nothing: {} may still be in new_group{behind}, which waits \
         for every rank of the job and leaves no entry.",
        cap_ranks(&ranks),
        counted(u64::from(size), "rank"),
        if ranks.len() == 1 { "it" } else { "they" },
        if ranks.len() == 1 { "it" } else { "they" },
    ))
}

/// Gives the remarks of a plan that keep it from being healthy, a sentence each: parts of its program that are run
/// without being followed, and what a replay assumes of calls that were not recorded.
pub fn not_followed(plan: &Plan) -> Vec<String> {
    let mut reasons = Vec::new();
    for op in plan.programs.iter().flat_map(|program| &program.ops) {
        let reason = match Remark::of(op) {
            Some(Remark::NotFollowed { what, line, why }) => {
                let source = op.at.and_then(|at| plan.sources.get(at.source as usize));
                let line = match source {
                    Some(source) => format!("{}:{line}", source.path),
                    None => format!("line {line}"),
                };
                format!(
                    "{what} ({line}) is not followed, since {why}: which calls and gradients come of it is not \
                     known."
                )
            }
            Some(Remark::Assumed { what }) => format!("The recording does not show it: {what}."),
            _ => continue,
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// The end of a simulation or run that did not complete.
fn not_completed(log: &CallLog) -> Option<String> {
    let stood = crate::run_end::stood(log).map(|stood| format!(" {stood}")).unwrap_or_default();
    match &log.outcome {
        Outcome::Completed => None,
        Outcome::Cancelled => Some(format!("It was cancelled.{stood}")),
        Outcome::Unknown => Some(format!(
            "The trace has no end: it was cut off, or what wrote it still runs.{stood}"
        )),
        Outcome::TimedOut => Some(format!("It ended by a timeout.{stood}")),
        Outcome::Failed { why } => Some(format!("It was ended: {why}.{stood}")),
        Outcome::RankStopped { rank, .. } => Some(format!("Rank {rank} stands stopped.{stood}")),
        Outcome::RankDied { rank, how } => Some(format!("Rank {rank} ended: {how}.{stood}")),
    }
}
