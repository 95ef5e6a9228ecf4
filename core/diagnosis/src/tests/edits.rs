//! Jobs that are made up, in which a rank does a few things differently: whoever reads the files in
//! whatever order finds what it did first, and nobody else.

use super::fake::{Fake, Said, done, pending};
use super::{found, report};
use crate::{Certainty, Kind, Report};
use proptest::prelude::*;

/// The deviation of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Skips,
    Adds,
    Swaps,
}

/// A program of calls by their sizes; what a rank makes of it.
fn edited(program: &[u64], edits: &[(usize, Does)]) -> Vec<u64> {
    let mut own = program.to_vec();
    // From behind, so that places stay what they are.
    for (at, does) in edits.iter().rev() {
        match does {
            Does::Skips => drop(own.drain(*at..=*at)),
            Does::Adds => own.insert(*at, 7_000 + *at as u64),
            Does::Swaps => own.swap(*at, at + 1),
        }
    }
    own
}

/// A job on NCCL whose processes ran ahead: up to the first difference the calls are done.
fn job(ranks: &[Vec<u64>]) -> Fake {
    let alike = |at: usize| ranks.iter().all(|own| own.get(at) == ranks[0].get(at));
    let same = (0..).take_while(|at| *at < ranks[0].len() && alike(*at)).count();
    let said = |own: &Vec<u64>| -> Vec<Said> {
        let call = |(at, numel): (usize, &u64)| match at < same {
            true => done("all_reduce", *numel),
            false => pending("all_reduce", *numel),
        };
        own.iter().enumerate().map(call).collect()
    };
    let mut fake = Fake::new(ranks.len() as u32, &[]);
    for (rank, own) in ranks.iter().enumerate() {
        fake = fake.rank(rank, &said(own));
    }
    fake
}

fn in_any_order(fake: &Fake, turn: usize) -> Report {
    let mut files = fake.files();
    let forward = report(&files);
    let length = files.len();
    files.rotate_left(turn % length);
    files.swap(0, length - 1);
    assert_eq!(report(&files), forward);
    forward
}

fn kind(does: Does) -> Kind {
    match does {
        Does::Skips => Kind::OpSkipped,
        Does::Adds => Kind::OpExtra,
        Does::Swaps => Kind::OpsSwapped,
    }
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![Just(Does::Skips), Just(Does::Adds), Just(Does::Swaps)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Calls that can be told apart: the first of a rank's edits is found, and the others are named.
    #[test]
    fn edits_of_one_rank_are_found(
        world in 3..7u32,
        culprit in 0..7u32,
        kinds in prop::collection::vec((does(), 0..3usize), 1..5),
        turn in 0..7usize,
    ) {
        let culprit = culprit % world;
        let program: Vec<u64> = (0..60).map(|at| 100 + at).collect();
        let edits: Vec<(usize, Does)> =
            kinds.iter().enumerate().map(|(at, (does, by))| (5 + 11 * at + by, *does)).collect();
        let ranks: Vec<Vec<u64>> = (0..world)
            .map(|rank| edited(&program, if rank == culprit { &edits } else { &[] }))
            .collect();
        let report = in_any_order(&job(&ranks), turn);
        prop_assert_eq!(found(&report), vec![(kind(kinds[0].0), vec![culprit])]);
        let finding = &report.findings[0];
        prop_assert_eq!(finding.certainty, Certainty::Certain, "{}", finding.message);
        prop_assert_eq!(finding.seq, Some(edits[0].0 as u64 + 1));
        let further = finding.message.matches("left out").count()
            + finding.message.matches("on top").count()
            + finding.message.matches(" before all_reduce #").count();
        prop_assert_eq!(further, kinds.len() - 1, "{}", finding.message);
    }

    /// Two ranks that do something differently, each for itself.
    #[test]
    fn edits_of_two_ranks_are_two_findings(
        (first, second) in (0..6u32, 1..6u32),
        kinds in (does(), does()),
        turn in 0..7usize,
    ) {
        let second = (first + second) % 6;
        let program: Vec<u64> = (0..50).map(|at| 100 + at).collect();
        let ranks: Vec<Vec<u64>> = (0..6)
            .map(|rank| match rank {
                _ if rank == first => edited(&program, &[(8, kinds.0)]),
                _ if rank == second => edited(&program, &[(21, kinds.1)]),
                _ => program.clone(),
            })
            .collect();
        let mut found = found(&in_any_order(&job(&ranks), turn));
        let mut wanted = vec![(kind(kinds.0), vec![first]), (kind(kinds.1), vec![second])];
        found.sort();
        wanted.sort();
        prop_assert_eq!(found, wanted);
    }

    /// Few sizes, so that there may be several ways to explain it: whoever is blamed did it, and
    /// what is called certain is what was done.
    #[test]
    fn what_cannot_be_told_is_not_called_certain(
        program in prop::collection::vec(1..4u64, 30..50),
        culprit in 0..4u32,
        at in 4..20usize,
        does in does(),
        turn in 0..7usize,
    ) {
        let mut own = edited(&program, &[(at, does)]);
        if does == Does::Adds {
            // As large as others are.
            own[at] = program[at - 3];
        }
        prop_assume!(own[..26] != program[..26]);
        let ranks: Vec<Vec<u64>> =
            (0..4).map(|rank| if rank == culprit { own.clone() } else { program.clone() }).collect();
        let report = in_any_order(&job(&ranks), turn);
        let found = found(&report);
        prop_assert_eq!(found.len(), 1, "{}", report.to_text());
        prop_assert_eq!(&found[0].1, &vec![culprit]);
        if report.findings[0].certainty == Certainty::Certain {
            prop_assert_eq!(found[0].0, kind(does), "{}", report.to_text());
        }
    }

    /// A loop that one rank leaves some rounds before the others.
    #[test]
    fn a_shorter_loop_is_one(
        body in 1..5u64,
        rounds in 4..9usize,
        short in 1..4usize,
        culprit in 0..5u32,
        turn in 0..7usize,
    ) {
        let program = |rounds: usize| -> Vec<u64> {
            let body: Vec<u64> = (0..body).map(|at| 10 + at).collect();
            (0..3).chain(body.repeat(rounds)).chain(50..60).collect()
        };
        let ranks: Vec<Vec<u64>> = (0..5)
            .map(|rank| program(if rank == culprit { rounds - short } else { rounds }))
            .collect();
        let found = found(&in_any_order(&job(&ranks), turn));
        // One call less of calls that are all alike: left out, or left early.
        let wanted = match body * short as u64 {
            1 => Kind::OpSkipped,
            _ => Kind::LoopShorter,
        };
        prop_assert_eq!(found, vec![(wanted, vec![culprit])]);
    }
}
