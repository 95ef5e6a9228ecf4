//! The families of schedules, a file each, and the one table of them.
//!
//! A new family is a file here, its `mod` line and its row at the end of the table.

mod bidirectional_ring;
mod bruck;
mod chain;
mod direct;
mod dissemination;
mod double_binary_tree;
mod gloo_ring;
mod halving_doubling;
mod hierarchical;
mod kary_tree;
mod knomial;
mod nvls;
mod one_shot;
mod pairwise;
mod pat;
mod recursive_doubling;
mod recursive_halving;
mod ring;
mod scatter_all_gather;
mod sharp;
mod swing;
mod tree;
mod two_shot;

use super::explained::Explain;
use super::family::Family;
use serde::{Deserialize, Serialize};

/// Makes [`Algorithm`] of a table: a row is a variant, its name in files and on the page, and the
/// struct that implements [`Family`] and [`Explain`].
macro_rules! families {
    ($($(#[$doc:meta])+ $variant:ident $name:literal $family:expr;)+) => {
        /// A family of schedules.
        // The binary form numbers the variants in this order.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Algorithm {
            $($(#[$doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Algorithm {
            /// Every family.
            pub const ALL: [Algorithm; [$($name),+].len()] = [$(Algorithm::$variant),+];

            /// The name in files and on the page.
            pub fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant => $name,)+
                }
            }

            /// The family of the algorithm.
            pub(super) fn family(self) -> &'static dyn Family {
                match self {
                    $(Algorithm::$variant => &$family,)+
                }
            }

            /// The family of the algorithm, as it explains itself.
            pub(super) fn explanation(self) -> &'static dyn Explain {
                match self {
                    $(Algorithm::$variant => &$family,)+
                }
            }
        }
    };
}

// Rows are never moved or taken away: binary files name a family by its place.
families! {
    /// Every rank sends to the next and receives from the previous; bandwidth-optimal.
    Ring "ring" ring::Ring;
    /// A binomial tree: half of the ranks drop out in each step; latency-optimal.
    Tree "tree" tree::Tree;
    /// Every rank talks to its partner in one step, without relays.
    Direct "direct" direct::Direct;
    /// Rank r signals rank r + 2^s in step s (Hensgen, Finkel, Manber 1988).
    Dissemination "dissemination" dissemination::Dissemination;
    /// Partners at distance 1, 2, 4, … exchange all they have.
    RecursiveDoubling "recursive_doubling" recursive_doubling::RecursiveDoubling;
    /// Partners at distance n/2, n/4, … 1 exchange half of what they still hold.
    RecursiveHalving "recursive_halving" recursive_halving::RecursiveHalving;
    /// Rabenseifner's: reduce-scatter by halving, then all-gather by doubling, or a gather to the root.
    HalvingDoubling "halving_doubling" halving_doubling::HalvingDoubling;
    /// Two rings in opposite directions, each for half of the data.
    BidirectionalRing "bidirectional_ring" bidirectional_ring::BidirectionalRing;
    /// A direct reduce_scatter, then a direct all_gather.
    TwoShot "two_shot" two_shot::TwoShot;
    /// ceil(log2 n) rounds at distances 1, 2, 4, …, for any number of ranks (Bruck 1997).
    Bruck "bruck" bruck::Bruck;
    /// n - 1 steps, in each of which a rank exchanges with one partner.
    Pairwise "pairwise" pairwise::Pairwise;
    /// Segments passed from rank to rank in a pipeline.
    Chain "chain" chain::Chain;
    /// A tree whose ranks have up to four children.
    KaryTree "kary_tree" kary_tree::KaryTree;
    /// A binomial tree by radix 4: up to three children a level.
    Knomial "knomial" knomial::Knomial;
    /// Van de Geijn's broadcast: the root scatters, a ring gathers.
    ScatterAllGather "scatter_all_gather" scatter_all_gather::ScatterAllGather;
    /// Every rank sends all it has to every other and sums by itself.
    OneShot "one_shot" one_shot::OneShot;
    /// Two binary trees, each for half of the data; a rank inside one is a leaf of the other.
    DoubleBinaryTree "double_binary_tree" double_binary_tree::DoubleBinaryTree;
    /// gloo's ring, which PyTorch's CPU jobs run: its chunks and its order of additions.
    GlooRing "gloo_ring" gloo_ring::GlooRing;
    /// Parallel aggregated trees (NCCL 2.23): Bruck's rounds, but the farthest exchange the least.
    Pat "pat" pat::Pat;
    /// Inside the nodes, then across them, then inside again.
    Hierarchical "hierarchical" hierarchical::Hierarchical;
    /// One NVLink switch that adds up and multicasts (NVLink SHARP).
    Nvls "nvls" nvls::Nvls;
    /// A tree of switches that add up: a leaf for each node and a spine (SHARP, NCCL's CollNet).
    Sharp "sharp" sharp::Sharp;
    /// Halving and doubling among partners that short-cut a ring (De Sensi et al. 2024).
    Swing "swing" swing::Swing;
}

