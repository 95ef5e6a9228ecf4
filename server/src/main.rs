//! The `lockstep` command: one binary for the command line, the service with the page in it, and
//! the ranks of a real run.
//!
//! `commands` holds a file a subcommand; `router` lists every route of the service and `api` holds
//! a file a noun. Nothing here is logic that a browser could need: that is in core and sim.

mod admission;
mod api;
mod child_group;
mod commands;
mod connections;
mod exit_rule;
mod files;
mod findings;
mod http;
mod late_faults;
mod output_file;
mod plan_source;
mod processes;
mod program_child;
mod progress;
mod rank_files;
mod recording;
mod router;
mod runs;
mod script_records;
mod service;
mod store;
mod terminal;
mod token;
mod topology_file;
mod trace_file;
mod watched_jobs;
mod written_report;

use crate::progress::watched;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "lockstep",
    version,
    about = "A visual debugger and simulator for distributed training",
    after_help = "Without a command, lockstep serves the page.\n\
                  Exit codes: 0 healthy, 1 findings, 2 unusable input or a failure, 3 inconclusive, \
                  130 stopped by Ctrl-C.",
    args_conflicts_with_subcommands = true
)]
struct Lockstep {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: commands::serve::Arguments,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the page and the API on this machine (the default)
    #[command(before_help = "Example: lockstep serve --port 7077")]
    Serve(commands::serve::Arguments),
    /// Simulate a plan and say what happens
    #[command(before_help = "Example: lockstep sim train.py")]
    Sim(commands::sim::Arguments),
    #[command(before_help = "Example: lockstep calibrate --check -o host.json")]
    Calibrate(commands::calibrate::Arguments),
    #[command(before_help = "Example: lockstep explore train.py")]
    Explore(commands::explore::Arguments),
    /// Have your own PyTorch run a training script as every rank of a job, without GPUs, and write its plan
    #[command(before_help = "Example: lockstep record --world-size 8 -- train.py --epochs 1")]
    Record(commands::record::Arguments),
    #[command(before_help = "Example: lockstep watch -- torchrun --nproc-per-node 4 train.py")]
    Watch(commands::watch::Arguments),
    #[command(before_help = "Example: lockstep attach node-1:29500 --watch 10s")]
    Attach(commands::attach::Arguments),
    /// Run a plan for real, one process per rank, and compare it with the simulator
    #[command(before_help = "Example: lockstep run all_reduce --world-size 8")]
    Run(commands::run::Arguments),
    /// Say what went wrong in what a job left: Flight Recorder dumps, logs, profiles, or a trace
    #[command(before_help = "Example: lockstep diagnose dumps/ train.log")]
    Diagnose(commands::diagnose::Arguments),
    /// Change a recorded job so that its first finding is mended, and prove it in the simulator
    #[command(before_help = "Example: lockstep repair dumps/ -o repaired.json")]
    Repair(commands::repair::Arguments),
    /// Say where the time of a job went: computing, exposed communication, waiting, the critical path across ranks
    #[command(before_help = "Example: lockstep analyze job.trace")]
    Analyze(commands::analyze::Arguments),
    /// Say what a job would take if something were otherwise: a straggler gone, faster links, other buckets
    #[command(before_help = "Example: lockstep whatif job.trace --without-straggler 3")]
    Whatif(commands::whatif::Arguments),
    /// Check a schedule from a file: prove that it does what it claims
    #[command(before_help = "Example: lockstep schedule check algo.xml")]
    Schedule(commands::schedule::Arguments),
    /// Write a plan, a run or a recording for other tools: Perfetto, profiles, Chakra, Flight Recorder dumps, GOAL, MSCCL
    #[command(before_help = "Example: lockstep export --perfetto dumps/ -o job.pftrace")]
    Export(commands::export::Arguments),
    /// Write the plan of a scenario or a collective
    #[command(before_help = "Example: lockstep plan skipped-all-reduce -o plan.json")]
    Plan(commands::plan::Arguments),
    /// Show which parameters share a bucket, and every collective DDP issues
    #[command(before_help = "Example: lockstep ddp --model resnet18")]
    Ddp(commands::ddp::Arguments),
    /// Say how long a collective takes on a cluster, and which algorithm NCCL picks
    #[command(
        before_help = "Example: lockstep time all_reduce --cluster h100x8 --nodes 2 --bytes 8,64K,1M,1G"
    )]
    Time(commands::time::Arguments),
    #[command(before_help = "Example: lockstep cluster import topo.xml -o mine.toml")]
    Cluster(commands::cluster::Arguments),
    /// Check the nccl backend on this machine's GPUs, and write a report
    #[command(before_help = "Example: lockstep gpu-check -o report")]
    GpuCheck(commands::gpu_check::Arguments),
    /// Explain a kind of finding: what it means, how it looks, how to mend and to prevent it
    #[command(before_help = "Example: lockstep explain op_skipped")]
    Explain(commands::explain::Arguments),
    /// Look after the folder in which `lockstep serve` keeps its runs
    #[command(before_help = "Example: lockstep data check")]
    Data(commands::data::Arguments),
    /// Print the version and what this machine can run
    #[command(before_help = "Example: lockstep version --json")]
    Version(commands::version::Arguments),
    #[command(
        before_help = "Example: torchrun --no-python --nproc-per-node=4 lockstep rank --plan plan.json"
    )]
    Rank(commands::rank::Arguments),
    /// Print the script with which a shell completes lockstep's command line
    #[command(
        before_help = "Example: lockstep completions bash > ~/.local/share/bash-completion/completions/lockstep"
    )]
    Completions(commands::completions::Arguments),
    /// Executes a program for its plan; started by whoever needs the plan
    #[command(hide = true)]
    CompileProgram,
}

