//! The findings of what plan v2 can get wrong, from simulations.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Call, Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_diagnosis::{Certainty, Finding, Kind, Verdict, diagnose_trace};
use lockstep_sim::{SimConfig, simulate};

const WORLD: GroupId = GroupId::WORLD;

fn findings(plan: &Plan) -> Vec<Finding> {
    diagnose_trace(&simulate(plan, &SimConfig::default()).unwrap()).findings
}

fn ranks(list: &[u32]) -> Vec<GlobalRank> {
    list.iter().copied().map(GlobalRank).collect()
}

/// PyTorch's own words, recorded in `errors.json`: `monitored_barrier_missing_rank2` and
/// `monitored_barrier_missing_ranks_1_3_wait_all`, both with a timeout of 2 s.
#[test]
fn a_monitored_barrier_names_who_is_missing_in_gloos_words() {
    let missing = |world: u32, absent: &[u32], wait_all_ranks: bool| {
        let plan = PlanBuilder::new("p", world, BackendName::Gloo).unwrap();
        let plan = plan.every_rank(|rank, program| {
            if absent.contains(&rank.0) {
                return;
            }
            program.async_op();
            let barrier = Collective::MonitoredBarrier { wait_all_ranks };
            let op = program.collective(WORLD, barrier, 0, None, None);
            program.push(Action::Wait { op, timeout_ms: Some(2000) });
        });
        let found = findings(&plan.unwrap());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].culprits, ranks(absent));
        found[0].message.clone()
    };
    let one = missing(3, &[2], false);
    assert!(one.contains("[Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms"), "{one}");
    let all = missing(4, &[1, 3], true);
    assert!(
        all.contains("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 2000 ms"),
        "{all}"
    );
    let first = missing(4, &[1, 3], false);
    assert!(first.contains("[Rank 0]: Rank 1 failed to pass"), "{first}");
    let root = missing(3, &[0], false);
    assert!(
        root.contains(
            "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for \
             send/recv from rank 0. Please check rank 0 logs for faulty rank."
        ),
        "{root}"
    );
}

/// `sent[a][b]` elements go from a to b; `lies` says who expects how many more from whom.
fn all_to_all(sent: &[Vec<u64>], lies: &[(usize, usize)]) -> Plan {
    let world = sent.len();
    let mut plan = PlanBuilder::new("p", world as u32, BackendName::Gloo).unwrap();
    let expects = |to: usize| -> Vec<u64> {
        let more = |from: usize| lies.iter().filter(|lie| **lie == (to, from)).count() as u64;
        (0..world).map(|from| sent[from][to] + more(from)).collect()
    };
    let tensors: Vec<_> = (0..world)
        .map(|rank| {
            let input = sent[rank].iter().sum();
            let output = expects(rank).iter().sum();
            let input = plan.tensor(format!("in{rank}"), Dtype::Int64, input, Fill::Iota);
            (input, plan.tensor(format!("out{rank}"), Dtype::Int64, output, Fill::Zeros))
        })
        .collect();
    let plan = plan.every_rank(|rank, program| {
        let rank = rank.index();
        program.call(Call::Collective {
            group: WORLD,
            collective: Collective::AllToAll,
            count: 0,
            input: Some(tensors[rank].0),
            output: Some(tensors[rank].1),
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: Some(Box::new(Splits { input: sent[rank].clone(), output: expects(rank) })),
        });
    });
    plan.unwrap()
}

#[test]
fn splits_that_disagree_are_one_finding() {
    let sent = vec![vec![1, 2, 3], vec![2, 2, 2], vec![3, 1, 1]];
    let right = simulate(&all_to_all(&sent, &[]), &SimConfig::default()).unwrap();
    assert_eq!(diagnose_trace(&right).verdict, Verdict::Healthy);

    // One pair: either may be wrong.
    let found = findings(&all_to_all(&sent, &[(2, 0)]));
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.kind, finding.certainty), (Kind::SplitMismatch, Certainty::Undecidable));
    assert_eq!(finding.culprits, ranks(&[0, 2]));
    assert!(finding.message.contains("rank 0 sends 3 elements to rank 2, which expects 4"));

    // Two pairs with one rank in common.
    let found = findings(&all_to_all(&sent, &[(1, 0), (1, 2)]));
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.kind, &finding.culprits), (Kind::SplitMismatch, &ranks(&[1])));
}

