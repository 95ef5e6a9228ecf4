//! Ranks that had not come as far as others by the time that their watchdogs fired: by the call in which each
//! timed out, and by what watchdogs say of the last call that a rank has made and of the last that had
//! ended.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::fired::{Fired, Stood, furthest};
use crate::logs::log_finding::finding;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement, is_world};
use std::collections::{BTreeMap, BTreeSet};

const FIX: &str = "Look at what the rank did instead: its own log, and its Flight Recorder dump.";

const FIX_EXTRA: &str = "Find the branch that only some ranks take, and make every rank of the group make \
                         the same calls. Set TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the \
                         dumps show them.";

/// The ranks that had called less than others of a group timed out in. Those that timed out `elsewhere`
/// are held up there.
pub(crate) fn found(
    statements: &[Statement],
    all: &[Fired<'_>],
    stood: &BTreeMap<GlobalRank, Stood>,
    elsewhere: &BTreeSet<GlobalRank>,
    label: &str,
) -> Option<Claim> {
    let last = *all.last()?;
    let furthest = furthest(all);
    let mut called: BTreeMap<GlobalRank, u64> =
        furthest.iter().map(|(rank, fired)| (*rank, fired.seq)).collect();
    for (rank, stood) in stood {
        // Calls that a rank queued behind the call in which it timed out have not begun.
        called.entry(*rank).or_insert(stood.enqueued);
    }
    let is_behind =
        |(rank, seq): &(&GlobalRank, &u64)| **seq < last.seq && !elsewhere.contains(rank);
    let who: Vec<GlobalRank> = called.iter().filter(is_behind).map(|(rank, _)| *rank).collect();
    let others: Vec<GlobalRank> =
        called.iter().filter(|(_, seq)| **seq >= last.seq).map(|(rank, _)| *rank).collect();
    let first = *who.first()?;
    let fired: Option<Vec<Fired<'_>>> =
        who.iter().map(|rank| furthest.get(rank).copied()).collect();
    if who.len() >= others.len() && !others.is_empty() {
        if let Some(stuck) = fired.as_ref().and_then(|fired| fired.first()) {
            return ahead(all, stuck, &who, &others, label);
        }
        if who.len() > others.len() {
            let none = who.iter().all(|rank| called.get(rank) == Some(&0));
            return alone(all, &who, &others, label, none);
        }
    }
    let number = called.get(&first).copied().unwrap_or(0);
    let had_not_called =
        |rank: &GlobalRank| stood.get(rank).is_some_and(|own| own.enqueued < last.seq);
    let idle = who.iter().all(|rank| {
        let own = stood.get(rank);
        own.is_some_and(|own| own.completed == Some(own.enqueued)) && !furthest.contains_key(rank)
    });
    let message = match fired {
        Some(_) if who.iter().any(|rank| !had_not_called(rank)) => format!(
            "{} timed out in {} #{}{label} already. {} had that behind them and timed out in {} #{}, \
             to which {} most likely never came.",
            cap_ranks(&who),
            furthest.get(&first).map_or("a call", |fired| fired.op),
            number,
            cap_ranks(&others),
            last.op,
            last.seq,
            ranks(&who)
        ),
        _ => format!(
            "{} had not called {} #{}{label}, in which {} timed out: {}, as {} own watchdog says{}.",
            cap_ranks(&who),
            last.op,
            last.seq,
            ranks(&others),
            made(number),
            if who.len() == 1 { "its" } else { "their" },
            match idle {
                true if number > 0 => ", and that had ended",
                _ => "",
            }
        ),
    };
    let about = about(statements, &who);
    let mut found = finding(Kind::RankNeverJoined, &about, message, FIX)?;
    (found.seq, found.alternatives) = (Some(last.seq), Alternatives::LessLikely);
    found.also_victims = others;
    Some(found)
}

fn made(number: u64) -> String {
    match number {
        0 => "no call of the group had been made".to_owned(),
        number => format!("the last call made was #{number}"),
    }
}

/// The statements of watchdogs on some ranks.
fn about<'a>(statements: &'a [Statement], who: &[GlobalRank]) -> Vec<&'a Statement> {
    let said = |it: &&Statement| {
        who.contains(&it.rank) && matches!(it.said, Said::TimedOut { .. } | Said::Stood { .. })
    };
    statements.iter().filter(said).collect()
}

