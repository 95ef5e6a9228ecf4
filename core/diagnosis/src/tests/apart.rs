//! Findings that a recording leaves open are not told as certain: of two calls that differ and that
//! nothing is seen to follow, and of rounds that are alike. With lines and without, as in JSON.

use super::fake::{Fake, Said, done, pending};
use super::{found, lines, report};
use crate::{Certainty, Kind, Report};

/// The report on a job whose ranks have ended `common` calls, and one of which waits in another
/// call than the others.
fn parted(world: u32, common: &[Said], rank: usize, own: Said, theirs: Said) -> Report {
    let with = |last: Said| [common, &[last]].concat();
    report(&Fake::new(world, &with(theirs)).rank(rank, &with(own)).files())
}

/// Kind, culprits and certainty, with words that the message must have.
fn told(report: &Report, kind: Kind, culprits: &[u32], words: &[&str]) {
    assert_eq!(found(report), [(kind, culprits.to_vec())], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Likely, "{}", report.to_text());
    for words in words {
        assert!(finding.message.contains(words), "{words}: {}", finding.message);
    }
}

fn steps(count: usize) -> Vec<Said> {
    vec![done("all_reduce", 256); count]
}

/// A round of a loop.
const ROUND: [lines::Said; 2] = [("all_reduce", 256, 8), ("broadcast", 5, 9)];

/// Rounds of that loop without lines, which have ended.
fn rounds(count: usize) -> Vec<Said> {
    vec![[done("all_reduce", 256), done("broadcast", 5)]; count].concat()
}

const NO_LINES: &str = "Nothing tells from which lines they come";

#[test]
fn calls_that_differ_without_lines_may_be_one_left_out_or_on_top() {
    let differs = |own, theirs| parted(4, &steps(3), 2, own, theirs);
    let report = differs(pending("all_reduce", 1), pending("all_reduce", 256));
    told(&report, Kind::SizeMismatch, &[2], &[NO_LINES]);
    let report = differs(pending("reduce", 16), pending("all_reduce", 16));
    told(&report, Kind::CollectiveMismatch, &[2], &[NO_LINES]);
    let report = differs(pending("all_reduce", 1).dtype("Long"), pending("all_reduce", 1));
    told(&report, Kind::DtypeMismatch, &[2], &[NO_LINES]);
}

