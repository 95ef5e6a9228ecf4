//! A rank's recorded computations on one row: a device carries out several at a time.

use super::RecordedComputation;

/// A stretch of time in which a computation lies on top of its rank's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnRow {
    /// Its begin, in picoseconds after the trace's start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// The computation's index among those of its rank.
    pub computation: usize,
}

/// The computations of a rank, by when they began, as stretches that follow each other: of those that overlap the one
/// that began last lies on top, and one that goes on behind it is seen again.
pub fn on_one_row(computations: &[RecordedComputation]) -> Vec<OnRow> {
    let mut row = Row { computations, under_way: Vec::new(), at_ps: 0, seen: Vec::new() };
    for (at, one) in computations.iter().enumerate() {
        row.go_on_to(one.from_ps);
        row.under_way.push(at);
    }
    row.go_on_to(u64::MAX);
    row.seen
}

struct Row<'a> {
    computations: &'a [RecordedComputation],
    /// Those that have begun and may not have ended, by when they began.
    under_way: Vec<usize>,
    at_ps: u64,
    seen: Vec<OnRow>,
}

impl Row<'_> {
    fn go_on_to(&mut self, time_ps: u64) {
        while let Some(top) = self.under_way.last().copied() {
            let ends_ps = self.computations.get(top).map_or(0, |one| one.to_ps);
            let to_ps = ends_ps.min(time_ps);
            if to_ps > self.at_ps {
                self.seen.push(OnRow { from_ps: self.at_ps, to_ps, computation: top });
                self.at_ps = to_ps;
            }
            if ends_ps > time_ps {
                break;
            }
            self.under_way.pop();
        }
        self.at_ps = self.at_ps.max(time_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_one_that_began_is_seen(
            drawn in prop::collection::vec((0u64..30, 0u64..12), 0..12),
        ) {
            let mut drawn = drawn;
            drawn.sort_unstable();
            let one = |(from_ps, took): &(u64, u64)| RecordedComputation {
                from_ps: *from_ps,
                to_ps: from_ps + took,
                name: "gemm".into(),
            };
            let computations: Vec<RecordedComputation> = drawn.iter().map(one).collect();
            let row = on_one_row(&computations);
            prop_assert!(row.windows(2).all(|pair| pair[0].to_ps <= pair[1].from_ps));
            for time in 0..50 {
                let under_way = |one: &RecordedComputation| (one.from_ps..one.to_ps).contains(&time);
                let top = computations.iter().rposition(under_way);
                let seen = row.iter().find(|it| (it.from_ps..it.to_ps).contains(&time));
                prop_assert_eq!(seen.map(|it| it.computation), top);
            }
        }
    }
}
