//! The links of a job whose ranks all do the same, and the times of their collectives, in closed
//! form.

use lockstep_core::collective::Collective;
use serde::{Deserialize, Serialize};

/// The links between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// Every pair alike.
    Uniform(RingLink),
    /// Nodes of so many ranks, in rank order.
    Nodes {
        /// Ranks a node; 0 counts as 1.
        ranks_per_node: u32,
        /// Between ranks of one node.
        inside: RingLink,
        /// Between nodes.
        across: RingLink,
    },
}

impl From<RingLink> for Links {
    fn from(link: RingLink) -> Links {
        Links::Uniform(link)
    }
}

impl RingLink {
    /// Time for which so many bytes occupy it, in picoseconds.
    pub(super) fn transmit_ps(&self, bytes: u64) -> u64 {
        let rate = u128::from(self.bytes_per_second.max(1));
        let transmit = u128::from(bytes).saturating_mul(1_000_000_000_000) / rate;
        u64::try_from(transmit).unwrap_or(u64::MAX)
    }

    fn message_ps(&self, bytes: u64) -> u64 {
        self.transmit_ps(bytes).saturating_add(self.latency_ps)
    }
}

/// Ranks whose messages are followed one by one where nodes are not all alike.
const MAX_FOLLOWED: u64 = 1 << 22;

impl Links {
    /// Ranks a node; 0 when there are no nodes, as in a plan.
    pub fn ranks_per_node(&self) -> u32 {
        match self {
            Links::Uniform(_) => 0,
            Links::Nodes { ranks_per_node, .. } => (*ranks_per_node).max(1),
        }
    }

    /// The link between two ranks.
    pub(super) fn between(&self, a: u32, b: u32) -> RingLink {
        match self {
            Links::Uniform(link) => *link,
            Links::Nodes { ranks_per_node, inside, across } => {
                let node = |rank: u32| rank / (*ranks_per_node).max(1);
                if node(a) == node(b) { *inside } else { *across }
            }
        }
    }

    /// The link that a job of that size is held up by.
    pub fn slowest(&self, size: u32) -> RingLink {
        match self {
            Links::Uniform(link) => *link,
            Links::Nodes { ranks_per_node, inside, .. } if size <= (*ranks_per_node).max(1) => {
                *inside
            }
            Links::Nodes { across, .. } => *across,
        }
    }

    /// Time of a collective of `count` elements of `bytes` bytes in a group of `size`, in picoseconds.
    pub fn duration_ps(&self, collective: Collective, size: u32, count: u64, bytes: u64) -> u64 {
        let others = u64::from(size.saturating_sub(1));
        match collective {
            _ if size <= 1 => 0,
            Collective::AllReduce { .. } => {
                let chunk = count.div_ceil(u64::from(size)).saturating_mul(bytes);
                self.ring_ps(size, 2 * others, chunk)
            }
            Collective::AllGather | Collective::ReduceScatter { .. } => {
                self.ring_ps(size, others, count.saturating_mul(bytes))
            }
            _ => self.tree_ps(size, count.saturating_mul(bytes)),
        }
    }

    /// Hops of a binomial tree: those between nodes first.
    fn tree_ps(&self, size: u32, bytes: u64) -> u64 {
        let hops = |ranks: u32| u64::from(u32::BITS - ranks.saturating_sub(1).leading_zeros());
        match self {
            Links::Uniform(link) => link.message_ps(bytes).saturating_mul(hops(size)),
            Links::Nodes { ranks_per_node, inside, across } => {
                let node = (*ranks_per_node).max(1).min(size);
                let between = hops(size.div_ceil(node));
                let within = hops(size).saturating_sub(between);
                let across = across.message_ps(bytes).saturating_mul(between);
                across.saturating_add(inside.message_ps(bytes).saturating_mul(within))
            }
        }
    }

