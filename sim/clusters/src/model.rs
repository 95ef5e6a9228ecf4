//! The time of a call: launch, steps and hops, and transfer at the measured rates.
//!
//! A time is `launch + latency of the algorithm's steps + transfer`, where the transfer's rate is
//! bounded by the links inside the node and by the NICs' share, and short transfers do not fill the
//! pipeline (`Rate`). A call is never faster than its host launches calls.

use crate::algorithm::{Algorithm, Protocol};
use crate::card::{Generation, Intra, Rate};
use crate::collective::Collective;
use crate::network::Network;
use crate::placement::{Launcher, Placement};
use crate::settings::Settings;
use crate::tuner;
use std::borrow::Cow;

/// The two parts of a time, microseconds: what does not depend on rates, and the transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Launch, steps and hops.
    pub latency_us: f64,
    /// Transfer, with what is lost before the pipeline is full.
    pub transfer_us: f64,
    /// The host's time between two calls.
    pub host_us: f64,
}

impl Parts {
    /// The time of the call, microseconds.
    #[must_use]
    pub fn time_us(&self) -> f64 {
        larger(self.latency_us + self.transfer_us, self.host_us)
    }

    /// The parts of a call that takes so many times as long.
    #[must_use]
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self {
            latency_us: self.latency_us * factor,
            transfer_us: self.transfer_us * factor,
            host_us: self.host_us * factor,
        }
    }
}

/// The larger of two times, rounded off where they are near each other.
fn larger(one: f64, other: f64) -> f64 {
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    if high <= 0.0 {
        return 0.0;
    }
    let ratio = low / high;
    let square = ratio * ratio;
    high * libm::sqrt(libm::sqrt(1.0 + square * square))
}

/// The parts of the time that `bytes` take by this algorithm and protocol.
#[must_use]
pub fn parts(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: f64,
) -> Parts {
    let placement = &*with_channels(placement, settings, algorithm);
    let host_us = host_us(placement, collective);
    let launch = placement.card.launch_us;
    let overhead = placement.network.as_ref().map_or(0.0, |network| network.overhead_us);
    let (latency, transfer) = match collective {
        Collective::AllToAll => all_to_all(placement, bytes),
        Collective::SendRecv => send_recv(placement, bytes),
        _ => {
            let latency = steps_us(placement, collective, algorithm, protocol, bytes);
            (latency, transfer_us(placement, collective, algorithm, protocol, bytes))
        }
    };
    Parts { latency_us: launch + overhead + latency, transfer_us: transfer, host_us }
}

/// The placement with the rates that `NCCL_MAX_NCHANNELS` leaves: a channel carries its part of what the
/// algorithm's channels carry together, inside a domain and between domains.
fn with_channels<'a>(
    placement: &'a Placement,
    settings: &Settings,
    algorithm: Algorithm,
) -> Cow<'a, Placement> {
    let share = tuner::channel_share(placement, settings, algorithm);
    if share >= 1.0 {
        return Cow::Borrowed(placement);
    }
    let (inside_rate, outside_rate) =
        (placement.inside_rate * share, placement.outside_rate * share);
    Cow::Owned(Placement { inside_rate, outside_rate, ..placement.clone() })
}

/// The time for which a call of `bytes` keeps the links busy at the rate that it reaches on them: those of a
/// GPU inside its domain, and the NICs of a domain. Microseconds.
#[must_use]
pub(crate) fn busy_us(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: f64,
) -> [f64; 2] {
    let placement = &*with_channels(placement, settings, algorithm);
    let (ranks, local) = (f64::from(placement.ranks), f64::from(placement.per_domain));
    if matches!(collective, Collective::AllToAll | Collective::SendRecv) {
        let rate = placement.card.all_to_all.busbw_gbps * placement.inside_rate;
        let inside = bytes * (local - 1.0) / ranks / (rate * 1000.0);
        let outside = placement.network.as_ref().map_or(0.0, |network| {
            let share = network.all_to_all_share * placement.outside_rate;
            bytes * (ranks - local) / ranks / (placement.rank_net_gbps * share * 1000.0)
        });
        return [inside, outside];
    }
    let factor = collective.bus_factor(placement.ranks);
    // Flags of the low-latency protocols are carried too.
    let efficiency = match protocol {
        Protocol::Ll => 0.5,
        Protocol::Ll128 => 0.92,
        Protocol::Simple => 1.0,
    };
    let inside = inside_busbw(placement, collective, algorithm) * placement.inside_rate;
    let outside = placement.network.as_ref().map_or(f64::INFINITY, |network| {
        outside_busbw(placement, network, algorithm, factor) * placement.outside_rate
    });
    [inside, outside].map(|bus| bytes * factor / (bus * efficiency * 1000.0))
}

