//! `cargo xtask test`: everything that must hold, from a bare clone on a bare machine.
//!
//! The order saves building: the page beside the tests and before the binary that embeds it, and one
//! profile and one choice of packages for all tests and the binary that they drive.

use crate::serve::build_server;
use crate::test_programs::Start;
use crate::{browser, mpi, packages, shell, structure, test_programs, web};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only some of it
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// New cases for the property tests, other ones each time, instead of the same
    #[arg(long)]
    fresh: bool,
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
    /// The main path through the page, in Firefox; no part of all of them
    Firefox,
    /// The tests of the mpi backend, with Open MPI and with MPICH; no part of all of them
    Mpi,
}

/// Runs the tests.
///
/// # Errors
/// At the first part that fails, with the command that failed.
pub(crate) fn test(options: &Options) -> Result<()> {
    let start = Instant::now();
    if options.only == Some(Part::Mpi) {
        mpi::test(&options.rest)?;
        return done(start);
    }
    let wants = |part| options.only.is_none_or(|only| only == part);
    // Missing tools are reported first, not after twenty minutes.
    web::ensure_target()?;
    let mut missing = Vec::new();
    if wants(Part::Browser) {
        missing.extend(browser::missing()?);
    }
    // Taken along on a bare machine; who changes other rooms needs no MPI.
    if wants(Part::Lint) && !missing.is_empty() {
        missing.extend(mpi::missing());
    }
    let firefox = options.only == Some(Part::Firefox);
    if firefox {
        missing.extend(browser::missing_firefox()?);
    }
    let drives = wants(Part::System) || wants(Part::Browser) || firefox;
    // Beside each other, as each has long stretches of one thread or of waiting; the page is not
    // packed before the lint is done, since the server's lint reads `dist/`.
    std::thread::scope(|scope| {
        let install = scope.spawn(|| packages::install(&missing));
        let page = drives.then(|| scope.spawn(|| web::compile(web::Options::SHIPPED)));
        if wants(Part::Lint) {
            lint()?;
        }
        if drives {
            // All but what embeds the page is ready before that.
            build_tests()?;
        }
        ended(install)?;
        if wants(Part::Lint) {
            mpi::lint()?;
        }
        if let Some(page) = page {
            ended(page)?.pack()?;
        }
        anyhow::Ok(())
    })?;
    // Always the whole workspace: with fewer packages, cargo would build what they share again
    // with fewer features.
    let filter: &[&str] = match options.only {
        Some(Part::Lint | Part::Mpi) => return done(start),
        Some(Part::Unit) => &["--exclude=lockstep-tests"],
        Some(Part::System) => &[
            "--test=cli",
            "--test=hangs",
            "--test=api",
            "--test=kills",
            "--test=agreement",
            "--test=gpu_check",
            "--test=attach",
        ],
        Some(Part::Browser) => &["--test=browser", "--test=browser_ddp", "--test=browser_program"],
        Some(Part::Firefox) => &["--test=browser"],
        None => &[],
    };
    // An error's message says enough; its backtrace through the runtime hides it.
    let mut environment = vec![("RUST_LIB_BACKTRACE", "0".into())];
    // A change must not be refused for a case that the tests before it never met: new cases are for
    // who has the time to look at them (`--fresh`). A seed in the environment goes first.
    if !options.fresh && std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        environment.push(("PROPTEST_RNG_SEED", "20260917".into()));
    }
    if drives {
        environment.push(("LOCKSTEP_BIN", build_tests()?.into()));
    }
    if firefox {
        environment.push(("LOCKSTEP_BROWSER", "firefox".into()));
        environment.push(("PATH", browser::path_with_geckodriver()?));
    }
    test_programs::run(filter, &Start { arguments: &options.rest, environment })?;
    done(start)
}

/// Builds all tests and the binary that they drive, and returns the binary's path. Together: the tests'
/// dependencies have features of their own, and building without them would compile every dependency twice.
fn build_tests() -> Result<PathBuf> {
    build_server("test", &["--workspace", "--tests"])
}

/// The result of a thread.
fn ended<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn done(start: Instant) -> Result<()> {
    eprintln!("passed in {} s", start.elapsed().as_secs());
    Ok(())
}

fn lint() -> Result<()> {
    structure::check()?;
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))
        .context("some files are not formatted; `cargo fmt --all` does it")?;
    // For the host alone: no code of ours is for wasm only, and the page itself is compiled beside this.
    shell::run(&mut shell::clippy(&["--workspace", "--all-targets"]))?;
    let docs = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    // Private items are documented here, so links to them lead somewhere.
    let flags = "--deny warnings --allow rustdoc::private_intra_doc_links";
    shell::run(shell::cargo(docs).env("RUSTDOCFLAGS", flags))
}
