//! A kind of GPU in its node: links as NCCL's tuner sees them, and fitted rates and latencies.

use serde::Deserialize;

/// The generation by which NCCL's tuner looks up its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// Compute capability 7.x and older.
    Volta,
    /// 8.x.
    Ampere,
    /// 9.0.
    Hopper,
    /// 10.0 and newer.
    Blackwell,
}

/// Links between the GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intra {
    /// NVLink through switches: every pair at the full rate.
    Nvswitch,
    /// Direct links between every pair, or a cube of them.
    Mesh,
    /// PCIe, peer to peer or through the host's memory.
    Pcie,
    /// AMD's Infinity Fabric, a link a pair; run by RCCL.
    Xgmi,
}

/// The processor by which NCCL's tuner looks up LL's limits and a post's overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpu {
    /// Intel's.
    #[default]
    Intel,
    /// AMD's.
    Amd,
    /// ARM's, as Grace.
    Arm,
}

/// Rate and latency of one way to carry data, as measured.
///
/// A transfer of `x` microseconds at the full rate takes
/// `x + ramp · √x / (1 + (x / ramp_end_us)²)` microseconds beyond the latency: short transfers do
/// not fill the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Bus bandwidth that large transfers reach, GB/s (nccl-tests' definition).
    #[serde(rename = "busbw_GBps")]
    pub busbw_gbps: f64,
    /// Fixed latency beyond the launch, microseconds.
    pub latency_us: f64,
    /// Slowness of the approach to the full rate, √µs.
    #[serde(default)]
    pub ramp: f64,
    /// Beyond transfers of about this time the ramp no longer costs anything, microseconds.
    #[serde(default = "no_end")]
    pub ramp_end_us: f64,
}

fn no_end() -> f64 {
    1e6
}

impl Rate {
    /// Time of `full_rate_us` microseconds of transfer at the full rate, with the ramp.
    #[must_use]
    pub(crate) fn transfer_us(&self, full_rate_us: f64) -> f64 {
        let x = full_rate_us;
        let end = x / self.ramp_end_us;
        x + self.ramp * libm::sqrt(x) / (1.0 + end * end)
    }
}

/// Shares of the ring's rate that collectives other than all_reduce reach.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shares {
    /// all_gather.
    pub all_gather: f64,
    /// reduce_scatter.
    pub reduce_scatter: f64,
    /// broadcast and reduce.
    pub broadcast: f64,
}

impl Default for Shares {
    fn default() -> Self {
        Self { all_gather: 1.0, reduce_scatter: 1.0, broadcast: 1.0 }
    }
}

/// A kind of GPU in its node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Its name, as cluster files say it.
    pub name: String,
    /// The sources of the links' numbers and of the tables that the rest was fitted on.
    pub source: String,
    /// For NCCL's tuner.
    pub generation: Generation,
    /// The links between the GPUs of the node.
    pub intra: Intra,
    /// The processor that such machines have.
    #[serde(default)]
    pub cpu: Cpu,
    /// Links of a GPU; 1 for PCIe.
    pub links: u32,
    /// GPUs of a full mesh, where fewer ranks use fewer of the links.
    #[serde(default)]
    pub mesh_gpus: Option<u32>,
    /// Rate of a link as NCCL's topology counts it, GB/s a direction.
    #[serde(rename = "nccl_link_GBps")]
    pub nccl_link_gbps: f64,
    /// Rate of a link by the vendor's data sheet, GB/s a direction.
    #[serde(rename = "link_GBps")]
    pub link_gbps: f64,
    /// Reductions in the switch (NVLS).
    #[serde(default)]
    pub nvls: bool,
    /// Time between two calls that the host needs to launch them, microseconds.
    pub host_us: f64,
    /// The same for an all_to_all; `host_us` if it is not said.
    #[serde(default)]
    pub host_all_to_all_us: Option<f64>,
    /// Launch of the kernel and its end, microseconds.
    pub launch_us: f64,
    /// A step of a ring or tree inside the node: LL, LL128, Simple, microseconds.
    pub step_us: [f64; 3],
    /// Bus bandwidth of the LL protocol, GB/s.
    #[serde(rename = "ll_busbw_GBps")]
    pub ll_busbw_gbps: f64,
    /// Bus bandwidth of the LL128 protocol, GB/s.
    #[serde(rename = "ll128_busbw_GBps")]
    pub ll128_busbw_gbps: f64,
    /// Rings and trees with the Simple protocol.
    pub ring: Rate,
    /// Shares of that rate that other collectives reach.
    #[serde(default)]
    pub shares: Shares,
    /// In-switch reduction.
    #[serde(default)]
    pub switch: Option<Rate>,
    /// Sends and receives to all ranks of the node at once.
    pub all_to_all: Rate,
    /// Sends and receives between neighbours.
    pub send_recv: Rate,
    /// A send of few channels: up to `plateau_us` its rate is only this, GB/s.
    #[serde(default, rename = "send_recv_few_channels_GBps")]
    pub send_recv_few_channels_gbps: Option<f64>,
    /// The longest time of a send at the rate of few channels, microseconds.
    #[serde(default)]
    pub send_recv_plateau_us: f64,
}

impl Card {
    /// Bandwidth of a GPU into its node as NCCL counts it, GB/s.
    #[must_use]
    pub(crate) fn nccl_gpu_gbps(&self) -> f64 {
        f64::from(self.links) * self.nccl_link_gbps
    }

    /// Bandwidth of a GPU into its node by the data sheet, GB/s.
    #[must_use]
    pub fn gpu_gbps(&self) -> f64 {
        f64::from(self.links) * self.link_gbps
    }
}
