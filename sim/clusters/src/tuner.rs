//! NCCL's choice: the cost model of its tuner (`src/graph/tuning.cc` and `src/enqueue.cc` of NCCL
//! 2.30.7), reimplemented from what it computes. Its search for channels (`src/graph/search.cc`) is
//! replaced by the result that it has on a symmetric machine.
//!
//! The tuner's times are only its belief; `model` has the times that calls take.

use crate::algorithm::{Algorithm, Protocol};
use crate::card::{Cpu, Generation, Intra};
use crate::collective::Collective;
use crate::placement::Placement;
use crate::settings::Settings;

/// Base latencies of an algorithm: LL, LL128, Simple, microseconds.
const fn base_us(algorithm: Algorithm) -> [f64; 3] {
    match algorithm {
        Algorithm::Tree => [6.8, 14.0, 8.4],
        Algorithm::Ring => [6.6, 14.0, 8.4],
        Algorithm::Pat => [8.0, 8.0, 8.0],
        _ => [0.0, 0.0, 0.0],
    }
}

/// The hardware that a step goes over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hardware {
    Nvlink,
    Pci,
    Net,
}

/// Latencies of a step: LL, LL128, Simple, microseconds.
const fn step_us(hardware: Hardware, algorithm: Algorithm) -> [f64; 3] {
    match (hardware, algorithm) {
        (Hardware::Nvlink, Algorithm::Tree) => [0.6, 1.25, 4.0],
        (Hardware::Nvlink, Algorithm::Ring) => [0.6, 1.9, 3.4],
        (Hardware::Nvlink, Algorithm::Nvls | Algorithm::NvlsTree) => [0.0, 0.0, 25.0],
        (Hardware::Pci, Algorithm::Tree) => [1.0, 1.9, 4.0],
        (Hardware::Pci, Algorithm::Ring) => [1.0, 2.5, 5.7],
        (Hardware::Nvlink | Hardware::Pci, Algorithm::CollNetDirect) => [0.0, 0.0, 3.7],
        (Hardware::Nvlink | Hardware::Pci, Algorithm::CollNetChain) => [0.0, 0.0, 2.8],
        (Hardware::Nvlink | Hardware::Pci, Algorithm::Pat) => [0.0, 0.0, 4.0],
        (Hardware::Net, Algorithm::Tree) => [5.0, 8.5, 14.0],
        (Hardware::Net, Algorithm::Ring) => [2.7, 4.0, 14.0],
        (Hardware::Net, Algorithm::CollNetDirect) => [0.0, 0.0, 31.0],
        (Hardware::Net, Algorithm::CollNetChain) => [0.0, 0.0, 30.0],
        (Hardware::Net, Algorithm::Nvls) => [0.0, 0.0, 18.0],
        (Hardware::Net, Algorithm::NvlsTree) => [0.0, 0.0, 20.9],
        (Hardware::Net, Algorithm::Pat) => [0.0, 0.0, 14.0],
        _ => [0.0, 0.0, 0.0],
    }
}

/// Caps of a generation for one, two and more nodes, GB/s.
struct Caps {
    ll_one_node: f64,
    ring_ll128: f64,
    tree_ll128: [f64; 3],
    tree: [f64; 3],
    nvls_tree: [f64; 3],
    nvls_efficiency: f64,
}

const fn caps(generation: Generation) -> Caps {
    match generation {
        Generation::Volta => Caps {
            ll_one_node: 39.0,
            ring_ll128: 20.0,
            tree_ll128: [20.0; 3],
            tree: [26.5, 18.5, 10.0],
            nvls_tree: [26.5, 18.5, 10.0],
            nvls_efficiency: 0.0,
        },
        Generation::Ampere => Caps {
            ll_one_node: 87.7,
            ring_ll128: 20.0,
            tree_ll128: [20.0; 3],
            tree: [24.0, 23.6, 17.8],
            nvls_tree: [24.0, 23.6, 17.8],
            nvls_efficiency: 0.0,
        },
        Generation::Hopper => Caps {
            ll_one_node: 141.0,
            ring_ll128: 36.7,
            tree_ll128: [36.7, 36.7, 29.0],
            tree: [38.7, 41.4, 36.0],
            nvls_tree: [0.0, 57.7, 45.5],
            nvls_efficiency: 0.85,
        },
        Generation::Blackwell => Caps {
            ll_one_node: 282.0,
            ring_ll128: 40.0,
            tree_ll128: [55.6, 31.67, 20.0],
            tree: [70.0, 42.8, 24.0],
            nvls_tree: [0.0, 96.0, 80.0],
            nvls_efficiency: 0.74,
        },
    }
}

