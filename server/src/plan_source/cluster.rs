//! The cluster that a simulation takes the times of its calls from, as the command line names it.

use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use lockstep_clusters::{Catalog, Cluster, FabricFault, Job};
use lockstep_core::plan::{NamedCluster, Plan};
use lockstep_sim::{Link, SimConfig, Topology};
use std::path::Path;
use std::sync::Arc;

/// The largest cluster file.
const MOST_BYTES: u64 = 16 << 20;

/// A cluster, and how the ranks sit on it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClusterOptions {
    /// Let collectives take what NCCL takes on a named system (`lockstep time --list`), or on one that a
    /// TOML file describes (docs/clusters.md)
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) cluster: Option<String>,
    /// Spread the ranks evenly over so many nodes of the cluster, whatever the plan says; without it nodes are filled
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Let something of the cluster be slow or down: link:node=3,rate=0.5, link:rank=5,rate=0.5, nic:node=3,down=1,
    /// gpu:rank=5,rate=0.7, plane:plane=1, spine:rate=0.25. Can be given again
    #[arg(long = "cluster-fault", value_name = "FAULT")]
    cluster_faults: Vec<String>,
    /// Ranks a node on the cluster of a trace, unless `--nodes` spreads them.
    #[arg(skip)]
    ranks_per_node: Option<u32>,
}

/// The cluster of this name, or of this TOML file. A relative that it is taken for is told.
///
/// # Errors
/// There is no cluster of the name, with the nearest; or the file does not describe one.
pub(crate) fn cluster_of(catalog: &mut Catalog, named: &str) -> Result<Cluster> {
    let (cluster, taken_for) = cluster_or_relative(catalog, named)?;
    if let Some(taken_for) = taken_for {
        terminal::note(&format!("lockstep: {taken_for}"));
    }
    Ok(cluster)
}

/// The cluster of this name, or of this TOML file; and the relative that it is taken for, in a sentence.
///
/// # Errors
/// As [`cluster_of`].
pub(crate) fn cluster_or_relative(
    catalog: &mut Catalog,
    named: &str,
) -> Result<(Cluster, Option<String>)> {
    if !is_file(named) {
        return Ok(catalog.cluster_or_relative(named)?);
    }
    let path = Path::new(named);
    let bytes = files::read(path, MOST_BYTES)?;
    let text = String::from_utf8(bytes);
    let text = text.with_context(|| format!("{} is no text in UTF-8", path.display()))?;
    Ok((catalog.add_text(named, &text)?, None))
}

/// True of the name of a file that describes a cluster.
fn is_file(named: &str) -> bool {
    Path::new(named).extension().is_some_and(|extension| extension == "toml")
}

impl ClusterOptions {
    /// The options for simulating the plan of a trace again: without `--cluster`, its own cluster with its faults and, with
    /// `keeps_nodes`, its nodes. `--nodes` and `--cluster-fault` replace these.
    pub(crate) fn on_cluster_of(&self, trace: &NamedCluster, keeps_nodes: bool) -> ClusterOptions {
        if self.cluster.is_some() {
            return self.clone();
        }
        let faults =
            if self.cluster_faults.is_empty() { &trace.faults } else { &self.cluster_faults };
        ClusterOptions {
            cluster: Some(trace.name.clone()),
            nodes: self.nodes,
            cluster_faults: faults.clone(),
            ranks_per_node: Some(trace.ranks_per_node).filter(|_| keeps_nodes),
        }
    }

    /// The cluster in words, and how to be on another: `h100x8 with nic:node=0,down=1; …`. `None` if none is named.
    pub(crate) fn words(&self) -> Option<String> {
        let name = self.cluster.as_deref()?;
        Some(match self.cluster_faults.as_slice() {
            [] => format!("{name}; --cluster names another"),
            faults => format!(
                "{name} with {}; --cluster {name} is the same without that",
                faults.join(" and ")
            ),
        })
    }

    /// The card of the cluster; `None` if no cluster is named.
    ///
    /// # Errors
    /// When there is no such cluster.
    pub(crate) fn card(&self) -> Result<Option<String>> {
        let Some(named) = &self.cluster else { return Ok(None) };
        // `config` tells the relative that it is taken for.
        Ok(Some(cluster_or_relative(&mut Catalog::shipped()?, named)?.0.card))
    }

