//! Rows whose calls are not the same collective, and who is in the minority.

use super::index::{Job, Row};
use super::signature::{Difference, Signature};
use crate::group::GroupId;
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

/// The first row of a group in which the members' calls differ.
#[derive(Clone, Debug)]
pub(super) struct Mismatch {
    /// Its index in [`Job::rows`].
    pub(super) row: usize,
    /// The ranks that made the call that most made; empty if no call has a majority.
    pub(super) majority: Vec<GlobalRank>,
    /// The others, by what they called; if there is no majority, every side.
    pub(super) sides: Vec<Side>,
    /// True if as many ranks made the one call as the other, and only the calls before tell which
    /// is the usual one.
    pub(super) by_history: bool,
}

/// Ranks that made the same call.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// Ascending.
    pub(super) ranks: Vec<GlobalRank>,
    /// How their call differs from the majority's (from the first side's in a tie).
    pub(super) difference: Difference,
}

/// The first mismatch of every group, by group.
pub(super) fn first_mismatches(job: &Job<'_>) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = Vec::new();
    let mut done: Option<GroupId> = None;
    for (at, row) in job.rows.iter().enumerate() {
        // What follows a group's first mismatch is its consequence.
        if done == Some(row.group) {
            continue;
        }
        if let Some(mismatch) = mismatch(job, at, row) {
            done = Some(row.group);
            found.push(mismatch);
        }
    }
    found
}

fn mismatch(job: &Job<'_>, at: usize, row: &Row<'_>) -> Option<Mismatch> {
    let mut signatures = row.made.iter().map(|made| Signature::of(&made.record.call));
    let first = signatures.next()?;
    if signatures.all(|signature| first.difference(&signature).is_none()) {
        return None;
    }
    // Uneven parts of a gather may be meant; they only count where somebody is stuck.
    let strict = |op: &str| matches!(op, "all_reduce" | "broadcast" | "reduce");
    if !row.open() && !row.made.iter().all(|made| strict(&made.record.call.op)) {
        return None;
    }
    let mut sides: BTreeMap<Signature<'_>, Vec<GlobalRank>> = BTreeMap::new();
    for made in &row.made {
        sides.entry(Signature::of(&made.record.call)).or_default().push(made.rank);
    }
    let most = sides.values().map(Vec::len).max()?;
    let mut leaders = sides.iter().filter(|(_, ranks)| ranks.len() == most);
    let mut leader = leaders.next().map(|(signature, ranks)| (*signature, ranks.clone()))?;
    let mut tie = leaders.next().is_some();
    let mut usual = sides.iter().filter(|(signature, ranks)| {
        tie && ranks.len() == most && is_usual(job, row, signature, ranks)
    });
    let by_history = match (usual.next(), usual.next()) {
        (Some((signature, ranks)), None) => {
            leader = (*signature, ranks.clone());
            tie = false;
            true
        }
        _ => false,
    };
    let sides = sides.into_iter().filter(|(signature, _)| tie || *signature != leader.0);
    let mut sides: Vec<Side> = sides
        .map(|(signature, ranks)| Side {
            difference: leader.0.difference(&signature).unwrap_or(Difference::Op),
            ranks,
        })
        .collect();
    if tie && let Some(other) = sides.iter().map(|side| side.difference).next_back() {
        // The leader differs from itself in nothing: it stands on a side like the others.
        sides.iter_mut().for_each(|side| side.difference = other);
    }
    sides.sort_by(|a, b| a.ranks.cmp(&b.ranks));
    Some(Mismatch { row: at, majority: if tie { Vec::new() } else { leader.1 }, sides, by_history })
}

/// True if every call that was made from this line before, by anybody, had this signature, and there
/// were a few.
fn is_usual(job: &Job<'_>, row: &Row<'_>, signature: &Signature<'_>, ranks: &[GlobalRank]) -> bool {
    const FEW: usize = 2;
    let Some(made) = ranks.first().and_then(|rank| row.of(*rank)) else { return false };
    let stack = &made.record.call.stack;
    let before = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let mut rounds = 0;
    for before in before {
        let from_there = before.made.iter().filter(|made| made.record.call.stack == *stack);
        let mut from_there = from_there.map(|made| Signature::of(&made.record.call)).peekable();
        rounds += usize::from(from_there.peek().is_some());
        if from_there.any(|other| other != *signature) {
            return false;
        }
    }
    !stack.is_empty() && rounds >= FEW
}
