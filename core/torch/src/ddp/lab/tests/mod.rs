mod agreement;
mod around;

use super::*;
use crate::ddp::hook::{CommHook, HookAlgorithm, PowerSgd};
use crate::ddp::links::RingLink;
use crate::ddp::model::{Device, mlp, named};
use crate::ddp::options::{BucketCap, DdpOptions, DdpVersion};
use crate::ddp::tests::{list, recorded};
use lockstep_core::group::BackendName;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn device() -> Device {
    Device {
        name: "test".into(),
        float32_flops: 1_000_000_000_000,
        half_flops: 1_000_000_000_000,
        bytes_per_second: 1_000_000_000_000,
        efficiency_percent: 100,
    }
}

fn link() -> Links {
    RingLink { latency_ps: 1_000_000, bytes_per_second: 10_000_000_000 }.into()
}

pub(super) fn setting(world_size: u32, options: DdpOptions) -> Setting {
    let training = Training { options, ..Training::new(world_size, device()) };
    Setting { training, links: link() }
}

pub(super) fn capped(mb: f64) -> DdpOptions {
    DdpOptions { bucket_cap: BucketCap::from_mb(mb).unwrap(), ..DdpOptions::default() }
}

/// The log of real DDP, after 0 to 13 passes, in every field that is not a time.
#[test]
fn the_log_has_the_fields_and_values_of_real_runs() {
    let file = recorded("ddp_log.json");
    let mut compared = 0;
    for (name, truth) in file["runs"].as_object().unwrap() {
        let sizes: Vec<u64> = list(&truth["sizes"]).iter().map(|s| s.as_u64().unwrap()).collect();
        let mut model = mlp("Net", &sizes, Dtype::Float32);
        if truth["norm"] == true {
            let text = r#"{"params": [["l0.weight", [32, 16], 512, "float32", true], ["l0.bias", [32], 32, "float32", true],
                ["l1.weight", [10, 32], 320, "float32", true], ["l1.bias", [10], 10, "float32", true],
                ["n.weight", [32], 32, "float32", true], ["n.bias", [32], 32, "float32", true]],
                "grad_ready_order": "3,2,4,5,1,0"}"#;
            model = Model::read("Net", text).unwrap();
        }
        let argument = |name: &str| truth["kwargs"][name].as_bool();
        let mut options = match truth["kwargs"]["bucket_cap_mb"].as_f64() {
            Some(mb) => capped(mb),
            None => DdpOptions::default(),
        };
        options.find_unused_parameters = argument("find_unused_parameters").unwrap_or(false);
        options.static_graph = argument("static_graph").unwrap_or(false);
        options.gradient_as_bucket_view = argument("gradient_as_bucket_view").unwrap_or(false);
        options.broadcast_buffers = argument("broadcast_buffers").unwrap_or(true);
        if truth["hook"] == "fp16" {
            options.comm_hook = Some(CommHook::compress(Dtype::Float16));
        }
        if truth["hook"] == "noop" {
            options.comm_hook = Some(CommHook::new(HookAlgorithm::Noop));
        } else if truth["hook"] == "fp16 wrapper of powerSGD" {
            let state = PowerSgd { start_iter: 2, ..PowerSgd::default() };
            let algorithm = HookAlgorithm::PowerSgd(state);
            options.comm_hook = Some(CommHook::wrapping(Dtype::Float16, algorithm));
        }
        let mut setting = setting(2, options);
        setting.training.backend = BackendName::Gloo;
        setting.training.accumulate = truth["accumulate"].as_u64().unwrap_or(1) as u32;
        let run = LabRun::through(&model, &setting, 14).unwrap();
        for (passes, truth) in truth["log"].as_object().unwrap() {
            let log = run.log(0, passes.parse().unwrap());
            let names: BTreeSet<&String> = log.texts.keys().chain(log.numbers.keys()).collect();
            let truth = truth.as_object().unwrap();
            assert_eq!(names, truth.keys().collect(), "{name}, {passes} passes");
            for (field, value) in truth {
                let own = log.texts.get(field).map(|text| serde_json::json!(text));
                let own = own.or(log.numbers.get(field).map(|number| serde_json::json!(number)));
                if !field.contains("_time") {
                    assert_eq!(own.as_ref(), Some(value), "{name}, {passes} passes, {field}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 700, "{compared}");
}

/// The log of real DDP by the end of runs whose last pass synchronizes, whatever accumulates.
#[test]
fn the_log_at_the_end_of_a_run_is_that_of_so_many_passes() {
    let file = recorded("ddp_log_ends.json");
    let sizes: Vec<u64> = list(&file["sizes"]).iter().map(|s| s.as_u64().unwrap()).collect();
    let model = mlp("Mlp", &sizes, Dtype::Float32);
    let power = HookAlgorithm::PowerSgd(PowerSgd { start_iter: 2, ..PowerSgd::default() });
    let half = |algorithm| CommHook::wrapping(Dtype::Float16, algorithm);
    let mut compared = 0;
    for (name, truth) in file["runs"].as_object().unwrap() {
        let comm_hook = match truth["hook"].as_str().unwrap() {
            "none" => None,
            "noop" => Some(CommHook::new(HookAlgorithm::Noop)),
            "allreduce" => Some(CommHook::new(HookAlgorithm::AllReduce)),
            "fp16" => Some(CommHook::compress(Dtype::Float16)),
            "fp16w-allreduce" | "fp16w-fp16" => Some(half(HookAlgorithm::AllReduce)),
            "bf16w-allreduce" => {
                Some(CommHook::wrapping(Dtype::Bfloat16, HookAlgorithm::AllReduce))
            }
            "fp16w-noop" => Some(half(HookAlgorithm::Noop)),
            "fp16w-powersgd" => Some(half(power)),
            "powersgd" => Some(CommHook::new(power)),
            other => panic!("{other}"),
        };
        let find_unused_parameters = truth["kwargs"]["find_unused_parameters"] == true;
        let options = DdpOptions { comm_hook, find_unused_parameters, ..DdpOptions::default() };
        let mut setting = setting(2, options);
        setting.training.backend = BackendName::Gloo;
        setting.training.accumulate = truth["accumulate"].as_u64().unwrap() as u32;
        let passes = truth["passes"].as_u64().unwrap() as u32;
        let log = LabRun::of_passes(&model, &setting, passes).unwrap().log(0, passes);
        let texts = log.texts.into_iter().map(|(field, text)| (field, serde_json::json!(text)));
        let numbers = log.numbers.into_iter().map(|(field, n)| (field, serde_json::json!(n)));
        let own = texts.chain(numbers).filter(|(field, _)| !field.contains("_time"));
        let own: serde_json::Map<_, _> = own.collect();
        assert_eq!(&own, truth["log"].as_object().unwrap(), "{name}");
        compared += own.len();
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn the_log_reads_as_python_prints_it() {
    let model = mlp("Net", &[8, 4], Dtype::Float32);
    let setting = setting(2, DdpOptions::default());
    let text = LabRun::of(&model, &setting).unwrap().log(1, 0).to_string();
    assert!(text.starts_with("{'backend_name': 'nccl',\n 'bucket_sizes': '144',\n"), "{text}");
    assert!(
        text.ends_with("'rank': 1,\n 'total_parameter_size_bytes': 144,\n 'world_size': 2}"),
        "{text}"
    );
}

/// A model averager's all_reduce is not asynchronous: nothing computes meanwhile.
#[test]
fn all_that_holds_the_compute_stream_is_waiting() {
    let model = named("mlp:64,64,10").unwrap();
    let mut of = setting(4, DdpOptions::default());
    let plain = LabRun::of(&model, &of).unwrap().summary();
    assert!(plain.waiting_ps() >= plain.exposed_ps, "{plain:?}");
    of.training.averager = Some(ModelAverager::Periodic { period: 2, warmup_steps: 0 });
    let averaged = LabRun::of(&model, &of).unwrap().summary();
    assert!(averaged.waiting_ps() > averaged.exposed_ps, "{averaged:?}");
    assert_eq!(averaged.waiting_ps() + averaged.compute_ps, averaged.step_ps);
}

/// A world of one rank: nothing is hidden, and nothing waits for others.
#[test]
fn one_rank_is_told_that_it_has_nobody_to_talk_to() {
    let model = named("mlp:64,64,10").unwrap();
    let mut of = setting(1, DdpOptions::default());
    of.training.zero = Some(false);
    let run = LabRun::of(&model, &of).unwrap();
    let (shown, pass) = (LabModel::of(&model), run.pass(2).unwrap());
    let sentences = (0..pass.moments.len()).map(|moment| pass.sentence(&shown, &of, moment));
    let told = sentences.collect::<Vec<_>>().join("\n");
    assert!(told.contains("one rank has nobody to reduce with"), "{told}");
    assert!(told.contains("one rank has nobody to talk to"), "{told}");
    for wrong in ["all 1 ranks", "took 0", "was hidden", "hid all of it", "nothing left to hide"] {
        assert!(!told.contains(wrong), "{wrong}: {told}");
    }
}

/// PyTorch's ImageNet example: the buckets, who is in them, and whom the last one waits for.
#[test]
fn resnet18s_third_pass_is_told_gradient_by_gradient() {
    let model = named("resnet18").unwrap();
    let setting = setting(8, DdpOptions::default());
    let run = LabRun::of(&model, &setting).unwrap();
    let bytes = |buckets: &[Bucket]| buckets.iter().map(|b| b.bytes).collect::<Vec<_>>();
    assert_eq!(bytes(run.initial()), [46_758_048]);
    assert_eq!(bytes(run.rebuilt().unwrap()), [2_052_000, 28_852_224, 15_853_824]);
    let shown = LabModel::of(&model);
    let pass = run.pass(2).unwrap();
    // fc.bias comes first and waits for fc.weight; then bucket 0 goes.
    let (bias, weight) = (61, 60);
    let why = pass.why(&shown, &setting, bias);
    assert!(why[0].contains("bucket 0, gradient 1 of 2"), "{why:?}");
    assert!(why[1].contains("fc.weight"), "{why:?}");
    let gradients =
        || pass.moments.iter().enumerate().filter(|(_, m)| matches!(m.event, Event::Gradient(_)));
    let order: Vec<u32> = gradients()
        .map(|(_, moment)| match moment.event {
            Event::Gradient(param) => param,
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(order, model.grad_ready_order());
    let sentence = |param: u32| {
        pass.sentence(&shown, &setting, pass.params[param as usize].ready_moment as usize)
    };
    assert!(sentence(bias).contains("bucket 0 has 1 of its 2"), "{}", sentence(bias));
    assert!(
        sentence(weight)
            .contains("completes bucket 0 (1.96 MiB, closed at 1 MiB): its reduction is launched"),
        "{}",
        sentence(weight)
    );
    assert!(sentence(weight).contains("starts at once, while the backward pass goes on"));
    // conv1.weight is the last of all.
    assert!(sentence(0).contains("completes bucket 2"), "{}", sentence(0));
    assert!(
        sentence(0).contains("nothing left to hide behind") || sentence(0).contains("queues"),
        "{}",
        sentence(0)
    );
    // In the first pass one bucket waits for everything.
    let first = run.pass(0).unwrap();
    assert!(
        first.why(&shown, &setting, bias)[1].contains("conv1.weight"),
        "{:?}",
        first.why(&shown, &setting, bias)
    );
    assert_eq!(first.buckets[0].launch_ps, Some(first.backward_end_ps));
    // The rebuild's two broadcasts come before the second forward pass.
    let second = run.pass(1).unwrap();
    assert!(second.rebuilds && !first.rebuilds && !pass.rebuilds);
    assert!(second.sentence(&shown, &setting, 0).contains("broadcasts 3 buckets"));
}

/// A bucket that is full before the one with a smaller index is held back by it.
#[test]
fn a_bucket_never_overtakes_the_one_before() {
    // Registered in the order of use, but the gradients come as recorded: 5 before 4.
    let params: Vec<String> = (0..6)
        .map(|i| format!(r#"["p{i}.weight", [512, 512], 262144, "float32", true]"#))
        .collect();
    let text =
        format!(r#"{{"params": [{}], "grad_ready_order": [4, 5, 3, 2, 1, 0]}}"#, params.join(","));
    let model = Model::read("swapped", &text).unwrap();
    let shown = LabModel::of(&model);
    // Buckets in reverse registration order: 5 is bucket 0, 4 is bucket 1, and 4 is ready first.
    let setting = setting(4, DdpOptions { find_unused_parameters: true, ..capped(1.0) });
    let run = LabRun::of(&model, &setting).unwrap();
    let pass = run.pass(2).unwrap();
    assert_eq!(pass.buckets[0].params, [5]);
    assert_eq!((pass.buckets[1].held_by, pass.buckets[1].launched_by), (Some(0), Some(5)));
    assert_eq!(pass.buckets[1].launch_ps, pass.buckets[0].full_ps);
    let why = pass.why(&shown, &setting, 4);
    assert!(why.iter().any(|line| line.contains("bucket 0 is not full before")), "{why:?}");
    let at = pass.params[4].ready_moment as usize;
    let told = pass.sentence(&shown, &setting, at);
    assert!(told.contains("yet bucket 0 is not complete"), "{told}");
    let at = pass.params[5].ready_moment as usize;
    let told = pass.sentence(&shown, &setting, at);
    assert!(told.contains("1 later bucket that had to wait"), "{told}");
}

#[test]
fn a_static_graph_reduces_its_first_pass_at_the_end() {
    let model = mlp("m", &[512; 7], Dtype::Float32);
    let shown = LabModel::of(&model);
    let setting =
        setting(4, DdpOptions { static_graph: true, version: DdpVersion::V1, ..capped(1.0) });
    let run = LabRun::of(&model, &setting).unwrap();
    assert_eq!(run.passes(), 4);
    let first = run.pass(0).unwrap();
    assert!(first.delayed);
    assert!(
        first
            .why(&shown, &setting, 3)
            .iter()
            .any(|line| line.contains("the first pass of a static graph"))
    );
    assert_eq!([1, 2, 3].map(|number| run.pass(number).unwrap().rebuilds), [false, true, false]);
}

#[test]
fn accumulated_passes_reduce_nothing() {
    let model = mlp("m", &[512; 7], Dtype::Float32);
    let mut setting = setting(4, capped(1.0));
    setting.training.accumulate = 4;
    let run = LabRun::of(&model, &setting).unwrap();
    assert_eq!(run.passes(), 12);
    let (inside, last) = (run.pass(9).unwrap(), run.pass(11).unwrap());
    assert!(!inside.sync && inside.calls.is_empty() && inside.optimizer.is_none());
    assert!(inside.buckets.iter().all(|bucket| bucket.launch_ps.is_none()));
    assert!(last.sync && last.optimizer.is_some());
    assert!(inside.why(&LabModel::of(&model), &setting, 0)[1].contains("no_sync"));
    // A step of four passes communicates as much as one of a single pass.
    let once = super::Setting {
        training: Training { accumulate: 1, ..setting.training.clone() },
        ..setting.clone()
    };
    let once = LabRun::of(&model, &once).unwrap().summary();
    assert_eq!((run.summary().bytes, run.summary().collectives), (once.bytes, once.collectives));
}

#[test]
fn every_option_that_differs_is_a_change_of_its_own() {
    let model = named("resnet18").unwrap();
    let a = setting(8, DdpOptions::default());
    let mut b = setting(16, DdpOptions { broadcast_buffers: false, ..capped(1.0) });
    b.training.options.comm_hook = Some(CommHook::compress(Dtype::Float16));
    b.training.zero = Some(false);
    let found = changes(&a, &b);
    let names: Vec<_> = found.iter().map(|change| change.option).collect();
    assert_eq!(
        names,
        [
            "world_size",
            "bucket_cap_mb",
            "broadcast_buffers",
            "comm_hook",
            "ZeroRedundancyOptimizer"
        ]
    );
    let before = LabRun::of(&model, &a).unwrap().summary();
    assert_eq!((before.buckets, before.collectives), (3, 3 + 2));
    let after = |option: &str| {
        let change = found.iter().find(|change| change.option == option).unwrap();
        let summary = LabRun::of(&model, &change.setting).unwrap().summary();
        (summary.clone(), change.why(&before, &summary, 46_758_048))
    };
    // Half the bytes of the gradients, the buffers as they were.
    let (fp16, why) = after("comm_hook");
    assert_eq!(before.bytes - fp16.bytes, 46_758_048 / 2);
    assert!(why.contains("faster"), "{why}");
    let (silent, why) = after("broadcast_buffers");
    assert_eq!(silent.collectives, 3);
    assert!(why.contains("3 collectives instead of 5"), "{why}");
    let (sharded, _) = after("ZeroRedundancyOptimizer");
    assert_eq!((sharded.buckets, sharded.collectives), (3, 5 + 62));
    assert!(changes(&a, &a).is_empty());
}

#[test]
fn the_best_cap_is_the_fastest_and_says_why() {
    let model = named("gpt2-small").unwrap();
    let mut base = setting(64, DdpOptions::default());
    base.training = Training { batch: 8, device: Device::named("A100").unwrap(), ..base.training };
    let mut caps = vec![BucketCap::Default];
    caps.extend([0.0, 1.0, 5.0, 25.0, 100.0, 1e6].map(|mb| BucketCap::from_mb(mb).unwrap()));
    let axis = Axis::Caps(caps);
    let points: Vec<Summary> = (0..axis.len())
        .map(|index| LabRun::of(&model, &axis.apply(&base, index)).unwrap().summary())
        .collect();
    let found = best(&axis, &points).unwrap();
    let fastest = points.iter().map(|point| point.step_ps).min().unwrap();
    assert_eq!(points[found.index].step_ps, fastest);
    assert!(found.why.starts_with(&axis.words(found.index)), "{}", found.why);
    assert!(found.why.contains("Larger ones lose overlap"), "{}", found.why);
    // One bucket for all hides nothing at all.
    assert_eq!(points[6].exposed_ps, points[6].communication_ps);
    assert!(best(&Axis::Caps(Vec::new()), &points).is_none());
    // One rank has nobody to wait for.
    let alone: Vec<Summary> = (0..axis.len())
        .map(|index| {
            LabRun::of(&model, &axis.apply(&setting(1, DdpOptions::default()), index))
                .unwrap()
                .summary()
        })
        .collect();
    assert!(alone.iter().all(|point| point.exposed_ps == 0 && point.efficiency_permille() == 1000));
    assert!(best(&axis, &alone).unwrap().why.contains("No cap is better"));
}

fn any_options() -> impl Strategy<Value = (DdpOptions, u32, bool, Option<bool>)> {
    let cap = prop_oneof![
        Just(BucketCap::Default),
        (-2i64..9).prop_map(|mb| BucketCap::Bytes(mb << 18)),
        Just(BucketCap::Bytes(i64::MAX)),
    ];
    let hook = prop_oneof![
        Just(None),
        Just(Some(CommHook::compress(Dtype::Bfloat16))),
        Just(Some(CommHook::new(HookAlgorithm::Noop))),
        Just(Some(CommHook::new(HookAlgorithm::QuantizationPerChannel))),
        Just(Some(CommHook::new(HookAlgorithm::PowerSgd(PowerSgd {
            start_iter: 2,
            ..PowerSgd::default()
        })))),
    ];
    let flags = prop::array::uniform5(any::<bool>());
    (cap, hook, flags, 1u32..4, prop::option::of(any::<bool>())).prop_map(
        |(bucket_cap, comm_hook, flags, accumulate, zero)| {
            let [find_unused_parameters, static_graph, set_last_bucket_cap, old, sync] = flags;
            let version = if old { DdpVersion::V1 } else { DdpVersion::V2_7 };
            let options = DdpOptions {
                bucket_cap,
                comm_hook,
                find_unused_parameters,
                static_graph,
                set_last_bucket_cap,
                version,
                ..DdpOptions::default()
            };
            (options, accumulate, sync, zero)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the options: the lab tells what `timeline` computed, buckets start in the order of
    /// their indices and after all of their gradients, and every moment has its sentence.
    #[test]
    fn what_is_told_is_what_happens((options, accumulate, sync_batch_norm, zero) in any_options(), world_size in 1u32..70) {
        let model = named("resnet18").unwrap();
        let shown = LabModel::of(&model);
        let mut setting = setting(world_size, options);
        setting.training = Training { accumulate, sync_batch_norm, zero, ..setting.training };
        let run = match LabRun::of(&model, &setting) {
            Ok(run) => run,
            // A negative cap with `find_unused_parameters` raises.
            Err(_) => return Ok(()),
        };
        // The reducer takes a first pass inside `no_sync()` for one that used no parameter.
        let misled = setting.training.options.static_graph && accumulate > 1;
        for number in 0..run.passes() {
            let pass = run.pass(number).unwrap();
            let times = &run.steps[0][number as usize];
            prop_assert_eq!(pass.exposed_ps, times.exposed_ps);
            prop_assert!(pass.moments.windows(2).all(|pair| pair[0].time_ps <= pair[1].time_ps));
            prop_assert!(pass.backward_end_ps <= pass.end_ps);
            let mut before = (0, 0);
            for bucket in &pass.buckets {
                let Some((start, end)) = bucket.span_ps else { continue };
                let launch = bucket.launch_ps.unwrap();
                prop_assert!(before.0 <= launch && before.1 <= start && start <= end);
                before = (launch, start);
                prop_assert!(misled || launch >= bucket.full_ps.unwrap());
                prop_assert!(start >= launch);
                let [launched, started, done] = bucket.moments;
                if end > pass.end_ps {
                    // Where the pass breaks off before it waits.
                    prop_assert!(pass.raised.is_some() && done == u32::MAX);
                    continue;
                }
                prop_assert!(launched <= started && started <= done);
                prop_assert!((done as usize) < pass.moments.len());
                let at = |moment: u32| pass.moments[moment as usize].time_ps;
                prop_assert_eq!((at(launched), at(started), at(done)), (launch, start, end));
                if !pass.delayed && !misled {
                    // The reducer's own account of who launched it is what the times say.
                    let by = pass.params[bucket.launched_by.unwrap() as usize];
                    prop_assert_eq!(by.ready_ps, Some(launch));
                    let owner = bucket.held_by.and_then(|earlier| pass.buckets[earlier as usize].last);
                    prop_assert_eq!(bucket.launched_by, owner.or(bucket.last));
                }
            }
            for moment in 0..pass.moments.len() {
                prop_assert!(!pass.sentence(&shown, &setting, moment).is_empty());
            }
            for param in 0..shown.params.len() as u32 {
                prop_assert!(!pass.why(&shown, &setting, param).is_empty());
            }
            run.log(0, number);
        }
        let summary = run.summary();
        prop_assert!(summary.exposed_ps <= summary.step_ps && summary.latency_ps <= summary.communication_ps);
    }
}
