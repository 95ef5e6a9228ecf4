//! What every chunk holds at a step, in words: how a page shows where a schedule goes wrong.

use super::world::World;
use crate::rank::GroupRank;
use crate::schedule::{Buffer, Schedule};
use serde::{Deserialize, Serialize};

/// What every rank's buffers hold before a step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The step that comes next; the number of steps at the end, or the one that cannot be taken.
    pub step: u32,
    /// By participant, then buffer in the order of [`Standing::BUFFERS`], then chunk.
    pub participants: Vec<[Vec<Holding>; 3]>,
}

/// What a chunk holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// `chunk 3 of rank 2`, `the sum of chunk 3 over ranks 0-5`, `nothing`.
    pub words: String,
    /// How many ranks' data is in it.
    pub contributors: u32,
}

impl Standing {
    /// The order of a participant's buffers.
    pub const BUFFERS: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];

    /// What `schedule` has brought about before `step`, or before the first step that breaks a
    /// law.
    pub(in crate::schedule) fn before(schedule: &Schedule, step: u32) -> Standing {
        let actions = |rank: GroupRank, step: u32, actions: &mut Vec<_>| {
            schedule.actions(rank, step, actions);
        };
        World::new(schedule, &actions).stand(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::reduce::ReduceOp;
    use crate::schedule::{Algorithm, ProofError, ProvedTable, ScheduleError, msccl};
    use std::sync::Arc;

    fn ring_of_four() -> String {
        let all_reduce = Collective::AllReduce { op: ReduceOp::Sum };
        msccl::write(&Schedule::new(all_reduce, Algorithm::Ring, 4).unwrap()).unwrap()
    }

    #[test]
    fn a_ring_begins_with_its_own_and_ends_with_the_sums() {
        let table = Arc::new(msccl::read(&ring_of_four()).unwrap());
        let first = ProvedTable::standing(&table, 0);
        assert_eq!(first.participants[2][1][3].words, "chunk 3 of rank 2");
        let last = ProvedTable::standing(&table, u32::MAX);
        assert_eq!(last.step, table.steps());
        for rank in &last.participants {
            for (chunk, holding) in rank[1].iter().enumerate() {
                assert_eq!(holding.words, format!("the sum of chunk {chunk} over ranks 0-3"));
                assert_eq!(holding.contributors, 4);
            }
        }
    }

    /// One addition turned into a store: what the page marks is what the proof names.
    #[test]
    fn a_wrong_schedule_stands_where_the_proof_says() {
        let text = ring_of_four().replacen("type=\"rrc\"", "type=\"r\"", 1);
        let table = Arc::new(msccl::read(&text).unwrap());
        let refused = ProvedTable::new((*table).clone()).unwrap_err();
        let ScheduleError::Refused { error, .. } = refused else { panic!("{refused}") };
        let ProofError::WrongResult { rank, buffer, chunk, step, holds, .. } = *error else {
            panic!("{error}")
        };
        let at = |step| {
            let standing = ProvedTable::standing(&table, step);
            standing.participants[rank.index()][buffer as usize][chunk as usize].words.clone()
        };
        let step = step.unwrap();
        assert_eq!(at(step + 1), holds);
        assert_ne!(at(step), holds, "the step before it was another");
    }
}
