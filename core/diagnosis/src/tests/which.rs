//! Which of calls that are all alike was left out: the pauses between a rank's calls tell, where it is
//! the only one that makes a long one.

use super::super::{Certainty, Kind, Report};
use super::fake::{Fake, Said, done, pending};
use super::{found, report};

const ROUND_NS: u64 = 1_000_000;

/// Eight rounds of an all_reduce in `group` and a barrier of the world, of which rank 2 leaves the
/// all_reduce of round `left_out` out; `slow` is a round that takes all ranks twice as long.
fn job(group: usize, left_out: u64, slow: Option<u64>) -> Report {
    let starts_ns = |round: u64| {
        let twice = slow.is_some_and(|slow| slow <= round);
        // No round is exactly as long as another.
        (round + u64::from(twice)) * ROUND_NS + (round * 7 % 5) * ROUND_NS / 40
    };
    let loop_of = |rank: u64| -> Vec<Said> {
        let rounds = (1..=8).filter(|round| (rank, *round) != (2, left_out));
        let call = |(at, round): (usize, u64)| {
            let of = if at < 7 { done } else { pending };
            let called = of("all_reduce", 64).in_group(group);
            // Who waits for a rank begins its next round with it.
            let waited = u64::from(round > left_out && rank != 2);
            called.at(starts_ns(round) + waited * ROUND_NS / 50 + rank * 1000)
        };
        rounds.enumerate().map(call).collect()
    };
    let mut fake = Fake::new(4, &[]).group("dp", &[0, 1, 2, 3]);
    for rank in 0..4 {
        let mut said = loop_of(rank);
        if rank == 2 {
            said.push(pending("barrier", 1).at(starts_ns(9)));
        }
        fake = fake.rank(rank as usize, &said);
    }
    report(&fake.files())
}

#[test]
fn a_long_pause_tells_which_call_was_left_out() {
    for group in [0, 1] {
        for left_out in 2..=7 {
            let report = job(group, left_out, None);
            let text = report.to_text();
            assert_eq!(found(&report), [(Kind::OpSkipped, vec![2])], "{text}");
            let finding = &report.findings[0];
            assert_eq!(
                (finding.seq, finding.certainty),
                (Some(left_out), Certainty::Likely),
                "{text}"
            );
            assert!(finding.message.contains("is usual"), "{text}");
        }
    }
}

/// The first and the last have no pause before them that shows it.
#[test]
fn without_a_pause_any_of_them_may_be_it() {
    for left_out in [1, 8] {
        let report = job(1, left_out, None);
        assert_eq!(found(&report), [(Kind::LoopShorter, vec![2])], "{}", report.to_text());
    }
}

/// A rank that waits for one that is slow in one round makes its pause a number later than that one.
#[test]
fn who_waits_for_a_slow_rank_left_nothing_out() {
    let ms = |at: f64| (at * 1e6) as u64;
    // Rank 0 comes late to #4: all others pause before #5.
    let of = |rank: u64, rounds: u64| -> Vec<Said> {
        (1..=rounds)
            .map(|round| {
                let late = if round > 4 || (round == 4 && rank == 0) { 1.0 } else { 0.0 };
                let call = if round < 8 { done } else { pending };
                call("all_reduce", 64).in_group(1).at(ms(round as f64 + late) + rank * 1000)
            })
            .collect()
    };
    let mut fake = Fake::new(4, &[]).group("dp", &[0, 1, 2, 3]);
    for rank in 0..4 {
        let mut said = of(rank, if rank == 2 { 7 } else { 8 });
        if rank == 2 {
            said.push(pending("barrier", 1).at(ms(10.0)));
        }
        fake = fake.rank(rank as usize, &said);
    }
    let report = report(&fake.files());
    assert_eq!(found(&report), [(Kind::LoopShorter, vec![2])], "{}", report.to_text());
}

/// A round that takes all ranks long, such as an evaluation, shows nothing; the other pause does.
#[test]
fn what_all_ranks_wait_for_is_no_call_left_out() {
    let alone = job(1, 5, Some(3));
    assert_eq!(alone.findings[0].seq, Some(5), "{}", alone.to_text());
    let hidden = job(1, 8, Some(3));
    assert_eq!(found(&hidden), [(Kind::LoopShorter, vec![2])], "{}", hidden.to_text());
}
