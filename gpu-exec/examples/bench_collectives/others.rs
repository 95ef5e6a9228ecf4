//! The others: found, built where they need it, and run.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs are built here and removed with the process.
const C_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/others/collectives.c");
const PYTHON_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/others/collectives.py");

/// Another library that carries out the same calls.
#[derive(Debug)]
pub(crate) enum Other {
    Gloo { python: OsString },
    Mpi { name: &'static str, run: &'static str, program: PathBuf },
}

/// All that this machine has, and why not the others.
pub(crate) fn installed() -> Result<(Vec<Other>, Vec<String>), Box<dyn Error>> {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    let python = std::env::var_os("LOCKSTEP_PYTHON").unwrap_or_else(|| "python3".into());
    let imports = ["-c", "import torch.distributed as d; assert d.is_gloo_available()"];
    if succeeds(Command::new(&python).args(imports)) {
        found.push(Other::Gloo { python });
    } else {
        absent.push(format!("gloo: {python:?} has no PyTorch; say LOCKSTEP_PYTHON=…/python"));
    }
    let folder = std::env::temp_dir().join(format!("lockstep-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (name, compile, run) in
        [("open mpi", "mpicc.openmpi", "mpirun.openmpi"), ("mpich", "mpicc.mpich", "mpirun.mpich")]
    {
        let program = folder.join(compile);
        let mut build = Command::new(compile);
        if succeeds(build.args(["-O3", "-o"]).arg(&program).arg(C_SOURCE)) {
            found.push(Other::Mpi { name, run, program });
        } else {
            absent.push(format!("{name}: no {compile} (Debian: libopenmpi-dev, libmpich-dev)"));
        }
    }
    // Only if nothing is in it.
    let _ = std::fs::remove_dir(&folder);
    Ok((found, absent))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

impl Other {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Other::Gloo { .. } => "gloo",
            Other::Mpi { name, .. } => name,
        }
    }

    /// The median time of a call of each size, in microseconds; `None` if it does not have the
    /// call.
    pub(crate) fn microseconds(
        &self,
        op: &str,
        ranks: u32,
        sizes: &[u64],
    ) -> Result<Vec<Option<f64>>, Box<dyn Error>> {
        let mut command = match self {
            Other::Gloo { python } => {
                let mut command = Command::new(python);
                command.arg(PYTHON_SOURCE).arg(ranks.to_string());
                command
            }
            Other::Mpi { name, run, program } => {
                let mut command = Command::new(run);
                if *name == "open mpi" {
                    command.args(["--allow-run-as-root", "--oversubscribe"]);
                }
                command.arg("-n").arg(ranks.to_string()).arg(program);
                command
            }
        };
        // gloo takes milliseconds now and then, and so do those that spin where two ranks share a
        // core: a scheduler's slice for every call.
        let most = if ranks > 2 || matches!(self, Other::Gloo { .. }) { 100 } else { u64::MAX };
        command.arg(op);
        for &bytes in sizes {
            let calls = crate::iterations(bytes).min(most);
            command.arg(calls.to_string()).arg(bytes.to_string());
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = |bytes: &u64| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{bytes} ")));
            line.and_then(|median| median.trim().parse().ok())
        };
        Ok(sizes.iter().map(said).collect())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Other::Mpi { program, .. } = self {
            let _ = std::fs::remove_file(&*program);
            // Gone with the last of them.
            let _ = program.parent().map(Path::to_path_buf).map(std::fs::remove_dir);
        }
    }
}
