//! Pipelines that go one forward, one backward, in which a stage leaves a batch out, recorded by rings that
//! wrapped at different places: whose circle of sends and receives is left is nobody's fault for sure.

use super::gaps::{Does, Job, call, play, recorded, with};
use crate::{Certainty, Kind, diagnose};
use proptest::prelude::*;

/// Every stage's calls of so many batches, each of as many microbatches.
fn pipeline(stages: usize, batches: usize, micro: usize) -> Job {
    let forward = |stage: usize| {
        let receives = (stage > 0).then(|| with(stage.wrapping_sub(1), call("recv", 0, 8, 20)));
        let sends = (stage + 1 < stages).then(|| with(stage + 1, call("send", 0, 8, 21)));
        receives.into_iter().chain(sends)
    };
    let backward = |stage: usize| {
        let receives = (stage + 1 < stages).then(|| with(stage + 1, call("recv", 0, 8, 24)));
        let sends = (stage > 0).then(|| with(stage.wrapping_sub(1), call("send", 0, 8, 25)));
        receives.into_iter().chain(sends)
    };
    let program = |stage: usize| {
        let warm_up = (stages - stage - 1).min(micro);
        let batch = |at: usize| {
            let mut calls: Vec<Does> = (0..warm_up).flat_map(|_| forward(stage)).collect();
            for _ in warm_up..micro {
                calls.extend(forward(stage).chain(backward(stage)));
            }
            calls.extend((0..warm_up).flat_map(|_| backward(stage)));
            calls.into_iter().map(move |does| Does { round: Some(at), ..does })
        };
        (0..batches).flat_map(batch).collect()
    };
    let groups = vec![("default_pg".to_owned(), (0..stages).collect())];
    Job { groups, programs: (0..stages).map(program).collect() }
}

#[test]
fn the_pipeline_runs() {
    for (stages, micro) in [(2, 3), (3, 4), (4, 6)] {
        let job = pipeline(stages, 3, micro);
        let made = play(&job, 2 * stages);
        let done = |(own, program): (&Vec<super::gaps::Made>, &Vec<Does>)| {
            own.len() == program.len() && own.iter().all(|made| made.ended_ps.is_some())
        };
        assert!(made.iter().zip(&job.programs).all(done), "{stages} {micro}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_circle_that_is_left_blames_nobody_else(
        stages in 2..=4usize,
        micro in 2..=6usize,
        rank in 0..4usize,
        left_out in 1..4usize,
        ahead in 2..8usize,
        rings in prop::collection::vec(prop::sample::select(vec![4usize, 6, 9, 14, 500]), 4),
    ) {
        let (mut job, rank) = (pipeline(stages, 5, micro), rank % stages);
        job.programs[rank].retain(|does| does.round != Some(left_out));
        let log = recorded(&job, &play(&job, ahead), None, &rings, true);
        let report = diagnose(&log);
        let wrong = |it: &&crate::Finding| {
            it.kind == Kind::P2pDeadlock
                && it.certainty != Certainty::Undecidable
                && !it.culprits.iter().any(|culprit| culprit.index() == rank)
        };
        prop_assert_eq!(report.findings.iter().filter(wrong).count(), 0, "{}: {}", rank, report.to_text());
    }
}
