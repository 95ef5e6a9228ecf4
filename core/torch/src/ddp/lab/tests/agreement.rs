//! The lab's words about the ranks' gradients and parameters, against those of real ranks
//! (`tests/data/pytorch/ddp_agreement.json`), and against the calls of a pass.

use super::{capped, setting};
use crate::ddp::hook::{CommHook, HookAlgorithm, PostLocalSgd, PowerSgd};
use crate::ddp::join::JoinOptions;
use crate::ddp::lab::*;
use crate::ddp::model::named;
use crate::ddp::plan::Uneven;
use crate::ddp::tests::{list, recorded};
use crate::ddp::{DdpOptions, ModelAverager};
use proptest::prelude::*;
use serde_json::Value;

const SAME: &str = "every rank has the same parameters again";

fn local_sgd(post_local_gradient_allreduce: bool) -> CommHook {
    let state = PostLocalSgd { start_iter: 2, subgroup: 2, post_local_gradient_allreduce };
    CommHook::new(HookAlgorithm::PostLocalSgd(state))
}

/// A recorded run's arguments.
fn asked(run: &Value) -> Setting {
    let mut options = match run["bucket_cap_mb"].as_f64() {
        Some(mb) => capped(mb),
        None => DdpOptions::default(),
    };
    options.find_unused_parameters = run["find_unused_parameters"] == true;
    options.static_graph = run["static_graph"] == true;
    options.comm_hook = run["hook"].as_str().map(|hook| match hook {
        "noop" => CommHook::new(HookAlgorithm::Noop),
        "fp16" => CommHook::compress(Dtype::Float16),
        "powersgd" => CommHook::new(HookAlgorithm::PowerSgd(PowerSgd {
            start_iter: 2,
            ..PowerSgd::default()
        })),
        "localsgd" => local_sgd(true),
        "localsgd alone" => local_sgd(false),
        other => panic!("{other}"),
    });
    let mut setting = setting(4, options);
    let training = &mut setting.training;
    training.accumulate = run["accumulate"].as_u64().unwrap_or(1) as u32;
    let period = run["averager"].as_u64();
    training.averager = period.map(|period| ModelAverager::Periodic { period, warmup_steps: 0 });
    training.unused.extend(run["skip"].as_u64().map(|layer| format!("layers.{layer}")));
    setting
}

/// The sentence of the optimizer's step.
fn told(pass: &Pass, model: &LabModel, setting: &Setting) -> String {
    let at = pass.moments.iter().position(|moment| moment.event == Event::Optimized);
    at.map_or_else(String::new, |at| pass.sentence(model, setting, at))
}

