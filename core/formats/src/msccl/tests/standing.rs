//! The contents of a table's ranks after a step, of tables that were read from MSCCL programs.

use crate::msccl;
use lockstep_core::collective::Collective;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, ProofError, ProvedTable, Schedule, ScheduleError};
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

/// One addition turned into a store: the page marks the place that the proof names.
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
        assert!(loss.to_string().contains(&format!("in step {} rank {}", loss.step, loss.rank)));
    }
}
