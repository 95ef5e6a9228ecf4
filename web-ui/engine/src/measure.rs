//! Measures ranks in a stretch of time: calls, computation, and collectives with their bus bandwidth
//! (nccl-tests, `doc/PERFORMANCE.md`).

use super::class::Class;
use super::lanes::{Lanes, OPEN, Row, Span};
use super::session::Held;
use lockstep_analysis::bus_factor;
use lockstep_core::group::ProcessGroup;
use lockstep_core::trace::{CallRecord, TensorShape};
use lockstep_web_protocol::{Area, CallShare, Measured, RankShare};
use std::collections::{BTreeMap, BTreeSet};

/// A collective as all of its members made it.
#[derive(Default)]
struct Collective<'l> {
    op: &'l str,
    group: Option<&'l ProcessGroup>,
    bytes: u64,
    first: Option<u64>,
    last: u64,
    /// When its last member ended; nothing while one has not.
    end: Option<u64>,
    open: bool,
}

impl Held {
    /// Measures the ranks of an area.
    pub(super) fn measure(&self, area: &Area) -> Measured {
        let stretch = (area.from_ps, area.to_ps.max(area.from_ps));
        let mut measured = Measured::default();
        let collectives = self.collectives_of(area, stretch);
        for rank in &area.ranks {
            let mut share = time_of(&self.lanes, *rank, stretch);
            let mut waits = Vec::new();
            for call in self.calls_of(*rank) {
                let made = (stretch.0..stretch.1).contains(&call.scheduled_ps);
                share.calls += u64::from(made);
                share.bytes += if made { given(call) } else { 0 };
                let of = key(call).and_then(|key| collectives.get(&key));
                let end = call.completed_ps.unwrap_or(stretch.1);
                if let Some(of) = of.filter(|_| end > stretch.0 && call.scheduled_ps < stretch.1) {
                    // One that never ends waits for a member that has not come.
                    let came = if of.open { end } else { of.last };
                    let (from, to) =
                        (call.scheduled_ps.max(stretch.0), came.min(end).min(stretch.1));
                    waits.push((from, to.max(from)));
                }
            }
            share.waiting_ps = covered(&mut waits);
            measured.ranks.push(share);
        }
        let mut kinds: BTreeMap<(&str, String), CallShare> = BTreeMap::new();
        for collective in collectives.values().filter(|collective| !collective.open) {
            let (Some(first), Some(end)) = (collective.first, collective.end) else { continue };
            if !(stretch.0..=stretch.1).contains(&end) {
                continue;
            }
            let group = collective.group.map(|group| group.label().to_owned()).unwrap_or_default();
            let kind = kinds.entry((collective.op, group.clone())).or_insert_with(|| CallShare {
                op: collective.op.to_owned(),
                group,
                count: 0,
                bytes: 0,
                time_ps: 0,
                skew_ps: 0,
                busbw: bus_factor(collective.op, collective.group.map_or(0, ProcessGroup::size)),
            });
            kind.count += 1;
            kind.bytes = kind.bytes.saturating_add(collective.bytes);
            kind.time_ps += end.saturating_sub(collective.last.min(end));
            kind.skew_ps += collective.last.saturating_sub(first);
        }
        for mut kind in kinds.into_values() {
            let seconds = kind.time_ps as f64 / 1e12;
            let rate = |factor: f64| factor * kind.bytes as f64 / seconds;
            kind.busbw = kind.busbw.map(rate).filter(|rate| rate.is_finite());
            measured.calls.push(kind);
        }
        measured.calls.sort_by_key(|kind| std::cmp::Reverse(kind.time_ps + kind.skew_ps));
        measured
    }

    /// The collectives in which ranks of an area were during a stretch, with the calls of all members. A rank outside
    /// the area may have come last.
    fn collectives_of(
        &self,
        area: &Area,
        stretch: (u64, u64),
    ) -> BTreeMap<(u32, u64), Collective<'_>> {
        let mut collectives: BTreeMap<(u32, u64), Collective<'_>> = BTreeMap::new();
        let mut members: BTreeSet<u32> = BTreeSet::new();
        for rank in &area.ranks {
            for call in self.calls_of(*rank) {
                let ended_before = call.completed_ps.is_some_and(|end| end < stretch.0);
                let Some(key) = key(call).filter(|_| !ended_before) else { continue };
                if call.scheduled_ps <= stretch.1 && !collectives.contains_key(&key) {
                    collectives.insert(key, Collective::default());
                    let group = self.group_of(call).into_iter().flat_map(ProcessGroup::ranks);
                    members.extend(group.map(|rank| rank.0));
                }
            }
        }
        for rank in members {
            for call in self.calls_of(rank) {
                if let Some(row) = key(call).and_then(|key| collectives.get_mut(&key)) {
                    row.take(call, self.group_of(call));
                }
            }
        }
        collectives
    }

    fn group_of(&self, call: &CallRecord) -> Option<&ProcessGroup> {
        self.log.as_ref()?.groups.get(call.call.group.index())
    }
}

/// The group and the number of a collective, which the calls of its members share.
fn key(call: &CallRecord) -> Option<(u32, u64)> {
    call.seq.filter(|_| !call.call.p2p).map(|seq| (call.call.group.0, seq))
}

impl<'l> Collective<'l> {
    fn take(&mut self, call: &'l CallRecord, group: Option<&'l ProcessGroup>) {
        (self.op, self.group) = (&call.call.op, group);
        // The whole buffer, as nccl-tests counts: that of all_gather is its output.
        self.bytes = self.bytes.max(bytes(&call.call.inputs)).max(bytes(&call.call.outputs));
        self.first =
            Some(self.first.map_or(call.scheduled_ps, |first| first.min(call.scheduled_ps)));
        self.last = self.last.max(call.scheduled_ps);
        self.open |= call.completed_ps.is_none();
        self.end = self.end.max(call.completed_ps);
    }
}

