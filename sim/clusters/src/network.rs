//! The network between nodes: a transport with its latencies and the share of the line rate it reaches.

use serde::Deserialize;

/// A transport between nodes. Rates are shares of the NICs' line rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Its name, as cluster files say it.
    pub name: String,
    /// The tables that it was fitted on.
    pub source: String,
    /// NCCL may use its LL128 protocol: not where the transport's plugin or the path forbids it.
    #[serde(default = "yes")]
    pub ll128: bool,
    /// Latency that the transport's plugin tells NCCL's tuner, microseconds (aws-ofi-nccl,
    /// `src/platform-aws.cpp`); the tuner adds it to each hop, twice for Simple.
    #[serde(default)]
    pub plugin_latency_us: f64,
    /// The plugin shows the NICs of a GPU to NCCL as one.
    #[serde(default)]
    pub groups_nics: bool,
    /// Extra cost of a call over several nodes, paid once, microseconds.
    pub overhead_us: f64,
    /// A hop between nodes: LL, LL128, Simple, microseconds.
    pub hop_us: [f64; 3],
    /// Messages up to this many bytes are sent eagerly; longer ones first agree (rendezvous).
    pub eager_bytes: f64,
    /// Time that the agreement adds to a hop, microseconds.
    pub rendezvous_us: f64,
    /// A step inside a node of a ring over several nodes: LL, LL128, Simple, microseconds.
    pub ring_step_us: [f64; 3],
    /// The most bytes that a NIC carries for a hop before the next hop starts.
    pub chunk_bytes: f64,
    /// Bus bandwidth that the LL protocol reaches over it at most, GB/s.
    #[serde(rename = "ll_busbw_GBps")]
    pub ll_busbw_gbps: f64,
    /// Share of the line rate of rings.
    pub ring_share: f64,
    /// Share of the line rate of trees over two nodes, and over more.
    pub tree_share: [f64; 2],
    /// Share of the line rate of an all_to_all.
    pub all_to_all_share: f64,
    /// Share of the line rate of a single pair of ranks: up to four ranks a node, and more.
    pub send_recv_share: [f64; 2],
    /// Slowness of the approach to the full rate, √µs (see `Rate`).
    pub ramp: f64,
    /// Beyond transfers of about this time the ramp no longer costs anything, microseconds.
    pub ramp_end_us: f64,
    /// Cost of each peer of an all_to_all, microseconds.
    pub peer_us: f64,
}

const fn yes() -> bool {
    true
}
