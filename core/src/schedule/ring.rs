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
        Collective::AllToAll => all_to_all(n, rank, step, actions),
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

/// Both directions at once: the half of chunk c that goes to the right is chunk 2c, the half that
/// goes to the left 2c + 1. The two mirrored rings of all_reduce are at chunk c in the same step if
/// n is 2, and then one message carries both halves.
pub(super) fn bidirectional(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    list: &mut Vec<Action>,
) {
    let begin = list.len();
    actions(collective, n, rank, step, list);
    if n == 2 && collective.in_place() {
        let both = |slice: Slice| Slice { chunk: 2 * slice.chunk, chunks: 2, ..slice };
        list[begin..].iter_mut().for_each(|action| *action = action.map(both));
        return;
    }
    let mirror = |of: u32| back(0, of, n);
    let middle = list.len();
    actions(collective, n, GroupRank(mirror(rank.0)), step, list);
    let right = |slice: Slice| Slice { chunk: 2 * slice.chunk, ..slice };
    // Chunks that stand for ranks are mirrored; a rank's only part and scratch are not.
    let stand_for_ranks = |buffer| match buffer {
        Buffer::Input => !matches!(collective, Collective::AllGather),
        Buffer::Output => !matches!(collective, Collective::ReduceScatter { .. }),
        Buffer::Scratch => false,
    };
    let left = |slice: Slice| {
        let mirrored =
            if stand_for_ranks(slice.buffer) { mirror(slice.chunk) } else { slice.chunk };
        Slice { chunk: 2 * mirrored + 1, ..slice }
    };
    for action in &mut list[begin..middle] {
        *action = action.map(right);
    }
    for action in &mut list[middle..] {
        *action = action.map(left).with_peer(|peer| GroupRank(mirror(peer.0)));
    }
}

/// all_to_all around the ring: in step s every rank passes on the n - s parts that it has for ranks
/// further on. Each message goes to a neighbour, but parts travel n / 2 hops on average: for
/// networks without switches. Two places for parts take turns; the nearest receiver's is the first
/// of each, and stays.
fn all_to_all(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let rank = rank.0;
    let (previous, next) = neighbours(n, rank);
    let place = |turn: u32, parts: std::ops::Range<u32>| {
        let start = turn % 2 * (n - 1);
        Slice::run(Buffer::Scratch, start + parts.start..start + parts.end)
    };
    let output = |from: u32| Slice::one(Buffer::Output, from);
    if step == 0 {
        actions.push(Action::Copy { from: Slice::one(Buffer::Input, rank), into: output(rank) });
        // In the order of distance.
        for (receivers, first) in [(rank + 1..n, 0), (0..rank, n - 1 - rank)] {
            let into = place(0, first..first + (receivers.end - receivers.start));
            if !receivers.is_empty() {
                actions.push(Action::Copy { from: Slice::run(Buffer::Input, receivers), into });
            }
        }
        return;
    }
    // What came in the step before: its first part is this rank's, the others go on.
    if step > 1 {
        let from = place(step - 1, 0..1);
        actions.push(Action::Copy { from, into: output(back(rank, step - 1, n)) });
    }
    if step < n {
        let skip = u32::from(step > 1);
        let parts = n - step;
        actions.push(Action::Send { peer: next, from: place(step - 1, skip..skip + parts) });
        actions.push(Action::Receive { peer: previous, into: place(step, 0..parts) });
    }
}

/// Steps of all_to_all: to line up the parts, n - 1 exchanges, and to keep the last part.
pub(super) fn all_to_all_steps(n: u32) -> u32 {
    if n == 1 { 1 } else { n + 1 }
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
