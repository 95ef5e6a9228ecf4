//! `join()`: training with uneven inputs (`torch/distributed/algorithms/join.py` and DDP's join
//! hook in `distributed.py`).
//!
//! A rank that has run out of inputs shadows the collectives of the others with zeros until all
//! have; then all take the states of the highest rank among those that had inputs longest.

use super::call::{DdpCall, Purpose};
use super::error::DdpError;
use super::model::Model;
use super::options::DdpOptions;
use super::wrapper::{Ddp, Forward, InJoin, common_rank};
use crate::dtype::Dtype;

/// `join`'s arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// `divide_by_initial_world_size`.
    pub divide_by_initial_world_size: bool,
    /// `throw_on_early_termination`.
    pub throw_on_early_termination: bool,
}

impl Default for JoinOptions {
    fn default() -> JoinOptions {
        JoinOptions { divide_by_initial_world_size: true, throw_on_early_termination: false }
    }
}

/// An iteration of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinIteration {
    /// What its forward pass issued.
    pub forward: Vec<DdpCall>,
    /// What its backward pass issued.
    pub backward: Vec<DdpCall>,
    /// What the gradients were divided by.
    pub divisor: u32,
}

/// What one rank did inside `join()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedRank {
    /// Its own iterations.
    pub iterations: Vec<JoinIteration>,
    /// What it issued after its inputs were exhausted.
    pub after: Vec<DdpCall>,
    /// What it raised, if it did.
    pub error: Option<DdpError>,
}

/// Runs all ranks with that many inputs each; gradients become ready in the model's order.
///
/// # Errors
/// What DDP's constructor raises.
pub fn run_join(
    model: &Model,
    options: &DdpOptions,
    inputs: &[u32],
    join: JoinOptions,
) -> Result<Vec<JoinedRank>, DdpError> {
    let order = model.grad_ready_order();
    let mut ranks = Vec::new();
    for rank in 0..inputs.len() as u32 {
        ranks.push((Ddp::new(rank, model, options)?.0, JoinedRank::default()));
    }
    let most = inputs.iter().copied().max().unwrap_or(0);
    for iteration in 0..most {
        let active = (0..).zip(inputs).filter(|(_, inputs)| **inputs > iteration);
        let active: Vec<u32> = active.map(|(rank, _)| rank).collect();
        let authoritative_rank = active.last().copied().unwrap_or(0);
        let exhausted = active.len() < inputs.len();
        let throw = join.throw_on_early_termination.then_some(exhausted);
        let rank0 = ranks.first().and_then(|(ddp, _)| ddp.reducer());
        let rank0_order = rank0.map(|reducer| reducer.rebuild_order().to_vec()).unwrap_or_default();
        let rank0_order = Some(rank0_order.as_slice());
        let divisor = match join.divide_by_initial_world_size {
            true => inputs.len(),
            false => active.len(),
        };
        for (rank, (ddp, done)) in (0..).zip(&mut ranks) {
            if done.error.is_some() {
                continue;
            }
            if active.binary_search(&rank).is_ok() {
                let in_join = Some(InJoin { authoritative_rank, throw });
                let mut step =
                    JoinIteration { divisor: divisor as u32, ..JoinIteration::default() };
                let forward = Forward { rank0_order, join: in_join, ..Forward::default() };
                let passes = ddp
                    .forward(&forward, &mut step.forward)
                    .and_then(|()| ddp.backward(&order, &mut step.backward));
                done.error = passes.err();
                done.iterations.push(step);
            } else {
                done.after.push(presence());
                if throw.is_some() {
                    done.after.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinThrow));
                    done.error = Some(DdpError::Exhausted { rank });
                    continue;
                }
                done.error = ddp.shadow(authoritative_rank, rank0_order, &mut done.after).err();
            }
        }
    }
    let last = (0..).zip(inputs).filter(|(_, inputs)| **inputs == most).last();
    let last_joiner = last.map_or(0, |(rank, _)| rank);
    for (ddp, done) in &mut ranks {
        if done.error.is_none() {
            done.after.push(presence());
            done.after.push(common_rank());
            ddp.sync_module_states(last_joiner, &mut done.after);
        }
    }
    Ok(ranks.into_iter().map(|(_, done)| done).collect())
}

/// Every rank says whether it still has inputs.
pub(super) fn presence() -> DdpCall {
    DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinPresence)
}
