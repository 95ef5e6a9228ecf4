//! The critical path of a job: the chain of computations and calls, across ranks, that ended last.
//!
//! It is found backwards from the last thing that ended. Before a computation on the path comes the last
//! thing that ended on the same rank before it began. A call moves data from when the last peer that it needs
//! is ready, and the path goes on with the reason that made that peer late. So the parts follow each other
//! without gaps, and their times add up to the time of the job. Shortening anything else does not make the
//! job shorter.

use crate::activity::{Activity, line_of};
use crate::meetings::Meetings;
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The reason for the time of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A computation.
    Computing,
    /// A call, from when all peers that it needs were ready.
    Communicating,
    /// A pause that the program made on purpose.
    Pause,
    /// Unknown: the rank was idle, or its activity was not recorded.
    Idle,
}

/// A part of the critical path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPart {
    /// The rank that it is on.
    pub rank: GlobalRank,
    /// When it began, in picoseconds after the start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// The reason for its time.
    pub cause: Cause,
    /// The computation's name, or the call and its group: `all_reduce of dp`; empty where it was idle.
    pub name: String,
    /// The source line of the call: `train.py:88`.
    pub line: Option<String>,
    /// The call's number on its rank, as in the trace.
    pub work: Option<u32>,
}

/// The critical path, first part first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// Its parts; each begins when the one before ends.
    pub parts: Vec<PathPart>,
}

/// The parts of a path that are alike: one computation, one call of one line, or idle.
#[derive(Clone, Debug, PartialEq)]
pub struct PathKind<'a> {
    /// The longest of them.
    pub longest: &'a PathPart,
    /// Their time, in picoseconds.
    pub time_ps: u64,
    /// Their number.
    pub count: u64,
    /// Their time by rank, in picoseconds.
    pub by_rank: BTreeMap<GlobalRank, u64>,
}

/// Something that ended on a rank, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    Computation(usize),
    Call(usize),
}

impl CriticalPath {
    pub(crate) fn of(activity: &Activity, meetings: &Meetings) -> CriticalPath {
        let mut walk = Walk::new(activity);
        let last = walk.ended.iter().enumerate().filter_map(|(rank, ended)| {
            let (end_ps, _) = ended.last()?;
            Some((*end_ps, usize::MAX - rank, GlobalRank(rank as u32)))
        });
        let Some((end_ps, _, rank)) = last.max() else { return CriticalPath::default() };
        let (mut rank, mut time_ps) = (rank, end_ps);
        while let Some((end_ps, ended)) = walk.last_before(rank, time_ps) {
            walk.idle(rank, (end_ps, time_ps));
            match ended {
                Ended::Computation(at) => {
                    let Some(one) =
                        activity.ranks.get(rank.index()).and_then(|own| own.computations.get(at))
                    else {
                        break;
                    };
                    let cause = if one.is_pause { Cause::Pause } else { Cause::Computing };
                    walk.part(rank, (one.from_ps, end_ps), cause, &one.name, None);
                    time_ps = one.from_ps;
                }
                Ended::Call(at) => {
                    let Some(call) = activity.call((rank, at)) else { break };
                    let last = meetings.last((rank, at)).filter(|last| last.ready_ps <= end_ps);
                    let ready_ps =
                        last.map_or(call.ready_ps, |last| last.ready_ps.max(call.ready_ps));
                    let name =
                        format!("{} of {}", call.called.op, activity.group_label(&call.called));
                    walk.part(rank, (ready_ps, end_ps), Cause::Communicating, &name, Some(at));
                    time_ps = ready_ps;
                    if let Some(last) = last.filter(|last| last.ready_ps >= call.ready_ps) {
                        rank = last.call.0;
                        // The peer was late for a reason before this call.
                        walk.visit(rank, Ended::Call(last.call.1));
                    }
                }
            }
        }
        walk.idle(rank, (activity.start_ps, time_ps));
        walk.parts.reverse();
        CriticalPath { parts: walk.parts }
    }

    /// The time of all parts of a cause, in picoseconds.
    pub fn time_of(&self, cause: Cause) -> u64 {
        let parts = self.parts.iter().filter(|part| part.cause == cause);
        parts.map(|part| part.to_ps - part.from_ps).sum()
    }

