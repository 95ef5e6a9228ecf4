//! The lab's results against the simulator's, and the slow ranks in it.

use super::*;

/// The closed form is the simulator's, up to the few messages that rank 0 is ahead of the others.
#[test]
fn the_closed_form_agrees_with_the_simulator() {
    use lockstep_torch::ddp::RingLink;
    use lockstep_torch::ddp::lab::{Setting, sweep_caps};
    use lockstep_torch::ddp::timeline::{SpanKind, timeline};
    for (world_size, bytes_per_second) in [(2, 5_000_000_000), (4, 20_000_000_000), (8, 1 << 36)] {
        let training = Training { batch: 512, ..training(world_size) };
        let plan = training_plan(&six(), &training).unwrap();
        let trace = run(&plan, bytes_per_second);
        let link = RingLink { latency_ps: 1_000_000, bytes_per_second };
        let closed = timeline(&plan, link);
        let simulated = steps(&plan, &trace);
        assert_eq!(closed.len(), simulated.len());
        for (closed, simulated) in closed.iter().zip(&simulated) {
            let of = |kind| closed.spans.iter().filter(move |span| span.kind == kind);
            let buckets: Vec<_> = of(SpanKind::Bucket).map(|s| s.end_ps - s.start_ps).collect();
            assert_eq!(buckets.len(), simulated.buckets.len());
            let end = simulated.backward.last().unwrap().1;
            let exposed = simulated.optimizer - end;
            // Chunks of uneven elements and a head start, both far below a bucket's time.
            assert!(closed.exposed_ps.abs_diff(exposed) <= 8_000_000, "{closed:?} {exposed}");
            let backward: u64 =
                of(SpanKind::Backward).map(|span| span.end_ps - span.start_ps).sum();
            let truth: u64 = simulated.backward.iter().map(|(start, end)| end - start).sum();
            assert_eq!(backward, truth);
        }
        let caps = [None, Some(0.0), Some(1.0), Some(100.0)];
        let setting = Setting { training, links: link.into() };
        let (points, best) = sweep_caps(&six(), &setting, &caps).unwrap();
        let shortest = points.iter().map(|point| point.step_ps).min();
        assert_eq!(best.map(|best| points[best.index].step_ps), shortest);
        assert_eq!(points.iter().map(|p| p.buckets).collect::<Vec<_>>(), [2, 12, 6, 1]);
        // One bucket hides nothing.
        assert_eq!(points[3].exposed_ps, points[3].communication_ps);
        assert!(points.iter().all(|point| point.efficiency_permille <= 1000));
    }
}

/// The lab's streams are the simulator's, on equal links and in nodes: when layers run, when
/// buckets start and end, how long the optimizer waits.
#[test]
fn the_lab_shows_what_the_simulator_does() {
    use lockstep_torch::ddp::Links;
    use lockstep_torch::ddp::RingLink;
    use lockstep_torch::ddp::lab::{LabRun, Setting, optimizer_ends};
    let link = |latency_ps, bytes_per_second| {
        (Link { latency_ps, bytes_per_second }, RingLink { latency_ps, bytes_per_second })
    };
    let (fast, fast_ring) = link(500_000, 100_000_000_000);
    let (slow, slow_ring) = link(3_000_000, 10_000_000_000);
    let networks = [
        (Topology::Uniform(slow), Links::Uniform(slow_ring)),
        (
            Topology::Nodes { ranks_per_node: 4, inside: fast, across: slow },
            Links::Nodes { ranks_per_node: 4, inside: fast_ring, across: slow_ring },
        ),
        (
            Topology::Nodes { ranks_per_node: 2, inside: fast, across: slow },
            Links::Nodes { ranks_per_node: 2, inside: fast_ring, across: slow_ring },
        ),
    ];
    let mut compared = 0;
    for (topology, links) in networks {
        // 6 and 10 leave the last node with fewer ranks than the others.
        for world_size in [2, 4, 6, 8, 10, 12] {
            let training = Training { batch: 512, ..training(world_size) };
            let plan = training_plan(&six(), &training).unwrap();
            let config = SimConfig { topology, ..SimConfig::default() };
            let trace = simulate(&plan, &config).unwrap();
            let simulated = steps(&plan, &trace);
            let setting = Setting { training, links };
            let model = six();
            let run = LabRun::of(&model, &setting).unwrap();
            assert_eq!(run.passes() as usize, simulated.len());
            for (number, simulated) in (0..).zip(&simulated) {
                let pass = run.pass(number).unwrap();
                // From the beginning of the backward pass; ranks are some messages apart.
                let from = simulated.backward[0].0;
                let near = |own: u64, truth: u64, what: &str| {
                    let (own, truth) = (own - pass.forward_end_ps, truth - from);
                    let slack = 8_000_000 + truth / 50;
                    assert!(
                        own.abs_diff(truth) <= slack,
                        "{world_size} {links:?} {number} {what}: {own} {truth}"
                    );
                };
                let backward: Vec<_> = pass.layers.iter().filter(|layer| !layer.forward).collect();
                for (own, truth) in backward.iter().zip(&simulated.backward) {
                    assert_eq!(own.end_ps - own.start_ps, truth.1 - truth.0);
                }
                assert_eq!(pass.buckets.len(), simulated.buckets.len());
                for (bucket, truth) in pass.buckets.iter().zip(&simulated.buckets) {
                    let (start, end) = bucket.span_ps.unwrap();
                    near(start, truth.0, "start");
                    near(end, truth.1, "end");
                    compared += 1;
                }
                near(pass.optimizer.unwrap().0, simulated.optimizer, "optimizer");
            }
            let ends = optimizer_ends(&plan, &trace, GlobalRank(0));
            let took = ends[2] - ends[1];
            let step_ps = run.summary().step_ps;
            assert!(step_ps.abs_diff(took) <= 8_000_000 + took / 50, "{step_ps} {took}");
        }
    }
    assert_eq!(compared, 18 * (1 + 6 + 6));
}