fn bytes(tensors: &[TensorShape]) -> u64 {
    tensors.iter().map(|tensor| tensor.numel().saturating_mul(tensor.dtype.size_bytes())).sum()
}

/// The bytes that a rank gives to a call; to one that only receives, nothing.
fn given(call: &CallRecord) -> u64 {
    bytes(&call.call.inputs)
}

fn time_of(lanes: &Lanes, rank: u32, stretch: (u64, u64)) -> RankShare {
    let (mut calls, mut compute) = (Vec::new(), Vec::new());
    for row in lanes.rows() {
        for span in within(lanes.spans(rank, row), stretch) {
            let end = if span.to == OPEN { stretch.1 } else { span.to };
            let part = (span.from.max(stretch.0), end.min(stretch.1));
            match row {
                Row::Calls(_) => calls.push(part),
                Row::Program | Row::Stream if span.class == Class::COMPUTE => compute.push(part),
                Row::Program | Row::Stream | Row::Messages => {}
            }
        }
    }
    let (in_calls, in_compute) = (covered(&mut calls), covered(&mut compute));
    let mut either = [calls, compute.clone()].concat();
    let either = covered(&mut either);
    RankShare {
        rank,
        calls_ps: in_calls,
        compute_ps: in_compute,
        exposed_ps: either - in_compute,
        idle_ps: (stretch.1 - stretch.0) - either,
        ..RankShare::default()
    }
}

/// The spans that reach into a stretch.
fn within(spans: &[Span], (from, to): (u64, u64)) -> &[Span] {
    let first = spans.partition_point(|span| span.to <= from);
    let last = spans.partition_point(|span| span.from < to);
    spans.get(first..last).unwrap_or_default()
}

/// The time that parts cover together. Sorts them.
fn covered(parts: &mut [(u64, u64)]) -> u64 {
    parts.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (from, to) in parts.iter().copied() {
        let from = from.max(until);
        if to > from {
            sum += to - from;
            until = to;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_covered_is_counted_once(
            drawn in prop::collection::vec((0u64..60, 0u64..20), 0..12),
        ) {
            let mut parts: Vec<(u64, u64)> = drawn.iter().map(|(at, long)| (*at, at + long)).collect();
            let one_by_one = (0..80).filter(|t| parts.iter().any(|(from, to)| from <= t && t < to));
            let expected = one_by_one.count() as u64;
            prop_assert_eq!(covered(&mut parts), expected);
        }
    }

    #[test]
    fn a_collective_has_the_bus_bandwidth_of_nccl_tests() {
        assert_eq!(bus_factor("nccl:all_reduce", 4), Some(1.5));
        assert_eq!(bus_factor("_allgather_base", 4), Some(0.75));
        assert_eq!(bus_factor("broadcast", 4), Some(1.0));
        assert_eq!((bus_factor("barrier", 4), bus_factor("all_reduce", 1)), (None, None));
    }

    #[test]
    fn a_simulated_all_reduce_is_measured() {
        let held = crate::find::tests::held();
        let whole = Area { from_ps: 0, to_ps: held.lanes.end_ps, ranks: (0..4).collect() };
        let measured = held.measure(&whole);
        let [all_reduce] = &measured.calls[..] else { panic!("{measured:?}") };
        assert_eq!(
            (all_reduce.op.as_str(), all_reduce.count, all_reduce.bytes),
            ("all_reduce", 1, 64)
        );
        let algbw = 64.0 / (all_reduce.time_ps as f64 / 1e12);
        assert!((all_reduce.busbw.unwrap() / algbw - 1.5).abs() < 1e-9);
        for share in &measured.ranks {
            assert_eq!((share.calls, share.bytes), (1, 64));
            assert_eq!(share.exposed_ps + share.compute_ps + share.idle_ps, held.lanes.end_ps);
        }
        let nothing = held.measure(&Area { from_ps: 0, to_ps: 0, ranks: vec![1, 9] });
        assert!(nothing.calls.is_empty() && nothing.ranks.iter().all(|share| share.calls_ps == 0));
    }

    /// Rank 3 comes last. Ranks that are measured without it have waited for it all the same.
    #[test]
    fn the_last_member_counts_outside_the_area() {
        const LATE_NS: u64 = 5_000;
        let mut plan = PlanBuilder::new("late", 4, BackendName::Gloo).unwrap();
        let tensor = plan.tensor("x", Dtype::Float32, 16, Fill::Zeros);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|rank, program| {
            program.compute("late", if rank.0 == 3 { LATE_NS } else { 0 });
            program.collective(GroupId::WORLD, sum, 16, None, Some(tensor));
        });
        let held = crate::find::tests::held_of(&plan.unwrap());
        let to_ps = held.lanes.end_ps;
        let without = held.measure(&Area { from_ps: 0, to_ps, ranks: vec![0, 1] });
        let all = held.measure(&Area { from_ps: 0, to_ps, ranks: (0..4).collect() });
        assert_eq!(without.calls, all.calls);
        assert_eq!(all.calls[0].skew_ps, LATE_NS * 1000);
        let waits: Vec<u64> = all.ranks.iter().map(|share| share.waiting_ps).collect();
        assert_eq!(waits, [LATE_NS * 1000, LATE_NS * 1000, LATE_NS * 1000, 0]);
        assert_eq!(without.ranks[0].waiting_ps, waits[0]);
        // Half of it within half of the time.
        let half = held.measure(&Area { from_ps: 0, to_ps: LATE_NS * 500, ranks: vec![0] });
        assert_eq!(half.ranks[0].waiting_ps, LATE_NS * 500);
    }
}
