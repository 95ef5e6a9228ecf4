//! What happens in a step of the families beyond ring, tree, direct and dissemination.

use super::{left, right};
use lockstep_core::collective::Collective;
use lockstep_core::schedule::{Algorithm, Schedule};

/// What the phase of a step is called, to go after "Step 3 of 6".
pub(super) fn phase(schedule: &Schedule, algorithm: Algorithm, step: u32) -> &'static str {
    let (n, steps) = (schedule.size(), folded_steps(schedule, algorithm));
    match algorithm {
        Algorithm::RecursiveDoubling | Algorithm::RecursiveHalving => match fold(n, step, steps) {
            Fold::Before => ", folding",
            Fold::After => ", unfolding",
            Fold::Round(_) => "",
        },
        Algorithm::HalvingDoubling => match fold(n, step, steps) {
            Fold::Before => ", folding",
            Fold::After => ", unfolding",
            Fold::Round(round) if round < places(n).ilog2() => ", reduce-scatter phase",
            Fold::Round(_) if schedule.collective().root().is_some() => ", gather phase",
            Fold::Round(_) => ", all-gather phase",
        },
        Algorithm::BidirectionalRing if step < steps / 2 => ", reduce-scatter phase",
        Algorithm::TwoShot if step + 1 < steps => ", reduce-scatter phase",
        Algorithm::BidirectionalRing | Algorithm::TwoShot => ", all-gather phase",
        Algorithm::ScatterAllGather if step < scatter_steps(n) => ", scatter phase",
        Algorithm::ScatterAllGather => ", all-gather phase",
        Algorithm::OneShot if step > 0 => ", summing",
        _ => "",
    }
}

/// A sentence for `step`.
pub(super) fn what(schedule: &Schedule, algorithm: Algorithm, step: u32) -> String {
    let (n, steps, call) = (schedule.size(), schedule.steps(), schedule.collective());
    match algorithm {
        Algorithm::RecursiveDoubling | Algorithm::RecursiveHalving | Algorithm::HalvingDoubling => {
            recursive(schedule, algorithm, fold(n, step, folded_steps(schedule, algorithm)))
        }
        Algorithm::BidirectionalRing if step < steps / 2 => {
            "every rank sends half a chunk to each neighbour, which combines it with its own.".into()
        }
        Algorithm::BidirectionalRing => {
            "every rank sends finished halves of chunks to both neighbours, which keep them.".into()
        }
        Algorithm::TwoShot if step + 1 < steps => {
            let distance = step + 1;
            let right = right(distance.into());
            format!("every rank sends {right} that one's chunk, which it adds to its own.")
        }
        Algorithm::TwoShot => "every rank sends the chunk it finished to every other rank.".into(),
        Algorithm::Bruck => bruck(call, steps, step),
        Algorithm::Pairwise if n.is_power_of_two() => {
            format!("every rank r exchanges parts with rank r XOR {}.", step + 1)
        }
        Algorithm::Pairwise => {
            let distance = step + 1;
            let (right, left) = (right(distance.into()), left(distance.into()));
            format!("every rank sends {right} its part and gets its own from {left}.")
        }
        Algorithm::Chain if call.reduce_op().is_some() => {
            "every rank that got a segment adds its own and passes it on towards the root, while it receives the next.".into()
        }
        Algorithm::Chain => {
            "every rank that got a segment passes it on down the chain, while it receives the next.".into()
        }
        Algorithm::KaryTree if call.reduce_op().is_some() => {
            "parents of a level receive the sum of one of their up to 4 children and add it to theirs.".into()
        }
        Algorithm::KaryTree => "the ranks of a level send the data to all of their up to 4 children.".into(),
        Algorithm::Knomial => knomial(call, steps, step),
        Algorithm::ScatterAllGather if step < scatter_steps(n) => {
            "every rank that holds several ranks' chunks sends half of them down the tree.".into()
        }
        Algorithm::ScatterAllGather => {
            "every rank passes on to its right neighbour the chunk it got last.".into()
        }
        Algorithm::OneShot if step == 0 => {
            "every rank sends its whole tensor to every other rank, all at once.".into()
        }
        Algorithm::OneShot => {
            format!("every rank adds rank {step}'s tensor to the sum so far; nothing is sent.")
        }
        Algorithm::DoubleBinaryTree => {
            let way = match call {
                Collective::Broadcast { .. } => "down",
                Collective::Reduce { .. } => "up",
                _ if step % 4 < 2 => "up",
                _ => "down",
            };
            let colour = if step.is_multiple_of(2) { "one" } else { "the other" };
            format!(
                "segments go {way} both trees, each of which has half of the tensor, by the edges of {colour} of two colours: in one step no rank sends twice or receives twice."
            )
        }
        Algorithm::Ring | Algorithm::Tree | Algorithm::Direct | Algorithm::Dissemination => {
            String::new()
        }
        Algorithm::Pat if step.is_multiple_of(2) => {
            "every rank puts what came in its place, and together what it sends next; nothing is sent.".into()
        }
        Algorithm::Pat => {
            "every rank sends, in one message, the parts of all trees in which it has a child at this distance.".into()
        }
        Algorithm::Hierarchical => hierarchical(call, steps, step),
        Algorithm::Nvls => nvls(schedule, step),
        Algorithm::Sharp => sharp(schedule, step).to_owned(),
        Algorithm::GlooRing if step + 1 < n => {
            "every rank sends a chunk to its left neighbour, which adds it to its own.".into()
        }
        Algorithm::GlooRing if call.root().is_some() => {
            "every rank sends the chunk that it finished to the root.".into()
        }
        Algorithm::GlooRing => {
            "every rank passes a finished chunk on to its left neighbour, which keeps it.".into()
        }
    }
}

