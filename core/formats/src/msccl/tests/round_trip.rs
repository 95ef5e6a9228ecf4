//! Programs that are written come back the same.

use super::super::{read, write};
use super::prove_table;
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Action, Algorithm, Proof, Rounds, Schedule, prove};

fn collectives(root: u32) -> Vec<Collective> {
    let every = Collective::every(ReduceOp::Sum, GroupRank(root));
    every.into_iter().filter(|collective| !collective.is_barrier()).collect()
}

/// Writes a schedule, reads it, proves the result.
fn there_and_back(schedule: &Schedule) -> (Schedule, Proof) {
    let text = write(schedule).unwrap();
    let table = read(&text).unwrap_or_else(|error| panic!("{schedule}: {error}\n{text}"));
    let read = prove_table(table);
    let read = read.unwrap_or_else(|error| panic!("{schedule}: {error}\n{text}"));
    let proof = prove(&read).unwrap();
    (read, proof)
}

#[test]
fn every_family_comes_back_with_its_messages() {
    for size in 2..=9 {
        for collective in collectives(size / 2) {
            for &algorithm in Algorithm::of(collective) {
                let schedule = Schedule::new(collective, algorithm, size).unwrap();
                if schedule.participants() > size || algorithm == Algorithm::GlooRing {
                    assert!(write(&schedule).is_err());
                    continue;
                }
                let (read, proof) = there_and_back(&schedule);
                let own = prove(&schedule).unwrap();
                let what = schedule.to_string();
                assert_eq!(
                    (proof.messages, proof.chunks_moved),
                    (own.messages, own.chunks_moved),
                    "{what}"
                );
                assert_eq!(proof.chunks_reduced, own.chunks_reduced, "{what}");
                assert_eq!(Rounds::of(&read), rounds_of(&schedule), "{what}");
                // Nothing moves to where chunks of another size are, so any count will do.
                assert_eq!(read.granularity(), 1, "{what}");
            }
        }
    }
}

/// The rounds without the idle steps at the end, which a file cannot state.
fn rounds_of(schedule: &Schedule) -> Rounds {
    let mut actions = Vec::new();
    let acts = |step: &u32| {
        (0..schedule.size()).any(|rank| {
            schedule.actions(GroupRank(rank), *step, &mut actions);
            !actions.is_empty()
        })
    };
    let steps = (0..schedule.steps()).rev().find(acts).map_or(0, |last| last + 1);
    Rounds::of(schedule).until(steps)
}

/// Every rank has the same actions in every step, in the same order; only the two operands of a sum may be
/// swapped, which makes no difference.
fn assert_same_actions(read: &Schedule, schedule: &Schedule) {
    let turned = |action: Action| match action {
        Action::Reduce { local, from, into } if into == from => {
            Action::Reduce { local: from, from: local, into }
        }
        other => other,
    };
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for rank in (0..schedule.size()).map(GroupRank) {
        for step in 0..schedule.steps() {
            schedule.actions(rank, step, &mut own);
            read.actions(rank, step, &mut theirs);
            let own: Vec<Action> = own.iter().copied().map(turned).collect();
            assert_eq!(theirs, own, "{schedule}, rank {rank}, step {step}");
        }
    }
}

/// Channels stay side by side and segments behind each other: step by step the same actions, in
/// any number of either.
#[test]
fn lanes_come_back_step_by_step() {
    for (turn, size) in (2..=9).enumerate() {
        for collective in collectives(size / 3) {
            for &algorithm in Algorithm::of(collective) {
                for (channels, segments) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
                    if turn % 2 == 1 && segments > 1 {
                        continue;
                    }
                    let schedule = Schedule::new(collective, algorithm, size).unwrap();
                    let lanes = schedule
                        .with_ranks_per_node([0, 2, 3][turn % 3])
                        .and_then(|schedule| schedule.with_channels(channels))
                        .and_then(|schedule| schedule.with_segments(segments));
                    let Ok(schedule) = lanes else { continue };
                    if write(&schedule).is_err() {
                        assert!(schedule.switches() > 0 || schedule.cuts_by_bytes(), "{schedule}");
                        continue;
                    }
                    let (read, _) = there_and_back(&schedule);
                    assert_same_actions(&read, &schedule);
                    assert_eq!(read.chunks_per_part(), schedule.chunks_per_part());
                }
            }
        }
    }
}

/// Other tools ignore the stated steps; a program without them is numbered anew.
#[test]
fn a_program_without_stated_steps_is_numbered() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let schedule = Schedule::new(sum, Algorithm::Ring, 4).unwrap().with_channels(3).unwrap();
    let text = write(&schedule).unwrap();
    assert_eq!(text.matches("chan=\"2\"").count(), 2 * 4);
    let mut bare = String::new();
    for line in text.lines() {
        let end = line.find(" at=\"").filter(|_| line.contains("<step"));
        bare += &end.map_or(line.to_owned(), |end| format!("{}/>", &line[..end]));
        bare.push('\n');
    }
    let read = prove_table(super::super::read(&bare).unwrap()).unwrap();
    // The channels go side by side, as the memory lets them.
    assert_eq!(read.steps(), schedule.steps());
    assert_eq!(prove(&read).unwrap().messages, prove(&schedule).unwrap().messages);
}

/// The order that a file states has to agree with its own.
#[test]
fn steps_that_cannot_be_as_stated_are_refused() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let text = write(&Schedule::new(sum, Algorithm::Ring, 3).unwrap()).unwrap();
    let wrong = |from: &str, to: &str| {
        assert!(text.contains(from));
        super::super::read(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let error = wrong("at=\"0\" nth=\"0\"", "at=\"1\" nth=\"0\"");
    assert!(error.contains("both ends of a message are in one step"), "{error}");
    let turned = text.replace("at=\"1\"", "at=\"x\"").replace("at=\"2\"", "at=\"1\"");
    let error =
        super::super::read(&turned.replace("at=\"x\"", "at=\"2\"")).unwrap_err().to_string();
    assert!(error.contains("but comes after"), "{error}");
}

#[test]
fn a_written_table_is_the_same_program() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let schedule = Schedule::new(sum, Algorithm::HalvingDoubling, 6).unwrap();
    let once = there_and_back(&schedule).0;
    let twice = there_and_back(&once).0;
    assert_eq!(prove(&once), prove(&twice));
    assert_eq!(once.steps(), twice.steps());
}
