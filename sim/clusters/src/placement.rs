//! The placement of a call's ranks: how many share an NVLink domain, and which NICs they have.

use crate::card::Card;
use crate::cluster::Cluster;
use crate::network::Network;
use std::collections::BTreeMap;

/// The launcher of the calls; it bounds how fast small ones can follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launcher {
    /// A table that does not say it.
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
    /// Machines of the call.
    pub nodes: u32,
    /// Machines that form one domain of NVLink at most: a rack's.
    pub domain_nodes: u32,
    /// Line rate of the NICs that a domain's ranks use together, GB/s.
    pub net_gbps: f64,
    /// NICs that a domain's ranks use.
    pub nics: u32,
    /// Line rate of the NICs next to a rank, as its part of them, GB/s.
    pub rank_net_gbps: f64,
    /// The launcher of the calls.
    pub launcher: Launcher,
    /// The part of the links' rate inside a domain that is left; 1 without faults.
    pub inside_rate: f64,
    /// The part of the network's rate that is left; 1 without faults.
    pub outside_rate: f64,
    /// The parts of it that leaf switches pass on.
    pub uplinks: Uplinks,
}

/// The parts of a network's rate that the uplinks of leaf switches leave to a call alone; 1 where they carry
/// all that its nodes can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uplinks {
    /// To a call of which every rank sends to every other: what the fullest leaf sends out.
    pub all_to_all: f64,
    /// To a ring or a tree, which leaves a leaf once.
    pub passing: f64,
}

