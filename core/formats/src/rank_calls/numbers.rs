//! The numbers of calls in files that number none: where the file of each rank begins among the calls of its group.
//!
//! Files of ranks may begin at different calls: a profiler starts while calls are under way. The calls of two ranks are
//! laid over each other so that all that both recorded are alike; of several such ways, which a loop always has, the
//! one in which equal numbers were called at the nearest times counts.

use super::RankCalls;
use super::call::Call;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The most calls by which a file may begin later or earlier than the first one.
const FURTHEST: isize = 512;

/// The calls made before the first recorded one, by rank and group (`None` for calls that name none), for groups
/// whose collectives no file numbers. Files that do not fit the first are taken to begin with it.
pub(super) fn calls_before(
    files: &[&RankCalls],
    is_collective: impl Fn(&Call) -> bool,
) -> BTreeMap<(GlobalRank, Option<String>), u64> {
    let mut of_group: BTreeMap<Option<&str>, Vec<(GlobalRank, Vec<&Call>)>> = BTreeMap::new();
    let has_times = |rank: GlobalRank| files.iter().any(|file| file.rank == rank && !file.untimed);
    for file in files {
        for call in file.calls.iter().filter(|call| is_collective(call)) {
            let ranks = of_group.entry(call.group.as_deref()).or_default();
            match ranks.last_mut() {
                Some((rank, calls)) if *rank == file.rank => calls.push(call),
                _ => ranks.push((file.rank, vec![call])),
            }
        }
    }
    let mut before = BTreeMap::new();
    for (group, ranks) in of_group {
        let numbered = ranks.iter().flat_map(|(_, calls)| calls).any(|call| call.seq.is_some());
        let Some((first_rank, first)) = ranks.first().filter(|_| !numbered) else { continue };
        let first_timed = has_times(*first_rank);
        let later: Vec<isize> = ranks
            .iter()
            .map(|(rank, calls)| begins_later(first, calls, first_timed && has_times(*rank)))
            .map(|later| later.unwrap_or(0))
            .collect();
        let earliest = later.iter().copied().min().unwrap_or(0);
        for ((rank, _), later) in ranks.iter().zip(later) {
            before.insert((*rank, group.map(str::to_owned)), later.abs_diff(earliest) as u64);
        }
    }
    before
}

/// By how many calls one rank's file begins later than another's; `None` if they fit nowhere. Files of which one holds
/// no times (`timed` is false) begin as near each other as they can.
fn begins_later(one: &[&Call], other: &[&Call], timed: bool) -> Option<isize> {
    let shorter = one.len().min(other.len());
    let furthest = FURTHEST.min(shorter as isize / 2);
    let apart = |later: isize| {
        let (skip_one, skip_other) = (later.max(0) as usize, (-later).max(0) as usize);
        let pairs = one.iter().skip(skip_one).zip(other.iter().skip(skip_other));
        let mut times = Vec::with_capacity(shorter);
        for (one, other) in pairs {
            if (&one.op, &one.inputs) != (&other.op, &other.inputs) {
                return None;
            }
            times.push(one.made_ns.abs_diff(other.made_ns));
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied()?;
        Some((if timed { median } else { 0 }, later.unsigned_abs(), later))
    };
    (-furthest..=furthest).filter_map(apart).min().map(|(_, _, later)| later)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::trace::TensorShape;
    use proptest::prelude::*;

    fn call(op: &str, elements: u64, made_ns: u64) -> Call {
        Call {
            op: op.to_owned(),
            group: None,
            seq: None,
            peer: None,
            tag: 0,
            inputs: vec![TensorShape { shape: vec![elements], dtype: Dtype::Float32 }],
            outputs: Vec::new(),
            reduce_op: None,
            root: None,
            made_ns,
            ran_ns: None,
            unfinished: None,
            stack: std::sync::Arc::from([]),
        }
    }

    /// A loop of `period` calls of different sizes, a millisecond apart.
    fn looped(count: u64, period: u64) -> Vec<Call> {
        (0..count).map(|at| call("all_reduce", at % period + 1, at * 1_000_000)).collect()
    }

    proptest! {
        #[test]
        fn a_file_that_begins_later_is_found(
            period in 1_u64..7, cut in 0_usize..20, jitter in 0_u64..400_000, first_later in any::<bool>(),
        ) {
            let all = looped(80, period);
            let jittered: Vec<Call> =
                all.iter().map(|call| Call { made_ns: call.made_ns + jitter, ..call.clone() }).collect();
            let (all, cut_off): (Vec<&Call>, Vec<&Call>) =
                (all.iter().collect(), jittered.iter().skip(cut).collect());
            let (one, other, later) = match first_later {
                true => (&cut_off, &all, -(cut as isize)),
                false => (&all, &cut_off, cut as isize),
            };
            prop_assert_eq!(begins_later(one, other, true), Some(later));
        }
    }

    #[test]
    fn calls_that_are_never_alike_fit_nowhere() {
        let (one, other) = (looped(9, 3), vec![call("broadcast", 1, 0); 9]);
        let (one, other): (Vec<&Call>, Vec<&Call>) = (one.iter().collect(), other.iter().collect());
        assert_eq!(begins_later(&one, &other, true), None);
    }
}
