//! Calls that everybody is known to have made, and that do not end: nobody is out of step as far as the
//! recording tells.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::ddp_frames::is_ddp;
use crate::model::index::{Made, Row};
use crate::rules::dropped_calls;
use crate::rules::stuck_inside;
use crate::words;
use crate::words::{cap_ranks, ranks, s};
use lockstep_core::group::BackendName;
use lockstep_core::trace::Outcome;
use std::collections::BTreeSet;

/// Rows that have everybody's call and still do not complete.
pub(crate) fn never_completed(
    facts: &Facts<'_, '_>,
    stuck: &[usize],
    notes: &mut Vec<String>,
) -> Option<Claim> {
    let job = facts.job;
    let first = match stuck.iter().min() {
        Some(at) => job.rows.get(*at)?,
        None => {
            let full = job.open_rows().map(|(_, row)| row);
            let full = full.filter(|row| !row.lacks_somebody() && !job.is_alone(row));
            let first = |row: &&Row<'_>| (row.first_ps(), row.group);
            let alone = || job.open_rows().map(|(_, row)| row).filter(|row| job.is_alone(row));
            full.min_by_key(first).or_else(|| alone().min_by_key(first))?
        }
    };
    let log = job.log;
    let made = *first.made.first()?;
    let call = words::call(log, made);
    let waiting = first.waiting();
    if job.is_alone(first) {
        return Some(alone(facts, first, made));
    }
    if waiting.len() < first.made.len() {
        let claim = of_other_roots(facts, first, made).or_else(|| of_some(facts, first, made));
        if claim.is_some() {
            return claim;
        }
        notes.push(format!(
            "{call} was still in flight on {} when the recording was made; others had seen it end.",
            words::ranks(&waiting)
        ));
        return None;
    }
    // They wait in an earlier one of the group, which their rings have dropped.
    let earlier = |made: &Made<'_>| {
        job.rank(made.rank).is_some_and(|own| own.recording.unended.contains_key(&first.group))
    };
    if first.made.iter().any(earlier)
        && let Some(claim) = dropped_calls::claim(facts)
    {
        return Some(claim);
    }
    if let Some(claim) = stuck_inside::everybody(facts, first) {
        return Some(claim);
    }
    let timed_out = log.outcome == Outcome::TimedOut;
    let sizes: BTreeSet<(u64, u64)> = first.made.iter().map(stuck_inside::sides).collect();
    let with = match sizes.len() {
        0 | 1 => "with the same arguments, and none saw it complete. No rank is out of step:",
        _ => {
            "with different sizes, and none saw it complete. The sizes may be meant, and the \
              recording does not hold what would tell; if they are,"
        }
    };
    Some(Claim {
        kind: Kind::CallNeverCompleted,
        culprits: Vec::new(),
        also_victims: waiting.clone(),
        group: Some(first.group),
        seq: Some(first.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: if timed_out { Alternatives::LessLikely } else { Alternatives::AsLikely },
        message: format!(
            "{}{} made {call}, {with} either the network or a device stalled, or the job was still \
             running when this was recorded.",
            words::cap_ranks(&waiting),
            if waiting.len() > 1 { " all" } else { "" }
        )
        .into(),
        fix:
            "If the job was hung, look at the network and the devices: NCCL_DEBUG=INFO, Xid errors \
              in dmesg, link counters. If it was running, record again when it hangs."
                .to_owned(),
        evidence: first
            .made
            .iter()
            .take(8)
            .map(|made| evidence(facts, *made, "waits in"))
            .collect(),
    })
}

