//! Looks for CUDA's driver, its runtime compiler and NCCL where a process would find them, and where PyTorch's wheels
//! put them.

use super::options::{NcclOptions, Sharing};
use crate::RunError;
use libloading::Library;
use lockstep_core::group::BackendName;
use lockstep_core::words::counted;
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::path::{Path, PathBuf};

/// The folders that the loader searches by itself on the distributions we know.
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

/// The runtime compiler's names: PyPI's wheels ship only those with a number. One without may be of any
/// version, and is looked for when no other is anywhere.
const NVRTC_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// NCCL's names: PyPI's wheels ship only the first.
const NCCL_NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The result of looking for one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryProbe {
    /// The file names that were looked for, in order.
    pub names: Vec<&'static str>,
    /// The folders, in order.
    pub folders: Vec<PathBuf>,
    /// True if the system loader's own search comes after the folders.
    pub by_name: bool,
    /// The path that was found, if anything.
    pub found: Option<PathBuf>,
    /// The reason that a found library cannot be loaded.
    pub broken: Option<String>,
}

/// The result of looking for the libraries that the `nccl` backend needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclProbe {
    /// CUDA's driver library.
    pub cuda: LibraryProbe,
    /// CUDA's runtime compiler, for the kernels that compute and reduce.
    pub nvrtc: LibraryProbe,
    /// NCCL.
    pub nccl: LibraryProbe,
    /// NCCL's version as `ncclGetVersion` gives it: 22809 for 2.28.9.
    pub nccl_version: Option<i32>,
}

/// Looks for the libraries on this machine, in the options' folders first.
pub fn probe(options: &NcclOptions) -> NcclProbe {
    let mut folders = options.libraries.clone();
    let by_name = !options.only_there;
    let mut pythons = Vec::new();
    if by_name {
        let named = std::env::var_os("LD_LIBRARY_PATH");
        let named = named.iter().flat_map(std::env::split_paths);
        folders.extend(named.filter(|folder| !folder.as_os_str().is_empty()));
        folders.extend(STANDARD_FOLDERS.iter().map(PathBuf::from));
        let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os);
        pythons.extend(environments.map(PathBuf::from));
        pythons.extend(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
        pythons.extend(["/usr/local", "/usr"].map(PathBuf::from));
        let path = std::env::var_os("PATH");
        let on_path = path.iter().flat_map(std::env::split_paths).flat_map(|bin| homes(&bin));
        pythons.extend(on_path);
    }
    let mut seen = BTreeSet::new();
    pythons.retain(|python| seen.insert(python.clone()));
    let with = |packages: &[&str]| {
        let wheels = pythons.iter().flat_map(|python| wheel_folders(&python.join("lib"), packages));
        folders.iter().cloned().chain(wheels).collect::<Vec<_>>()
    };
    let nvrtc = with(&["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"]);
    let named = options.libraries.len();
    let look = |names, folders| Search { names, folders, named, by_name };
    let (cuda, driver) = look(&CUDA_NAMES, folders.clone()).run(|_| true);
    let newest = driver.as_ref().and_then(driver_version).map(|version| version / 1000);
    let (nvrtc, _) = look(&NVRTC_NAMES, nvrtc).run(|name| is_for(name, newest));
    let (nccl, library) = look(&NCCL_NAMES, with(&["nvidia/nccl/lib"])).run(|_| true);
    NcclProbe { cuda, nvrtc, nccl, nccl_version: library.as_ref().and_then(version) }
}

/// The homes of the Pythons in a folder of PATH: the environment that it belongs to, the targets of its
/// links, and for pyenv's shims, which are scripts, every version.
fn homes(bin: &Path) -> Vec<PathBuf> {
    let pythons = ["python3", "python"].map(|name| bin.join(name));
    let mut homes = Vec::new();
    for python in pythons.iter().filter(|python| python.is_file()) {
        let real = std::fs::canonicalize(python).ok();
        for program in [Some(python.clone()), real].into_iter().flatten() {
            homes.extend(program.parent().and_then(Path::parent).map(Path::to_path_buf));
        }
    }
    if !homes.is_empty() && bin.ends_with("shims") {
        let versions = bin.parent().map(|root| root.join("versions"));
        let entries = versions.and_then(|versions| std::fs::read_dir(versions).ok());
        let mut versions: Vec<PathBuf> =
            entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        versions.sort();
        homes.extend(versions);
    }
    homes.retain(|home| home.join("lib").is_dir());
    homes
}