/// Few have a call behind them in which most timed out: these made it, and none of them has left it,
/// so the few are the odd ones. As many as the others may as well be right.
fn ahead(
    all: &[Fired<'_>],
    stuck: &Fired<'_>,
    who: &[GlobalRank],
    ahead: &[GlobalRank],
    label: &str,
) -> Option<Claim> {
    let last = *all.last()?;
    let tie = who.len() == ahead.len();
    let message = format!(
        "{} timed out in {} #{}{label}, and {} in {} #{}, with #{} behind {}. {}",
        cap_ranks(who),
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
    let mut found = finding(Kind::OpExtra, &about.collect::<Vec<_>>(), message, FIX_EXTRA)?;
    (found.seq, found.alternatives) =
        (Some(stuck.seq), if tie { Alternatives::AsLikely } else { Alternatives::LessLikely });
    found.also_victims = who.iter().copied().filter(|_| !tie).collect();
    Some(found)
}

/// Few timed out in a call that most had not made, and these wait in none. Those that have made `none` at
/// all may as well be stuck in front of their first one.
fn alone(
    all: &[Fired<'_>],
    who: &[GlobalRank],
    others: &[GlobalRank],
    label: &str,
    none: bool,
) -> Option<Claim> {
    let last = *all.last()?;
    let which = match none {
        true => {
            "None of those had called anything there yet: either they were stuck in front of it, or the \
             fewer made a call that the others do not make; the logs do not tell which."
        }
        false => {
            "Most likely the fewer made a call that the others do not make; or all the others were held up \
             before it."
        }
    };
    let message = format!(
        "{} timed out in {} #{}{label}, which {} had not called, as their own watchdogs say. {which}",
        cap_ranks(others),
        last.op,
        last.seq,
        ranks(who)
    );
    let about = all.iter().filter(|fired| fired.seq == last.seq).map(|fired| fired.at);
    let (kind, fix) = if none { (Kind::RankNeverJoined, FIX) } else { (Kind::OpExtra, FIX_EXTRA) };
    let mut found = finding(kind, &about.collect::<Vec<_>>(), message, fix)?;
    (found.seq, found.alternatives) = (Some(last.seq), Alternatives::LessLikely);
    if none {
        found.alternatives = Alternatives::AsLikely;
        found.culprits.extend(who);
        found.culprits.sort_unstable();
    }
    Some(found)
}

/// The idle ranks if nobody timed out in the default group, whose state every rank's watchdog
/// tells: those that had called less of it than others wait in, and timed out nowhere.
pub(crate) fn idle(
    statements: &[Statement],
    stood: &BTreeMap<&str, BTreeMap<GlobalRank, Stood>>,
    spoken: &BTreeSet<GlobalRank>,
) -> Option<Claim> {
    let (_, stood) = stood.iter().find(|(group, _)| is_world(group))?;
    let waits_in = |stood: &Stood| {
        let completed = stood.completed?;
        (completed < stood.enqueued).then_some(completed + 1)
    };
    let seq = stood.values().filter_map(waits_in).max()?;
    let waiting = stood.iter().filter(|(_, it)| it.enqueued >= seq);
    let waiting: Vec<GlobalRank> = waiting.map(|(rank, _)| *rank).collect();
    let who: Vec<GlobalRank> = stood
        .iter()
        .filter(|(rank, it)| it.enqueued < seq && !spoken.contains(rank))
        .map(|(rank, _)| *rank)
        .collect();
    if who.is_empty() || who.len() >= waiting.len() {
        return None;
    }
    let victims: BTreeSet<GlobalRank> = waiting.iter().chain(spoken).copied().collect();
    let elsewhere: Vec<GlobalRank> =
        spoken.iter().filter(|rank| !waiting.contains(rank)).copied().collect();
    let elsewhere = match elsewhere.as_slice() {
        [] => String::new(),
        elsewhere => format!(" {} timed out in calls of other groups.", cap_ranks(elsewhere)),
    };
    let message = format!(
        "{} had made no call of the default group from #{seq} on, in which {} {}, as the watchdogs say, \
         and timed out in none.{elsewhere}",
        cap_ranks(&who),
        ranks(&waiting),
        if waiting.len() == 1 { "waits" } else { "wait" },
    );
    let about = about(statements, &who);
    let mut found = finding(Kind::RankNeverJoined, &about, message, FIX)?;
    (found.seq, found.alternatives) = (Some(seq), Alternatives::LessLikely);
    found.also_victims = victims.into_iter().filter(|rank| !who.contains(rank)).collect();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::{found, report};
    use crate::report::Certainty;

    fn fires(rank: u32, group: &str, seq: u64) -> String {
        format!(
            "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, \
             Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n\
             [rank{rank}]:[E1122 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID {group} Rank {rank}]  failure \
             detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last \
             completed work: {}\n",
            seq - 1
        )
    }

    fn stands(rank: u32, enqueued: u64, completed: u64) -> String {
        format!(
            "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:1432] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] \
             Observed flight recorder dump signal from another rank via TCPStore.\n\
             [rank{rank}]:[E1122 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] \
             Received a dump signal due to a collective timeout from  rank 0 and we will try our best to \
             dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: \
             {completed}.This is most likely caused by\n"
        )
    }

    const WORLD: &str = "0(default_pg)";

    #[test]
    fn who_had_not_made_the_call_is_named() {
        let waits: String = (0..3).map(|rank| fires(rank, WORLD, 7)).collect();
        let text = waits.clone() + &stands(3, 6, 6);
        assert_eq!(found(&text), [(Kind::RankNeverJoined, vec![3], Certainty::Likely)]);
        let report = report(&text);
        assert_eq!(
            report.findings[0].message,
            "Rank 3 had not called ALLREDUCE #7, in which ranks 0-2 timed out: the last call made was #6, \
             as its own watchdog says, and that had ended."
        );
        assert_eq!(report.findings[0].victims, [0, 1, 2].map(GlobalRank));
        // A rank that made the call, and was ended before its watchdog fired, is not silent.
        let text = waits + &stands(3, 7, 6);
        assert_eq!(found(&text), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
        // Of two ranks the one that waits in nothing.
        let two = fires(0, WORLD, 7) + &stands(1, 6, 6);
        assert_eq!(found(&two), [(Kind::RankNeverJoined, vec![1], Certainty::Likely)]);
        // One call that nobody else makes.
        let most = fires(0, WORLD, 7) + &stands(1, 6, 6) + &stands(2, 6, 6) + &stands(3, 6, 6);
        assert_eq!(found(&most), [(Kind::OpExtra, vec![0], Certainty::Likely)]);
        // None of the others has called anything: they may as well be stuck in front of their first call.
        let first = fires(0, WORLD, 1) + &stands(1, 0, 0) + &stands(2, 0, 0) + &stands(3, 0, 0);
        let either = (Kind::RankNeverJoined, vec![0, 1, 2, 3], Certainty::Undecidable);
        assert_eq!(found(&first), [either]);
    }

    /// Every rank's watchdog tells of the default group, whichever group's call timed out.
    #[test]
    fn the_default_group_tells_who_is_stuck_before_another_groups_call() {
        let tp = fires(2, "3(tp)", 5) + &stands(2, 4, 4);
        let waiting = stands(0, 5, 4) + &stands(1, 5, 4);
        let text = tp.clone() + &waiting + &stands(3, 4, 4);
        assert_eq!(found(&text), [(Kind::RankNeverJoined, vec![3], Certainty::Likely)]);
        assert_eq!(report(&text).findings[0].victims, [0, 1, 2].map(GlobalRank));
        // A group in which nobody waits tells nothing.
        let text = tp + &stands(0, 4, 4) + &stands(1, 4, 4) + &stands(3, 4, 4);
        assert_eq!(found(&text), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
    }

    #[test]
    fn who_ended_is_behind_because_of_it() {
        let text = fires(0, WORLD, 7)
            + &fires(1, WORLD, 7)
            + &stands(2, 6, 6)
            + "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"train.py\", line 88, in main\n\
               [rank2]: ValueError: bad batch\n";
        assert_eq!(found(&text), [(Kind::RankDied, vec![2], Certainty::Likely)]);
    }
}
