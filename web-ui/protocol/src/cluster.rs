//! The time of a collective on a named cluster.

use serde::{Deserialize, Serialize};

/// A question about a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterQuestion {
    /// Its name or an alias.
    pub cluster: String,
    /// As nccl-tests name it.
    pub collective: String,
    /// The ranks of the call.
    pub ranks: AskedRanks,
    /// Ranks on each node; all GPUs of one if it is not said.
    pub per_node: Option<u32>,
    /// The size of which all choices are shown.
    pub bytes: u64,
}

/// The ranks of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskedRanks {
    /// So many full nodes.
    Nodes(u32),
    /// So many ranks in all, which fill nodes in rank order.
    InAll(u32),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterAccount {
    /// The cluster's name.
    pub name: String,
    /// The cluster's title.
    pub title: String,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// Ranks of a node.
    pub per_node: u32,
    /// Nodes of the call.
    pub nodes: u32,
    /// Ranks in all.
    pub ranks: u32,
    /// The sentence that another machine was asked for, of which this is the nearest relative.
    pub taken_for: Option<String>,
    /// The sources of its numbers, a sentence each.
    pub sources: Vec<String>,
    /// No measured table of such a machine backs the times.
    pub extrapolated: bool,
    /// By size.
    pub points: Vec<ClusterPoint>,
    /// NCCL's choices, by size: each from where it is first taken.
    pub bands: Vec<ChoiceBand>,
    /// The size that was asked for.
    pub at: ClusterPoint,
    /// The choices that NCCL weighs at the size that is asked for, the cheapest by its expectation first.
    pub weighed: Vec<Weighed>,
}

/// A size and NCCL's choice for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterPoint {
    /// The size of the call.
    pub bytes: u64,
    /// Its time, in picoseconds.
    pub ps: u64,
    /// Algorithm bandwidth and bus bandwidth, bytes a second.
    pub algorithm_rate: u64,
    /// Bus bandwidth, bytes a second.
    pub bus_rate: u64,
    /// The algorithm.
    pub algorithm: String,
    /// The protocol.
    pub protocol: String,
    /// The number of channels.
    pub channels: u32,
    /// The time of each algorithm by its fastest protocol, in picoseconds.
    pub others: Vec<(String, u64)>,
}

/// A choice of NCCL and the sizes that it takes it for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceBand {
    /// The smallest size, in bytes.
    pub from: u64,
    /// The largest size, in bytes.
    pub to: u64,
    /// The algorithm.
    pub algorithm: String,
    /// The protocol.
    pub protocol: String,
}

/// A way that NCCL could carry the call out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weighed {
    /// The algorithm.
    pub algorithm: String,
    /// The protocol.
    pub protocol: String,
    /// The time that NCCL's tuner expects, and the predicted one, in picoseconds.
    pub expected_ps: u64,
    /// The predicted time, in picoseconds.
    pub predicted_ps: u64,
}
