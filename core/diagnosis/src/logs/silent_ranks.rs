//! Judges the other ranks if all that timed out wait in one call: each has ended, if the log says
//! so, or is silent. A rank whose log is there and tells of no timeout did not wait with the
//! others; of one whose log is missing nothing is known.

use crate::claim::{Claim, no_call};
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::ended_ranks;
use crate::logs::fired::{Fired, Stood, furthest, timed_out};
use crate::logs::log_finding::finding;
use crate::report::Evidence;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use lockstep_formats::job_log::{Heard, Said, Statement, is_world};
use std::collections::{BTreeMap, BTreeSet};

const NEVER: &str = "Look at what the rank did instead: its own log, and its Flight Recorder dump.";

/// The last words of so many ranks are told.
const SHOWN: usize = 3;

/// The call in which ranks of a group wait.
pub(crate) struct Call<'a> {
    pub(crate) all: &'a [Fired<'a>],
    pub(crate) stood: &'a BTreeMap<GlobalRank, Stood>,
    pub(crate) group: &'a str,
    pub(crate) label: &'a str,
}

/// The ranks that are not among those that wait. `ended` are the ranks of which the log says that they ended, and
/// `world` ranks are known of otherwise.
pub(crate) fn found(
    heard: &Heard,
    call: &Call<'_>,
    ended: &[Statement],
    world: u32,
) -> Option<Claim> {
    let last = *call.all.last()?;
    let mut waiting: BTreeSet<GlobalRank> = furthest(call.all).into_keys().collect();
    let spoken = timed_out(&heard.statements);
    // A rank that others only say timed out may have done so in this call.
    let unnamed = signalled_only(&heard.statements);
    let elsewhere: Vec<GlobalRank> =
        spoken.difference(&waiting).filter(|rank| !unnamed.contains(rank)).copied().collect();
    // They had made the call, and were ended before they could say that it timed out.
    let made = call.stood.iter().filter(|(_, stood)| stood.enqueued >= last.seq);
    waiting.extend(made.map(|(rank, _)| *rank));
    let waiting: Vec<GlobalRank> = waiting.into_iter().collect();
    let name = format!("{} #{}{}", last.op, last.seq, call.label);
    if let Some(mut found) = ended_ranks::found(ended) {
        found.message.said = format!(
            "{} {} timed out in {name}, and nothing says that {} came to it.",
            found.message.said,
            cap_ranks(&waiting),
            ranks(&found.culprits)
        );
        let others = waiting.into_iter().filter(|rank| !found.culprits.contains(rank));
        (found.seq, found.also_victims) = (Some(last.seq), others.collect());
        return Some(found);
    }
    let is_silent = |rank: &GlobalRank| !spoken.contains(rank) && !waiting.contains(rank);
    let silent: Vec<GlobalRank> =
        (0..heard.world(world)).map(GlobalRank).filter(is_silent).collect();
    // Nobody knows who is in a group of some ranks. Of the world, few that are silent stand out; many
    // have their logs elsewhere.
    let of_all = is_world(call.group) && elsewhere.is_empty();
    let there = |rank: &GlobalRank| heard.wrote.contains_key(rank);
    let about: Vec<&Statement> = call.all.iter().map(|fired| fired.at).collect();
    let who = cap_ranks(&waiting);
    let mut found = match (silent.len(), of_all) {
        // The others may be among those whose lines are left out.
        _ if heard.hidden > 0 => lines_left_out(&about, &who, &name, heard.hidden),
        (0, true) => all_called(&about, &who, &name, heard.world_size.max(world)),
        (few, true) if few <= waiting.len() && silent.iter().all(there) => {
            return quiet(heard, &name, &about, (silent, waiting), last.seq);
        }
        (few, true) if few < waiting.len() => {
            let mut found = finding(
                Kind::RankNeverJoined,
                &about,
                format!(
                    "{who} timed out in {name}, and nothing is said of {}: not called, or a log that is \
                     not among these.",
                    rank_list(&silent)
                ),
                NEVER,
            )?;
            found.culprits = silent;
            (found.also_victims, found.seq) = (waiting, Some(last.seq));
            found.alternatives = Alternatives::AsLikely;
            return Some(found);
        }
        _ => {
            let others = match elsewhere.as_slice() {
                [] if known_world(heard, world) && is_world(call.group) && !silent.is_empty() => {
                    format!(
                        ".{} The group has {} ranks, and nothing is said of {}: they never came, or their \
                         logs are not among these.",
                        also_signalled(&unnamed),
                        heard.world(world),
                        ranks(&silent)
                    )
                }
                [] => format!(
                    ".{} Nothing is said of the other ranks of its group, so who did not come cannot be \
                     told.",
                    also_signalled(&unnamed)
                ),
                elsewhere => format!(
                    ", {} in calls of other groups. Who of them did not come where cannot be told from \
                     the logs.",
                    ranks(elsewhere)
                ),
            };
            finding(
                Kind::CallNeverCompleted,
                &about,
                format!("{who} timed out in {name}{others}"),
                "Give all ranks' logs: who times out in an earlier call, in another one, or not at all, \
                 is where to look. Dumps (TORCH_FR_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT=1) say more.",
            )
        }
    }?;
    found.culprits = Vec::new();
    found.also_victims = waiting;
    (found.seq, found.alternatives) = (Some(last.seq), Alternatives::AsLikely);
    Some(found)
}

