//! What is written comes back.

use super::super::{read, write};
use super::prove_table;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::{Algorithm, Proof, Schedule, prove};

fn collectives(root: u32) -> [Collective; 8] {
    let (op, root) = (ReduceOp::Sum, GroupRank(root));
    [
        Collective::AllReduce { op },
        Collective::AllGather,
        Collective::ReduceScatter { op },
        Collective::AllToAll,
        Collective::Broadcast { root },
        Collective::Reduce { op, root },
        Collective::Gather { root },
        Collective::Scatter { root },
    ]
}

/// Writes a schedule, reads it, proves what was read.
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
                if schedule.participants() > size {
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
                assert!(read.steps() <= 2 * schedule.steps(), "{what}: {} steps", read.steps());
                // Nothing moves to where chunks of another size are, so any count will do.
                assert_eq!(read.granularity(), 1, "{what}");
            }
        }
    }
}

#[test]
fn channels_come_back() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let schedule = Schedule::new(sum, Algorithm::Ring, 4).unwrap().with_channels(3).unwrap();
    let (read, proof) = there_and_back(&schedule);
    assert_eq!(proof.messages, prove(&schedule).unwrap().messages);
    assert_eq!(read.chunks_per_part(), 12);
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
