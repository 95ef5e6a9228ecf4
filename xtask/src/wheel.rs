//! `cargo xtask wheel`: a Python wheel that holds the program with the page inside.
//!
//! maturin packs it (`bin` bindings, with `server/wheel/pyproject.toml`): it knows the wheel's tags and which symbols
//! of the C library a manylinux wheel may use. Nothing is published.

use crate::{shell, web};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The Python that has maturin, and with --try venv
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: String,
    /// The folder for the wheel
    #[arg(long, value_name = "FOLDER", default_value = "target/wheels")]
    out: PathBuf,
    /// Install the wheel into a new virtual environment and start it there
    #[arg(long = "try")]
    tried: bool,
}

/// Builds the page and the wheel.
///
/// # Errors
/// When maturin is missing or something does not build; with `--try`, when the installed program does not start.
pub(crate) fn wheel(options: &Options) -> Result<()> {
    let asked = Command::new(&options.python)
        .args(["-m", "maturin", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !asked.is_ok_and(|status| status.success()) {
        bail!(
            "{0} has no maturin: run `{0} -m pip install maturin`, or name another --python",
            options.python
        );
    }
    web::build(web::Options::SHIPPED)?;
    let out = shell::root().join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut build = Command::new(&options.python);
    build.args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(&out);
    shell::run(build.current_dir(shell::root().join("server/wheel")))?;
    let wheel = newest_wheel(&out)?;
    println!("{}", wheel.display());
    if options.tried {
        try_it(options, &wheel)?;
    }
    Ok(())
}

/// The wheel that was written last.
fn newest_wheel(folder: &PathBuf) -> Result<PathBuf> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let wheels = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let written = path.metadata().and_then(|metadata| metadata.modified()).ok()?;
        (path.extension()? == "whl").then_some((written, path))
    });
    let newest = wheels.max().map(|(_, path)| path);
    newest.with_context(|| format!("maturin wrote no wheel to {}", folder.display()))
}

/// Installs the wheel into a new virtual environment, and starts it by its name and as a module.
fn try_it(options: &Options, wheel: &PathBuf) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("lockstep-wheel-{}", std::process::id()));
    let tried = (|| {
        shell::run(Command::new(&options.python).args(["-m", "venv"]).arg(&folder))?;
        let program = |name: &str| Command::new(folder.join("bin").join(name));
        shell::run(program("pip").args(["install", "--quiet", "--no-index"]).arg(wheel))?;
        shell::run(program("lockstep").arg("--version"))?;
        shell::run(program("python").args(["-m", "lockstep", "sim", "all_reduce"]))?;
        shell::run(program("lockstep").args(["record", "--print-recorder"]).stdout(Stdio::null()))
    })();
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    tried
}
