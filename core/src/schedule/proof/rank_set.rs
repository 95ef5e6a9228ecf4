//! Sets of ranks, as small as schedules make them: most sets that a schedule sums over are runs of
//! neighbours (perhaps around the end), so that a world of a thousand ranks takes eight bytes a
//! chunk and not a thousand bits.

use std::sync::Arc;

/// A set of the ranks of a world of a known size, in the one form that its elements have here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RankSet {
    /// One bit a rank, in worlds of up to 64.
    Word(u64),
    /// `len` neighbours from `start` on, around the end of a larger world; all ranks start at 0.
    Run { start: u32, len: u32 },
    /// One bit a rank, for sets that are not a run.
    Bits(Arc<Vec<u64>>),
}

/// A rank that is in both of two sets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap;

impl RankSet {
    /// The set of one rank.
    pub(super) fn one(rank: u32, world: u32) -> RankSet {
        match world {
            0..=64 => RankSet::Word(1 << rank),
            _ => RankSet::Run { start: rank, len: 1 },
        }
    }

    /// The set of all ranks.
    pub(super) fn all(world: u32) -> RankSet {
        match world {
            0..=64 => RankSet::Word(u64::MAX.checked_shr(64 - world).unwrap_or(0)),
            _ => RankSet::Run { start: 0, len: world },
        }
    }

    /// True if a rank is in the set.
    pub(super) fn has(&self, rank: u32, world: u32) -> bool {
        match self {
            RankSet::Word(bits) => rank < 64 && bits >> rank & 1 == 1,
            RankSet::Run { start, len } => (rank + world - start) % world.max(1) < *len,
            RankSet::Bits(bits) => {
                let word = bits.get((rank / 64) as usize);
                word.is_some_and(|word| word >> (rank % 64) & 1 == 1)
            }
        }
    }

    /// The union of two sets of a world.
    ///
    /// # Errors
    /// When a rank is in both and that is not allowed.
    pub(super) fn union(
        &self,
        other: &RankSet,
        world: u32,
        may_overlap: bool,
    ) -> Result<RankSet, Overlap> {
        match (self, other) {
            (RankSet::Word(a), RankSet::Word(b)) if may_overlap || a & b == 0 => {
                return Ok(RankSet::Word(a | b));
            }
            (RankSet::Word(_), _) | (_, RankSet::Word(_)) => return Err(Overlap),
            (RankSet::Run { start: a, len: b }, RankSet::Run { start: c, len: d }) => {
                let ahead =
                    |from: u32, to: u32| if to >= from { to - from } else { to + (world - from) };
                let apart = ahead(*a, *c) >= *b && ahead(*c, *a) >= *d;
                if !apart && !may_overlap {
                    return Err(Overlap);
                }
                let joined = if apart && ahead(*a, *c) == *b {
                    Some(*a)
                } else if apart && ahead(*c, *a) == *d {
                    Some(*c)
                } else {
                    None
                };
                if let Some(start) = joined {
                    let len = b + d;
                    let start = if len == world { 0 } else { start };
                    return Ok(RankSet::Run { start, len });
                }
            }
            _ => {}
        }
        let (mut bits, other) = (self.bits(world), other.bits(world));
        for (a, b) in bits.iter_mut().zip(other) {
            if *a & b != 0 && !may_overlap {
                return Err(Overlap);
            }
            *a |= b;
        }
        Ok(RankSet::smallest(bits, world))
    }

    /// The number of ranks, and their list: `0-3, 7`.
    pub(super) fn words(&self, world: u32) -> (u32, String) {
        let bits = self.bits(world);
        let has = |rank: u32| bits[(rank / 64) as usize] >> (rank % 64) & 1 == 1;
        let ranks: Vec<u32> = (0..world).filter(|rank| has(*rank)).collect();
        let runs = ranks.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            [one] => one.to_string(),
            [] => String::new(),
        });
        let mut runs: Vec<String> = runs.collect();
        if runs.len() > 8 {
            runs.truncate(8);
            runs.push("…".to_owned());
        }
        (ranks.len() as u32, runs.join(", "))
    }

    /// One bit a rank.
    fn bits(&self, world: u32) -> Vec<u64> {
        match self {
            RankSet::Word(word) => vec![*word],
            RankSet::Bits(bits) => bits.to_vec(),
            RankSet::Run { start, len } => {
                let mut bits = vec![0; world.div_ceil(64) as usize];
                for rank in 0..*len {
                    let rank = (u64::from(*start) + u64::from(rank)) % u64::from(world);
                    bits[(rank / 64) as usize] |= 1 << (rank % 64);
                }
                bits
            }
        }
    }

    /// A run if the bits are one, so that equal sets have equal forms.
    fn smallest(bits: Vec<u64>, world: u32) -> RankSet {
        let last = world - 1;
        let has = |rank: u32| bits[(rank / 64) as usize] >> (rank % 64) & 1;
        let mut before = has(last);
        let (mut begins, mut start, mut len) = (0, 0, 0);
        for (index, word) in bits.iter().enumerate() {
            let first = word & !(word << 1 | before);
            if first != 0 {
                start = index as u32 * 64 + first.trailing_zeros();
            }
            begins += first.count_ones();
            len += word.count_ones();
            before = word >> 63;
        }
        match begins {
            0 | 1 if len > 0 => RankSet::Run { start: if len == world { 0 } else { start }, len },
            _ => RankSet::Bits(Arc::new(bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(ranks: &BTreeSet<u32>, world: u32) -> Option<RankSet> {
        let mut ranks = ranks.iter().map(|rank| RankSet::one(*rank, world));
        let first = ranks.next()?;
        ranks.try_fold(first, |set, rank| set.union(&rank, world, false)).ok()
    }

    proptest! {
        /// Against the standard library's sets, in every form.
        #[test]
        fn unions_are_those_of_sets(
            world in 1u32..200,
            a in proptest::collection::btree_set(0u32..200, 1..40),
            runs in (0u32..200, 1u32..200, 0u32..200, 1u32..200),
            overlap in any::<bool>(),
        ) {
            let run = |start: u32, len: u32| {
                (0..len.min(world)).map(|i| (start + i) % world).collect::<BTreeSet<u32>>()
            };
            let scattered: BTreeSet<u32> = a.iter().map(|rank| rank % world).collect();
            for (a, b) in [
                (run(runs.0, runs.1), run(runs.2, runs.3)),
                (scattered, run(runs.0, runs.1)),
            ] {
                let union: BTreeSet<u32> = a.union(&b).copied().collect();
                let got = of(&a, world).unwrap().union(&of(&b, world).unwrap(), world, overlap);
                if let Some(set) = of(&a, world) {
                    prop_assert!((0..world).all(|rank| set.has(rank, world) == a.contains(&rank)));
                }
                if a.is_disjoint(&b) || overlap {
                    prop_assert_eq!(got, Ok(of(&union, world).unwrap()));
                } else {
                    prop_assert_eq!(got, Err(Overlap));
                }
            }
            prop_assert_eq!(of(&run(0, world), world), Some(RankSet::all(world)));
        }
    }
}
