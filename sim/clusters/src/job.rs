//! A job on a cluster: which rank sits on which node, and what the calls of its plan take.
//!
//! Every group of a plan gets the placement that its members have: how many nodes it spans, and how
//! many members share one. The times are those of `lockstep time` for that placement. They go into a
//! table before the simulation, so that the simulation stays a function of plan and configuration.

use crate::catalog::{Catalog, CatalogError, PlaceError};
use crate::choice::{NoChoice, float};
use crate::cluster::Cluster;
use crate::collective::Collective;
use crate::fabric::{Busy, Fabric};
use crate::fault::{FabricFault, FabricFaultError};
use crate::given::Calibration;
use crate::model;
use crate::node_counts::sends_and_receives;
use crate::placement::{MOST_NODES, Placement, PlacementError};
use crate::planes::Planes;
use crate::predict::{Prediction, predict};
use crate::settings::Settings;
use lockstep_core::collective::Collective as Call;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{
    CallTimes, LinkLoad, NamedCluster, Plan, TimedCall, TimedTransfer, TransferTime,
};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// Picoseconds of a microsecond.
const PS_PER_US: f64 = 1e6;

/// Ranks of a job on a cluster, in rank order: so many on each node.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    catalog: &'a Catalog,
    cluster: Cluster,
    /// Ranks a node; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Nodes that the job takes.
    pub nodes: u32,
    world_size: u32,
    faults: Vec<FabricFault>,
    nics_down: BTreeMap<u32, u32>,
    planes: Planes,
}

/// The times of a plan's calls, and what backs them.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The times of calls, as the simulator takes them.
    pub call_times: CallTimes,
    /// Calls that no measured table of such a machine backs, in words: `all_to_all over 4 nodes`.
    pub extrapolated: Vec<String>,
}