/// The host's time between two calls, microseconds.
fn host_us(placement: &Placement, collective: Collective) -> f64 {
    let card = &placement.card;
    let gpus = f64::from(placement.per_domain);
    match (placement.launcher, collective) {
        (Launcher::PyTorch, _) => PYTORCH_HOST_US,
        (Launcher::OneProcess, Collective::AllToAll) => ONE_PROCESS_PEER_US * gpus * gpus,
        (Launcher::OneProcess, _) => ONE_PROCESS_HOST_US * gpus,
        (Launcher::ProcessPerGpu, _) => PROCESS_HOST_US,
        (Launcher::Unknown, _) if placement.domains > 1 => PROCESS_HOST_US,
        (Launcher::Unknown, Collective::AllToAll) => {
            card.host_all_to_all_us.unwrap_or(card.host_us)
        }
        (Launcher::Unknown, _) => card.host_us,
    }
}

/// A call of PyTorch (`all_reduce_bench.py` on H200), microseconds.
const PYTORCH_HOST_US: f64 = 38.0;
/// One process launches for one GPU after the other (DGX-2, 12 GPUs; A100, 8 GPUs), microseconds.
const ONE_PROCESS_HOST_US: f64 = 4.9;
/// The same for each pair of an all_to_all (A100, 8 GPUs), microseconds.
const ONE_PROCESS_PEER_US: f64 = 1.36;
/// A process for each GPU, microseconds.
const PROCESS_HOST_US: f64 = 8.0;

/// Latency of all steps, microseconds.
fn steps_us(
    placement: &Placement,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: f64,
) -> f64 {
    let card = &placement.card;
    let p = protocol.index();
    let inner = f64::from(placement.per_domain) - 1.0;
    let hop = hop_us(placement, algorithm, protocol, bytes);
    let levels = 2.0 * libm::ceil(libm::log2(f64::from(placement.domains.max(1))));
    match algorithm {
        Algorithm::Ring => {
            let chain = matches!(collective, Collective::Broadcast | Collective::Reduce);
            let steps = collective.ring_steps(placement.ranks);
            let hops = match collective {
                Collective::AllReduce => 2.0 * (f64::from(placement.domains) - 1.0),
                _ => f64::from(placement.domains) - 1.0,
            };
            let several = placement.network.as_ref();
            let step = several.map_or(card.step_us[p], |network| network.ring_step_us[p]);
            let first = if protocol == Protocol::Simple { card.ring.latency_us } else { 0.0 };
            let share = if chain { 0.5 } else { 1.0 };
            first + (steps - hops) * step * share + hops * hop
        }
        Algorithm::Tree => {
            let first = if protocol == Protocol::Simple { card.ring.latency_us } else { 0.0 };
            first + 2.0 * inner * card.step_us[p] + levels * hop
        }
        Algorithm::Nvls | Algorithm::NvlsTree => {
            let larger = f64::from(placement.per_domain) - 8.0;
            let more = if placement.domains > 1 { larger.max(0.0) } else { 0.0 };
            let latency = card.switch.map_or(0.0, |rate| rate.latency_us);
            latency + more * SWITCH_RANK_US + levels * hop
        }
        Algorithm::CollNetDirect | Algorithm::CollNetChain => 2.0 * inner * card.step_us[p] + hop,
        Algorithm::Pat => levels * hop,
        Algorithm::P2p => 0.0,
    }
}

/// Addition of every rank beyond eight of a domain to the latency of an in-switch reduction with
/// trees over the domains (GB200, two domains of 64 ranks), microseconds.
const SWITCH_RANK_US: f64 = 1.4;

