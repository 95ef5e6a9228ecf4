//! Circles in who waits for whom: across groups, and in sends and receives.

use super::causes::{Cause, Scene, evidence};
use super::graph::Sink;
use super::index::Made;
use super::report::{Certainty, Kind};
use super::words::{self, cap_ranks, rank_list, ranks, s};
use crate::rank::GlobalRank;

/// At most this many waits of a circle are spelled out.
const SHOWN: usize = 6;

/// A circle of ranks that wait for each other.
pub(super) fn cause(scene: &Scene<'_, '_>, sink: &Sink) -> Option<Cause> {
    if sink.rows.is_empty() {
        return p2p_circle(scene, &sink.ranks);
    }
    let log = scene.job.log;
    let rows: Vec<_> = sink.rows.iter().filter_map(|at| scene.job.rows.get(*at)).collect();
    // Where the ranks of the circle stand: in which call, and whom it lacks.
    let mut sides: Vec<(Made<'_>, Vec<GlobalRank>, Vec<GlobalRank>)> = Vec::new();
    for row in &rows {
        let waiting: Vec<_> = row
            .waiting()
            .into_iter()
            .filter(|rank| sink.ranks.binary_search(rank).is_ok())
            .collect();
        let lacks = row
            .absent
            .iter()
            .filter(|rank| sink.ranks.binary_search(rank).is_ok())
            .copied()
            .collect();
        if let Some(made) = waiting.first().and_then(|rank| row.of(*rank)) {
            sides.push((made, waiting, lacks));
        }
    }
    sides.sort_by_key(|(made, _, _)| (made.record.scheduled_ps, made.rank));
    let mut culprits = sink.ranks.clone();
    let mut certainty = Certainty::Certain;
    if let [(_, one, _), (_, two, _)] = sides.as_slice()
        && one.len() != two.len()
        && one.len().min(two.len()) * 2 < sink.ranks.len()
    {
        // All but a few go one way round: the few took the other.
        culprits = if one.len() < two.len() { one.clone() } else { two.clone() };
        certainty = Certainty::Likely;
    }
    let first = sides.first()?.0;
    let worked_out = rows.iter().any(|row| scene.job.members_are_worked_out(row.group));
    if worked_out {
        certainty = Certainty::Likely;
    }
    let said = sides.iter().take(SHOWN).map(|(made, waiting, lacks)| {
        format!(
            "{} wait{} in {} for {}",
            ranks(waiting),
            s(waiting),
            words::call(log, *made),
            ranks(lacks)
        )
    });
    let said: Vec<String> = said.collect();
    let p2p = scene.p2p.iter().filter(|pending| {
        pending.partner.is_none()
            && sink.ranks.binary_search(&pending.made.rank).is_ok()
            && sink.ranks.binary_search(&pending.peer).is_ok()
    });
    let p2p: Vec<_> = p2p.collect();
    let p2p_said = p2p.iter().take(SHOWN).map(|pending| {
        format!(
            "rank {} waits in {} for rank {}",
            pending.made.rank,
            words::call(log, pending.made),
            pending.peer
        )
    });
    let said: Vec<String> = said.into_iter().chain(p2p_said).collect();
    let note = if worked_out {
        " (gloo does not record who is in a group; the members were worked out from who called it.)"
    } else {
        ""
    };
    let mut seen: Vec<_> = Vec::new();
    for (made, waiting, _) in &sides {
        let row = rows.iter().find(|row| row.group == made.record.call.group);
        let calls = waiting.iter().take(8).filter_map(|rank| row.and_then(|row| row.of(*rank)));
        seen.extend(calls.map(|made| evidence(scene, made, "waits in")));
    }
    seen.extend(p2p.iter().take(8).map(|pending| evidence(scene, pending.made, "waits in")));
    Some(Cause {
        kind: Kind::GroupDeadlock,
        message: format!(
            "{} wait for each other in a circle: {}. Each would go on only after the other.{note}",
            cap_ranks(&sink.ranks),
            said.join("; "),
        ),
        fix: "Call the groups in the same order on every rank that is in several of them; for \
              pipelines, post receives before sends or batch them with batch_isend_irecv."
            .to_owned(),
        also_victims: sink
            .ranks
            .iter()
            .filter(|rank| culprits.binary_search(rank).is_err())
            .copied()
            .collect(),
        culprits,
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        certainty,
        evidence: seen,
    })
}

/// Ranks that wait, each alone, in groups whose members are not listed (gloo's): nobody that was
/// recorded is free to come to them, so they wait for each other.
pub(super) fn unseen(scene: &Scene<'_, '_>) -> Option<Cause> {
    let job = scene.job;
    let rows: Vec<_> =
        job.open_rows().map(|(_, row)| row).filter(|row| job.is_alone(row)).collect();
    let alone: Vec<Made<'_>> = rows.iter().filter_map(|row| row.made.first().copied()).collect();
    // Those who wait in other groups of that kind are in the circle as well; who waits in the
    // default group only waits for them.
    let unlisted = job.open_rows().filter(|(_, row)| job.members_are_worked_out(row.group));
    let mut culprits: Vec<GlobalRank> = unlisted.flat_map(|(_, row)| row.waiting()).collect();
    culprits.sort_unstable();
    culprits.dedup();
    let all_wait = job.log.logs().all(|(rank, _)| !super::absent::idle(scene, rank));
    let all_recorded = job.log.ranks.iter().all(Option::is_some);
    let first = alone.first()?;
    if alone.len() < 2 || !all_wait || !all_recorded {
        return None;
    }
    let said: Vec<String> = alone
        .iter()
        .take(SHOWN)
        .map(|made| format!("rank {} waits alone in {}", made.rank, words::call(job.log, *made)))
        .collect();
    Some(Cause {
        kind: Kind::GroupDeadlock,
        message: format!(
            "{} wait for each other in a circle: {}. Everybody waits, so none of them can be joined. \
             (gloo does not record who is in a group.)",
            cap_ranks(&culprits),
            said.join("; "),
        ),
        culprits,
        also_victims: Vec::new(),
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        certainty: Certainty::Likely,
        fix: "Call the groups in the same order on every rank that is in several of them."
            .to_owned(),
        evidence: alone.iter().take(16).map(|made| evidence(scene, *made, "waits in")).collect(),
    })
}

fn p2p_circle(scene: &Scene<'_, '_>, circle: &[GlobalRank]) -> Option<Cause> {
    let log = scene.job.log;
    let waits = scene.p2p.iter().filter(|pending| {
        pending.partner.is_none()
            && circle.binary_search(&pending.made.rank).is_ok()
            && circle.binary_search(&pending.peer).is_ok()
    });
    let waits: Vec<_> = waits.collect();
    let first = waits.first()?.made;
    let said = waits.iter().take(SHOWN).map(|pending| {
        let to = if pending.made.record.call.op.contains("send") { "to" } else { "from" };
        let call = words::short_call(log, pending.made);
        format!("rank {} in {call} {to} rank {}", pending.made.rank, pending.peer)
    });
    let said: Vec<String> = said.collect();
    let more = waits.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(Cause {
        kind: Kind::P2pDeadlock,
        culprits: circle.to_vec(),
        also_victims: Vec::new(),
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        certainty: Certainty::Certain,
        message: format!(
            "Ranks {} wait for each other in sends and receives, in a circle: {}{more}.",
            rank_list(circle),
            said.join("; "),
        ),
        fix:
            "Let one side receive first (even ranks send, odd ranks receive, then the reverse), or \
              post both with isend/irecv or batch_isend_irecv and wait afterwards."
                .to_owned(),
        evidence: waits
            .iter()
            .take(16)
            .map(|pending| evidence(scene, pending.made, "waits in"))
            .collect(),
    })
}
