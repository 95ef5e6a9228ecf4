//! Every case of `ddp_cases.json`, event by event.
//!
//! Not replayed, because the room does not express it: sums of gradients (they depend on PyTorch's
//! random numbers), `detach_error` (a refusal of autograd), and hooks that are no functions
//! (`hook_second_argument_not_named_bucket`, `hook_not_callable`: Python's own errors).

use super::models::{batch_norm, branches, mlp_small, scalar, six_layers, two_layers};
use super::{list, numbers, recorded};
use crate::ddp::join::{JoinOptions, Joinable, run_join_of};
use crate::ddp::model::{Model, named};
use crate::ddp::*;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde_json::Value;

/// An event as the recording has it: a gradient, or a call with its dtype, elements and root.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Grad(u32),
    Call(String, Dtype, u64, Option<u64>),
}

fn recorded_event(event: &Value) -> Event {
    let name = event[0].as_str().unwrap();
    if name == "grad" {
        return Event::Grad(event[1].as_u64().unwrap() as u32);
    }
    let tensor = if name == "allgather_" { &event[1][1][0] } else { &event[1] };
    let dtype = Dtype::from_torch_name(tensor[0].as_str().unwrap());
    let numel = numbers(&tensor[1]).iter().product();
    Event::Call(name.into(), dtype, numel, event[2]["root"].as_u64())
}

fn recorded_events(value: &Value) -> Vec<Event> {
    list(value).iter().map(recorded_event).collect()
}

fn event(call: &DdpCall) -> Event {
    let (name, root) = match call.op {
        DdpOp::AllReduce { .. } => ("allreduce_", None),
        DdpOp::Broadcast { root } => ("broadcast_", Some(u64::from(root))),
        DdpOp::AllGather => ("allgather_", None),
    };
    Event::Call(name.into(), call.dtype, call.numel, root)
}

fn events(calls: &[DdpCall]) -> Vec<Event> {
    calls.iter().map(event).collect()
}

fn case(name: &str) -> Value {
    recorded("ddp_cases.json")["cases"][name]["result"].clone()
}

fn cap(mb: f64) -> DdpOptions {
    DdpOptions { bucket_cap: BucketCap::from_mb(mb).unwrap(), ..DdpOptions::default() }
}

/// The gradients of a recorded backward pass.
fn gradients(backward: &[Event]) -> Vec<u32> {
    let grads = backward.iter().filter_map(|event| match event {
        Event::Grad(index) => Some(*index),
        Event::Call(..) => None,
    });
    grads.collect()
}

/// A backward pass with those gradients, as events.
fn backward(ddp: &mut Ddp, order: &[u32]) -> Vec<Event> {
    let mut done = Vec::new();
    for &index in order {
        done.push(Event::Grad(index));
        let mut calls = Vec::new();
        ddp.gradient(index, &mut calls).unwrap();
        done.extend(events(&calls));
    }
    let mut calls = Vec::new();
    ddp.end_backward(&mut calls).unwrap();
    done.extend(events(&calls));
    done
}

fn forward(ddp: &mut Ddp, forward: &Forward<'_>) -> Vec<Event> {
    let mut calls = Vec::new();
    ddp.forward(forward, &mut calls).unwrap();
    events(&calls)
}

/// Replays a case's construction and iterations; `unused` are the parameters without gradient.
fn replay(result: &Value, model: &Model, options: &DdpOptions) -> Ddp {
    let (mut ddp, calls) = Ddp::new(0, model, options).unwrap();
    if result["construction"].is_array() {
        assert_eq!(events(&calls), recorded_events(&result["construction"]));
    }
    for (number, iteration) in (1..).zip(list(&result["iterations"])) {
        let truth = recorded_events(&iteration["backward"]);
        let order = gradients(&truth);
        let trained = model.trained().count() as u32;
        let unused: Vec<u32> = (0..trained).filter(|index| !order.contains(index)).collect();
        let forward = forward(&mut ddp, &Forward { unused: &unused, ..Forward::default() });
        assert_eq!(forward, recorded_events(&iteration["forward"]), "forward {number}");
        assert_eq!(backward(&mut ddp, &order), truth, "backward {number}");
    }
    let reducer = ddp.reducer().unwrap();
    let log = &result["log"];
    if let Some(text) = log["rebuilt_per_bucket_param_indices"].as_str() {
        let of = |bucket: &Bucket| {
            bucket.indices.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        };
        let buckets: Vec<_> = reducer.buckets().iter().map(of).collect();
        assert_eq!(buckets.join(", "), text);
    }
    if let Some(text) = log["prev_iteration_grad_ready_order_indices"].as_str() {
        let order: Vec<_> = reducer.ready_order().iter().map(u32::to_string).collect();
        assert_eq!(order.join(", "), text);
    }
    if let Some(rebuilt) = log["has_rebuilt_buckets"].as_u64() {
        assert_eq!(u64::from(reducer.has_rebuilt()), rebuilt);
    }
    // The log is read when the last pass is over.
    if log.is_object() {
        let unused = log["unused_parameter_size"].as_u64();
        assert_eq!(reducer.unused_parameter_size(), unused, "unused_parameter_size");
    }
    ddp
}

