use super::*;
use crate::simulate;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, Fill, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_diagnosis::{Certainty, Kind, diagnose_trace};
use proptest::prelude::*;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// The next action of a rank, in a generated plan.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// An asynchronous all_reduce in one of the groups that it is in.
    Reduces(usize),
    /// Waits for all it has begun.
    Waits,
    Sends(u32),
    ReceivesFromAny,
    ReceivesFrom(u32),
    /// The same, and its stream goes on when the message is there.
    AwaitsFrom(u32),
}

fn plan_of(programs: &[Vec<Does>; 3]) -> Plan {
    plan_on(BackendName::Nccl, programs)
}

/// Three ranks in the world and in two groups that overlap.
fn plan_on(backend: BackendName, programs: &[Vec<Does>; 3]) -> Plan {
    let mut plan = PlanBuilder::new("made up", 3, backend).unwrap();
    plan.timeout_ms(1000);
    let groups = [vec![0, 1], vec![1, 2]].map(|ranks| {
        let ranks: Vec<_> = ranks.into_iter().map(GlobalRank).collect();
        plan.group(
            ProcessGroup::new(format!("pair{}", ranks[1]), backend, ranks)
                .unwrap()
                .with_timeout_ms(1000),
        )
    });
    let groups = [GroupId::WORLD, groups[0], groups[1]];
    let tensor = plan.tensor("x", Dtype::Float32, 4, Fill::Iota);
    plan.every_rank(|rank, program| {
        let mut begun = Vec::new();
        for does in &programs[rank.index()] {
            let reduces = |group| Call::Collective {
                group,
                collective: SUM,
                count: 4,
                input: None,
                output: Some(tensor),
                algorithm: None,
                channels: None,
                segments: None,
                schedule: None,
                splits: None,
            };
            let peer = |peer: u32| GroupRank(peer);
            let call = match *does {
                Does::Reduces(group) if group == 1 && rank.0 == 2 => continue,
                Does::Reduces(group) if group == 2 && rank.0 == 0 => continue,
                Does::Reduces(group) => reduces(groups[group]),
                Does::Waits => {
                    for op in begun.drain(..) {
                        program.push(Action::Wait { op, timeout_ms: None });
                    }
                    program.push(Action::Synchronize);
                    continue;
                }
                Does::Sends(to) | Does::ReceivesFrom(to) | Does::AwaitsFrom(to) if to == rank.0 => {
                    continue;
                }
                Does::Sends(to) => {
                    Call::Send { group: GroupId::WORLD, peer: peer(to), tensor, tag: 0 }
                }
                Does::ReceivesFrom(from) | Does::AwaitsFrom(from) => {
                    Call::Recv { group: GroupId::WORLD, peer: Some(peer(from)), tensor, tag: 0 }
                }
                Does::ReceivesFromAny => {
                    Call::Recv { group: GroupId::WORLD, peer: None, tensor, tag: 0 }
                }
            };
            match does {
                Does::AwaitsFrom(_) => {
                    program.push(Action::call(call, false));
                }
                _ => begun.push(program.push(Action::call(call, true))),
            }
        }
    })
    .unwrap()
}

fn searched(plan: &Plan, bounds: Bounds, exhaustive: bool) -> Explored {
    let mut explorer = Explorer::new(plan, &SimConfig::default(), bounds).unwrap();
    explorer.exhaustive = exhaustive;
    loop {
        if let Some(explored) = explorer.run(100) {
            return explored;
        }
    }
}

fn bounds(devices: Devices) -> Bounds {
    Bounds { devices, ..Bounds::default() }
}

