//! `cargo xtask`: builds, serves, tests and measures Lockstep. A file a verb.

mod bench;
mod browser;
mod serve;
mod shell;
mod test;
mod web;

use clap::{Parser, Subcommand};

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
    Web,
    /// Measure what docs/benchmarks.md lists
    Bench(bench::Options),
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse().verb {
        Verb::Serve(options) => serve::serve(&options),
        Verb::Test(options) => test::test(&options),
        Verb::Web => web::build().map(drop),
        Verb::Bench(options) => bench::bench(&options),
    }
}
