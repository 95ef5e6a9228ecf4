//! Sets of ranks as conditions.

use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// The condition that holds for some of `all` ranks and for no other of them: `rank % 2 == 0`. Neither may be empty.
pub(super) fn condition(some: &BTreeSet<GlobalRank>, all: &BTreeSet<GlobalRank>) -> String {
    let others: Vec<GlobalRank> = all.difference(some).copied().collect();
    let some: Vec<GlobalRank> = some.iter().copied().collect();
    if let [one] = some.as_slice() {
        return format!("rank == {one}");
    }
    if let [one] = others.as_slice() {
        return format!("rank != {one}");
    }
    let (Some(first), Some(last)) = (some.first(), some.last()) else { return "False".to_owned() };
    let between = |rank: &GlobalRank| first <= rank && rank <= last;
    if !others.iter().any(between) {
        let from_start = all.first() == Some(first);
        let to_end = all.last() == Some(last);
        return match (from_start, to_end) {
            (true, _) => format!("rank <= {last}"),
            (_, true) => format!("rank >= {first}"),
            _ => format!("{first} <= rank <= {last}"),
        };
    }
    let repeats = (2..=all.len() as u32 / 2).find_map(|period| {
        let rest = first.0 % period;
        let is = |rank: &GlobalRank| rank.0 % period == rest;
        let exact = some.iter().all(is) && !others.iter().any(is);
        exact.then(|| format!("rank % {period} == {rest}"))
    });
    let list =
        |ranks: &[GlobalRank]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    repeats.unwrap_or_else(|| match others.len() < some.len() {
        true => format!("rank not in ({})", list(&others)),
        false => format!("rank in ({})", list(&some)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(some: &[u32], world: u32) -> String {
        let set = |ranks: &mut dyn Iterator<Item = u32>| ranks.map(GlobalRank).collect();
        condition(&set(&mut some.iter().copied()), &set(&mut (0..world)))
    }

    #[test]
    fn conditions_are_short() {
        assert_eq!(of(&[3], 8), "rank == 3");
        assert_eq!(of(&[0, 1, 2, 4, 5, 6, 7], 8), "rank != 3");
        assert_eq!(of(&[0, 1, 2], 8), "rank <= 2");
        assert_eq!(of(&[6, 7], 8), "rank >= 6");
        assert_eq!(of(&[2, 3], 8), "2 <= rank <= 3");
        assert_eq!(of(&[1, 3, 5, 7], 8), "rank % 2 == 1");
        assert_eq!(of(&[0, 3, 4], 8), "rank in (0, 3, 4)");
        assert_eq!(of(&[0, 2, 3, 4, 6, 7], 8), "rank not in (1, 5)");
    }
}
