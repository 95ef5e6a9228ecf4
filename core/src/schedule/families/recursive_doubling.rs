//! Recursive doubling: in round k, places at distance 2^k exchange all they have (Thakur,
//! Rabenseifner, Gropp 2005, section 4, on all_gather and on all_reduce). Sizes that are no powers
//! of two are folded ([`Fold`]); MPICH's all_gather takes Bruck's algorithm there.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::fold::{Fold, Phase, Role};
use crate::schedule::{Action, Buffer, Slice};

/// Places at distance 1, 2, 4, … exchange all they have.
pub(super) struct RecursiveDoubling;

impl Family for RecursiveDoubling {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. } | Collective::AllGather)
    }

    fn steps(&self, call: Call) -> u32 {
        let fold = Fold::new(call.size);
        let rounds = fold.rounds();
        match call.collective {
            // Without folding, an odd number of rounds leaves the result to be copied.
            Collective::AllReduce { .. } if !fold.folds() => rounds + rounds % 2,
            Collective::AllReduce { .. } => fold.steps(rounds),
            _ => fold.steps(rounds).max(1),
        }
    }

    /// all_reduce needs a second place for the whole tensor, because it may not be written while it
    /// is still being sent.
    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        u32::from(call.collective.in_place() && call.size > 1)
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        match call.collective {
            Collective::AllReduce { .. } => all_reduce(call.size, participant, step, actions),
            _ => all_gather(call.size, participant, step, actions),
        }
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
        if let Some(text) = fold.step_text(phase) {
            return text;
        }
        let sums = matches!(call.collective, Collective::AllReduce { .. });
        match (phase, sums) {
            (Phase::Round(round), true) => format!(
                "ranks {} apart exchange their sums of the whole tensor, and both add them.",
                1u64 << round
            ),
            (Phase::Round(round), false) => format!(
                "ranks {} apart exchange all the parts they have, and so double them.",
                1u64 << round
            ),
            (_, true) => {
                "every rank copies the result from scratch memory to its tensor.".to_owned()
            }
            (_, false) => "the rank copies its part.".to_owned(),
        }
    }
}

impl Explain for RecursiveDoubling {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new(Formula::LOG, Formula::LOG, Holds::PowersOfTwo),
                idea: "Partners at distance 1, 2, 4, … exchange their whole sums and both add \
                    them: a butterfly.",
                used_by: "MPICH up to 2 KiB.",
                cost: "The fewest latencies of all that do not send to many at once, but the whole \
                    tensor in each round.",
            },
            _ => Explained {
                formula: Formula::new(Formula::LOG, Formula::ALL_BUT_ONE, Holds::PowersOfTwo),
                idea: "Partners at distance 1, 2, 4, … exchange all the parts they have.",
                used_by: "MPICH for short messages and powers of two.",
                cost: "As few bytes as the ring and only log₂ n latencies; but late rounds send \
                    half of everything over the longest ways.",
            },
        }
    }
}

impl RecursiveDoubling {
    /// The purpose of a step; those after the last are later segments' last.
    fn at(&self, call: Call, step: Step) -> (Fold, Phase) {
        let fold = Fold::new(call.size);
        let last = self.steps(call).saturating_sub(1);
        (fold, fold.phase(step.at.min(last), fold.rounds()))
    }
}

/// The sum so far alternates between output and scratch.
fn all_reduce(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let output = Slice::one(Buffer::Output, 0);
    let sum_before = |round: u32| match round % 2 {
        0 => output,
        _ => Slice::one(Buffer::Scratch, 0),
    };
    match (fold.role(rank), fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => {
            actions.push(Action::Send { peer: to, from: output });
        }
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: output });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            actions.push(Action::ReceiveReduce { peer, local: output, into: output });
        }
        (Role::Core { place, .. }, Phase::Round(round)) => {
            let peer = fold.rank_at(place ^ (1 << round));
            let local = sum_before(round);
            actions.push(Action::Send { peer, from: local });
            actions.push(Action::ReceiveReduce { peer, local, into: sum_before(round + 1) });
        }
        (Role::Core { also_for, .. }, Phase::After) => {
            let from = sum_before(fold.rounds());
            actions.extend(also_for.map(|peer| Action::Send { peer, from }));
            if from != output {
                actions.push(Action::Copy { from, into: output });
            }
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, Phase::Before) => {}
    }
}

/// After round k a place holds the parts of 2^(k+1) places.
fn all_gather(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let own = Slice::one(Buffer::Input, 0);
    let parts = |place, count| Slice::run(Buffer::Output, fold.ranks(place, count));
    let everything = Slice::run(Buffer::Output, 0..n);
    let role = fold.role(rank);
    if step == 0 && matches!(role, Role::Core { .. }) {
        actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, rank.0) });
    }
    match (role, fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => actions.push(Action::Send { peer: to, from: own }),
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: everything });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            actions.push(Action::Receive { peer, into: Slice::one(Buffer::Output, peer.0) });
        }
        (Role::Core { place, .. }, Phase::Round(round)) => {
            let distance = 1 << round;
            let block = place & !(distance - 1);
            let from = if step == 0 { own } else { parts(block, distance) };
            let peer = fold.rank_at(place ^ distance);
            actions.push(Action::Send { peer, from });
            actions.push(Action::Receive { peer, into: parts(block ^ distance, distance) });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::After) => {
            actions.push(Action::Send { peer, from: everything });
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, _) => {}
    }
}
