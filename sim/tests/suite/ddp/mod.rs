//! DDP's training plans in the simulator: what overlaps, in which order, and the sums.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

mod closed;
mod lab;

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Action, Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{ReduceOp, combine};
use lockstep_core::trace::{CallLog, Outcome, TensorValue, Trace, What};
use lockstep_diagnosis::diagnose_trace;
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use lockstep_torch::ddp::model::{Device, Model, mlp, named};
use lockstep_torch::ddp::plan::{Training, training_plan};
use lockstep_torch::ddp::{
    BucketCap, CommHook, DdpOptions, HookAlgorithm, ModelAverager, PostLocalSgd,
};

fn device() -> Device {
    Device {
        name: "test".into(),
        float32_flops: 1_000_000_000_000,
        half_flops: 1_000_000_000_000,
        bytes_per_second: 1_000_000_000_000,
        efficiency_percent: 100,
    }
}

fn run(plan: &Plan, bytes_per_second: u64) -> Trace {
    let link = Link { latency_ps: 1_000_000, bytes_per_second };
    let config = SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() };
    let trace = simulate(plan, &config).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Completed);
    trace
}

fn six() -> Model {
    mlp("six", &[512; 7], Dtype::Float32)
}

fn training(world_size: u32) -> Training {
    let bucket_cap = BucketCap::from_mb(1.0).unwrap();
    let options = DdpOptions { bucket_cap, ..DdpOptions::default() };
    Training { options, ..Training::new(world_size, device()) }
}

/// Per step, rank 0's backward computations and its buckets, each as (start, end) in picoseconds.
struct Step {
    backward: Vec<(u64, u64)>,
    buckets: Vec<(u64, u64)>,
    optimizer: u64,
}

fn steps(plan: &Plan, trace: &Trace) -> Vec<Step> {
    let events = || trace.events.iter().filter(|event| event.rank == GlobalRank(0));
    let find = |wanted: What| events().find(|e| e.what == wanted).map(|event| event.time_ps);
    let program = plan.program(GlobalRank(0)).unwrap();
    let mut work = 0;
    let mut steps = vec![Step { backward: Vec::new(), buckets: Vec::new(), optimizer: 0 }];
    for (op, operation) in (0u32..).zip(&program.ops) {
        let span = || {
            let began = find(What::StreamBegan { op }).or(find(What::OpBegan { op })).unwrap();
            let ended = find(What::StreamEnded { op }).or(find(What::OpEnded { op })).unwrap();
            (began, ended)
        };
        match &operation.action {
            Action::Compute { name, .. } if name.starts_with("backward") => {
                steps.last_mut().unwrap().backward.push(span());
            }
            Action::Compute { name, .. } if &**name == "optimizer.step" => {
                steps.last_mut().unwrap().optimizer = span().0;
                steps.push(Step { backward: Vec::new(), buckets: Vec::new(), optimizer: 0 });
            }
            Action::Call { async_op, .. } => {
                if *async_op {
                    let span = (
                        find(What::Started { work }).unwrap(),
                        find(What::Completed { work }).unwrap(),
                    );
                    steps.last_mut().unwrap().buckets.push(span);
                }
                work += 1;
            }
            _ => {}
        }
    }
    steps.pop();
    steps
}

/// Time of an `all_reduce` of `count` floats by itself on 4 ranks.
fn alone(count: u64, bytes_per_second: u64) -> u64 {
    let mut plan = PlanBuilder::new("alone", 4, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("x", Dtype::Float32, count, Fill::Zeros);
    let all_reduce = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, all_reduce, count, None, Some(tensor));
    });
    let trace = run(&plan.unwrap(), bytes_per_second);
    let completed = trace
        .events
        .iter()
        .find(|event| event.rank == GlobalRank(0) && event.what == What::Completed { work: 0 });
    completed.unwrap().time_ps
}

