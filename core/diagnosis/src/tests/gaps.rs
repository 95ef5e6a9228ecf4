//! Jobs in which one rank goes astray, recorded with gaps: a dump that is missing, rings that have
//! dropped what came first. What is certain must be that rank's doing, and a hang is never health.

use crate::{Certainty, Finding, Kind, Verdict, diagnose};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Frame, Outcome, RankLog, TensorShape,
};
use proptest::prelude::*;
use std::sync::Arc;

/// A call of a program, and in which round of its loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Does {
    pub(super) op: &'static str,
    pub(super) group: usize,
    pub(super) numel: u64,
    pub(super) line: u32,
    pub(super) peer: Option<usize>,
    pub(super) round: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) groups: Vec<(String, Vec<usize>)>,
    pub(super) programs: Vec<Vec<Does>>,
}

pub(super) fn call(op: &'static str, group: usize, numel: u64, line: u32) -> Does {
    Does { op, group, numel, line, peer: None, round: None }
}

pub(super) fn with(peer: usize, does: Does) -> Does {
    Does { peer: Some(peer), ..does }
}

/// Programs that begin and end with a call of all, and go round in between.
fn job(
    groups: Vec<(String, Vec<usize>)>,
    rounds: usize,
    round: impl Fn(usize, usize) -> Vec<Does>,
) -> Job {
    let program = |rank: usize| {
        let mut program = vec![call("all_reduce", 0, 16, 5)];
        for at in 0..rounds {
            let calls = round(rank, at).into_iter();
            program.extend(calls.map(|does| Does { round: Some(at), ..does }));
        }
        program.push(call("barrier", 0, 1, 40));
        program
    };
    Job { programs: (0..groups[0].1.len()).map(program).collect(), groups }
}

/// Everybody in one group, which reduces a few buckets.
pub(super) fn data(world: usize, rounds: usize, shape: usize) -> Job {
    let size = |bucket: usize| if shape.is_multiple_of(2) { 64 } else { 64 << bucket };
    job(vec![("default_pg".into(), (0..world).collect())], rounds, |_, at| {
        let buckets = 1 + shape % 3;
        let mut calls: Vec<Does> =
            (0..buckets).map(|b| call("all_reduce", 0, size(b), 20 + b as u32)).collect();
        calls.extend((at % 2 == 1 && shape > 3).then(|| call("all_reduce", 0, 1, 33)));
        calls
    })
}

/// Pairs side by side, and groups across them.
pub(super) fn mesh(pairs: usize, rounds: usize, shape: usize) -> Job {
    let world = 2 * pairs;
    let mut groups = vec![("default_pg".to_owned(), (0..world).collect())];
    groups.extend((0..pairs).map(|at| (format!("tp{at}"), vec![2 * at, 2 * at + 1])));
    groups.extend((0..2).map(|at| (format!("dp{at}"), (at..world).step_by(2).collect())));
    job(groups, rounds, |rank, _| {
        let (tp, dp) = (1 + rank / 2, 1 + pairs + rank % 2);
        let mut calls = vec![call("all_reduce", tp, 64, 20)];
        calls.extend((shape % 2 == 1).then(|| call("all_gather", tp, 64, 21)));
        calls.push(call("all_reduce", dp, if shape.is_multiple_of(3) { 64 } else { 32 }, 22));
        calls.extend((shape > 3).then(|| call("all_reduce", 0, 1, 24)));
        calls
    })
}

