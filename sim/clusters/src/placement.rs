//! Where the ranks of a call sit: how many share an NVLink domain, and which NICs they have.

use crate::card::Card;
use crate::cluster::Cluster;
use crate::network::Network;

/// Who launches the calls; it bounds how fast small ones can follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launcher {
    /// Not said.
    #[default]
    Unknown,
    /// One process with a thread for all GPUs of a node (nccl-tests `-g 8`).
    OneProcess,
    /// A process for each GPU (nccl-tests under MPI).
    ProcessPerGpu,
    /// PyTorch, a process for each GPU.
    PyTorch,
}

/// Ranks of a call on a cluster, with everything their times depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The cluster's card.
    pub card: Card,
    /// The transport between domains; none if the ranks share one domain.
    pub network: Option<Network>,
    /// Ranks of the call.
    pub ranks: u32,
    /// Nodes as NCCL counts them: domains of NVLink or machines.
    pub domains: u32,
    /// Ranks of a domain.
    pub per_domain: u32,
    /// Line rate of the NICs that a domain's ranks use together, GB/s.
    pub net_gbps: f64,
    /// NICs that a domain's ranks use.
    pub nics: u32,
    /// Who launches the calls.
    pub launcher: Launcher,
}

/// Ranks that a cluster cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No nodes or no ranks.
    #[error("{what} must be at least 1")]
    Nothing {
        /// `--nodes` or `--ranks-per-node`.
        what: &'static str,
    },
    /// One rank alone communicates with nobody.
    #[error("one rank alone has nobody to communicate with: take 2 ranks or more")]
    Alone,
    /// More ranks a node than GPUs.
    #[error("{cluster} has {gpus} GPUs a node, not {asked}: say --ranks-per-node {gpus} or less")]
    TooManyPerNode {
        /// The cluster.
        cluster: String,
        /// Its GPUs a node.
        gpus: u32,
        /// The ranks asked for.
        asked: u32,
    },
    /// More nodes than anybody has.
    #[error("{nodes} nodes are more than the model goes to: say --nodes {MOST_NODES} or less")]
    TooManyNodes {
        /// The nodes asked for.
        nodes: u64,
    },
    /// Nodes without a network between them.
    #[error(
        "{cluster} is a single machine without a network, and {nodes} nodes need one: take a \
         cluster with NICs"
    )]
    NoNetwork {
        /// The cluster.
        cluster: String,
        /// The nodes asked for.
        nodes: u32,
    },
}

/// The most nodes of a call.
pub const MOST_NODES: u32 = 65_536;

impl Placement {
    /// `per_node` ranks on each of `nodes` nodes of `cluster`.
    ///
    /// # Errors
    /// If the cluster cannot hold them.
    pub fn new(
        cluster: &Cluster,
        card: &Card,
        network: Option<&Network>,
        nodes: u64,
        per_node: u32,
    ) -> Result<Self, PlacementError> {
        if nodes == 0 {
            return Err(PlacementError::Nothing { what: "--nodes" });
        }
        if per_node == 0 {
            return Err(PlacementError::Nothing { what: "--ranks-per-node" });
        }
        let nodes = u32::try_from(nodes)
            .ok()
            .filter(|nodes| *nodes <= MOST_NODES)
            .ok_or(PlacementError::TooManyNodes { nodes })?;
        let gpus = cluster.gpus_per_node;
        if per_node > gpus {
            let cluster = cluster.name.clone();
            return Err(PlacementError::TooManyPerNode { cluster, gpus, asked: per_node });
        }
        let ranks = nodes * per_node;
        if ranks < 2 {
            return Err(PlacementError::Alone);
        }
        // A rack's machines are one domain; the fewest domains that hold all, of equal size.
        let machines =
            cluster.domain_gpus.map_or(1, |gpus_of_domain| (gpus_of_domain / gpus).max(1));
        let domains = nodes.div_ceil(machines);
        let per_domain = ranks.div_ceil(domains);
        if domains > 1 && (network.is_none() || cluster.nics_per_node == 0) {
            return Err(PlacementError::NoNetwork { cluster: cluster.name.clone(), nodes });
        }
        let machines_used = nodes.div_ceil(domains);
        let nics = (cluster.nics_per_node * per_node / gpus).max(1) * machines_used;
        Ok(Self {
            card: card.clone(),
            network: network.filter(|_| domains > 1).cloned(),
            ranks,
            domains,
            per_domain,
            net_gbps: f64::from(nics) * cluster.nic_gbps / 8.0,
            nics,
            launcher: Launcher::Unknown,
        })
    }

    /// Levels of a binary tree over the domains, as NCCL counts them.
    #[must_use]
    pub fn tree_levels(&self) -> f64 {
        f64::from(self.domains.max(1).ilog2())
    }
}
