//! Steps of generated jobs: as many are found as there are, or none.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use lockstep_analysis::{Activity, Analysis, RankActivity, TimedCall};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Called, RecordedStep, TensorShape};
use lockstep_sim::{SimConfig, simulate};
use proptest::prelude::*;
use std::sync::Arc;

const MS: u64 = 1_000_000_000;

/// A recorded job: calls with their times, and no computations.
#[derive(Clone, Debug)]
struct Job {
    ranks: u32,
    steps: usize,
    /// The elements of each bucket of a step.
    buckets: Vec<u64>,
    /// The time in front of a step's first bucket, in times of that between two buckets.
    pause: u64,
    /// By how much times vary, in percent.
    jitter: u64,
    /// The time of a call, in percent of the time between two buckets.
    takes: u64,
    /// Calls in front of the first step: broadcasts, and all_reduces of the first bucket's size at another line.
    warm_up: (usize, usize),
    barrier: bool,
    seed: u64,
}

fn jobs() -> impl Strategy<Value = Job> {
    let buckets = prop_oneof![
        (1usize..9).prop_map(|count| vec![1 << 18; count]),
        prop::collection::vec((0u64..3).prop_map(|size| 1000 << size), 1..9),
    ];
    let times = (2u64..20, 0u64..30, 10u64..300);
    let around = ((0usize..4, 0usize..3), any::<bool>());
    (2u32..5, 2usize..25, buckets, times, around, any::<u64>()).prop_map(
        |(ranks, steps, buckets, (pause, jitter, takes), (warm_up, barrier), seed)| Job {
            ranks,
            steps,
            buckets,
            pause,
            jitter,
            takes,
            warm_up,
            barrier,
            seed,
        },
    )
}

fn called(op: &str, numel: u64, line: &str) -> Arc<Called> {
    Arc::new(Called {
        op: op.to_owned(),
        group: GroupId::WORLD,
        p2p: false,
        peer: None,
        tag: 0,
        inputs: vec![TensorShape { shape: vec![numel], dtype: Dtype::Float32 }],
        outputs: Vec::new(),
        reduce_op: None,
        root: None,
        stack: vec![lockstep_core::trace::Frame {
            file: format!("{line}.py"),
            line: 1,
            function: String::new(),
        }]
        .into(),
    })
}

impl Job {
    fn activity(&self) -> Activity {
        let mut seed = self.seed | 1;
        let mut varied = |usual: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usual * (100 - self.jitter + seed % (2 * self.jitter + 1)) / 100
        };
        let rank = |_| {
            let (mut now, mut busy, mut calls) = (0, 0, Vec::new());
            let mut call = |now: u64, called: Arc<Called>, takes: u64| {
                let ready_ps = now.max(busy);
                busy = ready_ps + takes;
                let seq = Some(calls.len() as u64 + 1);
                calls.push(TimedCall {
                    work: calls.len() as u32,
                    plan_op: None,
                    seq,
                    made_ps: now,
                    ready_ps,
                    on_device: false,
                    ended_ps: Some(busy),
                    called,
                });
                busy
            };
            for _ in 0..self.warm_up.0 {
                now = call(now + varied(MS / 2), called("broadcast", 7, "setup"), MS / 10);
            }
            for _ in 0..self.warm_up.1 {
                let numel = self.buckets[0];
                now = call(now + varied(MS / 2), called("all_reduce", numel, "warm_up"), MS / 10);
            }
            for _ in 0..self.steps {
                now += varied(self.pause * MS);
                let mut end = now;
                for (at, numel) in self.buckets.iter().enumerate() {
                    now += if at > 0 { varied(MS) } else { 0 };
                    let takes = varied(MS * self.takes / 100);
                    end = call(now, called("all_reduce", *numel, "train"), takes);
                }
                now = now.max(end);
            }
            if self.barrier {
                call(now + varied(MS), called("barrier", 1, "end"), MS / 10);
            }
            RankActivity { recorded: true, calls, ..RankActivity::default() }
        };
        let ranks: Vec<RankActivity> = (0..self.ranks).map(rank).collect();
        let ends = ranks.iter().flat_map(|own| &own.calls).filter_map(|call| call.ended_ps);
        Activity {
            end_ps: ends.max().unwrap(),
            ranks,
            groups: vec![ProcessGroup::world(self.ranks, BackendName::Host).unwrap()],
            start_ps: 0,
            knows_computations: false,
            is_recorded: true,
            has_device_times: false,
        }
    }
}

fn steps(activity: &Activity) -> usize {
    Analysis::of(activity).steps.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// From calls and their times alone as many steps are found as there are, or none.
    #[test]
    fn a_recorded_job_has_its_steps_or_unknown_ones(job in jobs()) {
        let found = steps(&job.activity());
        prop_assert!(found == job.steps || found == 0, "{found} of {job:?}");
    }
}

/// A process's times of NCCL's calls are not those of the data: no bandwidth is made of them.
#[test]
fn host_times_of_nccl_give_no_bandwidth() {
    let job = Job {
        ranks: 2,
        steps: 5,
        buckets: vec![1 << 22],
        pause: 9,
        jitter: 5,
        takes: 1,
        warm_up: (0, 0),
        barrier: false,
        seed: 7,
    };
    let bandwidth = |backend: BackendName, has_device_times: bool| {
        let groups = vec![ProcessGroup::world(2, backend).unwrap()];
        let activity = Activity { groups, has_device_times, ..job.activity() };
        Analysis::of(&activity).calls[0].busbw
    };
    assert_eq!(bandwidth(BackendName::Nccl, false), None);
    assert!(bandwidth(BackendName::Nccl, true).is_some());
    assert!(bandwidth(BackendName::Host, false).is_some());
}