/// Where a step of a folded schedule is.
enum Fold {
    Before,
    Round(u32),
    After,
}

/// The largest power of two that is at most `n`.
fn places(n: u32) -> u32 {
    1 << n.max(1).ilog2()
}

/// The steps of a folded schedule with its unfolding, which a reduction to a root that did not wait
/// goes without.
fn folded_steps(schedule: &Schedule, algorithm: Algorithm) -> u32 {
    match (algorithm, schedule.collective()) {
        (Algorithm::HalvingDoubling, Collective::Reduce { .. }) => {
            2 * places(schedule.size()).ilog2() + 2
        }
        _ => schedule.steps(),
    }
}

fn fold(n: u32, step: u32, steps: u32) -> Fold {
    match (n.is_power_of_two(), step) {
        (true, _) => Fold::Round(step),
        (false, 0) => Fold::Before,
        (false, last) if last + 1 == steps => Fold::After,
        (false, _) => Fold::Round(step - 1),
    }
}

/// Steps of the scatter: ceil(log2 n).
fn scatter_steps(n: u32) -> u32 {
    n.max(1).next_power_of_two().trailing_zeros()
}

fn recursive(schedule: &Schedule, algorithm: Algorithm, at: Fold) -> String {
    let places = places(schedule.size());
    let rounds = places.ilog2();
    let extra = schedule.size() - places;
    let round = match at {
        Fold::Before => {
            return format!(
                "{} is no power of two, so {extra} ranks hand their data to the neighbour and wait for the result; {places} go on.",
                schedule.size()
            );
        }
        Fold::After => return format!("the {extra} ranks that waited get their result."),
        Fold::Round(round) => round,
    };
    let doubling = |round: u32| 1u64 << round.min(63);
    let halving = |round: u32| u64::from(places) >> (round + 1).min(63);
    match (algorithm, schedule.collective()) {
        (Algorithm::RecursiveDoubling, Collective::AllReduce { .. }) if round < rounds => {
            format!(
                "ranks {} apart exchange their sums of the whole tensor, and both add them.",
                doubling(round)
            )
        }
        (Algorithm::RecursiveDoubling, Collective::AllReduce { .. }) => {
            "every rank copies the result from scratch memory to its tensor.".into()
        }
        (Algorithm::RecursiveDoubling, _) if round < rounds => {
            format!(
                "ranks {} apart exchange all the parts they have, and so double them.",
                doubling(round)
            )
        }
        (Algorithm::HalvingDoubling, _) if round < rounds => {
            format!(
                "ranks {} apart each give away half of what they still sum, and combine the other half.",
                doubling(round)
            )
        }
        (Algorithm::HalvingDoubling, Collective::Reduce { .. }) => {
            let distance = doubling((2 * rounds).saturating_sub(round + 1));
            format!(
                "ranks {distance} apart: the one farther from the root hands on all it has finished."
            )
        }
        (Algorithm::HalvingDoubling, _) => {
            let distance = doubling((2 * rounds).saturating_sub(round + 1));
            format!("ranks {distance} apart exchange all they have finished, and so double it.")
        }
        (Algorithm::RecursiveHalving, _) if round < rounds => {
            format!(
                "ranks {} apart each give away half of the parts they still sum, and combine the other half.",
                halving(round)
            )
        }
        _ => "the rank copies its part.".into(),
    }
}

