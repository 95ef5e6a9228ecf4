//! What a job's log says, as findings: alone, or where it names what a recording could only guess.

pub(crate) mod desync_report;
pub(crate) mod detail;
pub(crate) mod ended_ranks;
pub(crate) mod fired;
pub(crate) mod gave_up;
pub(crate) mod lagging_ranks;
pub(crate) mod log_finding;
pub(crate) mod other_tools;
pub(crate) mod silent_ranks;
pub(crate) mod stuck_watchdog;
pub(crate) mod watchdogs;

use crate::decide::moments;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::report::{Certainty, Finding, Report};
use crate::rules::ddp_models;
use crate::rules::ddp_models::Sides;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement, is_world};
use std::collections::{BTreeMap, BTreeSet};

/// Whom `torch.multiprocessing` means is not said by a rank.
const SPAWNED: &str = "torch.multiprocessing numbers the processes that it starts, and what it says of \
                       process N is told of rank N, as spawn() has it by default: where a job counts its \
                       ranks otherwise, or has several machines, it is another rank.";

/// Adds what a job's log says to a report: a finding of the same ranks takes the log's word for the
/// kind, anything else becomes a finding of its own.
pub fn add_log(report: &mut Report, heard: &Heard) {
    for (job, own) in &heard.jobs {
        let mut apart = Report::healthy(0);
        add_log(&mut apart, own);
        for mut found in apart.findings {
            found.message =
                format!("Of the job whose lines begin with ({job} pid=…): {}", found.message);
            report.findings.push(found);
        }
        report.notes.extend(apart.notes);
        report.world_size = report.world_size.max(apart.world_size);
    }
    if heard.jobs.len() > 1 {
        let names: Vec<&str> = heard.jobs.keys().map(String::as_str).collect();
        report.notes.push(format!(
            "One log holds the lines of several jobs ({}): the ranks of each were compared with each other only.",
            names.join(", ")
        ));
    }
    // The same message may stand in the logs of several ranks.
    let mut heard = heard.clone();
    let mut seen = BTreeSet::new();
    heard.statements.retain(|it| seen.insert((it.rank, it.said.clone())));
    let heard = &heard;
    let from_logs_alone = report.world_size == 0;
    let from_calls = report.findings.len();
    for finding in &mut report.findings {
        clear_terminated(finding, heard);
        clear(finding, heard, report.world_size);
        gave_up::clear(finding, heard, report.world_size);
    }
    for logged in findings(heard, report.world_size) {
        let guess = logged.certainty != Certainty::Certain
            && matches!(
                logged.kind,
                Kind::RankNeverJoined
                    | Kind::CallNeverCompleted
                    | Kind::OpExtra
                    | Kind::CollectiveMismatch
            );
        let as_known = |known: &Finding| known.culprits == logged.culprits;
        // That others timed out is no news beside what they timed out of.
        let undecided = logged.certainty == Certainty::Undecidable && !report.findings.is_empty();
        let among_calls = from_calls > 0 && !report.findings.iter().any(as_known);
        // A connection that is closed says that a process ended, and not why: where calls tell of a hang, it
        // may be one that was ended because of that.
        let closed =
            logged.kind == Kind::RankDied && !ended_ranks::says_of(heard, &logged.culprits);
        if (guess || closed) && (undecided || among_calls) {
            continue;
        }
        let vague = |kind| {
            matches!(
                kind,
                Kind::RankNeverJoined
                    | Kind::DdpUnusedParameters
                    | Kind::DdpModelMismatch
                    | Kind::DdpUnevenInputs
                    | Kind::LoopShorter
                    | Kind::CallNeverCompleted
                    | Kind::RankMissing
            )
        };
        // Who goes on without a barrier that no recorder holds seems to make a call on top.
        let passed_by = |known: &Finding| {
            let sure = logged.kind == Kind::RankNeverJoined && logged.certainty < known.certainty;
            sure && known.kind == Kind::OpExtra && as_known(known)
        };
        let known = report.findings.iter_mut().find(|known| {
            let same = known.culprits.iter().all(|rank| logged.culprits.contains(rank));
            let told = known.kind == logged.kind || vague(known.kind) || passed_by(known);
            // Nothing is known of who left no dump, but for what others' logs say.
            let lost = known.kind == Kind::RankMissing && as_known(known);
            same && told && (lost || known.certainty != Certainty::Undecidable)
        });
        match known {
            Some(known) if logged.kind != Kind::RankNeverJoined || passed_by(known) => {
                known.kind = logged.kind;
                known.certainty = logged.certainty;
                known.message =
                    format!("{} {}", logged.message, moments::without_doubt(&known.message));
                known.fix = logged.fix;
                known.evidence.extend(logged.evidence);
            }
            Some(known) => known.evidence.extend(logged.evidence),
            None if closed && from_calls > 0 => {}
            None => report.findings.push(logged),
        }
    }
    // Calls tell more of a disagreement than the one line that each watchdog writes.
    let alone = report.findings.is_empty();
    for logged in watchdogs::differing(&heard.statements, heard.world(report.world_size)) {
        match report.findings.iter_mut().find(|known| known.culprits == logged.culprits) {
            Some(known) => known.evidence.extend(logged.evidence),
            None if alone => report.findings.push(logged),
            None => {}
        }
    }
    // Who waits in what no recorder holds is told by the log: that all of them wait for nothing is not so.
    let sure = |found: &Finding| {
        found.kind == Kind::RankNeverJoined && found.certainty == Certainty::Certain
    };
    let named: Vec<GlobalRank> =
        report.findings.iter().filter(|it| sure(it)).flat_map(|it| it.culprits.clone()).collect();
    report.findings.retain(|found| {
        found.kind != Kind::RankNeverJoined
            || found.certainty != Certainty::Undecidable
            || !named.iter().any(|rank| found.culprits.contains(rank))
    });
    if report.findings.is_empty() {
        report.findings.extend(ended_ranks::unnamed(&heard.unnamed));
    } else {
        // That others gave up is no news beside what they gave up on.
        let raised = heard.unnamed.iter().filter(|it| !matches!(it.said, Said::GaveUp { .. }));
        report.notes.extend(raised.take(4).map(ended_ranks::note));
    }
    if heard.spawned && !report.findings.is_empty() {
        report.notes.push(SPAWNED.to_owned());
    }
    let mut ranks = report.culprits();
    ranks.extend(heard.statements.iter().map(|it| it.rank));
    let above = ranks.iter().map(|rank| rank.0.saturating_add(1)).max().unwrap_or(0);
    // A process whose rank nothing tells is one all the same.
    let told = !heard.is_empty() || !heard.wrote.is_empty();
    let above = match from_logs_alone && told {
        true => heard.world(above).max(1),
        false => above,
    };
    report.world_size = report.world_size.max(above);
}

