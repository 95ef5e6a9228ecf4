//! Calls that take a known time as a whole (`sim/src/timed.rs`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{CallTimes, Fill, LinkLoad, Plan, PlanBuilder, TransferTime};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_sim::{Session, SimConfig, simulate};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// Every collective of a plan takes its bytes in nanoseconds and 7 ps, every transfer 100 ns and its
/// bytes.
fn times(plan: &Plan) -> CallTimes {
    let mut times = CallTimes::new("a machine of a test");
    for call in plan.timed_calls() {
        times.set_collective(call, call.bytes * 1000 + 7);
    }
    for transfer in plan.timed_transfers() {
        let takes = TransferTime { latency_ps: 100_000, transmit_ps: transfer.bytes * 1000 };
        times.set_transfer(transfer, takes);
    }
    times
}

fn timed(plan: &Plan) -> SimConfig {
    SimConfig { call_times: Some(Arc::new(times(plan))), ..SimConfig::default() }
}

/// The same where nobody looks at values.
fn without_values(plan: &Plan) -> SimConfig {
    SimConfig { max_value_bytes: 0, record_messages: false, ..timed(plan) }
}

fn completions(trace: &Trace) -> Vec<(u32, u64)> {
    let done = trace.events.iter().filter(|event| matches!(event.what, What::Completed { .. }));
    let mut done: Vec<_> = done.map(|event| (event.rank.0, event.time_ps)).collect();
    done.sort_unstable();
    done
}

/// Rank r computes for `late[r]` nanoseconds and calls an all_reduce of 4 float32.
fn reduced(late: &[u64], algorithm: Option<Algorithm>) -> Plan {
    let world = late.len() as u32;
    let mut plan = PlanBuilder::new("timed", world, BackendName::Host).unwrap();
    let x = plan.tensor("x", Dtype::Float32, 4, Fill::Iota);
    let plan = plan.every_rank(|rank, program| {
        program.compute("late", late[rank.index()]);
        program.collective_by(GroupId::WORLD, SUM, 4, None, Some(x), algorithm);
    });
    plan.unwrap()
}

#[test]
fn a_call_takes_its_time_from_the_last_rank_on_and_keeps_its_values() {
    for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls] {
        let plan = reduced(&[0, 30, 5, 0], Some(algorithm));
        let trace = simulate(&plan, &timed(&plan)).unwrap();
        let at = 30_000 + 16_007;
        assert_eq!(completions(&trace), [(0, at), (1, at), (2, at), (3, at)], "{algorithm:?}");
        let results = |trace: &Trace| {
            let all = trace.events.iter().filter(|it| matches!(it.what, What::Result { .. }));
            let mut all: Vec<_> = all.map(|it| (it.rank, format!("{:?}", it.what))).collect();
            all.sort();
            all
        };
        let messages = simulate(&plan, &SimConfig::default()).unwrap();
        assert_eq!(results(&trace).len(), 4);
        assert_eq!(results(&trace), results(&messages), "{algorithm:?}");
        let sent = |it: &&lockstep_core::trace::Event| matches!(it.what, What::Sent { .. });
        assert_eq!(trace.events.iter().filter(sent).count(), 0);
        assert_eq!(
            completions(&simulate(&plan, &without_values(&plan)).unwrap()),
            completions(&trace)
        );
    }
}

/// A root has nobody to wait for, and who hears from a late rank is done so long after it.
#[test]
fn a_broadcast_waits_for_its_root_only() {
    let mut plan = PlanBuilder::new("broadcast", 2, BackendName::Host).unwrap();
    let x = plan.tensor("x", Dtype::Float32, 4, Fill::Iota);
    let plan = plan.every_rank(|rank, program| {
        program.compute("late", u64::from(rank.0) * 100);
        let from = Collective::Broadcast { root: GroupRank(0) };
        program.collective(GroupId::WORLD, from, 4, None, Some(x));
    });
    let plan = plan.unwrap();
    for config in [timed(&plan), without_values(&plan)] {
        let trace = simulate(&plan, &config).unwrap();
        assert_eq!(completions(&trace), [(0, 16_007), (1, 116_007)]);
    }
}

