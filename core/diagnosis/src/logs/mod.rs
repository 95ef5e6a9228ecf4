//! Claims that rest on what a job's logs say.

pub(crate) mod desync_report;
pub(crate) mod detail;
pub(crate) mod ended_ranks;
pub(crate) mod fired;
pub(crate) mod gave_up;
pub(crate) mod lagging_ranks;
pub(crate) mod log_finding;
pub(crate) mod network_error;
pub(crate) mod other_tools;
pub(crate) mod silent_ranks;
pub(crate) mod stuck_watchdog;
pub(crate) mod watchdogs;

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::rules::ddp_models;
use crate::rules::ddp_models::Sides;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// The findings of the logs alone. The job has at least `world` ranks.
pub(crate) fn claims(sources: &OtherSources<'_>, world: u32) -> Vec<Claim> {
    let mut found = by_statements(&sources.heard, world);
    for claim in found.iter_mut().filter(|claim| claim.kind == Kind::RankNeverJoined) {
        claim.add_stacks(sources);
    }
    found
}

/// The findings of the logs' statements.
fn by_statements(heard: &Heard, world: u32) -> Vec<Claim> {
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
        // Of a failed transfer calls time out; a rank that ended by itself makes transfers fail.
        if found.is_empty() && !ended_ranks::any_by_itself(heard) {
            found.extend(network_error::found(heard));
        }
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

fn simple(about: &[&Statement], kind: Kind, what: &str, fix: &str) -> Option<Claim> {
    let ranks: Vec<GlobalRank> = about.iter().map(|it| it.rank).collect();
    finding(kind, about, format!("By the log, {} {what}.", words::ranks(&ranks)), fix)
}

/// The finding of ranks that `monitored_barrier` waited for, with the line in which the others waited.
fn missed_barrier(statements: &[Statement], about: &[&Statement]) -> Option<Claim> {
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
    found.also_victims = waited.into_iter().collect();
    Some(found)
}

fn unused(statements: &[Statement]) -> Option<Claim> {
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

fn models(statements: &[Statement], world: u32) -> Option<Claim> {
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
            found.message.said += &format!(" So {}.", sides.said);
            found.alternatives =
                if sides.tie { Alternatives::AsLikely } else { Alternatives::LessLikely };
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
        found.alternatives = Alternatives::AsLikely;
    }
    Some(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::Certainty;
    use crate::report::{Finding, Report};
    use lockstep_core::rank::GlobalRank;
    use lockstep_formats::job_log::read;

    pub(crate) fn report(text: &str) -> Report {
        of_files(&[("train.log", text, None)])
    }

    /// Of logs, each with the rank whose it is, if it is one rank's.
    pub(crate) fn of_files(files: &[(&str, &str, Option<u32>)]) -> Report {
        let logs =
            files.iter().map(|(name, text, rank)| (*name, read(name, text.as_bytes()), *rank));
        let logs: Vec<_> = logs.collect();
        let heard = logs.iter().map(|(name, log, rank)| (*name, log, rank.map(GlobalRank)));
        let sources = OtherSources { heard: Heard::of(heard), ..OtherSources::default() };
        crate::diagnose_logs(Report::healthy(0), &sources)
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

    /// Each piece of evidence names the file and the line that say it: of the rank's own log, and of the last line where
    /// a log says nothing.
    #[test]
    fn evidence_names_the_line_of_the_log() {
        let fires = |rank: u32| {
            format!(
                "starting\n\n[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective \
                 operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, \
                 Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
            )
        };
        let (a, b) = (fires(0), fires(1));
        let silent = "step 1\nstep 2\n\n";
        let files =
            [("r0.log", &*a, Some(0)), ("r1.log", &*b, Some(1)), ("r2.log", silent, Some(2))];
        let report = of_files(&files);
        let seen = report.findings[0].evidence.iter();
        let seen: Vec<(u32, String, &str)> = seen
            .map(|seen| (seen.rank.0, seen.place.clone().unwrap().to_string(), &*seen.note))
            .collect();
        assert!(
            seen.contains(&(0, "r0.log:3".to_owned(), "timed out in ALLREDUCE #6")),
            "{seen:?}"
        );
        assert!(
            seen.iter().any(|it| it.1 == "r1.log:3") && seen.iter().any(|it| it.1 == "r2.log:2")
        );
        let text = report.to_text();
        assert!(text.contains("rank 0 timed out in ALLREDUCE #6, in r0.log:3"), "{text}");
        assert!(report.to_markdown().contains("in `r0.log:3`"));
        let json = serde_json::to_value(&report).unwrap();
        let places = &json["findings"][0]["evidence"];
        assert!(places.as_array().unwrap().iter().any(|it| it["place"]["line"] == 3));
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
