//! The rank's flight recorder: its last calls and how far each has come, in a ring of a fixed number of
//! entries as PyTorch's (`FlightRecorder.hpp`; `TORCH_FR_BUFFER_SIZE`), which can be dumped at any moment in
//! PyTorch's own form.
//!
//! An entry is a few numbers, written under the lock that the clerk holds anyway; the call itself is looked
//! up in the plan when a dump is asked for.

use super::note::Note;
use crate::clock;
use lockstep_core::group::GroupId;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, Outcome, RankLog};
use lockstep_formats::flight_recorder::{GroupStatus, dumps_of};
use std::collections::VecDeque;
use std::sync::Arc;

/// The settings for recording a rank's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording {
    /// Calls that the ring holds; 0 for none.
    pub(crate) calls: u32,
    /// True if the rank hands in a dump when it is ended early.
    pub(crate) at_end: bool,
}

/// See the module. Works are numbered in the order in which they are recorded.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    plan: Arc<Plan>,
    rank: GlobalRank,
    capacity: usize,
    entries: VecDeque<Entry>,
    /// By group, the last collective that was called and the last that completed: also where the
    /// ring has overwritten them.
    groups: Vec<GroupStatus>,
}

/// A call, as small as it can be said.
#[derive(Clone, Copy, Debug)]
struct Entry {
    work: u32,
    op: u32,
    part: u32,
    seq: u64,
    /// For collectives, which a group's status counts.
    group: Option<GroupId>,
    scheduled_ns: u64,
    started_ns: Option<u64>,
    completed_ns: Option<u64>,
}

impl Recorder {
    /// A recorder of so many calls; 0 records none.
    pub(super) fn new(plan: Arc<Plan>, rank: GlobalRank, capacity: u32) -> Recorder {
        let (entries, groups) = (VecDeque::new(), vec![GroupStatus::default(); plan.groups.len()]);
        Recorder { plan, rank, capacity: capacity as usize, entries, groups }
    }

    /// Takes a note of the clerk's, if it is of a call.
    pub(super) fn take(&mut self, now_ns: u64, note: &Note) {
        match *note {
            Note::Scheduled { work, op, part, seq } => {
                self.begin(now_ns, [work, op, part], seq, None);
            }
            Note::Started { work } => self.start(now_ns, work),
            Note::Completed { work } | Note::Left { work, .. } => self.complete(now_ns, work),
            Note::Entered { work, op, seq, .. } => {
                self.begin(now_ns, [work, op, 0], seq, Some(now_ns));
            }
            _ => {}
        }
    }

    fn begin(
        &mut self,
        now_ns: u64,
        [work, op, part]: [u32; 3],
        seq: u64,
        started_ns: Option<u64>,
    ) {
        if self.capacity == 0 {
            return;
        }
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        let group = self.collective_group(op, part);
        self.entries.push_back(Entry {
            work,
            op,
            part,
            seq,
            group,
            scheduled_ns: now_ns,
            started_ns,
            completed_ns: None,
        });
        if let Some(status) = group.and_then(|group| self.groups.get_mut(group.index())) {
            status.last_enqueued = Some(seq);
        }
    }

    fn start(&mut self, now_ns: u64, work: u32) {
        if let Some(entry) = self.entry(work) {
            entry.started_ns = Some(now_ns);
        }
    }

    fn complete(&mut self, now_ns: u64, work: u32) {
        let Some(entry) = self.entry(work) else { return };
        entry.completed_ns = Some(now_ns);
        let (group, seq) = (entry.group, entry.seq);
        if let Some(status) = group.and_then(|group| self.groups.get_mut(group.index())) {
            status.last_completed = status.last_completed.max(Some(seq));
        }
    }

    fn collective_group(&self, op: u32, part: u32) -> Option<GroupId> {
        let op = self.plan.program(self.rank)?.ops.get(op as usize)?;
        let call = op.action.calls().get(part as usize)?;
        (!call.is_p2p()).then(|| call.group())
    }

    /// The call's entry, unless the ring has overwritten it.
    fn entry(&mut self, work: u32) -> Option<&mut Entry> {
        // From the end, which was written last: the first was written longest ago.
        let last = self.entries.back()?.work;
        let at = self.entries.len().checked_sub(1 + last.checked_sub(work)? as usize)?;
        self.entries.get_mut(at)
    }

