//! The machine that a plan is simulated on: links, or a named cluster.

use arrayvec::ArrayString;
use lockstep_sim::Topology;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A cluster's name as an address has it; the engine says whether there is one.
pub type ClusterName = ArrayString<40>;

/// A fault of a cluster's fabric as the command line writes it, `link:rank=5,rate=0.5`; empty for none. The engine says
/// whether it is one.
pub type FabricFaultText = ArrayString<48>;

/// The machine that a plan is simulated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Machine {
    /// Messages over links.
    Links(Topology),
    /// A named cluster, on which calls take what NCCL takes there.
    Cluster {
        /// Its name or an alias.
        name: ClusterName,
        /// Ranks of a node; 0 for all GPUs of a node.
        ranks_per_node: u32,
        /// The slow or broken part of its fabric.
        fault: FabricFaultText,
    },
}

impl Machine {
    /// A named cluster of which nothing is slow or down, with so many ranks on each node; 0 for all GPUs of a node.
    pub fn on_cluster(name: ClusterName, ranks_per_node: u32) -> Machine {
        Machine::Cluster { name, ranks_per_node, fault: FabricFaultText::default() }
    }

    /// Ranks of a node; 0 where it does not say.
    pub fn ranks_per_node(&self) -> u32 {
        match self {
            Machine::Links(topology) => topology.ranks_per_node(),
            Machine::Cluster { ranks_per_node, .. } => *ranks_per_node,
        }
    }

    /// The links of its messages; on a cluster, the usual ones of nodes.
    pub fn links(&self) -> Topology {
        match self {
            Machine::Links(topology) => *topology,
            Machine::Cluster { ranks_per_node, .. } => Topology::of_ranks_per_node(*ranks_per_node),
        }
    }

    /// The name of the cluster that it is.
    pub fn cluster(&self) -> Option<ClusterName> {
        match self {
            Machine::Links(_) => None,
            Machine::Cluster { name, .. } => Some(*name),
        }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::Links(Topology::default())
    }
}

impl From<Topology> for Machine {
    fn from(topology: Topology) -> Machine {
        Machine::Links(topology)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Links(topology) => write!(f, "{topology}"),
            Machine::Cluster { name, ranks_per_node, fault } => {
                f.write_str(name)?;
                if *ranks_per_node > 0 {
                    write!(f, ", {ranks_per_node} ranks on each node")?;
                }
                match fault.is_empty() {
                    true => Ok(()),
                    false => write!(f, ", with {fault}"),
                }
            }
        }
    }
}

/// A cluster that ships, as a form lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnownCluster {
    /// Its name.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// A title for people.
    pub title: String,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// True if measurements of such machines back any of its times.
    pub measured: bool,
}

impl KnownCluster {
    /// The one of this name, else of this alias; case and punctuation do not count.
    pub fn called<'k>(known: &'k [KnownCluster], name: &str) -> Option<&'k KnownCluster> {
        let plain = |name: &str| -> String {
            name.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect()
        };
        let wanted = plain(name);
        let named = known.iter().find(|cluster| plain(&cluster.name) == wanted);
        let aliased =
            |cluster: &&KnownCluster| cluster.aliases.iter().any(|it| plain(it) == wanted);
        named.or_else(|| known.iter().find(aliased))
    }
}
