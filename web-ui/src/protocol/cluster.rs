//! How long a collective takes on a named cluster.

use serde::{Deserialize, Serialize};

/// What is asked of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterQuestion {
    /// Its name or an alias.
    pub(crate) cluster: String,
    /// As nccl-tests name it.
    pub(crate) collective: String,
    pub(crate) nodes: u32,
    /// Ranks on each node; all GPUs of one if it is not said.
    pub(crate) per_node: Option<u32>,
    /// The size of which all choices are shown.
    pub(crate) bytes: u64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClusterAccount {
    /// All named clusters: name, title, and whether measurements back any of its times.
    pub(crate) known: Vec<(String, String, bool)>,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) gpus_per_node: u32,
    pub(crate) per_node: u32,
    pub(crate) ranks: u32,
    /// No measured table of such a machine backs the times.
    pub(crate) extrapolated: bool,
    /// By size.
    pub(crate) points: Vec<ClusterPoint>,
    /// What NCCL weighs at the size that is asked for, the cheapest by its expectation first.
    pub(crate) weighed: Vec<Weighed>,
}

/// A size and what NCCL does with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClusterPoint {
    pub(crate) bytes: u64,
    pub(crate) ps: u64,
    /// Algorithm bandwidth and bus bandwidth, bytes a second.
    pub(crate) algorithm_rate: u64,
    pub(crate) bus_rate: u64,
    pub(crate) algorithm: String,
    pub(crate) protocol: String,
    pub(crate) channels: u32,
    /// What each algorithm would take by its fastest protocol, in picoseconds.
    pub(crate) others: Vec<(String, u64)>,
}

/// A way that NCCL could carry the call out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Weighed {
    pub(crate) algorithm: String,
    pub(crate) protocol: String,
    /// What NCCL's tuner expects, and what is predicted, in picoseconds.
    pub(crate) expected_ps: u64,
    pub(crate) predicted_ps: u64,
}