/// The folders of NVIDIA's packages in the site-packages of every Python below `lib`; the pattern
/// itself where there is no Python, so that the refusal says that it was tried.
fn wheel_folders(lib: &Path, packages: &[&str]) -> Vec<PathBuf> {
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
    let folders = |python: &OsStr| {
        ["site-packages", "dist-packages"].map(|packages| lib.join(python).join(packages))
    };
    let folders = pythons.iter().flat_map(|python| folders(python));
    folders.flat_map(|folder| packages.iter().map(move |package| folder.join(package))).collect()
}

/// The names to look for, and the folders.
struct Search {
    names: &'static [&'static str],
    folders: Vec<PathBuf>,
    /// The number of folders that the user named: they are searched before everything else.
    named: usize,
    by_name: bool,
}

impl Search {
    /// Opens the first library that is `wanted` and can be opened: in folders that the user named, any of the
    /// names; elsewhere the first name wherever it is, before the next one.
    fn run(self, wanted: impl Fn(&str) -> bool) -> (LibraryProbe, Option<Library>) {
        let Search { names, folders, named, by_name } = self;
        let mut probe =
            LibraryProbe { names: names.to_vec(), folders, by_name, found: None, broken: None };
        let wanted: Vec<&str> = names.iter().copied().filter(|name| wanted(name)).collect();
        let (named, found) = probe.folders.split_at(named.min(probe.folders.len()));
        let named =
            named.iter().flat_map(|folder| wanted.iter().map(move |name| folder.join(name)));
        let bare = |name: &str| Some(PathBuf::from(name)).filter(|_| by_name);
        let elsewhere = wanted
            .iter()
            .flat_map(|name| found.iter().map(move |folder| folder.join(name)).chain(bare(name)));
        let there = |path: &PathBuf| path.exists() || path.parent() == Some(Path::new(""));
        let candidates: Vec<PathBuf> = named.chain(elsewhere).filter(there).collect();
        for path in candidates {
            match open(&path) {
                Ok(library) => {
                    probe.found = Some(path);
                    return (probe, Some(library));
                }
                // By bare name, "not found" is the expected answer and tells nothing.
                Err(error) if path.is_absolute() && probe.broken.is_none() => {
                    probe.broken = Some(why_not(&path, &error));
                }
                Err(_) => {}
            }
        }
        (probe, None)
    }
}

/// True if a compiler of this name fits a driver that supports CUDA up to this major version: a driver loads
/// no machine code of a later version. If either version is unknown, the compiler is tried.
fn is_for(nvrtc: &str, newest: Option<c_int>) -> bool {
    let major = nvrtc.rsplit_once(".so.").and_then(|(_, major)| major.parse().ok());
    major.zip(newest).is_none_or(|(major, newest): (c_int, c_int)| major <= newest)
}

/// The loader's message: it names the path by itself, but not always.
fn why_not(path: &Path, error: &libloading::Error) -> String {
    let path = path.display().to_string();
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let why = why.trim().strip_prefix(&path).unwrap_or(&why).trim_start_matches(':').trim();
    format!("{path} cannot be loaded ({why})")
}

#[allow(unsafe_code, reason = "loading a library runs its initialisers")]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the initialisers of CUDA's driver and of NCCL, the only names that are passed here,
    // are made to run in any process and need nothing set up before.
    unsafe { Library::new(path) }
}