#[test]
fn plain_and_shuffled() {
    replay(&case("baseline_mlp"), &mlp_small(), &cap(0.02));
    replay(&case("rebuild_shuffled"), &six_layers(), &cap(1.0));
}

#[test]
fn buffers_follow_the_forward_pass_before() {
    let result = case("batchnorm_buffers");
    for broadcast_buffers in [true, false] {
        let name = if broadcast_buffers { "True" } else { "False" };
        let result = &result[format!("broadcast_buffers={name}")];
        let options = DdpOptions { broadcast_buffers, ..DdpOptions::default() };
        let mut ddp = replay(result, &batch_norm(), &options);
        // Evaluation mode changes nothing; without grad the next forward pass broadcasts none.
        let eval = forward(&mut ddp, &Forward::default());
        assert_eq!(eval, recorded_events(&result["forward_in_eval_mode"]));
        let no_grad = Forward { grad_enabled: false, ..Forward::default() };
        assert_eq!(forward(&mut ddp, &no_grad), recorded_events(&result["forward_no_grad"]));
        assert_eq!(forward(&mut ddp, &Forward::default()), []);
    }
}

#[test]
fn a_static_graph() {
    let options = |mb| DdpOptions { static_graph: true, ..cap(mb) };
    replay(&case("static_graph"), &branches(), &options(0.001));
    replay(&case("static_graph_all_used"), &mlp_small(), &options(0.02));
}

#[test]
fn unused_parameters_are_found() {
    let options = |mb| DdpOptions { find_unused_parameters: true, ..cap(mb) };
    for name in ["find_unused_same_branch", "find_unused_all_used"] {
        let ddp = replay(&case(name), &branches(), &options(0.001));
        assert_eq!(ddp.reducer().unwrap().unused().len(), if name.contains("all") { 0 } else { 2 });
    }
    replay(&case("find_unused_out_of_order"), &six_layers(), &options(1.0));
}

#[test]
fn unused_parameters_without_the_flag_raise_in_the_second_forward() {
    let result = case("unused_without_flag");
    for rank in 0..2u32 {
        let iterations = &result[format!("rank{rank}")]["iterations"];
        let (mut ddp, _) = Ddp::new(rank, &branches(), &cap(0.001)).unwrap();
        let truth = recorded_events(&iterations[0]["backward"]);
        assert_eq!(forward(&mut ddp, &Forward::default()), []);
        assert_eq!(backward(&mut ddp, &gradients(&truth)), truth);
        let mut calls = Vec::new();
        let error = ddp.forward(&Forward::default(), &mut calls).unwrap_err();
        let text = format!("{}: {error}", error.class());
        assert_eq!(text, iterations[1]["error"].as_str().unwrap());
        assert_eq!(events(&calls), recorded_events(&iterations[1]["events"]));
    }
}