#[test]
fn a_rank_that_computes_slowly_comes_later() {
    let plan = reduced(&[20, 20], None);
    let mut slow = times(&plan);
    slow.set_rate(GlobalRank(1), 500);
    let config = SimConfig { call_times: Some(Arc::new(slow)), ..SimConfig::default() };
    let trace = simulate(&plan, &config).unwrap();
    assert_eq!(trace.end.unwrap().time_ps, 40_000 + 16_007);
}

/// A rank that dies in the middle of a call takes the others' with it.
#[test]
fn a_call_that_loses_a_rank_never_ends() {
    let mut plan = PlanBuilder::new("death", 3, BackendName::Host).unwrap();
    plan.timeout_ms(1);
    let x = plan.tensor("x", Dtype::Float32, 400, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        if rank.0 == 2 {
            program.async_op();
        }
        program.collective(GroupId::WORLD, SUM, 400, None, Some(x));
        if rank.0 == 2 {
            program.compute("a while", 100);
            program.die("SystemExit: 1");
        }
    });
    let plan = plan.unwrap();
    let trace = simulate(&plan, &timed(&plan)).unwrap();
    assert_eq!(completions(&trace), []);
    assert!(matches!(trace.end.unwrap().outcome, Outcome::RankDied { rank: GlobalRank(2), .. }));
}

/// Transfers of one rank share its port, so the second is later by the first's transmission.
#[test]
fn transfers_take_their_time_and_share_ports() {
    let mut plan = PlanBuilder::new("p2p", 3, BackendName::Host).unwrap();
    let tensors: Vec<_> = (0..2)
        .map(|index| plan.tensor(format!("x{index}"), Dtype::Float32, 10, Fill::Zeros))
        .collect();
    let plan = plan.every_rank(|rank, program| match rank.0 {
        0 => {
            program.async_op();
            let first = program.send(GroupId::WORLD, GroupRank(1), tensors[0]);
            program.async_op();
            let second = program.send(GroupId::WORLD, GroupRank(2), tensors[1]);
            program.wait(first);
            program.wait(second);
        }
        peer => {
            program.recv(GroupId::WORLD, GroupRank(0), tensors[peer as usize - 1]);
        }
    });
    let plan = plan.unwrap();
    let trace = simulate(&plan, &timed(&plan)).unwrap();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    completions(&trace).into_iter().for_each(|(rank, at)| {
        last.insert(rank, at);
    });
    assert_eq!((last[&1], last[&2]), (140_000, 180_000));
}

/// Calls of two halves and of all, by ranks that come at different times; some ranks leave one out.
#[derive(Clone, Debug)]
struct Job {
    world: u32,
    backend: BackendName,
    /// Kind, elements, in which of the groups, nanoseconds before it by rank.
    calls: Vec<(u8, u64, u8, Vec<u64>)>,
    skips: Option<(u32, usize)>,
}

fn job() -> impl Strategy<Value = Job> {
    let call = (0u8..6, 0u64..50, 0u8..2, prop::collection::vec(0u64..40, 8));
    let backend = prop::sample::select(vec![BackendName::Nccl, BackendName::Host]);
    let skips = prop::option::weighted(0.1, (0u32..8, 0usize..6));
    (1u32..5, backend, prop::collection::vec(call, 1..7), skips)
        .prop_map(|(half, backend, calls, skips)| Job { world: 2 * half, backend, calls, skips })
}

