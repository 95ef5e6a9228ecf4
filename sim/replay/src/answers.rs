//! Sends and receives of a rank of which nothing was recorded: those that the recorded ranks' messages with it need.
//!
//! A message is put behind as many collectives as its recorded side had made. The answers are asynchronous and are
//! waited for at the end, since nothing tells their order among each other.

use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Action, Call, Op};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The operations of a rank with its answers.
pub(crate) struct Answered {
    pub(crate) ops: Vec<Op>,
    /// True if there are any.
    pub(crate) any: bool,
}

/// Adds to a rank's operations the sends and receives that the operations of `peers` need. `is_shared` is true of the
/// collectives that the rank makes as well.
pub(crate) fn answers<'a>(
    ops: Vec<Op>,
    (rank, groups): (GlobalRank, &[ProcessGroup]),
    peers: impl Iterator<Item = (GlobalRank, &'a [Op])>,
    is_shared: impl Fn(&Op) -> bool,
) -> Answered {
    let mut behind: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
    for (peer, theirs) in peers {
        let mut made = 0;
        for op in theirs {
            made += usize::from(is_shared(op));
            let answers = op.action.calls().iter().filter_map(|call| {
                let group = groups.get(call.group().index())?;
                answer(call, (rank, peer), group)
            });
            let answers: Vec<Call> = answers.collect();
            let async_op = true;
            let action = match <[Call; 1]>::try_from(answers) {
                Ok([call]) => Action::call(call, async_op),
                Err(calls) if calls.is_empty() => continue,
                Err(calls) => Action::Coalesced { calls, async_op },
            };
            behind
                .entry(made)
                .or_default()
                .push(Op { called_from: op.called_from, ..Op::new(action, op.at) });
        }
    }
    if behind.is_empty() {
        return Answered { ops, any: false };
    }
    let mut all = Vec::with_capacity(ops.len());
    let mut waits = Vec::new();
    let mut made = 0;
    let mut add = |made: usize, all: &mut Vec<Op>| {
        for op in behind.remove(&made).unwrap_or_default() {
            let wait = Action::Wait { op: all.len() as u32, timeout_ms: None };
            waits.push(Op::new(wait, None));
            all.push(op);
        }
    };
    add(0, &mut all);
    for op in ops {
        let shared = is_shared(&op);
        all.push(op);
        if shared {
            made += 1;
            add(made, &mut all);
        }
    }
    all.extend(waits);
    Answered { ops: all, any: true }
}

/// The other side of a message between a rank and a peer; `None` of another call.
fn answer(
    call: &Call,
    (rank, peer): (GlobalRank, GlobalRank),
    group: &ProcessGroup,
) -> Option<Call> {
    let place = group.group_rank(peer)?;
    let with_rank = |at| group.global_rank(at) == Some(rank);
    match call.clone() {
        Call::Send { group, peer: to, tensor, tag } if with_rank(to) => {
            Some(Call::Recv { group, peer: Some(place), tensor, tag })
        }
        Call::Recv { group, peer: Some(from), tensor, tag } if with_rank(from) => {
            Some(Call::Send { group, peer: place, tensor, tag })
        }
        _ => None,
    }
}