/// Takes ranks out of those that left no dump, where torchrun says that it ended them itself: it does so because
/// another one had failed.
fn clear_terminated(missing: &mut Finding, heard: &Heard) {
    let terminated = |rank: &GlobalRank| {
        heard.statements.iter().any(|it| it.rank == *rank && it.said == Said::Terminated)
    };
    if missing.kind != Kind::RankMissing {
        return;
    }
    let (ended, culprits): (Vec<GlobalRank>, Vec<GlobalRank>) =
        missing.culprits.iter().partition(|rank| terminated(rank));
    if ended.is_empty() || culprits.is_empty() {
        return;
    }
    missing.message = format!(
        "{} torchrun itself ended {}, because another rank had failed: that explains the missing dump{}.",
        missing.message,
        words::ranks(&ended),
        if ended.len() == 1 { "" } else { "s" }
    );
    missing.evidence.retain(|seen| !ended.contains(&seen.rank));
    missing.culprits = culprits;
    missing.victims.extend(ended);
    missing.victims.sort_unstable();
}

/// Takes ranks out of those that left no dump, where they say in a log that they waited, too.
fn clear(missing: &mut Finding, heard: &Heard, world: u32) {
    // A call's number says which one it is in its group only.
    let of_all = missing.culprits.len() + missing.victims.len() == world as usize;
    let in_it = |it: &&Statement| match &it.said {
        Said::TimedOut { group, seq, .. } => of_all && is_world(group) && missing.seq == Some(*seq),
        _ => false,
    };
    let waited: BTreeSet<GlobalRank> =
        heard.statements.iter().filter(in_it).map(|it| it.rank).collect();
    let (waited, culprits): (Vec<GlobalRank>, Vec<GlobalRank>) =
        missing.culprits.iter().partition(|rank| waited.contains(rank));
    if missing.kind != Kind::RankMissing || waited.is_empty() || culprits.is_empty() {
        return;
    }
    let known = missing.message.split(" Either ").next().unwrap_or_default();
    missing.message = format!(
        "{known} Of them, {} timed out in that call like the others, as the logs say: most likely {} never \
         came to it, or ended.",
        words::ranks(&waited),
        words::ranks(&culprits)
    );
    missing.culprits = culprits;
    missing.victims.extend(waited);
    missing.victims.sort_unstable();
}

