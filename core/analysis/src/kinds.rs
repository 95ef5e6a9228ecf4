//! The calls of a job by kind, and the cost of each: a kind has one operation, size, group and source line.

use crate::activity::{Activity, line_of};
use crate::bandwidth::bus_factor;
use crate::meetings::{CallAt, Meetings};
use crate::segments::{Busy, Segment};
use lockstep_core::group::{BackendName, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Called, TensorShape};
use lockstep_core::words::rank_list;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The calls of one kind: those of one operation, group, size and source line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallKind {
    /// PyTorch's name: `all_reduce`.
    pub op: String,
    /// The group's description, or its name; with its ranks where several groups are called that.
    pub group: String,
    /// The number of its members.
    pub members: u32,
    /// The source line: `train.py:88`.
    pub line: Option<String>,
    /// The bytes of one call's whole buffer, as nccl-tests counts them.
    pub bytes: u64,
    /// The number of calls; all members together count once.
    pub count: u64,
    /// The median time from when its last member was ready to when its last member was done, in picoseconds.
    pub median_ps: u64,
    /// The bus bandwidth of that, in bytes a second (nccl-tests, `doc/PERFORMANCE.md`); `None` where the call has none,
    /// and of a recording that has only a process's times of NCCL's calls, which do not wait for the data.
    pub busbw: Option<f64>,
    /// The time in which a member communicated in these calls and did not compute: the mean of the members, in
    /// picoseconds, all calls together.
    pub exposed_ps: u64,
    /// The time that a member waited for the last one in these calls: the mean of the members, in picoseconds.
    pub waiting_ps: u64,
    /// The rank that was ready last most often, and how often; `None` if all are always ready at once.
    pub last: Option<(GlobalRank, u64)>,
}

/// The calls of a kind, added up.
#[derive(Default)]
struct Seen {
    times_ps: Vec<u64>,
    exposed_ps: u128,
    waiting_ps: u128,
    last: BTreeMap<GlobalRank, u64>,
}

/// Every kind of collectives of which all members' calls are known, the most exposed first.
pub(crate) fn call_kinds(
    activity: &Activity,
    meetings: &Meetings,
    segments: &[Vec<Segment>],
) -> Vec<CallKind> {
    let computing: Vec<Computing> = segments.iter().map(|own| Computing::of(own)).collect();
    let mut kinds: BTreeMap<(&str, u32, u64, Option<String>), Seen> = BTreeMap::new();
    for collective in &meetings.collectives {
        let Some((last_ps, last)) = collective.calls.last().copied() else { continue };
        let Some(called) = activity.call(last).map(|call| &call.called) else { continue };
        let calls = collective.calls.iter().filter_map(|(_, at)| Some((*at, activity.call(*at)?)));
        let ends: Option<Vec<u64>> = calls.clone().map(|(_, call)| call.ended_ps).collect();
        let Some(end_ps) = ends.and_then(|ends| ends.into_iter().max()) else { continue };
        let bytes = calls.clone().map(|(_, call)| whole_bytes(&call.called)).max().unwrap_or(0);
        let key = (called.op.as_str(), called.group.0, bytes, line_of(called));
        let seen = kinds.entry(key).or_default();
        seen.times_ps.push(end_ps.saturating_sub(last_ps));
        for ((rank, at), call) in calls {
            let call_end_ps = call.ended_ps.unwrap_or(end_ps);
            let needed = needed_ps(meetings, (rank, at), call.ready_ps).min(call_end_ps);
            let hidden = computing.get(rank.index()).map_or(0, |it| it.within(needed, call_end_ps));
            seen.exposed_ps += u128::from((call_end_ps - needed).saturating_sub(hidden));
            seen.waiting_ps += u128::from(needed - call.ready_ps.min(needed));
        }
        let first_ps = collective.calls.first().map_or(last_ps, |(first_ps, _)| *first_ps);
        if first_ps < last_ps {
            *seen.last.entry(last.0).or_default() += 1;
        }
    }
    let mut kinds: Vec<CallKind> = kinds
        .into_iter()
        .map(|((op, group, bytes, line), seen)| {
            let group = activity.groups.get(group as usize);
            let members = group.map_or(1, ProcessGroup::size).max(1);
            let mut times_ps = seen.times_ps;
            times_ps.sort_unstable();
            let median_ps = times_ps.get(times_ps.len() / 2).copied().unwrap_or(0);
            let nccl = group.is_some_and(|group| group.backend() == BackendName::Nccl);
            let is_timed = !(nccl && activity.is_recorded) || activity.has_device_times;
            let factor = bus_factor(op, members).filter(|_| median_ps > 0 && bytes > 0 && is_timed);
            let is_recorded = |rank: &GlobalRank| {
                activity.ranks.get(rank.index()).is_some_and(|own| own.recorded)
            };
            // The times of members without a recording are in no sum.
            let summed = group.map_or(1, |group| {
                group.ranks().iter().filter(|rank| is_recorded(rank)).count().max(1)
            });
            let mean = |sum: u128| u64::try_from(sum / summed as u128).unwrap_or(u64::MAX);
            let last =
                seen.last.into_iter().max_by_key(|(rank, times)| (*times, u32::MAX - rank.0));
            CallKind {
                op: op.to_owned(),
                group: group
                    .map_or_else(|| "?".to_owned(), |group| name_of(group, &activity.groups)),
                members,
                line,
                bytes,
                count: times_ps.len() as u64,
                median_ps,
                busbw: factor.map(|factor| factor * bytes as f64 / (median_ps as f64 / 1e12)),
                exposed_ps: mean(seen.exposed_ps),
                waiting_ps: mean(seen.waiting_ps),
                last,
            }
        })
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse((kind.exposed_ps + kind.waiting_ps, kind.count)));
    kinds
}