#[test]
fn gradients_lie_in_the_bucket_as_recorded() {
    let result = &case("gradient_as_bucket_view")["gradient_as_bucket_view=True"];
    let model = mlp_small();
    let options = DdpOptions { gradient_as_bucket_view: true, ..cap(0.02) };
    let (mut ddp, mut all) = Ddp::new(0, &model, &options).unwrap();
    let params: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
    for truth in list(&result["grad_storage_groups_param_offset"]) {
        ddp.forward(&Forward::default(), &mut all).unwrap();
        ddp.backward(&model.grad_ready_order(), &mut all).unwrap();
        let layout = ddp.reducer().unwrap().buckets().iter().map(|bucket| {
            let mut offset = 0;
            let places = bucket.indices.iter().map(|&index| {
                offset += params[index as usize];
                vec![u64::from(index), offset - params[index as usize]]
            });
            places.collect::<Vec<_>>()
        });
        let mut layout: Vec<_> = layout.collect();
        let groups = list(truth).iter().map(|g| list(g).iter().map(numbers).collect::<Vec<_>>());
        let mut groups: Vec<_> = groups.collect();
        layout.sort();
        groups.sort();
        assert_eq!(layout, groups);
    }
    let names: Vec<Value> = events(&all)
        .into_iter()
        .map(|event| match event {
            Event::Call(name, ..) => Value::from(name),
            Event::Grad(_) => Value::Null,
        })
        .collect();
    // The recording went on for the rest of the third iteration.
    assert_eq!(names, list(&result["collectives"])[..names.len()]);
    assert_eq!(names.len(), list(&result["collectives"]).len());
}

#[test]
fn no_sync_is_decided_by_the_forward_pass() {
    let result = &case("no_sync")["rank0"];
    for (name, steps) in result.as_object().unwrap() {
        let (model, options) = match name.as_str() {
            "batchnorm_model" => (batch_norm(), DdpOptions::default()),
            _ => (mlp_small(), cap(0.02)),
        };
        let find_unused_parameters = name.ends_with("find_unused=True");
        let options = DdpOptions { find_unused_parameters, ..options };
        let (mut ddp, _) = Ddp::new(0, &model, &options).unwrap();
        for (number, step) in (1..).zip(list(steps)) {
            let sync = match name.as_str() {
                "forward_inside_backward_outside" => false,
                "forward_outside_backward_inside" => true,
                _ => !step["no_sync"].as_bool().unwrap(),
            };
            let forward = forward(&mut ddp, &Forward { sync, ..Forward::default() });
            assert_eq!(forward, recorded_events(&step["forward"]), "{name} {number}");
            let mut calls = Vec::new();
            ddp.backward(&model.grad_ready_order(), &mut calls).unwrap();
            assert_eq!(events(&calls), recorded_events(&step["backward"]), "{name} {number}");
        }
    }
}

#[test]
fn join_shadows_and_ends() {
    let result = case("join_uneven");
    let mut replayed = 0;
    for (name, _) in result["rank0"].as_object().unwrap() {
        let mut join = JoinOptions::default();
        let mut options = DdpOptions::default();
        let (model, inputs) = match name.as_str() {
            "even_inputs_mlp" => (mlp_small(), [3, 3]),
            "batchnorm_uneven" => (batch_norm(), [1, 2]),
            _ => (scalar(), [2, 4]),
        };
        if name == "even_inputs_mlp" {
            options = cap(0.02);
        }
        join.divide_by_initial_world_size = !name.contains("world_size=False");
        join.throw_on_early_termination = name == "throw_on_early_termination";
        options.find_unused_parameters = name.ends_with("find_unused=True");
        let ranks =
            run_join_of(&[Joinable::Ddp], &model, &options, &inputs, join, 1, BackendName::Gloo)
                .unwrap();
        for (rank, done) in ranks.iter().enumerate() {
            let truth = &result[format!("rank{rank}")][name];
            if let Some(text) = truth.as_str() {
                let error = done.error.as_ref().unwrap();
                assert_eq!(format!("{}: {error}", error.class()), text, "{name} rank {rank}");
                replayed += 1;
                continue;
            }
            let about = format!("{name} rank {rank}");
            assert_eq!(done.error, None, "{about}");
            assert_eq!(done.iterations.len(), list(&truth["iterations"]).len(), "{about}");
            for (step, truth) in done.iterations.iter().zip(list(&truth["iterations"])) {
                assert_eq!(events(&step.forward), recorded_events(&truth["forward"]), "{about}");
                assert_eq!(events(&step.backward), recorded_events(&truth["backward"]), "{about}");
            }
            let after = truth.get("after_own_inputs_exhausted").or(truth.get("exit")).unwrap();
            assert_eq!(events(&done.after), recorded_events(after), "{about}");
            // Rank r's gradient is r + 1, or 0 when it has joined.
            for (number, truth) in list(&truth["iterations"]).iter().enumerate() {
                if let Some(grad) = truth["grad"].as_f64() {
                    let having = inputs.iter().zip(1..).filter(|(n, _)| **n as usize > number);
                    let sum: u32 = having.map(|(_, gradient)| gradient).sum();
                    let divisor = done.iterations[number].divisor.unwrap();
                    assert_eq!(f64::from(sum) / f64::from(divisor), grad, "{about} {number}");
                }
            }
            replayed += 1;
        }
    }
    assert_eq!(replayed, 14);
}