    /// The parts added up by kind, those that take longest first.
    pub fn kinds(&self) -> Vec<PathKind<'_>> {
        let mut kinds: BTreeMap<(Cause, &str, Option<&str>), PathKind<'_>> = BTreeMap::new();
        for part in &self.parts {
            let length_ps = part.to_ps - part.from_ps;
            let key = (part.cause, part.name.as_str(), part.line.as_deref());
            let kind = kinds.entry(key).or_insert_with(|| PathKind {
                longest: part,
                time_ps: 0,
                count: 0,
                by_rank: BTreeMap::new(),
            });
            kind.time_ps += length_ps;
            kind.count += 1;
            *kind.by_rank.entry(part.rank).or_default() += length_ps;
            if length_ps > kind.longest.to_ps - kind.longest.from_ps {
                kind.longest = part;
            }
        }
        let mut kinds: Vec<PathKind<'_>> = kinds.into_values().collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.time_ps));
        kinds
    }

    /// The time of all parts, in picoseconds.
    pub fn time_ps(&self) -> u64 {
        self.parts.iter().map(|part| part.to_ps - part.from_ps).sum()
    }
}

/// The way back along the path.
struct Walk<'a> {
    activity: &'a Activity,
    /// By rank, the activities that ended, with their times.
    ended: Vec<Vec<(u64, Ended)>>,
    /// By rank, true for each entry of `ended` that the path has passed already.
    passed: Vec<Vec<bool>>,
    parts: Vec<PathPart>,
}

impl<'a> Walk<'a> {
    fn new(activity: &'a Activity) -> Walk<'a> {
        let ended = activity.ranks.iter().map(|own| {
            let computations = own.computations.iter().enumerate();
            let computations = computations.map(|(at, one)| (one.to_ps, Ended::Computation(at)));
            let calls = own.calls.iter().enumerate();
            let calls = calls.filter_map(|(at, call)| Some((call.ended_ps?, Ended::Call(at))));
            let mut ended: Vec<(u64, Ended)> = computations.chain(calls).collect();
            ended.sort_unstable();
            ended
        });
        let ended: Vec<Vec<(u64, Ended)>> = ended.collect();
        let passed = ended.iter().map(|own| vec![false; own.len()]).collect();
        Walk { activity, ended, passed, parts: Vec::new() }
    }

    /// The last thing that ended on a rank until a moment and was not passed; it is passed now.
    fn last_before(&mut self, rank: GlobalRank, time_ps: u64) -> Option<(u64, Ended)> {
        let ended = self.ended.get(rank.index())?;
        let passed = self.passed.get_mut(rank.index())?;
        let until = ended.partition_point(|(end_ps, _)| *end_ps <= time_ps);
        let at = (0..until).rev().find(|at| passed.get(*at) == Some(&false))?;
        *passed.get_mut(at)? = true;
        ended.get(at).copied()
    }

    fn visit(&mut self, rank: GlobalRank, what: Ended) {
        let (Some(ended), Some(passed)) =
            (self.ended.get(rank.index()), self.passed.get_mut(rank.index()))
        else {
            return;
        };
        let end_ps = match what {
            Ended::Call(at) => self.activity.call((rank, at)).and_then(|call| call.ended_ps),
            Ended::Computation(_) => None,
        };
        let at = end_ps.and_then(|end_ps| ended.binary_search(&(end_ps, what)).ok());
        if let Some(passed) = at.and_then(|at| passed.get_mut(at)) {
            *passed = true;
        }
    }

    fn idle(&mut self, rank: GlobalRank, stretch: (u64, u64)) {
        self.part(rank, stretch, Cause::Idle, "", None);
    }

    fn part(
        &mut self,
        rank: GlobalRank,
        (from_ps, to_ps): (u64, u64),
        cause: Cause,
        name: &str,
        call: Option<usize>,
    ) {
        if to_ps <= from_ps {
            return;
        }
        let call = call.and_then(|at| self.activity.call((rank, at)));
        self.parts.push(PathPart {
            rank,
            from_ps,
            to_ps,
            cause,
            name: name.to_owned(),
            line: call.and_then(|call| line_of(&call.called)),
            work: call.map(|call| call.work),
        });
    }
}
