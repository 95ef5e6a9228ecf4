//! A wait in a store that never ends, with its reason. A plan says it in the name of the time that
//! the rank loses, and the diagnosis parses it there.

use crate::rank::GlobalRank;
use std::fmt;

/// A wait in a store for a key that is never set, or too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWait {
    /// The function that the user called: `store.get`.
    pub call: String,
    /// The awaited key, in quotes.
    pub awaited: String,
    /// The reason that it does not come.
    pub why: Lost,
}

impl LostWait {
    /// The awaited clients, for a `TCPStore`'s server in its constructor.
    pub const CLIENTS: &str = "its clients";
}

/// The reason that the awaited key does not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// No rank makes the call.
    Nobody,
    /// A rank makes it in this line, so many milliseconds too late.
    Late {
        /// The rank that sets it.
        rank: GlobalRank,
        /// The line of the program.
        line: u32,
        /// Milliseconds after the timeout.
        by_ms: u64,
    },
    /// A rank would make it in this line, but it waits itself before.
    Behind {
        /// The rank that would set it.
        rank: GlobalRank,
        /// The line of the program.
        line: u32,
    },
    /// It is another store that the other rank has given to `init_process_group`.
    Elsewhere {
        /// The store of the rank that waits, in words.
        here: String,
    },
    /// A counter comes so far at most.
    Counts {
        /// The highest number that the counter reaches.
        reaches: i64,
        /// The number that is waited for.
        number: i64,
    },
}

impl LostWait {
    /// The wait that an operation's name describes; `None` for any other name.
    pub fn parse(name: &str) -> Option<LostWait> {
        let (call, rest) = name.split_once(": waits for ")?;
        let (awaited, why) = rest.rsplit_once(", which ")?;
        let (call, awaited) = (call.to_owned(), awaited.to_owned());
        let rank_and_line = |words: &str, middle: &str| -> Option<(GlobalRank, u32)> {
            let (rank, line) = words.strip_prefix("rank ")?.split_once(middle)?;
            Some((GlobalRank(rank.parse().ok()?), line.parse().ok()?))
        };
        let late = || {
            let (words, by) = why.strip_suffix(" ms too late")?.rsplit_once(", ")?;
            let (rank, line) = rank_and_line(words, " sets in line ")?;
            Some(Lost::Late { rank, line, by_ms: by.parse().ok()? })
        };
        let behind = || {
            let (rank, line) = rank_and_line(why, " would set in line ")?;
            Some(Lost::Behind { rank, line })
        };
        let elsewhere = || {
            let here = why.strip_prefix("is not in ")?;
            Some(Lost::Elsewhere { here: here.to_owned() })
        };
        let counts = || {
            let (reaches, number) = why.strip_prefix("comes to ")?.split_once(" of ")?;
            Some(Lost::Counts { reaches: reaches.parse().ok()?, number: number.parse().ok()? })
        };
        let nobody = || (why == "does not come").then_some(Lost::Nobody);
        let why = nobody().or_else(late).or_else(behind).or_else(elsewhere).or_else(counts)?;
        Some(LostWait { call, awaited, why })
    }
}

impl fmt::Display for LostWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: waits for {}, which {}", self.call, self.awaited, self.why)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Nobody => f.write_str("does not come"),
            Lost::Late { rank, line, by_ms } => {
                write!(f, "rank {rank} sets in line {line}, {by_ms} ms too late")
            }
            Lost::Behind { rank, line } => write!(f, "rank {rank} would set in line {line}"),
            Lost::Elsewhere { here } => write!(f, "is not in {here}"),
            Lost::Counts { reaches, number } => write!(f, "comes to {reaches} of {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_tells_what_was_said(
            key in "\\PC{0,12}",
            (rank, line, by_ms, reaches) in (0u32..9, 0u32..99, 0u64..9999, -9i64..9),
            nth in 0usize..5,
        ) {
            let rank = GlobalRank(rank);
            let why = [
                Lost::Nobody,
                Lost::Late { rank, line, by_ms },
                Lost::Behind { rank, line },
                Lost::Elsewhere { here: "a store, which is here".replace(", which ", " ") },
                Lost::Counts { reaches, number: reaches + 1 },
            ];
            let awaited = format!("{key:?}");
            let lost = LostWait { call: "store.get".into(), awaited, why: why[nth].clone() };
            prop_assert_eq!(LostWait::parse(&lost.to_string()), Some(lost));
        }

        #[test]
        fn no_name_panics(name in "\\PC{0,60}") {
            let _ = LostWait::parse(&name);
            let _ = LostWait::parse(&format!("a: waits for b, which {name}"));
        }
    }
}
