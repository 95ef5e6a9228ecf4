//! What a plan costs on a topology, and where the time goes: latency or bandwidth.
//!
//! Every time that the network of this simulator makes is a sum of latencies and of bytes divided
//! by a bandwidth, and what a plan takes is the longest such sum: its critical path. Two more
//! picoseconds of latency make that path longer by two for every message on it (by one for a hop to
//! or from a switch, which is half a message), so two simulations count the messages on the critical
//! path without anything being recorded.

use crate::engine::{SimConfig, SimError, simulate};
use crate::topology::{Link, Topology};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use serde::{Deserialize, Serialize};

/// By how much latencies are made longer to count them, in picoseconds: a hop to or from a switch
/// has half of a link's.
const MORE_PS: u64 = 2;

/// What a plan costs on a topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// When the last rank is done, in picoseconds.
    pub time_ps: u64,
    /// Messages on the critical path inside a node; all of them when there are no nodes.
    pub hops_inside: u64,
    /// Messages on the critical path between nodes.
    pub hops_across: u64,
    /// How much of `time_ps` is those messages' latency; the rest is bytes on their way.
    pub latency_ps: u64,
}

/// Why there is no cost.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CostError {
    /// The plan cannot be simulated.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The plan does not come to its end.
    #[error("what takes for ever has no cost: the plan ended with {outcome:?}")]
    NotCompleted {
        /// How it ended.
        outcome: Option<Outcome>,
    },
}

impl Cost {
    /// Simulates `plan` on `topology`, times only: two runs, or three when there are nodes.
    ///
    /// # Errors
    /// When the plan cannot be simulated, or does not complete.
    pub fn of(plan: &Plan, topology: Topology) -> Result<Cost, CostError> {
        let time_ps = time_ps(plan, topology)?;
        let longer =
            |link: Link| Link { latency_ps: link.latency_ps.saturating_add(MORE_PS), ..link };
        let hops = |topology| Ok::<_, CostError>(self::time_ps(plan, topology)?.abs_diff(time_ps));
        let cost = |longer_inside: u64, longer_across: u64, inside: Link, across: Link| {
            let part = |longer: u64, link: Link| {
                let exact = u128::from(longer) * u128::from(link.latency_ps) / u128::from(MORE_PS);
                u64::try_from(exact).unwrap_or(u64::MAX)
            };
            let latency_ps =
                part(longer_inside, inside).saturating_add(part(longer_across, across));
            Cost {
                time_ps,
                hops_inside: longer_inside.div_ceil(MORE_PS),
                hops_across: longer_across.div_ceil(MORE_PS),
                latency_ps: latency_ps.min(time_ps),
            }
        };
        Ok(match topology {
            Topology::Uniform(link) => cost(hops(Topology::Uniform(longer(link)))?, 0, link, link),
            Topology::Nodes { ranks_per_node, inside, across } => {
                let nodes = |inside, across| Topology::Nodes { ranks_per_node, inside, across };
                let within = hops(nodes(longer(inside), across))?;
                let between = hops(nodes(inside, longer(across)))?;
                cost(within, between, inside, across)
            }
        })
    }

    /// The part of `time_ps` that is bytes on their way, and waiting for ports that send others.
    pub fn bandwidth_ps(&self) -> u64 {
        self.time_ps.saturating_sub(self.latency_ps)
    }
}

/// When the last rank of `plan` is done on `topology`, in picoseconds.
///
/// # Errors
/// When the plan cannot be simulated, or does not complete.
pub fn time_ps(plan: &Plan, topology: Topology) -> Result<u64, CostError> {
    let config =
        SimConfig { topology, max_value_bytes: 0, record_messages: false, ..SimConfig::default() };
    match simulate(plan, &config)?.end {
        Some(end) if end.outcome == Outcome::Completed => Ok(end.time_ps),
        end => Err(CostError::NotCompleted { outcome: end.map(|end| end.outcome) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::scenario::CollectiveLab;
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
            assert_eq!((cost.hops_inside, cost.hops_across), (hops, 0));
            assert_eq!(cost.bandwidth_ps(), hops * LINK.transmit_ps(4 * 1000));
            let root = GroupRank(0);
            let tree = plan(Collective::Broadcast { root }, Algorithm::Tree, n, count);
            let cost = Cost::of(&tree, Topology::Uniform(LINK)).unwrap();
            assert_eq!(cost.hops_inside, u64::from(n.ilog2()));
            assert_eq!(cost.time_ps, cost.latency_ps + cost.bandwidth_ps());
        }
    }

    /// Two ways up to the switch and down again, each of which is as long as one message.
    #[test]
    fn hops_by_a_switch_are_halves_of_a_message() {
        let nvls = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Nvls, 8, 8);
        let cost = Cost::of(&nvls, Topology::Uniform(LINK)).unwrap();
        assert_eq!((cost.hops_inside, cost.latency_ps), (2, 2 * LINK.latency_ps));
    }

    /// The longest way of 14 hops around a ring over two nodes of four begins just before a border:
    /// hops 1, 5, 9 and 13 cross one. With many bytes, the slow port is what holds all up instead.
    #[test]
    fn messages_across_nodes_are_told_apart() {
        let slow = Link { latency_ps: 50_000_000, bytes_per_second: 1_000_000_000 };
        let ring = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Ring, 8, 8);
        let nodes = Topology::Nodes { ranks_per_node: 4, inside: LINK, across: slow };
        let cost = Cost::of(&ring, nodes).unwrap();
        assert_eq!((cost.hops_inside, cost.hops_across), (10, 4));
        assert_eq!(cost.latency_ps, 10 * LINK.latency_ps + 4 * slow.latency_ps);
        let ring = plan(Collective::AllReduce { op: ReduceOp::Sum }, Algorithm::Ring, 8, 8 << 20);
        let cost = Cost::of(&ring, nodes).unwrap();
        assert!(cost.bandwidth_ps() >= 14 * slow.transmit_ps(4 << 20), "{cost:?}");
        let one = Topology::Nodes { ranks_per_node: 8, inside: LINK, across: slow };
        assert_eq!(
            Cost::of(&ring, one).unwrap().time_ps,
            Cost::of(&ring, Topology::Uniform(LINK)).unwrap().time_ps
        );
    }
}