/// The groups of a mesh's dimension have one description: `mesh_tp, ranks 4-7`.
fn name_of(group: &ProcessGroup, all: &[ProcessGroup]) -> String {
    let label = group.label();
    match all.iter().filter(|other| other.label() == label).count() {
        0 | 1 => label.to_owned(),
        _ => format!("{label}, ranks {}", rank_list(group.ranks())),
    }
}

fn needed_ps(meetings: &Meetings, at: CallAt, ready_ps: u64) -> u64 {
    meetings.last(at).map_or(ready_ps, |last| last.ready_ps.max(ready_ps))
}

/// The bytes of the larger of a call's input and output: its whole buffer.
fn whole_bytes(called: &Called) -> u64 {
    let bytes = |tensors: &[TensorShape]| {
        let each = tensors.iter().map(|it| it.numel().saturating_mul(it.dtype.size_bytes()));
        each.fold(0u64, u64::saturating_add)
    };
    bytes(&called.inputs).max(bytes(&called.outputs))
}

/// When a rank computed, so that the computing time of any stretch is found by two searches.
struct Computing {
    /// By end of each stretch of computing: its end, its length, and the computing time until then.
    until: Vec<(u64, u64, u64)>,
}

impl Computing {
    fn of(segments: &[Segment]) -> Computing {
        let mut sum = 0u64;
        let computing = segments.iter().filter(|segment| segment.busy == Busy::Computing);
        let until = computing.map(|segment| {
            let length = segment.to_ps - segment.from_ps;
            sum = sum.saturating_add(length);
            (segment.to_ps, length, sum)
        });
        Computing { until: until.collect() }
    }

    fn before(&self, time_ps: u64) -> u64 {
        let at = self.until.partition_point(|(end_ps, _, _)| *end_ps <= time_ps);
        let done = at.checked_sub(1).and_then(|at| self.until.get(at)).map_or(0, |it| it.2);
        let part = self.until.get(at).map_or(0, |(end_ps, length, _)| {
            time_ps.saturating_sub(end_ps.saturating_sub(*length)).min(*length)
        });
        done + part
    }

    fn within(&self, from_ps: u64, to_ps: u64) -> u64 {
        self.before(to_ps).saturating_sub(self.before(from_ps))
    }
}
