//! One notion of a step everywhere on the page: what a card counts is what the captions count to,
//! and what two algorithms stand at together.

use crate::explain::{moment, round};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Action, Algorithm, RoundPlace, Rounds, Schedule};
use lockstep_sim::{Link, Session, SimConfig, Topology};
use proptest::prelude::*;

fn calls() -> Vec<(Collective, Algorithm)> {
    let monitored = Collective::MonitoredBarrier { wait_all_ranks: false };
    let calls = Collective::every(ReduceOp::Sum, GroupRank(0)).into_iter().chain([monitored]);
    let each = |call: Collective| Algorithm::of(call).iter().map(move |by| (call, *by));
    calls.flat_map(each).collect()
}

/// The steps in which anybody, also a switch, sends: counted here by themselves.
fn sending_steps(schedule: &Schedule) -> Vec<u32> {
    let mut actions = Vec::new();
    let mut sends = |step: u32| {
        (0..schedule.participants()).map(GroupRank).any(|rank| {
            schedule.actions(rank, step, &mut actions);
            actions.iter().any(|action| matches!(action, Action::Send { .. }))
        })
    };
    (0..schedule.steps()).filter(|step| sends(*step)).collect()
}

/// The `2` and `4` of `Step 2 of 4, …: …`.
fn said(sentence: &str) -> Option<(u32, u32)> {
    let rest = sentence.split_once("tep ")?.1;
    let (at, rest) = rest.split_once(" of ")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((at.parse().ok()?, rest[..digits].parse().ok()?))
}

fn check(call: Collective, algorithm: Algorithm, world_size: u32, node: u32, count: u64) {
    let lab = CollectiveLab::new(call, world_size, count);
    let lab = CollectiveLab { algorithm, timeout_ms: 86_400_000, ..lab };
    let Ok(schedule) = lab.schedule(node) else { return };
    let what = format!("{schedule} in nodes of {node}");
    let rounds = Rounds::of(&schedule);
    let sending = sending_steps(&schedule);
    assert_eq!(rounds.steps().collect::<Vec<_>>(), sending, "{what}");
    let count = rounds.count();
    // The caption of each step, as both sides show it at the same step.
    for at in 0..count {
        let sentence = round(&schedule, &rounds, at).unwrap();
        assert_eq!(said(&sentence), Some((at + 1, count)), "{what}: {sentence}");
        assert!(!sentence.contains("nothing is sent"), "{what}: {sentence}");
    }
    assert_eq!(round(&schedule, &rounds, count), None);
    // The simulator's messages leave in as many.
    let mut plan = lab.plan().unwrap();
    plan.ranks_per_node = node;
    let topology = match node {
        0 => Topology::default(),
        ranks_per_node => {
            Topology::Nodes { ranks_per_node, inside: Link::NVLINK, across: Link::DEFAULT }
        }
    };
    let config = SimConfig { topology, ..SimConfig::default() };
    let mut session = Session::new(&plan, config).unwrap();
    session.run_to_end().unwrap();
    assert_eq!(session.round_begins().len() as u32, count, "{what}");
    // And at every moment the caption counts to the same number, and never back.
    let mut before = 0;
    for at in 0..session.moments().len() {
        session.seek(at).unwrap();
        let view = session.view();
        for call in view.ranks.iter().flat_map(|rank| &rank.calls) {
            assert_eq!(call.rounds, count, "{what}");
            assert_eq!(call.round, rounds.place(call.step), "{what}");
            assert_eq!(call.round == RoundPlace::Over, call.step >= call.steps, "{what}");
        }
        let sentence = moment(&schedule, &rounds, &view);
        let Some((step, of)) = said(&sentence) else { continue };
        assert!(of == count && step <= count && step >= before, "{what}: {sentence}");
        before = step;
    }
}

#[test]
fn every_family_counts_as_its_card_does() {
    for (call, algorithm) in calls() {
        for (world_size, node) in [(2, 0), (5, 0), (8, 0), (8, 4), (9, 4), (16, 8)] {
            check(call, algorithm, world_size, node, 40);
        }
    }
}

/// The numbers that a user saw: 7 where the card says 4, and 13 where it says 8; 5 for 2, and 8 for 4.
#[test]
fn switches_adding_up_is_no_step() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    for (algorithm, world_size, node, count) in [
        (Algorithm::Nvls, 8, 0, 4),
        (Algorithm::Nvls, 16, 8, 8),
        (Algorithm::Sharp, 8, 0, 2),
        (Algorithm::Sharp, 16, 8, 4),
    ] {
        let schedule = Schedule::new(sum, algorithm, world_size).unwrap();
        let schedule = schedule.with_ranks_per_node(node).unwrap();
        let rounds = Rounds::of(&schedule);
        assert_eq!(rounds.count(), count);
        let sentences: Vec<_> = (0..count).filter_map(|at| round(&schedule, &rounds, at)).collect();
        for (at, sentence) in sentences.iter().enumerate() {
            let one_node = node == 0;
            assert!(!(one_node && sentence.contains("spine")), "{sentence}");
            let words = |sentence: &str| sentence.split_once(": ").unwrap().1.to_owned();
            let again = sentences[..at].iter().any(|before| words(before) == words(sentence));
            assert!(!again || algorithm == Algorithm::Nvls, "said twice: {sentence}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_pages_count_is_the_cards(
        which in 0..200usize, world_size in 2..=24u32, node in 0..=12u32, segments in 0..3u32,
    ) {
        let all = calls();
        let (call, algorithm) = all[which % all.len()];
        // Up to some segments of a pipeline.
        let count = [7, 1 << 10, 3 << 17][segments as usize];
        check(call, algorithm, world_size, node, count);
    }
}