/// The finding of a call of a group whose members are not listed, in which one rank alone is seen: that
/// it waits says that somebody has not come, and nobody is known to be missing.
fn alone(facts: &Facts<'_, '_>, row: &Row<'_>, made: Made<'_>) -> Claim {
    let waits = facts.job.open_rows().flat_map(|(_, row)| row.waiting());
    let others: BTreeSet<_> = waits.filter(|rank| *rank != made.rank).collect();
    let others: Vec<_> = others.into_iter().collect();
    let elsewhere = match others.as_slice() {
        [] => " No other rank has a recorded call under way: they may stand in new_group, a send or a \
               receive, which gloo does not record. Ranks that do not all make the same groups, in the \
               same order, look like this."
            .to_owned(),
        others => format!(" {} wait{} in other calls.", cap_ranks(others), s(others)),
    };
    Claim {
        kind: Kind::CallNeverCompleted,
        culprits: Vec::new(),
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: Alternatives::AsLikely,
        message: format!(
            "Rank {} is the only one seen in {}, and waits there: whoever else is in that group has not \
             come.{elsewhere} gloo does not record who is in a group. Either one of the others left the \
             call out, or comes to it only behind a call in which it waits itself, or rank {} made it on \
             top.",
            made.rank,
            words::call(facts.job.log, made),
            made.rank,
        ).into(),
        fix: "Look up which ranks are in the group, and where each of them waits: let them all make this \
              call, in the same order as their calls of other groups. Every rank of the job calls \
              new_group, in the same order, also for groups that it is not in."
            .to_owned(),
        evidence: vec![evidence(facts, made, "waits in")],
    }
}

/// The finding of an `all_to_all` that everybody made and that ended on some, behind which nobody has called
/// anything: each rank comes out when its own parts have, so that one whose splits do not fit waits alone.
fn of_some(facts: &Facts<'_, '_>, row: &Row<'_>, made: Made<'_>) -> Option<Claim> {
    let job = facts.job;
    let exchange = made.record.call.op == "all_to_all" && job.log.recorded;
    if !exchange || row.lacks_somebody() || !job.ends_in(row.group, row.seq) {
        return None;
    }
    if let Some(claim) = stuck_inside::odd_sizes(facts, row) {
        return Some(claim);
    }
    Some(ended_on_some(
        facts,
        row,
        made,
        "the splits of some two ranks do not fit, of which dumps hold the sums only, or the network stalled",
        "input_split_sizes[j] of rank i must equal output_split_sizes[i] of rank j; exchange the sizes with an \
         all_to_all_single of one number a rank first",
    ))
}

/// The finding of a call with a root that everybody made and that ended on some, behind which nobody has
/// called anything: ranks may have named different roots, which no dump holds. On a job that runs such
/// a call passes at once.
fn of_other_roots(facts: &Facts<'_, '_>, row: &Row<'_>, made: Made<'_>) -> Option<Claim> {
    let job = facts.job;
    let op = made.record.call.op.as_str();
    let rooted = matches!(op, "broadcast" | "reduce" | "gather" | "scatter");
    let known = row.made.iter().any(|made| made.record.call.root.is_some());
    // gloo's calls end one by one, and a rank that waits in one is told by itself.
    let gloo = job.group(row.group).is_some_and(|it| it.backend() == BackendName::Gloo);
    let shown = rooted && !known && !gloo && job.log.recorded;
    if !shown || is_ddp(&made.record.call.stack) || !job.ends_in(row.group, row.seq) {
        return None;
    }
    Some(ended_on_some(
        facts,
        row,
        made,
        "they named different roots, which dumps do not hold, or the network or a device stalled",
        "pass the same src= or dst= on every rank (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL logs the root \
         of every call), then look at the network and the devices",
    ))
}

/// The finding of a call that everybody made and that ended on some, none of whom went on: what is the matter,
/// if it hung, and what to do then.
fn ended_on_some(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    made: Made<'_>,
    either: &str,
    fix: &str,
) -> Claim {
    let waiting = row.waiting();
    let ended = row.made.iter().filter(|made| !made.pending()).map(|made| made.rank);
    let ended: Vec<_> = ended.collect();
    Claim {
        kind: Kind::CallNeverCompleted,
        culprits: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: Alternatives::AsLikely,
        message: format!(
            "All ranks made {}. It ended on {}, who called nothing behind it, and {} wait{} in it. Either \
             {either}, or the job was still running when this was recorded.",
            words::call(facts.job.log, made),
            ranks(&ended),
            ranks(&waiting),
            s(&waiting),
        ).into(),
        fix: format!("If the job was hung: {fix}. If it was running, record again when it hangs."),
        evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
        also_victims: waiting,
    }
}
