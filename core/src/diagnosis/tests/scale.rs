//! A thousand ranks with two thousand calls each; run by hand, in release.

#![allow(clippy::disallowed_types, reason = "it measures")]

use super::found;
use crate::diagnosis::{Kind, diagnose_trace};
use crate::dtype::Dtype;
use crate::flight_recorder::{Dump, Entry, Form, trace_of};
use crate::rank::GlobalRank;
use crate::trace::{Frame, TensorShape};
use std::sync::Arc;

fn entry(
    group: &Arc<str>,
    name: &Arc<str>,
    stack: &Arc<[Frame]>,
    at: u64,
    completed: bool,
) -> Entry {
    let shape = TensorShape { shape: vec![1024, at % 64 + 1], dtype: Dtype::Bfloat16 };
    Entry {
        record_id: Some(at),
        pg_id: 0,
        group: Some(group.clone()),
        group_desc: Arc::from("default_pg"),
        collective_seq: Some(at + 1),
        p2p_seq: Some(0),
        profiling_name: name.clone(),
        created_ns: 1_700_000_000_000_000_000 + at * 1_000_000,
        started_ns: None,
        completed_ns: completed.then_some(1_700_000_000_000_500_000 + at * 1_000_000),
        inputs: vec![shape.clone()],
        outputs: vec![shape],
        started: completed,
        completed,
        timeout_ms: Some(600_000),
        p2p: false,
        stack: stack.clone(),
    }
}

#[test]
#[ignore = "takes gigabytes; run in release"]
fn a_thousand_ranks() {
    let world: u32 = std::env::var("LOCKSTEP_RANKS").map_or(256, |n| n.parse().unwrap());
    let (group, name): (Arc<str>, Arc<str>) = (Arc::from("0"), Arc::from("nccl:all_reduce"));
    let frame = |n: u32| Frame {
        function: format!("function_{n}"),
        file: format!("/srv/train/model_{n}.py"),
        line: n,
    };
    let stack: Arc<[Frame]> = (0..8).map(frame).collect();
    let dumps: Vec<Dump> = (0..world)
        .map(|rank| {
            let calls = if rank == 77 { 1990 } else { 2000 };
            Dump {
                file_name: format!("rank_{rank}"),
                rank: GlobalRank(rank),
                form: Form::Pickle,
                version: Some("2.10".into()),
                groups: vec![],
                entries: (0..calls).map(|at| entry(&group, &name, &stack, at, at < 1990)).collect(),
                bytes: 600_000,
            }
        })
        .collect();
    let start = std::time::Instant::now();
    let trace = trace_of(dumps).unwrap();
    eprintln!("merged in {:?}", start.elapsed());
    let start = std::time::Instant::now();
    let report = diagnose_trace(&trace);
    eprintln!("diagnosed in {:?}", start.elapsed());
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![77])], "{}", report.to_text());
}