#[test]
fn groups_used_in_opposite_order_hang_only_where_a_device_takes_one_at_a_time() {
    use Does::{Reduces, Waits};
    // Rank 1 is in both: nothing says in which order the others' devices begin them.
    let both = vec![Reduces(0), Reduces(1), Waits];
    let plan = plan_of(&[both.clone(), both, vec![Reduces(0), Waits]]);
    let aside = explore(&plan, &SimConfig::default(), bounds(Devices::SideBySide)).unwrap();
    assert_eq!(aside.verdict, Verdict::Completes);
    let explored = explore(&plan, &SimConfig::default(), bounds(Devices::OneAtATime)).unwrap();
    let Verdict::Fails { order, outcome, common } = explored.verdict else {
        panic!("{explored:?}");
    };
    assert_eq!(outcome, Outcome::TimedOut);
    // Two devices with two calls each: in half of all ways they begin with different ones.
    assert!(common.runs == 100 && (30..70).contains(&common.failed), "{common:?}");
    let config = SimConfig { order: Some(order), ..SimConfig::default() };
    let trace = simulate(&plan, &config).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
    // All of them have made all calls: what has started on which device tells the circle.
    let report = diagnose_trace(&trace);
    let found: Vec<_> =
        report.findings.iter().map(|finding| (finding.kind, finding.culprits.clone())).collect();
    let circle = vec![GlobalRank(0), GlobalRank(1)];
    assert_eq!(found, [(Kind::GroupDeadlock, circle)], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Certain);
    assert!(finding.fix.contains("NCCL_LAUNCH_ORDER_IMPLICIT=1"), "{}", finding.fix);
    let notes = |rank: u32, what: &str| {
        let own = finding.evidence.iter().filter(|seen| seen.rank == GlobalRank(rank));
        own.filter(|seen| seen.note.starts_with(what)).count()
    };
    for rank in 0..2 {
        assert_eq!(notes(rank, "has started, and waits in"), 1, "{:?}", finding.evidence);
        assert_eq!(notes(rank, "has not started"), 1, "{:?}", finding.evidence);
    }
    // A wait between the two leaves nothing open.
    let safe = vec![Reduces(0), Waits, Reduces(1), Waits];
    let plan = plan_of(&[safe.clone(), safe, vec![Reduces(0), Waits]]);
    let explored = explore(&plan, &SimConfig::default(), bounds(Devices::OneAtATime)).unwrap();
    assert_eq!(explored.verdict, Verdict::Completes);
}

#[test]
fn a_receive_from_any_source_can_take_what_another_one_needs() {
    use Does::{ReceivesFrom, ReceivesFromAny, Sends, Waits};
    let receives = vec![ReceivesFromAny, Waits, ReceivesFrom(1), Waits];
    let plan = plan_of(&[receives, vec![Sends(0), Waits], vec![Sends(0), Waits]]);
    let explored = explore(&plan, &SimConfig::default(), Bounds::default()).unwrap();
    let Verdict::Fails { order, .. } = explored.verdict else { panic!("{explored:?}") };
    let took =
        Choice::Take { group: GroupId::WORLD, to: GlobalRank(0), tag: 0, from: GlobalRank(1) };
    assert_eq!(order.choices, [took]);
}

/// Either of two messages may come first, and the first receive has room for one of them only.
#[test]
fn a_receive_from_any_source_can_take_what_it_has_no_room_for() {
    let mut plan = PlanBuilder::new("sizes", 3, BackendName::Gloo).unwrap();
    let small = plan.tensor("small", Dtype::Int64, 4, Fill::Rank);
    let large = plan.tensor("large", Dtype::Int64, 8, Fill::Rank);
    let (group, tag) = (GroupId::WORLD, 0);
    let plan = plan.every_rank(|rank, program| match rank.0 {
        0 => [small, large].into_iter().for_each(|tensor| {
            program.call(Call::Recv { group, peer: None, tensor, tag });
        }),
        rank => {
            let tensor = [small, large][rank as usize - 1];
            program.call(Call::Send { group, peer: GroupRank(0), tensor, tag });
        }
    });
    let explored = explore(&plan.unwrap(), &SimConfig::default(), Bounds::default()).unwrap();
    let Verdict::Fails { order, .. } = explored.verdict else { panic!("{explored:?}") };
    let took = Choice::Take { group, to: GlobalRank(0), tag, from: GlobalRank(2) };
    assert_eq!(order.choices, [took]);
}

