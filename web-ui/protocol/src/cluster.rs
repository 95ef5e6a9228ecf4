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
    /// A fault of its fabric, as the command line writes it; empty for none.
    pub fault: String,
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
    /// The sentence on what no table backs, of all sizes or of some.
    pub not_backed: Option<String>,
    /// The measured points of such a call.
    pub measured: MeasuredPoints,
    /// Every size as a line of CSV, below what it is of.
    pub csv: String,
    /// By size.
    pub points: Vec<ClusterPoint>,
    /// NCCL's choices, by size: each from where it is first taken.
    pub bands: Vec<ChoiceBand>,
    /// The stretches of sizes that no measured table backs: the first and the last point of each.
    pub beyond: Vec<(u64, u64)>,
    /// NCCL's choices by size, in a sentence.
    pub switches: String,
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
    /// No measured table has a size that is near to this one.
    pub extrapolated: bool,
    /// The time of each algorithm by its fastest protocol, in picoseconds.
    pub others: Vec<(String, u64)>,
}

/// The points that nccl-tests measured of such a call on the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredPoints {
    /// The sentence on the tables, or on their absence.
    pub words: String,
    /// The tables.
    pub tables: Vec<MeasuredSource>,
    /// Bytes and picoseconds.
    pub times: Vec<(u64, u64)>,
    /// Bytes, and bus bandwidth in bytes a second.
    pub rates: Vec<(u64, u64)>,
}

/// The origin of a measured table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredSource {
    /// The machine and its settings, in words.
    pub machine: String,
    /// The place where the table was published.
    pub source: String,
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
