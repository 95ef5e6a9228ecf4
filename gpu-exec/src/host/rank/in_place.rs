//! Schedules in which a rank adds up what several peers send and then hands the result back into
//! the places that it came from: the two shots of an all_reduce (which is what a ring of two ranks
//! does), a direct reduce_scatter or reduce.
//!
//! Step by step such a call passes through memory once for every peer, and again for every result.
//! But nothing that is sent before the last addition is written before it, so that all peers can
//! lend what they have at once; each block is then added up while it is in the first level cache,
//! in the order of the steps, and put into all the places it belongs to. Among two ranks that is
//! each byte read once and written once on each: the least there can be. The messages are the
//! schedule's; those whose bytes were put there are marked as delivered.

use super::act::{Act, Place};
use crate::host::arena::Memory;

/// A schedule of that kind, from one rank's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InPlace {
    /// The rank's own operand.
    pub(super) local: Memory,
    /// The memory of the result.
    pub(super) into: Memory,
    /// The sends before the last addition.
    pub(super) lends: Vec<Lend>,
    /// The additions, in this order.
    pub(super) adds: Vec<Exchange>,
    /// The messages that return the result.
    pub(super) returns: Vec<Exchange>,
    /// The receives after the last addition.
    pub(super) receives: Vec<Exchange>,
}

/// A message before the last addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lend {
    pub(super) message: Exchange,
    /// True if the peer sends its result back into the same place, so that it may write it there directly.
    pub(super) comes_back: bool,
}

/// A message of the schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) step: u32,
    pub(super) peer: usize,
    pub(super) place: Place,
}

impl PartialEq for Exchange {
    fn eq(&self, other: &Exchange) -> bool {
        (self.step, self.peer, self.place.memory) == (other.step, other.peer, other.place.memory)
    }
}

impl Eq for Exchange {}

impl InPlace {
    /// The rank's part, if its actions are of that kind.
    pub(super) fn of(steps: &[Vec<Act>]) -> Option<InPlace> {
        let adds_up = |acts: &Vec<Act>| acts.iter().any(|a| matches!(a, Act::ReceiveReduce { .. }));
        let last = steps.iter().rposition(adds_up)?;
        let mut copied: Option<(Memory, Memory)> = None;
        let mut ends: Option<(Memory, Memory)> = None;
        let (mut lends, mut adds) = (Vec::new(), Vec::new());
        let (mut returns, mut receives) = (Vec::new(), Vec::new());
        for (step, act) in
            (0u32..).zip(steps).flat_map(|(step, acts)| acts.iter().map(move |act| (step, *act)))
        {
            let early = step as usize <= last;
            let message = |peer, place| Exchange { step, peer, place };
            match act {
                Act::Copy { from, into } if copied.is_none() && ends.is_none() => {
                    copied = Some((from, into));
                }
                Act::ReceiveReduce { peer, local, into } => {
                    let (_, sum) = *ends.get_or_insert((local, into.memory));
                    let continued = adds.is_empty() || local == sum;
                    if into.memory != sum || !continued || has(&adds, peer) {
                        return None;
                    }
                    adds.push(message(peer, into));
                }
                Act::Send { peer, from } if early => {
                    lends.push(Lend { message: message(peer, from), comes_back: false });
                }
                Act::Send { peer, from } => {
                    if from.memory != ends?.1 || has(&returns, peer) {
                        return None;
                    }
                    returns.push(message(peer, from));
                }
                Act::Receive { peer, into } if !early => {
                    // A sum that is replaced later is none that everybody gets: a tree's.
                    if into.memory.overlaps(ends?.1) || has(&receives, peer) {
                        return None;
                    }
                    receives.push(message(peer, into));
                }
                Act::Copy { .. } | Act::Reduce { .. } | Act::Receive { .. } => return None,
            }
        }
        let (mut local, into) = ends?;
        // The own part was copied to where the others are added: it can be read where it was.
        if let Some((from, copy)) = copied {
            if copy != into || local != into {
                return None;
            }
            local = from;
        }
        let written = |lend: &Lend| {
            lend.message.place.memory.overlaps(into)
                || copied.is_some_and(|(_, copy)| lend.message.place.memory.overlaps(copy))
        };
        if lends.iter().any(written) {
            return None;
        }
        // Messages received at the end must not overwrite memory that another rank still reads, unless they
        // are from it.
        for receive in &receives {
            let place = receive.place.memory;
            for lend in lends.iter_mut().filter(|lend| lend.message.place.memory.overlaps(place)) {
                if lend.message.peer != receive.peer || lend.message.place.memory != place {
                    return None;
                }
                lend.comes_back = true;
            }
        }
        let returned = |lend: &&Lend| lend.comes_back;
        let distinct = lends.iter().filter(returned).map(|lend| lend.message.peer);
        let mut peers: Vec<usize> = distinct.collect();
        let many = peers.len();
        peers.sort_unstable();
        peers.dedup();
        (peers.len() == many).then_some(InPlace { local, into, lends, adds, returns, receives })
    }
}

