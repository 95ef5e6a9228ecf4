//! Halving and doubling: Rabenseifner 2004, "Optimization of collective reduction operations".
//!
//! - all_reduce: reduce-scatter by vector halving and distance doubling, then the same backwards as an
//!   all-gather. The largest messages go to the nearest ranks.
//! - reduce: the same reduce-scatter, then only what goes towards the root of the way back: a
//!   binomial gather (also Thakur, Rabenseifner, Gropp 2005, section 4, on reduce).

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::Action;
use crate::schedule::butterfly::Butterfly;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};

/// Partners at distance 1, 2, 4, …; a place finishes the chunk whose number is its own, bits
/// reversed.
const BUTTERFLY: Butterfly = Butterfly {
    partner: |_, place, level| place ^ (1 << level),
    finishes: |fold, place| place.reverse_bits() >> (u32::BITS - fold.rounds()),
    distance: |level| 1 << level,
};

/// Rabenseifner's.
pub(super) struct HalvingDoubling;

impl Family for HalvingDoubling {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. } | Collective::Reduce { .. })
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

impl Explain for HalvingDoubling {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Reduce { .. } => Explained {
                formula: Formula::new("2log₂(n)", Formula::RING_VOLUME, Holds::PowersOfTwo),
                idea: "Rabenseifner's: a reduce-scatter that halves the data and doubles the \
                    distance at each step, then a binomial gather of the finished chunks at the \
                    root.",
                used_by: "MPICH's reduce for long messages.",
                cost: "Two tensors' worth of bytes at logarithmic latencies, where the binomial \
                    tree sends log₂ n tensors in a row.",
            },
            _ => Explained {
                formula: Formula::new("2log₂(n)", Formula::RING_VOLUME, Holds::PowersOfTwo),
                idea: "Rabenseifner's: a reduce-scatter that halves the data and doubles the \
                    distance at each step, then an all-gather that goes the same way back.",
                used_by: "MPICH for long messages, gloo's halving_doubling for those who ask for \
                    it.",
                cost: "The ring's bytes at a tree's latencies: the best of both where every pair \
                    of ranks is alike. In real networks its long-distance rounds share links that \
                    a ring does not.",
            },
        }
    }
}