/// Without splits a tensor is cut into equal parts: one of another size is a side of every
/// disagreement. On PyTorch 2.7.1 ranks 0 and 2 end (`op.preamble.length <= op.nbytes. 12 vs 8`).
#[test]
fn equal_parts_of_another_size_disagree() {
    let mut plan = PlanBuilder::new("p", 3, BackendName::Gloo).unwrap();
    let tensors = [6, 9, 6].map(|numel| {
        let input = plan.tensor(format!("in{numel}"), Dtype::Float32, numel, Fill::Iota);
        (numel, input, plan.tensor(format!("out{numel}"), Dtype::Float32, numel, Fill::Zeros))
    });
    let plan = plan.every_rank(|rank, program| {
        let (numel, input, output) = tensors[rank.index()];
        program.collective(WORLD, Collective::AllToAll, numel / 3, Some(input), Some(output));
    });
    let found = findings(&plan.unwrap());
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.kind, &finding.culprits), (Kind::SizeMismatch, &ranks(&[1])));
    assert!(finding.message.contains("rank 0 sends 2 elements to rank 1, which expects 3"));
    assert!(finding.message.contains("(SIGABRT)"), "{}", finding.message);
}

/// Ranks that only send their part, each to another, all go on here; on gloo each waits.
#[test]
fn a_gather_to_different_roots_is_one_finding_though_nobody_receives() {
    let mut plan = PlanBuilder::new("p", 2, BackendName::Gloo).unwrap();
    let part = plan.tensor("part", Dtype::Float32, 2, Fill::Rank);
    let plan = plan.every_rank(|rank, program| {
        let gather = Collective::Gather { root: GroupRank(1 - rank.0) };
        program.collective(WORLD, gather, 2, Some(part), None);
    });
    let found = findings(&plan.unwrap());
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.kind, &finding.culprits), (Kind::RootMismatch, &ranks(&[0, 1])));
}

/// On NCCL both processes go on behind their sends, as far as a barrier, or to `synchronize()`: each
/// has made the receive that the other's send waits for, which its device begins after its own send.
#[test]
fn sends_that_hold_up_the_receives_behind_them_on_devices_are_a_circle() {
    let found = |world: u32, barrier: bool| {
        let mut plan = PlanBuilder::new("p", world, BackendName::Nccl).unwrap();
        let out = plan.tensor("out", Dtype::Float32, 16, Fill::Iota);
        let into = plan.tensor("in", Dtype::Float32, 16, Fill::Zeros);
        let plan = plan.every_rank(|rank, program| {
            let peer = |by: u32| GroupRank((rank.0 + by) % world);
            let (group, tag) = (WORLD, 0);
            program.call(Call::Send { group, peer: peer(1), tensor: out, tag });
            program.call(Call::Recv { group, peer: Some(peer(world - 1)), tensor: into, tag });
            if barrier {
                program.collective(WORLD, Collective::Barrier, 0, None, None);
            } else {
                program.push(Action::Synchronize);
            }
        });
        findings(&plan.unwrap())
    };
    for (world, barrier) in [(2, true), (2, false), (4, true)] {
        let found = found(world, barrier);
        let [finding] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!((finding.kind, finding.certainty), (Kind::P2pDeadlock, Certainty::Certain));
        let all: Vec<u32> = (0..world).collect();
        assert_eq!(finding.culprits, ranks(&all), "{}", finding.message);
        assert!(finding.message.contains("rank 0 in send"), "{}", finding.message);
    }
}

/// Two ranks in such a circle; a third that only waits behind them is no part of it.
#[test]
fn who_waits_behind_a_circle_of_devices_is_a_victim() {
    let mut plan = PlanBuilder::new("p", 3, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 16, Fill::Iota);
    let plan = plan.every_rank(|rank, program| {
        let (group, tag) = (WORLD, 0);
        if rank.0 < 2 {
            let peer = GroupRank(1 - rank.0);
            program.call(Call::Send { group, peer, tensor, tag });
            program.call(Call::Recv { group, peer: Some(peer), tensor, tag });
        }
        if rank.0 == 1 {
            program.call(Call::Send { group, peer: GroupRank(2), tensor, tag });
        }
        if rank.0 == 2 {
            program.call(Call::Recv { group, peer: Some(GroupRank(1)), tensor, tag });
        }
        program.collective(WORLD, Collective::Barrier, 0, None, None);
    });
    let found = findings(&plan.unwrap());
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.kind, &finding.culprits), (Kind::P2pDeadlock, &ranks(&[0, 1])));
    assert_eq!(finding.victims, ranks(&[2]));
}
