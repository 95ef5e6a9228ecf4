//! The links of a job's fabric that its calls share, and how much of each a call takes.
//!
//! A link is a GPU's to the others of its domain (NVLink, xGMI or PCIe), a NIC of a node, or the
//! uplinks of a leaf switch, of which each plane of the network has one. A call spreads its bytes evenly over its time: its load on a link is
//! how long the link would be busy with it at the rate that such calls reach there
//! ([`busy_us`](crate::model::busy_us)), as a part of the call's time. So two calls that fill a NIC
//! take twice as long together, and two that wait for latencies hardly notice each other. A send
//! fills the links at both of its ends, each in one direction, while its bytes leave.
//!
//! No public measurement of concurrent collectives backs these loads: they are extrapolations.

use crate::cluster::Cluster;
use crate::collective::Collective;
use crate::placement::Placement;
use crate::planes::Planes;
use lockstep_core::plan::LinkLoad;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// A link of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FabricLink {
    /// The links of a rank's GPU to the others of its domain.
    Gpu {
        /// The rank.
        rank: u32,
    },
    /// A NIC.
    Nic {
        /// Its node, counted from 0 in rank order.
        node: u32,
        /// The rail: the NIC's number in its node.
        rail: u32,
    },
    /// The uplinks of a leaf switch to the spine.
    Leaf {
        /// The leaf, counted from 0 in node order: the nodes below it.
        leaf: u32,
        /// The plane, counted from 0: each has a switch for these nodes.
        plane: u32,
    },
}

/// The links of a job's fabric, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Ranks of the job.
    pub world_size: u32,
    /// Ranks of a node.
    pub ranks_per_node: u32,
    /// Nodes of the job.
    pub nodes: u32,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// NICs of a node: rails.
    pub nics_per_node: u32,
    /// Nodes of a leaf switch, where leaves are modelled.
    pub nodes_per_leaf: Option<u32>,
    /// The ratio of what a leaf's nodes can send to what its uplinks carry.
    pub oversubscription: f64,
    /// The planes of the network.
    pub planes: Planes,
}

/// A call on its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    pub(crate) collective: Collective,
    /// Parts of the call's time that links inside a domain, and NICs, are busy.
    pub(crate) shares: [f64; 2],
}

impl Fabric {
    pub(crate) fn new(
        cluster: &Cluster,
        world_size: u32,
        ranks_per_node: u32,
        nodes: u32,
        planes: Planes,
    ) -> Fabric {
        Fabric {
            world_size,
            ranks_per_node: ranks_per_node.max(1),
            nodes,
            gpus_per_node: cluster.gpus_per_node.max(1),
            nics_per_node: cluster.nics_per_node,
            nodes_per_leaf: cluster.nodes_per_leaf.filter(|each| *each > 0),
            oversubscription: cluster.oversubscription.unwrap_or(1.0),
            planes,
        }
    }

    /// The number of a link, as calls' loads name it.
    #[must_use]
    pub fn number(&self, link: FabricLink) -> u32 {
        let nics = self.world_size;
        let leaves = nics.saturating_add(self.nodes.saturating_mul(self.nics_per_node));
        match link {
            FabricLink::Gpu { rank } => rank,
            FabricLink::Nic { node, rail } => {
                nics.saturating_add(node.saturating_mul(self.nics_per_node)).saturating_add(rail)
            }
            FabricLink::Leaf { leaf, plane } => leaves
                .saturating_add(leaf.saturating_mul(self.planes.count()))
                .saturating_add(plane),
        }
    }

    /// Every link of the fabric, in the order of their numbers.
    pub fn links(&self) -> impl Iterator<Item = FabricLink> {
        let Fabric { nodes, nics_per_node, .. } = *self;
        let (leaves, planes) = (self.leaves(), self.planes.count());
        let gpus = (0..self.world_size).map(|rank| FabricLink::Gpu { rank });
        let nics = (0..nodes).flat_map(move |node| {
            (0..nics_per_node).map(move |rail| FabricLink::Nic { node, rail })
        });
        let leaves = (0..leaves)
            .flat_map(move |leaf| (0..planes).map(move |plane| FabricLink::Leaf { leaf, plane }));
        gpus.chain(nics).chain(leaves)
    }

    /// Leaves of each plane, where they are modelled.
    fn leaves(&self) -> u32 {
        self.nodes_per_leaf.map_or(0, |each| self.nodes.div_ceil(each))
    }

    /// The number of the same link in the direction in which its end receives. Collectives use both directions
    /// alike, so these numbers are needed only where sends are in flight too.
    #[must_use]
    pub fn receiving(&self, link: FabricLink) -> u32 {
        let nics = self.nodes.saturating_mul(self.nics_per_node);
        let leaves = self.leaves().saturating_mul(self.planes.count());
        let all = self.world_size.saturating_add(nics).saturating_add(leaves);
        self.number(link).saturating_add(all)
    }