/// The finding where Ray shows a line of one process and hides the same line of others.
fn lines_left_out(about: &[&Statement], who: &str, name: &str, hidden: u64) -> Option<Claim> {
    finding(
        Kind::CallNeverCompleted,
        about,
        format!(
            "{who} timed out in {name}, and Ray leaves out the same line of {hidden} other processes: who did \
             not come cannot be told.",
        ),
        "Set RAY_DEDUP_LOGS=0, so that every rank's line is written, and give the log of each rank.",
    )
}

/// The finding where every rank that is known of timed out in the call; `world` is 0 if nothing says how
/// many there are.
fn all_called(about: &[&Statement], who: &str, name: &str, world: u32) -> Option<Claim> {
    finding(
        Kind::CallNeverCompleted,
        about,
        match world {
            0 => format!(
                "{who} timed out in {name}: all of whom these logs tell. How many ranks the job has they do \
                 not say: one whose log is not among these may never have come.",
            ),
            _ => format!(
                "{who} timed out in {name}. All of them had called it, and their logs do not say why it did \
                 not end.",
            ),
        },
        "Set TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1 and diagnose the dumps: they \
         say whether the calls were alike.",
    )
}

/// True if something says how many ranks the job has.
fn known_world(heard: &Heard, world: u32) -> bool {
    heard.world_size.max(world) > 0
}

/// Ranks that timed out as other ranks' watchdogs say, and whose own lines do not stand there.
fn signalled_only(statements: &[Statement]) -> BTreeSet<GlobalRank> {
    let own = |it: &&Statement| matches!(it.said, Said::TimedOut { .. });
    let own: BTreeSet<GlobalRank> = statements.iter().filter(own).map(|it| it.rank).collect();
    let signalled = statements.iter().filter(|it| matches!(it.said, Said::Signalled));
    signalled.map(|it| it.rank).filter(|rank| !own.contains(rank)).collect()
}

/// ` Rank 6 timed out as well, as its signal to others says; its own log, …`
fn also_signalled(unnamed: &BTreeSet<GlobalRank>) -> String {
    let unnamed: Vec<GlobalRank> = unnamed.iter().copied().collect();
    match unnamed.as_slice() {
        [] => String::new(),
        some => format!(
            " A call of {} timed out as well, as its signal to the others says; the line that names the call is not \
             among these.",
            ranks(some)
        ),
    }
}

