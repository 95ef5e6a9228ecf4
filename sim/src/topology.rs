//! Topologies: the cost of a message between two ranks, by latency and bandwidth (the alpha-beta model;
//! Hockney 1994).

use crate::link::Link;
use crate::shared_memory::SharedMemory;
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The links that connect the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// Every pair of ranks by the same link.
    Uniform(Link),
    /// Nodes of so many ranks each, in rank order.
    Nodes {
        /// Ranks a node; 0 counts as 1.
        ranks_per_node: u32,
        /// Between ranks of one node.
        inside: Link,
        /// Between nodes.
        across: Link,
    },
    /// Ranks of one machine that read each other's memory.
    SharedMemory(SharedMemory),
}

impl Topology {
    /// A hop to or from a switch: inside a node (an NVLink switch) or in the network between them.
    /// A message from rank to rank takes two, so each has half the latency of a link.
    pub(crate) fn hop_by_switch(&self, in_node: bool) -> Link {
        let link = match *self {
            Topology::Uniform(link) => link,
            Topology::SharedMemory(machine) => machine.as_link(),
            Topology::Nodes { inside, .. } if in_node => inside,
            Topology::Nodes { across, .. } => across,
        };
        Link { latency_ps: link.latency_ps / 2, ..link }
    }

    /// The link from one rank to another.
    pub fn link(&self, from: GlobalRank, to: GlobalRank) -> Link {
        match *self {
            Topology::Uniform(link) => link,
            Topology::SharedMemory(machine) => machine.as_link(),
            Topology::Nodes { inside, across, .. } => {
                if self.is_across(from, to) {
                    across
                } else {
                    inside
                }
            }
        }
    }
}

impl Topology {
    /// Nodes of so many ranks, with the default's link between them and NVLink inside.
    pub fn nodes(ranks_per_node: u32) -> Topology {
        Topology::Nodes { ranks_per_node, inside: Link::NVLINK, across: Link::DEFAULT }
    }

    /// The default for a plan of which `ranks_per_node` ranks share a node; 0 for no nodes, as in
    /// [`Plan::ranks_per_node`].
    ///
    /// [`Plan::ranks_per_node`]: lockstep_core::plan::Plan::ranks_per_node
    pub fn of_ranks_per_node(ranks_per_node: u32) -> Topology {
        match ranks_per_node {
            0 => Topology::default(),
            ranks => Topology::nodes(ranks),
        }
    }

    /// True if two ranks are in different nodes; always false if there are no nodes.
    pub fn is_across(&self, from: GlobalRank, to: GlobalRank) -> bool {
        match *self {
            Topology::Uniform(_) | Topology::SharedMemory(_) => false,
            Topology::Nodes { ranks_per_node, .. } => {
                let each = ranks_per_node.max(1);
                from.0 / each != to.0 / each
            }
        }
    }

    /// Ranks of a node; 0 when there are no nodes, as in [`Plan::ranks_per_node`].
    ///
    /// [`Plan::ranks_per_node`]: lockstep_core::plan::Plan::ranks_per_node
    pub fn ranks_per_node(&self) -> u32 {
        match self {
            Topology::Uniform(_) | Topology::SharedMemory(_) => 0,
            Topology::Nodes { ranks_per_node, .. } => (*ranks_per_node).max(1),
        }
    }
}

impl Default for Topology {
    /// Every pair by [`Link::DEFAULT`].
    fn default() -> Topology {
        Topology::Uniform(Link::DEFAULT)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Uniform(link) => write!(f, "{link}"),
            Topology::SharedMemory(machine) => write!(f, "{machine}"),
            Topology::Nodes { ranks_per_node, inside, across } => {
                write!(f, "nodes of {ranks_per_node}: inside {inside}; across {across}")
            }
        }
    }
}
