//! Works out the members of groups whose dumps do not list them, as gloo's do not.
//!
//! Four things are known. A rank that called a group is a member. A rank numbers its groups in the order in
//! which they were made (`pg_id`), while a group's name counts all groups that were made, its own or not: two
//! groups that a rank numbers 0 and 2 have one between them that the rank is a member of, and if only one
//! name lies between theirs, it is that one. The one group that gloo does list, under an empty name, is the
//! last that the rank is a member of, in group ranks: this gives a size. And ranks of a group are nearly
//! always evenly spaced (`[1, 2, 3]`, `[0, 2]`).

use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// Evidence from one rank's dump about its groups.
#[derive(Default)]
pub(super) struct RankHint {
    /// `pg_id` to the number in the group's name, for the groups that the rank called.
    pub(super) numbers: BTreeMap<u64, u64>,
    /// The size of the last group that the rank is a member of.
    pub(super) last_size: Option<usize>,
}

/// A group whose members are to be worked out.
pub(super) struct Unlisted<'a> {
    /// The number in its name; `None` if the name is no number.
    pub(super) number: Option<u64>,
    /// The ranks that called it.
    pub(super) callers: &'a BTreeSet<GlobalRank>,
    /// True if a call is pending on all its callers, so that another rank must be missing.
    pub(super) stalled: bool,
    /// Ranks that are in another group in its place.
    pub(super) strangers: &'a BTreeSet<GlobalRank>,
    /// Ranks without a dump.
    pub(super) absent: &'a BTreeSet<GlobalRank>,
    /// The size of groups like it: a mesh's are all of one size.
    pub(super) kin_size: Option<usize>,
}

/// The relation of a rank that never called a group to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Member,
    Maybe,
    Stranger,
}

/// The members, ascending, as far as they can be worked out: at least the callers.
pub(super) fn members(
    group: &Unlisted<'_>,
    hints: &BTreeMap<GlobalRank, RankHint>,
) -> Vec<GlobalRank> {
    let mut members = group.callers.clone();
    let Some(number) = group.number else { return members.into_iter().collect() };
    let size = size_of(number, group.callers, hints);
    let mut maybe = BTreeSet::new();
    for (rank, hint) in hints {
        if group.callers.contains(rank) || group.strangers.contains(rank) {
            continue;
        }
        match hint.standing(number, size) {
            Standing::Member => drop(members.insert(*rank)),
            Standing::Maybe => drop(maybe.insert(*rank)),
            Standing::Stranger => {}
        }
    }
    if let Some(wanted) = group.kin_size.filter(|wanted| members.len() < *wanted)
        && let Some(found) = completed(&members, group.absent, wanted)
    {
        members.extend(found);
    }
    maybe.extend(group.absent.iter().filter(|rank| !members.contains(rank)));
    let complete = match size {
        Some(size) => members.len() >= size,
        // Without a size, only a group that waits for somebody unseen needs one more.
        None => !group.stalled || members.len() > group.callers.len(),
    };
    if !complete {
        let wanted = size.unwrap_or(members.len() + 1);
        if let Some(found) = completed(&members, &maybe, wanted) {
            members.extend(found);
        }
    }
    members.into_iter().collect()
}

/// The size that the callers' dumps agree on, of those for which the group is the last one seen.
fn size_of(
    number: u64,
    callers: &BTreeSet<GlobalRank>,
    hints: &BTreeMap<GlobalRank, RankHint>,
) -> Option<usize> {
    let told = callers.iter().filter_map(|rank| hints.get(rank));
    let last = told.filter(|hint| hint.numbers.values().max() == Some(&number));
    let mut sizes = last.filter_map(|hint| hint.last_size);
    let first = sizes.next()?;
    (sizes.all(|size| size == first) && first >= callers.len()).then_some(first)
}

impl RankHint {
    fn standing(&self, number: u64, size: Option<usize>) -> Standing {
        let below = self.numbers.iter().rfind(|(_, known)| **known < number);
        let above = self.numbers.iter().find(|(_, known)| **known > number);
        // The default group is number 0 on every rank, whether it was called or not.
        let (below_id, below_number) = below.map_or((0, 0), |(id, known)| (*id, *known));
        let Some((above_id, above_number)) = above else {
            let last_may_be_this =
                size.is_none() || self.last_size.is_none() || self.last_size == size;
            return if last_may_be_this { Standing::Maybe } else { Standing::Stranger };
        };
        let own_between = above_id.saturating_sub(below_id).saturating_sub(1);
        let all_between = above_number.saturating_sub(below_number).saturating_sub(1);
        match own_between {
            0 => Standing::Stranger,
            own if own == all_between => Standing::Member,
            _ => Standing::Maybe,
        }
    }
}

/// The ranks of `maybe` that make `members` a group of `size`: all that there are if just as many
/// are needed, else those that make the group evenly spaced, if only one choice does.
fn completed(
    members: &BTreeSet<GlobalRank>,
    maybe: &BTreeSet<GlobalRank>,
    size: usize,
) -> Option<Vec<GlobalRank>> {
    let needed = size.checked_sub(members.len())?;
    if needed == maybe.len() {
        return Some(maybe.iter().copied().collect());
    }
    let (first, last) = (members.first()?.0, members.last()?.0);
    let span = u64::from(last - first);
    let mut choices = BTreeSet::new();
    // Groups beyond this are of no use to look for among strangers.
    let size = u64::try_from(size).ok().filter(|size| (2..=4096).contains(size))?;
    let top = maybe.last()?.0.max(last);
    let max_step = if span == 0 { u64::from(top) } else { span };
    for step in 1..=max_step.min(4096) {
        if span % step != 0 || span / step >= size {
            continue;
        }
        for before in 0..=(size - 1 - span / step) {
            let Some(start) = u64::from(first).checked_sub(before * step) else { break };
            let choice: BTreeSet<GlobalRank> = (0..size)
                .filter_map(|i| u32::try_from(start + i * step).ok())
                .map(GlobalRank)
                .collect();
            let fits = choice.is_superset(members)
                && choice.iter().all(|rank| members.contains(rank) || maybe.contains(rank));
            if fits {
                choices.insert(choice);
            }
        }
        if choices.len() > 1 {
            return None;
        }
    }
    let choice = choices.pop_first()?;
    Some(choice.difference(members).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(ranks: &[u32]) -> BTreeSet<GlobalRank> {
        ranks.iter().copied().map(GlobalRank).collect()
    }

    fn found(members: &[u32], maybe: &[u32], size: usize) -> Option<Vec<u32>> {
        let found = completed(&ranks(members), &ranks(maybe), size)?;
        Some(found.into_iter().map(|rank| rank.0).collect())
    }

    #[test]
    fn groups_are_completed_evenly_or_not_at_all() {
        assert_eq!(found(&[2, 3], &[0, 1], 3), Some(vec![1]));
        assert_eq!(found(&[0, 4], &[1, 2, 3], 3), Some(vec![2]));
        assert_eq!(found(&[0, 4], &[1, 2, 3, 8], 3), None, "[0, 2, 4] or [0, 4, 8]");
        assert_eq!(found(&[1], &[0], 2), Some(vec![0]));
        assert_eq!(found(&[1], &[0, 2], 2), None);
        assert_eq!(found(&[1, 2], &[0, 3], 3), None);
        assert_eq!(found(&[0, 3], &[1], 4), None);
    }
}
