//! What NCCL's watchdogs say: in which call each rank timed out, of how many elements. Ranks that
//! timed out in different calls under one number of a group disagree; one that timed out earlier
//! than the others never came to theirs; and one that says nothing may have ended.

use super::ended::{self, is_end};
use super::logged::finding;
use super::report::{Certainty, Finding, Kind};
use super::words::{self, cap_ranks, rank_list, ranks};
use crate::job_log::{Said, Statement};
use crate::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// A call in which a rank timed out.
#[derive(Clone, Copy)]
struct Fired<'a> {
    at: &'a Statement,
    seq: u64,
    op: &'a str,
    numel_in: Option<u64>,
    numel_out: Option<u64>,
    last_enqueued: Option<u64>,
}

impl Fired<'_> {
    /// The collective without what PyTorch's variants of it are called: `ALLGATHER` for
    /// `_ALLGATHER_BASE`.
    fn family(&self) -> &str {
        self.op.trim_start_matches('_').trim_end_matches("_BASE")
    }

    /// The elements that all ranks of the group must have in common, if the call is one of those.
    fn numel(&self) -> Option<u64> {
        match self.family() {
            "ALLREDUCE" | "ALLREDUCE_COALESCED" | "BROADCAST" | "REDUCE" | "ALLGATHER" => {
                self.numel_in
            }
            "REDUCE_SCATTER" => self.numel_out,
            _ => None,
        }
    }

    /// `ALLREDUCE of 1048576 elements`.
    fn described(&self) -> String {
        match self.numel().or(self.numel_in) {
            Some(numel) => format!("{} of {numel} elements", self.op),
            None => self.op.to_owned(),
        }
    }
}

/// What the watchdogs say, by group and number, ascending.
fn fired(statements: &[Statement]) -> BTreeMap<&str, Vec<Fired<'_>>> {
    let mut groups: BTreeMap<&str, Vec<Fired<'_>>> = BTreeMap::new();
    for at in statements {
        if let Said::TimedOut { group, seq, op, numel_in, numel_out, last_enqueued } = &at.said {
            let (numel_in, numel_out, last_enqueued) = (*numel_in, *numel_out, *last_enqueued);
            let fired = Fired { at, seq: *seq, op, numel_in, numel_out, last_enqueued };
            groups.entry(group).or_default().push(fired);
        }
    }
    for fired in groups.values_mut() {
        fired.sort_by_key(|fired| (fired.seq, fired.at.rank, fired.at.line));
    }
    groups
}

/// ` of tp`, where the log tells of several groups.
fn of_group(group: &str, groups: usize) -> String {
    let desc = group.split_once('(').map(|(_, desc)| desc.trim_end_matches(')'));
    match groups {
        0 | 1 => String::new(),
        _ => format!(" of {}", desc.filter(|desc| !desc.is_empty()).unwrap_or(group)),
    }
}

/// True of the group of all ranks, as far as the log says which it is.
fn is_world(group: &str) -> bool {
    group.is_empty() || group.contains("default_pg")
}

/// One past the highest rank that is known of.
fn world_of(statements: &[Statement], world: u32) -> u32 {
    let above = statements.iter().map(|it| it.rank.0.saturating_add(1)).max();
    above.unwrap_or(0).max(world)
}

/// Ranks that timed out in different calls under one number of a group: the first such of every
/// group. `world` ranks are known of otherwise.
pub(super) fn differing(statements: &[Statement], world: u32) -> Vec<Finding> {
    let groups = fired(statements);
    let world = world_of(statements, world);
    let found = groups.iter().filter_map(|(group, all)| {
        let label = of_group(group, groups.len());
        let members = is_world(group).then_some(world as usize);
        all.chunk_by(|a, b| a.seq == b.seq).find_map(|same| differ(same, &label, members))
    });
    found.collect()
}