#[cfg(test)]
mod tests {
    use super::Algorithm;
    use crate::collective::Collective;
    use crate::rank::GroupRank;
    use crate::reduce::ReduceOp;
    use crate::schedule::{Action, Schedule};

    /// Files that were written keep their meaning: families are named in JSON and numbered in the
    /// binary form.
    #[test]
    fn files_name_and_number_families_as_ever() {
        let names = [
            "ring",
            "tree",
            "direct",
            "dissemination",
            "recursive_doubling",
            "recursive_halving",
            "halving_doubling",
            "bidirectional_ring",
            "two_shot",
            "bruck",
            "pairwise",
            "chain",
            "kary_tree",
            "knomial",
            "scatter_all_gather",
            "one_shot",
            "double_binary_tree",
            "gloo_ring",
            "pat",
            "hierarchical",
            "nvls",
            "sharp",
            "swing",
        ];
        assert_eq!(names.len(), Algorithm::ALL.len(), "a new family comes last in this list");
        for (number, (name, algorithm)) in (0..).zip(names.into_iter().zip(Algorithm::ALL)) {
            assert_eq!(algorithm.name(), name);
            assert_eq!(serde_json::to_value(algorithm).unwrap(), name);
            assert_eq!(postcard::to_stdvec(&algorithm).unwrap(), [number]);
        }
    }

    /// Families that say so do: in each step a message a rank, none to a rank that has one, and
    /// all of the same number of chunks.
    #[test]
    fn ranks_that_are_alike_do_the_same() {
        let mut alike = 0;
        for n in 1..=17 {
            for call in Collective::every(ReduceOp::Sum, GroupRank(0)) {
                for algorithm in Algorithm::of(call) {
                    let schedule = Schedule::new(call, *algorithm, n).unwrap();
                    if !schedule.ranks_are_alike() {
                        continue;
                    }
                    alike += 1;
                    for step in 0..schedule.steps() {
                        let mut hears = vec![0; n as usize];
                        let (mut actions, mut lengths) = (Vec::new(), Vec::new());
                        for rank in 0..n {
                            schedule.actions(GroupRank(rank), step, &mut actions);
                            for action in &actions {
                                if let Action::Send { peer, from } = action {
                                    lengths.push(from.chunks);
                                    hears[peer.index()] += 1;
                                }
                            }
                        }
                        assert!(lengths.len() == n as usize || lengths.is_empty(), "{schedule}");
                        assert!(hears.iter().all(|heard| *heard == hears[0]), "{schedule}");
                        assert!(lengths.iter().all(|length| *length == lengths[0]), "{schedule}");
                    }
                }
            }
        }
        assert!(alike > 50, "{alike}");
    }

    /// Families that say so do: every rank's step is rank 0's, seen from its own place.
    #[test]
    fn ranks_of_a_rotation_send_alike() {
        let mut rotations = 0;
        for n in 1..=17 {
            for call in Collective::every(ReduceOp::Sum, GroupRank(0)) {
                for algorithm in Algorithm::of(call) {
                    let schedule = Schedule::new(call, *algorithm, n).unwrap();
                    if !schedule.is_rotation() {
                        continue;
                    }
                    rotations += 1;
                    let seen_from = |rank: u32, step| {
                        let mut actions = Vec::new();
                        schedule.actions(GroupRank(rank), step, &mut actions);
                        let (mut sends, mut receives) = (Vec::new(), 0);
                        for action in actions {
                            match action {
                                Action::Send { peer, from } => {
                                    let further_on = (peer.0 + n - rank) % n;
                                    sends.push((further_on, from.buffer as u8, from.chunks));
                                }
                                Action::Receive { .. } | Action::ReceiveReduce { .. } => {
                                    receives += 1;
                                }
                                Action::Copy { .. } | Action::Reduce { .. } => {}
                            }
                        }
                        (sends, receives)
                    };
                    for step in 0..schedule.steps() {
                        for rank in 1..n {
                            let (own, first) = (seen_from(rank, step), seen_from(0, step));
                            assert_eq!(own, first, "{schedule}, step {step}, rank {rank}");
                        }
                    }
                }
            }
        }
        assert!(rotations > 50, "{rotations}");
    }

    #[test]
    fn every_step_has_its_sentence() {
        for n in 1..=9 {
            for call in Collective::every(ReduceOp::Sum, GroupRank(0)) {
                for algorithm in Algorithm::of(call) {
                    for ranks_per_node in [0, 1, 3, 4] {
                        let schedule = Schedule::new(call, *algorithm, n).unwrap();
                        let Ok(schedule) = schedule.with_ranks_per_node(ranks_per_node) else {
                            continue;
                        };
                        for step in 0..schedule.steps() {
                            let text = schedule.step_text(step);
                            assert!(text.ends_with('.'), "{schedule}, step {step}: {text}");
                        }
                    }
                }
            }
        }
    }
}