/// A job of eight equal buckets has steps by the times at which it launches them, though its calls are all alike.
#[test]
fn equal_buckets_are_told_by_their_times() {
    let job = Job {
        ranks: 2,
        steps: 20,
        buckets: vec![1 << 18; 8],
        pause: 9,
        jitter: 25,
        takes: 250,
        warm_up: (3, 0),
        barrier: true,
        seed: 7,
    };
    assert_eq!(steps(&job.activity()), 20);
    // One call a step, at even times.
    let single = Job { buckets: vec![1 << 18], takes: 50, jitter: 10, ..job.clone() };
    assert_eq!(steps(&single.activity()), 20);
    // Where times tell nothing, the number is unknown.
    assert_eq!(steps(&Job { pause: 1, jitter: 80, takes: 1, ..job }.activity()), 0);
}

/// Marks on a rank's `steps` equal calls each, from just before the first call of a step to just before that of the next.
fn marked(own: &mut RankActivity, steps: usize) {
    let each = own.calls.len() / steps;
    let made = |at: usize| own.calls.get(at).map(|call| call.made_ps - 1);
    let end_ps = own.calls.last().unwrap().ended_ps.unwrap() + 1;
    let mark = |number: usize| RecordedStep {
        number: 7 + number as u64,
        from_ps: made(number * each).unwrap(),
        to_ps: made((number + 1) * each).unwrap_or(end_ps),
        on_device: None,
    };
    own.marked_steps = (0..steps).map(mark).collect();
}

/// Steps that the program marked are taken where calls tell none, also on a rank that marked nothing; marks that
/// contradict each other are not.
#[test]
fn marked_steps_are_the_steps() {
    let job = Job {
        ranks: 3,
        steps: 20,
        buckets: vec![1 << 18; 8],
        pause: 1,
        jitter: 80,
        takes: 1,
        warm_up: (0, 0),
        barrier: false,
        seed: 7,
    };
    assert_eq!(steps(&job.activity()), 0);
    let mut activity = job.activity();
    // The third rank has no marks.
    activity.ranks.iter_mut().take(2).for_each(|own| marked(own, 20));
    let analysis = Analysis::of(&activity);
    assert_eq!(analysis.steps.len(), 20);
    assert!(analysis.steps.iter().all(|step| step.ranks.len() == 3));
    let ends = activity.ranks[..2].iter().map(|own| own.marked_steps[4].to_ps);
    assert!(analysis.steps[4].to_ps >= ends.max().unwrap());
    // The device's times are the steps' where calls are timed on it.
    let mut on_device = activity.clone();
    on_device.has_device_times = true;
    for own in on_device.ranks.iter_mut().take(2) {
        for step in &mut own.marked_steps {
            step.on_device = Some((step.from_ps + 3 * MS, step.to_ps + 3 * MS));
        }
    }
    let later = Analysis::of(&on_device);
    let ends = activity.ranks[..2].iter().map(|own| own.marked_steps[19].to_ps);
    assert_eq!(later.steps.len(), 20);
    assert_eq!(later.steps[19].to_ps, ends.max().unwrap() + 3 * MS);
    // One rank says that the first step has the calls of two.
    let mut other = activity.clone();
    marked(&mut other.ranks[1], 10);
    assert_eq!(steps(&other), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A simulated job has the steps of its program, whatever its buckets are and however slow its links.
    #[test]
    fn a_simulated_job_has_the_steps_of_its_program(
        steps in 2usize..12,
        buckets in prop::collection::vec(prop_oneof![Just(1u64 << 12), 1u64..5000], 1..8),
        forward_ns in 1u64..3_000_000,
        backward_ns in 1u64..1_000_000,
        slow in 1u64..40,
        barrier: bool,
    ) {
        let mut plan = PlanBuilder::new("ddp", 3, BackendName::Host).unwrap();
        let tensors: Vec<_> = buckets
            .iter()
            .map(|numel| plan.tensor("bucket", Dtype::Float32, *numel, Fill::Zeros))
            .collect();
        let reduce = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|rank, program| {
            program.collective(GroupId::WORLD, Collective::Barrier, 0, None, None);
            for _ in 0..steps {
                program.compute("forward", forward_ns * (1 + u64::from(rank.0) * slow / 10));
                let made: Vec<u32> = buckets
                    .iter()
                    .zip(&tensors)
                    .map(|(numel, tensor)| {
                        program.compute("backward", backward_ns);
                        let program = program.async_op();
                        program.collective(GroupId::WORLD, reduce, *numel, None, Some(*tensor))
                    })
                    .collect();
                made.into_iter().for_each(|op| {
                    program.wait(op);
                });
            }
            if barrier {
                program.collective(GroupId::WORLD, Collective::Barrier, 0, None, None);
            }
        });
        let trace = simulate(&plan.unwrap(), &SimConfig::default()).unwrap();
        let analysis = Analysis::of(&Activity::of_trace(&trace));
        prop_assert_eq!(analysis.steps.len(), steps);
    }
}