    /// The configuration for simulating a plan on the cluster; `None` if no cluster is named.
    ///
    /// # Errors
    /// When there is no such cluster, or it does not hold the plan's ranks.
    pub(crate) fn config(&self, plan: &Plan) -> Result<Option<SimConfig>> {
        let Some(named) = &self.cluster else {
            if self.nodes.is_some() || !self.cluster_faults.is_empty() {
                bail!("--nodes and --cluster-fault are of a cluster: name it with --cluster");
            }
            return Ok(None);
        };
        let mut catalog = Catalog::shipped()?;
        let cluster = cluster_of(&mut catalog, named)?;
        let job = Job::new(&catalog, &cluster, plan.world_size, self.ranks_per_node(plan)?)?;
        let faults = self.cluster_faults.iter().map(|fault| fault.parse::<FabricFault>());
        let job = job.with_faults(&faults.collect::<Result<Vec<FabricFault>, _>>()?)?;
        let timing = job.timing(plan)?;
        if !timing.extrapolated.is_empty() {
            terminal::note(&format!(
                "lockstep: no measured table of such a machine backs the times of {}: they are \
                 extrapolated",
                timing.extrapolated.join(", ")
            ));
        }
        // Every call of the plan has its time; the links are for what a store carries.
        let topology = Topology::Nodes {
            ranks_per_node: job.ranks_per_domain(),
            inside: Link::NVLINK,
            across: Link::DEFAULT,
        };
        let mut call_times = timing.call_times;
        // A cluster that a file describes is found again by the file.
        if let Some(cluster) = call_times.cluster.as_mut().filter(|_| is_file(named)) {
            cluster.name.clone_from(named);
        }
        let call_times = Some(Arc::new(call_times));
        Ok(Some(SimConfig { topology, call_times, ..SimConfig::default() }))
    }

