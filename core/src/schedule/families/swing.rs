//! Swing: reduce-scatter and all-gather among partners that short-cut a ring (De Sensi, Bonato, Saam, Hoefler
//! 2024, "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", the bandwidth-optimal variant). In
//! round s an even rank r exchanges with r + ρ(s) and an odd one with r - ρ(s), modulo the number of ranks,
//! where ρ(s) = (1 - (-2)^(s+1)) / 3 = 1, -1, 3, -5, 11, …: the partners swing from one side to the other,
//! and are about two thirds as far away as recursive doubling's.
//!
//! The chunks that a place still sums before round s are those of the places that it can reach by the rounds
//! from s on. For even places these are the even ones that are equal to it modulo 2^(s+1), and their
//! partners. The paper's ranks keep block r and so send blocks that are not contiguous; here chunks are
//! numbered by the rank that finishes them ([`finishes`]), so that a message is one run.
//!
//! Sizes that are no powers of two are folded ([`Fold`]), as recursive halving's are; the paper has a way of
//! its own for them.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::Action;
use crate::schedule::butterfly::Butterfly;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::fold::Fold;

const BUTTERFLY: Butterfly =
    Butterfly { partner, finishes, distance: |level| rho(level).unsigned_abs() };

/// Partners that swing around a ring.
pub(super) struct Swing;

impl Family for Swing {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        BUTTERFLY.steps(call)
    }

    fn ranks_are_alike(&self, call: Call) -> bool {
        BUTTERFLY.ranks_are_alike(call)
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        BUTTERFLY.chunks_per_part(call)
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        BUTTERFLY.actions(call, participant, step, actions);
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        BUTTERFLY.phase(call, step.at)
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        BUTTERFLY.step_text(call, step.at)
    }
}

impl Explain for Swing {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new("2log₂(n)", Formula::RING_VOLUME, Holds::PowersOfTwo),
            idea: "A reduce-scatter and an all-gather among partners 1, 1, 3, 5, 11, … places away, \
                   now on one side and now on the other: in round s, rank r exchanges with \
                   r ± (1 − (−2)ˢ⁺¹)/3, plus for even ranks and minus for odd ones.",
            used_by: "Proposed in 2024 for tori and other networks in which near ranks share few \
                      links (De Sensi and others, NSDI 2024); no library's default.",
            cost: "Halving-doubling's latencies and bytes where every pair of ranks is alike. Its \
                   partners are about two thirds as far apart, so on a torus its messages share \
                   fewer links. Other numbers of ranks fold first, and pay for it with whole \
                   tensors.",
        }
    }
}

/// The paper's ρ: how far to the right an even place's partner is, and to the left an odd one's.
fn rho(level: u32) -> i64 {
    (1 - (-2i64).pow(level + 1)) / 3
}

/// The paper's π.
fn partner(fold: Fold, place: u32, level: u32) -> u32 {
    let towards = if place.is_multiple_of(2) { rho(level) } else { -rho(level) };
    (i64::from(place) + towards).rem_euclid(i64::from(fold.places)) as u32
}

/// Up to level s, partners' even places agree modulo 2^(s+1): so the pairs of the last level are
/// numbered by half of their even place, bits reversed, and the parity tells its two places apart.
fn finishes(fold: Fold, place: u32) -> u32 {
    let Some(last) = fold.rounds().checked_sub(1) else { return 0 };
    let even = if place.is_multiple_of(2) { place } else { partner(fold, place, last) };
    let pair = (even / 2).reverse_bits().checked_shr(u32::BITS - last).unwrap_or(0);
    2 * pair + place % 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::ReduceOp;
    use crate::schedule::{Algorithm, Rounds, Schedule, prove};

    /// Distances are the paper's 1, 1, 3, 5, 11, …, and partners are each other's.
    #[test]
    fn partners_are_the_papers() {
        assert_eq!([0, 1, 2, 3, 4].map(rho), [1, -1, 3, -5, 11]);
        let fold = Fold::new(16);
        let of = |place: u32| [0, 1, 2, 3].map(|level| partner(fold, place, level));
        assert_eq!(of(0), [1, 15, 3, 11]);
        assert_eq!(of(1), [0, 2, 14, 6]);
        for (place, level) in (0..16).flat_map(|place| (0..4).map(move |level| (place, level))) {
            assert_eq!(partner(fold, partner(fold, place, level), level), place);
        }
    }

    /// Rounds and bytes are those of Rabenseifner's, as the paper says of its bandwidth-optimal variant.
    #[test]
    fn costs_are_rabenseifners() {
        let call = Collective::AllReduce { op: ReduceOp::Sum };
        for n in 2..=64 {
            let [ours, theirs] = [Algorithm::Swing, Algorithm::HalvingDoubling].map(|by| {
                let schedule = Schedule::new(call, by, n).unwrap();
                let proof = prove(&schedule).unwrap();
                (Rounds::of(&schedule).count(), proof.messages, proof.chunks_moved)
            });
            assert_eq!(ours, theirs, "{n} ranks");
            if n.is_power_of_two() {
                let ranks = u64::from(n);
                assert_eq!(ours.0, 2 * n.ilog2());
                assert_eq!(ours.2, 2 * ranks * (ranks - 1));
            }
        }
    }
}