fn plan_of(job: &Job) -> Plan {
    let mut plan = PlanBuilder::new("job", job.world, job.backend).unwrap();
    plan.timeout_ms(1);
    let half = job.world / 2;
    let members = |range: std::ops::Range<u32>| range.map(GlobalRank).collect::<Vec<_>>();
    let halves = [members(0..half), members(half..job.world)].map(|ranks| {
        plan.group(lockstep_core::group::ProcessGroup::new("half", job.backend, ranks).unwrap())
    });
    let tensors: Vec<_> = job
        .calls
        .iter()
        .map(|(_, count, whole, _)| {
            let size = u64::from(if *whole == 0 { job.world } else { half });
            let small = plan.tensor("x", Dtype::Float32, *count, Fill::Zeros);
            (small, plan.tensor("y", Dtype::Float32, count * size, Fill::Zeros))
        })
        .collect();
    let plan = plan.every_rank(|rank, program| {
        for (index, ((kind, count, whole, late), (small, large))) in
            job.calls.iter().zip(&tensors).enumerate()
        {
            program.compute("late", late[rank.index()]);
            if job.skips == Some((rank.0, index)) {
                continue;
            }
            let group = match whole {
                0 => GroupId::WORLD,
                _ => halves[usize::from(rank.0 >= half)],
            };
            let op = ReduceOp::Sum;
            let (collective, input, output) = match kind {
                0 => (SUM, None, Some(*small)),
                1 => (Collective::AllGather, Some(*small), Some(*large)),
                2 => (Collective::ReduceScatter { op }, Some(*large), Some(*small)),
                3 => (Collective::Broadcast { root: GroupRank(0) }, None, Some(*small)),
                4 => (Collective::Reduce { op, root: GroupRank(0) }, None, Some(*small)),
                _ => {
                    program.barrier(group);
                    continue;
                }
            };
            program.collective(group, collective, *count, input, output);
        }
    });
    plan.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    /// Meetings worked out without messages equal those of messages that take no time.
    #[test]
    fn meetings_are_what_messages_say(job in job()) {
        let plan = plan_of(&job);
        let by_messages = simulate(&plan, &timed(&plan)).unwrap();
        let trace = simulate(&plan, &without_values(&plan)).unwrap();
        prop_assert_eq!(&trace.end, &by_messages.end);
        prop_assert_eq!(completions(&trace), completions(&by_messages));
    }

    /// The last rank to come and the table say when a call is done.
    #[test]
    fn the_time_is_the_tables(late in prop::collection::vec(0u64..1000, 2..9)) {
        let plan = reduced(&late, None);
        let end = simulate(&plan, &timed(&plan)).unwrap().end.unwrap();
        prop_assert_eq!(end.time_ps, late.iter().max().unwrap() * 1000 + 16_007);
    }
}

/// Two groups of two ranks; rank r computes `late[r]` nanoseconds and reduces `counts` elements.
fn two_groups(late: [u64; 4], counts: [u64; 2]) -> Plan {
    let mut plan = PlanBuilder::new("shared links", 4, BackendName::Nccl).unwrap();
    let groups = [[0, 1], [2, 3]].map(|ranks| {
        let ranks = ranks.into_iter().map(GlobalRank).collect();
        plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks).unwrap())
    });
    let tensors = counts.map(|count| plan.tensor("x", Dtype::Float32, count, Fill::Zeros));
    let plan = plan.every_rank(|rank, program| {
        let group = usize::from(rank.0 >= 2);
        program.compute("late", late[rank.index()]);
        for _ in 0..2 {
            program.collective(groups[group], SUM, counts[group], None, Some(tensors[group]));
        }
    });
    plan.unwrap()
}

/// The same with each group's calls loading a link as given.
fn on_links(plan: &Plan, loads: [LinkLoad; 2], values: bool) -> SimConfig {
    let mut times = times(plan);
    for call in plan.timed_calls() {
        times.set_loads(call, [loads[call.group.index() - 1]]);
    }
    let config = if values { timed(plan) } else { without_values(plan) };
    SimConfig { call_times: Some(Arc::new(times)), ..config }
}

