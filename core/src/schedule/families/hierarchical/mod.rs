//! Hierarchical schedules: inside the nodes, then across them, then inside again, so that what
//! crosses the slow network between nodes is as little as can be (Zhu et al. 2009, "Hierarchical
//! collectives in MPICH2"; Jia et al. 2018, "Highly scalable deep learning training system with
//! mixed-precision", on hierarchical all-reduce; Horovod's `NCCLHierarchicalAllreduce`).
//!
//! - Nodes of equal size are *sharded*: rank l of every node takes shard l across the nodes, so that
//!   all of a node's network cards carry the same.
//! - If the last node has fewer ranks, each node has a *leader* that speaks for it.
//!
//! all_to_all needs no leader: see [`exchange`]; gather and scatter always have one: [`rooted`].

mod barrier;
mod exchange;
mod in_place;
mod member;
mod parts;
mod rooted;

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::Action;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use member::Member;

/// Inside the nodes, across them, inside again.
pub(super) struct Hierarchical;

impl Family for Hierarchical {
    fn carries_out(&self, collective: Collective) -> bool {
        !matches!(collective, Collective::MonitoredBarrier { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        let nodes = call.nodes();
        match call.collective {
            Collective::AllReduce { .. } => in_place::all_reduce_steps(nodes),
            Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                in_place::rooted_steps(nodes)
            }
            Collective::AllGather => parts::all_gather_steps(nodes),
            Collective::ReduceScatter { .. } => parts::reduce_scatter_steps(nodes),
            Collective::AllToAll => exchange::STEPS,
            Collective::Barrier => barrier::steps(nodes),
            Collective::Gather { .. } | Collective::Scatter { .. } => rooted::steps(nodes),
            Collective::MonitoredBarrier { .. } => 0,
        }
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        let nodes = call.nodes();
        match (call.collective, nodes.are_equal()) {
            (Collective::AllReduce { .. }, true) => nodes.size,
            (Collective::AllReduce { .. }, false) => nodes.count(),
            (Collective::Broadcast { .. } | Collective::Reduce { .. }, true) => nodes.per_node,
            _ => 1,
        }
    }

    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        let nodes = call.nodes();
        match call.collective {
            Collective::ReduceScatter { .. } => parts::reduce_scatter_scratch(nodes),
            Collective::AllToAll => exchange::scratch(nodes, participant),
            Collective::Barrier => barrier::scratch(nodes),
            Collective::Gather { root } | Collective::Scatter { root } => {
                rooted::scratch(nodes, root, participant)
            }
            _ => 0,
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let me = Member::of(call.nodes(), participant.0);
        match call.collective {
            Collective::AllReduce { .. } => in_place::all_reduce(me, step, actions),
            Collective::Broadcast { root } => in_place::broadcast(me, root.0, step, actions),
            Collective::Reduce { root, .. } => in_place::reduce(me, root.0, step, actions),
            Collective::AllGather => parts::all_gather(me, step, actions),
            Collective::ReduceScatter { .. } => parts::reduce_scatter(me, step, actions),
            Collective::AllToAll => exchange::actions(me, step, actions),
            Collective::Barrier => barrier::actions(me, step, actions),
            Collective::Gather { root } => rooted::gather(me, root.0, step, actions),
            Collective::Scatter { root } => rooted::scatter(me, root.0, step, actions),
            Collective::MonitoredBarrier { .. } => {}
        }
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let text = match call.collective {
            Collective::Gather { .. } if step.at == 0 => {
                "the ranks of each node send their parts to its leader; the root leads its own."
            }
            Collective::Gather { .. } => {
                "each leader sends the root the parts of its node in one message."
            }
            Collective::Scatter { .. } if step.is_last() => {
                "each leader sends the ranks of its node their parts."
            }
            Collective::Scatter { .. } => {
                "the root sends each leader the parts of its node in one message."
            }
            _ => "chunks move inside the nodes first, then across them, then inside again.",
        };
        text.to_owned()
    }
}

impl Explain for Hierarchical {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => Explained {
                formula: Formula::new("1", Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Each node's leader collects or hands out its neighbours' parts, and \
                    exchanges them with the root in one message.",
                used_by: "MPI libraries on many-core nodes.",
                cost: "The root exchanges m − 1 messages with other nodes instead of one with each \
                    of their ranks; the bytes through its port stay.",
            },
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new("2(n − 1)", Formula::RING_VOLUME, Holds::Always),
                idea: "A reduce-scatter inside each node, an all_reduce of each shard across the \
                    nodes, and an all-gather inside.",
                used_by: "Horovod and others where the network between nodes is much slower than \
                    the one inside.",
                cost: "In m nodes of k ranks, 2(m − 1)/m of a k-th of the tensor crosses the \
                    network from each rank.",
            },
            Collective::AllGather | Collective::ReduceScatter { .. } => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "Across the nodes among the ranks with the same place, and inside the nodes.",
                used_by: "Where the network between nodes is much slower than the one inside.",
                cost: "Each part crosses the network once a node, and all ranks' network cards \
                    share it.",
            },
            Collective::AllToAll => Explained {
                formula: Formula::new("1", "2n − 3", Holds::Always),
                idea: "Inside the node each rank collects what goes to one rail, and sends it to \
                    each receiver in one message.",
                used_by: "Mixture-of-experts layers over many nodes (Tutel, DeepSpeed); NCCL's PXN \
                    does the same.",
                cost: "In m nodes of k ranks a rank sends k + m − 2 messages instead of n − 1, but \
                    most bytes twice.",
            },
            Collective::Barrier => Explained {
                formula: Formula::new("2⌈log₂ n⌉", "0", Holds::AtMost),
                idea: "Up a tree in each node, a dissemination among the nodes, and down the \
                    trees.",
                used_by: "MPI libraries on many-core nodes.",
                cost: "Only ⌈log₂ m⌉ of the latencies are those of the network between the m \
                    nodes.",
            },
            _ => Explained {
                formula: Formula::new(
                    "n",
                    Formula::RING_VOLUME,
                    Holds::About("where handing out the shards and gathering them overlap or wait"),
                )
                .in_rounds("n", Holds::Always),
                idea: "The root's node cuts the tensor into shards, each of which takes a tree \
                    across the nodes.",
                used_by: "Where the network between nodes is much slower than the one inside.",
                cost: "In nodes of k ranks, each rank's network card carries a k-th of the tensor.",
            },
        }
    }
}
