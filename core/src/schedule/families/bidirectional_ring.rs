//! The bidirectional ring: two rings, mirrored, each for half of every chunk. It uses both directions
//! of full-duplex links (De Sensi, Bonato, Saam, Hoefler 2024, "Swing", on rings).

use super::ring::{self, Ring};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Two rings in opposite directions.
pub(super) struct BidirectionalRing;

impl Family for BidirectionalRing {
    fn carries_out(&self, collective: Collective) -> bool {
        Ring.carries_out(collective) && collective != Collective::AllToAll
    }

    fn steps(&self, call: Call) -> u32 {
        Ring.steps(call)
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        2 * Ring.chunks_per_part(call)
    }

    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        2 * Ring.scratch(call, participant)
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        bidirectional(call.collective, call.size, participant, step, list);
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        Ring.phase(call, step)
    }

    fn is_rotation(&self, _call: Call) -> bool {
        true
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let text = match call.collective {
            Collective::AllGather => {
                "every rank sends halves of parts to both neighbours, which keep them."
            }
            Collective::AllReduce { .. } if !step.is_in_first_half() => {
                "every rank sends finished halves of chunks to both neighbours, which keep them."
            }
            _ => "every rank sends half a chunk to each neighbour, which combines it with its own.",
        };
        text.to_owned()
    }
}

impl Explain for BidirectionalRing {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllGather | Collective::ReduceScatter { .. } => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, "3(n − 1)/2", Holds::AtMost)
                    .in_rounds(Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Two mirrored rings, each for half of every part.",
                used_by: "Machines whose links carry both directions at once, such as TPU tori.",
                cost: "As the ring's in one node, where a rank has one port here; with a port in \
                    each direction, half the bytes' time. In several nodes each direction has a \
                    slow link of its own between two nodes, and half of the ring's bytes cross \
                    it.",
            },
            _ => Explained {
                formula: Formula::new(
                    "2(n − 1)",
                    "5(n − 1)/(2n)",
                    Holds::About("how the messages of both directions take turns at a port"),
                )
                .in_rounds("2(n − 1)", Holds::Always),
                idea: "Two rings in opposite directions, each for half of the data.",
                used_by: "Where a link each way would be idle otherwise, as on a TPU's torus or on \
                    PCIe pairs.",
                cost: "Half of a ring's time when each direction has a port of its own. Here both \
                    directions share a rank's one port, so in one node nothing is won; in several \
                    nodes each direction has a slow link of its own between two nodes, and half of \
                    the ring's bytes cross it.",
            },
        }
    }
}

/// Both directions at once: the half of chunk c that goes to the right is chunk 2c, the half that
/// goes to the left 2c + 1. The two mirrored rings of all_reduce are at chunk c in the same step if
/// n is 2, and then one message carries both halves.
fn bidirectional(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    list: &mut Vec<Action>,
) {
    let begin = list.len();
    ring::actions(collective, n, rank, step, list);
    if n == 2 && collective.in_place() {
        let both = |slice: Slice| Slice { chunk: 2 * slice.chunk, chunks: 2, ..slice };
        list[begin..].iter_mut().for_each(|action| *action = action.map(both));
        return;
    }
    let mirror = |of: u32| ring::minus_mod(0, of, n);
    let middle = list.len();
    ring::actions(collective, n, GroupRank(mirror(rank.0)), step, list);
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
