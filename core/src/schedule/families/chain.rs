//! The pipelined chain: the root passes the tensor on segment by segment, and every rank passes a
//! segment on while it receives the next; a reduction runs the chain backwards (Pješivac-Grbović,
//! Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007, "Performance analysis of MPI collective
//! operations"; Open MPI's `ompi_coll_base_bcast_intra_pipeline`). With k segments it takes
//! n + k - 2 steps of 1/k of the tensor each. This is what NCCL calls the ring of its broadcast and
//! reduce (`src/device/broadcast.h`, `reduce.h`): nothing ever crosses the ring's last edge.
//!
//! Here is one segment's way; the segments are lanes (`lanes.rs`). Their best number grows
//! with the square root of the tensor's bytes; ours is NCCL's: one for every 512 KiB
//! ([`Schedule::sized`](crate::schedule::Schedule::sized)).

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, PIPELINE_CHUNK_BYTES, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A pipelined chain.
pub(super) struct Chain;

impl Family for Chain {
    fn carries_out(&self, collective: Collective) -> bool {
        collective.in_place()
    }

    fn steps(&self, call: Call) -> u32 {
        if let Some([there, back]) = call.there_and_back() {
            return self.steps(there) + self.steps(back);
        }
        call.size - 1
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        let (half, step) = call.half_at(step, |call| self.steps(call));
        actions(half, participant, step, list);
    }

    fn pipeline_chunk_bytes(&self) -> Option<u64> {
        Some(PIPELINE_CHUNK_BYTES)
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let (half, _) = call.half_at(step.at, |call| self.steps(call));
        let text = match half.collective.reduce_op().is_some() {
            true => {
                "every rank that got a segment adds its own and passes it on towards the root, \
                 while it receives the next."
            }
            false => {
                "every rank that got a segment passes it on down the chain, while it receives the \
                 next."
            }
        };
        text.to_owned()
    }
}

impl Explain for Chain {
    fn explained(&self, collective: Collective) -> Explained {
        let reduces = collective.reduce_op().is_some();
        match collective {
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new("(2n + k − 3)", "2(2n + k − 3)/k", Holds::AtMost)
                    .in_rounds("2n + k − 3", Holds::Always),
                idea: "Segments of 512 KiB are summed along a chain of ranks to rank 0, and passed \
                    back along it; a smaller tensor is one segment.",
                used_by: "NCCL, inside the nodes of its trees.",
                cost: "The bytes of two tensors once the pipeline is full, but latencies grow with \
                    n; near rank 0 both ways share the ports.",
            },
            _ => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, "(n + k − 2)/k", Holds::Always)
                    .in_rounds("n + k − 2", Holds::Always),
                idea: "The tensor is cut into segments of 512 KiB, as NCCL's chunks are, that \
                    follow each other from rank to rank; a smaller one is one segment.",
                used_by: if reduces {
                    "How NCCL reduces: its Ring is such a chain of slices that ends at the root."
                } else {
                    "How NCCL broadcasts: its Ring is such a chain of slices that begins at the \
                        root."
                },
                cost: "Every port is busy at once, so long messages cost little more than their \
                    own length; but the first segment takes n − 1 latencies to arrive.",
            },
        }
    }
}

fn actions(call: Call, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let Some(root) = call.collective.root() else { return };
    let (n, root, rank) = (u64::from(call.size), u64::from(root.0), u64::from(rank.0));
    let place = (rank + n - root) % n;
    let rank_at = |place: u64| GroupRank(((place + root) % n) as u32);
    let step = u64::from(step);
    let whole = Slice::one(Buffer::Output, 0);
    if call.collective.reduce_op().is_none() {
        if place == step {
            actions.push(Action::Send { peer: rank_at(place + 1), from: whole });
        } else if place == step + 1 {
            actions.push(Action::Receive { peer: rank_at(step), into: whole });
        }
        return;
    }
    // A reduction begins at the far end.
    let sender = n - 1 - step;
    if place == sender {
        actions.push(Action::Send { peer: rank_at(sender - 1), from: whole });
    } else if place + 1 == sender {
        let peer = rank_at(sender);
        actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
    }
}
