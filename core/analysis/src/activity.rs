//! The activity of every rank: its calls and, where they are known, its computations.

use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Called, RecordedStep, Trace, rank_ops};
use lockstep_formats::frames::{short_frame, user_frame};
use std::sync::Arc;

/// Names an operation of a plan that stands for a time in which a profile shows a device without a kernel. Nothing is
/// computed then.
pub const NO_KERNEL: &str = "no kernel on the device";

/// The activity of a job's ranks, with times in picoseconds after the start of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    /// By rank; those of which nothing was recorded are empty.
    pub ranks: Vec<RankActivity>,
    /// The process groups, by their ids.
    pub groups: Vec<ProcessGroup>,
    /// When the first thing happened.
    pub start_ps: u64,
    /// When the last thing happened.
    pub end_ps: u64,
    /// True if computations are known: of simulations, runs and profiles of devices. A Flight Recorder dump holds
    /// calls only, so the time between them is unknown.
    pub knows_computations: bool,
    /// True of a recording by another tool.
    pub is_recorded: bool,
    /// True if a device's clock says when all calls began and ended. NCCL's calls are asynchronous: the time that a process
    /// spends in one says nothing of the data that moved.
    pub has_device_times: bool,
}

/// The calls and computations of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankActivity {
    /// True if something of it was recorded.
    pub recorded: bool,
    /// Its calls, in the order in which it made them.
    pub calls: Vec<TimedCall>,
    /// Its computations and pauses, by when they began; those of one rank do not overlap on one stream.
    pub computations: Vec<Computation>,
    /// The training steps that its program marked for a profiler, by their numbers.
    pub marked_steps: Vec<RecordedStep>,
}

/// A call and when it was ready and over.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedCall {
    /// Its number on its rank, as in the trace.
    pub work: u32,
    /// The operation in the rank's program that made it, if there is a plan.
    pub plan_op: Option<u32>,
    /// Its sequence number in the group.
    pub seq: Option<u64>,
    /// When the rank's process made the call.
    pub made_ps: u64,
    /// When the rank was ready for its peers: its stream began with the call, or the call was made where that is not
    /// known.
    pub ready_ps: u64,
    /// True if a device's clock says when it began and ended, where that is not so of all calls.
    pub on_device: bool,
    /// When it was over on this rank; `None` if it never was.
    pub ended_ps: Option<u64>,
    /// The call.
    pub called: Arc<Called>,
}

impl TimedCall {
    /// The group and number of a collective, by which its members' calls are known to be the same one.
    pub(crate) fn row(&self) -> Option<(GroupId, u64)> {
        let seq = self.seq.filter(|_| !self.called.p2p)?;
        Some((self.called.group, seq))
    }
}

/// A computation, or a pause, of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation {
    /// When it began.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// Its name: `forward`, a kernel.
    pub name: Arc<str>,
    /// True of a pause: the rank did nothing, and said so.
    pub is_pause: bool,
    /// Its operation in the rank's program, if there is a plan.
    pub op: Option<u32>,
}

impl Activity {
    /// Reads the activity of a trace: calls, and the computations of its plan.
    pub fn of_trace(trace: &Trace) -> Activity {
        let log = CallLog::of(trace);
        let mut activity = Activity::of_calls(&log);
        activity.knows_computations = trace.header.plan.is_some();
        for (rank, ops) in rank_ops(trace) {
            let Some(own) = activity.ranks.get_mut(rank.index()) else { continue };
            let computations = ops.computations(trace, rank).filter(|one| *one.name != *NO_KERNEL);
            let known = computations.filter_map(|one| {
                let to_ps = one.span.to_ps.filter(|to_ps| *to_ps > one.span.from_ps)?;
                Some(Computation {
                    from_ps: one.span.from_ps,
                    to_ps,
                    name: one.name.into(),
                    is_pause: one.idle,
                    op: Some(one.op),
                })
            });
            own.computations.extend(known);
        }
        for own in &mut activity.ranks {
            own.computations.sort_by_key(|one| (one.from_ps, one.to_ps));
        }
        activity.stretch();
        activity
    }

