//! gloo's ring, whose sums PyTorch's CPU jobs get bit for bit: data goes to the *previous* rank,
//! and chunk c ends on rank c as `x[c] + (x[c+1] + (… + x[c-1]))` (gloo's `gloo/allreduce.cc`, `ring`,
//! and `gloo/reduce.cc`, as PyTorch 2.7.1 calls them). all_reduce passes the finished chunks on
//! around the ring; reduce sends them to the root.
//!
//! Chunks are of whole segments of at most 1 MiB, so their lengths depend on the element's bytes
//! and the last ones may be short or empty; the two calls count segments differently. The ways of
//! the segments of a chunk are the same, so here they travel together.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// gloo's ring.
pub(super) struct GlooRing;

impl Family for GlooRing {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. } | Collective::Reduce { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        match call.collective {
            _ if call.size == 1 => 0,
            Collective::AllReduce { .. } => 2 * (call.size - 1),
            _ => call.size,
        }
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        call.size
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.collective, call.size, participant, step, list);
    }

    /// Its chunks are its own.
    fn can_be_sliced(&self) -> bool {
        false
    }

    fn chunk_elements(&self, call: Call, count: u64, element_bytes: u64) -> Option<u64> {
        Some(chunk_elements(call.collective, call.size, count, element_bytes))
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let text = match call.collective.root() {
            _ if step.at + 1 < call.size => {
                "every rank sends a chunk to its left neighbour, which adds it to its own."
            }
            Some(_) => "every rank sends the chunk that it finished to the root.",
            None => "every rank passes a finished chunk on to its left neighbour, which keeps it.",
        };
        text.to_owned()
    }
}

impl Explain for GlooRing {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Reduce { .. } => Explained {
                formula: Formula::new(
                    "n",
                    Formula::RING_VOLUME,
                    Holds::About(
                        "that chunks are whole segments, so that some are larger than S/n",
                    ),
                )
                .in_rounds("n", Holds::Always),
                idea: "gloo's own ring: a reduce-scatter in which chunks go to the previous rank, \
                    then every rank sends its chunk to the root.",
                used_by: "gloo, always: PyTorch's reduce on CPUs. The order of the additions, and \
                    so every bit of the sums, is gloo's.",
                cost: "Two tensors' worth of bytes whatever n is, at a ring's latencies. Chunks \
                    are whole segments of up to 1 MiB, so that some may be empty.",
            },
            _ => Explained {
                formula: Formula::new(
                    "2(n − 1)",
                    Formula::RING_VOLUME,
                    Holds::About(
                        "that chunks are whole segments, so that some are larger than S/n",
                    ),
                )
                .in_rounds("2(n − 1)", Holds::Always),
                idea: "gloo's own ring: chunks go to the previous rank, and each begins where it \
                    will end.",
                used_by: "gloo, always: PyTorch's all_reduce on CPUs. The order of the additions, \
                    and so every bit of the sums, is gloo's.",
                cost: "As the ring's. Chunks are whole segments of up to 1 MiB, so that small \
                    tensors leave some ranks' chunks empty.",
            },
        }
    }
}

/// gloo's `kMaxSegmentSize`, in bytes.
const MAX_SEGMENT_BYTES: u64 = 1 << 20;

/// Elements of each of the n chunks of `count` elements, but for the last ones.
fn chunk_elements(collective: Collective, n: u32, count: u64, bytes: u64) -> u64 {
    let (ranks, bytes) = (u64::from(n), bytes.max(1));
    let all = count.saturating_mul(bytes);
    let most = bytes * (MAX_SEGMENT_BYTES / bytes).max(1);
    // Two segments a rank at least, so that one can be sent while the other is reduced.
    let segments = |bytes: u64| {
        let segments = all.div_ceil(bytes.max(1)).max(2 * ranks);
        segments.next_multiple_of(ranks)
    };
    let (segments, segment_bytes) = match collective {
        Collective::AllReduce { .. } => {
            let segments = segments(most);
            (segments, all.div_ceil(segments).next_multiple_of(bytes))
        }
        _ => {
            let segment_bytes = all.div_ceil(2 * ranks).min(most).next_multiple_of(bytes);
            (segments(segment_bytes), segment_bytes)
        }
    };
    (segments / ranks).saturating_mul(segment_bytes / bytes)
}

fn actions(collective: Collective, n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let at = |ahead: u32| ((u64::from(rank.0) + u64::from(ahead)) % u64::from(n)) as u32;
    let chunk = |ahead: u32| Slice::one(Buffer::Output, at(ahead));
    let (to, peer) = (GroupRank(at(n - 1)), GroupRank(at(1)));
    if step + 1 < n {
        // Rank r begins with the chunk that it is the farthest from.
        let into = chunk(step + 2);
        actions.push(Action::Send { peer: to, from: chunk(step + 1) });
        actions.push(Action::ReceiveReduce { peer, local: into, into });
        return;
    }
    match collective.root() {
        None => {
            let passed = step + 1 - n;
            actions.push(Action::Send { peer: to, from: chunk(passed) });
            actions.push(Action::Receive { peer, into: chunk(passed + 1) });
        }
        Some(root) if rank == root => actions.extend((1..n).map(|ahead| {
            let peer = GroupRank(at(ahead));
            Action::Receive { peer, into: Slice::one(Buffer::Output, peer.0) }
        })),
        Some(root) => actions.push(Action::Send { peer: root, from: chunk(0) }),
    }
}
