//! `cargo xtask test`: everything that must hold, from a bare clone on a bare machine.
//!
//! The order saves building: the page before the binary that embeds it, and one profile for all
//! tests and the binary that they drive.

use crate::serve::build_server;
use crate::{browser, shell, web};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only some of it
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Passed to the test programs: names to run, --nocapture
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format, clippy and documentation
    Lint,
    /// The tests of every crate but those that cross them
    Unit,
    /// The tests that drive the binary: command line, service, agreement
    System,
    /// The tests that drive the page in Chromium
    Browser,
}

/// Runs the tests.
///
/// # Errors
/// At the first part that fails, with the command to repeat it.
pub(crate) fn test(options: &Options) -> Result<()> {
    let start = Instant::now();
    let wants = |part| options.only.is_none_or(|only| only == part);
    // What can be missing is asked for first, not after twenty minutes.
    web::ensure_target()?;
    if wants(Part::Browser) {
        browser::ensure()?;
    }
    if wants(Part::Lint) {
        lint()?;
    }
    let drives_binary = wants(Part::System) || wants(Part::Browser);
    if drives_binary {
        // Before the unit tests, which would otherwise embed a page that is not there yet.
        web::build()?;
    }
    if wants(Part::Unit) {
        let units = ["test", "--workspace", "--exclude=lockstep-tests"];
        shell::run(shell::cargo(units).arg("--").args(&options.rest))?;
    }
    if drives_binary {
        let binary = build_server("test")?;
        let parts: &[(Part, &[&str])] = &[
            (Part::System, &["--lib", "--test=cli", "--test=api", "--test=agreement"]),
            (Part::Browser, &["--test=browser"]),
        ];
        for (part, targets) in parts {
            if wants(*part) {
                cross(&binary, targets, &options.rest)?;
            }
        }
    }
    eprintln!("all of it passed in {} s", start.elapsed().as_secs());
    Ok(())
}

fn lint() -> Result<()> {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))
        .context("some files are not formatted; `cargo fmt --all` does it")?;
    let deny = ["--", "--deny", "warnings"];
    let host = ["clippy", "--quiet", "--workspace", "--all-targets"];
    shell::run(shell::cargo(host).args(deny))?;
    let page = ["clippy", "--quiet", "--package=lockstep-web-ui", "--target", web::TARGET];
    shell::run(shell::cargo(page).args(deny))?;
    let docs = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    shell::run(shell::cargo(docs).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn cross(binary: &Path, targets: &[&str], rest: &[String]) -> Result<()> {
    let mut tests = shell::cargo(["test", "--package=lockstep-tests"]);
    tests.args(targets).arg("--").args(rest);
    // An error's message says enough; its backtrace through the runtime hides it.
    tests.env("RUST_LIB_BACKTRACE", "0");
    shell::run(tests.env("LOCKSTEP_BIN", binary))
}