/// Stages of two ranks, which send on what they get, and back.
pub(super) fn pipeline(stages: usize, rounds: usize, shape: usize) -> Job {
    let world = 2 * stages;
    let mut groups = vec![("default_pg".to_owned(), (0..world).collect())];
    groups.extend((0..2).map(|at| (format!("pp{at}"), (at..world).step_by(2).collect())));
    groups.extend((0..stages).map(|at| (format!("dp{at}"), vec![2 * at, 2 * at + 1])));
    job(groups, rounds, |rank, _| {
        let (stage, pp, dp) = (rank / 2, 1 + rank % 2, 3 + rank / 2);
        let (first, last) = (stage == 0, stage + 1 == stages);
        let mut calls = Vec::new();
        for _ in 0..=shape % 2 {
            calls.extend((!first).then(|| with(rank.wrapping_sub(2), call("recv", pp, 8, 20))));
            calls.extend((!last).then(|| with(rank + 2, call("send", pp, 8, 21))));
        }
        for _ in 0..=shape % 2 {
            calls.extend((!last).then(|| with(rank + 2, call("recv", pp, 8, 24))));
            calls.extend((!first).then(|| with(rank.wrapping_sub(2), call("send", pp, 8, 25))));
        }
        calls.push(call("all_reduce", dp, 512, 28));
        calls.extend((shape > 3).then(|| call("all_reduce", 0, 1, 29)));
        calls
    })
}

/// The deviation of the rank that goes astray.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LeavesOut,
    LeavesTwoOut,
    MakesOnTop,
    MakesAnother,
    OtherSize,
    Swaps,
    IsStuck,
    LeavesLoop,
}

const FAULTS: [Fault; 8] = [
    Fault::LeavesOut,
    Fault::LeavesTwoOut,
    Fault::MakesOnTop,
    Fault::MakesAnother,
    Fault::OtherSize,
    Fault::Swaps,
    Fault::IsStuck,
    Fault::LeavesLoop,
];

fn astray(program: &mut Vec<Does>, fault: Fault, at: usize) {
    let inside: Vec<usize> = (0..program.len()).filter(|at| program[*at].round.is_some()).collect();
    let at = inside[at % inside.len()];
    let does = program[at].clone();
    match fault {
        Fault::LeavesOut => drop(program.remove(at)),
        Fault::LeavesTwoOut => drop(program.drain(at..at + 2)),
        Fault::MakesOnTop => program.insert(at, does),
        Fault::MakesAnother => {
            let other = Does { op: "broadcast", numel: 9, line: 77, peer: None, ..does };
            program.insert(at, other);
        }
        Fault::OtherSize => program[at].numel += 1,
        Fault::Swaps => program.swap(at, at + 1),
        Fault::IsStuck => program.truncate(at),
        Fault::LeavesLoop => {
            program.retain(|other| other.round.is_none_or(|r| Some(r) < does.round))
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) does: Does,
    seq: u64,
    pub(super) at_ps: u64,
    pub(super) ended_ps: Option<u64>,
}

impl Made {
    fn pending(&self) -> bool {
        self.ended_ps.is_none()
    }
}

/// The calls made when the programs run, if a rank may have so many calls under way, and a group's
/// calls are carried out one behind the other.
pub(super) fn play(job: &Job, ahead: usize) -> Vec<Vec<Made>> {
    let mut made: Vec<Vec<Made>> = vec![Vec::new(); job.programs.len()];
    let mut now_ps = 0;
    let first = |made: &[Made], is: &dyn Fn(&Does) -> bool| {
        made.iter().position(|made| made.pending() && is(&made.does))
    };
    loop {
        let mut moved = false;
        for (own, program) in made.iter_mut().zip(&job.programs) {
            while own.iter().filter(|made| made.pending()).count() < ahead
                && let Some(does) = program.get(own.len())
            {
                let is_like = |made: &&Made| {
                    made.does.group == does.group && made.does.peer.is_some() == does.peer.is_some()
                };
                let seq = 1 + own.iter().filter(is_like).count() as u64;
                now_ps += 1_000_000;
                own.push(Made { does: does.clone(), seq, at_ps: now_ps, ended_ps: None });
                moved = true;
            }
        }
        for (group, (_, ranks)) in job.groups.iter().enumerate() {
            let is = |does: &Does| does.group == group && does.peer.is_none();
            let heads: Option<Vec<(usize, usize)>> =
                ranks.iter().map(|rank| Some((*rank, first(&made[*rank], &is)?))).collect();
            let Some(heads) = heads else { continue };
            let said = |(rank, at): &(usize, usize)| {
                let made = &made[*rank][*at];
                (made.seq, made.does.op, made.does.numel)
            };
            if heads.iter().all(|head| said(head) == said(&heads[0])) {
                now_ps += 1_000_000;
                heads.iter().for_each(|(rank, at)| made[*rank][*at].ended_ps = Some(now_ps));
                moved = true;
            }
        }
        let sends: Vec<(usize, usize, usize)> = (0..made.len())
            .flat_map(|from| (0..made.len()).map(move |to| (from, to)))
            .flat_map(|(from, to)| (0..job.groups.len()).map(move |group| (group, from, to)))
            .collect();
        for (group, from, to) in sends {
            let is = |op: &'static str, peer: usize| {
                move |does: &Does| does.group == group && does.op == op && does.peer == Some(peer)
            };
            let send = first(&made[from], &is("send", to));
            let receive = first(&made[to], &is("recv", from));
            let (Some(send), Some(receive)) = (send, receive) else { continue };
            if made[from][send].does.numel == made[to][receive].does.numel {
                now_ps += 1_000_000;
                made[from][send].ended_ps = Some(now_ps);
                made[to][receive].ended_ps = Some(now_ps);
                moved = true;
            }
        }
        if !moved {
            return made;
        }
    }
}