/// On gloo a posted receive that names its source gets the next send of this source. By MPI's order it would
/// get only a send that an earlier receive from any source leaves: seen on PyTorch 2.7.1, `irecv(x)` and
/// `irecv(y, src=2)` before rank 2 sends, which sends first.
#[test]
fn on_gloo_a_named_receive_has_its_send_before_one_from_any_source() {
    use Does::{AwaitsFrom, ReceivesFrom, ReceivesFromAny, Sends, Waits};
    let go = vec![AwaitsFrom(0), Sends(0), Waits];
    let after = [vec![ReceivesFromAny, ReceivesFrom(2), Sends(2), Sends(1), Waits], go.clone(), go];
    let plan = plan_on(BackendName::Gloo, &after);
    let explored = explore(&plan, &SimConfig::default(), Bounds::default()).unwrap();
    assert_eq!(explored.verdict, Verdict::Completes);
    let own = simulate(&plan, &SimConfig::default()).unwrap();
    assert_eq!(own.end.unwrap().outcome, Outcome::Completed);
    let plan = plan_on(BackendName::Mpi, &after);
    let explored = explore(&plan, &SimConfig::default(), Bounds::default()).unwrap();
    assert!(matches!(explored.verdict, Verdict::Fails { .. }), "{explored:?}");
    // If nothing keeps rank 2 from sending before it is asked by name, its send may be taken.
    let send = vec![Sends(0), Waits];
    let before = [vec![ReceivesFromAny, ReceivesFrom(2), Waits], send.clone(), send];
    let plan = plan_on(BackendName::Gloo, &before);
    let explored = explore(&plan, &SimConfig::default(), Bounds::default()).unwrap();
    let Verdict::Fails { order, .. } = explored.verdict else { panic!("{explored:?}") };
    let took =
        Choice::Take { group: GroupId::WORLD, to: GlobalRank(0), tag: 0, from: GlobalRank(2) };
    assert_eq!(order.choices, [took]);
}

/// A receive that names its source, behind one from any source that has another's message, goes on.
#[test]
fn a_named_receive_is_looked_at_again_once_another_has_its_message() {
    use Does::{ReceivesFrom, ReceivesFromAny, Sends, Waits};
    let receives = vec![ReceivesFromAny, ReceivesFrom(2), Waits];
    let plan = plan_on(BackendName::Mpi, &[receives, vec![Sends(0), Waits], vec![Sends(0), Waits]]);
    let took = |from| {
        let (group, to) = (GroupId::WORLD, GlobalRank(0));
        let choices = vec![Choice::Take { group, to, tag: 0, from: GlobalRank(from) }];
        let order = Some(Order { devices: Devices::SideBySide, choices });
        let trace = simulate(&plan, &SimConfig { order, ..SimConfig::default() }).unwrap();
        trace.end.unwrap().outcome
    };
    assert_eq!(took(1), Outcome::Completed);
    assert_eq!(took(2), Outcome::TimedOut);
}

/// A rank whose only start could be made at once, while its other calls still move: calls that it makes when
/// they have completed may come before. A search that takes the one start there is, without asking if
/// something else of that rank is under way, never sees it.
#[test]
fn a_start_that_can_be_made_may_have_to_wait_for_what_is_still_to_come() {
    use Does::{AwaitsFrom, ReceivesFromAny, Reduces, Sends, Waits};
    let plan = plan_of(&[
        vec![Sends(2), Reduces(1), Waits, Reduces(0), Waits],
        // When the message is there, its device may begin the world's call before the pair's.
        vec![Reduces(1), AwaitsFrom(2), Reduces(0), Waits],
        vec![ReceivesFromAny, Waits, Sends(1), Reduces(0), Waits],
    ]);
    let all = searched(&plan, bounds(Devices::OneAtATime), true);
    assert!(matches!(all.verdict, Verdict::Fails { .. }), "{all:?}");
    let reduced = searched(&plan, bounds(Devices::OneAtATime), false);
    assert!(matches!(reduced.verdict, Verdict::Fails { .. }), "{reduced:?}");
}

#[test]
fn a_search_that_is_cut_off_says_so() {
    use Does::{Reduces, Waits};
    let both = vec![Reduces(0), Reduces(1), Reduces(2), Waits];
    let plan = plan_of(&[both.clone(), both.clone(), both]);
    let few = Bounds { states: 1, ..bounds(Devices::OneAtATime) };
    let explored = explore(&plan, &SimConfig::default(), few).unwrap();
    assert_eq!((explored.verdict, explored.states), (Verdict::Unknown, 1));
}