    /// Ranks a node: as `--nodes` spreads them, else as the plan says: a recorded plan has its machine's.
    fn ranks_per_node(&self, plan: &Plan) -> Result<Option<u32>> {
        match (self.nodes, plan.ranks_per_node) {
            (None, _) if self.ranks_per_node.is_some() => Ok(self.ranks_per_node),
            (None, 0) => Ok(None),
            (None, each) => Ok(Some(each)),
            // As the plan was laid out, if it has so many nodes.
            (Some(nodes), each) if each > 0 && plan.world_size.div_ceil(each) == nodes => {
                Ok(Some(each))
            }
            (Some(nodes), _) if plan.world_size.is_multiple_of(nodes) => {
                Ok(Some(plan.world_size / nodes))
            }
            (Some(nodes), _) => bail!(
                "{} ranks do not spread evenly over {nodes} nodes: give another --nodes, or --ranks-per-node",
                plan.world_size
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_clusters::compare::Site;
    use lockstep_clusters::job::picoseconds;
    use lockstep_clusters::{Calibration, Collective as Timed, Settings, Understood};
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
    use lockstep_core::plan::{CollectiveLab, Fill, PlanBuilder};
    use lockstep_core::rank::{GlobalRank, GroupRank};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::trace::What;
    use lockstep_sim::simulate;
    use proptest::prelude::*;

    const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

    fn on(cluster: &str, nodes: Option<u32>) -> ClusterOptions {
        ClusterOptions { cluster: Some(cluster.into()), nodes, ..ClusterOptions::default() }
    }

    /// The time that `lockstep time` gives, in picoseconds.
    fn time_says(cluster: &str, nodes: u64, each: u32, collective: Timed, bytes: u64) -> u64 {
        let catalog = Catalog::shipped().unwrap();
        let cluster = catalog.cluster(cluster).unwrap().clone();
        let placement = catalog.place(&cluster, nodes, each).unwrap();
        let site = Site {
            cluster,
            placement,
            settings: Settings::default(),
            collective,
            understood: Understood::default(),
        };
        picoseconds(site.predict(bytes, &Calibration::default()).unwrap().time_us)
    }

    fn simulated(plan: &Plan, options: &ClusterOptions) -> u64 {
        let config = options.config(plan).unwrap().unwrap();
        let config = SimConfig { max_value_bytes: 0, record_messages: false, ..config };
        simulate(plan, &config).unwrap().end.unwrap().time_ps
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        /// A plan of one call takes the time of `lockstep time`, to the picosecond.
        #[test]
        fn a_call_takes_what_time_says(
            cluster in prop::sample::select(vec!["h100x8", "dgx-a100", "p4d", "gb200-nvl72", "mi300x"]),
            nodes in 1u32..5, kind in 0usize..6, count in 0u64..3_000_000,
        ) {
            let root = GroupRank(0);
            let (collective, timed) = [
                (SUM, Timed::AllReduce),
                (Collective::AllGather, Timed::AllGather),
                (Collective::ReduceScatter { op: ReduceOp::Sum }, Timed::ReduceScatter),
                (Collective::Broadcast { root }, Timed::Broadcast),
                (Collective::Reduce { op: ReduceOp::Sum, root }, Timed::Reduce),
                (Collective::AllToAll, Timed::AllToAll),
            ][kind];
            let each = Catalog::shipped().unwrap().cluster(cluster).unwrap().gpus_per_node;
            let world = nodes * each;
            let mut lab = CollectiveLab::new(collective, world, count);
            lab.timeout_ms = 1 << 40;
            let bytes = if collective.in_place() { 4 * count } else { 4 * count * u64::from(world) };
            let said = time_says(cluster, nodes.into(), each, timed, bytes);
            prop_assert_eq!(simulated(&lab.plan().unwrap(), &on(cluster, None)), said);
            // Half of the GPUs of each node are another placement.
            let lab = CollectiveLab { world_size: world / 2, ..lab };
            if nodes > 1 && collective.in_place() && each < 72 {
                let said = time_says(cluster, nodes.into(), each / 2, timed, bytes);
                prop_assert_eq!(simulated(&lab.plan().unwrap(), &on(cluster, Some(nodes))), said);
            }
        }
    }

    /// Each half of a job fills a node; then one rank of each node calls with its fellow.
    #[test]
    fn groups_are_placed_by_their_members() {
        let mut plan = PlanBuilder::new("halves", 16, BackendName::Nccl).unwrap();
        let mut group = |ranks: Vec<u32>| {
            let ranks = ranks.into_iter().map(GlobalRank).collect();
            plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks).unwrap())
        };
        let halves = [group((0..8).collect()), group((8..16).collect())];
        let pairs: Vec<GroupId> = (0..8).map(|rank| group(vec![rank, rank + 8])).collect();
        let count = 1 << 20;
        let x = plan.tensor("x", Dtype::Float32, count, Fill::Zeros);
        let plan = plan.every_rank(|rank, program| {
            program.collective(halves[usize::from(rank.0 >= 8)], SUM, count, None, Some(x));
            program.collective(pairs[rank.index() % 8], SUM, count, None, Some(x));
        });
        let inside = time_says("h100x8", 1, 8, Timed::AllReduce, 4 << 20);
        let across = time_says("h100x8", 2, 1, Timed::AllReduce, 4 << 20);
        assert!(inside < across);
        let plan = plan.unwrap();
        assert_eq!(simulated(&plan, &on("h100x8", None)), inside + across);
        let config = on("h100x8", None).config(&plan).unwrap().unwrap();
        let trace = simulate(&plan, &config).unwrap();
        let done = trace.events.iter().filter(|event| matches!(event.what, What::Completed { .. }));
        assert_eq!(done.filter(|event| event.time_ps == inside).count(), 16);
    }

    #[test]
    fn a_send_takes_what_sendrecv_takes_and_crosses_nodes_where_its_ranks_do() {
        let send = |to: u32| {
            let mut plan = PlanBuilder::new("send", 16, BackendName::Nccl).unwrap();
            let x = plan.tensor("x", Dtype::Float32, 1 << 20, Fill::Zeros);
            let plan = plan.every_rank(|rank, program| match rank.0 {
                0 => drop(program.send(GroupId::WORLD, GroupRank(to), x)),
                it if it == to => drop(program.recv(GroupId::WORLD, GroupRank(0), x)),
                _ => {}
            });
            simulated(&plan.unwrap(), &on("h100x8", None))
        };
        assert_eq!(send(7), time_says("h100x8", 1, 8, Timed::SendRecv, 4 << 20));
        assert_eq!(send(8), time_says("h100x8", 2, 8, Timed::SendRecv, 4 << 20));
    }

    #[test]
    fn what_backs_no_prediction_is_told_and_what_cannot_be_is_refused() {
        let plan = |world| CollectiveLab::new(SUM, world, 16).plan().unwrap();
        let machine = |cluster: &str, world| {
            let config = on(cluster, None).config(&plan(world)).unwrap().unwrap();
            config.call_times.unwrap().machine.clone()
        };
        assert!(!machine("h100x8", 8).contains("extrapolated"));
        assert!(machine("h100x8", 512).contains("extrapolated: all_reduce over 64 nodes"));
        let refused = |options: ClusterOptions, world| {
            format!("{:#}", options.config(&plan(world)).unwrap_err())
        };
        assert!(refused(on("h100x9", None), 8).contains("h100x8"));
        assert!(refused(on("4090x8-pcie", None), 16).contains("without a network"));
        assert!(refused(on("h100x8", Some(1)), 16).contains("8 GPUs a node"));
        // A plan of four nodes on two.
        let laid = Plan { ranks_per_node: 4, ..plan(16) };
        assert_eq!(on("h100x8", Some(2)).ranks_per_node(&laid).unwrap(), Some(8));
        assert_eq!(on("h100x8", None).ranks_per_node(&laid).unwrap(), Some(4));
        let error = on("h100x8", Some(3)).config(&laid).unwrap_err().to_string();
        assert!(error.contains("do not spread evenly over 3 nodes"), "{error}");
    }
}
