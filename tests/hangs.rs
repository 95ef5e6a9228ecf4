//! The gallery of hangs: every scenario's program, simulated and run for real, comes to the finding
//! that its text promises, and blames nobody else; repaired, it is healthy.

use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::Stop;
use lockstep_core::trace::{CallLog, Event, Origin, Outcome, What};
use lockstep_diagnosis::{
    Certainty, Kind, Report, Verdict, diagnose_files, diagnose_recording, diagnose_trace,
};
use lockstep_formats::flight_recorder::{dumps_of, read_files};
use lockstep_formats::recording::{Piece, Sources};
use lockstep_program::{compile, scenario_plan};
use lockstep_replay::{RecordingEnd, python_program, recover};
use lockstep_scenarios::program::Options;
use lockstep_scenarios::{Scenario, ScenarioOptions};
use lockstep_sim::{Session, SimConfig, simulate};
use lockstep_tests::lockstep;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The promise of a scenario's text: the kind of finding, and the culprits in a world of so many
/// ranks. Several findings have one line each.
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
    promise("new-group-on-members-only", Kind::GroupDeadlock, |world| vec![(2..world).collect()]),
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
    let ranks = |finding: &lockstep_diagnosis::Finding| {
        finding.culprits.iter().map(|rank| rank.0).collect()
    };
    report.findings.iter().map(|finding| (finding.kind, ranks(finding))).collect()
}

fn simulated(scenario: &Scenario, world_size: u32, repaired: bool) -> Report {
    let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
    let plan = scenario_plan(scenario, &options)
        .unwrap_or_else(|error| panic!("{}: {error}", scenario.id));
    let trace = simulate(&plan, &SimConfig::default());
    diagnose_trace(&trace.unwrap_or_else(|error| panic!("{}: {error}", scenario.id)))
}

#[test]
fn the_gallery_and_the_promises_are_the_same_scenarios() {
    let scenarios: Vec<&str> =
        lockstep_scenarios::all().iter().map(|scenario| scenario.id).collect();
    let promises: Vec<&str> = PROMISES.iter().map(|promise| promise.id).collect();
    assert_eq!(scenarios, promises);
}