    /// Reads calls, and the computations that a profile has; other computations are unknown.
    pub fn of_calls(log: &CallLog) -> Activity {
        let mut activity = Activity {
            ranks: vec![RankActivity::default(); log.ranks.len()],
            groups: log.groups.clone(),
            start_ps: 0,
            end_ps: 0,
            knows_computations: log.logs().any(|(_, own)| !own.recording.computations.is_empty()),
            is_recorded: log.recorded,
            has_device_times: log.device_times,
        };
        // A recorder that polls sees a start only when it looks.
        let all_starts_are_known = log.device_times || !log.recorded;
        for (rank, own) in log.logs() {
            let Some(activity) = activity.ranks.get_mut(rank.index()) else { continue };
            activity.recorded = true;
            activity.computations.extend(own.recording.computations.iter().map(|one| {
                Computation {
                    from_ps: one.from_ps,
                    to_ps: one.to_ps,
                    name: Arc::clone(&one.name),
                    is_pause: false,
                    op: None,
                }
            }));
            activity.marked_steps.clone_from(&own.recording.steps);
            // Calls of one group follow each other.
            let mut busy_until: Vec<u64> = vec![0; log.groups.len()];
            activity.calls = Vec::with_capacity(own.calls.len());
            for record in &own.calls {
                let before = busy_until.get_mut(record.call.group.index());
                let on_device = own.recording.device_timed.contains(&record.work);
                let starts_are_known = all_starts_are_known || on_device;
                let made_ps = match starts_are_known {
                    true => record.started_ps.unwrap_or(record.scheduled_ps),
                    false => record.scheduled_ps,
                };
                let after_ps = before.as_deref().copied().unwrap_or(0);
                let ready_ps = match (starts_are_known, record.completed_ps) {
                    (false, Some(ended_ps)) => made_ps.max(after_ps).min(ended_ps.max(made_ps)),
                    _ => made_ps,
                };
                let ended_ps = record.completed_ps.map(|ended_ps| ended_ps.max(ready_ps));
                if let Some((before, ended_ps)) = before.zip(ended_ps).filter(|_| !record.call.p2p)
                {
                    *before = ended_ps.max(*before);
                }
                activity.calls.push(TimedCall {
                    work: record.work,
                    plan_op: record.plan_op,
                    seq: record.seq,
                    made_ps: record.scheduled_ps,
                    ready_ps,
                    on_device,
                    ended_ps,
                    called: Arc::clone(&record.call),
                });
            }
        }
        activity.stretch();
        activity
    }

    /// Sets start and end by the recorded calls and computations.
    fn stretch(&mut self) {
        let (mut start_ps, mut end_ps) = (u64::MAX, 0);
        for own in &self.ranks {
            for call in &own.calls {
                start_ps = start_ps.min(call.ready_ps);
                end_ps = end_ps.max(call.ended_ps.unwrap_or(call.ready_ps));
            }
            for one in &own.computations {
                start_ps = start_ps.min(one.from_ps);
                end_ps = end_ps.max(one.to_ps);
            }
        }
        (self.start_ps, self.end_ps) = (start_ps.min(end_ps), end_ps);
    }

    /// A call of a rank, by its index among the rank's calls.
    pub(crate) fn call(&self, (rank, at): (GlobalRank, usize)) -> Option<&TimedCall> {
        self.ranks.get(rank.index())?.calls.get(at)
    }

    /// The name of a call's group.
    pub(crate) fn group_label(&self, called: &Called) -> &str {
        self.groups.get(called.group.index()).map_or("?", ProcessGroup::label)
    }
}

/// The user's source line of a call, not PyTorch's: `train.py:88`, or nothing.
pub(crate) fn line_of(called: &Called) -> Option<String> {
    user_frame(&called.stack).map(short_frame)
}
