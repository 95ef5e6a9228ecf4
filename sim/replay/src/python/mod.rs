//! A plan as a Python program that makes the same calls, to be read, changed and run again.
//!
//! Calls of a rank become [statements](statement); the ranks' statements are [merged](merge), so that what several do is
//! written once and branches stand where they differ; what repeats becomes a [loop](fold). A loop's computations take
//! the mean of its rounds.

mod error;
mod fold;
mod groups;
mod merge;
mod ranks;
mod statement;
mod write;

pub use error::PythonError;

use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;

/// The text of a program that does what a plan says, for Lockstep's interpreter. What the plan assumes stands in its head.
///
/// # Errors
/// When the plan does what a program has no word for, or is too long to be read.
pub fn python_program(plan: &Plan) -> Result<String, PythonError> {
    let names = groups::Families::of(plan);
    let mut writer = statement::Writer::new(plan, &names);
    let mut ranks = Vec::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        ranks.push((rank, writer.statements(rank)?));
    }
    let lines = merge::merged(ranks)?;
    let nodes = fold::folded(&lines);
    Ok(write::program(plan, &names, &writer.tensors(), &lines, &nodes))
}
