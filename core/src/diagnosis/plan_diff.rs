//! What one rank's program leaves out, adds or swaps, where the plan is known.
//!
//! The plan of a simulation or a run shows what every rank would have called, so that the place of
//! a skipped call is certain where a recording could only guess.

use crate::group::GroupId;
use crate::plan::{Action, Op, Plan};
use crate::rank::GlobalRank;

/// How two programs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanDiff {
    /// The first leaves out calls of the second.
    Skips(Place),
    /// The first makes calls that the second does not make.
    Adds(Place),
    /// The first makes the same calls in another order.
    Swaps(Place),
}

/// Where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The first of the calls concerned, in PyTorch's name.
    pub(super) op: String,
    /// Its number in the group, in the program that makes the call.
    pub(super) seq: u64,
    /// The number it could have as well, because the calls between are all alike.
    pub(super) last_seq: u64,
    /// How many collectives of the group are concerned.
    pub(super) count: usize,
    /// Its line, `train.py:88`.
    pub(super) line: Option<String>,
    /// For swaps, the second call.
    pub(super) other: Option<(String, Option<String>)>,
    /// True if what is left out are whole rounds of a loop.
    pub(super) rounds: bool,
}

/// The difference between the programs of `rank` and of `peer`, in the collectives of `group`;
/// `None` if there is none, or more than one.
pub(super) fn plan_diff(
    plan: &Plan,
    group: GroupId,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Option<PlanDiff> {
    let (own, other) = (compared(&plan.program(rank)?.ops), compared(&plan.program(peer)?.ops));
    // Lines tell equal calls apart, unless the ranks make the same calls from different lines.
    let by_line = |a: &Op, b: &Op| same(a, b) && a.at == b.at;
    let (mut prefix, mut suffix) = common(&own, &other, by_line);
    if prefix + suffix < own.len().min(other.len()) {
        (prefix, suffix) = common(&own, &other, same);
    }
    let own_middle = own.get(prefix..own.len() - suffix)?;
    let other_middle = other.get(prefix..other.len() - suffix)?;
    let (own_calls, other_calls) = (calls(own_middle, group), calls(other_middle, group));
    let first = |calls: &[&Op], ops: &[&Op], middle: usize| {
        let call = *calls.first()?;
        let before = self::calls(ops.get(..prefix)?, group).len() as u64;
        let slides = slides(ops, prefix, middle);
        let earlier = self::calls(ops.get(prefix - slides..prefix)?, group).len() as u64;
        Some(Place {
            op: call.action.name().to_owned(),
            seq: before + 1 - earlier,
            last_seq: before + 1,
            count: calls.len(),
            line: call.at.map(|at| plan.describe_line(at)),
            other: None,
            rounds: middle > 1 && slides >= middle,
        })
    };
    match (own_calls.as_slice(), other_calls.as_slice()) {
        ([], [_, ..]) if own_middle.is_empty() => {
            Some(PlanDiff::Skips(first(&other_calls, &other, other_middle.len())?))
        }
        ([], [_, ..]) => {
            let place = first(&other_calls, &other, other_middle.len())?;
            Some(PlanDiff::Skips(Place { seq: place.last_seq, ..place }))
        }
        ([_, ..], []) => Some(PlanDiff::Adds(first(&own_calls, &own, own_middle.len())?)),
        ([a, .., b], [c, .., d]) if own_calls.len() == 2 && other_calls.len() == 2 => {
            if !(same(a, d) && same(b, c)) {
                return None;
            }
            let place = first(&other_calls, &other, 0)?;
            let line = d.at.map(|at| plan.describe_line(at));
            let second = Some((d.action.name().to_owned(), line));
            Some(PlanDiff::Swaps(Place { seq: place.last_seq, other: second, ..place }))
        }
        _ => None,
    }
}

/// How many operations are the same at the start, and of the rest at the end.
fn common(own: &[&Op], other: &[&Op], same: impl Fn(&Op, &Op) -> bool) -> (usize, usize) {
    let prefix = own.iter().zip(other).take_while(|(a, b)| same(a, b)).count();
    let (own, other) = (own.iter().skip(prefix).rev(), other.iter().skip(prefix).rev());
    (prefix, own.zip(other).take_while(|(a, b)| same(a, b)).count())
}

/// By how many operations the `middle` operations from `at` on could have been taken out further
/// to the front, with the same program left.
fn slides(ops: &[&Op], at: usize, middle: usize) -> usize {
    (0..at)
        .take_while(|slid| {
            let (before, after) = (ops.get(at - slid - 1), ops.get(at - slid - 1 + middle));
            // Other lines tell which one is gone.
            matches!((before, after), (Some(a), Some(b)) if same(a, b) && a.at == b.at)
        })
        .count()
}

/// The operations that tell programs apart: idle time does not, and a wait only repeats its call.
fn compared(ops: &[Op]) -> Vec<&Op> {
    let counts = |op: &&Op| match op.action {
        Action::Call { .. }
        | Action::Coalesced { .. }
        | Action::Compute { .. }
        | Action::Die { .. } => true,
        Action::Sleep { .. }
        | Action::Wait { .. }
        | Action::Query { .. }
        | Action::Copy { .. }
        | Action::Synchronize => false,
    };
    ops.iter().filter(counts).collect()
}

fn same(a: &Op, b: &Op) -> bool {
    match (&a.action, &b.action) {
        // A slow rank computes the same for longer.
        (Action::Compute { name: a, .. }, Action::Compute { name: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

fn calls<'a>(ops: &[&'a Op], of: GroupId) -> Vec<&'a Op> {
    let is_call = |op: &&Op| {
        op.action.calls().iter().any(|call| call.collective().is_some() && call.group() == of)
    };
    ops.iter().copied().filter(is_call).collect()
}
