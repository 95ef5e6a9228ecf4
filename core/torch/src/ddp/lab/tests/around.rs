//! The features around DDP in the lab: uneven inputs, replicas, averagers, mixed precision, the
//! overlap with a sharded optimizer, parameters without gradient.

use super::{capped, setting};
use crate::ddp::join::{JoinOptions, Joinable, run_join_of};
use crate::ddp::lab::*;
use crate::ddp::model::{Device, Model, named};
use crate::ddp::plan::Uneven;
use crate::ddp::replicas::Replicas;
use crate::ddp::zero::ZeroOverlap;
use crate::ddp::{CommHook, HookAlgorithm, PostLocalSgd};
use crate::ddp::{DdpCall, DdpOptions, DdpVersion, MixedPrecision, ModelAverager};

fn uneven(inputs: &[u32]) -> Option<Uneven> {
    Some(Uneven { inputs: inputs.to_vec(), options: JoinOptions::default() })
}

fn with(setting: &Setting, change: impl Fn(&mut Training)) -> Setting {
    let mut setting = setting.clone();
    change(&mut setting.training);
    setting
}

/// A pass that DDP cuts short is no step: the figures are those of the passes before.
#[test]
fn a_pass_that_ddp_cuts_short_is_in_no_figure() {
    let model = named("resnet18").unwrap();
    let throwing = |inputs: &[u32]| {
        let options = JoinOptions { throw_on_early_termination: true, ..JoinOptions::default() };
        with(&setting(inputs.len() as u32, DdpOptions::default()), |training| {
            training.uneven = Some(Uneven { inputs: inputs.to_vec(), options });
        })
    };
    let of = throwing(&[3, 2, 4, 1]);
    let run = LabRun::of(&model, &of).unwrap();
    assert_eq!((run.passes(), run.steady(), run.is_cut_short()), (2, 0..1, false));
    let whole = run.pass_of(run.principal(), 0).unwrap();
    assert_eq!(run.summary().step_ps, whole.end_ps);
    let of = throwing(&[0, 1]);
    let run = LabRun::of(&model, &of).unwrap();
    assert_eq!((run.passes(), run.steady(), run.is_cut_short()), (1, 0..1, true));
    // The end of a join is no pass either, nor are passes that are left over.
    for (inputs, steady) in [([1, 1], 0..1), ([5, 2], 2..4), ([7, 7], 4..6)] {
        let of = with(&throwing(&inputs), |training| {
            training.accumulate = 2;
            training.uneven = uneven(&inputs);
        });
        let run = LabRun::of(&model, &of).unwrap();
        assert_eq!(run.steady(), steady, "{inputs:?}");
        // What a rank's last pass leaves over is lost.
        let lost = |number: u32| {
            let (pass, shown) = (run.pass(number).unwrap(), LabModel::of(&model));
            let told = (0..pass.moments.len()).map(|at| pass.sentence(&shown, &of, at));
            told.into_iter().any(|told| told.contains("nothing ever reduces these gradients"))
        };
        let passes = 0..inputs[0];
        assert!(passes.into_iter().all(|number| lost(number) == (number + 1 == inputs[0])));
    }
}