impl Uplinks {
    /// For a call whose nodes are numbered in rank order and use so many NICs each.
    fn of(cluster: &Cluster, nodes: impl Iterator<Item = u32> + Clone, nics: f64) -> Uplinks {
        let (Some(each), Some(times)) = (cluster.nodes_per_leaf, cluster.oversubscription) else {
            return Uplinks { all_to_all: 1.0, passing: 1.0 };
        };
        let mut leaves: BTreeMap<u32, u32> = BTreeMap::new();
        for node in nodes {
            *leaves.entry(node / each.max(1)).or_default() += 1;
        }
        let all = f64::from(leaves.values().sum::<u32>());
        let uplinks = f64::from(each.max(1)) * f64::from(cluster.nics_per_node.max(1)) / times;
        let part =
            |leaving: f64| if leaving * nics > uplinks { uplinks / (leaving * nics) } else { 1.0 };
        let of_leaf = |nodes: &u32| match f64::from(*nodes) {
            nodes if nodes >= all => [1.0, 1.0],
            nodes => [part(nodes * (all - nodes) / (all - 1.0)), part(1.0)],
        };
        let least = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a.min(c), b.min(d)];
        let [all_to_all, passing] = leaves.values().map(of_leaf).fold([1.0, 1.0], least);
        Uplinks { all_to_all, passing }
    }
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
pub(crate) const MOST_NODES: u32 = 65_536;

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
        let members = (0..nodes).map(|node| (node, per_node)).collect();
        let machines = cluster.machines_of_domain(nodes);
        Self::of_members(cluster, card, network, &members, machines, &BTreeMap::new())
    }

    /// The placement of a group with so many members on each node of a job, of which so many
    /// neighbouring nodes are one domain of NVLink.
    ///
    /// A ring passes every domain, so the domain with the fewest NICs bounds what leaves it, and the
    /// one with the most members what stays inside. `nics_down` says how many NICs of a node are
    /// down; those that are left carry what they can.
    ///
    /// # Errors
    /// If the group spans several domains and the cluster has no network, or has one member.
    pub(crate) fn of_members(
        cluster: &Cluster,
        card: &Card,
        network: Option<&Network>,
        members: &BTreeMap<u32, u32>,
        machines_of_domain: u32,
        nics_down: &BTreeMap<u32, u32>,
    ) -> Result<Self, PlacementError> {
        let gpus = cluster.gpus_per_node.max(1);
        let ranks = members.values().fold(0u32, |sum, members| sum.saturating_add(*members));
        if ranks < 2 {
            return Err(PlacementError::Alone);
        }
        // Per domain: its members, its NICs and its nodes.
        let mut domains: BTreeMap<u32, (u32, u32, u32)> = BTreeMap::new();
        for (node, members) in members {
            let wanted = (cluster.nics_per_node.saturating_mul(*members) / gpus).max(1);
            let down = nics_down.get(node).copied().unwrap_or(0);
            let nics = wanted.min(cluster.nics_per_node.saturating_sub(down));
            let domain = domains.entry(node / machines_of_domain.max(1)).or_default();
            *domain =
                (domain.0.saturating_add(*members), domain.1.saturating_add(nics), domain.2 + 1);
        }
        let nodes: u32 = members.len().try_into().unwrap_or(u32::MAX);
        let count: u32 = domains.len().try_into().unwrap_or(u32::MAX);
        if count > 1 && (network.is_none() || cluster.nics_per_node == 0) {
            return Err(PlacementError::NoNetwork { cluster: cluster.name.clone(), nodes });
        }
        // Whole nodes in a row leave the last domain emptier than the others only because nodes are counted off
        // from the first: a scheduler spreads them evenly, so it counts as full as the others.
        let ends = members.first_key_value().zip(members.last_key_value());
        let is_in_a_row = ends.is_some_and(|((first, of_first), (last, _))| {
            last - first + 1 == nodes && members.values().all(|members| members == of_first)
        });
        let nics_of = |(_, nics, own): &(u32, u32, u32)| match is_in_a_row {
            true => nics.saturating_mul((nodes / count.max(1)).max(1)) / own,
            false => *nics,
        };
        let nics = domains.values().map(nics_of).min().unwrap_or(1).max(1);
        let of_rank = |(members, nics, _): &(u32, u32, u32)| f64::from(*nics) / f64::from(*members);
        let nics_of_rank = domains.values().map(of_rank).fold(f64::INFINITY, f64::min);
        // Members that are scattered over more domains than they would fill lie as thin on any number of nodes.
        let domain_nodes = match cluster.most_machines_of_domain() {
            most if count > nodes.div_ceil(most) => nodes.div_ceil(count),
            most => most,
        };
        let of_node = f64::from(nics.div_ceil(machines_of_domain.max(1)));
        let uplinks = Uplinks::of(cluster, members.keys().copied(), of_node);
        Ok(Self {
            card: card.clone(),
            network: network.filter(|_| count > 1).cloned(),
            ranks,
            domains: count,
            per_domain: domains.values().map(|(members, ..)| *members).max().unwrap_or(1),
            nodes,
            domain_nodes,
            net_gbps: f64::from(nics) * cluster.nic_gbps / 8.0,
            nics,
            rank_net_gbps: nics_of_rank * cluster.nic_gbps / 8.0,
            launcher: Launcher::ProcessPerGpu,
            inside_rate: 1.0,
            outside_rate: 1.0,
            uplinks,
        })
    }

    /// The same ranks in one domain, as those of them that share one see each other.
    #[must_use]
    pub fn inside(&self) -> Self {
        let nodes = self.nodes.div_ceil(self.domains.max(1));
        Self { network: None, domains: 1, ranks: self.per_domain, nodes, ..self.clone() }
    }

    /// The same call with as many ranks a node on another number of nodes.
    ///
    /// Domains are laid out as [`Placement::new`] lays them out. Several domains need a network, so a placement
    /// in one domain cannot grow out of it: it keeps its size then.
    #[must_use]
    pub(crate) fn on_nodes(&self, nodes: u32) -> Self {
        let domains = nodes.div_ceil(self.domain_nodes.max(1)).max(1);
        if nodes == self.nodes || domains > 1 && self.network.is_none() {
            return self.clone();
        }
        let per_node = self.ranks.div_ceil(self.nodes.max(1));
        // NICs of the emptiest domain, where machines are spread evenly over domains.
        let own = (self.nodes / self.domains.max(1)).max(1);
        let nics = (self.nics.saturating_mul((nodes / domains).max(1)) / own).max(1);
        let nic_gbps = self.net_gbps / f64::from(self.nics.max(1));
        Self {
            network: self.network.clone().filter(|_| domains > 1),
            ranks: nodes * per_node,
            domains,
            per_domain: nodes.div_ceil(domains) * per_node,
            nodes,
            net_gbps: f64::from(nics) * nic_gbps,
            nics,
            ..self.clone()
        }
    }

    /// Levels of a binary tree over the domains, as NCCL counts them.
    #[must_use]
    pub(crate) fn tree_levels(&self) -> f64 {
        f64::from(self.domains.max(1).ilog2())
    }
}