/// The recording of it: `rings` says how many of its last calls each rank has left.
pub(super) fn recorded(
    job: &Job,
    made: &[Vec<Made>],
    missing: Option<usize>,
    rings: &[usize],
    lines: bool,
) -> CallLog {
    let ranks = |ranks: &[usize]| ranks.iter().map(|rank| GlobalRank(*rank as u32)).collect();
    let group = |(at, (desc, members)): (usize, &(String, Vec<usize>))| match at {
        0 => ProcessGroup::world(members.len() as u32, BackendName::Nccl).unwrap(),
        _ => {
            let group = ProcessGroup::new(at.to_string(), BackendName::Nccl, ranks(members));
            group.unwrap().with_desc(desc)
        }
    };
    let called = |does: &Does| {
        let tensor = vec![TensorShape { shape: vec![does.numel], dtype: Dtype::Float32 }];
        let members = &job.groups[does.group].1;
        let peer = does.peer.and_then(|peer| members.iter().position(|rank| *rank == peer));
        let frame =
            Frame { file: "/job/train.py".into(), line: does.line, function: "main".into() };
        Called {
            op: does.op.into(),
            group: GroupId(does.group as u32),
            p2p: does.peer.is_some(),
            peer: peer.map(|peer| GroupRank(peer as u32)),
            tag: 0,
            inputs: tensor.clone(),
            outputs: tensor,
            reduce_op: None,
            root: None,
            stack: lines.then_some(frame).into_iter().collect(),
        }
    };
    let rank_log = |rank: usize, made: &[Made]| {
        let from = made.len().saturating_sub(rings.get(rank).copied().unwrap_or(usize::MAX));
        let calls = made.iter().enumerate().skip(from).map(|(at, made)| CallRecord {
            work: (at - from) as u32,
            state: if made.pending() { CallState::Scheduled } else { CallState::Completed },
            seq: Some(made.seq),
            record_id: Some(at as u64),
            plan_op: None,
            scheduled_ps: made.at_ps,
            started_ps: None,
            completed_ps: made.ended_ps,
            call: Arc::new(called(&made.does)),
        });
        let dropped_ended = made.iter().take(from).all(|made| !made.pending());
        let mut own = RankLog { calls: calls.collect(), ..RankLog::default() };
        own.recording.dropped_ended = dropped_ended;
        let sends = |group: usize| {
            job.programs.iter().flatten().any(|does| does.group == group && does.peer.is_some())
        };
        for (group, (_, members)) in job.groups.iter().enumerate() {
            if !members.contains(&rank) || sends(group) {
                continue;
            }
            let of = || made.iter().enumerate().filter(|(_, made)| made.does.group == group);
            let id = GroupId(group as u32);
            own.recording.enqueued.insert(id, of().next_back().map_or(0, |(_, made)| made.seq));
            let first = of().find(|(_, made)| made.pending());
            if let Some((_, made)) = first.filter(|(at, _)| *at < from) {
                own.recording.unended.insert(id, made.seq - 1);
            }
        }
        own
    };
    let logs = made.iter().enumerate();
    CallLog {
        world_size: made.len() as u32,
        groups: job.groups.iter().enumerate().map(group).collect(),
        ranks: logs
            .map(|(rank, own)| (missing != Some(rank)).then(|| rank_log(rank, own)))
            .collect(),
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: false,
        ended_ps: None,
        plan: None,
    }
}