/// Caps of LL over two nodes and over more, GB/s.
const fn ll_nodes(cpu: Cpu) -> [f64; 2] {
    match cpu {
        Cpu::Intel | Cpu::Arm => [39.0, 20.4],
        Cpu::Amd => [22.5, 19.0],
    }
}

/// A post to the network, microseconds.
const fn post_us(cpu: Cpu) -> f64 {
    match cpu {
        Cpu::Intel | Cpu::Arm => 1.0,
        Cpu::Amd => 2.0,
    }
}

/// Corrections of trees by size: powers of two from 64 B to 256 MiB.
const TREE_CORRECTION: [[f64; 23]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
        0.9, 0.9, 0.9, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
        0.7, 0.7, 0.8, 0.9, 0.9,
    ],
];

/// Channels that an algorithm is laid over, and the rate of each, GB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Graph {
    /// Channels.
    pub channels: u32,
    /// Rate of a channel inside the node, GB/s.
    pub intra_gbps: f64,
    /// Rate of a channel between nodes, GB/s.
    pub inter_gbps: f64,
}

const SPEEDS_INTRA: [&[f64]; 3] = [
    &[40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0],
    &[60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0],
    &[90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0],
];
const SPEEDS_INTER: [&[f64]; 3] = [
    &[48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0],
    &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0],
    &[96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0],
];

fn speeds(generation: Generation, inter: bool) -> &'static [f64] {
    let row = match generation {
        Generation::Volta | Generation::Ampere => 0,
        Generation::Hopper => 1,
        Generation::Blackwell => 2,
    };
    if inter { SPEEDS_INTER[row] } else { SPEEDS_INTRA[row] }
}

/// The largest speed of the table that is at most `limit`, or the smallest of all.
fn speed_below(table: &[f64], limit: f64) -> f64 {
    let within = table.iter().copied().find(|speed| *speed <= limit);
    within.unwrap_or_else(|| table.last().copied().unwrap_or(limit).min(limit))
}

/// Rings and trees of `placement`.
#[must_use]
pub(crate) fn ring_graph(placement: &Placement) -> Graph {
    let card = &placement.card;
    let total = if placement.per_domain == 1 { f64::INFINITY } else { card.nccl_gpu_gbps() };
    if placement.domains == 1 {
        let best = best_lanes(speeds(card.generation, false), total);
        return doubled(best.0, best.1, best.1, card.generation);
    }
    let lanes = net_lanes(placement);
    let lane = (placement.net_gbps / lanes).min(total / lanes);
    let speed = speed_below(speeds(card.generation, true), lane);
    doubled(lanes, speed, speed, card.generation)
}

/// Network devices of a domain as NCCL sees them, of which each starts a channel; at most 32.
fn net_lanes(placement: &Placement) -> f64 {
    let grouped = placement.network.as_ref().is_some_and(|network| network.groups_nics);
    let most = if grouped { placement.per_domain } else { 32 };
    f64::from(placement.nics.clamp(1, most.max(1)))
}

/// Lanes and their speed inside a node that can send `total`: the fastest lanes that use it best.
/// Lanes below half the speed of the best so far are not tried (`src/graph/search.cc`).
fn best_lanes(table: &[f64], total: f64) -> (f64, f64) {
    let mut best = (0.0, 0.0);
    for speed in table.iter().copied().filter(|speed| *speed <= total) {
        if best.1 > 0.0 && speed / best.1 <= 0.49 {
            break;
        }
        let lanes = libm::floor(total / speed).min(32.0);
        if lanes * speed > best.0 * best.1 {
            best = (lanes, speed);
        }
    }
    if best.0 > 0.0 { best } else { (1.0, total) }
}

/// Trees of `placement`: the rings' channels, whose speed inside the node is then raised while it
/// is below twice that between nodes and the links allow it (`src/graph/search.cc`, second pass).
#[must_use]
pub(crate) fn tree_graph(placement: &Placement) -> Graph {
    let mut graph = ring_graph(placement);
    if placement.domains == 1 || placement.per_domain == 1 {
        return graph;
    }
    let card = &placement.card;
    let gpus = f64::from(placement.per_domain);
    // A tree need not come back to the GPU that it started at.
    let most = card.nccl_gpu_gbps() * gpus / (gpus - 1.0) / f64::from(graph.channels);
    for speed in speeds(card.generation, true).iter().rev().copied() {
        if speed > graph.intra_gbps && graph.intra_gbps < 2.0 * graph.inter_gbps && speed <= most {
            graph.intra_gbps = speed;
        }
    }
    graph
}