/// The finding of one number under which calls differ, in a group of so many `members` if that is
/// known.
fn differ(same: &[Fired<'_>], label: &str, members: Option<usize>) -> Option<Finding> {
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
    let certainty = match members {
        _ if tie => Certainty::Undecidable,
        // Those that say nothing may have made the other call.
        Some(members) if next + members.saturating_sub(heard) < most => Certainty::Certain,
        _ => Certainty::Likely,
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
    found.victims = victims.copied().collect();
    found.victims.sort_unstable();
    (found.seq, found.certainty) = (Some(seq), certainty);
    Some(found)
}

/// Who had called less than others timed out in, else whose watchdog says nothing, else that all
/// wait in one call. `world` ranks are known of otherwise.
pub(super) fn timeouts(statements: &[Statement], world: u32) -> Vec<Finding> {
    let groups = fired(statements);
    let behind: Vec<Finding> = groups
        .iter()
        .filter_map(|(group, all)| behind(all, &of_group(group, groups.len())))
        .collect();
    if !behind.is_empty() {
        return behind;
    }
    // The group of which most is said; of several, the first.
    let most = groups.iter().max_by_key(|(group, all)| (all.len(), std::cmp::Reverse(*group)));
    let rest = most.and_then(|(group, all)| {
        together(statements, all, group, &of_group(group, groups.len()), world)
    });
    rest.into_iter().collect()
}

/// The last call in which each rank timed out.
fn furthest<'a>(all: &[Fired<'a>]) -> BTreeMap<GlobalRank, Fired<'a>> {
    all.iter().map(|fired| (fired.at.rank, *fired)).collect()
}

