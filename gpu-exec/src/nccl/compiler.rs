//! The kernels as machine code, by NVIDIA's runtime compiler (NVRTC), which needs no GPU for it.
//!
//! `unsafe`: calls through its C interface. A program is made, asked and destroyed here.
#![allow(unsafe_code, reason = "see the module's text")]

use super::error::DeviceError;
use super::kernels;
use super::table::Nvrtc;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use std::ptr;

/// Loads the runtime compiler, after what it looks for by name when it compiles: the one of CUDA 13's
/// wheels does not look beside itself (PyTorch loads its builtins first, too).
pub(super) fn load(path: &Path) -> Result<Nvrtc, DeviceError> {
    for builtins in builtins_of(path) {
        // SAFETY: data and functions for NVRTC; nothing needs to be set up before.
        if let Ok(library) = unsafe { libloading::Library::new(builtins) } {
            // Found again by its name, as long as it is loaded: until the process ends.
            std::mem::forget(library);
        }
    }
    Nvrtc::load(path)
}

/// The libraries of built-in functions beside a compiler: those of its major version, if its name says
/// it (`libnvrtc.so.13` and `libnvrtc-builtins.so.13.0`).
fn builtins_of(nvrtc: &Path) -> Vec<PathBuf> {
    const NAME: &str = "libnvrtc-builtins.so";
    let major = nvrtc.file_name().and_then(|name| name.to_str()?.strip_prefix("libnvrtc.so"));
    let Some(major) = major else { return Vec::new() };
    let entries = nvrtc.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let version = name.strip_prefix(NAME).and_then(|version| version.strip_prefix(major));
        version.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let all = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut builtins: Vec<PathBuf> = all.filter(ours).collect();
    builtins.sort();
    builtins
}

/// The kernels as machine code of the architecture: a driver older than the compiler could not
/// read the compiler's PTX.
pub(super) fn compile(nvrtc: &Nvrtc, architecture: &str) -> Result<Vec<u8>, DeviceError> {
    let refused = |call: &'static str, code: c_uint| {
        // SAFETY: returns a text that lives as long as the library.
        let text = unsafe { CStr::from_ptr((nvrtc.nvrtcGetErrorString)(code)) };
        DeviceError::Nvrtc { call, text: text.to_string_lossy().into_owned() }
    };
    macro_rules! nvrtc {
        ($call:ident($($argument:expr),*)) => {{
            // SAFETY: the program was made by NVRTC; texts end with a zero and outlive the call;
            // results have the size that NVRTC asked for.
            match unsafe { (nvrtc.$call)($($argument),*) } {
                0 => Ok(()),
                code => Err(refused(stringify!($call), code)),
            }
        }};
    }
    let source = CString::new(kernels::SOURCE).unwrap_or_default();
    let mut program = ptr::null_mut();
    let (text, no_headers) = (source.as_ptr(), ptr::null());
    nvrtc!(nvrtcCreateProgram(
        &raw mut program,
        text,
        c"kernels.cu".as_ptr(),
        0,
        no_headers,
        no_headers
    ))?;
    let architecture_option =
        CString::new(format!("--gpu-architecture={architecture}")).unwrap_or_default();
    // Each product and sum is rounded for itself.
    let options = [architecture_option.as_ptr(), c"--fmad=false".as_ptr()];
    let compiled = nvrtc!(nvrtcCompileProgram(program, options.len() as c_int, options.as_ptr()));
    if let Err(error) = compiled {
        let mut length = 0;
        nvrtc!(nvrtcGetProgramLogSize(program, &raw mut length))?;
        let mut log = vec![0u8; length.max(1)];
        nvrtc!(nvrtcGetProgramLog(program, log.as_mut_ptr().cast::<c_char>()))?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
        let log = if log.is_empty() { error.to_string() } else { log };
        return Err(DeviceError::Kernels { architecture: architecture.to_owned(), log });
    }
    let mut length = 0;
    nvrtc!(nvrtcGetCUBINSize(program, &raw mut length))?;
    let mut image = vec![0u8; length];
    nvrtc!(nvrtcGetCUBIN(program, image.as_mut_ptr().cast::<c_char>()))?;
    nvrtc!(nvrtcDestroyProgram(&raw mut program))?;
    Ok(image)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::reduce::ReduceOp;

    #[test]
    fn builtins_are_those_of_the_compilers_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = ["libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.13.0", "libnvrtc.so.13"];
        for name in names.into_iter().chain(["libnvrtc-builtins.alt.so.13.0", "libnvrtc.so.12"]) {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(builtins_of(&path("libnvrtc.so.13")), [path("libnvrtc-builtins.so.13.0")]);
        assert_eq!(builtins_of(&path("libnvrtc.so.12")), [path("libnvrtc-builtins.so.12.8")]);
        assert_eq!(builtins_of(&path("libnvrtc.so")).len(), 2);
        assert!(builtins_of(Path::new("libnvrtc.so.13")).is_empty(), "found by the loader");
    }

    /// With a real NVRTC at hand: `LOCKSTEP_NVRTC=…/libnvrtc.so.13 cargo test … -- --ignored`. It needs
    /// no GPU.
    #[test]
    #[ignore = "needs NVRTC in LOCKSTEP_NVRTC"]
    fn nvidias_compiler_takes_the_kernels() {
        let path = std::env::var_os("LOCKSTEP_NVRTC").unwrap();
        let nvrtc = load(Path::new(&path)).unwrap();
        for architecture in ["sm_80", "sm_90"] {
            let image = compile(&nvrtc, architecture).unwrap();
            assert_eq!(&image[..4], b"\x7fELF");
            let every = Dtype::COMPUTABLE.iter().flat_map(|dtype| {
                let sums = ReduceOp::ALL.iter().filter_map(|op| kernels::combine(*dtype, *op));
                sums.collect::<Vec<_>>()
            });
            for kernel in every.chain([kernels::COMPUTE.to_owned()]) {
                let named = image.windows(kernel.len()).any(|part| part == kernel.as_bytes());
                assert!(named, "{kernel} for {architecture}");
            }
        }
    }
}
