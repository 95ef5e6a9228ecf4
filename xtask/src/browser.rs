//! The browser that the tests drive: Debian's Chromium and its driver.

use crate::shell;
use anyhow::{Result, bail};
use std::env;
use std::process::Command;

/// Debian's packages, and the programs that they bring.
const NEEDED: [(&str, &str); 2] = [("chromium", "chromium"), ("chromium-driver", "chromedriver")];

/// Debian's packages that are to be installed.
pub(crate) struct Missing(Vec<&'static str>);

/// Which of Chromium and its driver are missing.
///
/// # Errors
/// When some are and cannot be installed from here: says exactly what to install.
pub(crate) fn missing() -> Result<Missing> {
    let missing = NEEDED.iter().filter(|(_, program)| !on_path(program));
    let missing: Vec<&str> = missing.map(|(package, _)| *package).collect();
    if !(missing.is_empty() || on_path("apt-get") && is_root()) {
        let packages = missing.join(" ");
        bail!(
            "the browser tests need Chromium and chromedriver on the PATH; on Debian or Ubuntu: \
             `sudo apt-get update && sudo apt-get install {packages}`, then run this again \
             (`--only lint` and `--only unit` work without)"
        );
    }
    Ok(Missing(missing))
}

impl Missing {
    /// Installs them.
    ///
    /// # Errors
    /// When a package cannot be fetched or installed.
    pub(crate) fn install(&self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut apt = Command::new("apt-get");
        shell::run(apt.arg("update"))?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "--yes", "--no-install-recommends"])
            .args(&self.0);
        shell::run(&mut apt)
    }
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
