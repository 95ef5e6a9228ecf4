//! Commands that xtask runs, and where the repository is.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The repository's root, from where xtask was compiled or, if it was moved, the current folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match here.parent() {
        Some(root) if root.join("Cargo.toml").is_file() => root.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The folder where cargo puts its build.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// `cargo` with these arguments, in the repository's root; the cargo that runs xtask, if any.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // Cargo sets these for xtask itself; passed on they would make every build script run again.
    for (name, _) in std::env::vars_os() {
        let inherited = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if inherited {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end and says how long it took.
///
/// # Errors
/// When it cannot be started or does not succeed; the error shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    eprintln!("  took {} s", start.elapsed().as_secs());
    Ok(())
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Clippy, to which every warning is an error.
pub(crate) fn clippy(arguments: &[&str]) -> Command {
    let mut clippy = cargo(["clippy", "--quiet"]);
    clippy.args(arguments).args(["--", "--deny", "warnings"]);
    clippy
}
