//! The `lockstep` command: one binary for the command line, the service with the page in it, and
//! the ranks of a real run.
//!
//! `commands` holds a file a subcommand; `router` lists every route of the service and `api` holds
//! a file a noun. Nothing here is logic that a browser could need: that is in core and sim.

mod api;
mod commands;
mod connections;
mod exit_rule;
mod files;
mod findings;
mod late_faults;
mod plan_source;
mod program_child;
mod recording;
mod router;
mod runs;
mod store;
mod terminal;
mod topology_file;
mod trace_file;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "lockstep",
    version,
    about = "A visual debugger and simulator for distributed training",
    after_help = "Without a command, lockstep serves the page.\n\
                  Exit codes: 0 healthy, 1 findings, 2 unusable input or a failure, 3 inconclusive.",
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
    Serve(commands::serve::Arguments),
    /// Simulate a plan and say what happens
    Sim(commands::sim::Arguments),
    Calibrate(commands::calibrate::Arguments),
    Explore(commands::explore::Arguments),
    /// Run a plan for real, one process per rank, and compare it with the simulator
    Run(commands::run::Arguments),
    /// Say what went wrong in what a job left: Flight Recorder dumps, logs, profiles, or a trace
    Diagnose(commands::diagnose::Arguments),
    /// Check a schedule from a file: prove that it does what it claims
    Schedule(commands::schedule::Arguments),
    /// Write what a plan does for other tools: Flight Recorder dumps, GOAL, MSCCL XML
    Export(commands::export::Arguments),
    /// Write the plan of a scenario or a collective
    Plan(commands::plan::Arguments),
    /// Show which parameters share a bucket, and every collective DDP issues
    Ddp(commands::ddp::Arguments),
    /// Check the nccl backend on this machine's GPUs, and write a report
    GpuCheck(commands::gpu_check::Arguments),
    /// Print the version and what this machine can run
    Version(commands::version::Arguments),
    Rank(commands::rank::Arguments),
    /// Executes a program for its plan; started by whoever needs the plan
    #[command(hide = true)]
    CompileProgram,
}

fn main() -> ExitCode {
    let arguments = Lockstep::parse();
    let done = match arguments.command {
        Some(Command::CompileProgram) => program_child::answer(),
        Some(Command::Serve(arguments)) => commands::serve::run(arguments),
        Some(Command::Sim(arguments)) => commands::sim::run(arguments),
        Some(Command::Calibrate(arguments)) => commands::calibrate::run(arguments),
        Some(Command::Explore(arguments)) => commands::explore::run(arguments),
        Some(Command::Rank(arguments)) => commands::rank::run(arguments),
        Some(Command::Run(arguments)) => commands::run::run(arguments),
        Some(Command::Diagnose(arguments)) => commands::diagnose::run(arguments),
        Some(Command::Schedule(arguments)) => commands::schedule::run(arguments),
        Some(Command::Export(arguments)) => commands::export::run(arguments),
        Some(Command::Plan(arguments)) => commands::plan::run(arguments),
        Some(Command::Ddp(arguments)) => commands::ddp::run(arguments),
        Some(Command::GpuCheck(arguments)) => commands::gpu_check::run(arguments),
        Some(Command::Version(arguments)) => commands::version::run(arguments),
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
        <Lockstep as clap::CommandFactory>::command().debug_assert();
    }
}
