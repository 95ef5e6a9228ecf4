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
pub(super) struct Look {
    /// The calls that each rank has made.
    pub(super) calls: BTreeMap<GlobalRank, Numbers>,
    /// The frames of their main threads.
    pub(super) main_threads: BTreeMap<GlobalRank, String>,
}

impl Look {
    /// The calls that a log shows.
    pub(super) fn at(log: &CallLog) -> Look {
        let calls = log.logs().map(|(rank, own)| (rank, numbers(log, own))).collect();
        Look { calls, main_threads: BTreeMap::new() }
    }

    /// True if no rank that is in both made a call since an earlier look; where no calls are known, if all of
    /// their main threads are where they were.
    pub(super) fn stands_still(&self, before: &Look) -> bool {
        let calls = self.calls_since(before);
        match calls.is_empty() {
            true => self.elsewhere(before).is_empty(),
            false => calls.iter().all(|(calls, _)| *calls == 0),
        }
    }

    /// The ranks whose main threads are somewhere else than at an earlier look.
    fn elsewhere(&self, before: &Look) -> Vec<GlobalRank> {
        let moved = self
            .main_threads
            .iter()
            .filter(|(rank, now)| before.main_threads.get(rank).is_some_and(|then| then != *now));
        moved.map(|(rank, _)| *rank).collect()
    }

    /// The numbers of calls that ranks made since an earlier look, with the ranks, most calls first.
    fn calls_since(&self, before: &Look) -> Vec<(u64, Vec<GlobalRank>)> {
        let mut by_calls: BTreeMap<u64, Vec<GlobalRank>> = BTreeMap::new();
        for (rank, now) in &self.calls {
            let Some(then) = before.calls.get(rank) else { continue };
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
            let elsewhere = self.elsewhere(before);
            let both = self.main_threads.keys().any(|rank| before.main_threads.contains_key(rank));
            return match (both, &elsewhere[..]) {
                (false, _) => "no rank has answered both times".to_owned(),
                (true, []) => "all main threads are where they were".to_owned(),
                (true, [_]) => format!("rank {} has gone on", rank_list(&elsewhere)),
                (true, _) => format!("ranks {} have gone on", rank_list(&elsewhere)),
            };
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
        let calls = ranks.iter().map(|(rank, own)| (GlobalRank(*rank), numbers(own))).collect();
        Look { calls, ..Look::default() }
    }

    /// A job whose calls nobody knows is told by where its main threads are.
    #[test]
    fn stacks_tell_a_job_that_goes_on_where_calls_do_not() {
        let at = |lines: [&str; 2]| Look {
            main_threads: (0..).map(GlobalRank).zip(lines.map(str::to_owned)).collect(),
            ..Look::default()
        };
        let before = at(["    all_reduce", "    barrier"]);
        assert!(before.stands_still(&before));
        assert_eq!(before.since(&before), "all main threads are where they were");
        let after = at(["    all_reduce", "    save"]);
        assert!(!after.stands_still(&before));
        assert_eq!(after.since(&before), "rank 1 has gone on");
        assert_eq!(after.since(&Look::default()), "no rank has answered both times");
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