/// True if a certain finding is about somebody else than the rank that went astray. Of a send and its
/// receive that disagree both are shown.
fn blames_another(finding: &Finding, rank: usize) -> bool {
    let rank = GlobalRank(rank as u32);
    let pair = matches!(finding.kind, Kind::P2pMismatch | Kind::P2pDeadlock);
    let of_pair = pair && finding.culprits.len() <= 2 && finding.culprits.contains(&rank);
    finding.certainty == Certainty::Certain
        && !of_pair
        && finding.culprits.iter().any(|culprit| *culprit != rank)
}

#[derive(Clone, Debug)]
struct Case {
    job: Job,
    fault: Fault,
    rank: usize,
    at: usize,
    ahead: usize,
    lines: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let jobs =
        (0..3usize, 1..=2usize, 3..=6usize, 0..6usize).prop_map(|(kind, size, rounds, shape)| {
            match kind {
                0 => data(2 + size + shape % 2, rounds, shape),
                1 => mesh(2 * size, rounds, shape),
                _ => pipeline(2 + size, rounds.min(4), shape),
            }
        });
    let fault = prop::sample::select(FAULTS.to_vec());
    let ahead = prop::sample::select(vec![1usize, 1, 2, 6]);
    (jobs, fault, 0..64usize, 0..64usize, ahead, any::<bool>()).prop_map(
        |(job, fault, rank, at, ahead, lines)| {
            let rank = rank % job.programs.len();
            let (mut job, at) = (job, at);
            astray(&mut job.programs[rank], fault, at);
            Case { job, fault, rank, at, ahead, lines }
        },
    )
}

/// Diagnoses the recording of a case; an error says what it should not have said.
fn check(case: &Case, missing: Option<usize>, rings: &[usize]) -> Result<(), TestCaseError> {
    let made = play(&case.job, case.ahead);
    let came = |rank: usize| made[rank].len() == case.job.programs[rank].len();
    let stuck = |rank: usize| made[rank].iter().any(Made::pending) || !came(rank);
    if !(0..made.len()).any(stuck) {
        return Ok(());
    }
    let log = recorded(&case.job, &made, missing, rings, case.lines);
    let report = diagnose(&log);
    let told =
        || format!("{:?} by {} at {}:\n{}", case.fault, case.rank, case.at, report.to_text());
    let wrong = report.findings.iter().any(|finding| blames_another(finding, case.rank));
    prop_assert!(!wrong, "{}", told());
    let waits = |(_, own): (GlobalRank, &RankLog)| {
        let pending = own.calls.iter().any(|record| record.state != CallState::Completed);
        pending || !own.recording.unended.is_empty()
    };
    let seen = log.logs().any(waits);
    prop_assert!(!seen || report.verdict != Verdict::Healthy, "{}", told());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whole_recordings_blame_nobody_else_for_certain(case in case()) {
        check(&case, None, &[])?;
    }

    #[test]
    fn a_missing_dump_has_nobody_else_blamed_for_certain(case in case(), missing in 1..64usize) {
        let world = case.job.programs.len();
        let missing = (case.rank + 1 + missing % (world - 1)) % world;
        check(&case, Some(missing), &[])?;
    }

    #[test]
    fn rings_that_wrapped_have_nobody_else_blamed_for_certain(
        case in case(),
        rings in prop::collection::vec(prop::sample::select(vec![4usize, 6, 8, 10, 14]), 8),
        missing in prop::option::weighted(0.2, 1..64usize),
    ) {
        let world = case.job.programs.len();
        let missing = missing.map(|missing| (case.rank + 1 + missing % (world - 1)) % world);
        check(&case, missing, &rings)?;
    }
}
