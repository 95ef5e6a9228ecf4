//! Looks for CUDA's driver and NCCL where a process would find them, and where PyTorch's wheels
//! put them.

use crate::RunError;
use libloading::Library;
use lockstep_core::group::BackendName;
use std::ffi::{OsStr, OsString, c_int};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where the loader looks by itself on the distributions we know.
const STANDARD_FOLDERS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/cuda/lib64",
];

/// The driver's name.
const CUDA_NAMES: [&str; 1] = ["libcuda.so.1"];

/// NCCL's names: PyPI's wheels ship only the first.
const NCCL_NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// What came of looking for one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryProbe {
    /// The file names that were looked for, in order.
    pub names: Vec<&'static str>,
    /// The folders, in order; the system loader's own search comes after them.
    pub folders: Vec<PathBuf>,
    /// What was found, if anything.
    pub found: Option<PathBuf>,
    /// Why something that was found cannot be loaded.
    pub broken: Option<String>,
}

/// What came of looking for what the `nccl` backend needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclProbe {
    /// CUDA's driver library.
    pub cuda: LibraryProbe,
    /// NCCL.
    pub nccl: LibraryProbe,
    /// NCCL's version as `ncclGetVersion` gives it: 22809 for 2.28.9.
    pub nccl_version: Option<i32>,
}

/// Looks for the libraries on this machine.
pub fn probe() -> NcclProbe {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    folders.extend(STANDARD_FOLDERS.iter().map(PathBuf::from));
    let (cuda, _) = look_for(&CUDA_NAMES, folders.clone());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os);
    let mut pythons: Vec<PathBuf> = environments.map(PathBuf::from).collect();
    pythons.extend(home.map(|home| home.join(".local")));
    pythons.extend(["/usr/local", "/usr"].map(PathBuf::from));
    folders.extend(pythons.iter().flat_map(|python| wheel_folders(&python.join("lib"))));
    let (nccl, library) = look_for(&NCCL_NAMES, folders);
    NcclProbe { cuda, nccl, nccl_version: library.as_ref().and_then(version) }
}

/// `nvidia/nccl/lib` in the site-packages of every Python below `lib`; the pattern itself where
/// there is none, so that the refusal says that it was tried.
fn wheel_folders(lib: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<OsString> = std::fs::read_dir(lib)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.to_string_lossy().starts_with("python3"))
        .collect();
    pythons.sort();
    if pythons.is_empty() {
        pythons.push(OsString::from("python3*"));
    }
    let packages = |python: &OsStr| {
        ["site-packages", "dist-packages"]
            .map(|packages| lib.join(python).join(packages).join("nvidia/nccl/lib"))
    };
    pythons.iter().flat_map(|python| packages(python)).collect()
}

fn look_for(
    names: &'static [&'static str],
    folders: Vec<PathBuf>,
) -> (LibraryProbe, Option<Library>) {
    let mut probe = LibraryProbe { names: names.to_vec(), folders, found: None, broken: None };
    let in_folders = probe.folders.iter().flat_map(|folder| names.iter().map(|n| folder.join(n)));
    let candidates: Vec<PathBuf> =
        in_folders.filter(|path| path.exists()).chain(names.iter().map(PathBuf::from)).collect();
    for path in candidates {
        match open(&path) {
            Ok(library) => {
                probe.found = Some(path);
                return (probe, Some(library));
            }
            // By bare name, "not found" is the expected answer and tells nothing.
            Err(error) if path.is_absolute() && probe.broken.is_none() => {
                probe.broken = Some(format!("{}: {error}", path.display()));
            }
            Err(_) => {}
        }
    }
    (probe, None)
}

#[allow(unsafe_code, reason = "loading a library runs its initialisers")]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the initialisers of CUDA's driver and of NCCL, the only names that are passed here,
    // are made to run in any process and need nothing set up before.
    unsafe { Library::new(path) }
}

#[allow(unsafe_code, reason = "a call through NCCL's C interface")]
fn version(nccl: &Library) -> Option<i32> {
    let mut version: c_int = 0;
    // SAFETY: `ncclResult_t ncclGetVersion(int*)` in nccl.h since 1.0, ncclSuccess being 0; it
    // writes one int and keeps no pointer.
    let result = unsafe {
        let get =
            nccl.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0").ok()?;
        get(&raw mut version)
    };
    (result == 0).then_some(version)
}

/// The error that says what the probe found, a line each: the backend itself comes in a later
/// version.
pub fn refusal(probe: &NcclProbe) -> RunError {
    let missing: Vec<_> = [&probe.cuda, &probe.nccl]
        .into_iter()
        .filter(|library| library.found.is_none())
        .map(LibraryProbe::describe_missing)
        .collect();
    let why = if missing.is_empty() {
        let version = match probe.nccl_version {
            Some(version) => format!("NCCL {}", display_version(version)),
            None => "an NCCL that does not tell its version".to_owned(),
        };
        format!(
            "CUDA's driver and {version} are there, but this version does not have the backend.\n\
             Run the plan on the host backend, or simulate it."
        )
    } else {
        format!(
            "{}\n\
             Install NVIDIA's driver and NCCL (pip install nvidia-nccl-cu12 brings it),\n\
             or name their folder in LD_LIBRARY_PATH; or run the plan on the host backend.",
            missing.join("\n")
        )
    };
    RunError::Unavailable { backend: BackendName::Nccl, why }
}

impl LibraryProbe {
    /// What was looked for, and a line for each place.
    fn describe_missing(&self) -> String {
        let mut text = format!("{} was not found", self.names.join(" or "));
        if let Some(broken) = &self.broken {
            let _ = write!(text, ";\n  found but not loadable: {broken}");
        }
        text.push_str(". Looked in");
        for folder in &self.folders {
            let _ = write!(text, "\n  {}", folder.display());
        }
        text.push_str("\n  and where the system's loader looks.");
        text
    }
}

/// `2.28.9` for 22809; before 2.9 the code had one digit less for the minor version.
fn display_version(code: i32) -> String {
    if code < 10_000 {
        return format!("{}.{}.{}", code / 1000, code / 100 % 10, code % 100);
    }
    format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_was_looked_for_and_where() {
        let folders = vec![PathBuf::from("/nowhere/lib")];
        let (cuda, _) = look_for(&["libcuda-not-there.so.1"], folders.clone());
        let (nccl, _) = look_for(&["libnccl-not-there.so.2", "libnccl-not-there.so"], folders);
        let text = refusal(&NcclProbe { cuda, nccl, nccl_version: None }).to_string();
        assert_eq!(
            text,
            "\
the nccl backend cannot run here: libcuda-not-there.so.1 was not found. Looked in
  /nowhere/lib
  and where the system's loader looks.
libnccl-not-there.so.2 or libnccl-not-there.so was not found. Looked in
  /nowhere/lib
  and where the system's loader looks.
Install NVIDIA's driver and NCCL (pip install nvidia-nccl-cu12 brings it),
or name their folder in LD_LIBRARY_PATH; or run the plan on the host backend."
        );
    }

    #[test]
    fn the_real_probe_looks_for_the_names_that_wheels_ship() {
        let probe = probe();
        assert_eq!(probe.cuda.names, ["libcuda.so.1"]);
        assert_eq!(probe.nccl.names, ["libnccl.so.2", "libnccl.so"]);
        let wheels = |folder: &PathBuf| folder.ends_with("nvidia/nccl/lib");
        assert!(probe.nccl.folders.iter().any(wheels), "{:?}", probe.nccl.folders);
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(display_version(22809), "2.28.9");
        assert_eq!(display_version(2708), "2.7.8");
    }
}
