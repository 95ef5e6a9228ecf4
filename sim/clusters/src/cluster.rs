//! A named system: which cards, how many a node, which NICs.

use crate::collective::Collective;
use serde::Deserialize;

/// A named system, from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its name on the command line.
    pub name: String,
    /// A title for people.
    pub title: String,
    /// The sources of its numbers, one at least: `NICs: github.com/…`.
    pub sources: Vec<String>,
    /// Other names, among them `kind`s of tables.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Words by which a table's header names its card, in any company.
    #[serde(default)]
    pub words: Vec<String>,
    /// Words of other cards whose machines are taken for it, for want of a nearer one.
    #[serde(default)]
    pub relatives: Vec<String>,
    /// The name of its card (`data/cards`).
    pub card: String,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// GPUs that reach each other by NVLink; more than a node's in a rack of NVL72.
    #[serde(default)]
    pub domain_gpus: Option<u32>,
    /// The name of its transport (`data/networks`); none on a machine without one.
    #[serde(default)]
    pub network: Option<String>,
    /// NICs of a node.
    #[serde(default)]
    pub nics_per_node: u32,
    /// Line rate of a NIC, Gb/s.
    #[serde(default, rename = "nic_Gbps")]
    pub nic_gbps: f64,
    /// Nodes of a leaf switch; none where leaves are not modelled.
    #[serde(default)]
    pub nodes_per_leaf: Option<u32>,
    /// The ratio of what a leaf's nodes can send to what its uplinks carry; 1 if it is not said.
    #[serde(default)]
    pub oversubscription: Option<f64>,
    /// Networks of their own over which each NIC spreads its bytes; 1 if it is not said.
    #[serde(default)]
    pub planes: Option<u32>,
    /// Measurements of such machines that back its predictions.
    #[serde(default)]
    pub measured: Vec<Measured>,
    /// Times measured on this very machine, which correct its predictions.
    #[serde(default)]
    pub given: Vec<Given>,
}

/// A collective that was measured, on how many nodes, and with which sizes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The collective's name.
    pub collective: String,
    /// Nodes of the tables.
    pub nodes: Vec<u32>,
    /// The least and the largest size of the tables; any size if it is not said.
    #[serde(default)]
    pub bytes: Option<[u64; 2]>,
}

/// Times of a collective on so many nodes, measured on this very machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The collective's name.
    pub collective: String,
    /// Nodes that took part.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: u32,
    /// Bytes as nccl-tests counts them, and microseconds.
    pub points: Vec<(u64, f64)>,
}

impl Cluster {
    /// The cluster without the names by which tables find it: for a file of one's own.
    #[must_use]
    pub fn without_names(self) -> Self {
        Self { aliases: Vec::new(), words: Vec::new(), relatives: Vec::new(), ..self }
    }

    /// True if a measured table backs a prediction on `domains` nodes: the same collective, and on
    /// one node as it is, or on at most twice and at least half as many.
    #[must_use]
    pub fn backs(&self, collective: Collective, domains: u32) -> bool {
        self.backing(collective, domains).next().is_some()
    }

    /// The same for a call of a size: none of a table's sizes may be more than twice as large or as small.
    #[must_use]
    pub fn backs_size(&self, collective: Collective, domains: u32, bytes: u64) -> bool {
        self.backing(collective, domains).any(|measured| {
            measured.bytes.is_none_or(|[least, most]| {
                bytes.saturating_mul(2) >= least && bytes <= most.saturating_mul(2)
            })
        })
    }

    fn backing(&self, collective: Collective, domains: u32) -> impl Iterator<Item = &Measured> {
        self.measured.iter().filter(move |measured| {
            measured.collective == collective.name()
                && measured.nodes.iter().any(|nodes| {
                    if *nodes == 1 || domains == 1 {
                        *nodes == domains
                    } else {
                        domains <= nodes.saturating_mul(2) && *nodes <= domains.saturating_mul(2)
                    }
                })
        })
    }

    /// Number of neighbouring nodes, for a job on `nodes` nodes, that form one domain of NVLink: a
    /// rack's machines. Domains are the fewest that hold all, of equal size.
    #[must_use]
    pub(crate) fn machines_of_domain(&self, nodes: u32) -> u32 {
        nodes.div_ceil(nodes.div_ceil(self.most_machines_of_domain()).max(1)).max(1)
    }

    /// The most machines that form one domain of NVLink.
    #[must_use]
    pub(crate) fn most_machines_of_domain(&self) -> u32 {
        let gpus = self.gpus_per_node.max(1);
        self.domain_gpus.map_or(1, |of_domain| (of_domain / gpus).max(1))
    }

    /// Bandwidth of all NICs of a node together, GB/s.
    #[must_use]
    pub fn node_net_gbps(&self) -> f64 {
        f64::from(self.nics_per_node) * self.nic_gbps / 8.0
    }
}