/// The CUDA version that a driver goes up to: 13000 for 13.0.
#[allow(unsafe_code, reason = "a call through the driver's C interface")]
fn driver_version(driver: &Library) -> Option<c_int> {
    let mut version: c_int = 0;
    // SAFETY: `CUresult cuDriverGetVersion(int*)` in cuda.h since 2.2, CUDA_SUCCESS being 0; it writes
    // one int, keeps no pointer and needs no initialisation before.
    let result = unsafe {
        let get = driver
            .get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0")
            .ok()?;
        get(&raw mut version)
    };
    (result == 0).then_some(version)
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

/// The words of a library that only stands in for NVIDIA's, as the tests build one: whoever makes
/// it must export them, and every trace repeats them.
#[allow(unsafe_code, reason = "a call through a C interface")]
pub(super) fn stand_in(path: &Path) -> Option<String> {
    let library = open(path).ok()?;
    // SAFETY: only a stand-in has this symbol: a function without arguments that returns a C
    // string which is never freed.
    unsafe {
        let words =
            library.get::<unsafe extern "C" fn() -> *const c_char>(b"lockstep_stand_in\0").ok()?;
        let words = words();
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
    }
}

/// Folders that a refusal names.
const NAMED: usize = 3;

/// A sentence about the libraries that runs with these options lack; `None` when nothing is missing.
pub fn refusal(probe: &NcclProbe, options: &NcclOptions) -> Option<RunError> {
    let nccl = Some(&probe.nccl).filter(|_| options.sharing != Sharing::OneProcess);
    let missing: Vec<_> = [Some(&probe.cuda), Some(&probe.nvrtc), nccl]
        .into_iter()
        .flatten()
        .filter(|library| library.found.is_none())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let (broken, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|library| library.broken.is_some());
    let mut found: Vec<String> =
        broken.iter().filter_map(|library| library.broken.clone()).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|library| library.names.join(" or ")).collect();
        found.push(format!("no {} in {}", names.join(", no "), looked_in(&missing)));
    }
    // One that was named may be a slip; the first will do.
    let absent = options.libraries.iter().find(|folder| !folder.is_dir());
    found.extend(absent.map(|folder| format!("{} is no folder", folder.display())));
    let why = format!(
        "{}; install NVIDIA's driver, and NVRTC and NCCL (pip install torch brings both), or name \
         their folder in LD_LIBRARY_PATH; the host backend needs none of them",
        found.join("; ")
    );
    Some(RunError::Unavailable { backend: BackendName::Nccl, why })
}

/// The number of places where libraries were looked for, and the first of them.
fn looked_in(missing: &[&LibraryProbe]) -> String {
    let mut folders: Vec<&PathBuf> = Vec::new();
    for folder in missing.iter().flat_map(|library| &library.folders) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let named: Vec<String> =
        folders.iter().take(NAMED).map(|folder| folder.display().to_string()).collect();
    let more = match folders.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let loader = match missing.iter().any(|library| library.by_name) {
        true => ", or where the system's loader looks",
        false => ", where alone was looked",
    };
    format!("{} ({}{more}){loader}", counted(folders.len(), "folder"), named.join(", "))
}

