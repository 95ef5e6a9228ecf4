//! Direct schedules: partners talk without relays, as NCCL's grouped send/recv does for gather,
//! scatter and all_to_all (`src/enqueue.cc`, `ncclFuncAlltoAll`).

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds, right};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// No relays.
pub(super) struct Direct;

impl Family for Direct {
    fn carries_out(&self, collective: Collective) -> bool {
        !matches!(collective, Collective::AllReduce { .. })
    }

    /// One step, except where a rank must add up what several send: then one sender a step, so that
    /// the order of the additions is fixed.
    fn steps(&self, call: Call) -> u32 {
        let n = call.size;
        match call.collective {
            Collective::Reduce { .. } => n - 1,
            Collective::ReduceScatter { .. } => (n - 1).max(1),
            Collective::Broadcast { .. } => u32::from(n > 1),
            // Rank 0 hears from one rank after the other, then answers all.
            Collective::Barrier | Collective::MonitoredBarrier { .. } => n,
            _ => 1,
        }
    }

    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        u32::from(call.collective.is_barrier())
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call, participant, step, list);
    }

    fn is_rotation(&self, call: Call) -> bool {
        matches!(
            call.collective,
            Collective::AllToAll | Collective::AllGather | Collective::ReduceScatter { .. }
        )
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        match call.collective {
            Collective::Broadcast { root } => {
                format!("rank {root} sends its tensor to every other rank.")
            }
            Collective::Scatter { root } => format!("rank {root} sends every rank its part."),
            Collective::Gather { root } => format!("every rank sends its tensor to rank {root}."),
            Collective::Reduce { root, .. } => {
                let sender = (root.0 + step.at + 1) % call.size.max(1);
                format!(
                    "rank {sender} sends its tensor to rank {root}, which combines it with its \
                     own; one sender a step keeps the order of additions fixed."
                )
            }
            Collective::ReduceScatter { .. } => {
                let right = right(u64::from(step.at) + 1);
                format!("every rank sends {right} its part, which that one combines.")
            }
            Collective::AllToAll => {
                "every rank sends every other rank its part, all at once.".to_owned()
            }
            _ => "every rank sends its tensor to every other rank, all at once.".to_owned(),
        }
    }
}

impl Explain for Direct {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Barrier => Explained {
                formula: Formula::new("2", "0", Holds::Always).in_rounds("n", Holds::Always),
                idea: "Everybody tells rank 0 that it has come, and rank 0 answers everybody.",
                used_by: "What monitored_barrier does, because rank 0 then knows who is missing.",
                cost: "Two latencies, but rank 0 handles 2(n − 1) messages.",
            },
            Collective::MonitoredBarrier { .. } => Explained {
                formula: Formula::new("2", "0", Holds::Always).in_rounds("n", Holds::Always),
                idea: "Rank 0 hears from every other rank in turn, then answers each of them.",
                used_by: "torch.distributed.monitored_barrier on gloo: to find who is missing. \
                    Rank 0 waits for one rank after the other, so it can name the first that has \
                    not come.",
                cost: "Two latencies where messages cost nothing; on a large job rank 0's n − 1 \
                    messages each way are what it waits for.",
            },
            Collective::AllGather => Explained {
                formula: Formula::new("1", "2n − 3", Holds::Always),
                idea: "Every rank sends its tensor to every other at once.",
                used_by: "For small tensors inside a node with all-to-all links; what a naive \
                    implementation does.",
                cost: "A single latency, but n − 1 messages leave every port and arrive at every \
                    port at the same time, and wait for each other at both ends.",
            },
            Collective::ReduceScatter { .. } => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "In step s every rank sends the rank s places to its right that one's part, \
                    which adds it: one at a time, so that the order of the additions is fixed.",
                used_by: "The first half of two-shot all_reduce kernels inside a node.",
                cost: "The least bytes, n − 1 parts, and no neighbour is special; the same time as \
                    a ring where every pair of ranks is alike, and better where links between all \
                    pairs exist.",
            },
            Collective::AllToAll => Explained {
                formula: Formula::new("1", "2n − 3", Holds::Always),
                idea: "Every rank sends every other rank its part, all at once.",
                used_by: "What NCCL does (grouped ncclSend and ncclRecv) and gloo too; MPICH for \
                    middle sizes. Mixture-of-experts layers live on it.",
                cost: "A single latency. Every rank begins with its own neighbour; but ports here \
                    are given to messages in the order in which they are posted, all of one rank's \
                    before the next one's, so that some wait where pairwise exchange would not.",
            },
            Collective::Reduce { .. } => Explained {
                formula: Formula::new("1", Formula::ALL_BUT_ONE, Holds::Always)
                    .in_rounds(Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Every rank sends its tensor to the root, which takes and adds them one \
                    after the other: a sender a round.",
                used_by: "Small groups only: parameter servers of old did it.",
                cost: "One latency, and n − 1 whole tensors through the root's one port: it does \
                    not grow with the job.",
            },
            Collective::Gather { .. } => Explained {
                formula: Formula::new("1", Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Every rank sends its part to the root.",
                used_by: "What gloo does, and PyTorch on NCCL (a group of sends and receives).",
                cost: "The root must receive n − 1 parts whatever one does; this takes no longer \
                    than that and one latency.",
            },
            Collective::Scatter { .. } => Explained {
                formula: Formula::new("1", Formula::ALL_BUT_ONE, Holds::Always),
                idea: "The root sends every rank its part.",
                used_by: "What gloo does, and PyTorch on NCCL (a group of sends and receives).",
                cost: "The root must send n − 1 parts whatever one does; this takes no longer than \
                    that and one latency.",
            },
            _ => Explained {
                formula: Formula::new("1", Formula::ALL_BUT_ONE, Holds::Always),
                idea: "The root sends the tensor to every other rank.",
                used_by: "Small groups, or networks that copy packets on their way.",
                cost: "One latency, but the root's port sends n − 1 whole tensors while all others \
                    are idle.",
            },
        }
    }
}