#[test]
fn only_rebuilt_buckets_overlap_with_the_backward_pass() {
    let plan = training_plan(&six(), &training(4)).unwrap();
    let trace = run(&plan, 10_000_000_000);
    let steps = steps(&plan, &trace);
    assert_eq!(steps.len(), 3);
    for (number, step) in steps.iter().enumerate() {
        let end = step.backward.last().unwrap().1;
        assert_eq!(step.backward.len(), 6);
        // Buckets run one after the other, in order, and the optimizer waits for the last.
        assert!(step.buckets.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(step.optimizer, step.buckets.last().unwrap().1.max(end));
        if number == 0 {
            assert_eq!(step.buckets.len(), 1);
            assert_eq!(step.buckets[0].0, end, "one bucket, after everything");
            continue;
        }
        assert_eq!(step.buckets.len(), 6);
        // A bucket a layer: the first starts as soon as the last layer's gradients are there.
        assert_eq!(step.buckets[0].0, step.backward[0].1);
        assert!(step.buckets[0].0 < end);
        // A bucket takes as long as the same call on its own, and the wait for the others: rank 0,
        // the root of the broadcasts, is up to two messages ahead of them.
        let (start, done) = step.buckets[0];
        let alone = alone(262_656, 10_000_000_000);
        assert!((alone..=alone + 2_000_000).contains(&(done - start)), "{}", done - start);
    }
}

/// With a network that is fast enough everything but the last bucket is hidden; with a slow one
/// what is exposed is all of it but the backward pass that it hides behind.
#[test]
fn what_is_exposed_is_what_the_backward_pass_does_not_hide() {
    let exposed = |bytes_per_second| {
        let training = Training { batch: 4096, ..training(2) };
        let plan = training_plan(&six(), &training).unwrap();
        let trace = run(&plan, bytes_per_second);
        let step = steps(&plan, &trace).pop().unwrap();
        let end = step.backward.last().unwrap().1;
        let total: u64 = step.buckets.iter().map(|(start, end)| end - start).sum();
        let hidden = end - step.buckets[0].0;
        (step.optimizer - end, total, hidden, step.buckets.last().unwrap().1 - step.buckets[5].0)
    };
    let (fast, _, _, last) = exposed(1_000_000_000_000);
    assert_eq!(fast, last);
    let (slow, total, hidden, _) = exposed(100_000_000);
    assert_eq!(slow, total - hidden);
}

#[test]
fn two_ranks_end_with_the_sum_of_their_gradients() {
    for backend in [BackendName::Nccl, BackendName::Gloo] {
        let model = mlp("small", &[8, 16, 4], Dtype::Float32);
        let training = Training { steps: 1, backend, ..training(2) };
        let plan = training_plan(&model, &training).unwrap();
        let trace = run(&plan, 1_000_000_000);
        let mut compared = 0;
        for (index, tensor) in plan.tensors.iter().enumerate() {
            let root = tensor.name.starts_with("module states");
            if !root && !tensor.name.contains("bucket 0") {
                continue;
            }
            let mut truth = initial_bytes(tensor, GlobalRank(0));
            if !root {
                let other = initial_bytes(tensor, GlobalRank(1));
                combine(tensor.dtype, ReduceOp::Sum, &mut truth, &other);
            }
            for rank in 0..2 {
                let result = trace.events.iter().find_map(|event| match &event.what {
                    What::Result { tensor, value }
                        if tensor.index() == index && event.rank == GlobalRank(rank) =>
                    {
                        Some(value.clone())
                    }
                    _ => None,
                });
                assert_eq!(result, Some(TensorValue::of(&truth)), "{}", tensor.name);
                compared += 1;
            }
        }
        assert_eq!(compared, 4);
    }
}

/// The calls that every rank makes are the reducer's, in its order.
#[test]
fn resnet18_reduces_its_known_buckets_step_by_step() {
    let device = Device::named("A100").unwrap();
    let plan = training_plan(&named("resnet18").unwrap(), &Training::new(2, device)).unwrap();
    let trace = run(&plan, 100_000_000_000);
    let log = CallLog::of(&trace);
    for rank in log.ranks.iter().flatten() {
        let reduced = rank.calls.iter().filter(|call| call.call.op == "all_reduce");
        let bytes: Vec<u64> = reduced
            .map(|call| {
                let shape = call.call.inputs.first().or(call.call.outputs.first()).unwrap();
                4 * shape.numel()
            })
            .collect();
        let rebuilt = [2_052_000, 28_852_224, 15_853_824];
        assert_eq!(bytes, [&[46_758_048], &rebuilt[..], &rebuilt[..]].concat());
    }
}

#[test]
fn local_sgd_reduces_inside_nodes_and_averages_now_and_then() {
    let hook = HookAlgorithm::PostLocalSgd(PostLocalSgd {
        start_iter: 1,
        subgroup: 2,
        post_local_gradient_allreduce: true,
    });
    let options = DdpOptions { comm_hook: Some(CommHook::new(hook)), ..DdpOptions::default() };
    let averager = Some(ModelAverager::Periodic { period: 2, warmup_steps: 1 });
    let training = Training { options, averager, steps: 4, ..training(4) };
    let plan = training_plan(&six(), &training).unwrap();
    assert_eq!((plan.groups.len(), plan.programs.len()), (3, 2));
    run(&plan, 1_000_000_000);
    let reductions = |rank| {
        let ops = plan.program(GlobalRank(rank)).unwrap().ops.iter();
        let calls = ops
            .flat_map(|op| op.action.calls())
            .filter(|call| matches!(call.collective(), Some(Collective::AllReduce { .. })));
        calls.map(|call| call.group().0).collect::<Vec<_>>()
    };
    // Step 1 in the world; steps 2 to 4 in the node, with the models averaged in 2 and 4.
    let averaged = |rank| reductions(rank).iter().filter(|group| **group == 0).count();
    assert_eq!(averaged(0), 1 + 2);
    assert!(reductions(3).contains(&2) && !reductions(3).contains(&1));
}

#[test]
fn accumulation_reduces_in_the_last_pass_alone() {
    let training = Training { accumulate: 3, steps: 6, ..training(2) };
    let plan = training_plan(&six(), &training).unwrap();
    let ops = &plan.program(GlobalRank(1)).unwrap().ops;
    let count = |is: &dyn Fn(&Action) -> bool| ops.iter().filter(|op| is(&op.action)).count();
    assert_eq!(count(&|a| matches!(a, Action::Wait { .. })), 1 + 6);
    let optimizer =
        |a: &Action| matches!(a, Action::Compute { name, .. } if &**name == "optimizer.step");
    assert_eq!(count(&optimizer), 2);
    run(&plan, 1_000_000_000);
}

#[test]
fn sync_batch_norm_and_zero_are_in_the_plan() {
    let device = Device::named("A100").unwrap();
    let training =
        Training { sync_batch_norm: true, zero: Some(false), steps: 1, ..Training::new(2, device) };
    let plan = training_plan(&named("resnet18").unwrap(), &training).unwrap();
    run(&plan, 100_000_000_000);
    let ops = plan.program(GlobalRank(0)).unwrap().ops.iter();
    let calls: Vec<_> = ops.flat_map(|op| op.action.calls()).collect();
    let count = |is: &dyn Fn(Collective) -> bool| {
        calls.iter().filter(|call| call.collective().is_some_and(is)).count()
    };
    // 20 BatchNorms, each way; one bucket; the constructor's count and shapes, states of two types,
    // buffers of two types; 62 parameters.
    assert_eq!(count(&|call| call == Collective::AllGather), 20 + 1);
    assert_eq!(count(&|call| matches!(call, Collective::AllReduce { .. })), 20 + 1);
    assert_eq!(count(&|call| matches!(call, Collective::Broadcast { .. })), 1 + 2 + 2 + 62);
}
