//! Ranks that are stuck inside a call that everybody made: what a recorder does not write down, the
//! root or the splits, may differ. How far the call got, and the sizes' sums, show it.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::edit_distance::WINDOW;
use crate::kinds::Kind;
use crate::model::index::{Made, Row};
use crate::words;
use crate::words::cap_ranks;
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankLog;
use lockstep_core::trace::numel;
use std::collections::BTreeMap;

/// The cause of ranks that all hang inside one call, while it ended on others.
pub(crate) fn claim(facts: &Facts<'_, '_>, culprits: &[GlobalRank]) -> Option<Claim> {
    let job = facts.job;
    let full = |row: &Row<'_>| {
        let size = job.group(row.group).map_or(0, |group| group.size() as usize);
        row.made.len() == size && row.waiting() == culprits
    };
    let (_, row) = job.open_rows().find(|(_, row)| full(row))?;
    if let Some(claim) = unequal_totals(facts, row).or_else(|| other_splits(facts, row)) {
        return Some(claim);
    }
    other_roots(facts, row)
}

/// The cause of a call that everybody made on gloo, that ended nowhere: of one root, the ranks that
/// only send to it, or it itself, would have come out of so small a call.
pub(crate) fn everybody(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    const SMALL: u64 = 1 << 18;
    let made = row.made.first()?;
    let sizes = made.record.call.inputs.iter().chain(&made.record.call.outputs);
    let numel = sizes.fold(0u64, |sum, tensor| sum.saturating_add(tensor.numel()));
    let size = facts.job.group(row.group).map_or(0, |group| group.size() as usize);
    let all = row.waiting().len() == size && size > 1;
    if !all {
        return None;
    }
    let roots = || (numel <= SMALL).then(|| other_roots(facts, row)).flatten();
    odd_sizes(facts, row).or_else(roots)
}

/// The cause of a call with a root, of gloo's, that some ranks do not come out of.
fn other_roots(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    let job = facts.job;
    let culprits = row.waiting();
    let made = row.made.first()?;
    let op = made.record.call.op.as_str();
    let rooted = matches!(op, "broadcast" | "reduce" | "gather" | "scatter");
    let gloo = job.group(row.group).is_some_and(|group| group.backend() == BackendName::Gloo);
    let known = row.made.iter().any(|made| made.record.call.root.is_some());
    if !(rooted && gloo && job.log.recorded) || known {
        return None;
    }
    let ended = match culprits.len() < row.made.len() {
        true => "which ended on the others",
        false => "and none has come out of it, as the root or its senders would",
    };
    Some(Claim {
        kind: Kind::RootMismatch,
        culprits: culprits.clone(),
        also_victims: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(op.to_owned()),
        alternatives: Alternatives::AsLikely,
        message: match culprits.as_slice() {
            [alone] => format!(
                "Rank {alone} is stuck inside {}, {ended}. It may have named another root than they, \
                 or one of them another than it: recordings do not hold the root. Or its process is \
                 stuck.",
                words::call(job.log, *made),
            ),
            _ => format!(
                "{} are stuck inside {}, {ended}. It looks as if they disagree on its root: each of \
                 two roots sends, and one of them is not listened to. Recordings do not hold the \
                 root, so who is wrong cannot be told.",
                cap_ranks(&culprits),
                words::call(job.log, *made),
            ),
        }.into(),
        fix: "Pass the same src= or dst= on every rank; it must not depend on the rank. \
              NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL logs the root of every call."
            .to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
    })
}

/// The cause of an `all_to_all` of gloo's that some ranks do not come out of, though as much is sent
/// as received: between some two of them it does not fit.
fn other_splits(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    let job = facts.job;
    let made = row.made.first()?;
    let gloo = job.group(row.group).is_some_and(|group| group.backend() == BackendName::Gloo);
    if !gloo || !job.log.recorded || made.record.call.op != "all_to_all" {
        return None;
    }
    // Most ranks send as much as they expect; the others are to be looked at first.
    let uneven = row.made.iter().filter(|made| sides(made).0 != sides(made).1);
    let uneven: Vec<GlobalRank> = uneven.map(|made| made.rank).collect();
    let few = !uneven.is_empty() && uneven.len() * 2 <= row.made.len();
    let culprits = if few { uneven } else { row.waiting() };
    Some(Claim {
        kind: Kind::SplitMismatch,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: Alternatives::AsLikely,
        message: format!(
            "{} are stuck inside {}, which ended on the others, though as much is sent as received: \
             between some two ranks it does not fit. Recordings hold the sums of the splits only; \
             look at {} first.",
            cap_ranks(&row.waiting()),
            words::call(job.log, *made),
            words::ranks(&culprits),
        ).into(),
        fix: FIX_SPLITS.to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
        culprits,
    })
}

/// The elements that a rank sends and expects.
pub(crate) fn sides(made: &Made<'_>) -> (u64, u64) {
    (numel(&made.record.call.inputs), numel(&made.record.call.outputs))
}

