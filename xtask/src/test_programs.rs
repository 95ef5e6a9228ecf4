//! Runs the test programs of the workspace, those that mostly wait beside the others.
//!
//! `cargo test` runs one program after the other. Some of ours wait for minutes for hung ranks to time
//! out and leave both cores idle.

use crate::shell;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Integration tests that wait for timeouts of real processes most of their time.
const WAITING: [&str; 3] = ["gpu_check", "hangs", "kills"];

/// A test program that cargo has built.
struct Program {
    name: String,
    executable: PathBuf,
    /// The folder of its package, in which cargo runs tests.
    folder: PathBuf,
}

/// Arguments and environment of the test programs.
pub(crate) struct Start<'a> {
    /// Arguments of every test program: names to run, --nocapture.
    pub(crate) arguments: &'a [String],
    /// Additions to their environment.
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

/// Builds and runs the test programs that cargo finds with `filter`, all to their end. Examples
/// of the documentation are among them, as files of their own: cargo would link every crate again to
/// look for others.
///
/// # Errors
/// When something does not build, or a test fails; the error names the programs.
pub(crate) fn run(filter: &[&str], start: &Start<'_>) -> Result<()> {
    let (waiting, busy): (Vec<_>, Vec<_>) =
        programs(filter)?.into_iter().partition(|p| WAITING.contains(&p.name.as_str()));
    let failed = std::thread::scope(|scope| {
        // Their output is shown at their end, not between the lines of others.
        let beside = scope.spawn(|| run_each(&waiting, Stdio::piped, start));
        let mut failed = run_each(&busy, Stdio::inherit, start)?;
        failed.extend(beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        anyhow::Ok(failed)
    })?;
    if !failed.is_empty() {
        bail!("tests failed in {}", failed.join(", "));
    }
    Ok(())
}

/// Runs programs one after the other; returns the names of those that failed.
fn run_each(programs: &[Program], output: fn() -> Stdio, start: &Start<'_>) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for program in programs {
        let began = Instant::now();
        let child = Command::new(&program.executable)
            .args(start.arguments)
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .envs(start.environment.iter().cloned())
            .stdout(output())
            .stderr(output())
            .spawn();
        let child = child.with_context(|| format!("could not start {}", program.name))?;
        let ended = child.wait_with_output()?;
        for said in [&ended.stdout, &ended.stderr] {
            eprint!("{}", String::from_utf8_lossy(said));
        }
        let name = program.executable.file_name().unwrap_or_default().to_string_lossy();
        eprintln!("{name} took {} s, {}", began.elapsed().as_secs(), ended.status);
        if !ended.status.success() {
            failed.push(program.name.clone());
        }
    }
    Ok(failed)
}

/// Builds the test programs, and reads from cargo's messages where they are.
fn programs(filter: &[&str]) -> Result<Vec<Program>> {
    let mut build = shell::cargo(["test", "--workspace", "--no-run", "--quiet"]);
    build.arg("--message-format=json-render-diagnostics").args(filter).stderr(Stdio::inherit());
    let built = build.output().context("could not start cargo")?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    let mut programs = Vec::new();
    for line in built.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("cargo's message is no JSON")?;
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
            continue;
        }
        let (Some(executable), Some(manifest)) = (text("/executable"), text("/manifest_path"))
        else {
            continue;
        };
        let name = text("/target/name").unwrap_or_default().to_owned();
        let folder = PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default();
        programs.push(Program { name, executable: executable.into(), folder });
    }
    Ok(programs)
}
