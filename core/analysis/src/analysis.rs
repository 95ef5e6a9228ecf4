//! The whole analysis of a job: shares of time, kinds of calls, late ranks, critical path, steps.

use crate::activity::Activity;
use crate::critical_path::CriticalPath;
use crate::kinds::{CallKind, call_kinds};
use crate::late::{LateRank, late_ranks};
use crate::meetings::{Meetings, knows_ends};
use crate::segments::{Busy, Segment, segments};
use crate::steps::{StepOps, Steps};
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};

/// The schema of the JSON.
pub(crate) const ANALYSIS_SCHEMA: &str = "lockstep.analysis/1";

/// A stretch of a rank's time, in picoseconds, by the rank's activity; the four add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Computing.
    pub computing_ps: u64,
    /// In calls that moved data or might have, while nothing was computed: exposed communication.
    pub communicating_ps: u64,
    /// In calls that waited for a peer that was not ready.
    pub waiting_ps: u64,
    /// In none of these. Where computations are not recorded, they are in here.
    pub idle_ps: u64,
}

/// A stretch of time that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// A training step.
    Step,
    /// All of the time.
    Whole,
}

impl Stretch {
    /// A step where both analyses have steps, else the whole time: one must not be held against the other.
    pub fn of_both(one: &Analysis, other: &Analysis) -> Stretch {
        match one.step_ps.is_some() && other.step_ps.is_some() {
            true => Stretch::Step,
            false => Stretch::Whole,
        }
    }
}

/// The time of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTime {
    /// The rank.
    pub rank: GlobalRank,
    /// The shares of the rank's whole time.
    pub total: Share,
    /// The shares of a step: the median of each, without the first step if there are more than two; `None`
    /// without steps.
    pub step: Option<Share>,
}

/// A training step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// When its first rank began it, in picoseconds after the start.
    pub from_ps: u64,
    /// When its last rank ended it.
    pub to_ps: u64,
    /// From the end of the last rank in the step before to the end of the last rank in this one.
    pub duration_ps: u64,
    /// By rank, how it was spent; only ranks with steps.
    pub ranks: Vec<(GlobalRank, Share)>,
}

/// The analysis of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`ANALYSIS_SCHEMA`].
    pub schema: String,
    /// The number of ranks of the job.
    pub world_size: u32,
    /// From the first thing that happened to the last, in picoseconds.
    pub time_ps: u64,
    /// False if computations were not recorded: then they are in the idle time.
    pub knows_computations: bool,
    /// False if the recorder shows only when calls were issued: then communication times are unknown, and the
    /// time of waiting is the difference between the times at which the ranks issued their calls.
    pub knows_ends: bool,
    /// The number of calls that never ended: the job hung, or its recording was made while it ran.
    pub unfinished: u64,
    /// The median time of a step, in picoseconds, without the first where there are more than two.
    pub step_ps: Option<u64>,
    /// By rank; ranks of which nothing was recorded are left out.
    pub ranks: Vec<RankTime>,
    /// The kinds of collectives, the most exposed first.
    pub calls: Vec<CallKind>,
    /// The ranks that came late, those that held up the others longest first.
    pub late: Vec<LateRank>,
    /// The critical path across ranks.
    pub critical_path: CriticalPath,
    /// The steps, in order; empty where calls do not repeat.
    pub steps: Vec<StepTime>,
}

impl Analysis {
    /// Analyses the activity of a job.
    pub fn of(activity: &Activity) -> Analysis {
        Analysis::of_steps(activity, &Steps::of(activity))
    }

    /// Analyses a trace of a plan whose steps are these of its operations.
    pub fn with_steps(activity: &Activity, ops: &StepOps) -> Analysis {
        Analysis::of_steps(activity, &Steps::of_ops(activity, ops))
    }

