//! Machines: how a plan is simulated on one, and the times of its calls on a named cluster.

use lockstep_clusters::fault::FabricFaultError;
use lockstep_clusters::{Catalog, CatalogError, FabricFault, Job, Timing};
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

/// A job of so many ranks on a cluster; 0 ranks a node take all GPUs of one. `fault` is what is slow or down of its
/// fabric, in the command line's words; nothing if it is empty.
pub(super) fn job(
    cluster: &str,
    world_size: u32,
    ranks_per_node: u32,
    fault: &str,
) -> Result<Job<'static>, String> {
    let catalog = catalog()?;
    let cluster = catalog.cluster(cluster).map_err(|error| error.to_string())?;
    let each = (ranks_per_node > 0).then_some(ranks_per_node);
    let job = Job::new(catalog, cluster, world_size, each).map_err(|error| error.to_string())?;
    if fault.is_empty() {
        return Ok(job);
    }
    let fault: FabricFault = fault.parse().map_err(|error: FabricFaultError| error.to_string())?;
    job.with_faults(&[fault]).map_err(|error| error.to_string())
}

/// The simulation of a plan on a machine, as `lockstep sim` does it with the same options.
///
/// # Errors
/// If there is no such cluster, or it does not hold the plan's ranks.
pub fn config(plan: &Plan, machine: Machine) -> Result<SimConfig, String> {
    let Machine::Cluster { name, ranks_per_node, fault } = machine else {
        return Ok(SimConfig { topology: machine.links(), ..SimConfig::default() });
    };
    let each = if ranks_per_node > 0 { ranks_per_node } else { plan.ranks_per_node };
    let job = job(&name, plan.world_size, each, &fault)?;
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
    let Machine::Cluster { name, ranks_per_node, fault } = machine else { return Ok(None) };
    let job = job(&name, plan.world_size, ranks_per_node, &fault)?;
    let mut calls = plan.timed_calls();
    calls.extend(calls.clone().into_iter().map(|call| TimedCall { bytes: 0, ..call }));
    let timing = job.timing_of(plan, calls).map_err(|error| error.to_string())?;
    let Timing { call_times, extrapolated } = timing;
    Ok(Some((call_times, extrapolated)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_clusters::compare::Site;
    use lockstep_clusters::job::picoseconds;
    use lockstep_clusters::{Calibration, Collective as Timed, Settings, Understood};
    use lockstep_core::collective::Collective;
    use lockstep_core::plan::CollectiveLab;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_sim::simulate;
    use lockstep_web_protocol::{ClusterName, FabricFaultText};

    fn on(cluster: &str, ranks_per_node: u32) -> Machine {
        Machine::on_cluster(ClusterName::from(cluster).unwrap(), ranks_per_node)
    }

    /// A simulated call takes what `lockstep time` says of the same call there.
    #[test]
    fn a_call_takes_what_lockstep_time_says() {
        let root = GroupRank(0);
        let calls = [
            (Collective::AllReduce { op: ReduceOp::Sum }, Timed::AllReduce, 1),
            (Collective::AllGather, Timed::AllGather, 0),
            (Collective::AllToAll, Timed::AllToAll, 0),
            (Collective::Broadcast { root }, Timed::Broadcast, 1),
        ];
        for (name, each) in [("h100x8", 8), ("h100x8", 4), ("dgx-a100", 8), ("gh200x4", 4)] {
            for (call, timed, whole) in calls {
                let (world, count) = (2 * each, 1 << 20);
                let plan = CollectiveLab::new(call, world, count).plan().unwrap();
                let catalog = catalog().unwrap();
                let cluster = catalog.cluster(name).unwrap().clone();
                let placement = catalog.place(&cluster, 2, each).unwrap();
                let settings = Settings::default();
                let understood = Understood::default();
                let site = Site { cluster, placement, settings, collective: timed, understood };
                let bytes = 4 * count * if whole == 1 { 1 } else { u64::from(world) };
                let said = site.predict(bytes, &Calibration::default()).unwrap();
                // Ranks a node may be the machine's or the plan's.
                let laid = Plan { ranks_per_node: each, ..plan.clone() };
                for (plan, ranks_per_node) in [(plan, each), (laid, 0)] {
                    let config = config(&plan, on(name, ranks_per_node)).unwrap();
                    let end = simulate(&plan, &config).unwrap().end.unwrap();
                    assert_eq!(end.time_ps, picoseconds(said.time_us), "{call} on {name}");
                }
            }
        }
    }

    /// Faults are those of `lockstep sim --cluster-fault`.
    #[test]
    fn a_fault_makes_calls_slower_and_a_wrong_one_is_refused() {
        let call = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = CollectiveLab::new(call, 16, 1 << 22).plan().unwrap();
        let took = |fault: &str| {
            let name = ClusterName::from("h100x8").unwrap();
            let fault = FabricFaultText::from(fault).unwrap();
            let config = config(&plan, Machine::Cluster { name, ranks_per_node: 8, fault })?;
            Ok::<u64, String>(simulate(&plan, &config).unwrap().end.unwrap().time_ps)
        };
        let healthy = took("").unwrap();
        for fault in ["spine:rate=0.25", "nic:node=1,down=4", "link:rank=3,rate=0.25"] {
            assert!(took(fault).unwrap() > healthy, "{fault}");
        }
        assert!(took("spine:rate=2").unwrap_err().contains("above 0"));
        assert!(took("nic:node=7,down=1").unwrap_err().contains("2 nodes"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let plan = |world| {
            let call = Collective::AllReduce { op: ReduceOp::Sum };
            CollectiveLab::new(call, world, 16).plan().unwrap()
        };
        let wrong = |world, machine| config(&plan(world), machine).unwrap_err();
        assert!(wrong(8, on("h100x9", 0)).contains("h100x8"));
        assert!(wrong(16, on("h100x8", 16)).contains("8 GPUs a node"));
        assert!(wrong(16, on("4090x8-pcie", 8)).contains("without a network"));
    }

    #[test]
    fn clusters_are_listed_once_with_their_other_names() {
        let known = known_clusters().unwrap();
        assert!(known.windows(2).all(|pair| pair[0].name < pair[1].name));
        let h100 = KnownCluster::called(&known, "H100X8").unwrap();
        assert_eq!((h100.name.as_str(), h100.gpus_per_node, h100.measured), ("h100x8", 8, true));
        for cluster in &catalog().unwrap().clusters {
            for alias in &cluster.aliases {
                let found = KnownCluster::called(&known, alias).unwrap();
                assert_eq!(found.name, catalog().unwrap().cluster(alias).unwrap().name, "{alias}");
            }
        }
    }
}
