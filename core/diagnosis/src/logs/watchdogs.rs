//! Statements of NCCL's watchdogs: in which call each rank timed out, of how many elements, and how far it
//! had come. Ranks that timed out in different calls under one number of a group disagree; one that
//! had not come as far as the others never came to theirs (`lagging_ranks`); and one that says nothing may
//! have ended, or be stuck (`silent_ranks`).

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::ended_ranks;
use crate::logs::fired::{Fired, Stood, fired, timed_out};
use crate::logs::lagging_ranks;
use crate::logs::log_finding::finding;
use crate::logs::silent_ranks;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement, is_world};
use std::collections::{BTreeMap, BTreeSet};

/// The progress of each rank in each group, as its watchdog says. Numbers of groups in which ranks
/// send to each other count two things.
fn stood(statements: &[Statement]) -> BTreeMap<&str, BTreeMap<GlobalRank, Stood>> {
    let mut groups: BTreeMap<&str, BTreeMap<GlobalRank, Stood>> = BTreeMap::new();
    for it in statements {
        if let Said::Stood { group, enqueued, completed } = &it.said {
            let own = groups.entry(group).or_default().entry(it.rank).or_default();
            own.enqueued = own.enqueued.max(*enqueued);
            own.completed = own.completed.max(*completed);
        }
    }
    let mixed = fired(statements, true);
    groups.retain(|group, _| !mixed.contains_key(group));
    groups
}

/// ` of tp`, where the log tells of several groups.
pub(crate) fn of_group(group: &str, groups: usize) -> String {
    let desc = group.split_once('(').map(|(_, desc)| desc.trim_end_matches(')'));
    match groups {
        0 | 1 => String::new(),
        _ => format!(" of {}", desc.filter(|desc| !desc.is_empty()).unwrap_or(group)),
    }
}

/// Ranks that timed out in different calls under one number of a group: the first such of every
/// group. The job has `world` ranks, as far as is known.
pub(crate) fn differing(statements: &[Statement], world: u32) -> Vec<Claim> {
    let groups = fired(statements, false);
    let found = groups.iter().filter_map(|(group, all)| {
        let label = of_group(group, groups.len());
        let members = is_world(group).then_some(world as usize);
        all.chunk_by(|a, b| a.seq == b.seq).find_map(|same| differ(same, &label, members))
    });
    found.collect()
}

