//! Groups whose members no recording lists, gloo's: of who waits alone in one of them nothing says for
//! whom.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Made, Row};
use crate::words;
use crate::words::{cap_ranks, ranks, s};
use lockstep_core::rank::GlobalRank;

/// At most this many waits are spelled out.
const SHOWN: usize = 6;

/// Ranks that wait, each alone, in groups whose members are not listed (gloo's): nobody that was
/// recorded is free to come to them, so they wait for each other. Where nothing else is `explained`, one
/// that waits alone is enough, if another waits for it in a group of that kind.
pub(crate) fn alone_in_groups(facts: &Facts<'_, '_>, explained: bool) -> Option<Claim> {
    let job = facts.job;
    let rows: Vec<_> =
        job.open_rows().map(|(_, row)| row).filter(|row| job.is_alone(row)).collect();
    let alone: Vec<Made<'_>> = rows.iter().filter_map(|row| row.made.first().copied()).collect();
    // Those who wait in other groups of that kind are in the circle as well; who waits in the
    // default group only waits for them.
    let unlisted = job.open_rows().filter(|(_, row)| job.members_are_worked_out(row.group));
    let mut culprits: Vec<GlobalRank> = unlisted.flat_map(|(_, row)| row.waiting()).collect();
    culprits.sort_unstable();
    culprits.dedup();
    // Ranks that wait in one of these groups for a rank that waits alone in another.
    let lacks_one = |row: &Row<'_>| alone.iter().any(|made| row.lacks(made.rank));
    let lacking = job.open_rows().map(|(_, row)| row);
    let lacking =
        lacking.filter(|row| !explained && job.members_are_worked_out(row.group) && lacks_one(row));
    let behind: Vec<&Row<'_>> = lacking.collect();
    let all_wait = job.log.logs().all(|(rank, _)| !crate::facts::idle(facts, rank));
    let all_recorded = job.log.ranks.iter().all(Option::is_some);
    let first = alone.first()?;
    if alone.len() + behind.len() < 2 || !all_wait || !all_recorded {
        return None;
    }
    let said = alone
        .iter()
        .map(|made| format!("rank {} waits alone in {}", made.rank, words::call(job.log, *made)));
    let waits = behind.iter().filter_map(|row| {
        let (waiting, made) = (row.waiting(), row.made.iter().find(|made| made.pending())?);
        let call = words::call(job.log, *made);
        Some(format!(
            "{} wait{} in {call} for {}",
            ranks(&waiting),
            s(&waiting),
            ranks(&row.absent)
        ))
    });
    let said: Vec<String> = said.chain(waits).take(SHOWN).collect();
    let seen = behind.iter().flat_map(|row| row.made.iter().filter(|made| made.pending()));
    let seen: Vec<Made<'_>> = alone.iter().chain(seen).take(16).copied().collect();
    Some(Claim {
        kind: Kind::GroupDeadlock,
        message: format!(
            "{} wait for each other in a circle: {}. Everybody waits, so none of them can be joined. \
             (gloo does not record who is in a group{}.)",
            cap_ranks(&culprits),
            said.join("; "),
            match alone.len() {
                1 =>
                    ": if the one that is waited for in vain is another, that one left the call out",
                _ => "",
            },
        ).into(),
        culprits,
        also_victims: Vec::new(),
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        alternatives: Alternatives::LessLikely,
        fix: "Call the groups in the same order on every rank that is in several of them."
            .to_owned(),
        evidence: seen.iter().map(|made| evidence(facts, *made, "waits in")).collect(),
    })
}
