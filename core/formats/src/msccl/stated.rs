//! Step numbers that a file states: if every action gives its common step, the schedule has those steps,
//! provided that the numbers agree with the program's order and with its memory's needs.
//!
//! The proof that every table has to pass then looks at the steps themselves.

use super::order::{Edge, Node, Order, Why};
use super::program::{Op, Program, Stated};
use super::{At, MscclError};
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Table, TableBuilder};

/// The table of a program that states all of its steps; `None` if it does not.
pub(super) fn table(program: &Program, order: &Order) -> Result<Option<Table>, MscclError> {
    let stated: Option<Vec<(At, Stated)>> = order
        .nodes
        .iter()
        .map(|node| node.at.and_then(|at| Some((at, step(program, at)?.stated?))))
        .collect();
    let Some(stated) = stated.filter(|stated| !stated.is_empty()) else { return Ok(None) };
    let of = |node: u32| stated[node as usize];
    for &(send, receive) in &order.messages {
        let ((at, one), (other, two)) = (of(send), of(receive));
        if one.at != two.at {
            let why = format!(
                "sends at=\"{}\" what {other} receives at=\"{}\": both ends of a message are in one step",
                one.at, two.at
            );
            return Err(MscclError::step(at, why));
        }
    }
    for &Edge { from, to, why } in &order.edges {
        let ((before, one), (at, two)) = (of(from), of(to));
        let one_action = one == two && is_sum(order, from, to);
        let fits = match why {
            Why::Memory => one.at < two.at || one_action,
            Why::Said | Why::Hinted => one.at <= two.at,
        };
        if !fits {
            let why = format!(
                "is at=\"{}\", but comes after {before}, which is at=\"{}\"",
                two.at, one.at
            );
            return Err(MscclError::step(at, why));
        }
    }
    let mut actions: Vec<(u32, Stated, Action)> =
        order.nodes.iter().zip(&stated).map(|(node, (_, s))| (node.gpu, *s, node.action)).collect();
    // Stable: a copy stays before the sum that it is part of.
    actions.sort_by_key(|(gpu, stated, _)| (*gpu, *stated));
    let mut table = TableBuilder::new(
        program.name.clone(),
        program.collective,
        program.size(),
        program.cut,
        order.memory.scratch(),
    )?;
    let mut left = actions.into_iter().peekable();
    while let Some((gpu, stated, action)) = left.next() {
        let next = left.peek().filter(|(of, s, _)| (*of, *s) == (gpu, stated));
        let sum = next.and_then(|(_, _, next)| sum_of(action, *next));
        if sum.is_some() {
            left.next();
        }
        table.push(GroupRank(gpu), stated.at, sum.unwrap_or(action));
    }
    Ok(Some(table.finish()?))
}

fn step(program: &Program, at: At) -> Option<&super::program::Step> {
    let block = program.gpus.get(at.gpu as usize)?.blocks.get(at.tb as usize)?;
    block.steps.get(at.step as usize).filter(|step| step.op != Op::Nop)
}

/// True if two actions are the two halves of a sum of two chunks into a third.
fn is_sum(order: &Order, from: u32, to: u32) -> bool {
    let action = |node: u32| order.nodes.get(node as usize).map(|node: &Node| node.action);
    let halves = action(from).zip(action(to));
    halves.is_some_and(|(copy, reduce)| sum_of(copy, reduce).is_some())
}

/// A copy, and a reduction into where it copied to: MSCCL sums into one of the operands only.
fn sum_of(copy: Action, reduce: Action) -> Option<Action> {
    match (copy, reduce) {
        (Action::Copy { from: local, into }, Action::Reduce { local: copied, from, into: sum })
            if into == copied && into == sum =>
        {
            Some(Action::Reduce { local, from, into })
        }
        _ => None,
    }
}
