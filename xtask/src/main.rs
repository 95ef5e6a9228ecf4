//! `cargo xtask`: builds, serves, tests and measures Lockstep. A file a verb.

mod shell;
mod web;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Builds, serves, tests and measures Lockstep"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the page into dist/
    Web,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().verb {
        Verb::Web => web::build().map(drop),
    }
}