/// Every rank of a plan is the same: nobody is slow, however the ring is entered.
#[test]
fn nobody_is_slow_where_all_ranks_are_alike() {
    for (model, world_size) in [("resnet18", 2), ("resnet18", 8)] {
        let training = Training::new(world_size, Device::named("A100").unwrap());
        let plan = training_plan(&named(model).unwrap(), &training).unwrap();
        let config = SimConfig { record_messages: false, ..SimConfig::default() };
        let report = diagnose_trace(&simulate(&plan, &config).unwrap());
        assert!(report.findings.is_empty(), "{model} on {world_size}: {}", report.to_text());
    }
    // So small that what one latency makes of the order of ranks is a good part of the time.
    let model = mlp("mlp", &[100, 200, 50], Dtype::Float32);
    for (backend, world_size) in
        [(BackendName::Gloo, 2), (BackendName::Host, 2), (BackendName::Gloo, 5)]
    {
        let training =
            Training { backend, ..Training::new(world_size, Device::named("A100").unwrap()) };
        let plan = training_plan(&model, &training).unwrap();
        let report = diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap());
        assert!(report.findings.is_empty(), "{backend} on {world_size}: {}", report.to_text());
    }
}

/// A rank that computes longer is; by a fifth where what it is late by adds up until it is waited for.
#[test]
fn a_rank_that_computes_longer_is_slow_however_calls_are_waited_for() {
    for async_op in [false, true] {
        let mut plan = PlanBuilder::new("p", 4, BackendName::Gloo).unwrap();
        let grad = plan.tensor("grad", Dtype::Float32, 4096, Fill::Rank);
        let plan = plan.every_rank(|rank, program| {
            let part = if async_op { 5 } else { 2 };
            let take = |ns: u64| if rank.0 == 2 { ns + ns / part } else { ns };
            for _ in 0..6 {
                program.compute("forward", take(5_000_000));
                let calls: Vec<u32> = (0..5)
                    .map(|_| {
                        program.compute(
                            "backward",
                            take(if async_op { 2_000_000 } else { 20_000_000 }),
                        );
                        if async_op {
                            program.async_op();
                        }
                        let sum = Collective::AllReduce { op: ReduceOp::Sum };
                        program.collective(GroupId::WORLD, sum, 4096, None, Some(grad))
                    })
                    .collect();
                for op in calls.into_iter().filter(|_| async_op) {
                    program.push(Action::Wait { op, timeout_ms: None });
                }
            }
        });
        let report = diagnose_trace(&simulate(&plan.unwrap(), &SimConfig::default()).unwrap());
        assert_eq!(report.culprits(), [GlobalRank(2)], "{async_op}: {}", report.to_text());
    }
}

