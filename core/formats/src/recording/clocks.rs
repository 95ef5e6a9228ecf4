//! Clocks of different machines, aligned by the collectives that their ranks made together.
//!
//! A collective in which every rank needs every other ends on all ranks at about the same moment. The median
//! of how much earlier or later many of them ended by a rank's clock is that clock's error; an error within
//! the noise of the ends is left as it is.

use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallState, RankLog};
use std::collections::BTreeMap;

/// The error of a rank's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// The rank.
    pub(super) rank: GlobalRank,
    /// By how much it is ahead, in picoseconds; below 0, behind.
    pub(super) ahead_ps: i64,
    /// By how many collectives that was found.
    pub(super) collectives: usize,
}

/// At most this many of a rank's last calls are looked at.
const WINDOW: usize = 256;
/// With fewer collectives than this, clocks are not aligned.
const FEW: usize = 4;
/// Less is not worth a correction: 2 ms, in picoseconds.
const NOISE_PS: i128 = 2_000_000_000;
/// Kernels of one collective end within microseconds: 50 µs.
const DEVICE_NOISE_PS: i128 = 50_000_000;

/// Sets the clocks right and says by how much; the trace's start is moved by the second value, in
/// picoseconds (it may only become earlier).
pub(super) fn align(log: &mut CallLog) -> (Vec<Offset>, u64) {
    let rows = rows(log);
    let noise_ps = if log.device_times { DEVICE_NOISE_PS } else { NOISE_PS };
    let found = offsets(&rows, log.ranks.len(), noise_ps);
    let corrected: Vec<Offset> = found
        .iter()
        .enumerate()
        .filter_map(|(rank, found)| {
            let (ahead_ps, collectives) = (*found)?;
            let ahead_ps = i64::try_from(ahead_ps).ok().filter(|ps| *ps != 0)?;
            Some(Offset { rank: GlobalRank(rank as u32), ahead_ps, collectives })
        })
        .collect();
    let earliest = corrected.iter().map(|offset| offset.ahead_ps).max().unwrap_or(0).max(0);
    let earlier_ps = earliest.unsigned_abs();
    if corrected.is_empty() {
        return (corrected, 0);
    }
    for (rank, own) in (0..).map(GlobalRank).zip(&mut log.ranks) {
        let Some(own) = own else { continue };
        let ahead = corrected.iter().find(|offset| offset.rank == rank).map_or(0, |it| it.ahead_ps);
        let right = |ps: u64| {
            let ps = i128::from(ps) - i128::from(ahead) + i128::from(earlier_ps);
            u64::try_from(ps.max(0)).unwrap_or(u64::MAX)
        };
        map_times(own, right);
    }
    (corrected, earlier_ps)
}

/// Changes all times of a rank.
pub(super) fn map_times(own: &mut RankLog, right: impl Fn(u64) -> u64) {
    for record in &mut own.calls {
        record.scheduled_ps = right(record.scheduled_ps);
        record.started_ps = record.started_ps.map(&right);
        record.completed_ps = record.completed_ps.map(&right);
    }
    if own.recording.computations.is_empty() && own.recording.steps.is_empty() {
        // Writing to it would make room for it.
        return;
    }
    for one in &mut own.recording.computations {
        (one.from_ps, one.to_ps) = (right(one.from_ps), right(one.to_ps));
    }
    for step in &mut own.recording.steps {
        (step.from_ps, step.to_ps) = (right(step.from_ps), right(step.to_ps));
        step.on_device = step.on_device.map(|(from_ps, to_ps)| (right(from_ps), right(to_ps)));
    }
}

/// The ends of collectives in which everybody needs everybody, by rank.
fn rows(log: &CallLog) -> Vec<Vec<(usize, i128)>> {
    let mut rows: BTreeMap<(GroupId, u64), Vec<(usize, i128)>> = BTreeMap::new();
    for (rank, own) in log.logs() {
        for record in own.calls.iter().rev().take(WINDOW) {
            let together = matches!(
                record.call.op.as_str(),
                "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier"
            );
            if let (true, Some(seq), CallState::Completed, Some(ended_ps)) =
                (together, record.seq, record.state, record.completed_ps)
            {
                let row = rows.entry((record.call.group, seq)).or_default();
                row.push((rank.index(), i128::from(ended_ps)));
            }
        }
    }
    let recorded = |group: GroupId| {
        let members = log.groups.get(group.index()).map(ProcessGroup::ranks).unwrap_or_default();
        members
            .iter()
            .filter(|rank| log.ranks.get(rank.index()).is_some_and(Option::is_some))
            .count()
    };
    let size: Vec<usize> = (0..log.groups.len() as u32).map(|at| recorded(GroupId(at))).collect();
    let told = |(group, row): (GroupId, &Vec<(usize, i128)>)| {
        // Ends that are the same to the picosecond were not measured.
        let measured =
            row.windows(2).any(|pair| pair.first().map(|a| a.1) != pair.last().map(|b| b.1));
        measured && row.len() >= 2 && size.get(group.index()) == Some(&row.len())
    };
    rows.into_iter().filter(|((group, _), row)| told((*group, row))).map(|(_, row)| row).collect()
}