/// Channels are doubled where that helps to fill fast links.
fn doubled(channels: f64, intra: f64, inter: f64, generation: Generation) -> Graph {
    let newer = matches!(generation, Generation::Hopper | Generation::Blackwell);
    let stays = intra < 25.0 || newer && intra < 50.0 && channels > 4.0;
    let times = if stays { 1.0 } else { 2.0 };
    Graph {
        channels: whole(channels * times),
        intra_gbps: intra / times,
        inter_gbps: inter / times,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u32 {
    value.clamp(1.0, 1e6) as u32
}

/// In-switch reduction: a channel for each GPU of the domain, at most 32.
#[must_use]
pub(crate) fn switch_graph(placement: &Placement) -> Graph {
    let card = &placement.card;
    let channels = placement.per_domain.min(32);
    let share = card.nccl_gpu_gbps() / f64::from(channels.max(1));
    let intra = speed_below(speeds(card.generation, false), share);
    let nic = placement.net_gbps / f64::from(channels.max(1));
    let inter = speed_below(speeds(card.generation, true), nic);
    let intra = if placement.domains > 1 {
        intra.max(speed_below(speeds(card.generation, true), share))
    } else {
        intra
    };
    Graph { channels, intra_gbps: intra, inter_gbps: inter }
}

/// The tuner's estimate of an algorithm and protocol, for any size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub(crate) algorithm: Algorithm,
    pub(crate) protocol: Protocol,
    gbps: f64,
    latency_us: f64,
    /// Trees have corrections by size.
    is_corrected: bool,
    /// From so many bytes on, the latency of a ring over several nodes is exposed: that many times as long.
    exposed: Option<(f64, f64)>,
}

impl Belief {
    /// None if the tuner does not offer them.
    pub(crate) fn of(
        placement: &Placement,
        settings: &Settings,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
    ) -> Option<Self> {
        if !offered(placement, settings, collective, algorithm, protocol) {
            return None;
        }
        let gbps = algorithm_gbps(placement, settings, collective, algorithm, protocol);
        if gbps <= 0.0 {
            return None;
        }
        let generation = placement.card.generation;
        let is_corrected = collective == Collective::AllReduce
            && (algorithm == Algorithm::Tree
                || algorithm == Algorithm::NvlsTree
                    && generation == Generation::Blackwell
                    && placement.card.cpu != Cpu::Arm);
        let is_exposed = algorithm == Algorithm::Ring
            && protocol == Protocol::Simple
            && placement.domains > 1
            && collective == Collective::AllReduce;
        let exposed = is_exposed.then(|| {
            let channels = f64::from(ring_graph(placement).channels * 2);
            let times = if generation == Generation::Volta { 1.9 } else { 1.4 };
            (64.0 * channels * f64::from(placement.ranks), times)
        });
        let latency_us = latency_us(placement, collective, algorithm, protocol);
        Some(Self { algorithm, protocol, gbps, latency_us, is_corrected, exposed })
    }

    /// The estimate for `bytes`, microseconds.
    pub(crate) fn us(&self, bytes: f64) -> f64 {
        let logarithm = if bytes < 64.0 { -1.0 } else { libm::floor(libm::log2(bytes / 64.0)) };
        let mut gbps = self.gbps;
        if self.is_corrected && (0.0..23.0).contains(&logarithm) {
            gbps *= TREE_CORRECTION[self.protocol.index()][whole(logarithm + 1.0) as usize - 1];
        }
        let mut latency = self.latency_us;
        if let Some((from, times)) = self.exposed
            && bytes >= from
        {
            latency *= times;
        }
        latency + bytes / (1000.0 * gbps)
    }
}

/// All that the tuner offers, in the order of its tables.
pub(crate) fn beliefs(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
) -> Vec<Belief> {
    let ways = Algorithm::TUNED
        .into_iter()
        .flat_map(|algorithm| Protocol::ALL.map(|protocol| (algorithm, protocol)));
    ways.filter_map(|(algorithm, protocol)| {
        Belief::of(placement, settings, collective, algorithm, protocol)
    })
    .collect()
}

/// True if the tuner offers an algorithm and protocol at all.
fn offered(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
) -> bool {
    let card = &placement.card;
    if !settings.allows_algorithm(collective, algorithm)
        || !settings.allows_protocol(collective, protocol)
    {
        return false;
    }
    let several = placement.domains > 1;
    let moves = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
    let simple = protocol == Protocol::Simple;
    if protocol == Protocol::Ll128 && !settings.asks_for_protocol(collective, protocol) {
        let slow = card.intra == Intra::Pcie || card.intra == Intra::Xgmi;
        if slow || placement.network.as_ref().is_some_and(|network| !network.ll128) {
            return false;
        }
    }
    let switch = card.nvls && !settings.nvls_off;
    match (collective, algorithm) {
        (Collective::AllToAll | Collective::SendRecv, _) => false,
        (_, Algorithm::Ring) => true,
        (Collective::AllReduce, Algorithm::Tree) => true,
        (Collective::AllReduce, Algorithm::NvlsTree) => switch && several && simple,
        (Collective::AllReduce, Algorithm::Nvls) => {
            switch && simple && (!several || settings.coll_net)
        }
        (_, Algorithm::Nvls) => moves && switch && simple && !several,
        (Collective::AllReduce, Algorithm::CollNetDirect) => {
            simple && several && settings.coll_net && card.intra == Intra::Nvswitch
        }
        (Collective::AllReduce, Algorithm::CollNetChain) => simple && several && settings.coll_net,
        (_, Algorithm::Pat) => {
            moves && simple && several && placement.per_domain == 1 && card.intra != Intra::Xgmi
        }
        _ => false,
    }
}

/// The channels that an algorithm is laid over.
fn graph_of(placement: &Placement, algorithm: Algorithm) -> Graph {
    match algorithm {
        Algorithm::Nvls | Algorithm::NvlsTree => switch_graph(placement),
        Algorithm::Tree => tree_graph(placement),
        _ => ring_graph(placement),
    }
}

/// Part of an algorithm's channels that `NCCL_MAX_NCHANNELS` leaves, and so of its bandwidth: the cost
/// model's is channels times the rate of each. More channels than its search found carry no more.
#[must_use]
pub(crate) fn channel_share(
    placement: &Placement,
    settings: &Settings,
    algorithm: Algorithm,
) -> f64 {
    if settings.max_channels.is_none() {
        return 1.0;
    }
    let channels = graph_of(placement, algorithm).channels.max(1);
    f64::from(settings.at_most(channels)) / f64::from(channels)
}

/// The tuner's algorithm bandwidth, GB/s.
fn algorithm_gbps(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
) -> f64 {
    let caps = caps(placement.card.generation);
    let nodes = (placement.domains.clamp(1, 3) - 1) as usize;
    let ll_most =
        if nodes == 0 { caps.ll_one_node } else { ll_nodes(placement.card.cpu)[nodes - 1] };
    let ranks = f64::from(placement.ranks);
    let per_node = ranks / f64::from(placement.domains);
    let moves = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
    let switch = matches!(algorithm, Algorithm::Nvls | Algorithm::NvlsTree);
    let mut graph = graph_of(placement, algorithm);
    graph.channels = settings.at_most(graph.channels);
    let channels = f64::from(graph.channels);
    // With one GPU a node all trees begin and end at the same GPU.
    let pattern = if placement.per_domain == 1 { 0.85 } else { 1.0 };
    let mut per_channel = if nodes < 2 { graph.intra_gbps } else { graph.inter_gbps };
    if switch {
        if graph.channels < 2 {
            return 0.0;
        }
        let intra = graph.intra_gbps * caps.nvls_efficiency * (channels - 1.0) / channels;
        let intra = if moves { intra * (per_node - 1.0) / per_node } else { intra * 2.0 };
        let doubles = if nodes < 2 && algorithm == Algorithm::NvlsTree { 2.0 } else { 1.0 };
        let inter = if nodes == 0 { f64::INFINITY } else { graph.inter_gbps * doubles };
        let cap =
            if algorithm == Algorithm::NvlsTree { caps.nvls_tree[nodes] } else { f64::INFINITY };
        per_channel = intra.min(inter).min(cap);
    }
    let mut bus = channels * per_channel;
    match (algorithm, protocol) {
        (Algorithm::Ring, Protocol::Ll) => bus = ll_most.min(bus * 0.5),
        (Algorithm::Ring, Protocol::Ll128) => bus = (bus * 0.92).min(channels * caps.ring_ll128),
        (Algorithm::Tree, _) => {
            bus = (bus * 0.92).min(channels * caps.tree[nodes]);
            if protocol == Protocol::Ll {
                bus = (bus / 3.8).min(ll_most);
            } else if protocol == Protocol::Ll128 {
                let share = if nodes == 0 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                bus = (bus * share).min(channels * caps.tree_ll128[nodes]);
            }
            bus *= pattern;
        }
        (Algorithm::Pat, _) => bus *= 0.75,
        (Algorithm::CollNetDirect, _) => {
            let factor = per_node / channels;
            bus /= factor - (factor - 1.0) / 2.0;
            if placement.card.generation == Generation::Hopper {
                bus *= 0.85;
            }
        }
        _ => {}
    }
    if moves && algorithm != Algorithm::Ring {
        return bus;
    }
    let ring_like = algorithm == Algorithm::Ring || switch;
    bus * if ring_like { ranks / collective.ring_steps(placement.ranks) } else { 0.5 }
}

/// The tuner's latency, microseconds.
fn latency_us(
    placement: &Placement,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
) -> f64 {
    let p = protocol.index();
    let inside = match placement.card.intra {
        Intra::Nvswitch | Intra::Mesh => Hardware::Nvlink,
        Intra::Pcie | Intra::Xgmi => Hardware::Pci,
    };
    let several = placement.domains > 1;
    let domains = f64::from(placement.domains);
    let inner = f64::from(placement.per_domain) - 1.0;
    let intra = step_us(inside, algorithm)[p];
    // With one rank a node, latencies are exposed: the tree's are taken.
    let between = if placement.per_domain == 1 { Algorithm::Tree } else { algorithm };
    let told = placement.network.as_ref().map_or(0.0, |network| network.plugin_latency_us);
    let flush = if protocol == Protocol::Simple { 2.0 } else { 1.0 };
    let inter = step_us(Hardware::Net, between)[p] + told * flush;
    let base = base_us(algorithm)[p];
    let steps = collective.ring_steps(placement.ranks);
    match algorithm {
        Algorithm::Ring if matches!(collective, Collective::Broadcast | Collective::Reduce) => {
            base + step_us(if several { Hardware::Net } else { inside }, algorithm)[p]
        }
        Algorithm::Ring => {
            let overhead = match (several, protocol) {
                (false, _) => 0.0,
                (true, Protocol::Simple) => 3.0 * post_us(placement.card.cpu),
                (true, _) => post_us(placement.card.cpu),
            };
            let hops = if collective == Collective::AllReduce {
                2.0 * (domains - 1.0)
            } else {
                domains - 1.0
            };
            base + (steps - hops) * intra.max(overhead) + hops * inter
        }
        Algorithm::Tree => base + 2.0 * (inner * intra + placement.tree_levels() * inter),
        Algorithm::CollNetDirect => base + 2.0 * (inner.min(1.0) * intra + inner * 0.4) + inter,
        Algorithm::CollNetChain => base + 2.0 * inner * intra + inter,
        Algorithm::Nvls => intra + if several { inter } else { 0.0 },
        Algorithm::NvlsTree => base + intra + 2.0 * placement.tree_levels() * inter,
        Algorithm::Pat => {
            base + placement.tree_levels() * (inter / 3.5) + f64::from(placement.ranks) * 2.8
        }
        Algorithm::P2p => base,
    }
}

/// Channels that a call of `bytes` uses (NCCL's `topoGetAlgoInfo`).
#[must_use]
pub fn channels(
    placement: &Placement,
    settings: &Settings,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: f64,
) -> u32 {
    if matches!(algorithm, Algorithm::Nvls | Algorithm::NvlsTree) {
        let most = match placement.card.generation {
            Generation::Blackwell if placement.domains > 1 => 32,
            Generation::Blackwell => 24,
            _ => 16,
        };
        return settings.bounded_channels(most);
    }
    let graph = ring_graph(placement);
    let count = if algorithm == Algorithm::P2p { graph.channels } else { graph.channels * 2 };
    let mut count = settings.bounded_channels(count);
    let slow = f64::from(graph.channels) * graph.intra_gbps <= 12.0;
    let threads = match protocol {
        Protocol::Ll128 => 640.0,
        Protocol::Simple if slow && algorithm == Algorithm::Ring => 256.0,
        _ => 512.0,
    };
    let threshold = match (protocol, algorithm) {
        (Protocol::Ll, Algorithm::Ring) => 8.0 * f64::from(placement.ranks),
        (Protocol::Ll | Protocol::Ll128, _) => 8.0,
        (Protocol::Simple, _) => 64.0,
    };
    while count > 1 && bytes < f64::from(count) * threads * threshold {
        count -= 1;
    }
    count
}