/// A hop between nodes, with the rendezvous of long messages.
fn hop_us(placement: &Placement, algorithm: Algorithm, protocol: Protocol, bytes: f64) -> f64 {
    let Some(network) = &placement.network else { return 0.0 };
    // The bytes of a message: a ring cuts the buffer into the ranks' pieces.
    let lanes = f64::from(placement.nics.max(1));
    let pieces = if algorithm == Algorithm::Ring { f64::from(placement.ranks) } else { 1.0 };
    let message = bytes / pieces;
    let over = message / network.eager_bytes;
    let long = over * over / (1.0 + over * over);
    let chunk = (bytes / lanes / pieces / PIECES).min(network.chunk_bytes);
    let carried = chunk / (placement.net_gbps / lanes * 1000.0);
    network.hop_us[protocol.index()] + network.rendezvous_us * long + carried
}

/// Chunks into which NCCL cuts a channel's share at least, so that hops overlap.
const PIECES: f64 = 4.0;

/// Transfer at the rate that the links and NICs allow, microseconds.
fn transfer_us(
    placement: &Placement,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: f64,
) -> f64 {
    let card = &placement.card;
    let factor = collective.bus_factor(placement.ranks);
    let inside = inside_busbw(placement, collective, algorithm) * placement.inside_rate;
    let rate = ramp(placement, algorithm);
    let Some(network) = &placement.network else {
        let bus = match protocol {
            Protocol::Ll => card.ll_busbw_gbps * placement.inside_rate,
            Protocol::Ll128 => card.ll128_busbw_gbps * placement.inside_rate,
            Protocol::Simple => inside,
        };
        let full = bytes * factor / (bus * 1000.0);
        return if protocol == Protocol::Simple { rate.transfer_us(full) } else { full };
    };
    let rate_left = placement.outside_rate * placement.uplinks.passing;
    let outside = outside_busbw(placement, network, algorithm, factor) * rate_left;
    let [ll, ll128] =
        [card.ll_busbw_gbps, card.ll128_busbw_gbps].map(|rate| rate * placement.inside_rate);
    let bus = match protocol {
        Protocol::Ll => ll.min(outside * 0.5).min(network.ll_busbw_gbps * rate_left),
        Protocol::Ll128 => ll128.min(outside * 0.92),
        Protocol::Simple => inside.min(outside),
    };
    let full = bytes * factor / (bus * 1000.0);
    if protocol == Protocol::Simple { rate.transfer_us(full) } else { full }
}

/// Bus bandwidth that the links inside the node allow, GB/s.
fn inside_busbw(placement: &Placement, collective: Collective, algorithm: Algorithm) -> f64 {
    let card = &placement.card;
    if placement.per_domain == 1 {
        return f64::INFINITY;
    }
    let share = match collective {
        Collective::AllGather => card.shares.all_gather,
        Collective::ReduceScatter => card.shares.reduce_scatter,
        Collective::Broadcast | Collective::Reduce => card.shares.broadcast,
        _ => 1.0,
    };
    let ring = card.ring.busbw_gbps * mesh_share(placement);
    match (algorithm, card.switch) {
        (Algorithm::Nvls | Algorithm::NvlsTree, Some(rate)) => {
            // The switch sends every GPU its part once: the algorithm's rate is the same for any
            // number of ranks, and `busbw_gbps` is that of eight.
            let shape = collective.bus_factor(placement.ranks) / collective.bus_factor(8);
            let tree = if algorithm == Algorithm::NvlsTree {
                nvls_tree_share(card.generation)
            } else {
                1.0
            };
            if collective == Collective::AllReduce {
                rate.busbw_gbps * shape * tree
            } else {
                ring * share
            }
        }
        (Algorithm::Tree, _) => ring * 0.95,
        _ => ring * share,
    }
}

/// Share of a mesh's links that the ranks of a node use.
fn mesh_share(placement: &Placement) -> f64 {
    let Some(gpus) = placement.card.mesh_gpus else { return 1.0 };
    if placement.card.intra == Intra::Xgmi && placement.domains > 1 {
        // RCCL's rings over several nodes leave each node by every GPU: no GPU closes the ring inside.
        return XGMI_NODES_SHARE;
    }
    let local = f64::from(placement.per_domain);
    ((local - 1.0) / (f64::from(gpus) - 1.0)).min(1.0)
}