    /// The dump as PyTorch's `_dump_fr_trace()` pickles it. `start_ns` is time 0 of the run on the
    /// shared clock, `epoch_ns` the same moment since 1970.
    pub(super) fn to_pickle(&self, start_ns: u64, epoch_ns: u64) -> Vec<u8> {
        let (plan, rank) = (&*self.plan, self.rank);
        let ps = |ns: u64| clock::picoseconds_between(start_ns, ns);
        let record = |entry: &Entry| {
            let call = plan.call(rank, entry.op, entry.part, entry.seq)?;
            let state = match (entry.started_ns, entry.completed_ns) {
                (_, Some(_)) => CallState::Completed,
                (Some(_), None) => CallState::Started,
                (None, None) => CallState::Scheduled,
            };
            Some(CallRecord {
                work: entry.work,
                state,
                seq: Some(entry.seq),
                record_id: None,
                plan_op: Some(entry.op),
                scheduled_ps: ps(entry.scheduled_ns),
                started_ps: entry.started_ns.map(ps),
                completed_ps: entry.completed_ns.map(ps),
                call: Arc::new(Called::from(&call)),
            })
        };
        let calls: Vec<CallRecord> = self.entries.iter().filter_map(record).collect();
        let started: Vec<Option<u64>> = calls.iter().map(|call| call.started_ps).collect();
        let mut ranks = vec![None; plan.world_size as usize];
        if let Some(slot) = ranks.get_mut(rank.index()) {
            *slot = Some(RankLog { calls, ..RankLog::default() });
        }
        let log = CallLog {
            world_size: plan.world_size,
            groups: plan.groups.clone(),
            ranks,
            outcome: Outcome::Unknown,
            recorded: true,
            simulated: false,
            device_times: false,
            ended_ps: None,
            plan: None,
        };
        let Some(mut dump) = dumps_of(&log, epoch_ns).into_iter().next() else {
            return Vec::new();
        };
        // The start of a call is known here, as it is to PyTorch with TORCH_NCCL_ENABLE_TIMING.
        for (entry, started_ps) in dump.entries.iter_mut().zip(started) {
            entry.started = started_ps.is_some();
            entry.started_ns = started_ps.map(|ps| epoch_ns.saturating_add(ps / 1000));
        }
        // A dump's groups are those that the rank is in, in the plan's order.
        let groups = (0u32..).map(GroupId).zip(&plan.groups);
        let own = groups.filter(|(_, group)| group.group_rank(rank).is_some());
        for (status, (group, _)) in dump.status.values_mut().zip(own) {
            *status = self.groups.get(group.index()).copied().unwrap_or_default();
        }
        dump.to_pickle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_formats::flight_recorder::Dump;

    #[test]
    fn the_ring_wraps_and_its_dump_is_read_back() {
        let mut plan = PlanBuilder::new("ring", 2, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 4, Fill::Zeros);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan
            .every_rank(|_, program| {
                for _ in 0..10 {
                    program.collective(GroupId::WORLD, sum, 4, None, Some(tensor));
                }
            })
            .unwrap();
        let plan = Arc::new(plan);
        let mut recorder = Recorder::new(plan.clone(), GlobalRank(1), 3);
        for work in 0..10 {
            let seq = u64::from(work) + 1;
            let now_ns = 1000 * u64::from(work);
            recorder.take(now_ns, &Note::Scheduled { work, op: work, part: 0, seq });
            if work < 9 {
                recorder.take(now_ns + 10, &Note::Started { work });
            }
            if work < 8 {
                recorder.take(now_ns + 20, &Note::Completed { work });
            }
        }
        // A call whose entry is gone is none of the ring's.
        recorder.take(99_999, &Note::Completed { work: 0 });
        let pickle = recorder.to_pickle(0, 5_000_000);
        let dump = Dump::read("nccl_trace_rank_1", &pickle).unwrap();
        let seen: Vec<_> = dump
            .entries
            .iter()
            .map(|e| (e.record_id, e.collective_seq, e.started, e.completed, e.created_ns))
            .collect();
        assert_eq!(
            seen,
            [
                (Some(7), Some(8), true, true, 5_007_000),
                (Some(8), Some(9), true, false, 5_008_000),
                (Some(9), Some(10), false, false, 5_009_000),
            ]
        );
        let status = dump.status.values().next().unwrap();
        assert_eq!((status.last_enqueued, status.last_completed), (Some(10), Some(8)));
        let mut none = Recorder::new(plan, GlobalRank(0), 0);
        none.take(1, &Note::Scheduled { work: 0, op: 0, part: 0, seq: 1 });
        assert!(none.entries.is_empty() && !none.to_pickle(0, 0).is_empty());
    }
}
