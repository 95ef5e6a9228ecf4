//! The MPI that the mpi backend is built with: finds it, and runs the steps for each.

use crate::{packages, shell};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// The compilers of the distributions' MPIs, and the names of the builds with each.
const MPIS: [(&str, &str); 2] = [("mpicc.openmpi", "openmpi"), ("mpicc.mpich", "mpich")];

/// The folders where distributions put libraries, besides those of each LLVM.
const LIBRARIES: [&str; 5] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// The packages that the backend is built with and that are missing.
pub(crate) fn missing() -> Vec<&'static str> {
    let mpi = (!runs("mpicc")).then_some("libopenmpi-dev");
    let clang = (!has_libclang()).then_some("libclang-dev");
    mpi.into_iter().chain(clang).collect()
}

/// Clippy for the backend, which no other build of the workspace compiles, with the MPI of `mpicc`.
///
/// # Errors
/// When it fails. Where the backend cannot be built, nothing is done, and that is said.
pub(crate) fn lint() -> Result<()> {
    let missing = missing();
    if !missing.is_empty() {
        eprintln!("the mpi backend is not looked at: it needs {}", missing.join(" and "));
        return Ok(());
    }
    shell::run(&mut shell::clippy(&[
        "--workspace",
        "--all-targets",
        "--features=lockstep-server/mpi",
    ]))
}

/// Builds the backend's tests with every MPI that is installed, each in a folder of its own, and runs
/// them.
///
/// # Errors
/// When there is no MPI, and at the first one with which the tests fail.
pub(crate) fn test(rest: &[String]) -> Result<()> {
    let mut found: Vec<(&str, &str)> = MPIS.to_vec();
    found.retain(|(compiler, _)| runs(compiler));
    if found.is_empty() && runs("mpicc") {
        found.push(("mpicc", "mpicc"));
    }
    if found.is_empty() || !has_libclang() {
        bail!(
            "the mpi backend is built with an mpicc and libclang, and one of them is not on this machine; \
             on Debian, install libopenmpi-dev, libmpich-dev or both, and libclang-dev"
        );
    }
    for (compiler, name) in found {
        eprintln!("with {compiler}");
        let features = ["--package=lockstep-gpu-exec", "--features=mpi"];
        let mut tests = shell::cargo(["test"]);
        tests.args(features).args(["--lib", "--test=mpi", "--"]);
        // Several jobs at once are only slow.
        tests.arg("--test-threads=1").args(rest).env("MPICC", compiler);
        tests.env("CARGO_TARGET_DIR", shell::target_dir().join(name));
        shell::run(&mut tests)?;
    }
    Ok(())
}

fn runs(compiler: &str) -> bool {
    let asked = Command::new(compiler).arg("-show").stdout(Stdio::null()).status();
    packages::on_path(compiler) && asked.is_ok_and(|status| status.success())
}

/// True if bindgen would find libclang: in `$LIBCLANG_PATH`, in LLVM's folders or beside other libraries.
fn has_libclang() -> bool {
    let here = |folder: &Path| {
        let files = folder.read_dir().into_iter().flatten().flatten();
        files.map(|file| file.file_name()).any(|name| {
            // Not `libclang-cpp`, which is another interface.
            let rest = name.to_str().and_then(|name| name.strip_prefix("libclang"));
            rest.is_some_and(|rest| {
                rest.starts_with(".so") || rest.starts_with("-1") || rest.starts_with("-2")
            })
        })
    };
    let llvms = Path::new("/usr/lib").read_dir().into_iter().flatten().flatten();
    std::env::var_os("LIBCLANG_PATH").is_some()
        || LIBRARIES.iter().any(|folder| here(Path::new(folder)))
        || llvms.map(|llvm| llvm.path().join("lib")).any(|folder| here(&folder))
}
