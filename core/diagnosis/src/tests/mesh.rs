//! Jobs on meshes of groups, in which one rank goes astray: whoever knows the program and whoever only
//! has the dumps must name it, and nobody who waits for it.

use super::fake::{Fake, Said, done, pending};
use super::found;
use crate::{Certainty, Kind, Report, diagnose, diagnose_recording};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::CallLog;
use lockstep_formats::flight_recorder::{Dump, GroupStatus, read_files, recording_of};

/// An operation of a program: an `all_reduce` of so many elements in a group, or a wait for all
/// that went before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Call { group: usize, numel: u64 },
    Synchronize,
}

use Does::Synchronize;

fn call(group: usize, numel: u64) -> Does {
    Does::Call { group, numel }
}

/// A mesh, and each rank's groups of data and tensor parallelism in it.
struct Mesh {
    fake: Fake,
    dp: Vec<usize>,
    tp: Vec<usize>,
}

/// Ranks side by side share a group of tensor parallelism, those of the same place in `stage` ranks
/// one of data parallelism.
fn mesh(world: u32, stage: u32) -> Mesh {
    let mut mesh = Mesh {
        fake: Fake::new(world, &[]),
        dp: vec![0; world as usize],
        tp: vec![0; world as usize],
    };
    let mut add = |desc, ranks: Vec<u32>, of: &mut Vec<usize>| {
        let at = mesh.fake.groups.len();
        ranks.iter().for_each(|rank| of[*rank as usize] = at);
        mesh.fake.groups.push((desc, ranks));
    };
    for first in (0..world).step_by(stage as usize) {
        for odd in 0..2 {
            let ranks = (first..first + stage).filter(|rank| rank % 2 == odd).collect();
            add("mesh_dp", ranks, &mut mesh.dp);
        }
    }
    (0..world).step_by(2).for_each(|first| add("mesh_tp", vec![first, first + 1], &mut mesh.tp));
    mesh
}

impl Mesh {
    /// Three steps of training; `step` says what a rank does in one, given its two groups.
    fn job(
        &self,
        step: impl Fn(u32, u32, usize, usize) -> Vec<Does>,
        end: &[Does],
    ) -> Vec<Vec<Does>> {
        let program = |rank: u32| {
            let (tp, dp) = (self.tp[rank as usize], self.dp[rank as usize]);
            let mut does: Vec<Does> = (0..3).flat_map(|at| step(rank, at, tp, dp)).collect();
            does.extend(end);
            does
        };
        (0..self.fake.ranks.len() as u32).map(program).collect()
    }