fn all_told(pass: &Pass, model: &LabModel, setting: &Setting) -> String {
    let all = (0..pass.moments.len()).map(|moment| pass.sentence(model, setting, moment));
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn ranks_agree_as_real_ranks_did() {
    let file = recorded("ddp_agreement.json");
    let model = named("mlp:16,32,32,8").unwrap();
    let mut compared = 0;
    for (name, run) in file["runs"].as_object().unwrap() {
        let setting = asked(&run["run"]);
        let lab = LabRun::of(&model, &setting).unwrap();
        let shown = LabModel::of(&model);
        for (number, truth) in (0u32..).zip(list(&run["passes"])).take(lab.passes() as usize) {
            let about = format!("{name}, pass {}", number + 1);
            let pass = lab.pass(number).unwrap();
            let agreed = pass.agreement;
            let of = |field: &str| truth[field].as_u64().map(|n| n as u32);
            assert_eq!(Some(agreed.same_at_end), of("same"), "{about}");
            let Some(gradients) = of("same_gradients") else { continue };
            let own = if agreed.local > 0 { 1 } else { agreed.reduced_among };
            assert_eq!(own, gradients, "{about}");
            let after = of("same_after_step").unwrap();
            assert_eq!(agreed.same_after_step, after, "{about}");
            let sentence = told(&pass, &shown, &setting);
            assert_eq!(sentence.contains(SAME), after == 4, "{about}: {sentence}");
            let all = "All gradients";
            assert_eq!(sentence.starts_with(all), gradients > 1, "{about}: {sentence}");
            compared += 1;
        }
        let raises = list(&run["passes"]).iter().find_map(|pass| pass["raised"].as_str());
        let raised = lab.raised(0);
        assert_eq!(raised.is_some(), raises.is_some(), "{name}");
        if let (Some(raised), Some(begins)) = (raised, raises) {
            assert!(raised.starts_with(&format!("RuntimeError: {begins}. ")), "{raised}");
            let pass = lab.pass(lab.passes() - 1).unwrap();
            let said = all_told(&pass, &shown, &setting);
            assert!(said.contains("The next forward pass raises"), "{said}");
            assert!(said.contains("of layers.1.weight never becomes ready"), "{said}");
            assert!(!said.contains("every bucket is reduced already"), "{said}");
        }
    }
    assert!(compared > 35, "{compared}");
}

/// A rank in a subgroup is told so.
#[test]
fn a_reduction_among_a_subgroup_is_none_among_all() {
    let model = named("mlp:64,64,10").unwrap();
    let mut setting = setting(16, DdpOptions::default());
    let state = PostLocalSgd { start_iter: 0, subgroup: 8, post_local_gradient_allreduce: true };
    let hook = CommHook::new(HookAlgorithm::PostLocalSgd(state));
    setting.training.options.comm_hook = Some(hook);
    let run = LabRun::of(&model, &setting).unwrap();
    let pass = run.pass(2).unwrap();
    let said = all_told(&pass, &LabModel::of(&model), &setting);
    assert!(said.contains("the 8 ranks of this subgroup, of 16 in the world"), "{said}");
    assert!(said.contains("the 2 subgroups differ"), "{said}");
    assert!(!said.contains("all 8 ranks") && !said.contains(SAME), "{said}");
}

/// PyTorch's own defaults come behind what is followed, which is said; a later start that can be
/// followed is.
#[test]
fn a_hook_that_begins_late_is_followed_until_it_does() {
    let model = named("mlp:64,64,10").unwrap();
    let with = |state| {
        let hook = CommHook::new(HookAlgorithm::PowerSgd(state));
        setting(4, DdpOptions { comm_hook: Some(hook), ..DdpOptions::default() })
    };
    let compresses = |setting: &Setting| -> Vec<bool> {
        let run = LabRun::of(&model, setting).unwrap();
        let part = |call: &CallSpan| matches!(call.purpose, Purpose::HookPart { .. });
        (0..run.passes()).map(|n| run.pass(n).unwrap().calls.iter().any(part)).collect()
    };
    let default = with(PowerSgd::default());
    assert_eq!(compresses(&default), [false; 3]);
    assert!(notes(&default, 1)[0].contains("begins in iteration 1001"));
    let late = with(PowerSgd { start_iter: 5, ..PowerSgd::default() });
    assert_eq!(compresses(&late), [false, false, false, false, false, true]);
    assert_eq!(notes(&late, 1), Vec::<String>::new());
    // PyTorch refuses to begin at once with its defaults.
    let early = with(PowerSgd { start_iter: 0, ..PowerSgd::default() });
    let error = LabRun::of(&model, &early).unwrap_err().to_string();
    assert!(error.starts_with("ValueError: Expect `start_powerSGD_iter` > 1"), "{error}");
}

/// `throw_on_early_termination`: forward raises, and no gradient is made.
#[test]
fn a_pass_that_raises_in_forward_tells_of_no_backward() {
    let model = named("mlp:64,64,10").unwrap();
    let mut setting = setting(4, DdpOptions::default());
    let options = JoinOptions { throw_on_early_termination: true, ..JoinOptions::default() };
    setting.training.uneven = Some(Uneven { inputs: vec![3, 2], options });
    let run = LabRun::of(&model, &setting).unwrap();
    let shown = LabModel::of(&model);
    let pass = run.pass(2).unwrap();
    assert_eq!((pass.layers.len(), pass.optimizer), (0, None));
    let said = all_told(&pass, &shown, &setting);
    assert!(said.contains("its forward pass raises"), "{said}");
    assert!(said.contains("Throwing across all ranks"), "{said}");
    for never in ["backward pass", "bucket", "gradient to be ready", "as all later ones do"] {
        assert!(!said.contains(never), "{never}: {said}");
    }
    let other = run.pass_of(1, 2).unwrap();
    let said = all_told(&other, &shown, &setting);
    assert!(
        said.contains("Rank 1 has no inputs left") && said.contains("all ranks raise"),
        "{said}"
    );
}

/// Ranks that have run out keep what they have.
#[test]
fn who_has_joined_is_left_out_of_what_ranks_share() {
    let model = named("mlp:64,64,10").unwrap();
    let mut setting = setting(4, DdpOptions::default());
    setting.training.uneven = Some(Uneven { inputs: vec![4, 2], options: JoinOptions::default() });
    let run = LabRun::of(&model, &setting).unwrap();
    let shown = LabModel::of(&model);
    let of = |number| told(&run.pass(number).unwrap(), &shown, &setting);
    assert!(of(1).contains(SAME), "{}", of(1));
    assert!(of(2).contains("every rank with inputs has the same parameters again; 3 ranks"));
}

/// `find_unused_parameters` and a static graph mark unused parameters with the first gradient.
#[test]
fn unused_parameters_are_marked_ready_at_once() {
    let model = named("mlp:64,64,64,10").unwrap();
    let plain = setting(4, DdpOptions::default());
    for (static_graph, number) in [(false, 1), (true, 3)] {
        let mut setting = plain.clone();
        setting.training.unused.push("layers.1".into());
        setting.training.options.static_graph = static_graph;
        setting.training.options.find_unused_parameters = !static_graph;
        let run = LabRun::of(&model, &setting).unwrap();
        let shown = LabModel::of(&model);
        let pass = run.pass(number).unwrap();
        let at = pass.moments.iter().position(|m| m.event == Event::MarkedUnused).unwrap();
        let said = pass.sentence(&shown, &setting, at);
        assert!(said.contains("layers.1.weight, layers.1.bias: they are marked ready"), "{said}");
        // Two are there before the first gradient, which is the third.
        let Event::Gradient(first) = pass.moments[at + 1].event else { panic!("{said}") };
        let said = pass.sentence(&shown, &setting, at + 1);
        let of = pass.buckets[pass.params[first as usize].bucket.unwrap() as usize].params.len();
        assert!(said.contains(&format!("has 3 of its {of} (2 of them unused)")), "{said}");
        assert!(!all_told(&pass, &shown, &setting).contains("never"), "{static_graph}");
        let why = pass.why(&shown, &setting, 2);
        assert!(why[0].contains("marks it ready"), "{why:?}");
    }
}

/// The fields of DDP's log that add up: bytes of every pass (recorded in `ddp_cases.json`).
#[test]
fn unused_bytes_of_the_log_are_those_of_all_passes() {
    let model = named("mlp:16,16,16,16").unwrap();
    let mut setting = setting(2, DdpOptions { find_unused_parameters: true, ..capped(0.001) });
    setting.training.unused.push("layers.1".into());
    let run = LabRun::of(&model, &setting).unwrap();
    let at = |passes: u32| run.log(0, passes).numbers.get("unused_parameter_size").copied();
    assert_eq!([at(1), at(2), at(3)], [None, Some(1088), Some(2176)]);
    setting.training.options.find_unused_parameters = false;
    setting.training.options.static_graph = true;
    let run = LabRun::of(&model, &setting).unwrap();
    assert_eq!(run.log(0, 4).numbers["unused_parameter_size"], 3264);
}

/// Parameters that DDP ignores or delays are not the reducer's: names stay theirs.
#[test]
fn ignored_and_delayed_parameters_are_in_no_bucket() {
    let model = named("mlp:64,64,64,10").unwrap();
    let mut setting = setting(4, DdpOptions::default());
    setting.training.options.ignored = vec!["layers.0.weight".into()];
    let run = LabRun::of(&model, &setting).unwrap();
    let shown = LabModel::of(&model);
    let pass = run.pass(2).unwrap();
    assert_eq!(pass.params[0].bucket, None);
    assert_eq!(pass.buckets.iter().map(|bucket| bucket.params.len()).sum::<usize>(), 5);
    assert!(pass.buckets.iter().all(|bucket| !bucket.params.contains(&0)));
    assert_eq!((pass.agreement.local, pass.agreement.same_after_step), (1, 1));
    let said = told(&pass, &shown, &setting);
    assert!(said.starts_with("1 of 6 gradients were not reduced"), "{said}");
    assert_eq!(run.log(0, 0).numbers["num_parameter_tensors"], 5);
    // Of the delayed, those are reduced whose gradients come before the hooked one's.
    let delay = |hooked: &str| {
        let mut setting = setting.clone();
        let options = &mut setting.training.options;
        options.ignored.clear();
        options.delay_all_reduce_named_params =
            Some(vec!["layers.2.weight".into(), "layers.2.bias".into()]);
        options.param_to_hook_all_reduce = Some(hooked.to_owned());
        let run = LabRun::of(&model, &setting).unwrap();
        run.pass(2).unwrap().agreement.local
    };
    assert_eq!(delay("layers.0.bias"), 0);
    assert_eq!(delay("layers.2.weight"), 1);
}

fn any_hook() -> impl Strategy<Value = Option<CommHook>> {
    let power = PowerSgd { start_iter: 2, ..PowerSgd::default() };
    let local = |start_iter, subgroup, post_local_gradient_allreduce| {
        let state = PostLocalSgd { start_iter, subgroup, post_local_gradient_allreduce };
        HookAlgorithm::PostLocalSgd(state)
    };
    prop_oneof![
        Just(None),
        Just(Some(CommHook::compress(Dtype::Float16))),
        Just(Some(CommHook::new(HookAlgorithm::Noop))),
        Just(Some(CommHook::new(HookAlgorithm::PowerSgd(power)))),
        Just(Some(CommHook::new(local(1, 4, true)))),
        Just(Some(CommHook::new(local(0, 2, false)))),
        Just(Some(CommHook::new(HookAlgorithm::QuantizationPerTensor))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// That ranks have the same is said only where every gradient since the last step lies in a
    /// bucket that all ranks reduced, in this pass and in all before it. What a pass takes is
    /// made of what is told.
    #[test]
    fn agreement_is_told_only_where_the_calls_make_it(
        hook in any_hook(),
        flags in prop::array::uniform4(any::<bool>()),
        accumulate in 1u32..4,
        small in any::<bool>(),
    ) {
        let [unused, find_unused_parameters, static_graph, ignored] = flags;
        let model = named("mlp:64,64,64,10").unwrap();
        let mut options = if small { capped(0.01) } else { DdpOptions::default() };
        options.find_unused_parameters = find_unused_parameters;
        options.static_graph = static_graph;
        options.comm_hook = hook;
        if ignored {
            options.ignored.push("layers.0.bias".into());
        }
        let mut setting = setting(8, options);
        setting.training.accumulate = accumulate;
        if unused {
            setting.training.unused.push("layers.1".into());
        }
        let Ok(run) = LabRun::of(&model, &setting) else { return Ok(()) };
        let shown = LabModel::of(&model);
        let mut agree = true;
        for number in 0..run.passes() {
            let pass = run.pass(number).unwrap();
            let reduced = |param: u32| {
                let bucket = pass.params[param as usize].bucket;
                let mut calls = pass.calls.iter().filter(|call| call.of_bucket() == bucket);
                bucket.is_some() && calls.clone().count() > 0 && calls.all(|call| call.ranks == 8)
            };
            let ready = (0u32..).zip(&pass.params).filter(|(_, fate)| fate.ready_ps.is_some());
            let mut ready = ready.map(|(param, _)| param);
            if pass.sync {
                agree &= ready.all(reduced);
            }
            let said = all_told(&pass, &shown, &setting);
            prop_assert_eq!(said.contains(SAME), agree && pass.sync, "{}", said);
            let hidden = said.contains("every bucket is reduced already");
            prop_assert!(!hidden || pass.buckets.iter().all(|b| b.span_ps.is_some()), "{}", said);
            let made = pass.compute_ps() + pass.exposed_ps + pass.held_ps();
            prop_assert_eq!(made, pass.end_ps);
            let held = pass.calls.iter().filter(|call| call.blocking);
            let held: u64 = held.filter_map(|c| c.waited_ps).map(|(from, to)| to - from).sum();
            prop_assert_eq!(held, pass.held_ps());
        }
    }
}
