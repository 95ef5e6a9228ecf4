//! The calls that ranks made between two looks at a job.

use lockstep_core::group::ProcessGroup;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, RankLog};
use lockstep_core::words::{counted, rank_list};
use std::collections::BTreeMap;

/// The number of calls that a rank has made, by group and kind: the last sequence number.
type Numbers = BTreeMap<(String, bool), u64>;

/// The state of the ranks at one look.
#[derive(Debug, Default)]
pub(super) struct Look(BTreeMap<GlobalRank, Numbers>);

impl Look {
    pub(super) fn at(log: &CallLog) -> Look {
        Look(log.logs().map(|(rank, own)| (rank, numbers(log, own))).collect())
    }

    /// True if no rank that is in both made a call since an earlier look.
    pub(super) fn stands_still(&self, before: &Look) -> bool {
        !self.calls_since(before).iter().any(|(calls, _)| *calls > 0)
    }

    /// The numbers of calls that ranks made since an earlier look, with the ranks, most calls first.
    fn calls_since(&self, before: &Look) -> Vec<(u64, Vec<GlobalRank>)> {
        let mut by_calls: BTreeMap<u64, Vec<GlobalRank>> = BTreeMap::new();
        for (rank, now) in &self.0 {
            let Some(then) = before.0.get(rank) else { continue };
            let of = |(key, number): (&(String, bool), &u64)| {
                number.saturating_sub(then.get(key).copied().unwrap_or(0))
            };
            by_calls.entry(now.iter().map(of).sum()).or_default().push(*rank);
        }
        by_calls.into_iter().rev().collect()
    }

    /// The calls made since an earlier look, in a sentence.
    pub(super) fn since(&self, before: &Look) -> String {
        let calls = self.calls_since(before);
        if calls.is_empty() {
            return "no rank has answered both times".to_owned();
        }
        if calls.iter().all(|(calls, _)| *calls == 0) {
            return "no rank has made a call since".to_owned();
        }
        let parts = calls.iter().map(|(calls, ranks)| {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            let made = match calls {
                0 => "none".to_owned(),
                calls => counted(*calls, "call"),
            };
            format!("{noun} {} made {made}", rank_list(ranks))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn numbers(log: &CallLog, own: &RankLog) -> Numbers {
    let mut numbers = Numbers::new();
    for record in &own.calls {
        let group = log.groups.get(record.call.group.index()).map(ProcessGroup::name);
        let key = (group.unwrap_or_default().to_owned(), record.call.p2p);
        let number = numbers.entry(key).or_default();
        *number = (*number).max(record.seq.unwrap_or(0));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(ranks: &[(u32, &[(&str, u64)])]) -> Look {
        let numbers = |own: &[(&str, u64)]| {
            own.iter().map(|(group, number)| (((*group).to_owned(), false), *number)).collect()
        };
        Look(ranks.iter().map(|(rank, own)| (GlobalRank(*rank), numbers(own))).collect())
    }

    #[test]
    fn ranks_that_moved_are_told_from_those_that_did_not() {
        let before = look(&[(0, &[("0", 4)]), (1, &[("0", 4)]), (2, &[("0", 3)])]);
        let after = look(&[(0, &[("0", 6)]), (1, &[("0", 5), ("1", 1)]), (2, &[("0", 3)])]);
        assert!(!after.stands_still(&before));
        assert_eq!(after.since(&before), "ranks 0-1 made 2 calls, rank 2 made none");
        assert!(after.stands_still(&after));
        assert_eq!(after.since(&after), "no rank has made a call since");
        assert_eq!(after.since(&look(&[])), "no rank has answered both times");
    }
}