    /// The loads of a send while its bytes leave: whole links at its sender in one direction, and at its
    /// receiver in the other; `over_network` if they reach each other by no other way.
    pub(crate) fn loads_of_send(
        &self,
        from: GlobalRank,
        to: GlobalRank,
        over_network: bool,
    ) -> Vec<LinkLoad> {
        let full = |link| LinkLoad { link, load: LinkLoad::FULL };
        if !over_network {
            let [from, to] = [from, to].map(|rank| FabricLink::Gpu { rank: rank.0 });
            return vec![full(self.number(from)), full(self.receiving(to))];
        }
        let nics = |rank: GlobalRank| {
            let node = rank.0 / self.ranks_per_node;
            self.rails(rank.0).map(move |rail| FabricLink::Nic { node, rail })
        };
        let sends = nics(from).map(|nic| full(self.number(nic)));
        let mut loads: Vec<LinkLoad> =
            sends.chain(nics(to).map(|nic| full(self.receiving(nic)))).collect();
        if let Some(each) = self.nodes_per_leaf {
            let leaf = |rank: GlobalRank| rank.0 / self.ranks_per_node / each;
            if leaf(from) != leaf(to) {
                let uplinks = f64::from(each.saturating_mul(self.nics_per_node).max(1));
                let used = f64::from(self.rails(from.0).len() as u32);
                for plane in 0..self.planes.count() {
                    let share = self.planes.load(plane, used * self.oversubscription / uplinks);
                    let load = parts(share);
                    if load > 0 {
                        let [out, into] =
                            [from, to].map(|rank| FabricLink::Leaf { leaf: leaf(rank), plane });
                        loads.push(LinkLoad { link: self.number(out), load });
                        loads.push(LinkLoad { link: self.receiving(into), load });
                    }
                }
            }
        }
        loads
    }

    /// The NICs that a rank's GPU is nearest to: at least one.
    fn rails(&self, rank: u32) -> std::ops::Range<u32> {
        // A node that is not filled leaves its last GPUs out.
        let gpu = u64::from(rank % self.ranks_per_node);
        let (nics, gpus) = (u64::from(self.nics_per_node), u64::from(self.gpus_per_node));
        let first = gpu * nics / gpus;
        let end = ((gpu + 1) * nics / gpus).max(first + 1).min(nics);
        (first as u32)..(end as u32)
    }

    /// The loads of a call among `members`, whose placement is known; `both_ways` if the directions of links
    /// are told apart.
    pub(crate) fn loads(
        &self,
        members: &[GlobalRank],
        ranks_per_domain: u32,
        placement: &Placement,
        busy: Busy,
        both_ways: bool,
    ) -> Vec<LinkLoad> {
        let [inside, outside] = busy.shares;
        let mut loads = Vec::new();
        let mut add = |link: FabricLink, share: f64| {
            let load = parts(share);
            if load > 0 {
                loads.push(LinkLoad { link: self.number(link), load });
                if both_ways {
                    loads.push(LinkLoad { link: self.receiving(link), load });
                }
            }
        };
        let mut domains: BTreeMap<u32, u32> = BTreeMap::new();
        let mut rails: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for rank in members {
            *domains.entry(rank.0 / ranks_per_domain.max(1)).or_default() += 1;
            rails.entry(rank.0 / self.ranks_per_node).or_default().extend(self.rails(rank.0));
        }
        for rank in members {
            if domains.get(&(rank.0 / ranks_per_domain.max(1))).is_some_and(|fellows| *fellows > 1)
            {
                add(FabricLink::Gpu { rank: rank.0 }, inside);
            }
        }
        if placement.network.is_none() {
            return loads;
        }
        let machines = (ranks_per_domain / self.ranks_per_node).max(1);
        let mut on_leaf: BTreeMap<u32, u32> = BTreeMap::new();
        for (node, rails) in &rails {
            if let Some(each) = self.nodes_per_leaf {
                *on_leaf.entry(node / each).or_default() += 1;
            }
            // The placement's NICs are those of a domain with the fewest.
            let used = placement.nics.div_ceil(machines).max(1);
            let share = f64::from(used) / f64::from(u32::try_from(rails.len()).unwrap_or(1).max(1));
            for rail in rails {
                add(FabricLink::Nic { node: *node, rail: *rail }, outside * share.min(1.0));
            }
        }
        let all = f64::from(u32::try_from(rails.len()).unwrap_or(u32::MAX));
        let each = f64::from(self.nodes_per_leaf.unwrap_or(1));
        let nics = f64::from(self.nics_per_node.max(1));
        let of_node = outside * f64::from(placement.nics.div_ceil(machines)) / nics;
        for (leaf, nodes) in on_leaf {
            let nodes = f64::from(nodes);
            if nodes >= all {
                continue;
            }
            // All nodes of an all_to_all send out of the leaf; a ring or tree enters and leaves once.
            let leaving = match busy.collective {
                Collective::AllToAll => nodes * (all - nodes) / (all - 1.0),
                _ => 1.0,
            };
            let share = of_node * leaving * self.oversubscription / each;
            for plane in 0..self.planes.count() {
                add(FabricLink::Leaf { leaf, plane }, self.planes.load(plane, share));
            }
        }
        loads
    }
}

/// A share of a link in parts of [`LinkLoad::FULL`].
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn parts(share: f64) -> u32 {
    if share.is_nan() {
        return 0;
    }
    libm::round(share.clamp(0.0, 1.0) * f64::from(LinkLoad::FULL)) as u32
}
