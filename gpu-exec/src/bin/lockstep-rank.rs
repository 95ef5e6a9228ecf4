//! A rank process and nothing else, for this crate's tests and benchmarks. `lockstep` itself
//! starts its ranks through a hidden subcommand.
//!
//! With arguments it is what tests kill: `--run PLAN TRACE` is a coordinator, and `--launched PLAN
//! TRACE` a rank that a launcher started, with `--tcp` over TCP, with `--named` over shared memory
//! that has a name, with `--impatient` for calls of a second at most, with `--meet=file:///PATH` in a file; with the feature `mpi`, `--mpi PLAN TRACE` a rank of a job of mpirun's. The trace
//! is written while it grows.

use lockstep_core::plan::Plan;
use lockstep_core::trace::{Outcome, TraceWriter};
use lockstep_gpu_exec::host::{
    self,
    launched::{Farewell, Launch},
};
use lockstep_gpu_exec::{
    Backend, HostBackend, RankDump, RankLauncher, RunEvent, RunHandle, RunOptions, SharingStrategy,
    Transport,
};
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [how, plan, trace, rest @ ..] = &arguments[..] else {
        return lockstep_gpu_exec::rank_main();
    };
    let transport = match rest.iter().any(|word| word == "--tcp") {
        true => Transport::Tcp,
        false => Transport::Auto,
    };
    let sharing = match rest.iter().any(|word| word == "--named") {
        true => SharingStrategy::FileSystem,
        false => SharingStrategy::FileDescriptor,
    };
    let join_timeout = Duration::from_secs(20);
    let impatient = rest.iter().any(|word| word == "--impatient");
    let timeout = impatient.then_some(Duration::from_secs(1));
    let faults = rest.iter().filter_map(|word| word.to_str()?.strip_prefix("--fault="));
    let faults = match faults.map(str::parse).collect() {
        Ok(faults) => faults,
        Err(error) => {
            let error: lockstep_core::plan::FaultError = error;
            eprintln!("lockstep-rank: {error}");
            return ExitCode::from(2);
        }
    };
    let options =
        RunOptions { timeout, transport, sharing, join_timeout, faults, ..RunOptions::default() };
    let done = match how.to_str() {
        Some("--run") => run(plan.as_ref(), trace.as_ref(), options),
        #[cfg(feature = "mpi")]
        Some("--mpi") => in_mpi(plan.as_ref(), trace.into(), options),
        _ => {
            let place = rest.iter().find_map(|word| word.to_str()?.strip_prefix("--meet="));
            launched(plan.as_ref(), trace.as_ref(), place.unwrap_or("env://"), options)
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lockstep-rank: {error}");
            ExitCode::from(2)
        }
    }
}

fn itself() -> Result<RankLauncher, Box<dyn Error>> {
    Ok(RankLauncher { program: std::env::current_exe()?, args: Vec::new() })
}

fn run(plan: &Path, trace: &Path, options: RunOptions) -> Result<ExitCode, Box<dyn Error>> {
    let plan = Plan::read(&std::fs::read(plan)?)?;
    follow(HostBackend::new(itself()?).start(plan, options)?, trace)
}

fn launched(
    plan: &Path,
    trace: &Path,
    place: &str,
    options: RunOptions,
) -> Result<ExitCode, Box<dyn Error>> {
    let launch = Launch::at(&place.parse()?)?;
    let plan = Plan::read(&std::fs::read(plan)?)?;
    if launch.rank.0 > 0 {
        let folder = trace.to_owned();
        let keep = move |dump: &RankDump| {
            let kept = std::fs::write(folder.with_file_name(dump.file_name()), &dump.pickle);
            kept.unwrap_or_else(|error| eprintln!("lockstep-rank: {error}"));
        };
        return Ok(host::join(&launch, &plan, &options, Some(Box::new(keep)))?);
    }
    let farewell = Farewell::default();
    follow(host::lead(&launch, itself()?, plan, options, &farewell)?, trace)
}

#[cfg(feature = "mpi")]
fn in_mpi(
    plan: &Path,
    trace: std::path::PathBuf,
    options: RunOptions,
) -> Result<ExitCode, Box<dyn Error>> {
    let job = lockstep_gpu_exec::mpi::Job::init()?;
    let read = || Ok::<Plan, Box<dyn Error>>(Plan::read(&std::fs::read(plan)?)?);
    Ok(job.run(read(), options, move |run| {
        let followed = run.map_err(Box::from).and_then(|run| followed(run, &trace));
        followed.map(|completed| u8::from(!completed)).unwrap_or_else(|error| {
            eprintln!("lockstep-rank: {error}");
            2
        })
    }))
}

fn follow(run: RunHandle, trace: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let completed = followed(run, trace)?;
    Ok(if completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the run's trace. True if it completed.
fn followed(run: RunHandle, trace: &Path) -> Result<bool, Box<dyn Error>> {
    let mut file = File::create(trace)?;
    file.write_all(&TraceWriter::header(run.header()))?;
    while let Ok(event) = run.events().recv() {
        if let RunEvent::Events(events) = event {
            file.write_all(&TraceWriter::events(&events))?;
        }
    }
    let end = run.join();
    file.write_all(&TraceWriter::end(&end))?;
    eprintln!("lockstep-rank: {:?}", end.outcome);
    Ok(end.outcome == Outcome::Completed)
}
