//! Every recorded case: replayed by [`cases`](super::cases) and compared rank by rank, or listed
//! there with the reason why not.

use super::cases::{self, Expect, Out};
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{TensorValue, Trace, What};
use lockstep_diagnosis::diagnose_trace;
use lockstep_sim::{SimConfig, simulate};
use lockstep_torch::c10d::{DistError, ErrorKind, Job, Tensor};
use serde_json::Value;
use std::collections::BTreeSet;

/// The end of a rank.
#[derive(Debug)]
enum Got {
    /// Its script ended.
    Ok(Value),
    /// A call was refused.
    Raised(DistError),
    /// It waits until the timeout.
    Hangs,
}

#[test]
fn every_recorded_case_is_replayed_or_listed_with_a_reason() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/errors.json");
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let recorded = recorded["cases"].as_object().unwrap();
    let mut known = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, reason) in cases::NOT_REPLAYED {
        assert!(recorded.contains_key(*name), "{name} is not recorded");
        assert!(reason.len() > 20 && known.insert(*name), "{name}");
    }
    for case in cases::all() {
        let found =
            &recorded.get(case.name).unwrap_or_else(|| panic!("{} is not recorded", case.name));
        assert!(known.insert(case.name), "{} is listed twice", case.name);
        let world_size = found["world_size"].as_u64().unwrap() as u32;
        let (got, findings) = replay(&case, world_size);
        let silent = matches!(case.expect, Expect::Differs { .. } | Expect::ButGoesOn { .. })
            && !got.iter().any(|got| matches!(got, Got::Raised(_)));
        if silent && !findings {
            wrong.push(format!("{}: nothing is found in its trace", case.name));
        }
        for (rank, got) in got.iter().enumerate() {
            let expected = match &found["all_ranks"] {
                Value::Null => &found["per_rank"][rank],
                all => all,
            };
            if let Err(why) = compare(&case.expect, rank, expected, got) {
                wrong.push(format!("{} rank {rank}: {why}", case.name));
            }
        }
    }
    let missing: Vec<_> = recorded.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "neither replayed nor listed: {missing:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The end of each rank, and whether the trace has findings.
fn replay(case: &cases::Case, world_size: u32) -> (Vec<Got>, bool) {
    let mut job = Job::new(case.name, world_size).unwrap();
    (case.setup)(&mut job);
    let mut outs: Vec<Option<Out>> = Vec::new();
    job.run(|dist| {
        let out = (case.script)(dist);
        let (out, error) = match out {
            Ok(out) => (Some(out), None),
            Err(error) => (None, Some(error)),
        };
        outs.push(out);
        error.map_or(Ok(()), Err)
    });
    let raised: Vec<Option<DistError>> =
        (0..world_size).map(|rank| job.raised(GlobalRank(rank)).cloned()).collect();
    let plan = job.finish().unwrap();
    let trace = simulate(&plan, &SimConfig::default()).unwrap();
    let findings = !diagnose_trace(&trace).findings.is_empty();
    let ranks = raised.into_iter().zip(outs).enumerate();
    let got = ranks
        .map(|(rank, (raised, out))| {
            let finished = trace
                .events
                .iter()
                .any(|event| event.rank.index() == rank && matches!(event.what, What::Finished));
            match (raised, finished, out) {
                (Some(error), true, _) => Got::Raised(error),
                (_, false, _) => Got::Hangs,
                (None, true, out) => Got::Ok(value(&trace, rank, out.unwrap_or(Out::Nothing))),
            }
        })
        .collect();
    (got, findings)
}

fn value(trace: &Trace, rank: usize, out: Out) -> Value {
    match out {
        Out::Nothing => Value::Null,
        Out::Json(value) => value,
        Out::Tensor(tensor) => numbers(trace, rank, &tensor),
        Out::List(outs) => outs.into_iter().map(|out| value(trace, rank, out)).collect(),
    }
}

/// The contents of a tensor at the end, as numbers in its shape.
fn numbers(trace: &Trace, rank: usize, tensor: &Tensor) -> Value {
    let bytes = trace.events.iter().find_map(|event| match &event.what {
        What::Result { tensor: id, value: TensorValue::Bytes(bytes) }
            if *id == tensor.storage() && event.rank.index() == rank =>
        {
            Some(bytes.clone())
        }
        _ => None,
    });
    let bytes = bytes.unwrap_or_default();
    let flat: Vec<Value> = match tensor.dtype() {
        Dtype::Float32 => {
            bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)).into()).collect()
        }
        Dtype::Int32 => bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
        other => panic!("{other} is not shown"),
    };
    match tensor.shape() {
        [_, columns] => flat.chunks(*columns as usize).map(<[Value]>::to_vec).collect(),
        _ => flat.into(),
    }
}

/// A rank that could not go on because of another: gloo's transport says so in one of these ways.
fn because_of_a_peer(text: &str) -> bool {
    ["Timed out waiting", "Connection closed by peer", "Connection reset by peer"]
        .iter()
        .any(|part| text.contains(part))
        || ["Application timeout caused pair closure", "Operation timed out!"].contains(&text)
        || text.contains("failed to pass monitoredBarrier")
}

fn compare(expect: &Expect, rank: usize, recorded: &Value, got: &Got) -> Result<(), String> {
    match expect {
        Expect::AsRecorded => {}
        Expect::ButGoesOn { ranks, why } => {
            assert!(why.len() > 20);
            if ranks.contains(&(rank as u32)) && matches!(got, Got::Ok(_)) {
                return Ok(());
            }
        }
        Expect::Differs { hangs, why } => {
            assert!(why.len() > 20);
            let hung = matches!(got, Got::Hangs);
            return match hangs.contains(&(rank as u32)) == hung {
                true => Ok(()),
                false => Err(format!("expected it to hang only on {hangs:?}, got {got:?}")),
            };
        }
        Expect::WeRefuse { why } => {
            assert!(why.len() > 20);
            return match got {
                Got::Raised(error) if error.help.is_some() => Ok(()),
                // A rank that is not concerned goes on.
                Got::Ok(_) if recorded["outcome"] == "ok" => Ok(()),
                other => Err(format!("we refuse this, got {other:?}")),
            };
        }
    }
    let text = recorded["text"].as_str().unwrap_or_default();
    let outcome = recorded["outcome"].as_str().unwrap();
    match (outcome, got) {
        ("raised", Got::Hangs) if because_of_a_peer(text) => Ok(()),
        ("raised", Got::Raised(error))
            if recorded["type"] == error.kind.name() && error.text == text =>
        {
            Ok(())
        }
        ("ok", Got::Ok(value)) => {
            let said = &recorded["value"];
            let same = said == "did not call" || value.is_null() || said == value;
            if same { Ok(()) } else { Err(format!("recorded {said}, got {value}")) }
        }
        (hang, Got::Hangs) if hang.starts_with("hang") => Ok(()),
        (died, Got::Raised(error))
            if died.starts_with("process died") && error.kind == ErrorKind::Aborted =>
        {
            Ok(())
        }
        // It leaves the job without a word.
        ("process died (exit code 7)", Got::Ok(_)) => Ok(()),
        (_, got) => Err(format!("recorded {recorded}, got {got:?}")),
    }
}