/// If ranks differ, or reduce among some of them, a step in closed form is the simulator's.
#[test]
fn what_stands_around_ddp_takes_what_the_simulator_says() {
    use lockstep_sim::training::{messages, simulate_rank};
    use lockstep_torch::ddp::RingLink;
    use lockstep_torch::ddp::join::JoinOptions;
    use lockstep_torch::ddp::lab::{LabRun, Setting};
    use lockstep_torch::ddp::plan::{Uneven, training_run};
    use lockstep_torch::ddp::zero::ZeroOverlap;
    use lockstep_torch::ddp::{DdpVersion, MixedPrecision};
    let (latency_ps, bytes_per_second) = (2_000_000, 10_000_000_000);
    let plain = Training { batch: 512, ..training(4) };
    let with = |change: &dyn Fn(&mut Training)| {
        let mut training = plain.clone();
        change(&mut training);
        training
    };
    let uneven =
        |inputs: &[u32]| Some(Uneven { inputs: inputs.to_vec(), options: JoinOptions::default() });
    let half = MixedPrecision { param_dtype: Some(Dtype::Float16), ..MixedPrecision::default() };
    let local =
        |subgroup| PostLocalSgd { start_iter: 0, subgroup, post_local_gradient_allreduce: true };
    let settings = [
        plain.clone(),
        with(&|of| of.uneven = uneven(&[5, 2, 4])),
        with(&|of| (of.uneven = uneven(&[1, 4]), of.zero = Some(true)).0),
        with(&|of| of.options.mixed_precision = Some(half)),
        with(&|of| of.averager = "periodic:3:1".parse().ok()),
        with(&|of| {
            of.averager = "hierarchical:2=2,4=4:0".parse().ok();
            of.options.comm_hook = Some(CommHook::new(HookAlgorithm::PostLocalSgd(local(2))));
        }),
        with(&|of| {
            of.options.comm_hook = Some(CommHook::new(HookAlgorithm::AllReduce));
            let overlap = ZeroOverlap { interleaved: true, shard_buckets: true, world_size: 4 };
            of.options.zero_overlap = Some(overlap);
        }),
        with(&|of| (of.devices = 2, of.options.version = DdpVersion::V1).0),
        with(&|of| (of.unused = vec!["layers.3".into()], of.options.static_graph = true).0),
    ];
    for training in settings {
        let model = six();
        let ring = RingLink { latency_ps, bytes_per_second };
        let setting = Setting { training, links: ring.into() };
        let lab = LabRun::of(&model, &setting).unwrap();
        let steps = setting.optimizer_steps() * setting.passes_a_step();
        let run = training_run(&model, &Training { steps, ..setting.training.clone() }).unwrap();
        assert!(messages(&run.plan) > 0);
        let topology = Topology::Uniform(Link { latency_ps, bytes_per_second });
        let config = SimConfig { topology, ..SimConfig::default() };
        let mut compared = 0;
        for rank in 0..run.plan.world_size {
            let (passes, outcome) = simulate_rank(&run, rank, &config).unwrap();
            assert_eq!(outcome, Some(Outcome::Completed));
            assert_eq!(passes.len() as u32, lab.passes_of(rank));
            for (number, simulated) in (0..).zip(&passes).skip(1) {
                let pass = lab.pass_of(rank, number).unwrap();
                // From the first layer, or the first call of a rank that has none.
                let from = pass.layers.first().map_or(0, |layer| layer.start_ps);
                let next = lab
                    .pass_of(rank, number + 1)
                    .and_then(|next| next.layers.first().map(|layer| layer.start_ps));
                let own = pass.end_ps + next.unwrap_or(0) - from;
                let truth = simulated.end_ps - simulated.start_ps;
                assert_eq!(simulated.compute_ps, pass.compute_ps(), "rank {rank} pass {number}");
                assert!(simulated.exposed_ps <= simulated.waiting_ps());
                assert!(
                    own.abs_diff(truth) <= 25_000_000 + truth / 25,
                    "{} rank {rank} pass {number}: {own} {truth}",
                    run.plan.name
                );
                compared += 1;
            }
        }
        assert!(compared > 4);
    }
}

