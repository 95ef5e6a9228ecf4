//! The fabric of a job on a named cluster, and how busy its links are over time.

use serde::{Deserialize, Serialize};

/// The fabric under a mesh: its links, and how busy each is while the collective goes along one
/// dimension after the other, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricAccount {
    /// The cluster's title.
    pub title: String,
    /// Ranks of a node.
    pub ranks_per_node: u32,
    /// Nodes of the job.
    pub nodes: u32,
    /// The links inside a node, in words: `NVLink switch`.
    pub inside: String,
    /// The network between nodes, in words; absent where there is one node.
    pub network: Option<String>,
    /// Nodes of a leaf switch, where leaves are modelled.
    pub nodes_per_leaf: Option<u32>,
    /// Networks of their own over which each NIC spreads its bytes.
    pub planes: u32,
    /// The links.
    pub links: Vec<FabricPart>,
    /// Stretches of time in which no load changes, one after the other.
    pub stretches: Vec<LoadStretch>,
}

/// A link of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FabricPart {
    /// The links of a rank's GPU to the others of its domain.
    Gpu {
        /// The rank.
        rank: u32,
    },
    /// A NIC.
    Nic {
        /// Its node.
        node: u32,
        /// Its rail: its number in the node.
        rail: u32,
    },
    /// The uplinks of a leaf switch.
    Leaf {
        /// The leaf: the nodes below it.
        leaf: u32,
        /// The plane that the switch is in.
        plane: u32,
    },
}

/// A stretch of time in which no load changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadStretch {
    /// The index of the dimension along which the collective goes.
    pub dim: u32,
    /// Its beginning, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// Per link, in the order of [`FabricAccount::links`], how busy it is in thousandths.
    pub loads: Vec<u16>,
}