/// The findings of a log alone.
fn findings(heard: &Heard, world: u32) -> Vec<Finding> {
    let statements = heard.statements.as_slice();
    let mut found = Vec::new();
    found.extend(unused(statements));
    found.extend(models(statements, heard.world(world)));
    let about = |said: &Said| statements.iter().filter(|it| it.said == *said).collect::<Vec<_>>();
    found.extend(simple(
        &about(&Said::Exhausted),
        Kind::DdpUnevenInputs,
        "ran out of inputs before the others",
        crate::facts::loops::fix_loop(true),
    ));
    found.extend(missed_barrier(statements, &about(&Said::MissedBarrier)));
    found.extend(detail::found(statements));
    found.extend(other_tools::found(statements));
    if found.is_empty()
        && let Some((file, unmatched)) = &heard.unmatched
    {
        // The ranks that it ends, and those that give up because of that, are its victims.
        return vec![ended_ranks::by_gloo(file, unmatched, statements)];
    }
    if watchdogs::differing(statements, heard.world(world)).is_empty() {
        if found.is_empty() {
            found.extend(desync_report::found(statements));
        }
        if found.is_empty() {
            found.extend(watchdogs::timeouts(heard, world));
        }
        if found.is_empty() {
            found.extend(stuck_watchdog::found(statements));
        }
        if found.is_empty() {
            found.extend(gave_up::found(heard, world));
        }
        if found.is_empty() {
            found.extend(ended_ranks::found(statements));
        }
    }
    found
}

fn simple(about: &[&Statement], kind: Kind, what: &str, fix: &str) -> Option<Finding> {
    let ranks: Vec<GlobalRank> = about.iter().map(|it| it.rank).collect();
    finding(kind, about, format!("By the log, {} {what}.", words::ranks(&ranks)), fix)
}

/// The finding of ranks that `monitored_barrier` waited for, with the line in which the others waited.
fn missed_barrier(statements: &[Statement], about: &[&Statement]) -> Option<Finding> {
    const FIX: &str =
        "Look at the log of that rank, above this: it is stuck in its own code, or ended.";
    let missed = |rank: GlobalRank| about.iter().any(|it| it.rank == rank);
    let mut lines: BTreeMap<&str, BTreeSet<GlobalRank>> = BTreeMap::new();
    for it in statements {
        if let Said::GaveUp { frame: Some(frame), call: Some(call), .. } = &it.said
            && call == "monitored_barrier"
        {
            lines.entry(frame).or_default().insert(it.rank);
        }
    }
    let ranks: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    let who: Vec<GlobalRank> = ranks.into_iter().collect();
    let waited: BTreeSet<GlobalRank> =
        lines.values().flatten().copied().filter(|rank| !missed(*rank)).collect();
    let late: BTreeSet<GlobalRank> =
        lines.values().flatten().copied().filter(|rank| missed(*rank)).collect();
    let places: Vec<&str> = lines.keys().copied().take(4).collect();
    let at = match places.is_empty() {
        true => String::new(),
        false => format!(" at {}", places.join(", ")),
    };
    let list =
        |ranks: &BTreeSet<GlobalRank>| words::cap_ranks(&ranks.iter().copied().collect::<Vec<_>>());
    let mut message =
        format!("By the log, {} never came to monitored_barrier{at} in time.", words::ranks(&who));
    if !waited.is_empty() {
        message += &format!(" {} gave up there.", list(&waited));
    }
    if !late.is_empty() {
        message += &format!(" {} came when the others had given up.", list(&late));
    }
    let mut found = finding(Kind::RankNeverJoined, about, message, FIX)?;
    found.victims = waited.into_iter().collect();
    Some(found)
}