/// The finding of ranks whose logs are there and tell of no timeout.
fn quiet(
    heard: &Heard,
    call: &str,
    about: &[&Statement],
    (silent, waiting): (Vec<GlobalRank>, Vec<GlobalRank>),
    seq: u64,
) -> Option<Claim> {
    let ends = |rank: &GlobalRank| {
        heard.wrote.get(rank).filter(|last| !last.text.is_empty()).map(|last| (*rank, last))
    };
    let told: Vec<String> = silent
        .iter()
        .filter_map(ends)
        .take(SHOWN)
        .map(|(rank, last)| format!(" Rank {rank}'s log ends with \"{}\".", last.text))
        .collect();
    let (logs, they) = match silent.as_slice() {
        [only] => (format!("rank {only}'s log tells"), "it"),
        several => (format!("the logs of {} tell", ranks(several)), "they"),
    };
    let message = format!(
        "{} timed out in {call}, and {logs} of no timeout: most likely {they} never came to it.{}",
        cap_ranks(&waiting),
        told.concat()
    );
    let mut found = finding(Kind::RankNeverJoined, about, message, NEVER)?;
    let own = silent.iter().take(16).map(|rank| match ends(rank) {
        Some((_, last)) => Evidence {
            place: last.place.clone(),
            ..no_call(
                *rank,
                format!("its log tells of no timeout, and ends with \"{}\"", last.text),
            )
        },
        None => no_call(*rank, "its log tells of no timeout"),
    });
    found.evidence = own.chain(found.evidence).take(16).collect();
    found.evidence.sort_by_key(|seen| seen.rank);
    (found.culprits, found.also_victims) = (silent, waiting);
    (found.seq, found.alternatives) = (Some(seq), Alternatives::LessLikely);
    Some(found)
}

/// Ranks that timed out in sends and receives, whose lines do not say whose partners they were.
pub(crate) fn of_few(
    groups: &BTreeMap<&str, Vec<Fired<'_>>>,
    ended: &[Statement],
) -> Option<Claim> {
    let all: Vec<&Fired<'_>> = groups.values().flatten().collect();
    let waits =
        |fired: &&Fired<'_>| format!("rank {} in {} #{}", fired.at.rank, fired.op, fired.seq);
    let said: Vec<String> = all.iter().copied().take(8).map(|fired| waits(&fired)).collect();
    let victims: BTreeSet<GlobalRank> = all.iter().map(|fired| fired.at.rank).collect();
    if let Some(mut found) = ended_ranks::found(ended).filter(|_| !all.is_empty()) {
        found.message.said =
            format!("{} Others timed out: {}.", found.message.said, said.join(", "));
        found.also_victims = victims.into_iter().collect();
        return Some(found);
    }
    let about: Vec<&Statement> = all.iter().map(|fired| fired.at).collect();
    let message = format!(
        "Sends, receives or calls made together timed out: {}. Their watchdogs do not say who was at the \
         other end, and number the calls of every pair by themselves.",
        said.join(", ")
    );
    let fix = "Set TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT=1 and diagnose the dumps: they say \
               who sends to whom.";
    let mut found = finding(Kind::CallNeverCompleted, &about, message, fix)?;
    found.culprits = Vec::new();
    (found.also_victims, found.alternatives) =
        (victims.into_iter().collect(), Alternatives::AsLikely);
    Some(found)
}