fn hierarchical(call: Collective, steps: u32, step: u32) -> String {
    let last = step + 1 == steps;
    match call {
        Collective::Gather { .. } if step == 0 => {
            "the ranks of each node send their parts to its leader; the root leads its own.".into()
        }
        Collective::Gather { .. } => {
            "each leader sends the root the parts of its node in one message.".into()
        }
        Collective::Scatter { .. } if last => {
            "each leader sends the ranks of its node their parts.".into()
        }
        Collective::Scatter { .. } => {
            "the root sends each leader the parts of its node in one message.".into()
        }
        _ => "chunks move inside the nodes first, then across them, then inside again.".into(),
    }
}

/// What NVLink's switches do; across nodes, NVLSTree.
fn nvls(schedule: &Schedule, step: u32) -> String {
    let (n, k, steps) = (schedule.size(), schedule.ranks_per_node().max(1), schedule.steps());
    let up = if k > 1 { scatter_steps(k) + 2 } else { 0 };
    let after = if k > 1 { steps.saturating_sub(2) } else { steps };
    let words = match (schedule.collective(), step) {
        (Collective::AllReduce { .. }, step) if (up..after).contains(&step) => {
            "the ranks in charge of a chunk, one a node, sum it up two trees of the nodes and pass the result back down."
        }
        (Collective::AllReduce { .. }, step) if step == after => {
            "each rank sends the chunk that it is in charge of to its node's switch."
        }
        (Collective::AllReduce { .. }, step) if step > after => {
            "the switch writes the result to all of its ranks."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, 0) if n > 1 => {
            "every rank sends its tensor to its node's NVLink switch."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, step)
            if step + 1 < up =>
        {
            "the switch adds up what came; nothing is sent."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, _) if n > 1 => {
            "the switch sends each rank the sum of the chunk that it is in charge of."
        }
        (Collective::AllGather, 0) if n > 1 => "every rank sends its part to the NVLink switch.",
        (Collective::AllGather, 1) => "the switch writes all parts to every rank.",
        (Collective::Broadcast { .. }, 0) => "the root sends its tensor to the NVLink switch.",
        (Collective::Broadcast { .. }, _) => "the switch writes it to every other rank.",
        _ => "the rank copies its part.",
    };
    words.to_owned()
}

/// What a tree of switches does: a leaf for each node and, above several, a spine.
fn sharp(schedule: &Schedule, step: u32) -> &'static str {
    let (n, barrier) = (schedule.size(), schedule.collective().is_barrier());
    let per_node = schedule.ranks_per_node().clamp(1, n.max(1));
    let (added, last) = (1 + scatter_steps(per_node), schedule.steps().saturating_sub(1));
    let several = per_node < n;
    match step {
        _ if n <= 1 => "the only rank has all there is.",
        0 if barrier => "every rank signals its node's leaf switch that it has come.",
        0 if several => "every rank sends its tensor to its node's leaf switch.",
        0 => "every rank sends its tensor to the node's switch.",
        step if step == last && barrier => "the switches of the nodes release all their ranks.",
        step if step == last && several => "each leaf switch sends the result to all of its ranks.",
        step if step == last => "the switch sends the result to all ranks.",
        step if step < added && barrier => {
            "the switches of the nodes count who has come; nothing is sent."
        }
        step if step < added && several => {
            "each leaf switch adds up what its ranks sent; nothing is sent."
        }
        step if step < added => "the switch adds up what the ranks sent; nothing is sent.",
        step if step == added && barrier => {
            "each leaf switch signals the spine that its node has come."
        }
        step if step == added => "each leaf switch sends its node's sum to the spine.",
        step if step + 1 == last && barrier => "the spine releases the leaf switches.",
        step if step + 1 == last => "the spine sends the result to the leaf switches.",
        _ if barrier => "the spine counts the nodes that have come; nothing is sent.",
        _ => "the spine adds up the sums of the nodes; nothing is sent.",
    }
}