#[test]
fn delayed_reductions() {
    let result = &case("delay_all_reduce")["rank0"];
    let delay = |names: &[&str]| DdpOptions {
        delay_all_reduce_named_params: Some(names.iter().map(|n| (*n).to_owned()).collect()),
        param_to_hook_all_reduce: Some("t1.weight".into()),
        ..DdpOptions::default()
    };
    let model = two_layers();
    for (name, delayed) in
        [("t1_only", ["t1.weight", "t1.bias"]), ("t2_only", ["t2.weight", "t2.bias"])]
    {
        let truth = &result[name];
        let (mut ddp, calls) = Ddp::new(0, &model, &delay(&delayed)).unwrap();
        assert_eq!(events(&calls), recorded_events(&truth["construction"]), "{name}");
        for step in list(&truth["iterations"]) {
            let forward = forward(&mut ddp, &Forward::default());
            assert_eq!(forward, recorded_events(&step["forward"]), "{name}");
            let mut calls = Vec::new();
            for param in [3, 2, 1, 0] {
                ddp.gradient_of(param, &mut calls).unwrap();
            }
            ddp.end_backward(&mut calls).unwrap();
            assert_eq!(events(&calls), recorded_events(&step["backward"]), "{name}");
        }
    }
    let all = ["t1.weight", "t1.bias", "t2.weight", "t2.bias"];
    let text = |error: DdpError| format!("{}: {error}", error.class());
    let error = Ddp::new(0, &model, &delay(&all)).unwrap_err();
    assert_eq!(text(error), result["all"]["error"].as_str().unwrap());

    let mut frozen = two_layers();
    frozen.params.push(crate::ddp::model::Parameter {
        name: "frozen".into(),
        shape: vec![3],
        dtype: Dtype::Float32,
        requires_grad: false,
        sparse: false,
        unexpected: false,
        uninitialized: false,
    });
    let truth = &result["all_plus_frozen"];
    let (mut ddp, calls) = Ddp::new(0, &frozen, &delay(&all)).unwrap();
    assert_eq!(events(&calls), recorded_events(&truth["construction"]));
    assert_eq!(truth["delay_all"].as_bool(), Some(ddp.reducer().is_none()));
    let error = ddp.forward(&Forward::default(), &mut Vec::new()).unwrap_err();
    assert_eq!(text(error), truth["iterations"][0]["error"].as_str().unwrap());

    let half = DdpOptions { param_to_hook_all_reduce: None, ..delay(&all) };
    let error = Ddp::new(0, &model, &half).unwrap_err();
    assert_eq!(text(error), result["err_delay_all_reduce_named_params"].as_str().unwrap());
    let half = DdpOptions { delay_all_reduce_named_params: None, ..delay(&all) };
    let error = Ddp::new(0, &model, &half).unwrap_err();
    assert_eq!(text(error), result["err_param_to_hook_all_reduce"].as_str().unwrap());
}

