//! A named system: which cards, how many a node, which NICs.

use serde::Deserialize;

/// A named system, from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its name on the command line.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Where its numbers come from.
    pub source: String,
    /// Other names, among them `kind`s of tables.
    #[serde(default)]
    pub aliases: Vec<String>,
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
    /// Kinds of tables whose measurements back its predictions.
    #[serde(default)]
    pub measured: Vec<String>,
}

impl Cluster {
    /// What a node's NICs can send together, GB/s.
    #[must_use]
    pub fn node_net_gbps(&self) -> f64 {
        f64::from(self.nics_per_node) * self.nic_gbps / 8.0
    }
}