/// A k-nomial tree by radix 4.
fn knomial(call: Collective, steps: u32, step: u32) -> String {
    match call {
        Collective::Scatter { .. } if step == 0 => {
            "the root puts the parts in the order of the tree; nothing is sent.".into()
        }
        Collective::Gather { .. } if step + 1 == steps => {
            "the root puts the parts in order; nothing is sent.".into()
        }
        Collective::Scatter { .. } => {
            "every rank that holds several ranks' parts sends the parts of up to three subtrees."
                .into()
        }
        Collective::Gather { .. } => {
            "of every four ranks that hold parts, three send theirs to the first.".into()
        }
        Collective::Reduce { .. } => {
            "ranks that still hold sums receive the sum of one of their up to three children and add it to theirs.".into()
        }
        _ => "every rank that has the data sends it to up to three that have not.".into(),
    }
}

fn bruck(call: Collective, steps: u32, step: u32) -> String {
    match call {
        _ if step + 1 == steps => "every rank puts the parts in order; nothing is sent.".into(),
        Collective::AllGather => {
            let distance = 1u64 << step.min(63);
            format!(
                "every rank sends all the parts it has, or what is still missing, to {}.",
                left(distance)
            )
        }
        _ if step.is_multiple_of(2) => {
            "every rank packs the parts of the next round; nothing is sent.".into()
        }
        _ => {
            let distance = 1u64 << (step / 2).min(63);
            format!(
                "every rank sends the parts whose way has bit {} to {}.",
                step / 2,
                right(distance)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Action;

    /// Every step of every schedule that the page can show has its sentence.
    /// In nodes of four, sums go up to the switches, across, and down; the steps in which nothing
    /// is sent say so.
    #[test]
    fn switches_are_told_from_trees() {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let schedule = Schedule::new(sum, Algorithm::Nvls, 8).unwrap();
        let schedule = schedule.with_ranks_per_node(4).unwrap();
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            let mut sent = (false, false);
            for rank in (0..schedule.participants()).map(GroupRank) {
                schedule.actions(rank, step, &mut actions);
                for action in &actions {
                    if let Action::Send { peer, .. } = action {
                        let by_switch = rank.0.max(peer.0) >= 8;
                        sent = (sent.0 || by_switch, sent.1 || !by_switch);
                    }
                }
            }
            let said = nvls(&schedule, step);
            match sent {
                (true, _) => assert!(said.contains("switch"), "{step}: {said}"),
                (_, true) => assert!(said.contains("trees"), "{step}: {said}"),
                _ => assert!(said.contains("nothing is sent") || said.contains("trees"), "{said}"),
            }
        }
    }

    #[test]
    fn every_step_is_explained() {
        for n in 1..=9 {
            for call in Collective::every(ReduceOp::Sum, GroupRank(0)) {
                for algorithm in Algorithm::of(call) {
                    for ranks_per_node in [0, 1, 3, 4] {
                        let schedule = Schedule::new(call, *algorithm, n).unwrap();
                        let Ok(schedule) = schedule.with_ranks_per_node(ranks_per_node) else {
                            continue;
                        };
                        for step in 0..schedule.steps() {
                            let said = super::super::what(&schedule, step);
                            assert!(said.ends_with('.'), "{schedule}, step {step}: {said}");
                        }
                    }
                }
            }
        }
    }
}