    /// The calls as far as they come where devices carry them out one behind the other and processes
    /// go on.
    fn play(&self, job: &[Vec<Does>]) -> CallLog {
        let mut calls: Vec<Vec<(usize, u64, u64)>> = vec![Vec::new(); job.len()];
        let (mut next, mut ended) = (vec![0; job.len()], vec![0; job.len()]);
        loop {
            let mut moved = false;
            for (rank, does) in job.iter().enumerate() {
                let Some(what) = does.get(next[rank]) else { continue };
                match what {
                    Synchronize if ended[rank] < calls[rank].len() => continue,
                    Synchronize => {}
                    Does::Call { group, numel } => {
                        let seq = calls[rank].iter().filter(|(known, ..)| known == group).count();
                        calls[rank].push((*group, seq as u64, *numel));
                    }
                }
                (next[rank], moved) = (next[rank] + 1, true);
            }
            for (group, (_, ranks)) in self.fake.groups.iter().enumerate() {
                let heads: Vec<_> = ranks
                    .iter()
                    .map(|rank| calls[*rank as usize].get(ended[*rank as usize]))
                    .collect();
                let one = heads[0].filter(|head| head.0 == group);
                if one.is_some() && heads.iter().all(|head| *head == one) {
                    ranks.iter().for_each(|rank| ended[*rank as usize] += 1);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let mut fake = self.fake.clone();
        for (rank, calls) in calls.iter().enumerate() {
            let said = calls.iter().enumerate().map(|(at, (group, _, numel))| {
                let say = if at < ended[rank] { done } else { pending };
                say("all_reduce", *numel).in_group(*group)
            });
            fake = fake.rank(rank, &said.collect::<Vec<Said>>());
        }
        let files = fake.files();
        let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        read_files(files).unwrap().merged.log
    }

    fn plan(&self, job: &[Vec<Does>], groups: &[ProcessGroup]) -> Plan {
        let mut plan = PlanBuilder::new("mesh", job.len() as u32, BackendName::Nccl).unwrap();
        for group in groups.iter().skip(1) {
            plan.group(group.clone());
        }
        let id = |group: usize| {
            let (desc, ranks) = &self.fake.groups[group];
            let is = |known: &ProcessGroup| {
                known.desc() == *desc
                    && known.ranks().iter().map(|rank| rank.0).eq(ranks.iter().copied())
            };
            if group == 0 {
                GroupId::WORLD
            } else {
                GroupId(groups.iter().position(is).unwrap() as u32)
            }
        };
        let mut tensors = Vec::new();
        for what in job.iter().flatten() {
            if let Does::Call { numel, .. } = what
                && tensors.iter().all(|(known, _)| known != numel)
            {
                tensors.push((*numel, plan.tensor("grad", Dtype::Float32, *numel, Fill::Rank)));
            }
        }
        let write = |rank: lockstep_core::rank::GlobalRank,
                     program: &mut lockstep_core::plan::ProgramBuilder| {
            for what in &job[rank.index()] {
                if let Does::Call { group, numel } = what {
                    let tensor = tensors.iter().find(|(known, _)| known == numel).unwrap().1;
                    let sum = Collective::AllReduce { op: ReduceOp::Sum };
                    program.collective(id(*group), sum, *numel, None, Some(tensor));
                }
            }
        };
        plan.every_rank(write).unwrap()
    }

    /// The reports of the dumps, and of the same calls with the program.
    fn reports(&self, job: &[Vec<Does>]) -> [Report; 2] {
        let log = self.play(job);
        let plan = self.plan(job, &log.groups);
        let simulated =
            CallLog { plan: Some(plan.into()), recorded: false, simulated: true, ..log.clone() };
        [diagnose(&log), diagnose(&simulated)]
    }
}

fn all(reports: &[Report; 2], kind: Kind, culprit: u32) {
    for (report, what) in reports.iter().zip(["dumps", "program"]) {
        assert_eq!(found(report), [(kind, vec![culprit])], "{what}: {}", report.to_text());
    }
}

/// A rank that waits in `synchronize` for a call that another one holds up is stuck in nothing of its
/// own.
#[test]
fn who_synchronizes_behind_a_call_that_is_held_up_only_waits() {
    for (world, stage, culprit) in [(4, 4, 2), (8, 8, 2), (8, 8, 5), (8, 4, 5)] {
        let mesh = mesh(world, stage);
        let step = |rank: u32, at: u32, tp: usize, dp: usize| match (rank, at) {
            (rank, 1) if rank == culprit => vec![call(dp, 4096), Synchronize],
            _ => vec![call(tp, 512), call(dp, 4096), Synchronize],
        };
        let reports = mesh.reports(&mesh.job(step, &[call(0, 1)]));
        all(&reports, Kind::OpSkipped, culprit);
        for report in &reports {
            let said = &report.findings[0].message;
            assert!(said.contains("never called all_reduce #2 of mesh_tp"), "{said}");
            assert_eq!(report.findings[0].victims.len() as u32, world - 1, "{said}");
        }
    }
}

/// One rank takes the world for its group: the others do not owe it that call.
#[test]
fn a_call_of_the_world_that_one_rank_makes_alone_is_that_ranks() {
    for (world, stage, culprit) in [(4, 4, 2), (8, 8, 5), (8, 4, 2), (8, 4, 5)] {
        let mesh = mesh(world, stage);
        let step = |rank: u32, at: u32, tp: usize, dp: usize| {
            let group = if (rank, at) == (culprit, 1) { 0 } else { tp };
            vec![call(group, 512), call(dp, 4096), Synchronize]
        };
        let reports = mesh.reports(&mesh.job(step, &[]));
        all(&reports, Kind::OpExtra, culprit);
        for report in &reports {
            let finding = &report.findings[0];
            assert_eq!(finding.group.as_ref().unwrap().desc, "default_pg", "{}", finding.message);
        }
        let said = &reports[0].findings[0].message;
        assert!(said.contains("called all_reduce #1 of default_pg where rank"), "{said}");
    }
}

/// A call in another group, where its number there is another call of the others, or they wait in the group
/// that it was meant for: what differs is told as that.
#[test]
fn a_call_in_another_group_is_named_wherever_it_is_seen_to_differ() {
    let wrong = |world: u32, stage: u32, culprit: u32, apart: bool| {
        let mesh = mesh(world, stage);
        let step = move |rank: u32, at: u32, tp: usize, dp: usize| {
            let meant = if (rank, at) == (culprit, 1) { tp } else { dp };
            let mut does = vec![call(tp, 512), call(meant, 4096)];
            if apart {
                does.push(Synchronize);
            }
            does
        };
        let job = mesh.job(step, &[Synchronize, call(0, 1)]);
        mesh.reports(&job)
    };
    for (world, stage, culprit) in [(4, 4, 1), (8, 8, 5), (8, 4, 2)] {
        for apart in [false, true] {
            let reports = wrong(world, stage, culprit, apart);
            for (report, what) in reports.iter().zip(["dumps", "program"]) {
                let text = || format!("{what} {world} {culprit} {apart}: {}", report.to_text());
                assert_eq!(
                    report.culprits(),
                    [lockstep_core::rank::GlobalRank(culprit)],
                    "{}",
                    text()
                );
                let finding = &report.findings[0];
                if apart && what == "dumps" {
                    // Without lines, and with nothing behind it, it may be a tensor of another size.
                    continue;
                }
                let said = "all_reduce #3 of mesh_tp";
                assert!(finding.message.contains(said), "{}", text());
                assert!(finding.message.contains("of mesh_dp"), "{}", text());
                assert!(finding.fix.contains("Pass the same group= on every rank"), "{}", text());
            }
        }
    }
}

/// Rings have dropped the place: the recorders' numbers show one call more in the one group and one fewer in
/// the other, and that the rank has gone on.
#[test]
fn a_call_in_another_group_is_told_by_the_numbers_where_its_place_was_dropped() {
    let mesh = mesh(4, 4);
    let state = |ended: bool| if ended { done } else { pending };
    let mut fake = mesh.fake.clone();
    for rank in 0..4usize {
        let (tp, dp) = (mesh.tp[rank], mesh.dp[rank]);
        let call = |ended: bool, group: usize, numel: u64| {
            state(ended)("all_reduce", numel).in_group(group)
        };
        let mut said = Vec::new();
        for step in 0..4 {
            // Rank 1 makes its second call of dp in tp, which shifts those behind it.
            let group = if rank == 1 && step == 1 { tp } else { dp };
            let (in_tp, in_dp) = (rank != 1 || step < 3, rank != 3 || step < 3);
            said.extend([call(in_tp, tp, 512), call(in_dp, group, 512), call(true, 0, 1)]);
        }
        fake = fake.rank(rank, &said);
    }
    let fake = (0..4).fold(fake, |fake, rank| fake.dropped(rank, if rank == 0 { 5 } else { 9 }));
    let files = fake.files();
    let mut dumps: Vec<Dump> =
        files.iter().map(|(name, bytes)| Dump::read(name, bytes).unwrap()).collect();
    let status = |last: u64, ended: u64| GroupStatus {
        last_enqueued: Some(last),
        last_completed: Some(ended),
    };
    for (rank, dump) in dumps.iter_mut().enumerate() {
        let wrong = u64::from(rank == 1);
        let dp = 4 - u64::from(rank % 2 == 1);
        dump.status = [
            (0, status(4, 4)),
            (mesh.tp[rank] as u64, status(4 + wrong, 4)),
            (mesh.dp[rank] as u64, status(4 - wrong, dp)),
        ]
        .into();
    }
    let report = diagnose_recording(&recording_of(dumps, Vec::new()).unwrap());
    assert_eq!(found(&report), [(Kind::OpExtra, vec![1])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Likely);
    assert!(
        finding
            .message
            .contains("made 1 call more of mesh_tp than ranks 0, 2-3, and 1 fewer of mesh_dp"),
        "{}",
        finding.message
    );
    assert!(finding.fix.contains("Pass the same group="), "{}", finding.fix);
}

/// Rank 1 left a call out, whose place its ring has dropped, and waits for rank 0 in a later one. The
/// recorders' numbers show that it came there with a call fewer than those of the other groups.
#[test]
fn who_waits_alone_with_a_call_fewer_has_left_one_out() {
    let mesh = mesh(4, 4);
    let mut fake = mesh.fake.clone();
    for rank in 0..4usize {
        let tp = |state: fn(&str, u64) -> Said, numel: u64| {
            state("all_reduce", numel).in_group(mesh.tp[rank])
        };
        let dp = |state: fn(&str, u64) -> Said| state("all_reduce", 8).in_group(mesh.dp[rank]);
        let first = [tp(done, 64), tp(done, 96), dp(done), tp(done, 64)];
        let rest = match rank {
            0 => vec![tp(pending, 96), dp(done)],
            1 => vec![dp(done), tp(pending, 64), tp(pending, 96), dp(done)],
            2 => vec![tp(done, 96), dp(done), tp(done, 64), tp(done, 96), dp(pending)],
            _ => {
                let ended = [tp(done, 96), dp(done), tp(done, 64), tp(done, 96), dp(done)];
                [ended.as_slice(), &[tp(pending, 64)]].concat()
            }
        };
        let dropped = if rank == 1 { 6 } else { 4 };
        fake = fake.rank(rank, &[first.as_slice(), &rest].concat()).dropped(rank, dropped);
    }
    let report = super::report(&fake.files());
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Likely, "{}", report.to_text());
    assert!(finding.message.contains("with 1 call fewer than ranks 2-3"), "{}", finding.message);
}

/// The group of two is a tie; the other groups of the mesh are not.
#[test]
fn a_call_left_out_or_added_in_a_group_of_two_is_seen_by_its_siblings() {
    let mesh = mesh(8, 8);
    let skips = |rank: u32, at: u32, tp: usize, _: usize| {
        let calls = if (rank, at) == (5, 1) { 2 } else { 3 };
        let mut does = vec![call(tp, 256); calls];
        does.extend([Synchronize, call(0, 1), Synchronize]);
        does
    };
    all(&mesh.reports(&mesh.job(skips, &[])), Kind::OpSkipped, 5);
    let adds = |rank: u32, at: u32, tp: usize, dp: usize| {
        let mut does = vec![call(tp, 512), call(dp, 4096)];
        if (rank, at) == (5, 1) {
            does.push(call(tp, 8));
        }
        does.push(Synchronize);
        does
    };
    let reports = mesh.reports(&mesh.job(adds, &[]));
    for report in &reports {
        assert_eq!(
            report.culprits().iter().map(|rank| rank.0).collect::<Vec<_>>(),
            [5],
            "{}",
            report.to_text()
        );
    }
    // Which of two calls of a group is right.
    let first = |rank: u32, at: u32, tp: usize, dp: usize| match (rank, at) {
        (2, 1) => vec![call(tp, 1024), call(dp, 4096), Synchronize],
        _ => vec![call(tp, 512), call(tp, 1024), call(dp, 4096), Synchronize],
    };
    all(&mesh.reports(&mesh.job(first, &[])), Kind::OpSkipped, 2);
}

/// A rank that leaves calls of two groups out is told by the first: the second follows from it.
#[test]
fn of_calls_left_out_in_two_groups_the_first_is_told() {
    let mesh = mesh(8, 8);
    let step = |rank: u32, at: u32, tp: usize, dp: usize| match (rank, at) {
        (5, 1) => vec![call(tp, 512), call(dp, 4096), Synchronize],
        _ => vec![call(tp, 512), call(tp, 512), call(dp, 64), call(dp, 4096), Synchronize],
    };
    let [_, program] = mesh.reports(&mesh.job(step, &[]));
    assert_eq!(found(&program), [(Kind::OpSkipped, vec![5])], "{}", program.to_text());
    let said = &program.findings[0].message;
    assert!(said.starts_with("Rank 5 never called all_reduce #4 of mesh_tp"), "{said}");
    assert!(said.contains("Since then its calls of mesh_dp differ as well: at #3"), "{said}");
}

/// Most of one group leave out what the other groups of the kind make: who went on is not blamed.
#[test]
fn a_majority_of_one_group_is_none_against_its_siblings() {
    let mesh = mesh(8, 8);
    let step = |rank: u32, at: u32, _: usize, dp: usize| {
        let stops = at > 0 && matches!(rank, 2 | 4 | 6);
        let own = if stops { vec![] } else { vec![call(dp, 64), Synchronize] };
        [own, vec![call(0, 1), Synchronize]].concat()
    };
    let [_, report] = mesh.reports(&mesh.job(step, &[]));
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![2, 4, 6])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
}

/// All make the same calls, and one rank takes two groups in the other order: that is all that its
/// program shows, and dumps, which end there, cannot tell it from a call left out.
#[test]
fn an_order_of_groups_is_no_call_left_out() {
    let mesh = mesh(8, 8);
    let step = |rank: u32, at: u32, tp: usize, _: usize| match (rank, at) {
        (2, 1) => vec![call(0, 4096), Synchronize, call(tp, 512), Synchronize],
        _ => vec![call(tp, 512), Synchronize, call(0, 4096), Synchronize],
    };
    let [dumps, program] = mesh.reports(&mesh.job(step, &[]));
    assert_eq!(found(&program), [(Kind::GroupDeadlock, vec![2])], "{}", program.to_text());
    assert_eq!(found(&dumps), [(Kind::OpSkipped, vec![2])], "{}", dumps.to_text());
    let said = &dumps.findings[0].message;
    assert!(said.contains("Or it takes these groups in another order this time"), "{said}");
    assert_eq!(dumps.findings[0].certainty, Certainty::Likely);
}

/// Two stages of a pipeline go through two programs: each rank is held against those of its own.
#[test]
fn stages_of_a_pipeline_are_held_against_their_own() {
    let mesh = mesh(8, 4);
    let step = |culprit: u32| {
        move |rank: u32, at: u32, tp: usize, dp: usize| {
            let mut does = vec![call(tp, 64 * (1 + u64::from(rank / 4))); 2 + rank as usize / 4];
            if (rank, at) == (culprit, 1) {
                does.pop();
            }
            does.extend([call(dp, 4096), Synchronize]);
            does
        }
    };
    for culprit in [2, 5] {
        let reports = mesh.reports(&mesh.job(step(culprit), &[call(0, 1)]));
        all(&reports, Kind::OpSkipped, culprit);
    }
}

/// No way through the program is most ranks', but nobody else comes to this call of the world, and all
/// wait for the rank that did.
#[test]
fn who_stands_alone_in_a_call_closed_the_circle() {
    let mut mesh = mesh(8, 4);
    let first = mesh.fake.groups.len();
    (0..4).for_each(|rank| mesh.fake.groups.push(("mesh_pp", vec![rank, rank + 4])));
    for culprit in [2, 5] {
        let step = |rank: u32, at: u32, tp: usize, dp: usize| {
            let mut does = vec![call(tp, 64 * (1 + u64::from(rank / 4))); 2 + rank as usize / 4];
            if (rank, at) == (culprit, 1) {
                does.insert(0, call(0, 3));
            }
            does.extend([call(dp, 4096), call(first + rank as usize % 4, 32), Synchronize]);
            does
        };
        let [dumps, program] = mesh.reports(&mesh.job(step, &[]));
        assert_eq!(found(&program), [(Kind::OpExtra, vec![culprit])], "{}", program.to_text());
        assert_eq!(found(&dumps), [(Kind::GroupDeadlock, vec![culprit])], "{}", dumps.to_text());
        assert_eq!(dumps.findings[0].certainty, Certainty::Likely);
        assert_eq!(dumps.findings[0].victims.len(), 7);
    }
}
