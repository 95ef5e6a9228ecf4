//! The links between the ranks of a simulation: one between every two, another one inside nodes.

use super::ClusterOptions;
use crate::terminal;
use crate::topology_file::TopologyFile;
use anyhow::{Result, bail};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Origin;
use lockstep_sim::{Link, SimConfig, Topology};
use std::path::PathBuf;

const PS_PER_NS: u64 = 1000;

/// The links of a simulation.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LinkOptions {
    /// A file that says what messages cost: what `lockstep calibrate` writes
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "link_latency_ns", "link_bytes_per_second", "node_latency_ns", "node_bytes_per_second", "cluster",
    ])]
    topology: Option<PathBuf>,
    /// Latency between ranks, or between nodes if there are any [default: 5000]
    #[arg(long, value_name = "NS", allow_negative_numbers = true)]
    link_latency_ns: Option<u64>,
    /// Bandwidth of that link [default: 25000000000]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    link_bytes_per_second: Option<u64>,
    /// Latency between ranks of one node, with --ranks-per-node [default: 2000]
    #[arg(long, value_name = "NS", allow_negative_numbers = true)]
    node_latency_ns: Option<u64>,
    /// Bandwidth of that link [default: 300000000000]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    node_bytes_per_second: Option<u64>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

impl LinkOptions {
    /// The settings for simulating a plan, which may be that of a trace of this `origin`: on the machine that is asked for,
    /// else on the trace's own cluster. Notes say where that is not plain to see. `keeps_nodes` is false if the plan
    /// was laid out anew.
    ///
    /// # Errors
    /// Those of [`LinkOptions::config`].
    pub(crate) fn config_again(
        &self,
        plan: &Plan,
        origin: Option<&Origin>,
        keeps_nodes: bool,
    ) -> Result<SimConfig> {
        let Some(origin) = origin else { return self.config(plan) };
        let used = self.of_trace(origin, keeps_nodes);
        let config = used.config(plan)?;
        if let Some(note) = self.machine_note(origin, &used, &config) {
            terminal::note(&format!("lockstep: {note}"));
        }
        if plan.has_injected_faults() {
            terminal::note(
                "lockstep: the faults that were injected into the trace's ranks are operations of its plan, and happen \
                 again",
            );
        }
        Ok(config)
    }

    /// The options for simulating the plan of a trace again: on the machine that is asked for, else on the trace's own
    /// cluster. `keeps_nodes` is false if the plan was laid out anew.
    fn of_trace(&self, origin: &Origin, keeps_nodes: bool) -> LinkOptions {
        let Origin::SimulatedOnCluster { cluster, .. } = origin else { return self.clone() };
        if self.names_links() {
            return self.clone();
        }
        LinkOptions { cluster: self.cluster.on_cluster_of(cluster, keeps_nodes), ..self.clone() }
    }

    /// A sentence for the simulation of a trace's plan, where the machine is not the one that was asked for and not plain
    /// to see: the trace's own cluster (`used`), or other links than those of the trace.
    fn machine_note(
        &self,
        origin: &Origin,
        used: &LinkOptions,
        config: &SimConfig,
    ) -> Option<String> {
        if self.names_links() || self.cluster.cluster.is_some() {
            return None;
        }
        if let Some(own) = used.cluster.words() {
            return Some(format!("simulated on the trace's own cluster, {own}"));
        }
        let (was, is) = (origin.simulated_on()?, config.topology.to_string());
        (!was.contains(&is)).then(|| {
            format!(
                "the trace was simulated on other links ({was}), which it does not hold; these are {is}. Name the links \
                 with --topology, or the options of links"
            )
        })
    }

    /// True if links are named rather than a cluster.
    fn names_links(&self) -> bool {
        let links = [
            self.link_latency_ns,
            self.link_bytes_per_second,
            self.node_latency_ns,
            self.node_bytes_per_second,
        ];
        self.topology.is_some() || links.iter().any(Option::is_some)
    }

    /// The settings for simulating a plan: on a cluster if one is named, else by messages over links.
    ///
    /// # Errors
    /// As [`LinkOptions::topology`], and when the cluster is not known or does not hold the ranks.
    pub(crate) fn config(&self, plan: &Plan) -> Result<SimConfig> {
        if self.cluster.cluster.is_some() && self.names_links() {
            bail!("a cluster has links of its own: leave --cluster or the options of links out");
        }
        match self.cluster.config(plan)? {
            Some(config) => Ok(config),
            None => Ok(SimConfig { topology: self.topology(plan)?, ..SimConfig::default() }),
        }
    }

    /// The topology of a plan: nodes, if it has some.
    ///
    /// # Errors
    /// When links inside nodes are described and there are none, or a link carries nothing.
    fn topology(&self, plan: &Plan) -> Result<Topology> {
        if let Some(path) = &self.topology {
            let file = TopologyFile::read(path)?;
            if let Some(measured) = &file.calibration
                && measured.world_size != plan.world_size
            {
                terminal::note(&format!(
                    "lockstep: {} was measured with {} ranks, and the plan has {}: its times are \
                     a guess",
                    path.display(),
                    measured.world_size,
                    plan.world_size
                ));
            }
            return Ok(file.topology);
        }
        let across = link(Link::DEFAULT, self.link_latency_ns, self.link_bytes_per_second)?;
        if plan.ranks_per_node > 0 {
            let inside = link(Link::NVLINK, self.node_latency_ns, self.node_bytes_per_second)?;
            return Ok(Topology::Nodes { ranks_per_node: plan.ranks_per_node, inside, across });
        }
        if self.node_latency_ns.is_some() || self.node_bytes_per_second.is_some() {
            bail!(
                "--node-latency-ns and --node-bytes-per-second are of the links inside a node; say \
                 with --ranks-per-node which ranks share one"
            );
        }
        Ok(Topology::Uniform(across))
    }
}

fn link(known: Link, latency_ns: Option<u64>, bytes_per_second: Option<u64>) -> Result<Link> {
    if bytes_per_second == Some(0) {
        bail!("a link of 0 bytes a second carries nothing; give 1 or more");
    }
    Ok(Link {
        latency_ps: latency_ns.map_or(known.latency_ps, |ns| ns.saturating_mul(PS_PER_NS)),
        bytes_per_second: bytes_per_second.unwrap_or(known.bytes_per_second),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_source::PlanOptions;

    #[test]
    fn nodes_come_from_the_plan() {
        let plan = |ranks_per_node| {
            PlanOptions { ranks_per_node, ..Default::default() }.named("all_reduce").unwrap()
        };
        let none = LinkOptions::default();
        assert_eq!(none.topology(&plan(None)).unwrap(), Topology::default());
        assert_eq!(none.topology(&plan(Some(2))).unwrap(), Topology::nodes(2));
        let fast = LinkOptions { node_latency_ns: Some(7), ..Default::default() };
        let Topology::Nodes { inside, .. } = fast.topology(&plan(Some(2))).unwrap() else {
            panic!("there are nodes")
        };
        assert_eq!((inside.latency_ps, inside.bytes_per_second), (7000, 300_000_000_000));
        assert!(fast.topology(&plan(None)).is_err());
        let dead = LinkOptions { link_bytes_per_second: Some(0), ..Default::default() };
        assert!(dead.topology(&plan(None)).is_err());
    }
}