    /// Steps of a ring in which everybody sends `bytes` to the next rank and takes as much from
    /// the one before.
    fn ring_ps(&self, size: u32, steps: u64, bytes: u64) -> u64 {
        match self {
            Links::Uniform(link) => link.message_ps(bytes).saturating_mul(steps),
            Links::Nodes { .. } if size <= self.ranks_per_node() => {
                self.slowest(size).message_ps(bytes).saturating_mul(steps)
            }
            Links::Nodes { ranks_per_node, inside, across } => {
                let node = (*ranks_per_node).max(1);
                let priced = |link: &RingLink| (link.latency_ps, link.transmit_ps(bytes));
                let (inside, across) = (priced(inside), priced(across));
                // Nodes that are alike do alike: one stands for all.
                let alike = size.is_multiple_of(node)
                    || u64::from(size).saturating_mul(steps) > MAX_FOLLOWED;
                if alike {
                    return around_a_node(inside, across, u64::from(node), steps);
                }
                let link = |to: u32| if to.is_multiple_of(node) { across } else { inside };
                around(&(0..size).map(link).collect::<Vec<_>>(), steps)
            }
        }
    }
}

/// [`around`] a ring of `ranks` with one link `across` and the others `inside`, in closed form.
///
/// The last message is late by the most expensive chain of `steps` messages, of which each follows the one
/// before it on the next link, for latency and transmission, or on its own, for the transmission that it
/// waits for at the port. A chain comes to the link across some times, goes around in between, begins and
/// ends with less than a lap of links inside, and spends the remaining steps at the slower kind of port. Its
/// cost is concave in the number of times that it comes there, with a bend within two of the most.
fn around_a_node(inside: (u64, u64), across: (u64, u64), ranks: u64, steps: u64) -> u64 {
    let [a, b] = [inside, across]
        .map(|(latency, port)| (u128::from(latency) + u128::from(port), u128::from(port)));
    let ((message, port), (message_across, port_across)) = (a, b);
    let (steps, others) = (u128::from(steps), u128::from(ranks.max(1) - 1));
    // Some links inside, then the same one again and again.
    let never = match others {
        0 => 0,
        others => steps.min(others) * message + (steps - steps.min(others)) * port,
    };
    let most = (steps + others) / (others + 1);
    let times = |times: u128| {
        let left = steps - times - (times - 1) * others;
        let slow = port_across.max(if others == 0 { 0 } else { port });
        let ends = if message >= slow { left.min(2 * others) } else { 0 };
        let laps = times * message_across + (times - 1) * others * message;
        laps + ends * message + (left - ends) * slow
    };
    let tried = [1, 2].into_iter().chain(most.saturating_sub(4)..=most);
    let tried = tried.filter(|times| (1..=most).contains(times));
    let dearest = tried.map(times).max().unwrap_or(0).max(never);
    u64::try_from(dearest).unwrap_or(u64::MAX)
}

/// When everybody has taken `steps` messages from the rank before, over links of (latency,
/// transmission): a message leaves when the one before it has come in and the port is free.
/// From some lap on every lap takes as long as the one before, so the rest is a product.
fn around(links: &[(u64, u64)], steps: u64) -> u64 {
    let ranks = links.len();
    let mut has = vec![0u64; ranks];
    // Per rank, when its sending and its receiving port are free.
    let (mut sends, mut receives) = (vec![0u64; ranks], vec![0u64; ranks]);
    let mut laps: Vec<Vec<u64>> = Vec::new();
    let mut step = 0;
    while step < steps {
        let before = has.clone();
        for to in 0..ranks {
            let from = (to + ranks - 1) % ranks;
            let (latency, transmit) = links[to];
            let departs = before[from].max(sends[from]);
            sends[from] = departs.saturating_add(transmit);
            let reaches = departs.saturating_add(latency).max(receives[to]);
            receives[to] = reaches.saturating_add(transmit);
            has[to] = receives[to];
        }
        step += 1;
        if step.is_multiple_of(ranks as u64) {
            let state = [&has[..], &sends, &receives].concat();
            if let Some(last) = laps.last() {
                let shift = has[0].saturating_sub(last[0]);
                let steady =
                    state.iter().zip(last).all(|(now, was)| now.checked_sub(*was) == Some(shift));
                if steady {
                    let laps = (steps - step) / ranks as u64;
                    let later = |times: &mut Vec<u64>| {
                        for time in times {
                            *time = time.saturating_add(laps.saturating_mul(shift));
                        }
                    };
                    later(&mut has);
                    later(&mut sends);
                    later(&mut receives);
                    step += laps * ranks as u64;
                }
            }
            laps = vec![state];
        }
    }
    has.into_iter().max().unwrap_or(0)
}