/// Both ways to say what ranks with uneven inputs issue are the same, call by call.
#[test]
fn a_plan_of_uneven_inputs_has_the_calls_of_join() {
    let models = ["mlp:8,16,4", "resnet18"].map(|name| named(name).unwrap());
    let lists: [&[u32]; 5] = [&[2, 4, 3], &[0, 3, 3], &[4, 1, 4], &[1], &[3, 0, 0]];
    for (model, inputs, (zero, throw, accumulate)) in models.iter().flat_map(|model| {
        let plain = [(None, false, 1), (None, false, 2), (None, true, 1), (None, true, 2)];
        let kinds = plain.into_iter().chain([(Some(true), false, 1), (Some(false), false, 1)]);
        lists.iter().flat_map(move |list| kinds.clone().map(move |kind| (model, *list, kind)))
    }) {
        let join = JoinOptions { throw_on_early_termination: throw, ..JoinOptions::default() };
        let setting = with(&setting(3, capped(0.0005)), |training| {
            training.uneven = Some(Uneven { inputs: inputs.to_vec(), options: join });
            training.zero = zero;
            training.accumulate = accumulate;
        });
        let all: Vec<u32> =
            (0..3).map(|rank| inputs.get(rank).or(inputs.last()).copied().unwrap()).collect();
        let mut joinables = vec![Joinable::Ddp];
        joinables.extend(zero.map(|v| Joinable::Zero { parameters_as_bucket_view: v }));
        let options = &setting.training.options;
        let on = setting.training.backend;
        let truth = run_join_of(&joinables, model, options, &all, join, accumulate, on).unwrap();
        let run = LabRun::of(model, &setting).unwrap();
        for (rank, truth) in (0..).zip(&truth) {
            let own: Vec<DdpCall> =
                run.notes(rank).iter().flat_map(|s| s.calls.iter().map(|n| n.call)).collect();
            let iterations = truth.iterations.iter();
            let mut calls: Vec<DdpCall> = iterations
                .flat_map(|i| i.forward.iter().chain(&i.backward).chain(&i.optimizer).copied())
                .collect();
            calls.extend(&truth.after);
            assert_eq!(own, calls, "{} {inputs:?} {zero:?} rank {rank}", model.name);
            let raised = truth.error.as_ref().map(|e| format!("{}: {e}", e.class()));
            // Ranks of a role are told by its first.
            assert_eq!(run.raised(rank).is_some(), raised.is_some());
        }
    }
}

