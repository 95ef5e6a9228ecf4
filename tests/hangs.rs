//! The gallery of hangs: every scenario's program, simulated and run for real, comes to the finding
//! that its text promises, and blames nobody else; repaired, it is healthy.

use lockstep_core::diagnosis::{Kind, Report, Verdict, diagnose_trace};
use lockstep_core::scenario::{self, Scenario, ScenarioOptions};
use lockstep_sim::{SimConfig, simulate};
use lockstep_tests::lockstep;

/// What the text of a scenario promises: the kind of finding, and who is to blame in a world of so
/// many ranks. Several findings have one line each.
struct Promise {
    id: &'static str,
    kind: Kind,
    culprits: fn(u32) -> Vec<Vec<u32>>,
}

const fn promise(id: &'static str, kind: Kind, culprits: fn(u32) -> Vec<Vec<u32>>) -> Promise {
    Promise { id, kind, culprits }
}

/// Nobody told this table to the product: it is what the stories say.
const PROMISES: &[Promise] = &[
    promise("checkpoint-on-rank-0", Kind::OpExtra, |_| vec![vec![0]]),
    promise("logging-on-rank-0", Kind::OpExtra, |_| vec![vec![0]]),
    promise("skipped-all-reduce", Kind::OpSkipped, |_| vec![vec![2]]),
    promise("stuck-data-loader", Kind::RankNeverJoined, |world| vec![vec![world - 1]]),
    promise("one-batch-less", Kind::LoopShorter, |world| vec![vec![world - 1]]),
    promise("ddp-uneven-inputs", Kind::DdpUnevenInputs, |_| vec![vec![1]]),
    promise("validation-on-rank-0", Kind::OpExtra, |_| vec![vec![0]]),
    promise("unused-on-one-rank", Kind::DdpUnusedParameters, |_| vec![vec![1]]),
    promise("caught-exception", Kind::OpSkipped, |_| vec![vec![1]]),
    promise("out-of-memory", Kind::RankDied, |_| vec![vec![1]]),
    promise("checkpoint-outlasts-timeout", Kind::RankNeverJoined, |_| vec![vec![0]]),
    promise("throttled-gpu", Kind::Straggler, |_| vec![vec![2]]),
    promise("early-stopping", Kind::LoopShorter, |_| vec![vec![2]]),
    promise("expert-without-tokens", Kind::OpSkipped, |_| vec![vec![1]]),
    promise("mismatched-collectives", Kind::CollectiveMismatch, |_| vec![vec![1]]),
    promise("uneven-last-batch", Kind::SizeMismatch, |_| vec![vec![1]]),
    promise("all-gather-sizes", Kind::SizeMismatch, |_| vec![vec![2]]),
    promise("half-on-one-rank", Kind::DtypeMismatch, |_| vec![vec![1]]),
    promise("best-rank-broadcast", Kind::RootMismatch, |_| vec![vec![2]]),
    promise("sum-or-mean", Kind::ReduceOpMismatch, |_| vec![vec![2]]),
    // Of four ranks two stand on either side of the circle, and neither is more wrong.
    promise("opposite-group-order", Kind::GroupDeadlock, |world| match world {
        4 => vec![vec![1, 2]],
        _ => vec![vec![world - 2]],
    }),
    promise("tp-dp-opposite-order", Kind::GroupDeadlock, |_| vec![vec![0, 1, 2, 3]]),
    promise("new-group-on-members-only", Kind::GroupDeadlock, |_| vec![vec![0, 1]]),
    promise("facing-sends", Kind::P2pDeadlock, |world| {
        (0..world / 2).map(|pair| vec![2 * pair, 2 * pair + 1]).collect()
    }),
    promise("ring-of-isends", Kind::GroupDeadlock, |world| vec![(0..world).collect()]),
    promise("wrong-tag", Kind::P2pMismatch, |_| vec![vec![0, 2]]),
    promise("microbatch-less", Kind::P2pMismatch, |_| vec![vec![1]]),
    promise("ddp-different-order", Kind::DdpModelMismatch, |_| vec![vec![1]]),
    promise("no-sync-out-of-step", Kind::OpSkipped, |_| vec![vec![2]]),
];

