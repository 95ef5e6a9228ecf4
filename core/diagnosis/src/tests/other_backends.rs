//! Dumps as torch 2.15 records them of NCCL's newer backends and of those that are made like it. Derived from
//! gloo's real dumps: the hook that records both writes the same fields, lists each group's members, names no
//! peers, and never says `started`.

use super::*;
use crate::Verdict;
use lockstep_core::rank::GlobalRank;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The dumps of a recorded case as another backend's: each group with the members that gloo's dumps make out.
fn as_backend(case: &str, backend: &str) -> Vec<(String, Vec<u8>)> {
    let folder = cases().join(case).join("json");
    let mut dumps: Vec<(u32, Value)> = files(&folder)
        .into_iter()
        .map(|(name, bytes)| {
            let rank = name.trim_start_matches("rank_").trim_end_matches(".json").parse().unwrap();
            (rank, serde_json::from_slice(&bytes).unwrap())
        })
        .collect();
    let files = files(&folder);
    let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let groups = read_files(files).unwrap().merged.log.groups;
    for (rank, dump) in &mut dumps {
        let own = groups.iter().filter(|group| group.group_rank(GlobalRank(*rank)).is_some());
        let listed: BTreeMap<&str, Value> = own
            .map(|group| {
                let ranks: Vec<u32> = group.ranks().iter().map(|rank| rank.0).collect();
                let ranks = format!("{ranks:?}");
                (group.name(), json!({"name": group.name(), "desc": group.desc(), "ranks": ranks}))
            })
            .collect();
        dump["pg_config"] = json!(listed);
        for entry in dump["entries"].as_array_mut().unwrap() {
            let name =
                entry["profiling_name"].as_str().unwrap().replace("gloo:", &format!("{backend}:"));
            entry["profiling_name"] = name.into();
        }
    }
    let written = dumps.into_iter().map(|(rank, dump)| {
        (format!("comm_lib_trace_rank_{rank}.json"), serde_json::to_vec(&dump).unwrap())
    });
    written.collect()
}

/// Changes every entry of every dump.
fn change(files: &mut [(String, Vec<u8>)], mut change: impl FnMut(u32, &mut Value)) {
    for (name, bytes) in files {
        let rank = name.trim_end_matches(".json").rsplit('_').next().unwrap().parse().unwrap();
        let mut dump: Value = serde_json::from_slice(bytes).unwrap();
        for entry in dump["entries"].as_array_mut().unwrap() {
            change(rank, entry);
        }
        *bytes = serde_json::to_vec(&dump).unwrap();
    }
}

/// A mistake is found under the backend's name as under gloo's.
#[test]
fn newer_nccl_backends_are_judged_as_nccl() {
    for backend in ["nccl2", "nccl-lazy"] {
        for (case, truth) in TRUTHS.iter().filter(|(case, _)| case.starts_with("t215")) {
            let report = report(&as_backend(case, backend));
            let culprits: Vec<_> = found(&report).into_iter().map(|(_, ranks)| ranks).collect();
            let truth: Vec<_> = truth.iter().map(|(_, ranks)| ranks.to_vec()).collect();
            assert_eq!(culprits, truth, "{backend} {case}: {}", report.to_text());
        }
        let healthy = report(&as_backend("t215_healthy", backend));
        assert_eq!(healthy.verdict, Verdict::Healthy, "{}", healthy.to_text());
    }
}

/// torch retires calls of other backends when they are issued: that everything was retired is no evidence that
/// it ended, and a rank that was left out is still found.
#[test]
fn what_is_retired_when_it_is_issued_need_not_have_ended() {
    for backend in ["ncclx", "rccl", "hccl", "xccl"] {
        let issued = |case: &str| {
            let mut files = as_backend(case, backend);
            change(&mut files, |_, entry| entry["retired"] = true.into());
            report(&files)
        };
        let healthy = issued("t215_healthy");
        assert_eq!((healthy.verdict, found(&healthy)), (Verdict::Inconclusive, vec![]));
        assert!(
            healthy.unseen.iter().any(|why| why.contains("retires calls when they are issued"))
        );
        for (case, culprits) in [
            ("t215_never_arrives", vec![3]),
            ("t215_skip_allreduce_diff_size", vec![2]),
            ("t215_size_mismatch", vec![2]),
        ] {
            let report = issued(case);
            let blamed: Vec<_> = found(&report).into_iter().map(|(_, ranks)| ranks).collect();
            assert_eq!(blamed, [culprits], "{backend} {case}: {}", report.to_text());
        }
    }
}

/// A watchdog that sees calls end retires those that it gave up as well: they have not ended.
#[test]
fn a_watched_call_that_was_retired_without_its_end_failed() {
    for last in ["scheduled", "started"] {
        let mut files = as_backend("t215_never_arrives", "nccl");
        change(&mut files, |_, entry| {
            let created = entry["time_created_ns"].as_u64().unwrap();
            if entry["retired"] == true {
                entry["state"] = "completed".into();
                entry["time_discovered_completed_ns"] = (created + 1_000_000).into();
            } else {
                entry["state"] = last.into();
                entry["retired"] = true.into();
            }
        });
        let report = report(&files);
        assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![3])], "{}", report.to_text());
    }
}

/// The hook names no peer. In a group of two there is one other rank; elsewhere nobody is blamed for it.
#[test]
fn sends_and_receives_without_a_peer() {
    let entry = |seq: u64, op: &str, group: &str, retired: bool| {
        json!({
            "record_id": seq - 1, "pg_id": 0, "process_group": [group, "default_pg"], "collective_seq_id": 0,
            "p2p_seq_id": seq, "profiling_name": format!("nccl2:{op}"), "time_created_ns": 1_000_000_000 + seq,
            "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
            "state": "scheduled", "retired": retired, "timeout_ms": 600_000, "is_p2p": true
        })
    };
    let dump = |size: u32, entries: Vec<Value>| {
        let ranks = format!("{:?}", (0..size).collect::<Vec<_>>());
        let groups = json!({"0": {"name": "0", "desc": "default_pg", "ranks": ranks}});
        serde_json::to_vec(&json!({"version": "2.10", "pg_config": groups, "entries": entries}))
            .unwrap()
    };
    let files = |size: u32, own: [Vec<Value>; 2]| {
        let of = own.into_iter().zip(0u32..);
        let mut files: Vec<_> = of
            .map(|(entries, rank)| {
                (format!("comm_lib_trace_rank_{rank}.json"), dump(size, entries))
            })
            .collect();
        let idle =
            (2..size).map(|rank| (format!("comm_lib_trace_rank_{rank}.json"), dump(size, vec![])));
        files.extend(idle);
        files
    };
    let both_receive = || {
        [
            vec![entry(1, "recv", "0", false), entry(2, "send", "0", false)],
            vec![entry(1, "recv", "0", false), entry(2, "send", "0", false)],
        ]
    };
    let two = report(&files(2, both_receive()));
    assert_eq!(found(&two), [(Kind::P2pDeadlock, vec![0, 1])], "{}", two.to_text());
    let three = report(&files(3, both_receive()));
    let blamed: BTreeSet<u32> = found(&three).into_iter().flat_map(|(_, ranks)| ranks).collect();
    assert_eq!((blamed.len(), three.verdict), (0, Verdict::Inconclusive), "{}", three.to_text());
}
