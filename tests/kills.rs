//! The service killed at random, with a run under way: no process, socket, shared memory or
//! half-made file is left, and the next service reads the run's trace as far as it had come.
//!
//! `LOCKSTEP_KILL_ROUNDS` and `LOCKSTEP_KILL_SEED` say how often, and which moments.

#[path = "../gpu-exec/tests/host/left_behind.rs"]
mod left_behind;

use left_behind::{MARK, Random, from_environment, listening, marked, names_of, sockets_of};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Trace;
use lockstep_tests::{Patience, Service};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Some ten seconds of test.
const DEFAULT_ROUNDS: u64 = 20;

/// The request that is sent to the service: a run that goes on until somebody ends it.
fn long_run(sharing: &str) -> Value {
    let mut plan = PlanBuilder::new("long", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 1000, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..5000 {
            program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
            program.compute("work", 5_000_000);
        }
    });
    let plan: Value = serde_json::from_str(&plan.unwrap().to_json()).unwrap();
    json!({ "plan": plan, "sharing": sharing })
}

/// The files in the service's folder, and below.
fn files_in(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            names.append(&mut files_in(&entry.path()));
        }
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names
}

#[test]
fn a_killed_service_leaves_nothing_but_the_trace() {
    let seed = from_environment("LOCKSTEP_KILL_SEED", 0x5EED_5E12).max(1);
    let rounds = from_environment("LOCKSTEP_KILL_ROUNDS", DEFAULT_ROUNDS);
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let (mut runs, mut events, mut newest_id) = (0u64, 0, 0);
    for round in 0..rounds {
        let mark = format!("{}-service-{round}", std::process::id());
        let service = Service::start_marked(folder.path(), &[(MARK, &mark)]);
        let pid = service.pid();
        let sharing = ["file_descriptor", "file_system"][random.below(2) as usize];
        // Some kills come while the run is being started, which nobody waits for.
        let early = random.below(4) == 0;
        let moment = Duration::from_millis(random.below(if early { 60 } else { 200 }));
        let mut asked = None;
        if early {
            asked = Some(service.post_unheard("api/runs", &long_run(sharing)));
        } else {
            let answer = service.post("api/runs", &long_run(sharing));
            assert_eq!(answer.status, 201, "round {round}: {}", answer.error());
        }
        std::thread::sleep(moment);
        let processes = marked(&mark);
        assert!(early || processes.len() >= 4, "round {round}: {processes:?}");
        let listened: BTreeSet<u64> = processes.iter().flat_map(|pid| sockets_of(*pid)).collect();
        service.crash();
        drop(asked);
        Patience::until("every process of the round to go", || {
            marked(&mark).is_empty().then_some(())
        });
        // A process that ends gives up its environment before its sockets.
        Patience::until("every socket of the round to close", || {
            listening().is_disjoint(&listened).then_some(())
        });
        let left = names_of(pid);
        assert!(left.is_empty(), "round {round}: {left:?} in /dev/shm");

        let next = Service::start_in(folder.path());
        let halves: Vec<_> =
            files_in(folder.path()).into_iter().filter(|name| name.contains("incoming")).collect();
        assert!(halves.is_empty(), "round {round}: {halves:?}");
        let list = next.get("api/runs").json();
        // By number: the list keeps only so many.
        let newest = list.as_array().unwrap().first().cloned();
        let Some(run) = newest.filter(|run| run["id"].as_u64() > Some(newest_id)) else {
            assert!(early, "round {round}: the run is not in the list");
            assert_eq!(next.stop(), Some(0));
            continue;
        };
        newest_id = run["id"].as_u64().unwrap();
        runs += 1;
        assert_eq!(run["state"], "interrupted", "round {round}: {run}");
        let answer = next.get(&format!("api/runs/{}/trace", run["id"]));
        // A kill may come between listing the run and making its file, before anybody was told.
        if early && answer.status == 410 {
            assert_eq!(next.stop(), Some(0));
            continue;
        }
        assert_eq!(answer.status, 200, "round {round}");
        // A kill may come between making the file and writing its head.
        if !answer.body.is_empty() {
            let trace = Trace::from_bytes(&answer.body).unwrap_or_else(|error| {
                panic!("round {round}: {error}");
            });
            assert_eq!(trace.end, None, "round {round}");
            events += usize::from(!trace.events.is_empty());
        }
        assert_eq!(next.stop(), Some(0));
    }
    println!("{rounds} rounds, seed {seed:#x}: {runs} runs, {events} with events");
    assert!(runs * 2 > rounds && events > 0, "{runs} runs, {events} with events");
}