#[test]
fn who_has_no_inputs_waits_for_the_others_in_every_collective() {
    let model = named("mlp:64,256,256,10").unwrap();
    let setting = with(&setting(4, capped(0.05)), |of| of.uneven = uneven(&[2, 4]));
    let run = LabRun::of(&model, &setting).unwrap();
    let words: Vec<_> = run.roles().into_iter().map(|role| (role.rank, role.words)).collect();
    assert_eq!(words, [(0, "2 inputs".to_owned()), (1, "4 inputs".to_owned())]);
    assert_eq!((run.passes_of(0), run.passes_of(3), run.principal()), (5, 5, 1));
    let kinds: Vec<_> = run.kinds(0).map(|kind| kind.kind).collect();
    use StepKind::{JoinEnds, Shadow, Training as Trains};
    assert_eq!(kinds, [Trains, Trains, Shadow, Shadow, JoinEnds]);
    let (shadow, trains) = (run.pass_of(0, 3).unwrap(), run.pass_of(1, 3).unwrap());
    assert!(shadow.layers.is_empty() && !trains.layers.is_empty());
    // The same buckets end at the same time on both, and the one waits where the other computes.
    let ends = |pass: &Pass| -> Vec<(u64, u64)> {
        let calls = pass.calls.iter().filter(|call| call.of_bucket().is_some());
        calls.map(|call| (call.bytes, call.end_ps - call.start_ps - call.peers_ps)).collect()
    };
    assert_eq!(ends(&shadow), ends(&trains));
    let peers = |pass: &Pass| pass.calls.iter().map(|call| call.peers_ps).sum::<u64>();
    assert!(peers(&shadow) > 0);
    assert!(trains.calls.iter().filter(|c| c.of_bucket().is_some()).all(|c| c.peers_ps == 0));
    let lab = LabModel::of(&model);
    assert!(shadow.sentence(&lab, &setting, 0).contains("Rank 0 has no inputs left"));
    for (pass, rank) in [(0, 0), (2, 0), (3, 1), (4, 0)] {
        let pass = run.pass_of(rank, pass).unwrap();
        for moment in 0..pass.moments.len() {
            assert!(!pass.sentence(&lab, &setting, moment).is_empty());
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let model = named("mlp:8,16,4").unwrap();
    let plain = setting(4, DdpOptions::default());
    let refused = |change: &dyn Fn(&mut Training)| {
        let setting = with(&plain, change);
        LabRun::of(&model, &setting).map(drop).unwrap_err().to_string()
    };
    let joined = |of: &mut Training| of.uneven = uneven(&[3, 1]);
    let sharded = |of: &mut Training| (of.zero, of.accumulate) = (Some(true), 2);
    assert!(refused(&|of| (joined(of), sharded(of)).0).contains("no_sync"));
    assert!(refused(&|of| (joined(of), of.sync_batch_norm = true).0).contains("SyncBatchNorm"));
    assert!(refused(&|of| of.uneven = uneven(&[])).contains("5,3,4"));
    assert!(refused(&|of| of.uneven = uneven(&[1; 5])).contains("more ranks"));
    assert!(refused(&|of| of.devices = 2).contains("device_ids"));
    assert!(refused(&|of| of.unused = vec!["layers.0.wieght".into()]).contains("layers.0.weight"));
    assert!(refused(&|of| of.averager = "periodic:300:0".parse().ok()).contains("256"));
    let uneven_groups =
        PostLocalSgd { start_iter: 0, subgroup: 3, post_local_gradient_allreduce: true };
    let hook = CommHook::new(HookAlgorithm::PostLocalSgd(uneven_groups));
    assert!(refused(&|of| of.options.comm_hook = Some(hook)).contains("divisible"));
    let two = MixedPrecision { param_dtype: Some(Dtype::Float16), ..Default::default() };
    let twice = |of: &mut Training| {
        of.options.mixed_precision = Some(two);
        of.options.comm_hook = Some(CommHook::compress(Dtype::Float16));
    };
    assert!(refused(&twice).contains("can only be called once"));
}

#[test]
fn a_gradient_that_never_comes_ends_in_pytorchs_error() {
    let model = named("resnet18").unwrap();
    let setting = with(&setting(4, DdpOptions::default()), |of| of.unused = vec!["fc".into()]);
    let run = LabRun::of(&model, &setting).unwrap();
    assert_eq!(run.passes(), 1);
    let raised = run.raised(0).unwrap();
    assert!(raised.starts_with("RuntimeError: Expected to have finished reduction in the prior"));
    assert!(raised.contains("did not receive grad for rank 0: 60 61"), "{raised}");
    // Names come the other way round than indices: PyTorch 2.7.1, with TORCH_DISTRIBUTED_DEBUG=INFO.
    let named = with(&setting, |of| of.options.debug = true);
    let raised = LabRun::of(&model, &named).unwrap().raised(0).unwrap();
    let names = "Parameters which did not receive grad for rank 0: fc.bias, fc.weight";
    assert!(raised.contains(names), "{raised}");
    let pass = run.pass(0).unwrap();
    assert!(pass.buckets[0].full_ps.is_none() && pass.buckets[0].span_ps.is_none());
    assert!(pass.layers.iter().all(|layer| run.model().layers[layer.layer as usize].name != "fc"));
    let lab = LabModel::of(run.model());
    assert!(
        pass.why(&lab, &setting, 60)[0].contains("No layer's backward pass"),
        "{:?}",
        pass.why(&lab, &setting, 60)
    );
    // Where they are looked for, all goes on, with the map of what was used.
    let finds = with(&setting, |of| of.options.find_unused_parameters = true);
    let run = LabRun::of(&model, &finds).unwrap();
    assert_eq!((run.passes(), run.raised(0)), (3, None));
    let pass = run.pass(2).unwrap();
    assert!(pass.calls.iter().any(|call| call.purpose == Purpose::UsedMap));
    assert!(pass.buckets.iter().all(|bucket| bucket.span_ps.is_some()));
    // A static graph has seen what is not used.
    let fixed = with(&setting, |of| of.options.static_graph = true);
    assert_eq!(LabRun::of(&model, &fixed).unwrap().raised(0), None);
}

#[test]
fn mixed_precision_computes_and_reduces_in_fewer_bits() {
    let model = named("vgg16").unwrap();
    let plain = with(&setting(8, DdpOptions::default()), |of| {
        of.device = Device::named("A100").unwrap();
    });
    let mixed = |param, reduce| MixedPrecision {
        param_dtype: Some(param),
        reduce_dtype: reduce,
        buffer_dtype: None,
    };
    let summary = |setting: &Setting| LabRun::of(&model, setting).unwrap().summary();
    let before = summary(&plain);
    let half = with(&plain, |of| {
        of.options.mixed_precision = Some(mixed(Dtype::Bfloat16, None));
    });
    let after = summary(&half);
    assert_eq!((after.bytes * 2, after.buckets), (before.bytes, before.buckets));
    assert!(after.compute_ps * 3 < before.compute_ps);
    let wide = with(&plain, |of| {
        of.options.mixed_precision = Some(mixed(Dtype::Bfloat16, Some(Dtype::Float32)));
    });
    let wide = summary(&wide);
    assert_eq!((wide.bytes, wide.compute_ps), (before.bytes, after.compute_ps));
    let change = changes(&plain, &half);
    assert_eq!(change.len(), 1);
    assert_eq!((change[0].option, change[0].to.as_str()), ("mixed_precision", "param=bfloat16"));
    assert!(change[0].why(&before, &after, 1).contains("are communicated"));
}

#[test]
fn an_averagers_step_is_the_mean_of_as_many_as_come_round() {
    let model = named("mlp:64,256,10").unwrap();
    let plain = setting(8, DdpOptions::default());
    for (text, passes, averages) in [
        ("periodic:4:0", 9, vec![0, 4, 8]),
        ("periodic:3:7", 11, vec![7, 10]),
        ("hierarchical:2=4,4=8:0", 9, vec![0, 2, 4, 6, 8]),
        ("periodic:1:0", 3, vec![0, 1, 2]),
    ] {
        let averager: ModelAverager = text.parse().unwrap();
        let setting = with(&plain, |of| of.averager = Some(averager.clone()));
        let run = LabRun::of(&model, &setting).unwrap();
        assert_eq!(run.passes(), passes, "{text}");
        let kinds = run.kinds(0).enumerate().filter(|(_, kind)| kind.averages);
        assert_eq!(kinds.map(|(at, _)| at).collect::<Vec<_>>(), averages, "{text}");
        let steady = run.steady();
        assert_eq!(u64::from(steady.end - steady.start), averager.cycle());
        let took: Vec<u64> = steady.clone().map(|p| run.pass(p).unwrap().end_ps).collect();
        let mean = took.iter().sum::<u64>() / took.len() as u64;
        assert_eq!(run.summary().step_ps, mean);
        assert!(run.summary().step_ps > LabRun::of(&model, &plain).unwrap().summary().step_ps);
    }
}

#[test]
fn a_sharded_optimizer_overlaps_with_the_backward_pass() {
    let model = named("resnet50").unwrap();
    let plain = setting(4, DdpOptions::default());
    let overlap = |interleaved| {
        with(&plain, |of| {
            of.options.comm_hook = Some(CommHook::new(HookAlgorithm::AllReduce));
            let overlap = ZeroOverlap { interleaved, shard_buckets: false, world_size: 4 };
            of.options.zero_overlap = Some(overlap);
        })
    };
    for interleaved in [false, true] {
        let setting = overlap(interleaved);
        let run = LabRun::of(&model, &setting).unwrap();
        let pass = run.pass(run.passes() - 1).unwrap();
        let shards: Vec<_> = pass.calls.iter().filter(|c| c.purpose == Purpose::Shard).collect();
        assert_eq!(shards.len(), pass.buckets.len());
        // In the hook of every bucket, or all in the last one's.
        let early = shards.iter().any(|call| call.start_ps < pass.backward_end_ps);
        assert_eq!(early, interleaved);
        assert!(pass.optimizer.is_none());
        assert!(run.pass(1).unwrap().calls.iter().all(|call| call.purpose != Purpose::Shard));
        let change = changes(&plain, &setting).pop().unwrap();
        assert!(change.to.contains("overlap_with_ddp"), "{}", change.to);
    }
}

#[test]
fn replicas_are_copied_and_all_devices_reduce() {
    let model = named("resnet18").unwrap();
    let options = DdpOptions { version: DdpVersion::V1, ..DdpOptions::default() };
    let setting = with(&setting(3, options.clone()), |of| of.devices = 4);
    let run = LabRun::of(&model, &setting).unwrap();
    assert_eq!((run.run.plan.world_size, run.roles().len()), (12, 2));
    let truth = Replicas::of(&model, &options, 3, 4).unwrap();
    let (first, other) = (run.pass_of(4, 2).unwrap(), run.pass_of(5, 2).unwrap());
    let copies = |pass: &Pass| -> Vec<u64> {
        let copies = pass.calls.iter().filter(|call| call.purpose == Purpose::Replicate);
        copies
            .map(|call| (call.bytes, call.ranks))
            .inspect(|of| assert_eq!(of.1, 4))
            .map(|c| c.0)
            .collect()
    };
    let bytes = truth.params.iter().chain(&truth.buffers);
    let bytes: Vec<u64> = bytes.map(|copy| copy.numel * copy.dtype.size_bytes()).collect();
    assert_eq!((copies(&first), copies(&other)), (bytes.clone(), bytes));
    for pass in [&first, &other] {
        let reduced = pass.calls.iter().filter(|call| call.of_bucket().is_some());
        assert!(reduced.clone().count() > 1 && reduced.clone().all(|call| call.ranks == 12));
    }
    // The processes' own broadcasts and the optimizer are the first device's.
    let between = |pass: &Pass| pass.calls.iter().filter(|c| c.purpose == Purpose::Buffers).count();
    assert_eq!((between(&first), between(&other)), (2, 0));
    assert!(first.optimizer.is_some() && other.optimizer.is_none());
    assert!(run.run.plan.check().is_ok());
}

/// Two types, two buckets, and one is never full: autograd is never told to wait for the other.
#[test]
fn a_pass_with_a_bucket_left_over_waits_for_none() {
    let text = r#"{"params": [["a", [300, 300], 90000, "float32", true],
        ["skip", [600, 500], 300000, "float32", true],
        ["c", [10, 300], 3000, "bfloat16", true]], "unused": [["skip"]]}"#;
    let model = Model::read("dropped", text).unwrap();
    let setting = setting(8, DdpOptions::default());
    let run = LabRun::of(&model, &setting).unwrap();
    let pass = run.pass(0).unwrap();
    assert!(pass.raised.is_some() && pass.buckets[0].span_ps.is_some());
    assert_eq!((pass.exposed_ps, pass.buckets[0].exposed_ps), (0, 0));
    assert_eq!(pass.moments.last().unwrap().event, Event::Ends);
    let said = pass.backward_ends(&LabModel::of(&model), &setting);
    assert!(said.contains("Nor does the pass wait for what was launched, or copy"), "{said}");
    // Two real ranks: each has its own gradients of the bucket that was launched; views are reduced.
    assert_eq!(pass.agreement.local, 2);
    let view = with(&setting, |of| of.options.gradient_as_bucket_view = true);
    assert_eq!(LabRun::of(&model, &view).unwrap().pass(0).unwrap().agreement.local, 1);
    // Where all are launched, it waits.
    let found = with(&setting, |of| of.options.find_unused_parameters = true);
    assert!(LabRun::of(&model, &found).unwrap().pass(0).unwrap().exposed_ps > 0);
}

