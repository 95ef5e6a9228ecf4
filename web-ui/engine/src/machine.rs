//! Machines: how a plan is simulated on one, and the times of its calls on a named cluster.

use lockstep_clusters::{Catalog, CatalogError, Job, Timing};
use lockstep_core::plan::{CallTimes, Plan, TimedCall};
use lockstep_sim::{Link, SimConfig, Topology};
use lockstep_web_protocol::{KnownCluster, Machine};
use std::sync::{Arc, OnceLock};

/// The clusters that ship.
///
/// # Errors
/// If a shipped file is wrong.
pub(super) fn catalog() -> Result<&'static Catalog, String> {
    static SHIPPED: OnceLock<Result<Catalog, CatalogError>> = OnceLock::new();
    SHIPPED.get_or_init(Catalog::shipped).as_ref().map_err(ToString::to_string)
}

/// The clusters that ship, as a form lists them, by name.
pub(super) fn known_clusters() -> Result<Vec<KnownCluster>, String> {
    let mut known: Vec<KnownCluster> = catalog()?
        .clusters
        .iter()
        .map(|cluster| KnownCluster {
            name: cluster.name.clone(),
            aliases: cluster.aliases.clone(),
            title: cluster.title.clone(),
            gpus_per_node: cluster.gpus_per_node,
            measured: !cluster.measured.is_empty(),
        })
        .collect();
    known.sort();
    Ok(known)
}

/// A job of so many ranks on a cluster; 0 ranks a node take all GPUs of one.
pub(super) fn job(
    cluster: &str,
    world_size: u32,
    ranks_per_node: u32,
) -> Result<Job<'static>, String> {
    let catalog = catalog()?;
    let cluster = catalog.cluster(cluster).map_err(|error| error.to_string())?;
    let each = (ranks_per_node > 0).then_some(ranks_per_node);
    Job::new(catalog, cluster, world_size, each).map_err(|error| error.to_string())
}

/// How a plan is simulated on a machine, as `lockstep sim` does it with the same options.
///
/// # Errors
/// If there is no such cluster, or it does not hold the plan's ranks.
pub fn config(plan: &Plan, machine: Machine) -> Result<SimConfig, String> {
    let Machine::Cluster { name, ranks_per_node } = machine else {
        return Ok(SimConfig { topology: machine.links(), ..SimConfig::default() });
    };
    let each = if ranks_per_node > 0 { ranks_per_node } else { plan.ranks_per_node };
    let job = job(&name, plan.world_size, each)?;
    let timing = job.timing(plan).map_err(|error| error.to_string())?;
    // Every call of the plan has its time; the links are for what a store carries.
    let topology = Topology::Nodes {
        ranks_per_node: job.ranks_per_domain(),
        inside: Link::NVLINK,
        across: Link::DEFAULT,
    };
    let call_times = Some(Arc::new(timing.call_times));
    Ok(SimConfig { topology, call_times, ..SimConfig::default() })
}

/// The times of a plan's calls on a machine, and what each of them takes without its bytes; none
/// where messages over links make them.
///
/// # Errors
/// As [`config`].
pub(super) fn call_times(
    plan: &Plan,
    machine: Machine,
) -> Result<Option<(CallTimes, Vec<String>)>, String> {
    let Machine::Cluster { name, ranks_per_node } = machine else { return Ok(None) };
    let job = job(&name, plan.world_size, ranks_per_node)?;
    let mut calls = plan.timed_calls();
    calls.extend(calls.clone().into_iter().map(|call| TimedCall { bytes: 0, ..call }));
    let timing = job.timing_of(plan, calls).map_err(|error| error.to_string())?;
    let Timing { call_times, extrapolated } = timing;
    Ok(Some((call_times, extrapolated)))
}
