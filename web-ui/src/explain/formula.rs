//! The formulas of the algorithms: rounds, latencies and volume, as they are written and read.

/// How exact a [`Formula`] is, in a network where every pair of ranks is alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// For every number of ranks.
    Always,
    /// For powers of two; others need some steps more.
    PowersOfTwo,
    /// It is never more.
    AtMost,
    /// Within a third, from four ranks up: what the formula leaves out.
    About(&'static str),
}

impl Holds {
    /// What stands before the formula.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Holds::Always | Holds::PowersOfTwo => "=",
            Holds::AtMost => "≤",
            Holds::About(_) => "≈",
        }
    }

    /// What stands behind it, where `ranks` are shown.
    pub(crate) fn note(self, ranks: u32) -> String {
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

/// The time of an algorithm in one node: `hops`·α + `volume`·S/β.
///
/// n is the number of ranks, k the number of segments of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formula {
    /// Steps in which messages move, and how exact that is.
    pub(crate) rounds: (&'static str, Holds),
    /// Latencies one after the other.
    pub(crate) hops: &'static str,
    /// Tensors (or parts) one after the other through a port.
    pub(crate) volume: &'static str,
    pub(crate) holds: Holds,
}

impl Formula {
    /// The same with other rounds than latencies: messages of several rounds may be on their way
    /// together, and a hop by a switch has half a latency.
    pub(super) const fn in_rounds(self, rounds: &'static str, holds: Holds) -> Formula {
        Formula { rounds: (rounds, holds), ..self }
    }

    /// Whether it speaks of segments.
    pub(crate) fn has_segments(self) -> bool {
        [self.rounds.0, self.hops, self.volume].iter().any(|text| text.contains('k'))
    }

    /// `2(n − 1)·α + 2(n − 1)/n·S/β`.
    pub(crate) fn text(self) -> String {
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
