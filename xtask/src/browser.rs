//! The browser that the tests drive: Debian's Chromium and its driver.

use crate::packages;
use anyhow::{Result, bail};

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