fn promised(scenario: &Scenario) -> &'static Promise {
    let found = PROMISES.iter().find(|promise| promise.id == scenario.id);
    found.unwrap_or_else(|| panic!("nothing is promised of {}", scenario.id))
}

/// Kind and culprits of every finding.
fn found(report: &Report) -> Vec<(Kind, Vec<u32>)> {
    let ranks = |finding: &lockstep_core::diagnosis::Finding| {
        finding.culprits.iter().map(|rank| rank.0).collect()
    };
    report.findings.iter().map(|finding| (finding.kind, ranks(finding))).collect()
}

fn simulated(scenario: &Scenario, world_size: u32, repaired: bool) -> Report {
    let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
    let plan = scenario.plan(&options).unwrap_or_else(|error| panic!("{}: {error}", scenario.id));
    let trace = simulate(&plan, &SimConfig::default());
    diagnose_trace(&trace.unwrap_or_else(|error| panic!("{}: {error}", scenario.id)))
}

#[test]
fn the_gallery_and_the_promises_are_the_same_scenarios() {
    let scenarios: Vec<&str> = scenario::all().iter().map(|scenario| scenario.id).collect();
    let promises: Vec<&str> = PROMISES.iter().map(|promise| promise.id).collect();
    assert_eq!(scenarios, promises);
}

#[test]
fn simulated_every_scenario_has_its_finding_and_no_other() {
    for scenario in scenario::all() {
        let promise = promised(scenario);
        for world_size in [scenario.min_world_size, scenario.min_world_size.max(4), 8] {
            let report = simulated(scenario, world_size, false);
            let expected: Vec<_> = (promise.culprits)(world_size)
                .into_iter()
                .map(|culprits| (promise.kind, culprits))
                .collect();
            assert_eq!(found(&report), expected, "{} {world_size}: {report:#?}", scenario.id);
        }
    }
}

#[test]
fn simulated_every_repaired_scenario_is_healthy() {
    for scenario in scenario::all() {
        for world_size in [scenario.min_world_size, 8] {
            let report = simulated(scenario, world_size, true);
            let id = scenario.id;
            assert_eq!(report.verdict, Verdict::Healthy, "{id} {world_size}: {report:#?}");
        }
    }
}

fn run_for_real(scenario: &Scenario, repaired: bool) -> Report {
    let world_size = scenario.min_world_size.max(4).to_string();
    let mut words = vec!["run", scenario.id, "--world-size", &world_size, "--json"];
    words.extend(repaired.then_some("--repaired"));
    let output = lockstep(&words);
    let json: serde_json::Value = serde_json::from_str(&output.out)
        .unwrap_or_else(|error| panic!("{}: {error}: {output:?}", scenario.id));
    serde_json::from_value(json["findings"].clone()).expect("a report")
}

/// Processes of this machine come to what the simulator comes to: the host backend carries out
/// everything that the gallery does. How late a slow rank is cannot be promised of a machine that
/// may be busy otherwise, only that nobody else is blamed.
#[test]
fn run_for_real_every_scenario_has_its_finding_and_no_other() {
    for scenario in scenario::all() {
        let promise = promised(scenario);
        let report = run_for_real(scenario, false);
        let expected: Vec<_> = (promise.culprits)(scenario.min_world_size.max(4))
            .into_iter()
            .map(|culprits| (promise.kind, culprits))
            .collect();
        let found = found(&report);
        let unpromised = promise.kind == Kind::Straggler && found.is_empty();
        assert!(unpromised || found == expected, "{}: {report:#?}", scenario.id);
    }
}

#[test]
fn run_for_real_every_repaired_scenario_is_healthy() {
    for scenario in scenario::all() {
        let report = run_for_real(scenario, true);
        assert_eq!(report.verdict, Verdict::Healthy, "{}: {report:#?}", scenario.id);
    }
}
