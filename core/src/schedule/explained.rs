//! The explanation of a family of schedules: its formula, how it works, the libraries that use it, its cost.
//! Each family's own file contains it.
//!
//! α is the latency of a message, β the bandwidth of a link in bytes a second, S the bytes of the tensor (or
//! of one rank's part, where the larger tensor has n of them), n the number of ranks, k that of a pipeline's
//! segments; each rank sends one message at a time and receives one at a time. The formulas are those of one
//! node. A test of the page compares every one with the simulator, and the rounds with the schedules.
//!
//! Sources for the users of each family: NCCL 2.30 `src/graph/tuning.cc` and `enqueue.cc`; gloo
//! `gloo/allreduce.cc`, `allgather.cc`, `broadcast.cc`, `reduce.cc`, `gather.cc`, `scatter.cc`,
//! `alltoall.cc`, `barrier.cc`; MPICH as Thakur, Rabenseifner, Gropp 2005 describe it; PyTorch 2.7
//! `ProcessGroupNCCL.cpp`, `ProcessGroupGloo.cpp`.

use crate::collective::Collective;

/// The explanation of a family that carries out a certain collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Its rounds, latencies and volume.
    pub formula: Formula,
    /// Its working, in a sentence.
    pub idea: &'static str,
    /// Its users, and the occasions.
    pub used_by: &'static str,
    /// Its cost, and the meaning of that.
    pub cost: &'static str,
}

/// A family that says how it works. Apart from [`Family`](super::family::Family), so that a page that runs schedules
/// does not carry the texts too.
pub(super) trait Explain: Sync {
    /// An explanation for this collective: how it works, the libraries that use it, and its cost.
    fn explained(&self, collective: Collective) -> Explained;
}

/// The exactness of a [`Formula`], in a network where every pair of ranks is alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// For every number of ranks.
    Always,
    /// For powers of two; others need some steps more.
    PowersOfTwo,
    /// It is never more.
    AtMost,
    /// Within a third, from four ranks up; the text names the part that the formula leaves out.
    About(&'static str),
}

impl Holds {
    /// The sign before the formula: `=`, `≤` or `≈`.
    pub fn sign(self) -> &'static str {
        match self {
            Holds::Always | Holds::PowersOfTwo => "=",
            Holds::AtMost => "≤",
            Holds::About(_) => "≈",
        }
    }

    /// The note behind the formula, where `ranks` are shown; empty if it holds for all.
    pub fn note(self, ranks: u32) -> String {
        match self {
            Holds::PowersOfTwo if ranks.is_power_of_two() => "for n a power of two".to_owned(),
            Holds::PowersOfTwo => {
                format!("for n a power of two, which {ranks} is not: the figures above are counted")
            }
            Holds::About(left_out) => {
                format!("within a third from 4 ranks up; left out: {left_out}")
            }
            Holds::Always | Holds::AtMost => String::new(),
        }
    }
}

/// The time of a family in one node: `hops`·α + `volume`·S/β.
///
/// n is the number of ranks, k the number of segments of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formula {
    /// Steps in which messages move, and how exact that is.
    pub rounds: (&'static str, Holds),
    /// Latencies one after the other.
    pub hops: &'static str,
    /// Tensors (or parts) one after the other through a port.
    pub volume: &'static str,
    /// The exactness of hops and volume.
    pub holds: Holds,
}

impl Formula {
    // Factors that many families share.
    pub(super) const LOG: &str = "log₂(n)";
    pub(super) const LOG_UP: &str = "⌈log₂ n⌉";
    pub(super) const ALL_BUT_ONE: &str = "n − 1";
    pub(super) const RING_VOLUME: &str = "2(n − 1)/n";

    /// As many rounds as latencies.
    pub const fn new(hops: &'static str, volume: &'static str, holds: Holds) -> Formula {
        Formula { rounds: (hops, holds), hops, volume, holds }
    }

    /// The formula with another number of rounds for its latencies: messages of several rounds may be on
    /// their way together, and a hop by a switch has half a latency.
    pub(super) const fn in_rounds(self, rounds: &'static str, holds: Holds) -> Formula {
        Formula { rounds: (rounds, holds), ..self }
    }

    /// True if the formulas depend on the number of segments, k.
    pub fn has_segments(self) -> bool {
        [self.rounds.0, self.hops, self.volume].iter().any(|text| text.contains('k'))
    }

    /// `2(n − 1)·α + 2(n − 1)/n·S/β`.
    pub fn text(self) -> String {
        let factor = |factor: &str, of: &str| match factor {
            "1" => of.to_owned(),
            _ if factor.contains(" + ") || factor.contains(" − ") => match is_product(factor) {
                true => format!("{factor}·{of}"),
                false => format!("({factor})·{of}"),
            },
            _ => format!("{factor}·{of}"),
        };
        let latency = factor(self.hops, "α");
        match self.volume {
            "0" => latency,
            volume => format!("{latency} + {}", factor(volume, "S/β")),
        }
    }
}

/// True when every sum in `text` is inside brackets.
fn is_product(text: &str) -> bool {
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '(' | '⌈' => depth += 1,
            ')' | '⌉' => depth -= 1,
            '+' | '−' if depth == 0 => return false,
            _ => {}
        }
    }
    true
}

/// The rank so many places on, as texts of steps say it.
pub(super) fn right(distance: u64) -> String {
    match distance {
        1 => "its right neighbour".to_owned(),
        _ => format!("the rank {distance} places to its right"),
    }
}

/// The rank so many places back, as texts of steps say it.
pub(super) fn left(distance: u64) -> String {
    match distance {
        1 => "its left neighbour".to_owned(),
        _ => format!("the rank {distance} places to its left"),
    }
}