fn unused(statements: &[Statement]) -> Option<Finding> {
    let about: Vec<&Statement> =
        statements.iter().filter(|it| matches!(it.said, Said::Unused { .. })).collect();
    let said = about.iter().take(4).filter_map(|it| match &it.said {
        Said::Unused { parameters } => Some(format!("{parameters} on rank {}", it.rank)),
        _ => None,
    });
    let said: Vec<String> = said.collect();
    finding(
        Kind::DdpUnusedParameters,
        &about,
        format!("DDP says which parameters got no gradient, by index: {}.", said.join("; ")),
        "Let every parameter take part in the loss on every rank, or give DDP \
         find_unused_parameters=True. TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters.",
    )
}

fn models(statements: &[Statement], world: u32) -> Option<Finding> {
    const FIX: &str = "Build the same model on every rank: the same configuration, the same order of \
                       parameters, nothing that depends on the rank.";
    let mut counts: BTreeMap<u64, BTreeSet<GlobalRank>> = BTreeMap::new();
    let mut shapes: Vec<&Statement> = Vec::new();
    for it in statements {
        match &it.said {
            Said::Parameters { count } => drop(counts.entry(*count).or_default().insert(it.rank)),
            Said::Shape { .. } => shapes.push(it),
            _ => {}
        }
    }
    if let Some(Statement { rank, said: Said::Shape { parameter }, .. }) = shapes.first() {
        let message = format!("DDP says on rank {rank}: {parameter} does not match rank 0's.");
        let mut found = finding(Kind::DdpModelMismatch, &shapes, message, FIX)?;
        if let Some(sides) = ddp_models::raised(GlobalRank(0), &found.culprits, world as usize) {
            found.message += &format!(" So {}.", sides.said);
            found.certainty = if sides.tie { Certainty::Undecidable } else { Certainty::Likely };
            found.culprits = sides.culprits;
        }
        return Some(found);
    }
    let sides = Sides::of(counts.into_iter().map(|(count, ranks)| {
        let ranks: Vec<GlobalRank> = ranks.into_iter().collect();
        (ranks, format!("{count} parameters"))
    }))?;
    let odd = |it: &&Statement| {
        matches!(it.said, Said::Parameters { .. }) && sides.culprits.contains(&it.rank)
    };
    let about: Vec<&Statement> = statements.iter().filter(odd).collect();
    let message = format!("The models differ, as DDP says: {}.", sides.said);
    let mut found = finding(Kind::DdpModelMismatch, &about, message, FIX)?;
    if sides.tie {
        found.certainty = Certainty::Undecidable;
    }
    Some(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lockstep_formats::job_log::read;

    pub(crate) fn report(text: &str) -> Report {
        of_files(&[("train.log", text, None)])
    }

    /// Of logs, each with the rank whose it is, if it is one rank's.
    pub(crate) fn of_files(files: &[(&str, &str, Option<u32>)]) -> Report {
        let logs = files.iter().map(|(name, text, rank)| (*name, read(text.as_bytes()), *rank));
        let logs: Vec<_> = logs.collect();
        let heard = logs.iter().map(|(name, log, rank)| (*name, log, rank.map(GlobalRank)));
        let mut report = Report::healthy(0);
        add_log(&mut report, &Heard::of(heard));
        report
    }

    pub(crate) fn found(text: &str) -> Vec<(Kind, Vec<u32>, Certainty)> {
        short(&report(text))
    }

    pub(crate) fn short(report: &Report) -> Vec<(Kind, Vec<u32>, Certainty)> {
        let short = |finding: &Finding| {
            let culprits = finding.culprits.iter().map(|rank| rank.0).collect();
            (finding.kind, culprits, finding.certainty)
        };
        report.findings.iter().map(short).collect()
    }

    #[test]
    fn a_watchdog_that_fires_is_never_healthy() {
        let fires = |rank: u32, seq: u64, op: &str| {
            format!(
                "[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught \
                 collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, \
                 NumelOut=4, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
            )
        };
        let never = |culprits: Vec<u32>, how| vec![(Kind::RankNeverJoined, culprits, how)];
        let six = |rank| fires(rank, 6, "ALLREDUCE");
        let earlier = six(0) + &six(1) + &fires(2, 5, "_ALLGATHER_BASE");
        assert_eq!(found(&earlier), never(vec![2], Certainty::Likely));
        let silent = six(0) + &six(1) + &six(3);
        assert_eq!(found(&silent), never(vec![2], Certainty::Undecidable));
        let everyone = silent + &six(2);
        assert_eq!(found(&everyone), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
    }

    #[test]
    fn who_left_no_dump_and_says_that_it_waited_is_no_culprit() {
        let missing = Finding {
            kind: Kind::RankMissing,
            culprits: vec![GlobalRank(0), GlobalRank(2)],
            victims: vec![GlobalRank(1), GlobalRank(3)],
            group: None,
            seq: Some(12),
            op: None,
            certainty: Certainty::Likely,
            message: "They crashed.".into(),
            fix: String::new(),
            evidence: Vec::new(),
            ladder: None,
        };
        let judged = |seq: u64, ranks: &[u32]| {
            let fires = |rank: &u32| {
                format!(
                    "[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught \
                     collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4, \
                     NumelOut=4, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
                )
            };
            let log = read(ranks.iter().map(fires).collect::<String>().as_bytes());
            let mut report = Report::healthy(4);
            report.findings.push(missing.clone());
            add_log(&mut report, &Heard::of([("a.log", &log, None)]));
            let first = report.findings.swap_remove(0);
            (first.kind, first.culprits.len(), first.victims.len(), first.message)
        };
        let (kind, culprits, victims, message) = judged(12, &[0, 1, 3]);
        assert_eq!((kind, culprits, victims), (Kind::RankMissing, 1, 3));
        assert!(message.contains("Of them, rank 0 timed out in that call"), "{message}");
        for (seq, ranks) in [(11, &[0][..]), (12, &[1, 3]), (12, &[0, 2])] {
            assert_eq!(judged(seq, ranks).1, 2, "{seq} {ranks:?}");
        }
    }

    #[test]
    fn a_log_of_nothing_tells_how_many_ranks_there_are() {
        let report = of_files(&[("rank_0.log", "done\n", Some(0)), ("rank_1.log", "x\n", Some(1))]);
        assert_eq!((report.world_size, report.findings), (2, Vec::new()));
    }

    #[test]
    fn majorities_and_ties() {
        let says = |own: u32, count: u32, other: u32, others: u32| {
            format!(
                "DDP expects same model across all ranks, but Rank {own} has {count} params, while \
                 rank {other} has inconsistent {others} params.\n"
            )
        };
        let three = says(0, 4, 1, 6) + &says(1, 6, 0, 4) + &says(2, 4, 1, 6);
        assert_eq!(found(&three), [(Kind::DdpModelMismatch, vec![1], Certainty::Certain)]);
        let two = says(0, 4, 1, 6);
        assert_eq!(found(&two), [(Kind::DdpModelMismatch, vec![0, 1], Certainty::Undecidable)]);
        assert_eq!(report(&three).world_size, 3);
        // DDP raises on whoever differs from rank 0: who wrote a log and says nothing does not.
        let shapes = |ranks: &[u32]| {
            let says = |rank: &u32| {
                format!(
                    "RuntimeError: [{rank}]: params[0] in this process with sizes [96, 64] appears not to \
                     match sizes of the same param in process 0.\n"
                )
            };
            let texts: Vec<String> =
                (0..4).filter(|it| ranks.contains(it)).map(|it| says(&it)).collect();
            let mut texts = texts.iter();
            let files: Vec<(String, &str, Option<u32>)> = (0..4)
                .map(|rank| {
                    let text = if ranks.contains(&rank) { texts.next() } else { None };
                    (format!("rank_{rank}.log"), text.map_or("done\n", String::as_str), Some(rank))
                })
                .collect();
            let files: Vec<_> =
                files.iter().map(|(name, text, rank)| (name.as_str(), *text, *rank)).collect();
            let found = of_files(&files).findings;
            found.into_iter().map(|it| (it.culprits, it.certainty)).collect::<Vec<_>>()
        };
        let one = |rank: u32| vec![GlobalRank(rank)];
        assert_eq!(shapes(&[1]), [(one(1), Certainty::Certain)]);
        assert_eq!(shapes(&[1, 2, 3]), [(one(0), Certainty::Likely)]);
        assert_eq!(shapes(&[1, 3]).first().map(|it| it.1), Some(Certainty::Undecidable));
        assert_eq!(found("nothing of the kind"), []);
        assert_eq!(report("nothing").findings, []);
    }
}
