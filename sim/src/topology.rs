//! Topologies: what a message between two ranks costs, by latency and bandwidth (the alpha-beta
//! model; Hockney 1994).

use crate::shared_memory::SharedMemory;
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Picoseconds in a second.
const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// A connection between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// From the first byte's departure to its arrival, in picoseconds.
    pub latency_ps: u64,
    /// Bytes a second; 0 counts as 1.
    pub bytes_per_second: u64,
}

impl Link {
    /// 5 µs and 25 GB/s: about one rank's share of an InfiniBand HDR or NVLink bridge machine, and
    /// round enough to reckon with.
    pub const DEFAULT: Link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };

    /// NVLink of an eight-GPU machine of 2023, as one rank sees it; round enough to reckon with.
    pub const NVLINK: Link = Link { latency_ps: 2_000_000, bytes_per_second: 300_000_000_000 };

    /// How long `bytes` occupy the link, in picoseconds.
    pub fn transmit_ps(self, bytes: u64) -> u64 {
        transmit_ps(bytes, self.bytes_per_second)
    }
}

/// How long `bytes` take at so many a second, in picoseconds; 0 counts as 1.
pub(crate) fn transmit_ps(bytes: u64, bytes_per_second: u64) -> u64 {
    let rate = bytes_per_second.max(1);
    match bytes.checked_mul(PS_PER_SECOND) {
        Some(product) => product / rate,
        None => {
            let exact = u128::from(bytes) * u128::from(PS_PER_SECOND) / u128::from(rate);
            u64::try_from(exact).unwrap_or(u64::MAX)
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (latency, rate) = (self.latency_ps, self.bytes_per_second);
        match latency {
            0..1_000_000 => write!(f, "latency {} ns", latency / 1000)?,
            _ => write!(f, "latency {}.{} µs", latency / 1_000_000, latency / 100_000 % 10)?,
        }
        match rate {
            0..1_000_000_000 => write!(f, ", {}.{} MB/s", rate / 1_000_000, rate / 100_000 % 10),
            _ => write!(f, ", {}.{} GB/s", rate / 1_000_000_000, rate / 100_000_000 % 10),
        }
    }
}

/// Which link connects which ranks.
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

    /// Whether two ranks are in different nodes; never when there are none.
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