#[test]
fn simulated_every_scenario_has_its_finding_and_no_other() {
    for scenario in lockstep_scenarios::all() {
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

/// The scenarios whose evidence dumps lack: roots, reductions, tags, and when a device began are
/// not in them, nor why a rank made no more calls; and among calls that are all alike the missing
/// one cannot be seen.
const OF_DUMPS: &[(&str, Option<Kind>)] = &[
    ("skipped-all-reduce", Some(Kind::LoopShorter)),
    ("one-batch-less", Some(Kind::RankNeverJoined)),
    ("ddp-uneven-inputs", Some(Kind::LoopShorter)),
    ("unused-on-one-rank", Some(Kind::RankNeverJoined)),
    ("caught-exception", Some(Kind::LoopShorter)),
    ("out-of-memory", Some(Kind::RankNeverJoined)),
    ("throttled-gpu", None),
    ("early-stopping", Some(Kind::RankNeverJoined)),
    ("expert-without-tokens", Some(Kind::LoopShorter)),
    ("best-rank-broadcast", Some(Kind::CallNeverCompleted)),
    ("sum-or-mean", Some(Kind::CallNeverCompleted)),
    ("new-group-on-members-only", Some(Kind::RankNeverJoined)),
    ("wrong-tag", Some(Kind::CallNeverCompleted)),
    ("ddp-different-order", Some(Kind::RankNeverJoined)),
    ("no-sync-out-of-step", Some(Kind::LoopShorter)),
];

/// The findings from a job's dumps are those of its simulation, as far as dumps hold them; the same
/// ranks are blamed, or nobody.
#[test]
fn recorded_every_scenario_has_its_finding_as_far_as_dumps_tell() {
    for scenario in lockstep_scenarios::all() {
        let promise = promised(scenario);
        for world_size in [scenario.min_world_size.max(4), 8] {
            let options = ScenarioOptions { world_size, ..ScenarioOptions::default() };
            let plan = scenario_plan(scenario, &options).unwrap();
            let trace = simulate(&plan, &SimConfig::default()).unwrap();
            let dumps = dumps_of(&CallLog::of(&trace), trace.header.epoch_ns).into_iter();
            let dumps: Vec<_> =
                dumps.map(|dump| (dump.file_name.clone(), dump.to_pickle())).collect();
            let files = dumps.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
            let report = diagnose_recording(&read_files(files).unwrap());
            let kind = OF_DUMPS.iter().find(|(id, _)| *id == scenario.id);
            let kind = kind.map_or(Some(promise.kind), |(_, kind)| *kind);
            let culprits = (promise.culprits)(world_size).into_iter();
            let expected: Vec<_> = match kind {
                Some(Kind::CallNeverCompleted) => vec![(Kind::CallNeverCompleted, Vec::new())],
                Some(kind) => culprits.map(|culprits| (kind, culprits)).collect(),
                None => Vec::new(),
            };
            assert_eq!(found(&report), expected, "{} {world_size}: {report:#?}", scenario.id);
        }
    }
}

#[test]
fn simulated_every_repaired_scenario_is_healthy() {
    for scenario in lockstep_scenarios::all() {
        for world_size in [scenario.min_world_size, 8] {
            let report = simulated(scenario, world_size, true);
            let id = scenario.id;
            assert_eq!(report.verdict, Verdict::Healthy, "{id} {world_size}: {report:#?}");
        }
    }
}

/// The chapters of every story are met, one after the other: nobody is sent back.
#[test]
fn the_chapters_of_every_story_come_in_order() {
    let mut wrong = Vec::new();
    for scenario in lockstep_scenarios::all() {
        let id = scenario.id;
        // As the page shows it.
        let world_size = scenario.min_world_size.max(4);
        let options = ScenarioOptions { world_size, ..ScenarioOptions::default() };
        let plan = scenario_plan(scenario, &options).unwrap();
        let mut session = Session::new(&plan, SimConfig::default()).unwrap();
        session.run_to_end().unwrap();
        let stops: Vec<Stop> =
            scenario.chapters.iter().map(|chapter| chapter.stop.parse().unwrap()).collect();
        let moments = session.follow_stops(&plan, &stops);
        let met: Option<Vec<usize>> = moments.iter().copied().collect();
        if !met.is_some_and(|met| met.is_sorted()) {
            wrong.push(format!("{id}: {stops:?} are met at {moments:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A real run is ended as soon as a rank dies: whoever had not come to the next call by then is
/// not blamed for it, wherever the others were.
#[test]
fn whoever_was_on_the_way_when_a_rank_died_is_not_blamed() {
    let mut cut = 0;
    for scenario in lockstep_scenarios::all() {
        let world_size = scenario.min_world_size.max(4);
        let options = ScenarioOptions { world_size, ..ScenarioOptions::default() };
        let plan = scenario_plan(scenario, &options).unwrap();
        let whole = simulate(&plan, &SimConfig::default()).unwrap();
        let end = whole.end.clone().unwrap();
        let died = |event: &Event| matches!(event.what, What::Died { .. });
        let Outcome::RankDied { rank, .. } = &end.outcome else { continue };
        let death = whole.events.iter().position(died).unwrap();
        let completed =
            |event: &Event| event.rank == *rank && matches!(event.what, What::Completed { .. });
        // What it saw complete had everybody's call; after that the others may be anywhere.
        let together = whole.events[..death].iter().rposition(completed).map_or(0, |at| at + 1);
        for first in (together..=whole.events.len()).step_by(whole.events.len() / 64 + 1) {
            let mut trace = whole.clone();
            trace.header.origin = Origin::Run { backend: "host".into(), device: "a test".into() };
            let kept = |(at, event): (usize, &Event)| {
                (at < first || (event.rank == *rank && at <= death)).then(|| event.clone())
            };
            trace.events = whole.events.iter().enumerate().filter_map(kept).collect();
            let report = diagnose_trace(&trace);
            let blamed = report.findings.iter().flat_map(|finding| &finding.culprits);
            let blamed: Vec<_> = blamed.collect();
            assert_eq!(blamed, [rank], "{} at {first}: {report:#?}", scenario.id);
            cut += 1;
        }
    }
    assert!(cut > 20, "{cut} traces");
}

/// Nobody is the victim of a rank that raised as it did itself.
#[test]
fn ranks_that_raise_alike_are_blamed_alike() {
    let text = "
def main():
    dist.init_process_group('gloo')
    dist.barrier()
    dist.broadcast(tensor(4), src=9)
run(main, world_size=4)
";
    let plan = compile("train.py", text, &Options::default()).unwrap().plan;
    let report = diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap());
    assert_eq!(found(&report), [(Kind::RankDied, vec![0, 1, 2, 3])], "{report:#?}");
    let evidence: Vec<_> = report.findings[0].evidence.iter().map(|it| it.rank.0).collect();
    assert_eq!(evidence, [0, 1, 2, 3]);
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
    // Beside each other: nearly all of their time is a timeout that passes.
    let next = AtomicUsize::new(0);
    let some = || {
        while let Some(scenario) =
            lockstep_scenarios::all().get(next.fetch_add(1, Ordering::Relaxed))
        {
            assert_finding_of_a_run(scenario);
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(some))));
}

fn assert_finding_of_a_run(scenario: &Scenario) {
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

#[test]
fn run_for_real_every_repaired_scenario_is_healthy() {
    for scenario in lockstep_scenarios::all() {
        let report = run_for_real(scenario, true);
        assert_eq!(report.verdict, Verdict::Healthy, "{}: {report:#?}", scenario.id);
    }
}

/// A rank that leaves a call out and waits in a later call of another group closes a circle; what
/// is told is the call that it left out, not the circle.
#[test]
fn a_call_left_out_before_a_barrier_is_told_as_that() {
    let report = |backend: &str, members: &str, bug: &str| {
        let text = format!(
            "def main():
    dist.init_process_group('{backend}', timeout=seconds(30))
    rank = dist.get_rank()
    dp = dist.new_group({members})
    grad = tensor(4096, fill=rank)
    for step in range(8):
        compute('forward', us=800)
        if rank in {members} and {bug}:
            dist.all_reduce(grad, group=dp)
    dist.barrier()
run(main, world_size=4)
"
        );
        let plan = compile("train.py", &text, &Options::default()).unwrap().plan;
        diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap())
    };
    for backend in ["gloo", "nccl"] {
        for members in ["[0, 1, 2, 3]", "[0, 1, 2]"] {
            for (bug, kind) in [
                ("(rank != 2 or step != 5)", Kind::OpSkipped),
                ("(rank != 2 or step < 6)", Kind::LoopShorter),
            ] {
                let found = report(backend, members, bug);
                let [finding] = &found.findings[..] else { panic!("{found:#?}") };
                let culprits: Vec<u32> = finding.culprits.iter().map(|rank| rank.0).collect();
                // The last rounds left out look like calls left out.
                let kinds = [kind, Kind::OpSkipped];
                assert!(kinds.contains(&finding.kind), "{backend} {members} {bug}: {finding:#?}");
                assert_eq!(culprits, [2], "{backend} {members} {bug}: {finding:#?}");
                assert!(!finding.message.contains("new_group"), "{}", finding.message);
            }
        }
    }
}

/// DDP takes rank 0's buckets on all ranks: one that has joined too, although it saw no gradient.
#[test]
fn a_rank_without_inputs_joins_in_rank_0s_buckets() {
    for batches in ["0 if rank == 1 else 3", "1 if rank == 0 else 3", "0 if rank == 0 else 3"] {
        let text = format!(
            "def main():
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    model = DDP(models.mlp([700, 300, 800, 20, 900, 10]), bucket_cap_mb=1)
    batches = {batches}
    with model.join():
        for step in range(batches):
            model(None).sum().backward()
run(main, world_size=2)
"
        );
        let plan = compile("train.py", &text, &Options::default()).unwrap().plan;
        let trace = simulate(&plan, &SimConfig::default()).unwrap();
        let outcome = trace.end.as_ref().map(|end| &end.outcome);
        let findings = diagnose_trace(&trace).findings;
        assert_eq!(outcome, Some(&Outcome::Completed), "{batches}: {findings:#?}");
    }
}

/// Programs that wait in stores in vain: the finding is about the store, and names who is to blame
/// and both lines.
#[test]
fn waits_in_stores_are_told_as_what_they_are() {
    let cases: [(&str, &[u32], &[&str]); 7] = [
        (
            "store = dist.TCPStore('localhost', 29500, 2, rank == 0, timeout = seconds(1))
if rank == 0:
    time.sleep(3)
    store.set('k', 'v')
else:
    store.get('k')",
            &[0],
            &["Rank 0 (p:6) sets \"k\" only 2000 ms after", "rank 1", "(p:8)", "keys: /k"],
        ),
        (
            "store = dist.PrefixStore('job%d' % rank, dist.FileStore('f'))
dist.init_process_group('gloo', store = store, rank = rank, world_size = 2)",
            &[0, 1],
            &["rank 0 in FileStore \"f\" under \"job0\", rank 1 in", "(p:4)", "Wait timeout"],
        ),
        (
            "store = dist.FileStore('f%d' % (rank // 2))
dist.init_process_group('gloo', store = store, rank = rank, world_size = 3)",
            &[2],
            &["ranks 0-1 in FileStore \"f0\", rank 2 in FileStore \"f1\""],
        ),
        (
            "store = dist.FileStore('f')
if rank == 0:
    store.wait(['b'])
    store.set('a', '1')
else:
    store.wait(['a'])
    store.set('b', '1')",
            &[0, 1],
            &[
                "in a circle",
                "for \"b\" (p:5), which rank 1 (p:9)",
                "for \"a\" (p:8), which rank 0 (p:6)",
            ],
        ),
        (
            "dist.init_process_group('gloo', timeout = seconds(3))
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    store.get('cfg')
dist.barrier()
if rank == 1:
    store.set('cfg', '1')",
            &[1],
            &["Rank 0 waits in store.get", "(p:6), which rank 1 (p:9) would set"],
        ),
        (
            "store = dist.FileStore('f')
if rank != 2:
    store.add('c', 1)
while store.add('c', 0) < 3:
    time.sleep(0.1)",
            &[0, 1, 2],
            &["\"c\" in a loop until it has come to 3 (p:6), and it comes to 2"],
        ),
        (
            "store = dist.FileStore('f')
if rank == 0:
    while not store.check(['go']):
        time.sleep(0.1)",
            &[0],
            &["Rank 0 asks for \"go\" in a loop (p:5), which does not come"],
        ),
    ];
    for (body, culprits, words) in cases {
        let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
        let world_size = if body.contains("// 2") || body.contains("!= 2") { 3 } else { 2 };
        let text = format!(
            "def main():\n    rank = int(os.environ['RANK'])\n{lines}run(main, world_size = {world_size})\n"
        );
        let compiled = compile("p", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let trace = simulate(&compiled.plan, &SimConfig::default()).unwrap();
        let report = diagnose_trace(&trace);
        let [finding] = &report.findings[..] else { panic!("{text}{}", report.to_text()) };
        assert_eq!(finding.kind, Kind::StoreWait, "{text}{}", report.to_text());
        let named: Vec<u32> = finding.culprits.iter().map(|rank| rank.0).collect();
        assert_eq!(named, culprits, "{text}{}", report.to_text());
        for word in words {
            assert!(finding.message.contains(word), "{word}: {}", finding.message);
        }
    }
}

/// In a group of two no majority tells whose program is wrong. What a rank has always done before may;
/// else either may be, and nothing is certain.
#[test]
fn of_two_in_a_group_either_may_be() {
    for backend in ["gloo", "nccl"] {
        let report = |left_out: &str| {
            let text = format!(
                "def main():
    dist.init_process_group('{backend}', timeout=minutes(5))
    rank = dist.get_rank()
    x = tensor(64)
    train = dist.new_group([0, 1], group_desc='train')
    for step in range(4):
        if rank < 2 and not (rank == 1 and {left_out}):
            dist.all_reduce(x, group=train)
        dist.all_reduce(x)
    dist.barrier()
run(main, world_size=3)
"
            );
            let plan = compile("train.py", &text, &Options::default()).unwrap().plan;
            diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap())
        };
        let broken = report("step == 2");
        assert_eq!(found(&broken), [(Kind::OpSkipped, vec![1])], "{backend}: {broken:#?}");
        assert_eq!(broken.findings[0].certainty, Certainty::Likely);
        let never = report("step >= 0");
        assert_eq!(found(&never), [(Kind::GroupDeadlock, vec![0, 1])], "{backend}: {never:#?}");
        assert_eq!(never.findings[0].certainty, Certainty::Undecidable);
        let said = &never.findings[0].message;
        assert!(said.contains("4 calls by rank 0, 0 calls by rank 1"), "{backend}: {said}");
    }
}

/// gloo compares no roots: what it does is said with the mismatch.
#[test]
fn what_gloo_does_with_two_roots_is_said() {
    let text = "
def main():
    dist.init_process_group('gloo')
    dist.broadcast(tensor(4), src=1 if dist.get_rank() == 1 else 0)
run(main, world_size=4)
";
    let plan = compile("train.py", text, &Options::default()).unwrap().plan;
    let report = diagnose_trace(&simulate(&plan, &SimConfig::default()).unwrap());
    assert_eq!(found(&report), [(Kind::RootMismatch, vec![1])], "{report:#?}");
    let said = &report.findings[0].message;
    assert!(said.contains("gloo itself does not compare roots"), "{said}");
}

/// The first finding of a plan, simulated.
fn first_found(plan: &Plan) -> Option<(Kind, Vec<u32>)> {
    found(&diagnose_trace(&simulate(plan, &SimConfig::default()).unwrap())).into_iter().next()
}

/// Every call of a rank: its name, its group's members, its elements.
fn calls(plan: &Plan, rank: u32) -> Vec<(&'static str, Vec<GlobalRank>, u64)> {
    let ops = &plan.program(GlobalRank(rank)).unwrap().ops;
    let calls = ops.iter().flat_map(|op| op.action.calls());
    let told = calls.map(|call| {
        let members = plan.group(call.group()).unwrap().ranks().to_vec();
        let tensor = call.tensors().into_iter().flatten().last();
        let elements = tensor.and_then(|id| plan.tensor(id)).map_or(0, |tensor| tensor.numel);
        (call.name(), members, elements)
    });
    told.collect()
}

/// A hang's plan, written as a program, makes the same calls, and the same ranks are to blame. Some plans do what has
/// no word. The kind is another one where it rests on lines, or on what DDP calls: a loop that one rank leaves early
/// has a line for it now, and a bucket is a plain all_reduce.
#[test]
fn scenarios_are_written_as_programs() {
    let mut written = 0;
    let mut other_kinds = Vec::new();
    for scenario in lockstep_scenarios::all() {
        let world_size = scenario.min_world_size.max(4);
        let options = ScenarioOptions { world_size, ..ScenarioOptions::default() };
        let plan = scenario_plan(scenario, &options).unwrap();
        let Ok(text) = python_program(&plan) else { continue };
        written += 1;
        let again = compile("again.py", &text, &Options::default());
        let again = again.unwrap_or_else(|error| panic!("{}: {error:?}\n{text}", scenario.id)).plan;
        for rank in 0..plan.world_size {
            assert_eq!(calls(&plan, rank), calls(&again, rank), "{}\n{text}", scenario.id);
        }
        let (Some((kind, culprits)), Some((again, same))) =
            (first_found(&plan), first_found(&again))
        else {
            panic!("{}\n{text}", scenario.id);
        };
        assert_eq!(culprits, same, "{}\n{text}", scenario.id);
        if kind != again {
            other_kinds.push(scenario.id);
        }
    }
    assert!(written >= 20, "{written} are written");
    assert_eq!(other_kinds, ["one-batch-less", "ddp-uneven-inputs", "early-stopping"]);
}

/// A recorded job, written as a program, ends as its replay does, but for two whose findings rest on lines, and two
/// with a slow rank: a program is no recording, whose gaps keep a replay from being judged.
#[test]
fn recordings_are_written_as_programs() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flight-recorder-jobs");
    let mut otherwise = Vec::new();
    let mut all = 0;
    for case in std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()) {
        if !case.is_dir() {
            continue;
        }
        let mut sources = Sources::default();
        for path in std::fs::read_dir(&case).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            sources.take(Piece::read(name, &std::fs::read(&path).unwrap()));
        }
        let Ok(job) = diagnose_files(sources) else { continue };
        let Some(calls) = job.calls else { continue };
        let Ok(recovered) = recover("job", &calls.log, RecordingEnd::of(&job.report)) else {
            continue;
        };
        let text = python_program(&recovered.plan).unwrap();
        let again = compile("job.py", &text, &Options::default());
        let again =
            again.unwrap_or_else(|error| panic!("{}: {error:?}\n{text}", case.display())).plan;
        all += 1;
        if first_found(&recovered.plan) != first_found(&again) {
            otherwise.push(case.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    otherwise.sort();
    assert!(all >= 40, "{all}");
    assert_eq!(otherwise, ["rotated", "slow_two", "two_smaller"]);
}
