//! `lockstep completions`: the script with which a shell completes the command line.

use anyhow::{Context, Result};
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The shell that shall complete
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script of a shell for `command`.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "lockstep", &mut script);
    // Not printed piece by piece: a pipe that is closed early must not be a panic.
    std::io::stdout().write_all(&script).context("the completion script cannot be written")?;
    Ok(ExitCode::SUCCESS)
}
