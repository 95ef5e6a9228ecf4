//! The same calls of two ranks in another order: works that are started together and that the ranks take up
//! in an order of their own.

use crate::facts::edit_distance::{BAND, Likeness, compare};
use lockstep_core::trace::CallRecord;

/// The number of calls that two ranks made in different orders, where from the first one that
/// differs on both made the same ones: works that are started in the order of a dict that the ranks
/// built differently. `None` of two, which are a swap, and of calls that are shifted as a whole:
/// there the one is a round ahead.
pub(crate) fn reordered(own: &[&CallRecord], theirs: &[&CallRecord]) -> Option<usize> {
    let same = |a: &&CallRecord, b: &&CallRecord| compare(a, b, None) == Likeness::Same;
    let behind = own.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| same(a, b)).count();
    let count = own.len().checked_sub(behind).filter(|_| own.len() == theirs.len())?;
    let (own, theirs) = (own.get(..count)?, theirs.get(..count)?);
    if !(3..=BAND).contains(&count) {
        return None;
    }
    let mut left: Vec<&&CallRecord> = theirs.iter().collect();
    for record in own {
        left.swap_remove(left.iter().position(|it| same(it, record))?);
    }
    let shifted =
        |by: usize| own.iter().zip(theirs.iter().cycle().skip(by)).all(|(a, b)| same(a, b));
    (!(1..count).any(shifted)).then_some(count)
}

/// So many calls of two ranks are the same, only that one began in their midst and made the first ones last:
/// `bca` for `abc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// The number of calls, three at the least.
    pub(crate) count: usize,
    /// The number of calls behind them that are seen of both, all of them the same.
    pub(crate) behind: usize,
}

/// The calls that one rank made in the order of the other, from another one on, if all that is seen of both
/// behind them is the same. Where nothing is, a rank that left out the first calls of one round of a loop
/// and is in the next may have made the same.
pub(crate) fn rotated(own: &[&CallRecord], theirs: &[&CallRecord]) -> Option<Rotation> {
    let same = |a: &&CallRecord, b: &&CallRecord| compare(a, b, None) == Likeness::Same;
    let most = own.len().min(theirs.len()).min(BAND);
    (3..=most).find_map(|count| {
        let (ours, of_theirs) = (own.get(..count)?, theirs.get(..count)?);
        let shifted =
            |by: usize| ours.iter().zip(of_theirs.iter().cycle().skip(by)).all(|(a, b)| same(a, b));
        let rotates = !shifted(0) && (1..count).any(shifted);
        let (rest, of_theirs) = (own.get(count..)?, theirs.get(count..)?);
        let goes_on = rest.iter().zip(of_theirs).all(|(a, b)| same(a, b));
        let behind = rest.len().min(of_theirs.len());
        (rotates && goes_on).then_some(Rotation { count, behind })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::edit_distance::tests::calls;

    #[test]
    fn calls_in_another_order_are_no_edits() {
        let order = |own: &str, theirs: &str| {
            let (own, theirs) = (calls(own), calls(theirs));
            reordered(&own.iter().collect::<Vec<_>>(), &theirs.iter().collect::<Vec<_>>())
        };
        assert_eq!(order("dcba", "abcd"), Some(4));
        assert_eq!(order("cbade", "abcde"), Some(3));
        // A swap, a call left out in front of the next round, other calls, and more of them.
        for own in ["bacd", "bcda", "cdab", "dcbb", "dcb", "dcbae"] {
            assert_eq!(order(own, "abcd"), None, "{own}");
        }
    }

    #[test]
    fn calls_from_another_one_on_are_a_rotation() {
        let order = |own: &str, theirs: &str| {
            let (own, theirs) = (calls(own), calls(theirs));
            let found =
                rotated(&own.iter().collect::<Vec<_>>(), &theirs.iter().collect::<Vec<_>>());
            found.map(|found| (found.count, found.behind))
        };
        assert_eq!(order("bca", "abc"), Some((3, 0)));
        assert_eq!(order("dabcxy", "abcdx"), Some((4, 1)));
        // A swap, another order, a call left out, and what goes on otherwise.
        for own in ["bac", "cba", "bcx", "bc", "bcax", "aaa"] {
            assert_eq!(order(own, "abcy"), None, "{own}");
        }
    }
}