/// An action of several ranks together, so that most generated plans can complete.
#[derive(Clone, Copy, Debug)]
enum Together {
    Reduce(usize),
    Message {
        from: u32,
        to: u32,
        how: u8,
    },
    /// A rank waits for all it has begun.
    Wait(usize),
}

/// Programs that fit each other, of which a few neighbours have then changed places.
fn any_programs() -> impl Strategy<Value = [Vec<Does>; 3]> {
    let together = prop_oneof![
        4 => (0..3usize).prop_map(Together::Reduce),
        4 => (0..3u32, 1..3u32, 0..3u8).prop_map(|(from, by, how)| {
            Together::Message { from, to: (from + by) % 3, how }
        }),
        2 => (0..3usize).prop_map(Together::Wait),
    ];
    let swaps = prop::collection::vec((0..3usize, 0..6usize), 0..3);
    (prop::collection::vec(together, 1..7), swaps).prop_map(|(together, swaps)| {
        let mut programs = [const { Vec::new() }; 3];
        for done in together {
            match done {
                Together::Reduce(group) => {
                    programs.iter_mut().for_each(|program| program.push(Does::Reduces(group)));
                }
                Together::Message { from, to, how } => {
                    programs[from as usize].push(Does::Sends(to));
                    programs[to as usize].push(match how {
                        0 => Does::ReceivesFromAny,
                        1 => Does::ReceivesFrom(from),
                        _ => Does::AwaitsFrom(from),
                    });
                }
                Together::Wait(rank) => programs[rank].push(Does::Waits),
            }
        }
        for (rank, at) in swaps {
            if at + 1 < programs[rank].len() {
                programs[rank].swap(at, at + 1);
            }
        }
        programs.iter_mut().for_each(|program| program.push(Does::Waits));
        programs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The reduced search against one that tries everything, everywhere.
    #[test]
    fn nothing_is_lost_by_the_reduction(
        programs in any_programs(),
        one_at_a_time: bool,
        gloo: bool,
        seed in 0..4u64,
    ) {
        let devices = if one_at_a_time { Devices::OneAtATime } else { Devices::SideBySide };
        let backend = if gloo { BackendName::Gloo } else { BackendName::Nccl };
        let plan = plan_on(backend, &programs);
        let reduced = searched(&plan, Bounds { seed, ..bounds(devices) }, false);
        let all = searched(&plan, Bounds { states: 200_000, ..bounds(devices) }, true);
        prop_assume!(all.verdict != Verdict::Unknown);
        let fails = |verdict: &Verdict| matches!(verdict, Verdict::Fails { .. });
        prop_assert_eq!(fails(&reduced.verdict), fails(&all.verdict), "{:?} {:?}", reduced, all);
        prop_assert!(reduced.states <= all.states || fails(&all.verdict));
        // A simulation with the order that was found has the same outcome.
        if let Verdict::Fails { order, outcome, .. } = &reduced.verdict {
            let config = SimConfig { order: Some(order.clone()), ..SimConfig::default() };
            let trace = simulate(&plan, &config).unwrap();
            prop_assert_eq!(&trace.end.unwrap().outcome, outcome);
        } else {
            // And the engine's own way is one of those that complete.
            let own = simulate(&plan, &SimConfig::default()).unwrap();
            prop_assert_eq!(own.end.unwrap().outcome, Outcome::Completed);
        }
    }

    #[test]
    fn a_choice_is_read_as_it_is_written(a: u32, b: u32, tag: u32, from: u32, kind in 0..3u8) {
        let choice = match kind {
            0 => Choice::Start { rank: GlobalRank(a), group: GroupId(b) },
            1 => Choice::Post { rank: GlobalRank(a) },
            _ => {
                Choice::Take { group: GroupId(a), to: GlobalRank(b), tag, from: GlobalRank(from) }
            }
        };
        prop_assert_eq!(choice.to_string().parse::<Choice>().unwrap(), choice);
    }
}