    fn of_steps(activity: &Activity, steps: &Steps) -> Analysis {
        let meetings = Meetings::of(activity);
        let ranks = || (0..activity.ranks.len() as u32).map(GlobalRank);
        let busy: Vec<Vec<Segment>> =
            ranks().map(|rank| segments(activity, &meetings, rank)).collect();
        let by_rank: Vec<Vec<Share>> = steps
            .of_rank
            .iter()
            .zip(&busy)
            .map(|(steps, busy)| {
                steps.iter().map(|step| share(busy, (step.from_ps, step.to_ps))).collect()
            })
            .collect();
        let whole = (activity.start_ps, activity.end_ps);
        let rank_times =
            ranks().zip(&activity.ranks).zip(&busy).filter(|((_, own), _)| own.recorded);
        let rank_times = rank_times.map(|((rank, _), busy)| RankTime {
            rank,
            total: share(busy, whole),
            step: by_rank.get(rank.index()).and_then(|shares| median_share(settled(shares))),
        });
        let step_times = step_times(steps, &by_rank);
        let calls = activity.ranks.iter().flat_map(|own| &own.calls);
        let unfinished = calls.filter(|call| call.ended_ps.is_none()).count();
        let durations: Vec<u64> = step_times.iter().map(|step| step.duration_ps).collect();
        Analysis {
            schema: ANALYSIS_SCHEMA.to_owned(),
            world_size: activity.ranks.len() as u32,
            time_ps: activity.end_ps - activity.start_ps,
            knows_computations: activity.knows_computations,
            knows_ends: knows_ends(activity),
            unfinished: unfinished as u64,
            step_ps: median(settled(&durations).to_vec()),
            ranks: rank_times.collect(),
            calls: call_kinds(activity, &meetings, &busy),
            late: late_ranks(&meetings, activity.ranks.len()),
            critical_path: CriticalPath::of(activity, &meetings),
            steps: step_times,
        }
    }

    /// The mean over ranks of a part of their time: of a step, or of the whole time. Ranks without steps do not count
    /// in the mean of a step.
    pub fn mean_ps(&self, stretch: Stretch, part: impl Fn(Share) -> u64) -> u64 {
        let shares = self.ranks.iter().filter_map(|own| match stretch {
            Stretch::Step => own.step,
            Stretch::Whole => Some(own.total),
        });
        let (sum, count) = shares
            .fold((0u128, 0u128), |(sum, count), share| (sum + u128::from(part(share)), count + 1));
        u64::try_from(sum / count.max(1)).unwrap_or(u64::MAX)
    }
}

/// Steps without the first, which is often another one, where there are enough.
fn settled<T>(steps: &[T]) -> &[T] {
    match steps {
        [_, rest @ ..] if rest.len() >= 2 => rest,
        all => all,
    }
}

pub(crate) fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn median_share(shares: &[Share]) -> Option<Share> {
    let of = |part: fn(&Share) -> u64| median(shares.iter().map(part).collect());
    Some(Share {
        computing_ps: of(|share| share.computing_ps)?,
        communicating_ps: of(|share| share.communicating_ps)?,
        waiting_ps: of(|share| share.waiting_ps)?,
        idle_ps: of(|share| share.idle_ps)?,
    })
}

/// Adds up the segments of a rank that lie in a stretch.
fn share(segments: &[Segment], (from_ps, to_ps): (u64, u64)) -> Share {
    let mut share = Share::default();
    let first = segments.partition_point(|segment| segment.to_ps <= from_ps);
    for segment in segments.iter().skip(first).take_while(|segment| segment.from_ps < to_ps) {
        let part = segment.to_ps.min(to_ps) - segment.from_ps.max(from_ps);
        match segment.busy {
            Busy::Computing => share.computing_ps += part,
            Busy::Communicating => share.communicating_ps += part,
            Busy::Waiting => share.waiting_ps += part,
        }
    }
    let busy_ps = share.computing_ps + share.communicating_ps + share.waiting_ps;
    share.idle_ps = to_ps.saturating_sub(from_ps).saturating_sub(busy_ps);
    share
}

fn step_times(steps: &Steps, shares: &[Vec<Share>]) -> Vec<StepTime> {
    let mut times: Vec<StepTime> = Vec::with_capacity(steps.count);
    for number in 0..steps.count {
        let stretches = steps.of_rank.iter().filter_map(|own| own.get(number));
        let from_ps = stretches.clone().map(|step| step.from_ps);
        let to_ps = stretches.map(|step| step.to_ps).max();
        let (Some(first_ps), Some(last_ps), Some(to_ps)) =
            (from_ps.clone().min(), from_ps.max(), to_ps)
        else {
            continue;
        };
        let ranks = (0..).map(GlobalRank).zip(shares);
        let ranks = ranks.filter_map(|(rank, own)| Some((rank, *own.get(number)?)));
        times.push(StepTime {
            from_ps: first_ps,
            to_ps,
            duration_ps: to_ps.saturating_sub(last_ps),
            ranks: ranks.collect(),
        });
    }
    times
}
