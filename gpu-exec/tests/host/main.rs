//! Real runs on the host backend: processes, shared memory, timeouts, deaths.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod cases;
mod deaths;
mod farewell;
mod faults;
mod hangs;
mod kills;
mod launched;
mod leaks;
mod left_behind;
mod meetings;
mod p2p;
mod reference;
mod sharing;
mod stillness;
mod tcp;
mod together;
mod values;

use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, Outcome, TensorValue, Trace, What};
use lockstep_gpu_exec::{HostBackend, RankLauncher, RunOptions, run_to_trace};
use std::time::Duration;

fn backend() -> HostBackend {
    HostBackend::new(RankLauncher {
        program: env!("CARGO_BIN_EXE_lockstep-rank").into(),
        args: Vec::new(),
    })
}

/// Options that end a test that hangs long before anybody would.
fn options() -> RunOptions {
    RunOptions {
        timeout: Some(Duration::from_secs(20)),
        max_duration: Duration::from_secs(40),
        ..RunOptions::default()
    }
}

fn run(plan: Plan) -> Trace {
    run_with(plan, options())
}

fn run_with(plan: Plan, options: RunOptions) -> Trace {
    run_to_trace(&backend(), plan, options).unwrap()
}

fn assert_completed(trace: &Trace) {
    let end = trace.end.as_ref().unwrap();
    assert_eq!(end.outcome, Outcome::Completed, "{:?}", last_events(trace));
}

fn last_events(trace: &Trace) -> &[Event] {
    &trace.events[trace.events.len().saturating_sub(20)..]
}

fn events_of(trace: &Trace, rank: u32) -> impl Iterator<Item = &Event> {
    trace.events.iter().filter(move |event| event.rank == GlobalRank(rank))
}

fn result(trace: &Trace, rank: u32, wanted: TensorId) -> &TensorValue {
    events_of(trace, rank)
        .find_map(|event| match &event.what {
            What::Result { tensor, value } if *tensor == wanted => Some(value),
            _ => None,
        })
        .unwrap_or_else(|| panic!("rank {rank} reported no tensor {}", wanted.0))
}

/// True while a process of that number is there and no zombie.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the name's closing bracket.
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// True while this process has a child of that number, zombie or not.
fn is_our_child(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(1) == Some(&std::process::id().to_string())
}