#[test]
fn hooks_are_called_in_order() {
    let result = case("comm_hook_order");
    let model = mlp_small();
    let options =
        DdpOptions { comm_hook: Some(CommHook::new(HookAlgorithm::AllReduce)), ..cap(0.02) };
    // Mixed precision registers a hook of its own.
    let mixed_precision =
        Some(MixedPrecision { param_dtype: Some(Dtype::Float16), ..MixedPrecision::default() });
    let twice = DdpOptions { mixed_precision, ..options.clone() };
    let error = Ddp::new(0, &model, &twice).unwrap_err();
    let text = format!("{}: {error}", error.class());
    assert_eq!(text, result["register_twice"].as_str().unwrap());
    let (mut ddp, _) = Ddp::new(0, &model, &options).unwrap();
    for truth in list(&result["calls"]) {
        let mut calls = Vec::new();
        ddp.forward(&Forward::default(), &mut Vec::new()).unwrap();
        ddp.backward(&model.grad_ready_order(), &mut calls).unwrap();
        let buckets = ddp.reducer().unwrap().buckets();
        let seen: Vec<Value> = calls
            .iter()
            .map(|call| {
                let Purpose::Bucket { bucket } = call.purpose else { panic!("{call:?}") };
                let last = bucket as usize + 1 == buckets.len();
                let params = buckets[bucket as usize].indices.len();
                serde_json::json!([bucket, last, call.numel, params])
            })
            .collect();
        assert_eq!(Value::from(seen), *truth);
    }
}

#[test]
fn constructors_broadcast_what_was_recorded() {
    let result = case("init_broadcast");
    let models = recorded("models.json");
    let from_file = |name: &str| Model::read(name, &models["models"][name].to_string()).unwrap();
    let mut frozen = named("resnet18").unwrap();
    // The recording does not say which; these have the recorded number of dimensions.
    for param in frozen.params.iter_mut().take(16) {
        param.requires_grad = false;
    }
    for (name, model) in [
        ("resnet50", named("resnet50").unwrap()),
        ("vgg16", named("vgg16").unwrap()),
        ("gpt2-small", named("gpt2").unwrap()),
        ("bert-large", named("bert-large").unwrap()),
        ("frozen-resnet18", frozen),
        ("mixed-dtype", from_file("mixed-dtype")),
        ("sparse-embedding", from_file("sparse-embedding")),
    ] {
        let (_, calls) = Ddp::new(1, &model, &DdpOptions::default()).unwrap();
        assert_eq!(events(&calls), recorded_events(&result[name]), "{name}");
    }
    let options = DdpOptions { init_sync: false, ..DdpOptions::default() };
    let (_, calls) = Ddp::new(0, &mlp_small(), &options).unwrap();
    assert_eq!(events(&calls), recorded_events(&result["init_sync=False"]));

    let float = |numels: &[u64]| numels.iter().map(|n| (Dtype::Float32, *n)).collect::<Vec<_>>();
    for (name, tensors, limit, root) in [
        (
            "_broadcast_coalesced numels=[10, 20, 30, 40] float32 buffer_size=100",
            float(&[10, 20, 30, 40]),
            100,
            0,
        ),
        (
            "_broadcast_coalesced numels=[10, 20, 30, 40] float32 buffer_size=1",
            float(&[10, 20, 30, 40]),
            1,
            0,
        ),
        (
            "_broadcast_coalesced numels=[1000, 5, 5, 1000] float32 buffer_size=4000",
            float(&[1000, 5, 5, 1000]),
            4000,
            0,
        ),
        (
            "_broadcast_coalesced f32[4],i64[2],f32[3],i64[5] buffer_size=1MiB src=1",
            vec![(Dtype::Float32, 4), (Dtype::Int64, 2), (Dtype::Float32, 3), (Dtype::Int64, 5)],
            1 << 20,
            1,
        ),
    ] {
        let tensors: Vec<_> = (0..)
            .zip(tensors)
            .map(|(index, (dtype, numel))| {
                let bytes = numel * dtype.size_bytes();
                SizedTensor { index, dtype, bytes, sparse: false }
            })
            .collect();
        let mut calls = Vec::new();
        broadcast_coalesced(&tensors, limit, root, Purpose::ModuleStates, &mut calls);
        assert_eq!(events(&calls), recorded_events(&result[name]), "{name}");
    }
}

/// A list of this file's cases, so that a new one in the recording is not passed over.
#[test]
fn no_case_is_left_out() {
    let file = recorded("ddp_cases.json");
    let names: Vec<_> = file["cases"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "baseline_mlp",
            "batchnorm_buffers",
            "comm_hook_order",
            "delay_all_reduce",
            "find_unused_all_used",
            "find_unused_out_of_order",
            "find_unused_same_branch",
            "gradient_as_bucket_view",
            "init_broadcast",
            "join_uneven",
            "no_sync",
            "rebuild_shuffled",
            "static_graph",
            "static_graph_all_used",
            "unused_without_flag",
        ]
    );
}