/// The cause of an `all_to_all` that some or all do not come out of, though as much is sent as received, where
/// all but one rank pass the same sizes, and before that all of them always have.
pub(crate) fn odd_sizes(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    let job = facts.job;
    let made = row.made.first()?;
    if !job.log.recorded || made.record.call.op != "all_to_all" {
        return None;
    }
    let all_alike = |row: &Row<'_>| {
        row.made.windows(2).all(|pair| match pair {
            [a, b] => sides(a) == sides(b),
            _ => true,
        })
    };
    let rows = job.rows_of(row.group).iter().filter(|before| before.seq < row.seq);
    let mut before =
        rows.filter(|row| row.made.iter().all(|made| made.record.call.op == "all_to_all"));
    let mut by_size: BTreeMap<(u64, u64), Vec<GlobalRank>> = BTreeMap::new();
    for made in &row.made {
        by_size.entry(sides(made)).or_default().push(made.rank);
    }
    let (2, true) = (by_size.len(), row.made.len() > 2) else { return None };
    let odd = by_size.values().find(|ranks| ranks.len() == 1)?.clone();
    let first = before.next()?;
    if !all_alike(first) || !before.all(all_alike) {
        return None;
    }
    let own = odd.first().and_then(|rank| row.of(*rank))?;
    let other = row.made.iter().find(|made| sides(made) != sides(&own))?;
    Some(Claim {
        kind: Kind::SplitMismatch,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} sends {} elements in {} and expects {}, all others {} and {}; until then all of them \
             always passed the same. Most likely what it exchanges with some other rank does not fit; \
             recordings hold the sums of the splits only.",
            cap_ranks(&odd),
            sides(&own).0,
            words::call(job.log, own),
            sides(&own).1,
            sides(other).0,
            sides(other).1,
        ).into(),
        fix: FIX_SPLITS.to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
        culprits: odd,
    })
}

/// The fix of splits that disagree.
const FIX_SPLITS: &str = "input_split_sizes[j] of rank i must equal output_split_sizes[i] of rank j: \
                          exchange the sizes with an all_to_all_single of one number a rank first.";

/// The last `all_to_all` of a row's members before it in which as much was sent as received.
pub(crate) fn fitted_before<'s, 'a>(
    facts: &'s Facts<'a, '_>,
    row: &Row<'a>,
) -> Option<&'s Row<'a>> {
    let fitted = |before: &&Row<'_>| {
        let exchange = before.made.iter().all(|made| made.record.call.op == "all_to_all");
        let (sent, received) = totals(before);
        before.made.len() == row.made.len() && exchange && sent == received
    };
    let rows = facts.job.rows_of(row.group).iter().filter(|before| before.seq < row.seq);
    rows.rev().take(WINDOW).find(fitted)
}

/// The elements that the ranks of a row send together, and expect.
fn totals(row: &Row<'_>) -> (u64, u64) {
    row.made.iter().map(sides).fold((0u64, 0u64), |(sent, received), (a, b)| {
        (sent.saturating_add(a), received.saturating_add(b))
    })
}

/// The cause of an `all_to_all` in which more is sent than received, or less: some rank's splits do
/// not fit. The sizes are recorded, the splits are not.
pub(crate) fn unequal_totals(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    let size = facts.job.group(row.group).map_or(0, |group| group.size() as usize);
    let made = row.made.first()?;
    let planned = facts.job.log.plan.is_some();
    if planned || made.record.call.op != "all_to_all" || row.made.len() != size {
        return None;
    }
    // A member of whom nothing is seen sends and expects something as well.
    let unseen = |own: &Option<RankLog>| own.as_ref().is_none_or(RankLog::is_cut);
    if facts.job.members_are_worked_out(row.group) && facts.job.log.ranks.iter().any(unseen) {
        return None;
    }
    let total = totals(row);
    if total.0 == total.1 {
        return None;
    }
    // A rank that passes the sizes of an earlier call that fitted is not the one that changed them.
    let before = fitted_before(facts, row);
    let is_new = |rank: GlobalRank| {
        before.is_none_or(|before| {
            before.of(rank).as_ref().map(sides) != row.of(rank).as_ref().map(sides)
        })
    };
    let changed: Vec<GlobalRank> =
        row.made.iter().map(|made| made.rank).filter(|rank| is_new(*rank)).collect();
    // If all ranks but one pass the same sizes, that one is the odd one out.
    let mut by_size: BTreeMap<(u64, u64), Vec<GlobalRank>> = BTreeMap::new();
    for made in &row.made {
        by_size.entry(sides(made)).or_default().push(made.rank);
    }
    let odd = by_size.values().filter(|ranks| ranks.len() == 1);
    let odd: Vec<GlobalRank> = match (by_size.len(), size) {
        (2, 3..) => odd.flatten().copied().filter(|rank| is_new(*rank)).collect(),
        _ => Vec::new(),
    };
    let one_changed = before.is_some() && changed.len() == 1;
    let (culprits, alternatives) = match odd.is_empty() {
        _ if one_changed => (changed, Alternatives::LessLikely),
        false => (odd, Alternatives::LessLikely),
        true => (row.waiting(), Alternatives::AsLikely),
    };
    let who = match alternatives {
        Alternatives::LessLikely if one_changed => {
            format!(
                " {} passes other sizes than before, and all others the same.",
                cap_ranks(&culprits)
            )
        }
        Alternatives::LessLikely => {
            format!(" {} passes other sizes than all others.", cap_ranks(&culprits))
        }
        _ => " Which rank's splits are wrong cannot be told from the sizes.".to_owned(),
    };
    Some(Claim {
        kind: Kind::SplitMismatch,
        culprits,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives,
        message: format!(
            "In {} the ranks send {} elements together and expect {}.{who}",
            words::call(facts.job.log, *made),
            total.0,
            total.1,
        )
        .into(),
        fix: FIX_SPLITS.to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
    })
}