/// Per rank, by how much its clock is ahead of the first rank's, and by how many collectives.
fn offsets(
    rows: &[Vec<(usize, i128)>],
    ranks: usize,
    noise_ps: i128,
) -> Vec<Option<(i128, usize)>> {
    let mut ahead = vec![0i128; ranks];
    let mut spread = vec![0i128; ranks];
    let mut counts = vec![0usize; ranks];
    // Groups overlap: what one round finds in one group, the next carries to another.
    for _ in 0..4 {
        let mut found: Vec<Vec<i128>> = vec![Vec::new(); ranks];
        for row in rows {
            let at = |(rank, ps): &(usize, i128)| ps - ahead.get(*rank).copied().unwrap_or(0);
            let middle = median(row.iter().map(at).collect());
            for end in row {
                if let Some(found) = found.get_mut(end.0) {
                    found.push(at(end) - middle);
                }
            }
        }
        for (rank, found) in found.into_iter().enumerate() {
            let middle = median(found.clone());
            let off = median(found.iter().map(|it| (it - middle).abs()).collect());
            if let (Some(ahead), Some(spread)) = (ahead.get_mut(rank), spread.get_mut(rank)) {
                *ahead += middle;
                *spread = off;
            }
            if let Some(count) = counts.get_mut(rank) {
                *count = found.len();
            }
        }
    }
    let first = counts.iter().position(|count| *count >= FEW);
    let base = first.and_then(|first| ahead.get(first)).copied().unwrap_or(0);
    let told = ahead.iter().zip(&spread).zip(&counts).map(|((ahead, spread), count)| {
        let ahead = ahead - base;
        let sure = ahead.abs() > noise_ps && ahead.abs() > 4 * spread;
        (*count >= FEW).then_some((if sure { ahead } else { 0 }, *count))
    });
    told.collect()
}

/// The lower median; 0 of nothing.
fn median(mut values: Vec<i128>) -> i128 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
    use lockstep_core::trace::{CallRecord, CallState, Called, Outcome, RankLog, TensorShape};
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        /// Clocks that are off by anything are found to be off by that, whatever the collectives' ends
        /// are spread by.
        #[test]
        fn offsets_are_found(
            off_ms in prop::collection::vec(-500i64..500, 2..6),
            jitter_us in prop::collection::vec(0..300u64, 64),
        ) {
            let base = 10_000_000_000_000u64;
            let ranks = off_ms.len();
            let called = |group| Arc::new(Called {
                op: "all_reduce".into(), group, p2p: false, peer: None, tag: 0,
                inputs: vec![TensorShape { shape: vec![1], dtype: Dtype::Float32 }], outputs: vec![],
                reduce_op: None, root: None, stack: [].into(),
            });
            let rank_log = |rank: usize| RankLog {
                calls: (0..20u32).map(|at| {
                    let jitter = jitter_us[(at as usize * 7 + rank * 13) % 64] * 1_000_000;
                    let end = base + u64::from(at) * 50_000_000_000 + jitter;
                    let end = end.checked_add_signed(off_ms[rank] * 1_000_000_000).unwrap();
                    CallRecord {
                        work: at, state: CallState::Completed, seq: Some(u64::from(at) + 1),
                        record_id: None, plan_op: None, scheduled_ps: end - 1_000_000,
                        started_ps: None, completed_ps: Some(end), call: called(GroupId::WORLD),
                    }
                }).collect(),
                ..RankLog::default()
            };
            let mut log = CallLog {
                world_size: ranks as u32,
                groups: vec![ProcessGroup::world(ranks as u32, BackendName::Nccl).unwrap()],
                ranks: (0..ranks).map(|rank| Some(rank_log(rank))).collect(),
                outcome: Outcome::Unknown, recorded: true, simulated: false, device_times: false,
                ended_ps: None,
                plan: None,
            };
            let (found, _) = align(&mut log);
            for (rank, off) in off_ms.iter().enumerate() {
                let ahead = off - off_ms[0];
                let own = found.iter().find(|it| it.rank.index() == rank).map_or(0, |it| it.ahead_ps);
                let error_us = (own - ahead * 1_000_000_000).abs() / 1_000_000;
                // A correction is right to the jitter; what is not corrected is small.
                prop_assert!(error_us <= if own == 0 { 2300 } else { 300 }, "{rank}: {own} {ahead}");
            }
            // No end is further from the others' than the jitter and what is left as it is.
            for at in 0..20usize {
                let ends: Vec<u64> = log.ranks.iter().flatten()
                    .map(|own| own.calls[at].completed_ps.unwrap()).collect();
                let spread = ends.iter().max().unwrap() - ends.iter().min().unwrap();
                prop_assert!(spread <= 5_200_000_000, "{spread}");
            }
        }
    }
}