/// A link between two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingLink {
    /// From a message's departure to its arrival, in picoseconds.
    pub latency_ps: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::reduce::ReduceOp;
    use proptest::prelude::*;

    const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

    fn nodes(inside: (u64, u64), across: (u64, u64)) -> Links {
        let link = |(latency_ps, bytes_per_second)| RingLink { latency_ps, bytes_per_second };
        Links::Nodes { ranks_per_node: 4, inside: link(inside), across: link(across) }
    }

    #[test]
    fn nodes_that_are_no_different_are_no_nodes() {
        let link = RingLink { latency_ps: 1_000_000, bytes_per_second: 10_000_000_000 };
        let pair = (link.latency_ps, link.bytes_per_second);
        for size in [1, 2, 4, 5, 8, 12, 64, 1024] {
            for collective in
                [SUM, Collective::AllGather, Collective::ReduceScatter { op: ReduceOp::Sum }]
            {
                let uniform = Links::from(link).duration_ps(collective, size, 1 << 20, 4);
                assert_eq!(nodes(pair, pair).duration_ps(collective, size, 1 << 20, 4), uniform);
            }
        }
    }

    proptest! {
        /// The closed form equals the result of following the messages.
        #[test]
        fn a_node_is_gone_around_in_closed_form(
            inside in (0..50u64, 0..50u64), across in (0..50u64, 0..50u64), ranks in 1..9u64,
            steps in 0..60u64,
        ) {
            let links: Vec<_> =
                (0..ranks).map(|to| if to == 0 { across } else { inside }).collect();
            prop_assert_eq!(around_a_node(inside, across, ranks, steps), around(&links, steps));
        }
    }

    /// A machine of one large node and another: no time grows with the node.
    #[test]
    fn large_nodes_are_no_work() {
        let link = |latency_ps| RingLink { latency_ps, bytes_per_second: 1_000_000_000 };
        let links = Links::Nodes { ranks_per_node: 1 << 30, inside: link(1), across: link(1_000) };
        let (steps, bytes_ps) = (2 * ((1u64 << 31) - 1), 4_000);
        let sum = links.duration_ps(SUM, 1 << 31, 1 << 31, 4);
        // The dearest chain comes to the link across four times.
        assert_eq!(sum, steps * (bytes_ps + 1) + 4 * 999);
    }

    /// Following every rank of every node step by step says the same as one node for all and laps
    /// as products.
    #[test]
    fn one_node_stands_for_all_and_a_lap_for_the_next() {
        let links = nodes((300_000, 300_000_000_000), (5_000_000, 12_000_000_000));
        for nodes in [2, 3, 8] {
            for bytes in [1, 1000, 1_000_000] {
                let size = 4 * nodes;
                let of = |to: u32| match links {
                    Links::Nodes { inside, across, .. } => {
                        if to.is_multiple_of(4) {
                            across
                        } else {
                            inside
                        }
                    }
                    Links::Uniform(link) => link,
                };
                let each: Vec<_> =
                    (0..size).map(|to| (of(to).latency_ps, of(to).transmit_ps(bytes))).collect();
                let steps = 2 * (u64::from(size) - 1);
                assert_eq!(
                    around(&each, steps),
                    links.ring_ps(size, steps, bytes),
                    "{nodes} {bytes}"
                );
            }
        }
    }

    #[test]
    fn the_slowest_link_bounds_a_ring() {
        let links = nodes((0, 300_000_000_000), (5_000_000, 12_000_000_000));
        let (steps, bytes) = (2 * 1023, 1_000_000);
        let took = links.ring_ps(1024, steps, bytes);
        let slow = links.slowest(1024);
        assert!(took >= steps * slow.transmit_ps(bytes));
        assert!(took <= steps * slow.message_ps(bytes));
    }
}