fn has(messages: &[Exchange], peer: usize) -> bool {
    messages.iter().any(|message| message.peer == peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::arena::Arena;
    use crate::host::rank::call::CollectiveCall;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::rank::GlobalRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Algorithm;

    const SUM: ReduceOp = ReduceOp::Sum;

    /// The acts of rank 0 of `n` for a call of 16 elements a part.
    fn of(collective: Collective, algorithm: Algorithm, n: u32) -> Option<InPlace> {
        let mut plan = PlanBuilder::new("in place", n, BackendName::Host).unwrap();
        let whole = plan.tensor("whole", Dtype::Float32, 16 * u64::from(n), Fill::Zeros);
        let part = plan.tensor("part", Dtype::Float32, 16, Fill::Zeros);
        let (count, input, output) = match collective {
            Collective::ReduceScatter { .. } => (16, Some(whole), part),
            _ => (16 * u64::from(n), None, whole),
        };
        let plan = plan
            .every_rank(|_, program| {
                let by = Some(algorithm);
                program.collective_by(GroupId::WORLD, collective, count, input, Some(output), by);
            })
            .unwrap();
        let rank = GlobalRank(0);
        let call = &plan.programs[0].ops[0].action.calls()[0];
        let call = CollectiveCall::of(&plan, rank, call, &Arena::of(&plan, rank)).unwrap();
        call.unwrap().in_place
    }

    #[test]
    fn an_all_reduce_in_two_shots_lends_all_and_returns_all() {
        let all_reduce = Collective::AllReduce { op: SUM };
        for (algorithm, n) in
            [(Algorithm::Ring, 2), (Algorithm::TwoShot, 2), (Algorithm::TwoShot, 5)]
        {
            let found = of(all_reduce, algorithm, n).unwrap();
            let others = n as usize - 1;
            assert_eq!(found.local, found.into);
            assert_eq!((found.adds.len(), found.returns.len()), (others, others));
            assert!(found.lends.len() == others && found.lends.iter().all(|l| l.comes_back));
        }
    }

    #[test]
    fn a_direct_reduce_scatter_reads_its_own_part_where_it_is() {
        let found = of(Collective::ReduceScatter { op: SUM }, Algorithm::Direct, 3).unwrap();
        assert!(!found.local.overlaps(found.into));
        assert_eq!((found.adds.len(), found.returns.len()), (2, 0));
        assert!(found.lends.iter().all(|lend| !lend.comes_back));
    }

    /// Partial sums that travel on are no results.
    #[test]
    fn schedules_that_pass_sums_on_are_not_of_this_kind() {
        let all_reduce = Collective::AllReduce { op: SUM };
        for algorithm in [Algorithm::Ring, Algorithm::RecursiveDoubling, Algorithm::HalvingDoubling]
        {
            assert_eq!(of(all_reduce, algorithm, 4), None, "{algorithm}");
        }
    }
}