/// A sharded optimizer's broadcasts go one behind the other: their roots do not wait for each other's
/// last rank. A sweep says what the simulator says, and the last step is as long as the one before it.
#[test]
fn a_sharded_optimizers_step_is_that_of_the_sweep() {
    use lockstep_sim::training::simulate_training;
    use lockstep_torch::ddp::RingLink;
    use lockstep_torch::ddp::lab::{LabRun, Setting};
    use lockstep_torch::ddp::plan::training_run;
    let (latency_ps, bytes_per_second) = (5_000_000, 25_000_000_000);
    let topology = Topology::Uniform(Link { latency_ps, bytes_per_second });
    let config = SimConfig { topology, ..SimConfig::default() };
    for (world_size, zero) in
        [(2, None), (4, None), (2, Some(false)), (4, Some(false)), (5, Some(true)), (8, Some(true))]
    {
        let links = RingLink { latency_ps, bytes_per_second }.into();
        let setting = Setting { training: Training { zero, ..training(world_size) }, links };
        let summary = LabRun::of(&six(), &setting).unwrap().summary();
        assert!(summary.exposed_ps <= summary.communication_ps, "{world_size} {zero:?}");
        let run = training_run(&six(), &Training { steps: 5, ..setting.training }).unwrap();
        let (steps, _) = simulate_training(&run, &config).unwrap();
        let takes: Vec<u64> = steps.iter().map(|step| step.end_ps - step.start_ps).collect();
        // The ranks' rings begin as staggered as the broadcasts have left them.
        let least = takes[2].min(takes[4]);
        assert!(takes[3].abs_diff(summary.step_ps) * 100 <= takes[3], "{takes:?} {summary:?}");
        assert!(takes[4].abs_diff(takes[3]) * 100 <= least, "{world_size} {zero:?} {takes:?}");
    }
}

/// A rank whose last step raises in its forward pass posts that step's calls ahead of its device: its
/// steps begin and end one after another all the same, and no sooner than what they compute.
#[test]
fn steps_up_to_an_exception_of_join_follow_each_other() {
    use lockstep_sim::training::simulate_rank;
    use lockstep_torch::ddp::join::JoinOptions;
    use lockstep_torch::ddp::plan::{Uneven, training_run_as_far};
    for backend in [BackendName::Nccl, BackendName::Gloo] {
        let options = JoinOptions { throw_on_early_termination: true, ..JoinOptions::default() };
        let uneven = Some(Uneven { inputs: vec![3, 2], options });
        let run =
            training_run_as_far(&six(), &Training { uneven, backend, ..training(2) }).unwrap();
        for rank in 0..2 {
            let (steps, _) = simulate_rank(&run, rank, &SimConfig::default()).unwrap();
            assert_eq!(steps.len(), 3);
            for step in &steps[..2] {
                assert!(step.start_ps < step.backward_end_ps, "{backend:?} {rank}: {steps:?}");
                assert!(step.backward_end_ps <= step.end_ps, "{backend:?} {rank}: {steps:?}");
            }
            let follow = steps.windows(2).all(|two| two[0].end_ps == two[1].start_ps);
            assert!(follow, "{backend:?} {rank}: {steps:?}");
        }
    }
}

/// A rank that ran out of inputs is to blame for what `join()` throws on all, in whatever order they end.
#[test]
fn who_ran_out_of_inputs_is_to_blame_for_what_join_throws() {
    use lockstep_torch::ddp::join::JoinOptions;
    use lockstep_torch::ddp::plan::{Uneven, training_run_as_far};
    let cases: [(&[u32], &[u32]); 5] = [
        (&[2, 1], &[1]),
        (&[2, 2, 1], &[2]),
        (&[3, 2, 4, 1], &[3]),
        (&[2, 1, 2, 1], &[1, 3]),
        (&[1, 2], &[0]),
    ];
    for (inputs, culprits) in cases {
        let options = JoinOptions { throw_on_early_termination: true, ..JoinOptions::default() };
        let uneven = Some(Uneven { inputs: inputs.to_vec(), options });
        let world = inputs.len() as u32;
        let backend = BackendName::Gloo;
        let training = Training { uneven, backend, ..training(world) };
        let plan = training_run_as_far(&six(), &training).unwrap().plan_with_end();
        let report = diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap());
        let ranks: Vec<u32> = report.culprits().iter().map(|rank| rank.0).collect();
        assert_eq!(ranks, culprits, "{inputs:?}: {}", report.to_text());
        let finding = &report.findings[0];
        for rank in culprits {
            let said = format!("RuntimeError: Rank {rank} exhausted all inputs.");
            assert!(finding.message.contains(&said), "{}", report.to_text());
        }
        assert!(!finding.fix.contains("with model.join()"), "{}", finding.fix);
    }
}