/// A rank timed out, as only others say.
pub(crate) fn signalled(statements: &[Statement]) -> Option<Claim> {
    let about: Vec<&Statement> =
        statements.iter().filter(|it| matches!(it.said, Said::Signalled)).collect();
    let who: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    let who: Vec<GlobalRank> = who.into_iter().collect();
    let message = format!(
        "A collective timed out on {}, as the watchdogs say. The line that names it, \"Watchdog caught \
         collective operation timeout\" of that rank's own log, is not among these.",
        ranks(&who)
    );
    let fix = "Give all ranks' logs, and their Flight Recorder dumps.";
    let mut found = finding(Kind::CallNeverCompleted, &about, message, fix)?;
    found.culprits = Vec::new();
    (found.also_victims, found.alternatives) = (who, Alternatives::AsLikely);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::{found, of_files, short};
    use crate::report::Certainty;

    fn fires(rank: u32) -> String {
        format!(
            "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, \
             Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
        )
    }

    #[test]
    fn a_rank_whose_log_tells_of_no_timeout_is_named() {
        let logs: Vec<String> = (0..3).map(fires).collect();
        let mut files: Vec<(&str, &str, Option<u32>)> =
            logs.iter().zip(0..).map(|(text, rank)| ("a", text.as_str(), Some(rank))).collect();
        assert_eq!(short(&of_files(&files))[0].0, Kind::CallNeverCompleted);
        files.push(("rank_3.log", "epoch 0\nloading data\n", Some(3)));
        let report = of_files(&files);
        assert_eq!(short(&report), [(Kind::RankNeverJoined, vec![3], Certainty::Likely)]);
        let finding = &report.findings[0];
        assert_eq!(
            finding.message,
            "Ranks 0-2 timed out in ALLREDUCE #7, and rank 3's log tells of no timeout: most likely it \
             never came to it. Rank 3's log ends with \"loading data\"."
        );
        assert_eq!(finding.evidence.last().map(|seen| seen.rank), Some(GlobalRank(3)));
        assert_eq!(report.world_size, 4);
        // In one log, by what stands before its lines; of two ranks, too.
        let one = logs.concat() + "[rank3]: loading data\n";
        assert_eq!(found(&one), [(Kind::RankNeverJoined, vec![3], Certainty::Likely)]);
        let two = fires(0) + "[rank1]: loading data\n";
        assert_eq!(found(&two), [(Kind::RankNeverJoined, vec![1], Certainty::Likely)]);
    }

    /// Of a rank that the log only counts, nothing is known.
    #[test]
    fn a_rank_without_a_log_may_be_missing() {
        let all: String = (0..3).map(fires).collect();
        let counted = all.clone() + "world_size=4\n";
        assert_eq!(found(&counted), [(Kind::RankNeverJoined, vec![3], Certainty::Undecidable)]);
        let many = all + "world_size=16\n";
        assert_eq!(found(&many), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
    }

    /// Every pair of ranks counts its sends and receives, and nobody knows which is whose.
    #[test]
    fn sends_and_receives_are_not_held_against_each_other() {
        let send = fires(0).replace("ALLREDUCE", "SEND");
        let recv = fires(1).replace("ALLREDUCE", "RECV").replace("=7", "=5");
        assert_eq!(
            found(&(send + &recv)),
            [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]
        );
    }

    #[test]
    fn others_say_that_a_rank_timed_out() {
        let text = "[rank0]:[E709 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received \
                    a dump signal due to a collective timeout from  rank 7 and we will try our best to dump \
                    the debug info. Last enqueued NCCL work: 5, last completed NCCL work: 5.This is";
        assert_eq!(found(text), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
    }

    #[test]
    fn an_exception_is_told_with_its_line() {
        let raises = "Traceback (most recent call last):\n  File \"/job/train.py\", line 88, in main\n    \
                      step(batch)\nValueError: bad batch\n";
        let waiting = fires(0) + &fires(1) + &fires(2);
        let report = of_files(&[("all.log", &waiting, None), ("rank_3.log", raises, Some(3))]);
        assert_eq!(short(&report), [(Kind::RankDied, vec![3], Certainty::Likely)]);
        let finding = &report.findings[0];
        assert_eq!(
            finding.message,
            "Rank 3 raised ValueError: bad batch at train.py:88 (\"step(batch)\"). Ranks 0-2 timed out in \
             ALLREDUCE #7, and nothing says that rank 3 came to it."
        );
        assert_eq!(finding.evidence[0].frame.as_deref(), Some("train.py:88"));
        // A process that nothing names.
        let alone = of_files(&[("train.log", raises, None)]);
        assert_eq!(short(&alone), [(Kind::RankDied, vec![], Certainty::Undecidable)]);
        let message = &alone.findings[0].message;
        assert!(message.contains("train.log does not say which rank it is"), "{message}");
    }
}