/// A layer inside two reentrant checkpoints, in a static graph and without.
#[test]
fn a_gradient_that_comes_twice_is_told_so() {
    let text = r#"{"params": [["a", [300, 300], 90000, "float32", true],
        ["b", [300, 300], 90000, "float32", true]], "grad_ready_order": [1, 1, 0]}"#;
    let model = Model::read("checkpointed", text).unwrap();
    let said = |setting: &Setting, number| {
        let run = LabRun::of(&model, setting).unwrap();
        let pass = run.pass(number).unwrap();
        let shown = LabModel::of(&model);
        let all = (0..pass.moments.len()).map(|moment| pass.sentence(&shown, setting, moment));
        (all.collect::<Vec<_>>().join("\n"), run.raised(0))
    };
    let plain = setting(2, DdpOptions::default());
    let (told, raised) = said(&plain, 0);
    assert!(told.contains("though the reducer has it marked ready already"), "{told}");
    assert!(raised.unwrap().contains("at index 1 with name .b has been marked as ready twice"));
    // Of a parameter that modules share PyTorch knows the last name.
    let shared =
        text.replace("\"grad_ready_order\"", r#""tied": [["z", "b"]], "grad_ready_order""#);
    let shared = Model::read("shared", &shared).unwrap();
    let raised = LabRun::of(&shared, &plain).unwrap().raised(0).unwrap();
    assert!(raised.contains("at index 1 with name .z has been"), "{raised}");
    let fixed = with(&plain, |of| of.options.static_graph = true);
    let (told, raised) = said(&fixed, 2);
    assert!(told.contains("b's gradient comes, but not for the last time"), "{told}");
    assert_eq!(raised, None);
}
