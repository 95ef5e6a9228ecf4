//! The time of a plan on a topology, and its parts: latency, bytes on their way, or waiting for
//! ports.

use super::config::{SimConfig, SimError};
use super::engine::simulate;
use super::path::Path;
use super::record::Recorder;
use super::state::Engine;
use super::topology::Topology;
use lockstep_core::plan::Plan;
use lockstep_core::trace::{Outcome, TraceEnd};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The time of a plan on a topology, with its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// When the last rank is done, in picoseconds.
    pub time_ps: u64,
    /// The parts of that time: the chain of messages that ended last. Its parts add up to it.
    pub path: Path,
}

/// The reason that there is no cost.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CostError {
    /// The plan cannot be simulated.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The plan does not come to its end.
    #[error("what takes for ever has no cost: the plan ended with {outcome:?}")]
    NotCompleted {
        /// The end of the simulation.
        outcome: Option<Outcome>,
    },
}

impl Cost {
    /// Simulates `plan` on `topology` message by message, times only.
    ///
    /// # Errors
    /// When the plan cannot be simulated, or does not complete.
    pub fn of(plan: &Plan, topology: Topology) -> Result<Cost, CostError> {
        plan.check().map_err(SimError::from)?;
        let config = times_only(topology);
        let mut engine = Engine::new(Arc::new(plan.clone()), &config);
        engine.paths = Some(Box::default());
        let mut recorder = Recorder { on: false, ..Recorder::new(&config) };
        while engine.advance(&mut recorder) {}
        let time_ps = completed(engine.end())?;
        let path = engine.paths.map(|paths| paths.end).unwrap_or_default();
        Ok(Cost { time_ps, path })
    }

    /// The latency's part of `time_ps`.
    pub fn latency_ps(&self) -> u64 {
        self.path.latency_ps()
    }
}

/// When the last rank of `plan` is done on `topology`, in picoseconds.
///
/// # Errors
/// When the plan cannot be simulated, or does not complete.
pub fn time_ps(plan: &Plan, topology: Topology) -> Result<u64, CostError> {
    completed(simulate(plan, &times_only(topology))?.end)
}

fn times_only(topology: Topology) -> SimConfig {
    SimConfig { topology, max_value_bytes: 0, record_messages: false, ..SimConfig::default() }
}

fn completed(end: Option<TraceEnd>) -> Result<u64, CostError> {
    match end {
        Some(TraceEnd { time_ps, outcome: Outcome::Completed }) => Ok(time_ps),
        end => Err(CostError::NotCompleted { outcome: end.map(|end| end.outcome) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use lockstep_core::collective::Collective;
    use lockstep_core::plan::CollectiveLab;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Algorithm;

    const LINK: Link = Link { latency_ps: 1_000_000, bytes_per_second: 10_000_000_000 };

    fn plan(collective: Collective, algorithm: Algorithm, n: u32, count: u64) -> Plan {
        let lab = CollectiveLab::new(collective, n, count);
        CollectiveLab { algorithm, ..lab }.plan().unwrap()
    }

    /// Thakur, Rabenseifner, Gropp 2005, section 4: a ring takes 2 (n - 1) latencies and
    /// 2 (n - 1) / n of the tensor, a broadcast tree log2 n of each.
    #[test]
    fn the_time_is_the_formulas() {
        for n in [2u32, 4, 8, 16] {
            let (hops, count) = (2 * u64::from(n - 1), u64::from(n) * 1000);
            let ring = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Ring, n, count);
            let cost = Cost::of(&ring, Topology::Uniform(LINK)).unwrap();
            assert_eq!((cost.path.inside.messages, cost.path.across.messages), (hops, 0));
            assert_eq!((cost.path.inside.bytes, cost.path.waiting_ps), (hops * 4 * 1000, 0));
            assert_eq!(cost.time_ps - cost.latency_ps(), hops * LINK.transmit_ps(4 * 1000));
            let root = GroupRank(0);
            let tree = plan(Collective::Broadcast { root }, Algorithm::Tree, n, count);
            let cost = Cost::of(&tree, Topology::Uniform(LINK)).unwrap();
            assert_eq!(cost.path.inside.messages, u64::from(n.ilog2()));
            assert_eq!(cost.time_ps, cost.path.time_ps());
        }
    }

    /// Two ways up to the switch and down again, each of which is as long as one message.
    #[test]
    fn hops_by_a_switch_are_halves_of_a_message() {
        let nvls = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Nvls, 8, 8);
        let cost = Cost::of(&nvls, Topology::Uniform(LINK)).unwrap();
        let inside = cost.path.inside;
        assert_eq!((inside.messages, inside.switch_hops), (0, 4));
        assert_eq!(cost.latency_ps(), 2 * LINK.latency_ps);
    }

    /// The longest way of 14 hops around a ring over two nodes of four begins just before a border: hops 1,
    /// 5, 9 and 13 cross one. With many bytes, the slow port is the bottleneck instead.
    #[test]
    fn messages_across_nodes_are_told_apart() {
        let slow = Link { latency_ps: 50_000_000, bytes_per_second: 1_000_000_000 };
        let ring = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Ring, 8, 8);
        let nodes = Topology::Nodes { ranks_per_node: 4, inside: LINK, across: slow };
        let cost = Cost::of(&ring, nodes).unwrap();
        assert_eq!((cost.path.inside.messages, cost.path.across.messages), (10, 4));
        assert_eq!(cost.latency_ps(), 10 * LINK.latency_ps + 4 * slow.latency_ps);
        let ring = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Ring, 8, 8 << 20);
        let cost = Cost::of(&ring, nodes).unwrap();
        assert!(cost.time_ps - cost.latency_ps() >= 14 * slow.transmit_ps(4 << 20), "{cost:?}");
        let one = Topology::Nodes { ranks_per_node: 8, inside: LINK, across: slow };
        assert_eq!(
            Cost::of(&ring, one).unwrap().time_ps,
            Cost::of(&ring, Topology::Uniform(LINK)).unwrap().time_ps
        );
    }
}