/// Busbw of rings over several nodes relative to a ring inside one (MI300X, MI355X, two nodes).
const XGMI_NODES_SHARE: f64 = 1.2;

/// Share of the switches' rate while trees over the nodes run beside: two nodes of H100 and H200;
/// two nodes of B200 and two racks of GB200.
const fn nvls_tree_share(generation: Generation) -> f64 {
    match generation {
        Generation::Blackwell => 0.8,
        _ => 0.945,
    }
}

/// Bus bandwidth that the NICs allow, GB/s.
fn outside_busbw(
    placement: &Placement,
    network: &Network,
    algorithm: Algorithm,
    factor: f64,
) -> f64 {
    match algorithm {
        // A node of double binary trees sends everything once over two nodes, twice over more.
        Algorithm::Tree | Algorithm::NvlsTree => {
            let (share, times) = if placement.domains == 2 {
                (network.tree_share[0], 1.0)
            } else {
                (network.tree_share[1], 2.0)
            };
            placement.net_gbps * share / times * factor
        }
        Algorithm::CollNetDirect | Algorithm::CollNetChain | Algorithm::Nvls => {
            placement.net_gbps * network.ring_share * factor
        }
        _ => placement.net_gbps * network.ring_share,
    }
}

/// The ramp of the rate: of the network if there is one, otherwise of the card.
fn ramp(placement: &Placement, algorithm: Algorithm) -> Rate {
    let card = &placement.card;
    if let Some(network) = &placement.network {
        return network_ramp(network);
    }
    match (algorithm, card.switch) {
        (Algorithm::Nvls | Algorithm::NvlsTree, Some(rate)) => rate,
        _ => card.ring,
    }
}

/// The ramp of a network's rate; the other fields are placeholders.
fn network_ramp(network: &Network) -> Rate {
    Rate { busbw_gbps: 1.0, latency_us: 0.0, ramp: network.ramp, ramp_end_us: network.ramp_end_us }
}

/// Latency and transfer of an all_to_all: inside the node and between nodes at once.
fn all_to_all(placement: &Placement, bytes: f64) -> (f64, f64) {
    let card = &placement.card;
    let ranks = f64::from(placement.ranks);
    let local = f64::from(placement.per_domain);
    let rate = card.all_to_all.busbw_gbps * placement.inside_rate;
    let inside = bytes * (local - 1.0) / ranks / (rate * 1000.0);
    let Some(network) = &placement.network else {
        return (card.all_to_all.latency_us, card.all_to_all.transfer_us(inside));
    };
    let rate_left = placement.outside_rate * placement.uplinks.all_to_all;
    let per_rank = placement.rank_net_gbps * network.all_to_all_share * rate_left;
    // Ranks outside a rank's domain, where all domains are as full.
    let others = ranks - ranks / f64::from(placement.domains.max(1));
    let outside = bytes * others / ranks / (per_rank * 1000.0);
    let latency = card.all_to_all.latency_us + network.hop_us[2] + network.peer_us * others;
    (latency, network_ramp(network).transfer_us(larger(inside, outside)))
}

/// Latency and transfer of a send to the next rank and a receive from the one before.
fn send_recv(placement: &Placement, bytes: f64) -> (f64, f64) {
    let card = &placement.card;
    if let Some(network) = &placement.network {
        let lane = placement.net_gbps / f64::from(placement.nics.max(1))
            * f64::from(placement.nics.div_ceil(placement.per_domain).max(1));
        let share = network.send_recv_share[usize::from(placement.per_domain > 4)];
        let full = bytes / (lane * share * placement.outside_rate * 1000.0);
        return (network.hop_us[2], full);
    }
    let rate = card.send_recv.busbw_gbps * placement.inside_rate;
    let full = card.send_recv.transfer_us(bytes / (rate * 1000.0));
    let few = card.send_recv_few_channels_gbps.map_or(0.0, |rate| {
        // The channels are shared out among the ranks; the card's rate is that of eight.
        let rate = rate * placement.inside_rate * 8.0 / f64::from(placement.ranks);
        (bytes / (rate * 1000.0)).min(card.send_recv_plateau_us)
    });
    (card.send_recv.latency_us, larger(full, few))
}
