//! The browser that the tests drive: Debian's Chromium and its driver.

use crate::shell;
use anyhow::{Result, bail};
use std::env;
use std::process::Command;

/// Debian's packages, and the programs that they bring.
const NEEDED: [(&str, &str); 2] = [("chromium", "chromium"), ("chromium-driver", "chromedriver")];

/// Installs Chromium and its driver if they are missing, or says exactly what to install.
///
/// # Errors
/// When they are missing and cannot be installed from here.
pub(crate) fn ensure() -> Result<()> {
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, program)| !on_path(program))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !on_path("apt-get") || !is_root() {
        bail!(
            "the browser tests need Chromium and chromedriver on the PATH; on Debian or Ubuntu: \
             `sudo apt-get update && sudo apt-get install {packages}`, then run this again \
             (`--only lint` and `--only unit` work without)"
        );
    }
    let mut apt = Command::new("apt-get");
    shell::run(apt.arg("update"))?;
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing);
    shell::run(&mut apt)
}

/// True if a program of that name is on the PATH.
fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// True if packages may be installed.
fn is_root() -> bool {
    // `id` rather than a library: this is the only question of its kind.
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}
