//! The runtime compiler: the C compiler, on the same text behind a prelude. Its output is kept beside this
//! library, under a name of the text's, so that every rank of every test finds it.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const SUCCESS: c_uint = 0;
const INVALID_INPUT: c_uint = 3;
const COMPILATION: c_uint = 6;

const PRELUDE: &str = include_str!("prelude.h");

#[derive(Default)]
struct Program {
    source: String,
    log: CString,
    image: CString,
}

/// The folder of this library.
fn folder() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("nccl_stand_in"))?;
    Path::new(&line[line.find('/')?..]).parent().map(Path::to_owned)
}

fn compile(source: &str) -> Result<PathBuf, String> {
    let text = format!("{PRELUDE}\n{source}");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let folder = folder().ok_or("the stand-in does not find itself")?;
    let name = format!("stand-in-kernels-{:016x}", hasher.finish());
    let made = folder.join(format!("{name}.so"));
    if made.exists() {
        return Ok(made);
    }
    let own = |end: &str| folder.join(format!("{name}-{}.{end}", std::process::id()));
    let (written, linked) = (own("c"), own("so"));
    std::fs::write(&written, text).map_err(|error| error.to_string())?;
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o"])
        .arg(&linked)
        .arg(&written)
        .output();
    let _ = std::fs::remove_file(&written);
    let output = output.map_err(|error| format!("the stand-in needs a C compiler, cc: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&linked, &made).map_err(|error| error.to_string())?;
    Ok(made)
}

unsafe fn of<'a>(program: *mut c_void) -> Option<&'a mut Program> {
    unsafe { program.cast::<Program>().as_mut() }
}

unsafe fn give_text(text: &CStr, into: *mut c_char) -> c_uint {
    let bytes = text.to_bytes_with_nul();
    unsafe { into.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    SUCCESS
}

unsafe fn give_size(text: &CStr, into: *mut usize) -> c_uint {
    unsafe { into.write(text.to_bytes_with_nul().len()) };
    SUCCESS
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut c_void,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_uint {
    if headers != 0 {
        return INVALID_INPUT;
    }
    let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
    let made = Box::new(Program { source, ..Program::default() });
    unsafe { program.write(Box::into_raw(made).cast()) };
    SUCCESS
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut c_void,
    _count: c_int,
    _options: *const *const c_char,
) -> c_uint {
    let Some(program) = (unsafe { of(program) }) else { return INVALID_INPUT };
    match compile(&program.source) {
        Ok(path) => {
            program.image = CString::new(path.to_string_lossy().into_owned()).unwrap_or_default();
            SUCCESS
        }
        Err(log) => {
            program.log = CString::new(log).unwrap_or_default();
            COMPILATION
        }
    }
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut c_void, size: *mut usize) -> c_uint {
    match unsafe { of(program) } {
        Some(program) => unsafe { give_size(&program.image, size) },
        None => INVALID_INPUT,
    }
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut c_void, image: *mut c_char) -> c_uint {
    match unsafe { of(program) } {
        Some(program) => unsafe { give_text(&program.image, image) },
        None => INVALID_INPUT,
    }
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut c_void, size: *mut usize) -> c_uint {
    match unsafe { of(program) } {
        Some(program) => unsafe { give_size(&program.log, size) },
        None => INVALID_INPUT,
    }
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: *mut c_void, log: *mut c_char) -> c_uint {
    match unsafe { of(program) } {
        Some(program) => unsafe { give_text(&program.log, log) },
        None => INVALID_INPUT,
    }
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> c_uint {
    drop(unsafe { Box::from_raw(program.read().cast::<Program>()) });
    SUCCESS
}

/// NVRTC's.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(code: c_uint) -> *const c_char {
    match code {
        SUCCESS => c"NVRTC_SUCCESS",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR_INVALID_INPUT",
    }
    .as_ptr()
}
