//! Recursive halving: in each round two places each give away half of the parts that they still sum
//! and reduce the other half (Thakur, Rabenseifner, Gropp 2005, section 4, on reduce-scatter). Sizes
//! that are no powers of two are folded ([`Fold`]).

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::fold::{Fold, Phase, Role};
use crate::schedule::{Action, Buffer, Slice};

/// Places at distance n/2, n/4, … exchange half of the chunks that they still sum.
pub(super) struct RecursiveHalving;

impl Family for RecursiveHalving {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::ReduceScatter { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        let fold = Fold::new(call.size);
        fold.steps(fold.rounds()).max(1)
    }

    /// The sum so far of part i is in chunk i, since the input is never written; two ranks go from
    /// input to output at once.
    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        if call.size <= 2 { 0 } else { call.size }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        reduce_scatter(call.size, participant, step, actions);
    }

    fn ranks_are_alike(&self, call: Call) -> bool {
        !Fold::new(call.size).folds()
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        let (fold, phase) = self.at(call, step);
        fold.phase_name(phase)
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let (fold, phase) = self.at(call, step);
        match phase {
            Phase::Round(round) => format!(
                "ranks {} apart each give away half of the parts they still sum, and combine the \
                 other half.",
                fold.places >> (round + 1)
            ),
            _ => fold.step_text(phase).unwrap_or_else(|| "the rank copies its part.".to_owned()),
        }
    }
}

impl Explain for RecursiveHalving {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new(Formula::LOG, Formula::ALL_BUT_ONE, Holds::PowersOfTwo),
            idea: "Partners at distance n/2, n/4, … each give away the half that belongs to the \
                other's side and sum the rest.",
            used_by: "MPICH's reduce_scatter for short messages.",
            cost: "As few bytes as the ring and only log₂ n latencies. Other numbers of ranks fold \
                first, and pay for it with whole tensors.",
        }
    }
}

impl RecursiveHalving {
    /// The purpose of a step; those after the last are later segments' last.
    fn at(&self, call: Call, step: Step) -> (Fold, Phase) {
        let fold = Fold::new(call.size);
        let last = self.steps(call).saturating_sub(1);
        (fold, fold.phase(step.at.min(last), fold.rounds()))
    }
}

/// Distances halve too, so that place i is left with the parts of its ranks.
fn reduce_scatter(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let result = Slice::one(Buffer::Output, 0);
    if n == 1 {
        actions.push(Action::Copy { from: Slice::one(Buffer::Input, 0), into: result });
        return;
    }
    let whole = Slice::run(Buffer::Input, 0..n);
    match (fold.role(rank), fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => {
            actions.push(Action::Send { peer: to, from: whole });
        }
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: result });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            let into = Slice::run(Buffer::Scratch, 0..n);
            actions.push(Action::ReceiveReduce { peer, local: whole, into });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::After) => {
            actions.push(Action::Send { peer, from: Slice::one(Buffer::Scratch, peer.0) });
            let from = Slice::one(Buffer::Scratch, rank.0);
            actions.push(Action::Copy { from, into: result });
        }
        (Role::Core { place, also_for }, Phase::Round(round)) => {
            let distance = fold.places >> (round + 1);
            let block = place & !(distance - 1);
            let summed =
                if round == 0 && also_for.is_none() { Buffer::Input } else { Buffer::Scratch };
            let peer = fold.rank_at(place ^ distance);
            let (mine, theirs) =
                (fold.ranks(block, distance), fold.ranks(block ^ distance, distance));
            let into = if distance == 1 && also_for.is_none() {
                result
            } else {
                Slice::run(Buffer::Scratch, mine.clone())
            };
            actions.push(Action::Send { peer, from: Slice::run(summed, theirs) });
            let local = Slice::run(summed, mine);
            actions.push(Action::ReceiveReduce { peer, local, into });
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, _) => {}
    }
}