fn ends(plan: &Plan, config: &SimConfig) -> [u64; 4] {
    let trace = simulate(plan, config).unwrap();
    let done = completions(&trace);
    let last = |of: u32| done.iter().filter(|(rank, _)| *rank == of).map(|(_, at)| *at).max();
    [0, 1, 2, 3].map(|rank| last(rank).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// Groups whose calls load the same link slow each other, never to more than one after the
    /// other, and not at all where they have links of their own or the link carries both.
    #[test]
    fn groups_share_their_links(
        late in prop::array::uniform4(0u64..2000),
        counts in prop::array::uniform2(1u64..2000),
        loads in prop::array::uniform2(1u32..=LinkLoad::FULL),
        values in any::<bool>(),
    ) {
        let plan = two_groups(late, counts);
        let alone = ends(&plan, &timed(&plan));
        let [a, b] = loads;
        let link = |link, load| LinkLoad { link, load };
        prop_assert_eq!(ends(&plan, &on_links(&plan, [link(3, a), link(4, b)], values)), alone);
        let shared = ends(&plan, &on_links(&plan, [link(3, a), link(3, b)], values));
        if u64::from(a) + u64::from(b) <= u64::from(LinkLoad::FULL) {
            prop_assert_eq!(shared, alone);
        }
        let in_turn = 2 * (4000 * (counts[0] + counts[1]) + 14) + 1000 * late.iter().max().unwrap();
        for (shared, alone) in shared.into_iter().zip(alone) {
            prop_assert!(shared >= alone && shared <= in_turn + 50, "{} {} {}", shared, alone, in_turn);
        }
    }
}

/// Two alike that fill a link take twice as long; when one is done the other has it to itself.
#[test]
fn a_full_link_is_halved_and_given_back() {
    let full = LinkLoad { link: 0, load: LinkLoad::FULL };
    let plan = two_groups([0; 4], [1000, 1000]);
    let call = 4_000_007;
    for values in [false, true] {
        let config = on_links(&plan, [full, full], values);
        assert_eq!(ends(&plan, &config), [4 * call; 4]);
        let late = two_groups([0, 0, 4000, 4000], [1000, 1000]);
        // One call alone, then three quarters in company: the last is over 14 ps of launches later.
        let [first, _, second, _] = ends(&late, &on_links(&late, [full, full], values));
        assert!(first < second && second <= 4 * call + 10, "{first} {second}");
    }
}

/// Ranks 0 and 1 reduce `counts[0]` elements while rank 2 sends `counts[1]` to rank 3, twice each; rank r
/// computes `late[r]` nanoseconds before.
fn reduce_and_send(late: [u64; 4], counts: [u64; 2]) -> Plan {
    let mut plan = PlanBuilder::new("sends", 4, BackendName::Nccl).unwrap();
    let pair = ProcessGroup::new("g", BackendName::Nccl, vec![GlobalRank(0), GlobalRank(1)]);
    let pair = plan.group(pair.unwrap());
    let [reduced, sent] = counts.map(|count| plan.tensor("x", Dtype::Float32, count, Fill::Zeros));
    let plan = plan.every_rank(|rank, program| {
        program.compute("late", late[rank.index()]);
        for _ in 0..2 {
            match rank.0 {
                2 => program.send(GroupId::WORLD, GroupRank(3), sent),
                3 => program.recv(GroupId::WORLD, GroupRank(2), sent),
                _ => program.collective(pair, SUM, counts[0], None, Some(reduced)),
            };
        }
    });
    plan.unwrap()
}

/// The same with the collectives on link 3 and the sends on another or the same.
fn with_send_on(plan: &Plan, link: u32, loads: [u32; 2], values: bool) -> SimConfig {
    let mut times = times(plan);
    for call in plan.timed_calls() {
        times.set_loads(call, [LinkLoad { link: 3, load: loads[0] }]);
    }
    for send in plan.timed_transfers() {
        times.set_transfer_loads(send, [LinkLoad { link, load: loads[1] }]);
    }
    let config = if values { timed(plan) } else { without_values(plan) };
    SimConfig { call_times: Some(Arc::new(times)), ..config }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// A send on a link of its own takes what it takes without links; one that shares a link with a
    /// collective slows it and is slowed, never to more than one after the other.
    #[test]
    fn sends_share_links_with_collectives(
        late in prop::array::uniform4(0u64..2000),
        counts in prop::array::uniform2(1u64..2000),
        loads in prop::array::uniform2(1u32..=LinkLoad::FULL),
        values in any::<bool>(),
    ) {
        let plan = reduce_and_send(late, counts);
        let alone = ends(&plan, &timed(&plan));
        prop_assert_eq!(ends(&plan, &with_send_on(&plan, 4, loads, values)), alone);
        let shared = ends(&plan, &with_send_on(&plan, 3, loads, values));
        if u64::from(loads[0]) + u64::from(loads[1]) <= u64::from(LinkLoad::FULL) {
            prop_assert_eq!(shared, alone);
        }
        let in_turn = 2 * (4000 * (counts[0] + counts[1]) + 100_007) + 1000 * late.iter().max().unwrap();
        for (shared, alone) in shared.into_iter().zip(alone) {
            prop_assert!(shared >= alone && shared <= in_turn + 50, "{} {} {}", shared, alone, in_turn);
        }
    }
}

/// A send and a collective that fill one link have half of it each while both are in flight.
#[test]
fn a_send_and_a_collective_halve_a_full_link() {
    let plan = reduce_and_send([0; 4], [1000, 1000]);
    let full = [LinkLoad::FULL; 2];
    let [reduced, _, sent, received] = ends(&plan, &with_send_on(&plan, 3, full, true));
    assert_eq!(sent, received);
    // 4 µs each alone, four in all on one link; the latency of the first send leaves it to the collective.
    let [first, last] = [reduced.min(sent), reduced.max(sent)];
    assert!(first > 2 * 4_000_000 + 2_000_000 && last >= 4 * 4_000_000, "{first} {last}");
    assert!(last <= 4 * 4_000_000 + 2 * 100_007 + 10, "{last}");
}

/// Every collective, with a call of each algorithm that has one.
fn laid_calls() -> Vec<(Collective, Option<Algorithm>)> {
    let root = GroupRank(1);
    let mut calls: Vec<_> = [
        Collective::AllGather,
        Collective::ReduceScatter { op: ReduceOp::Sum },
        Collective::AllToAll,
        Collective::Broadcast { root },
        Collective::Reduce { root, op: ReduceOp::Sum },
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ]
    .map(|call| (call, None))
    .to_vec();
    calls.extend(Algorithm::ALL.into_iter().map(|algorithm| (SUM, Some(algorithm))));
    calls
}

/// Rank r computes for `late[r]` nanoseconds before and between two calls.
fn twice(late: &[u64], (call, algorithm): (Collective, Option<Algorithm>)) -> Option<Plan> {
    let world = late.len() as u32;
    let mut plan = PlanBuilder::new("laid", world, BackendName::Host).unwrap();
    let count = if call == Collective::Barrier { 0 } else { 24 };
    let elements = |of: Option<u64>| of.unwrap_or(0);
    let any = GroupRank(1);
    let input = elements(call.input_elements(world, any, count));
    let output = elements(call.output_elements(world, any, count));
    let x = plan.tensor("x", Dtype::Float32, input.max(1), Fill::Iota);
    let y = plan.tensor("y", Dtype::Float32, output.max(1), Fill::Iota);
    let plan = plan.every_rank(|rank, program| {
        for _ in 0..2 {
            program.compute("late", late[rank.index()]);
            let has_input = call.input_elements(world, GroupRank(rank.0), count).is_some();
            let has_output = call.output_elements(world, GroupRank(rank.0), count).is_some();
            let (x, y) = (has_input.then_some(x), has_output.then_some(y));
            program.collective_by(GroupId::WORLD, call, count, x, y, algorithm);
        }
    });
    plan.ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Laying a call's steps over its time changes no event of the trace, nor their order.
    #[test]
    fn steps_are_laid_over_a_calls_time_and_do_not_change_it(
        late in prop::collection::vec(0u64..600, 2..9),
        which in any::<prop::sample::Index>(),
    ) {
        let calls = laid_calls();
        let call = calls[which.index(calls.len())];
        let Some(plan) = twice(&late, call) else { return Ok(()) };
        let config = timed(&plan);
        let Ok(trace) = simulate(&plan, &config) else { return Ok(()) };
        let mut session = Session::new(&plan, config).unwrap();
        session.run_to_end().unwrap();
        for moment in session.moments() {
            let before = trace.events.iter().filter(|it| it.time_ps <= moment.time_ps).count();
            // Moment 0 is before the first event.
            prop_assert!(moment.events == before || moment.events == 0, "{moment:?}, {before}");
        }
        prop_assert_eq!(session.moments().last().unwrap().events, trace.events.len());
        prop_assert_eq!(session.trace(), trace);
    }
}

/// The steps of a ring are equal parts of the call's time, and one is in flight at each of its moments.
#[test]
fn a_rings_steps_are_equal_parts_of_its_time() {
    let plan = reduced(&[0; 4], Some(Algorithm::Ring));
    let mut session = Session::new(&plan, timed(&plan)).unwrap();
    session.run_to_end().unwrap();
    let times: Vec<u64> = session.moments().iter().map(|it| it.time_ps).collect();
    // All begin at 0, and 6 steps take 16 ns and 7 ps.
    let ends: Vec<u64> = (1..=6).map(|step| 16_007 * step / 6).collect();
    assert_eq!(times, [vec![0, 0], ends.clone()].concat());
    for (moment, arrives) in (1..times.len() - 1).zip(ends) {
        session.seek(moment).unwrap();
        let messages = session.view().messages;
        assert_eq!(messages.len(), 4, "moment {moment}");
        assert!(
            messages.iter().all(|it| it.arrives_ps == arrives && it.departs_ps == times[moment])
        );
    }
}
