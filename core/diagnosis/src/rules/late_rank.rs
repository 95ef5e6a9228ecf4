//! A rank that came to a call when the others had given it up: nobody waits any more in what is recorded,
//! and the job ended all the same.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Made, Row};
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

const PS_PER_MS: i128 = 1_000_000_000;

/// The ranks that came to the last call of a group later than its timeout allows, where that is the last
/// call of all of them. A clock that is ahead of the others' is so in all calls: a rank's lateness counts
/// from where it was least late.
pub(crate) fn claim(facts: &Facts<'_, '_>) -> Option<Claim> {
    let log = facts.job.log;
    if !log.recorded {
        return None;
    }
    let groups = (0..).map(GroupId).zip(&log.groups);
    groups.filter(|(_, group)| group.size() > 1).find_map(|(id, group)| {
        let rows = facts.job.rows_of(id);
        let row = rows.last().filter(|row| row.made.len() == group.size() as usize)?;
        if !row.made.iter().all(|made| is_last(facts, made)) {
            return None;
        }
        let late = lateness(rows, row);
        let most = i128::from(group.timeout_ms()) * PS_PER_MS;
        let (culprits, others): (Vec<Made<'_>>, Vec<Made<'_>>) =
            row.made.iter().copied().partition(|made| late.get(&made.rank).is_some_and(|it| *it > most));
        let first = *culprits.first()?;
        let by = late.get(&first.rank).and_then(|late| u64::try_from(*late).ok())?;
        let of = |made: &[Made<'_>]| made.iter().map(|made| made.rank).collect::<Vec<_>>();
        let (culprits, others) = (of(&culprits), of(&others));
        let waited = ranks(&others);
        let give_up = words::duration(group.timeout_ms().saturating_mul(PS_PER_MS as u64));
        Some(Claim {
            kind: Kind::RankNeverJoined,
            message: format!(
                "{} came to {} {} after {waited}, which give a call up after {give_up}: for them it never \
                 came in time, and nobody is seen to call anything behind it.",
                cap_ranks(&culprits),
                words::call(log, first),
                words::duration(by),
            ).into(),
            fix: "Look at what the rank did before the call: an evaluation, a checkpoint or a data loader \
                  that takes longer on it than a call may wait. Do it on all ranks, or in the background, or \
                  give init_process_group(timeout=…) more."
                .to_owned(),
            also_victims: others,
            group: Some(id),
            seq: Some(row.seq),
            op: Some(first.record.call.op.clone()),
            alternatives: Alternatives::LessLikely,
            evidence: row.made.iter().take(16).map(|made| evidence(facts, *made, "came to")).collect(),
            culprits,
        })
    })
}

/// True if a rank has made no call since.
fn is_last(facts: &Facts<'_, '_>, made: &Made<'_>) -> bool {
    let last = facts.job.rank(made.rank).and_then(|own| own.calls.last());
    last.is_some_and(|last| last.work == made.record.work)
}

/// By how much each rank came to a call after the first one, beyond what it always does, in picoseconds.
fn lateness(rows: &[Row<'_>], row: &Row<'_>) -> BTreeMap<GlobalRank, i128> {
    let late = |row: &Row<'_>, made: &Made<'_>| {
        i128::from(made.record.scheduled_ps) - i128::from(row.first_ps())
    };
    let full = rows.iter().filter(|other| other.made.len() == row.made.len());
    let mut least: BTreeMap<GlobalRank, i128> = BTreeMap::new();
    for (row, made) in full.flat_map(|row| row.made.iter().map(move |made| (row, made))) {
        let late = late(row, made);
        let least = least.entry(made.rank).or_insert(late);
        *least = late.min(*least);
    }
    let own = |made: &Made<'_>| late(row, made) - least.get(&made.rank).copied().unwrap_or(0);
    row.made.iter().map(|made| (made.rank, own(made))).collect()
}
