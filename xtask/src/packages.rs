//! Debian's packages: those that this machine has, and installing missing ones.

use crate::shell;
use anyhow::Result;
use std::env;
use std::process::Command;

/// True if a program of that name is on the PATH.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// True if packages may be installed from here.
pub(crate) fn can_be_installed() -> bool {
    // `id` rather than a library: this is the only question of its kind.
    let id = Command::new("id").arg("-u").output();
    on_path("apt-get") && id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Installs packages, if there are any.
///
/// # Errors
/// When one cannot be fetched or installed.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let mut apt = Command::new("apt-get");
    shell::run(apt.arg("update"))?;
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages);
    shell::run(&mut apt)
}
