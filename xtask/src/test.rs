//! `cargo xtask test`: everything that must hold, from a bare clone on a bare machine.
//!
//! The order saves building: the page before the binary that embeds it, and one profile and one
//! choice of packages for all tests and the binary that they drive.

use crate::serve::build_server;
use crate::{browser, shell, web};
use anyhow::{Context, Result};
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
/// At the first part that fails, with the command that failed.
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
    // Always the whole workspace: with fewer packages, cargo would build what they share again
    // with fewer features.
    let filter: &[&str] = match options.only {
        Some(Part::Lint) => return done(start),
        Some(Part::Unit) => &["--exclude=lockstep-tests"],
        Some(Part::System) => &["--test=cli", "--test=hangs", "--test=api", "--test=agreement"],
        Some(Part::Browser) => &["--test=browser", "--test=browser_ddp", "--test=browser_program"],
        None => &[],
    };
    let mut tests = shell::cargo(["test", "--workspace"]);
    tests.args(filter).arg("--").args(&options.rest);
    // An error's message says enough; its backtrace through the runtime hides it.
    tests.env("RUST_LIB_BACKTRACE", "0");
    if wants(Part::System) || wants(Part::Browser) {
        web::build()?;
        tests.env("LOCKSTEP_BIN", build_server("test", "--workspace")?);
    }
    shell::run(&mut tests)?;
    done(start)
}

fn done(start: Instant) -> Result<()> {
    eprintln!("passed in {} s", start.elapsed().as_secs());
    Ok(())
}

fn lint() -> Result<()> {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))
        .context("some files are not formatted; `cargo fmt --all` does it")?;
    let deny = ["--", "--deny", "warnings"];
    let host = ["clippy", "--quiet", "--workspace", "--all-targets"];
    shell::run(shell::cargo(host).args(deny))?;
    for package in ["--package=lockstep-web-ui", "--package=lockstep-web-program"] {
        let page = ["clippy", "--quiet", package, "--target", web::TARGET];
        shell::run(shell::cargo(page).args(deny))?;
    }
    let docs = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    // Private items are documented here, so links to them lead somewhere.
    let flags = "--deny warnings --allow rustdoc::private_intra_doc_links";
    shell::run(shell::cargo(docs).env("RUSTDOCFLAGS", flags))
}
