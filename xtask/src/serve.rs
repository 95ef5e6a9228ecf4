//! `cargo xtask serve`: from a clone to the page in one command.

use crate::{shell, web};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Do not open the page in a browser
    #[arg(long)]
    no_open: bool,
    /// Everything else goes to `lockstep serve`: --port, --host, --data-dir
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds the page and the binary, and becomes `lockstep serve`.
///
/// # Errors
/// When something does not build, or the service does not start.
pub(crate) fn serve(options: &Options) -> Result<()> {
    web::build(web::Options::SHIPPED)?;
    let binary = build_server("release", &["--package=lockstep-server"])?;
    let mut lockstep = Command::new(binary);
    lockstep
        .arg("serve")
        .args(if options.no_open { None } else { Some("--open") })
        .args(&options.rest);
    become_command(&mut lockstep)
}

/// Builds `lockstep` with a profile, with the page that `dist/` has now, and returns its path. `packages` are
/// cargo's for the whole build, which decides the features of shared dependencies.
///
/// # Errors
/// When it does not build.
pub(crate) fn build_server(profile: &str, packages: &[&str]) -> Result<PathBuf> {
    let mut build = shell::cargo(["build", "--bin=lockstep", "--profile", profile]);
    shell::run(build.args(packages))?;
    let folder = match profile {
        "dev" | "test" => "debug",
        other => other,
    };
    let name = format!("lockstep{}", std::env::consts::EXE_SUFFIX);
    let binary = shell::target_dir().join(folder).join(name);
    if !binary.is_file() {
        bail!("cargo built lockstep, but it is not at {}", binary.display());
    }
    Ok(binary)
}

/// Replaces this process, so that Ctrl-C and the exit code are the service's own.
#[cfg(unix)]
fn become_command(command: &mut Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec()).context("could not start lockstep")
}

#[cfg(not(unix))]
fn become_command(command: &mut Command) -> Result<()> {
    let status = command.status().context("could not start lockstep")?;
    std::process::exit(status.code().unwrap_or(1))
}
