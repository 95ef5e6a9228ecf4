//! The programs of a plan's ranks, changed one by one.

use lockstep_core::plan::{Plan, Program};
use lockstep_core::rank::GlobalRank;

/// Gives a rank a program, which it shares with the rank before if they are equal.
pub(crate) fn set_program(plan: &mut Plan, rank: GlobalRank, program: Program) {
    if plan.programs.last() != Some(&program) {
        plan.programs.push(program);
    }
    let index = plan.programs.len().saturating_sub(1) as u32;
    if let Some(of) = plan.program_of.get_mut(rank.index()) {
        *of = index;
    }
}