/// The reason that a plan's calls cannot be timed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The ranks do not fit on the cluster.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The settings leave no choice.
    #[error(transparent)]
    NoChoice(#[from] NoChoice),
    /// A fault that the job has no place for.
    #[error(transparent)]
    Fault(#[from] FabricFaultError),
}

impl From<PlacementError> for JobError {
    fn from(error: PlacementError) -> Self {
        Self::Place(error.into())
    }
}

impl From<CatalogError> for JobError {
    fn from(error: CatalogError) -> Self {
        Self::Place(error.into())
    }
}

impl<'a> Job<'a> {
    /// `world_size` ranks on `cluster`, `ranks_per_node` on each node; all GPUs of a node if it is
    /// not said.
    ///
    /// # Errors
    /// If a node has fewer GPUs, or there are more nodes than the model goes to.
    pub fn new(
        catalog: &'a Catalog,
        cluster: &Cluster,
        world_size: u32,
        ranks_per_node: Option<u32>,
    ) -> Result<Self, JobError> {
        let gpus = cluster.gpus_per_node;
        let ranks_per_node = ranks_per_node.unwrap_or(gpus);
        if ranks_per_node == 0 {
            return Err(PlacementError::Nothing { what: "--ranks-per-node" }.into());
        }
        if ranks_per_node > gpus {
            let (cluster, asked) = (cluster.name.clone(), ranks_per_node);
            return Err(PlacementError::TooManyPerNode { cluster, gpus, asked }.into());
        }
        let nodes = world_size.div_ceil(ranks_per_node);
        if nodes > MOST_NODES {
            return Err(PlacementError::TooManyNodes { nodes: nodes.into() }.into());
        }
        catalog.card(&cluster.card)?;
        let (cluster, nics_down) = (cluster.clone(), BTreeMap::new());
        let planes = Planes::new(cluster.planes.unwrap_or(1));
        Ok(Self {
            catalog,
            cluster,
            ranks_per_node,
            nodes,
            world_size,
            faults: Vec::new(),
            nics_down,
            planes,
        })
    }

    /// The same job on a fabric with faults.
    ///
    /// # Errors
    /// If a fault names a rank, node or plane that the job has not, or takes a node's last NIC or the last plane.
    pub fn with_faults(mut self, faults: &[FabricFault]) -> Result<Self, JobError> {
        let (nics, planes) = (self.cluster.nics_per_node, self.planes);
        let (world_size, nodes) = (self.world_size, self.nodes);
        for fault in faults {
            let check = |fault: FabricFault| fault.check((world_size, nodes), nics, planes.count());
            check(*fault)?;
            if let FabricFault::Nic { node, down } = *fault {
                let all = self.nics_down.entry(node).or_default();
                *all = all.saturating_add(down);
                check(FabricFault::Nic { node, down: *all })?;
            }
            if let FabricFault::Plane { plane, rate } = *fault {
                self.planes.slow(plane, rate);
                if self.planes.all_are_down() {
                    let (fault, planes) = (fault.to_string(), planes.count());
                    return Err(FabricFaultError::NoPlaneLeft { fault, planes }.into());
                }
            }
        }
        self.faults = faults.to_vec();
        Ok(self)
    }

    /// The parts of the rates inside a domain and between domains that are left for some ranks.
    fn rates(&self, members: &[GlobalRank]) -> [f64; 2] {
        let (mut inside, mut outside) = (1.0f64, 1.0f64);
        for fault in &self.faults {
            match *fault {
                FabricFault::Node { node, rate } => {
                    let on = members.iter().filter(|rank| rank.0 / self.ranks_per_node == node);
                    if on.count() > 1 {
                        inside = inside.min(rate);
                    }
                }
                FabricFault::Link { rank, rate } => {
                    let domain = |rank: u32| rank / self.ranks_per_domain().max(1);
                    let fellows = members.iter().filter(|it| domain(it.0) == domain(rank));
                    if members.contains(&GlobalRank(rank)) && fellows.count() > 1 {
                        inside = inside.min(rate);
                    }
                }
                FabricFault::Spine { rate } => outside = outside.min(rate),
                FabricFault::Nic { .. } | FabricFault::Gpu { .. } | FabricFault::Plane { .. } => {}
            }
        }
        [inside, outside * self.planes.left()]
    }

    /// Ranks that reach each other without the network, in rank order: those of a node, or of a
    /// rack's nodes.
    #[must_use]
    pub fn ranks_per_domain(&self) -> u32 {
        self.ranks_per_node.saturating_mul(self.cluster.machines_of_domain(self.nodes))
    }

    /// The placement of a group's members: their nodes and ranks per node.
    ///
    /// # Errors
    /// If they span nodes of a cluster without a network, or there is only one.
    pub fn placement(&self, members: &[GlobalRank]) -> Result<Placement, JobError> {
        let mut on_nodes: BTreeMap<u32, u32> = BTreeMap::new();
        for rank in members {
            *on_nodes.entry(rank.0 / self.ranks_per_node).or_default() += 1;
        }
        let card = self.catalog.card(&self.cluster.card)?;
        let network = self.cluster.network.as_deref().and_then(|name| self.catalog.network(name));
        let machines = self.cluster.machines_of_domain(self.nodes);
        let (cluster, down) = (&self.cluster, &self.nics_down);
        let placed = Placement::of_members(cluster, card, network, &on_nodes, machines, down)?;
        let [inside_rate, outside_rate] = self.rates(members);
        Ok(Placement { inside_rate, outside_rate, ..placed })
    }

    /// The links of the job's fabric.
    #[must_use]
    pub fn fabric(&self) -> Fabric {
        Fabric::new(&self.cluster, self.world_size, self.ranks_per_node, self.nodes, self.planes)
    }

    /// The times of a plan's calls.
    ///
    /// # Errors
    /// If a group that calls something cannot be placed.
    pub fn timing(&self, plan: &Plan) -> Result<Timing, JobError> {
        self.timing_of(plan, plan.timed_calls())
    }

    /// The times of these collectives of a plan's groups, and of the plan's transfers.
    ///
    /// # Errors
    /// If a group that calls something cannot be placed.
    pub fn timing_of(&self, plan: &Plan, calls: Vec<TimedCall>) -> Result<Timing, JobError> {
        let mut call_times = CallTimes::new(String::new());
        let mut extrapolated = BTreeSet::new();
        let mut placements: BTreeMap<GroupId, Option<Placement>> = BTreeMap::new();
        let mut place = |group: GroupId| -> Result<Option<Placement>, JobError> {
            if let Some(known) = placements.get(&group) {
                return Ok(known.clone());
            }
            let members = plan.group(group).map(|group| group.ranks()).unwrap_or_default();
            let placement = match members.len() {
                0 | 1 => None,
                _ => Some(self.placement(members)?),
            };
            placements.insert(group, placement.clone());
            Ok(placement)
        };
        let settings = Settings::default();
        let points = self.catalog.given_points(&self.cluster)?;
        let calibration = Calibration::of_points(&settings, &points)?;
        let fabric = self.fabric();
        let transfers = plan.timed_transfers();
        let has_sends = !transfers.is_empty();
        let mut loads: Vec<(TimedCall, Vec<LinkLoad>)> = Vec::new();
        let mut of_sends: Vec<(TimedTransfer, Vec<LinkLoad>)> = Vec::new();
        for call in calls {
            let Some(placement) = place(call.group)? else { continue };
            let collective = nccl_call(call.collective);
            let took = predict(&placement, &settings, collective, call.bytes, &calibration)?;
            call_times.set_collective(call, picoseconds(took.time_us));
            let members = plan.group(call.group).map(|group| group.ranks()).unwrap_or_default();
            if plan.groups.len() > 1 || has_sends {
                let busy = busy_of(&placement, collective, &took);
                let domain = self.ranks_per_domain();
                loads.push((call, fabric.loads(members, domain, &placement, busy, has_sends)));
            }
            if !is_nccl_call(call.collective) || !self.cluster.backs(collective, placement.domains)
            {
                extrapolated.insert(over(call.collective.name(), placement.domains));
            }
        }
        for transfer in transfers {
            let TimedTransfer { group, from, to, bytes } = transfer;
            let Some(placement) = place(group)?.filter(|_| from != to) else { continue };
            let domain = |rank: GlobalRank| rank.0 / self.ranks_per_domain().max(1);
            let is_inside = domain(from) == domain(to);
            let placement = if is_inside { placement.inside() } else { placement };
            of_sends.push((transfer, fabric.loads_of_send(from, to, !is_inside)));
            // A slow link elsewhere in the group is not on the way.
            let [inside_rate, outside_rate] = self.rates(&[from, to]);
            let placement = Placement { inside_rate, outside_rate, ..placement };
            call_times.set_transfer(transfer, transfer_time(&placement, bytes, &calibration));
            if !self.cluster.backs(Collective::SendRecv, placement.domains.min(2)) {
                extrapolated.insert(over("send and recv", placement.domains.min(2)));
            }
        }
        set_shared_loads(&mut call_times, loads, of_sends);
        for fault in &self.faults {
            if let FabricFault::Gpu { rank, rate } = *fault {
                call_times.set_rate(GlobalRank(rank), thousandths(rate));
            }
        }
        let extrapolated: Vec<String> = extrapolated.into_iter().collect();
        call_times.machine = self.words(plan, &extrapolated);
        call_times.cluster = Some(NamedCluster {
            name: self.cluster.name.clone(),
            ranks_per_node: self.ranks_per_node,
            faults: self.faults.iter().map(FabricFault::to_string).collect(),
        });
        Ok(Timing { call_times, extrapolated })
    }

    /// The links that each collective of a plan loads while it is carried out alone, those of its
    /// group only among them.
    ///
    /// # Errors
    /// If a group that calls something cannot be placed.
    pub fn loads(&self, plan: &Plan) -> Result<BTreeMap<TimedCall, Vec<LinkLoad>>, JobError> {
        let settings = Settings::default();
        let points = self.catalog.given_points(&self.cluster)?;
        let calibration = Calibration::of_points(&settings, &points)?;
        let fabric = self.fabric();
        let mut loads = BTreeMap::new();
        for call in plan.timed_calls() {
            let members = plan.group(call.group).map(|group| group.ranks()).unwrap_or_default();
            if members.len() < 2 {
                continue;
            }
            let placement = self.placement(members)?;
            let collective = nccl_call(call.collective);
            let took = predict(&placement, &settings, collective, call.bytes, &calibration)?;
            let busy = busy_of(&placement, collective, &took);
            let domain = self.ranks_per_domain();
            let of_call = fabric.loads(members, domain, &placement, busy, false);
            loads.insert(call, of_call);
        }
        Ok(loads)
    }

    /// The machine in words, for a trace's origin.
    fn words(&self, plan: &Plan, extrapolated: &[String]) -> String {
        let each = self.ranks_per_node.min(self.world_size);
        let plural = if self.nodes == 1 { "" } else { "s" };
        let mut words = format!(
            "cluster {} ({}), {} node{plural} of {each}; calls take what NCCL takes there",
            self.cluster.name, self.cluster.title, self.nodes
        );
        let others = plan.groups.iter().map(|group| group.backend());
        let others: BTreeSet<BackendName> =
            others.filter(|it| matches!(it, BackendName::Gloo | BackendName::Mpi)).collect();
        if !others.is_empty() {
            let names: Vec<&str> = others.into_iter().map(BackendName::name).collect();
            words += &format!(", those of {} too", names.join(" and "));
        }
        if !self.faults.is_empty() {
            let faults: Vec<String> = self.faults.iter().map(FabricFault::to_string).collect();
            words += &format!("; with {}", faults.join(" "));
        }
        if !extrapolated.is_empty() {
            words += &format!("; extrapolated: {}", extrapolated.join(", "));
        }
        words
    }
}

/// Tells the table the loads of calls on links that several groups load, or sends too: a group's own calls
/// follow each other. Where no send meets a collective on a link, sends keep to their ranks' ports.
fn set_shared_loads(
    times: &mut CallTimes,
    loads: Vec<(TimedCall, Vec<LinkLoad>)>,
    of_sends: Vec<(TimedTransfer, Vec<LinkLoad>)>,
) {
    // The one source of a link's load: a group's collectives, or any sends; `None` for several.
    #[derive(PartialEq)]
    enum User {
        Group(GroupId),
        Sends,
    }
    let mut users: BTreeMap<u32, Option<User>> = BTreeMap::new();
    let by_groups = loads.iter().map(|(call, loads)| (Some(call.group), loads));
    for (group, loads) in by_groups.chain(of_sends.iter().map(|(_, loads)| (None, loads))) {
        for load in loads {
            let user = || Some(group.map_or(User::Sends, User::Group));
            let known = users.entry(load.link).or_insert_with(user);
            if *known != user() {
                *known = None;
            }
        }
    }
    let shared = |load: &LinkLoad| users.get(&load.link) == Some(&None);
    for (call, loads) in loads {
        let shared: Vec<LinkLoad> = loads.into_iter().filter(shared).collect();
        if !shared.is_empty() {
            times.set_loads(call, shared);
        }
    }
    if of_sends.iter().any(|(_, loads)| loads.iter().any(shared)) {
        for (send, loads) in of_sends {
            times.set_transfer_loads(send, loads);
        }
    }
}

/// The parts of a call's time that it keeps its links busy.
fn busy_of(placement: &Placement, collective: Collective, took: &Prediction) -> Busy {
    let (algorithm, protocol) = (took.algorithm, took.protocol);
    let busy = model::busy_us(
        placement,
        &Settings::default(),
        collective,
        algorithm,
        protocol,
        float(took.bytes),
    );
    Busy { collective, shares: busy.map(|busy| (busy / took.time_us).min(1.0)) }
}

fn over(what: &str, domains: u32) -> String {
    match domains {
        1 => format!("{what} on 1 node"),
        nodes => format!("{what} over {nodes} nodes"),
    }
}

/// The call of NCCL that takes as long: gather and scatter are sends and receives with their root,
/// whose part is that of an all_to_all, and a barrier is an all_reduce.
fn nccl_call(call: Call) -> Collective {
    match call {
        Call::AllReduce { .. } | Call::Barrier | Call::MonitoredBarrier { .. } => {
            Collective::AllReduce
        }
        Call::AllGather => Collective::AllGather,
        Call::ReduceScatter { .. } => Collective::ReduceScatter,
        Call::Broadcast { .. } => Collective::Broadcast,
        Call::Reduce { .. } => Collective::Reduce,
        Call::AllToAll | Call::Gather { .. } | Call::Scatter { .. } => Collective::AllToAll,
    }
}

/// True if NCCL has the call itself.
fn is_nccl_call(call: Call) -> bool {
    !matches!(call, Call::Gather { .. } | Call::Scatter { .. } | Call::MonitoredBarrier { .. })
}

/// A send and its receive: the transfer occupies the ports, the rest is latency.
fn transfer_time(placement: &Placement, bytes: u64, calibration: &Calibration) -> TransferTime {
    let (settings, collective) = (Settings::default(), Collective::SendRecv);
    let parts = sends_and_receives(placement, &settings, collective, bytes);
    let corrected = calibration.time_us(placement, &settings, collective, bytes);
    let factor = corrected.map_or(1.0, |us| us / parts.time_us());
    let [whole, transmit_ps] =
        [parts.time_us(), parts.transfer_us].map(|us| picoseconds(us * factor));
    TransferTime { latency_ps: whole.saturating_sub(transmit_ps), transmit_ps }
}

/// A part of a rate in thousandths, at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn thousandths(rate: f64) -> u64 {
    libm::round(rate * 1000.0).clamp(1.0, 1000.0) as u64
}

/// A time in whole picoseconds.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn picoseconds(us: f64) -> u64 {
    libm::round(us * PS_PER_US).clamp(0.0, 1e19) as u64
}
