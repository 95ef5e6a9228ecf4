//! The ring: every rank sends to the next and receives from the previous (Patarasuk, Yuan 2009,
//! "Bandwidth optimal all-reduce algorithms for clusters of workstations").

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A ring.
pub(super) struct Ring;

impl Family for Ring {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce { .. }
                | Collective::AllGather
                | Collective::ReduceScatter { .. }
                | Collective::AllToAll
        )
    }

    fn steps(&self, call: Call) -> u32 {
        let n = call.size;
        match call.collective {
            Collective::AllReduce { .. } => 2 * (n - 1),
            // To line up the parts, n - 1 exchanges, and to keep the last part.
            Collective::AllToAll if n > 1 => n + 1,
            _ => (n - 1).max(1),
        }
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        if call.collective.in_place() { call.size } else { 1 }
    }

    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        match call.collective {
            Collective::ReduceScatter { .. } => 2,
            Collective::AllToAll => 2 * (call.size - 1),
            _ => 0,
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.collective, call.size, participant, step, list);
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        match call.collective {
            Collective::AllReduce { .. } if step.is_in_first_half() => ", reduce-scatter phase",
            Collective::AllReduce { .. } => ", all-gather phase",
            _ => "",
        }
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let combines = match call.collective {
            Collective::AllReduce { .. } => step.is_in_first_half(),
            Collective::ReduceScatter { .. } => true,
            _ => false,
        };
        let text = match call.collective {
            _ if combines && step.at == 0 => {
                "every rank sends one of its own chunks to its right neighbour, which combines it \
                 with its own."
            }
            _ if combines => {
                "every rank sends the chunk it just combined to its right neighbour, which combines \
                 it with its own."
            }
            Collective::AllReduce { .. } if step.at == step.of / 2 => {
                "every rank sends the chunk that it finished to its right neighbour, which keeps it."
            }
            Collective::AllGather if step.at == 0 => {
                "every rank sends its own part to its right neighbour."
            }
            _ => "every rank passes on to its right neighbour what it just received from its left.",
        };
        text.to_owned()
    }

    fn is_rotation(&self, _call: Call) -> bool {
        true
    }

    fn keeps_all_ranks_busy(&self) -> bool {
        true
    }
}

impl Explain for Ring {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllToAll => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, "n(n − 1)/2", Holds::Always),
                idea: "Every rank sends all its parts to its right neighbour, which keeps its own \
                    and passes the others on.",
                used_by: "Networks without switches, where only neighbours are connected.",
                cost: "Parts travel n/2 hops on average, so n/2 times the bytes of the direct \
                    exchange pass through every port.",
            },
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new("2(n − 1)", Formula::RING_VOLUME, Holds::Always),
                idea: "Every rank passes a chunk to its right neighbour and combines what comes \
                    from the left; after n − 1 steps each chunk is finished somewhere, and another \
                    n − 1 pass them on.",
                used_by: "NCCL's choice for large tensors, and gloo's for every size. NCCL runs \
                    several rings at once, one a channel.",
                cost: "No algorithm sends less: each rank sends just under twice its tensor, \
                    however many ranks there are. But 2(n − 1) messages follow one another, so \
                    small tensors on many ranks are slow.",
            },
            Collective::AllGather => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Every rank passes on to the right what it got from the left, until all \
                    parts have been everywhere.",
                used_by: "NCCL's and gloo's all_gather, MPICH's for long messages; FSDP's \
                    parameters travel this way.",
                cost: "Every rank must receive n − 1 parts, and gets them without a pause. The \
                    n − 1 latencies in a row are what PAT and Bruck avoid.",
            },
            _ => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "A chunk goes once around the ring and is combined with every rank's own on \
                    its way; it ends where it belongs.",
                used_by: "NCCL's reduce_scatter; FSDP's gradients travel this way. gloo has none: \
                    PyTorch makes an all_reduce and throws the rest away.",
                cost: "Each rank sends n − 1 parts and no part twice, which is the least possible; \
                    the latencies are n − 1 in a row.",
            },
        }
    }
}

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
pub(super) fn minus_mod(a: u32, b: u32, n: u32) -> u32 {
    // The simulator asks this several times a message, and a division takes longer than two comparisons.
    let b = if b < n { b } else { b - n };
    if b <= a { a - b } else { n - (b - a) }
}

/// `(a + 1) mod n` for `a < n`.
fn next_mod(a: u32, n: u32) -> u32 {
    if a + 1 == n { 0 } else { a + 1 }
}

fn neighbours(n: u32, rank: u32) -> (GroupRank, GroupRank) {
    (GroupRank(minus_mod(rank, 1, n)), GroupRank(next_mod(rank, n)))
}

/// n - 1 steps of reduce-scatter, then n - 1 of all-gather, over n chunks in place. After the
/// first half, rank r holds the finished chunk r + 1.
fn all_reduce(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let (previous, next) = neighbours(n, rank);
    let half = n - 1;
    let chunk = |chunk| Slice::one(Buffer::Output, chunk);
    if step < half {
        let into = chunk(minus_mod(rank, step + 1, n));
        let from = chunk(minus_mod(rank, step, n));
        let receive = Action::ReceiveReduce { peer: previous, local: into, into };
        actions.extend([Action::Send { peer: next, from }, receive]);
    } else {
        let step = step - half;
        let from = chunk(minus_mod(next_mod(rank, n), step, n));
        let receive = Action::Receive { peer: previous, into: chunk(minus_mod(rank, step, n)) };
        actions.extend([Action::Send { peer: next, from }, receive]);
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
    // The parts from the step before: the first is this rank's, the others go on.
    if step > 1 {
        let from = place(step - 1, 0..1);
        actions.push(Action::Copy { from, into: output(minus_mod(rank, step - 1, n)) });
    }
    if step < n {
        let skip = u32::from(step > 1);
        let parts = n - step;
        actions.push(Action::Send { peer: next, from: place(step - 1, skip..skip + parts) });
        actions.push(Action::Receive { peer: previous, into: place(step, 0..parts) });
    }
}

/// n - 1 steps; in step s a rank passes on the part that it got in step s - 1.
fn all_gather(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let (previous, next) = neighbours(n, rank);
    let own = Slice::one(Buffer::Input, 0);
    if step == 0 {
        actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, rank) });
    }
    if n > 1 {
        let from =
            if step == 0 { own } else { Slice::one(Buffer::Output, minus_mod(rank, step, n)) };
        let into = Slice::one(Buffer::Output, minus_mod(rank, step + 1, n));
        actions.push(Action::Send { peer: next, from });
        actions.push(Action::Receive { peer: previous, into });
    }
}

/// n - 1 steps. The input is not written: partial sums alternate between two scratch chunks, so that a step
/// never writes a chunk that it still sends.
fn reduce_scatter(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let result = Slice::one(Buffer::Output, 0);
    if n == 1 {
        actions.push(Action::Copy { from: Slice::one(Buffer::Input, 0), into: result });
        return;
    }
    let (previous, next) = neighbours(n, rank);
    let from = match step {
        0 => Slice::one(Buffer::Input, minus_mod(rank, 1, n)),
        _ => Slice::one(Buffer::Scratch, (step - 1) % 2),
    };
    let local = Slice::one(Buffer::Input, minus_mod(rank, step + 2, n));
    let into = if step + 2 == n { result } else { Slice::one(Buffer::Scratch, step % 2) };
    actions.push(Action::Send { peer: next, from });
    actions.push(Action::ReceiveReduce { peer: previous, local, into });
}
