//! What every chunk holds at a step, in words: how a page shows where a schedule goes wrong.

use super::ProofError;
use super::world::World;
use crate::rank::GroupRank;
use crate::schedule::{Buffer, Schedule};
use serde::{Deserialize, Serialize};
use std::fmt;

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

/// Where a part of a result was lost: the first write over data that the result lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Who wrote.
    pub rank: GroupRank,
    /// In which step.
    pub step: u32,
    /// Which buffer.
    pub buffer: Buffer,
    /// Which chunk.
    pub chunk: u32,
    /// What was there, in words.
    pub held: String,
    /// What was put there instead.
    pub wrote: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { rank, step, buffer, chunk, held, wrote } = self;
        write!(
            f,
            "in step {step} rank {rank} writes {wrote} over {held} in {buffer}[{chunk}], and the \
             result lacks what was there"
        )
    }
}

impl Loss {
    /// The first write of `schedule` that loses what the wrong result of `error` lacks; `None` if
    /// what it lacks was never lost (nobody sent it), or if the error is another.
    pub(in crate::schedule) fn of(schedule: &Schedule, error: &ProofError) -> Option<Loss> {
        let ProofError::WrongResult { rank, buffer, chunk, .. } = *error else { return None };
        let actions = |rank: GroupRank, step: u32, actions: &mut Vec<_>| {
            schedule.actions(rank, step, actions);
        };
        let missing = World::new(schedule, &actions).missing(rank, buffer, chunk)?;
        World::new(schedule, &actions).first_loss(missing)
    }
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
    use crate::schedule::{Algorithm, ProvedTable, ScheduleError, msccl};
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

    /// Whichever addition becomes a store, the loss is that write: in that step, on that rank.
    #[test]
    fn the_loss_is_the_store_that_should_have_added() {
        let right = Arc::new(msccl::read(&ring_of_four()).unwrap());
        let additions = ring_of_four().matches("type=\"rrc\"").count();
        assert!(additions > 0);
        for nth in 0..additions {
            let mut at = 0;
            let mut text = ring_of_four();
            for _ in 0..=nth {
                at += text[at..].find("type=\"rrc\"").unwrap() + 1;
            }
            text.replace_range(at - 1..at + 9, "type=\"r\"");
            let table = Arc::new(msccl::read(&text).unwrap());
            let refused = ProvedTable::new((*table).clone()).unwrap_err();
            let ScheduleError::Refused { error, .. } = refused else { panic!("{refused}") };
            let loss = ProvedTable::loss(&table, &error).unwrap();
            let chunk = |table: &Arc<_>, step| {
                let standing = ProvedTable::standing(table, step);
                let chunks = &standing.participants[loss.rank.index()][loss.buffer as usize];
                chunks[loss.chunk as usize].clone()
            };
            // Up to there it is as the right one, and from there on it is not.
            assert_eq!(
                ProvedTable::standing(&table, loss.step),
                ProvedTable::standing(&right, loss.step)
            );
            assert_eq!(chunk(&table, loss.step).words, loss.held);
            assert_eq!(chunk(&table, loss.step + 1).words, loss.wrote);
            assert_ne!(chunk(&right, loss.step + 1).words, loss.wrote);
            assert!(
                loss.to_string().contains(&format!("in step {} rank {}", loss.step, loss.rank))
            );
        }
    }
}