/// The finding of one number under which calls differ, in a group of so many `members` if that is
/// known.
fn differ(same: &[Fired<'_>], label: &str, members: Option<usize>) -> Option<Claim> {
    let mut sides: BTreeMap<(&str, Option<u64>), BTreeMap<GlobalRank, Fired<'_>>> = BTreeMap::new();
    for fired in same {
        sides.entry((fired.family(), fired.numel())).or_default().insert(fired.at.rank, *fired);
    }
    let kind = match sides.keys().any(|(op, _)| sides.keys().any(|(other, _)| op != other)) {
        true => Kind::CollectiveMismatch,
        false => {
            // A line that says no number says nothing against others.
            sides.retain(|(_, numel), _| numel.is_some());
            Kind::SizeMismatch
        }
    };
    if sides.len() < 2 {
        return None;
    }
    let seq = same.first()?.seq;
    let most = sides.values().map(BTreeMap::len).max()?;
    let tie = sides.values().filter(|side| side.len() == most).count() > 1;
    let odd = |side: &BTreeMap<GlobalRank, Fired<'_>>| tie || side.len() < most;
    let about = sides.values().filter(|side| odd(side)).flat_map(BTreeMap::values);
    let about: Vec<&Statement> = about.map(|fired| fired.at).collect();
    let said: Vec<String> = sides
        .values()
        .take(8)
        .filter_map(|side| {
            let ranks: Vec<_> = side.keys().copied().collect();
            Some(format!("{} in {}", words::ranks(&ranks), side.values().next()?.described()))
        })
        .collect();
    let heard: usize = sides.values().map(BTreeMap::len).sum();
    let next = sides.values().map(BTreeMap::len).filter(|len| *len < most).max().unwrap_or(most);
    let alternatives = match members {
        _ if tie => Alternatives::AsLikely,
        // Those that say nothing may have made the other call.
        Some(members) if next + members.saturating_sub(heard) < most => Alternatives::None,
        _ => Alternatives::LessLikely,
    };
    let message = format!(
        "At #{seq}{label} the ranks timed out in different calls, as their watchdogs say: {}. A call \
         that was left out or made on top before looks like this as well: the log tells of the last \
         one only.",
        said.join("; ")
    );
    let fix = match kind {
        Kind::SizeMismatch => {
            "Give the call a tensor of the same number of elements on every rank. Set \
             TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the dumps show the calls before."
        }
        _ => {
            "Find the branch that sends ranks to different calls, and make every rank of the group \
             call the same collective there. Set TORCH_FR_BUFFER_SIZE and \
             TORCH_NCCL_DUMP_ON_TIMEOUT=1: the dumps show the calls before."
        }
    };
    let mut found = finding(kind, &about, message, fix)?;
    let victims = sides.values().filter(|side| !odd(side)).flat_map(BTreeMap::keys);
    found.also_victims = victims.copied().collect();
    found.also_victims.sort_unstable();
    (found.seq, found.alternatives) = (Some(seq), alternatives);
    Some(found)
}

/// The ranks that had called less than others timed out in, else whose watchdog says nothing, else that all
/// wait in one call. `world` ranks are known of otherwise.
pub(crate) fn timeouts(heard: &Heard, world: u32) -> Vec<Claim> {
    let statements = heard.statements.as_slice();
    let (groups, stood) = (fired(statements, false), stood(statements));
    let spoken = timed_out(statements);
    let ended = ended_ranks::of_others(statements, &spoken);
    let mut behind: Vec<Claim> = Vec::new();
    for (group, all) in &groups {
        let own: BTreeSet<GlobalRank> = all.iter().map(|fired| fired.at.rank).collect();
        let elsewhere: BTreeSet<GlobalRank> = spoken.difference(&own).copied().collect();
        let stood = stood.get(group).cloned().unwrap_or_default();
        let label = of_group(group, groups.len());
        behind.extend(lagging_ranks::found(statements, all, &stood, &elsewhere, &label));
    }
    if behind.is_empty() {
        behind.extend(lagging_ranks::idle(statements, &stood, &spoken));
    }
    // A rank that ended is behind because of it.
    let ended_first = |found: &Claim| ended.iter().any(|it| found.culprits.contains(&it.rank));
    if !behind.is_empty() && (ended.is_empty() || !behind.iter().any(ended_first)) {
        return behind;
    }
    // The group of which most is said; of several, the first.
    let most = groups.iter().max_by_key(|(group, all)| (all.len(), std::cmp::Reverse(*group)));
    let rest = most.and_then(|(group, all)| {
        let label = of_group(group, groups.len());
        let stood = stood.get(group).cloned().unwrap_or_default();
        silent_ranks::found(
            heard,
            &silent_ranks::Call { all, stood: &stood, group, label: &label },
            &ended,
            world,
        )
    });
    let rest = rest.or_else(|| silent_ranks::of_few(&fired(statements, true), &ended));
    rest.or_else(|| silent_ranks::signalled(statements)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::{found, report};
    use crate::report::Certainty;

    fn fires(rank: u32, seq: u64, op: &str, numel: u64) -> String {
        in_group("", rank, seq, op, numel)
    }

    fn in_group(group: &str, rank: u32, seq: u64, op: &str, numel: u64) -> String {
        format!(
            "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:629] [{group}Rank {rank}] Watchdog caught \
             collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, \
             NumelOut={numel}, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
        )
    }

    #[test]
    fn watchdogs_that_disagree_name_the_odd_one_out() {
        let usual = |rank| fires(rank, 17, "ALLREDUCE", 1024);
        let others = usual(0) + &usual(1) + &usual(3);
        let other_call = others.clone() + &fires(2, 17, "_ALLGATHER_BASE", 8);
        assert_eq!(found(&other_call), [(Kind::CollectiveMismatch, vec![2], Certainty::Certain)]);
        let other_size = others.clone() + &fires(2, 17, "ALLREDUCE", 999);
        assert_eq!(found(&other_size), [(Kind::SizeMismatch, vec![2], Certainty::Certain)]);
        let finding = &report(&other_size).findings[0];
        assert!(finding.message.contains("rank 2 in ALLREDUCE of 999 elements"), "{finding:?}");
        assert_eq!(finding.victims, [0, 1, 3].map(GlobalRank));
        // Ranks of which nothing is said may have made either.
        let few = usual(0) + &usual(7) + &fires(2, 17, "BROADCAST", 1024);
        assert_eq!(found(&few), [(Kind::CollectiveMismatch, vec![2], Certainty::Likely)]);
        let two = usual(0) + &fires(1, 17, "BROADCAST", 1024);
        assert_eq!(found(&two), [(Kind::CollectiveMismatch, vec![0, 1], Certainty::Undecidable)]);
        // Parts of an all_to_all may differ.
        let parts = fires(0, 3, "ALLTOALL_BASE", 8) + &fires(1, 3, "ALLTOALL_BASE", 9);
        assert_eq!(found(&parts)[0].0, Kind::CallNeverCompleted);
    }

    /// Numbers of different groups say nothing about each other.
    #[test]
    fn groups_are_told_apart() {
        let tp = |rank| in_group("PG ID 1 PG GUID 3(tp) ", rank, 5, "ALLREDUCE", 8);
        let world = |rank| in_group("PG ID 0 PG GUID 0(default_pg) ", rank, 9, "BROADCAST", 8);
        let text = tp(0) + &tp(1) + &world(2) + &world(3);
        assert_eq!(found(&text)[0].0, Kind::CallNeverCompleted);
        assert!(found(&text).iter().all(|(_, culprits, _)| culprits.is_empty()));
    }

    #[test]
    fn who_ends_by_an_exception_is_named_with_it() {
        let waits = |rank| fires(rank, 17, "ALLREDUCE", 1024);
        let raises = "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"train.py\"\n\
                      [rank2]: torch.OutOfMemoryError: CUDA out of memory.\n";
        let text = waits(0) + &waits(1) + &waits(3) + raises;
        assert_eq!(found(&text), [(Kind::RankDied, vec![2], Certainty::Likely)]);
        let finding = &report(&text).findings[0];
        assert_eq!(
            finding.message,
            "Rank 2 raised torch.OutOfMemoryError: CUDA out of memory. Ranks 0-1, 3 timed out in \
             ALLREDUCE #17, and nothing says that rank 2 came to it."
        );
        assert_eq!(finding.victims, [0, 1, 3].map(GlobalRank));
        assert_eq!(found(raises), [(Kind::RankDied, vec![2], Certainty::Likely)]);
    }

    /// A call that most are in has not ended for anybody: who is past it made another.
    #[test]
    fn the_majority_is_not_behind() {
        let waits = |rank| fires(rank, 17, "ALLREDUCE", 100);
        for next in [fires(2, 18, "ALLREDUCE", 100), fires(2, 18, "BROADCAST", 64)] {
            let text = waits(0) + &waits(1) + &waits(3) + &next;
            assert_eq!(found(&text), [(Kind::OpExtra, vec![2], Certainty::Likely)]);
            assert_eq!(report(&text).findings[0].victims, [0, 1, 3].map(GlobalRank));
            let tie = waits(0) + &next;
            assert_eq!(found(&tie), [(Kind::OpExtra, vec![0, 2], Certainty::Undecidable)]);
        }
    }

    #[test]
    fn who_is_behind_has_victims_and_one_line_blames_nobody() {
        let waits = |rank| fires(rank, 17, "ALLREDUCE", 1024);
        let text = waits(0) + &waits(1) + &waits(3) + &fires(2, 16, "_ALLGATHER_BASE", 8);
        assert_eq!(found(&text), [(Kind::RankNeverJoined, vec![2], Certainty::Likely)]);
        assert_eq!(report(&text).findings[0].victims, [0, 1, 3].map(GlobalRank));
        assert_eq!(found(&waits(3)), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
        assert_eq!(report(&waits(3)).findings[0].victims, [GlobalRank(3)]);
    }
}