fn main() -> ExitCode {
    let arguments = Lockstep::parse();
    let done = match arguments.command {
        Some(Command::CompileProgram) => program_child::answer(),
        Some(Command::Serve(arguments)) => commands::serve::run(arguments),
        Some(Command::Sim(arguments)) => watched(|it| commands::sim::run(arguments, it)),
        Some(Command::Calibrate(arguments)) => {
            watched(|it| commands::calibrate::run(arguments, it))
        }
        Some(Command::Explore(arguments)) => watched(|it| commands::explore::run(arguments, it)),
        Some(Command::Rank(arguments)) => commands::rank::run(arguments),
        Some(Command::Run(arguments)) => commands::run::run(arguments),
        Some(Command::Diagnose(arguments)) => watched(|it| commands::diagnose::run(arguments, it)),
        Some(Command::Record(arguments)) => commands::record::run(arguments),
        Some(Command::Watch(arguments)) => commands::watch::run(arguments),
        Some(Command::Attach(arguments)) => commands::attach::run(arguments),
        Some(Command::Repair(arguments)) => watched(|it| commands::repair::run(arguments, it)),
        Some(Command::Analyze(arguments)) => watched(|it| commands::analyze::run(arguments, it)),
        Some(Command::Whatif(arguments)) => watched(|it| commands::whatif::run(arguments, it)),
        Some(Command::Schedule(arguments)) => commands::schedule::run(arguments),
        Some(Command::Export(arguments)) => watched(|it| commands::export::run(arguments, it)),
        Some(Command::Plan(arguments)) => watched(|it| commands::plan::run(arguments, it)),
        Some(Command::Ddp(arguments)) => commands::ddp::run(arguments),
        Some(Command::Time(arguments)) => watched(|it| commands::time::run(&arguments, it)),
        Some(Command::Cluster(arguments)) => commands::cluster::run(arguments),
        Some(Command::GpuCheck(arguments)) => commands::gpu_check::run(arguments),
        Some(Command::Explain(arguments)) => commands::explain::run(&arguments),
        Some(Command::Data(arguments)) => commands::data::run(arguments),
        Some(Command::Version(arguments)) => commands::version::run(arguments),
        Some(Command::Completions(arguments)) => {
            commands::completions::run(&arguments, Lockstep::command())
        }
        None => commands::serve::run(arguments.serve),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            terminal::note(&format!("lockstep: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Lockstep::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_subcommand_opens_with_an_example_of_it() {
        for command in Lockstep::command().get_subcommands().filter(|one| !one.is_hide_set()) {
            let example = command.get_before_help().map(ToString::to_string).unwrap_or_default();
            let words: Vec<_> = example.split(' ').skip_while(|word| *word != "lockstep").collect();
            let typed = words.split(|word| *word == ">").next().unwrap_or_default();
            assert!(example.starts_with("Example: "), "{}: {example}", command.get_name());
            assert_eq!(typed.get(1), Some(&command.get_name()), "{example}");
            assert!(Lockstep::try_parse_from(typed).is_ok(), "{example}");
        }
    }
}
