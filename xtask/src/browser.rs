//! The browsers that the tests drive: Debian's Chromium and its driver, and where it is asked for Firefox
//! with geckodriver, which Debian does not package.

use crate::{packages, shell};
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Debian's packages, and the programs that they bring.
const NEEDED: [(&str, &str); 2] = [("chromium", "chromium"), ("chromium-driver", "chromedriver")];

/// The packages of Chromium and its driver that are missing.
///
/// # Errors
/// When some are and cannot be installed from here: says exactly what to install.
pub(crate) fn missing() -> Result<Vec<&'static str>> {
    let missing = NEEDED.iter().filter(|(_, program)| !packages::on_path(program));
    let missing: Vec<&str> = missing.map(|(package, _)| *package).collect();
    if !(missing.is_empty() || packages::can_be_installed()) {
        let packages = missing.join(" ");
        bail!(
            "the browser tests need Chromium and chromedriver on the PATH; on Debian or Ubuntu: \
             `sudo apt-get update && sudo apt-get install {packages}`, then run this again \
             (`--only lint` and `--only unit` work without)"
        );
    }
    Ok(missing)
}

/// The package of Firefox, if it is missing.
///
/// # Errors
/// When it is and cannot be installed from here: says exactly what to install.
pub(crate) fn missing_firefox() -> Result<Option<&'static str>> {
    if ["firefox", "firefox-esr"].into_iter().any(packages::on_path) {
        return Ok(None);
    }
    if !packages::can_be_installed() {
        bail!(
            "this needs Firefox on the PATH; on Debian: `sudo apt-get install firefox-esr`, then run it \
             again"
        );
    }
    Ok(Some("firefox-esr"))
}

/// The PATH on which geckodriver is found, which cargo installs where there is none.
///
/// # Errors
/// When it cannot be installed.
pub(crate) fn path_with_geckodriver() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if packages::on_path("geckodriver") {
        return Ok(path);
    }
    let tools = shell::target_dir().join("tools");
    if !tools.join("bin/geckodriver").is_file() {
        let mut install = shell::cargo(["install", "geckodriver", "--locked", "--root"]);
        shell::run(install.arg(&tools)).context("geckodriver cannot be installed")?;
    }
    let folders: Vec<PathBuf> =
        [tools.join("bin")].into_iter().chain(env::split_paths(&path)).collect();
    Ok(env::join_paths(folders)?)
}