/// The calls that follow in the others' order show that the one call stands in the place of the other.
#[test]
fn calls_behind_them_show_that_two_calls_differ() {
    let with = |call: Said| {
        let behind = (1..=3).map(|at| pending("all_reduce", 1000 + at));
        [steps(3), vec![call], behind.collect()].concat()
    };
    let fake = Fake::new(4, &with(pending("all_reduce", 64)));
    let report = report(&fake.rank(1, &with(pending("all_reduce", 65))).files());
    assert_eq!(found(&report), [(Kind::SizeMismatch, vec![1])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Certain, "{}", report.to_text());
}

#[test]
fn of_one_line_the_sizes_before_tell() {
    let job = |before: &[u64], own: u64, theirs: u64| {
        let line = |numel: u64| ("all_reduce", numel, 9);
        let with = |last: u64| before.iter().copied().chain([last]).map(line).collect();
        lines::report(&[with(theirs), with(theirs), with(own), with(theirs)])
    };
    // A line that has made one size so far: the last batch of all may be a smaller one.
    told(&job(&[64, 64], 60, 64), Kind::SizeMismatch, &[2], &["a call was left out before"]);
    // A line whose sizes vary, as those of ragged batches: a round that was left out looks the same.
    told(&job(&[64, 17], 52, 21), Kind::SizeMismatch, &[2], &["are not all alike"]);
    // The first call of a line that may reduce one parameter after the other.
    told(&job(&[], 16, 128), Kind::SizeMismatch, &[2], &["Nobody has called from there"]);
}

#[test]
fn calls_from_different_lines_may_be_one_left_out_or_on_top() {
    let with = |last: lines::Said| vec![("all_reduce", 64, 8), last];
    let usual = with(("all_reduce", 16, 12));
    let odd = with(("reduce", 16, 11));
    let report = lines::report(&[usual.clone(), usual.clone(), odd, usual]);
    told(&report, Kind::CollectiveMismatch, &[2], &["come from different lines"]);
}

/// A line that never makes one size twice makes its next call with yet another one.
#[test]
fn the_next_call_of_a_line_of_many_sizes_says_that_one_was_left_out() {
    let common = [done("all_reduce", 100), done("barrier", 0), done("all_reduce", 101)];
    let report = parted(4, &common, 3, pending("all_reduce", 102), pending("barrier", 0));
    told(&report, Kind::OpSkipped, &[3], &["Or it makes that call later"]);
    let before = [("all_reduce", 100, 8), ("barrier", 1, 9), ("all_reduce", 101, 8)];
    let with = |last: lines::Said| [&before[..], &[last]].concat();
    let (usual, own) = (with(("barrier", 1, 9)), with(("all_reduce", 102, 8)));
    let report = lines::report(&[usual.clone(), usual.clone(), usual, own]);
    told(&report, Kind::OpSkipped, &[3], &["Or it makes that call later"]);
}

/// Rounds that are alike: left early and left out is one, with lines, without, and with what follows.
#[test]
fn rounds_that_are_alike_are_left_early_or_left_out() {
    let both = ["left its loop", "or left out a round of it", "nothing tells which"];
    let common = [vec![done("barrier", 0)], rounds(3)].concat();
    let theirs = pending("all_reduce", 256);
    for behind in ["barrier", "all_gather"] {
        let report = parted(4, &common, 2, pending(behind, 0), theirs.clone());
        told(&report, Kind::LoopShorter, &[2], &both);
    }
    let program = |rounds| [ROUND.repeat(rounds), vec![("barrier", 1, 11)]].concat();
    let report = lines::report(&[program(5), program(5), program(4), program(5)]);
    told(
        &report,
        Kind::LoopShorter,
        &[2],
        &["left its loop", "or left out", "nothing tells which"],
    );
    let ends =
        |rounds| [program(rounds), vec![("all_gather", 7, 12), ("all_reduce", 3, 13)]].concat();
    let report = lines::report(&[ends(5), ends(5), ends(4), ends(5)]);
    told(&report, Kind::LoopShorter, &[2], &["2 calls short, or left out as many"]);
}

/// A rank makes its round's next call, where the others are past the loop, and the other way round.
#[test]
fn without_lines_the_loop_that_one_rank_goes_on_with_is_one() {
    let report = parted(4, &rounds(4), 1, pending("all_reduce", 256), pending("all_gather", 2));
    told(&report, Kind::OpExtra, &[1], &["went on with the loop"]);
}

/// Only rank 0 makes a call that is none of the loop's.
#[test]
fn without_lines_a_call_of_rank_0_alone_is_one_too_many() {
    let common = [vec![done("barrier", 0)], steps(3)].concat();
    let report = parted(4, &common, 0, pending("barrier", 0), pending("all_reduce", 256));
    told(&report, Kind::OpExtra, &[0], &["Or it left a loop"]);
}

/// Its call comes next as it always has, and what the others call does not: nothing was left out by it.
#[test]
fn who_goes_on_as_ever_has_left_nothing_out() {
    let round = [done("all_reduce", 256), done("broadcast", 1), done("broadcast", 21)];
    let common = [&round[..], &round[..1]].concat();
    let report = parted(4, &common, 0, pending("broadcast", 1), pending("all_reduce", 256));
    told(&report, Kind::OpExtra, &[0], &["it may be the others that left it out"]);
}

/// A call with a root that has ended on some, and behind which nobody calls anything, is no health.
#[test]
fn a_broadcast_that_ends_on_some_may_have_two_roots() {
    let common = steps(2);
    let with = |last: Said| [common.clone(), vec![last]].concat();
    let (ended, waits) = (with(done("broadcast", 64)), with(pending("broadcast", 64)));
    let fake = Fake::new(4, &waits).rank(1, &ended).rank(3, &ended);
    let found_in = report(&fake.files());
    assert_eq!(found(&found_in), [(Kind::CallNeverCompleted, vec![])], "{}", found_in.to_text());
    let finding = &found_in.findings[0];
    assert_eq!(finding.certainty, Certainty::Undecidable);
    assert!(finding.message.contains("named different roots"), "{}", finding.message);
    // Where somebody has gone on, the job runs.
    let on = [ended.clone(), vec![done("all_reduce", 8)]].concat();
    let report = report(&fake.rank(1, &on).files());
    assert!(report.findings.iter().all(|it| !it.message.contains("roots")), "{}", report.to_text());
}
