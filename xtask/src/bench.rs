//! `cargo xtask bench`: what `docs/benchmarks.md` lists, measured here.

use crate::{shell, web};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only measurements whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A measurement: what it is called and the cargo command that prints it.
type Measurement = (&'static str, &'static [&'static str]);

/// The committed benchmarks. Each prints its own figures.
const MEASUREMENTS: &[Measurement] = &[
    ("simulator: messages per second", &["bench", "--package=lockstep-sim"]),
    (
        "host backend: all_reduce bandwidth",
        &["run", "--release", "--package=lockstep-gpu-exec", "--example=bench_all_reduce"],
    ),
];

/// Runs the benchmarks and prints their figures, one after the other: two at the same time would
/// measure each other.
///
/// # Errors
/// When one does not build or fails.
pub(crate) fn bench(options: &Options) -> Result<()> {
    let wants = |name: &str| options.only.as_ref().is_none_or(|text| name.contains(text));
    if wants("page: size") {
        web::build()?;
    }
    for (name, command) in MEASUREMENTS.iter().filter(|(name, _)| wants(name)) {
        println!("\n{name}");
        shell::run(&mut shell::cargo(*command))?;
    }
    Ok(())
}