fn actions(call: Call, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (collective, n) = (call.collective, call.size);
    let input = |chunk| Slice::one(Buffer::Input, chunk);
    let output = |chunk| Slice::one(Buffer::Output, chunk);
    let others = || (1..n).map(|i| GroupRank(ahead(rank.0, i, n)));
    match collective {
        Collective::Broadcast { root } if rank == root => {
            actions.extend(others().map(|peer| Action::Send { peer, from: output(0) }));
        }
        Collective::Broadcast { root } => {
            actions.push(Action::Receive { peer: root, into: output(0) });
        }
        Collective::Reduce { root, .. } => {
            let peer = GroupRank(ahead(root.0, step + 1, n));
            let whole = output(0);
            if rank == root {
                actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
            } else if rank == peer {
                actions.push(Action::Send { peer: root, from: whole });
            }
        }
        Collective::Gather { root } if rank == root => {
            actions.push(Action::Copy { from: input(0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::Gather { root } => {
            actions.push(Action::Send { peer: root, from: input(0) });
        }
        Collective::Scatter { root } if rank == root => {
            actions.push(Action::Copy { from: input(rank.0), into: output(0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(peer.0) }));
        }
        Collective::Scatter { root } => {
            actions.push(Action::Receive { peer: root, into: output(0) });
        }
        Collective::AllToAll => {
            actions.push(Action::Copy { from: input(rank.0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(peer.0) }));
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::AllGather => {
            actions.push(Action::Copy { from: input(0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(0) }));
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::ReduceScatter { .. } if n == 1 => {
            actions.push(Action::Copy { from: input(0), into: output(0) });
        }
        Collective::ReduceScatter { .. } => {
            let to = GroupRank(ahead(rank.0, step + 1, n));
            let peer = GroupRank(ahead(rank.0, n - step - 1, n));
            let local = if step == 0 { input(rank.0) } else { output(0) };
            actions.push(Action::Send { peer: to, from: input(to.0) });
            actions.push(Action::ReceiveReduce { peer, local, into: output(0) });
        }
        Collective::Barrier | Collective::MonitoredBarrier { .. } => {
            monitored_barrier(n, rank, step, actions);
        }
        Collective::AllReduce { .. } => {}
    }
}

/// Rank 0 hears from one rank after the other, then answers all of them
/// (`ProcessGroupGloo::monitoredBarrier`, which receives in rank order too).
fn monitored_barrier(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (own, heard) = (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Scratch, 0));
    let first = GroupRank(0);
    match (rank == first, step + 1 < n) {
        (true, true) => {
            let local = if step == 0 { own } else { heard };
            actions.push(Action::ReceiveReduce { peer: GroupRank(step + 1), local, into: heard });
        }
        (true, false) if n == 1 => actions.push(Action::Copy { from: own, into: heard }),
        (true, false) => {
            let others = (1..n).map(|peer| Action::Send { peer: GroupRank(peer), from: heard });
            actions.extend(others);
        }
        (false, true) if rank.0 == step + 1 => {
            actions.push(Action::Send { peer: first, from: own });
        }
        (false, true) => {}
        (false, false) => actions.push(Action::Receive { peer: first, into: heard }),
    }
}

/// `(rank + by) mod n`.
pub(super) fn ahead(rank: u32, by: u32, n: u32) -> u32 {
    ((u64::from(rank) + u64::from(by)) % u64::from(n)) as u32
}
