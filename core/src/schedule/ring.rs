//! Rings: every rank sends to the next and receives from the previous (Patarasuk, Yuan 2009,
//! "Bandwidth optimal all-reduce algorithms for clusters of workstations"). The bidirectional ring
//! is two of them, mirrored, each for half of every chunk: it uses both directions of full-duplex
//! links (De Sensi, Bonato, Saam, Hoefler 2024, "Swing", on rings).

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    match collective {
        Collective::AllReduce { .. } => all_reduce(n, rank.0, step, actions),
        Collective::AllGather => all_gather(n, rank.0, step, actions),
        Collective::ReduceScatter { .. } => reduce_scatter(n, rank.0, step, actions),
        _ => {}
    }
}

/// `(a - b) mod n` for `a < n`, `b <= 2n`.
fn back(a: u32, b: u32, n: u32) -> u32 {
    ((u64::from(a) + 2 * u64::from(n) - u64::from(b)) % u64::from(n)) as u32
}

fn neighbours(n: u32, rank: u32) -> (GroupRank, GroupRank) {
    (GroupRank(back(rank, 1, n)), GroupRank((rank + 1) % n))
}

/// n - 1 steps of reduce-scatter, then n - 1 of all-gather, over n chunks in place. After the
/// first half, rank r holds the finished chunk r + 1.
fn all_reduce(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let (previous, next) = neighbours(n, rank);
    let half = n - 1;
    let chunk = |chunk| Slice::one(Buffer::Output, chunk);
    if step < half {
        let into = chunk(back(rank, step + 1, n));
        actions.push(Action::Send { peer: next, from: chunk(back(rank, step, n)) });
        actions.push(Action::ReceiveReduce { peer: previous, local: into, into });
    } else {
        let step = step - half;
        let from = chunk(back((rank + 1) % n, step, n));
        actions.push(Action::Send { peer: next, from });
        actions.push(Action::Receive { peer: previous, into: chunk(back(rank, step, n)) });
    }
}

/// The half of chunk c that goes to the right is chunk 2c, the half that goes to the left 2c + 1.
/// The two mirrored rings are at chunk c in the same step if n is 2, and then one message carries
/// both halves.
pub(super) fn bidirectional(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let begin = actions.len();
    all_reduce(n, rank.0, step, actions);
    if n == 2 {
        actions[begin..].iter_mut().for_each(|action| map(action, |c| (2 * c, 2), |peer| peer));
        return;
    }
    let mirror = |of: u32| back(0, of, n);
    let middle = actions.len();
    all_reduce(n, mirror(rank.0), step, actions);
    for action in &mut actions[begin..middle] {
        map(action, |c| (2 * c, 1), |peer| peer);
    }
    for action in &mut actions[middle..] {
        map(action, |c| (2 * mirror(c) + 1, 1), mirror);
    }
}

/// Moves an action to other chunks (the first and how many) and to another peer.
fn map(action: &mut Action, chunks: impl Fn(u32) -> (u32, u32), to: impl Fn(u32) -> u32) {
    let moved = |slice: Slice| {
        let (chunk, chunks) = chunks(slice.chunk);
        Slice { buffer: slice.buffer, chunk, chunks }
    };
    let to = |peer: GroupRank| GroupRank(to(peer.0));
    *action = match *action {
        Action::Copy { from, into } => Action::Copy { from: moved(from), into: moved(into) },
        Action::Reduce { local, from, into } => {
            Action::Reduce { local: moved(local), from: moved(from), into: moved(into) }
        }
        Action::Send { peer, from } => Action::Send { peer: to(peer), from: moved(from) },
        Action::Receive { peer, into } => Action::Receive { peer: to(peer), into: moved(into) },
        Action::ReceiveReduce { peer, local, into } => {
            Action::ReceiveReduce { peer: to(peer), local: moved(local), into: moved(into) }
        }
    };
}

/// n - 1 steps; in step s a rank passes on what it got in step s - 1.
fn all_gather(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let (previous, next) = neighbours(n, rank);
    let own = Slice::one(Buffer::Input, 0);
    if step == 0 {
        actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, rank) });
    }
    if n > 1 {
        let from = if step == 0 { own } else { Slice::one(Buffer::Output, back(rank, step, n)) };
        let into = Slice::one(Buffer::Output, back(rank, step + 1, n));
        actions.push(Action::Send { peer: next, from });
        actions.push(Action::Receive { peer: previous, into });
    }
}

/// n - 1 steps. The input is not written: partial sums alternate between two scratch chunks, so
/// that a step never writes what it still sends.
fn reduce_scatter(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let result = Slice::one(Buffer::Output, 0);
    if n == 1 {
        actions.push(Action::Copy { from: Slice::one(Buffer::Input, 0), into: result });
        return;
    }
    let (previous, next) = neighbours(n, rank);
    let from = match step {
        0 => Slice::one(Buffer::Input, back(rank, 1, n)),
        _ => Slice::one(Buffer::Scratch, (step - 1) % 2),
    };
    let local = Slice::one(Buffer::Input, back(rank, step + 2, n));
    let into = if step + 2 == n { result } else { Slice::one(Buffer::Scratch, step % 2) };
    actions.push(Action::Send { peer: next, from });
    actions.push(Action::ReceiveReduce { peer: previous, local, into });
}