fn behind(all: &[Fired<'_>], label: &str) -> Option<Finding> {
    let furthest = furthest(all);
    let last = *all.last()?;
    let called_less = |fired: &Fired<'_>| fired.last_enqueued.unwrap_or(fired.seq) < last.seq;
    let behind: BTreeMap<GlobalRank, Fired<'_>> = all
        .iter()
        .filter(|fired| called_less(fired))
        .filter(|fired| furthest.get(&fired.at.rank).is_none_or(called_less))
        .map(|fired| (fired.at.rank, *fired))
        .collect();
    let first = behind.values().next()?;
    let who: Vec<GlobalRank> = behind.keys().copied().collect();
    let others: Vec<GlobalRank> = furthest
        .iter()
        .filter(|(rank, fired)| fired.seq == last.seq && !behind.contains_key(rank))
        .map(|(rank, _)| *rank)
        .collect();
    if who.len() >= others.len() && !others.is_empty() {
        return ahead(all, &behind, &others, label);
    }
    let said = behind.values().all(|fired| fired.last_enqueued.is_some());
    let message = match said {
        true => format!(
            "{} had not called {} #{}{label}, in which {} timed out.",
            cap_ranks(&who),
            last.op,
            last.seq,
            ranks(&others)
        ),
        false => format!(
            "{} timed out in {} #{}{label} already. {} had that behind them and timed out in {} #{}, \
             to which {} most likely never came.",
            cap_ranks(&who),
            first.op,
            first.seq,
            cap_ranks(&others),
            last.op,
            last.seq,
            ranks(&who)
        ),
    };
    let fix = "Look at what the rank did instead: its own log, and its Flight Recorder dump.";
    let about: Vec<&Statement> = behind.values().map(|fired| fired.at).collect();
    let mut found = finding(Kind::RankNeverJoined, &about, message, fix)?;
    (found.seq, found.certainty) = (Some(last.seq), Certainty::Likely);
    found.victims = others;
    Some(found)
}

/// Few have a call behind them in which most timed out: these made it, and none of them has left it,
/// so the few are the odd ones. As many as the others may as well be right.
fn ahead(
    all: &[Fired<'_>],
    behind: &BTreeMap<GlobalRank, Fired<'_>>,
    ahead: &[GlobalRank],
    label: &str,
) -> Option<Finding> {
    let (last, stuck) = (*all.last()?, *behind.values().next()?);
    let who: Vec<GlobalRank> = behind.keys().copied().collect();
    let tie = who.len() == ahead.len();
    let message = format!(
        "{} timed out in {} #{}{label}, and {} in {} #{}, with #{} behind {}. {}",
        cap_ranks(&who),
        stuck.op,
        stuck.seq,
        ranks(ahead),
        last.op,
        last.seq,
        stuck.seq,
        if ahead.len() == 1 { "it" } else { "them" },
        match tie {
            true =>
                "One side made a call more than the other, or another one: the logs do not tell \
                     which.",
            false =>
                "Most likely the fewer made a call more than the others, or another one under \
                      that number.",
        },
    );
    let culprits = |rank: &GlobalRank| ahead.contains(rank) || (tie && who.contains(rank));
    let about = all.iter().filter(|fired| culprits(&fired.at.rank)).map(|fired| fired.at);
    let fix = "Find the branch that only some ranks take, and make every rank of the group make the same \
               calls. Set TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the dumps show them.";
    let mut found = finding(Kind::OpExtra, &about.collect::<Vec<_>>(), message, fix)?;
    (found.seq, found.certainty) =
        (Some(stuck.seq), if tie { Certainty::Undecidable } else { Certainty::Likely });
    found.victims = who.into_iter().filter(|_| !tie).collect();
    Some(found)
}

/// All that speak wait in one call: who does not speak may be missing, and has ended if the log says
/// that it raised.
fn together(
    statements: &[Statement],
    all: &[Fired<'_>],
    group: &str,
    label: &str,
    world: u32,
) -> Option<Finding> {
    let furthest = furthest(all);
    let last = *all.last()?;
    let call = format!("{} #{}{label}", last.op, last.seq);
    let waiting: Vec<GlobalRank> = furthest.keys().copied().collect();
    let timed_out = |it: &&Statement| matches!(it.said, Said::TimedOut { .. });
    let spoken: BTreeSet<GlobalRank> =
        statements.iter().filter(timed_out).map(|it| it.rank).collect();
    let ended: Vec<Statement> = statements
        .iter()
        .filter(|it| is_end(&it.said) && !spoken.contains(&it.rank))
        .cloned()
        .collect();
    if let Some(mut found) = ended::found(&ended) {
        found.message = format!(
            "{} {} timed out in {call}, and nothing says that {} came to it.",
            found.message,
            cap_ranks(&waiting),
            ranks(&found.culprits)
        );
        (found.seq, found.victims) = (Some(last.seq), waiting);
        return Some(found);
    }
    let silent = (0..world_of(statements, world)).map(GlobalRank);
    let silent: Vec<GlobalRank> = silent.filter(|rank| !spoken.contains(rank)).collect();
    let never = "Look at what the rank did instead: its own log, and its Flight Recorder dump.";
    // Of a group of some ranks nobody knows who is in it. Of the world, few that are silent stand
    // out; many have their logs elsewhere.
    let elsewhere: Vec<GlobalRank> =
        spoken.iter().copied().filter(|rank| !furthest.contains_key(rank)).collect();
    let of_all = is_world(group) && elsewhere.is_empty();
    let (kind, culprits, message, fix) = match (silent.len(), of_all) {
        (0, true) => (
            Kind::CallNeverCompleted,
            Vec::new(),
            format!(
                "{} timed out in {call}. All of them had called it, and their logs do not say why it \
                 did not end.",
                cap_ranks(&waiting)
            ),
            "Set TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1 and diagnose the dumps: they \
             say whether the calls were alike.",
        ),
        (few, true) if few < waiting.len() => (
            Kind::RankNeverJoined,
            silent.clone(),
            format!(
                "{} timed out in {call}, and nothing is said of {}: not called, or a log that is not \
                 among these.",
                cap_ranks(&waiting),
                rank_list(&silent)
            ),
            never,
        ),
        _ => (
            Kind::CallNeverCompleted,
            Vec::new(),
            match elsewhere.as_slice() {
                [] => format!(
                    "{} timed out in {call}. Nothing is said of the other ranks of its group, so who \
                     did not come cannot be told.",
                    cap_ranks(&waiting)
                ),
                elsewhere => format!(
                    "{} timed out in {call}, {} in calls of other groups. Who of them did not come \
                     where cannot be told from the logs.",
                    cap_ranks(&waiting),
                    ranks(elsewhere)
                ),
            },
            "Give all ranks' logs: who times out in an earlier call, in another one, or not at all, \
             is where to look. Dumps (TORCH_FR_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT=1) say more.",
        ),
    };
    let about: Vec<&Statement> = all.iter().map(|fired| fired.at).collect();
    let mut found = finding(kind, &about, message, fix)?;
    (found.culprits, found.victims) = (culprits, waiting);
    (found.seq, found.certainty) = (Some(last.seq), Certainty::Undecidable);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::logged::tests::{found, report};
    use super::super::report::Verdict;
    use super::*;

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
        assert_eq!(report(raises).verdict, Verdict::Findings);
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