/// `2.28.9` for 22809; before 2.9 the code had one digit less for the minor version.
pub(super) fn display_version(code: i32) -> String {
    if code < 10_000 {
        return format!("{}.{}.{}", code / 1000, code / 100 % 10, code % 100);
    }
    format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_was_looked_for_and_where() {
        let libraries = vec![PathBuf::from("/nowhere/lib")];
        let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
        let text = refusal(&probe(&options), &options).unwrap().to_string();
        assert_eq!(
            text,
            "the nccl backend cannot run here: no libcuda.so.1, no libnvrtc.so.13 or \
             libnvrtc.so.12 or libnvrtc.so, no libnccl.so.2 or libnccl.so in 1 folder \
             (/nowhere/lib), where alone was looked; /nowhere/lib is no folder; install NVIDIA's \
             driver, and NVRTC and NCCL (pip install torch brings both), or name their folder in \
             LD_LIBRARY_PATH; the host backend needs none of them"
        );
        let logical = NcclOptions { sharing: Sharing::OneProcess, ..options };
        let text = refusal(&probe(&logical), &logical).unwrap().to_string();
        assert!(!text.contains("libnccl"), "{text}");
    }

    /// A file that is there but is no library is not "not there": another driver would not help.
    #[test]
    fn what_is_there_and_cannot_be_loaded_is_told_apart_from_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libcuda.so.1");
        std::fs::write(&driver, "not a library").unwrap();
        let libraries = vec![folder.path().to_path_buf()];
        let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
        let text = refusal(&probe(&options), &options).unwrap().to_string();
        let broken = format!("cannot run here: {} cannot be loaded (", driver.display());
        assert!(text.contains(&broken) && !text.contains("no libcuda"), "{text}");
        assert!(text.contains("; no libnvrtc.so.13"), "{text}");
        assert_eq!(text.matches("libcuda.so.1").count(), 1, "{text}");
    }

    /// A library with that function, by the C compiler.
    fn library(path: &Path, source: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = path.with_extension("c");
        std::fs::write(&text, source).unwrap();
        let mut cc = std::process::Command::new("cc");
        assert!(
            cc.args(["-shared", "-fPIC", "-o"]).args([path, &text]).status().unwrap().success()
        );
    }

    #[test]
    fn the_compiler_is_none_that_the_driver_is_too_old_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one/libnvrtc.so.12", "one/libnvrtc.so.13", "two/libnvrtc.so.13"] {
            library(&at(name), "int nothing;");
        }
        let found = |folders: &[&str], named, newest: i32| {
            let folders = folders.iter().map(|name| at(name)).collect();
            let search = Search { names: &NVRTC_NAMES, folders, named, by_name: false };
            search.run(|name| is_for(name, Some(newest))).0.found
        };
        assert_eq!(found(&["one"], 1, 13), Some(at("one/libnvrtc.so.13")));
        assert_eq!(found(&["one"], 1, 12), Some(at("one/libnvrtc.so.12")));
        assert_eq!(found(&["two"], 1, 12), None);
        // A folder that the user named goes before newer libraries elsewhere; of the others the newest is
        // taken.
        library(&at("three/libnvrtc.so.12"), "int nothing;");
        assert_eq!(found(&["three", "two"], 1, 13), Some(at("three/libnvrtc.so.12")));
        assert_eq!(found(&["three", "two"], 0, 13), Some(at("two/libnvrtc.so.13")));

        let driver = at("four/libcuda.so.1");
        library(&driver, "int cuDriverGetVersion(int *v) { *v = 12080; return 0; }");
        let libraries = vec![at("four"), at("one")];
        let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
        let probe = probe(&options);
        assert_eq!(probe.cuda.found, Some(driver));
        assert_eq!(probe.nvrtc.found, Some(at("one/libnvrtc.so.12")));
    }

    #[test]
    fn a_refusal_is_one_sentence_however_many_folders_there_are() {
        let libraries = (0..40).map(|at| PathBuf::from(format!("/nowhere/{at}"))).collect();
        let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
        let text = refusal(&probe(&options), &options).unwrap().to_string();
        let places = "in 40 folders (/nowhere/0, /nowhere/1, /nowhere/2 and 37 more), where";
        assert!(text.contains(places), "{text}");
        assert!(!text.contains('\n') && text.len() < 500, "{text}");
    }

    #[test]
    fn pythons_on_path_are_found_in_environments_and_behind_shims() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let python = |home: &str, name: &str| {
            let bin = root.join(home);
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join(name), "").unwrap();
            bin
        };
        let real = python("real/bin", "python3.12");
        let venv = root.join("venv/bin");
        std::fs::create_dir_all(&venv).unwrap();
        std::os::unix::fs::symlink(real.join("python3.12"), venv.join("python")).unwrap();
        python("pyenv/versions/3.11.9/bin", "python3");
        let shims = python("pyenv/shims", "python3");
        for home in ["real", "venv", "pyenv/versions/3.11.9"] {
            std::fs::create_dir_all(root.join(home).join("lib")).unwrap();
        }
        assert_eq!(homes(&venv), [root.join("venv"), root.join("real")]);
        assert_eq!(homes(&shims), [root.join("pyenv/versions/3.11.9")]);
        assert!(homes(&root.join("none")).is_empty());
    }

    #[test]
    fn the_real_probe_looks_for_the_names_that_wheels_ship() {
        let probe = probe(&NcclOptions::default());
        assert_eq!(probe.cuda.names, ["libcuda.so.1"]);
        assert_eq!(probe.nccl.names, ["libnccl.so.2", "libnccl.so"]);
        let wheels = |folder: &PathBuf| folder.ends_with("nvidia/nccl/lib");
        assert!(probe.nccl.folders.iter().any(wheels), "{:?}", probe.nccl.folders);
        let wheels = |folder: &PathBuf| folder.ends_with("nvidia/cu13/lib");
        assert!(probe.nvrtc.folders.iter().any(wheels), "{:?}", probe.nvrtc.folders);
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(display_version(22809), "2.28.9");
        assert_eq!(display_version(2708), "2.7.8");
    }
}
