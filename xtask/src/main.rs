//! `cargo xtask`: builds, serves, tests and measures Lockstep. A file a verb.

mod bench;
mod browser;
mod mpi;
mod packages;
mod peers;
mod serve;
mod shell;
mod structure;
mod test;
mod test_programs;
mod web;
mod wheel;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, serves, tests and measures Lockstep")]
struct Xtask {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build everything, serve the page on this machine and open it
    Serve(serve::Options),
    /// Pass every test on a bare machine: installs the wasm target and Chromium if missing
    Test(test::Options),
    /// Build the page into dist/
    Web(web::Options),
    /// Pack the program with the page inside into a Python wheel, with maturin
    Wheel(wheel::Options),
    /// Check that crates and files use each other one way
    Structure(structure::Options),
    /// Measure what docs/benchmarks.md lists
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Xtask::parse().verb {
        Verb::Serve(options) => serve::serve(&options),
        Verb::Test(options) => test::test(&options),
        Verb::Web(options) => web::build(options).map(drop),
        Verb::Wheel(options) => wheel::wheel(&options),
        Verb::Structure(options) => structure::structure(&options),
        Verb::Bench(options) => bench::bench(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The failed command has said what is wrong; a backtrace of ours would hide it.
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
