//! The functions of CUDA's driver, NVRTC and NCCL that ranks call, as tables of pointers into the
//! libraries that were found.
//!
//! cudarc has bindings for all of them, but loads the libraries itself: by names that Python's
//! packages do not ship (`libnccl.so`, where they have `libnccl.so.2` only), and with a panic when
//! a library or a function is missing. So the types are cudarc's, the addresses are ours, and the
//! compiler holds the signatures against cudarc's.
//!
//! `unsafe`: looking symbols up, which trusts that a function of that name has the signature that
//! its header gives it.
#![allow(unsafe_code, reason = "see the module's text")]
#![allow(non_snake_case, reason = "the functions are called what they are called in C")]

use super::error::DeviceError;
use cudarc::driver::sys as driver;
use cudarc::nccl::sys as nccl;
use cudarc::nvrtc::sys as nvrtc;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use std::path::Path;

/// A table of functions that return a code. One may go by an older name of the same signature, where a
/// library has only that. The codes are numbers here: a library newer than its
/// binding may answer with one that an enum does not have.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $table:ident, $library:literal, $since:literal, $sys:ident, $result:ty,
        same { $($name:ident $(or $older:ident)? ($($type:ty),*);)* }
        other { $($other:ident($($other_type:ty),*) -> $gives:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> c_uint,)*
            $(pub(super) $other: unsafe extern "C" fn($($other_type),*) -> $gives,)*
            /// Keeps the addresses valid.
            _library: Library,
        }

        impl $table {
            /// Loads the library from `path` and looks its functions up.
            pub(super) fn load(path: &Path) -> Result<$table, DeviceError> {
                let (library, since) = ($library, $since);
                // SAFETY: the initialisers of NVIDIA's libraries run in any process and need
                // nothing set up before.
                let loaded = unsafe { Library::new(path) }.map_err(|error| DeviceError::Load {
                    library,
                    path: path.to_owned(),
                    why: error.to_string(),
                })?;
                let missing = |symbol| DeviceError::Symbol {
                    library, path: path.to_owned(), symbol, since,
                };
                // SAFETY: the signatures of `same` are those of cudarc's bindings, see below, but
                // for the code, of which both are a C int; those of `other` are the header's.
                unsafe {
                    $(let $name = *loaded
                        .get(concat!(stringify!($name), "\0").as_bytes())
                        $(.or_else(|_| loaded.get(concat!(stringify!($older), "\0").as_bytes())))?
                        .map_err(|_| missing(stringify!($name)))?;)*
                    $(let $other = *loaded
                        .get(concat!(stringify!($other), "\0").as_bytes())
                        .map_err(|_| missing(stringify!($other)))?;)*
                    Ok($table { $($name,)* $($other,)* _library: loaded })
                }
            }
        }

        // Compiles only while the signatures are cudarc's.
        const _: () = { $(let _: unsafe fn($($type),*) -> $result = $sys::$name;)* };
    };
}

table! {
    /// `libcuda.so.1`.
    Driver, "CUDA's driver", "CUDA 11.7", driver, driver::CUresult,
    same {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut driver::CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, driver::CUdevice);
        cuDeviceGetAttribute(*mut c_int, driver::CUdevice_attribute, driver::CUdevice);
        cuDeviceGetPCIBusId(*mut c_char, c_int, driver::CUdevice);
        cuDevicePrimaryCtxRetain(*mut driver::CUcontext, driver::CUdevice);
        cuCtxSetCurrent(driver::CUcontext);
        cuStreamCreate(*mut driver::CUstream, c_uint);
        cuStreamSynchronize(driver::CUstream);
        cuStreamWaitEvent(driver::CUstream, driver::CUevent, c_uint);
        cuStreamWaitValue32_v2(driver::CUstream, driver::CUdeviceptr, driver::cuuint32_t, c_uint);
        cuStreamWriteValue32_v2(driver::CUstream, driver::CUdeviceptr, driver::cuuint32_t, c_uint);
        cuEventCreate(*mut driver::CUevent, c_uint);
        cuEventDestroy_v2(driver::CUevent);
        cuEventRecord(driver::CUevent, driver::CUstream);
        cuEventQuery(driver::CUevent);
        cuEventElapsedTime_v2 or cuEventElapsedTime (*mut f32, driver::CUevent, driver::CUevent);
        cuMemAlloc_v2(*mut driver::CUdeviceptr, usize);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemcpyHtoDAsync_v2(driver::CUdeviceptr, *const c_void, usize, driver::CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, driver::CUdeviceptr, usize, driver::CUstream);
        cuMemcpyDtoDAsync_v2(driver::CUdeviceptr, driver::CUdeviceptr, usize, driver::CUstream);
        cuMemsetD8Async(driver::CUdeviceptr, c_uchar, usize, driver::CUstream);
        cuModuleLoadData(*mut driver::CUmodule, *const c_void);
        cuModuleGetFunction(*mut driver::CUfunction, driver::CUmodule, *const c_char);
        cuLaunchKernel(
            driver::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            driver::CUstream, *mut *mut c_void, *mut *mut c_void
        );
    }
    other {
        cuGetErrorName(c_uint, *mut *const c_char) -> c_uint;
        cuGetErrorString(c_uint, *mut *const c_char) -> c_uint;
    }
}

table! {
    /// `libnvrtc.so`.
    Nvrtc, "CUDA's runtime compiler", "CUDA 11.1", nvrtc, nvrtc::nvrtcResult,
    same {
        nvrtcCreateProgram(
            *mut nvrtc::nvrtcProgram, *const c_char, *const c_char, c_int,
            *const *const c_char, *const *const c_char
        );
        nvrtcCompileProgram(nvrtc::nvrtcProgram, c_int, *const *const c_char);
        nvrtcGetCUBINSize(nvrtc::nvrtcProgram, *mut usize);
        nvrtcGetCUBIN(nvrtc::nvrtcProgram, *mut c_char);
        nvrtcGetProgramLogSize(nvrtc::nvrtcProgram, *mut usize);
        nvrtcGetProgramLog(nvrtc::nvrtcProgram, *mut c_char);
        nvrtcDestroyProgram(*mut nvrtc::nvrtcProgram);
    }
    other {
        nvrtcGetErrorString(c_uint) -> *const c_char;
    }
}

table! {
    /// `libnccl.so.2`.
    Nccl, "NCCL", "NCCL 2.18", nccl, nccl::ncclResult_t,
    same {
        ncclGetVersion(*mut c_int);
        ncclGetUniqueId(*mut nccl::ncclUniqueId);
        ncclCommInitRankConfig(
            *mut nccl::ncclComm_t, c_int, nccl::ncclUniqueId, c_int, *mut nccl::ncclConfig_t
        );
        ncclCommSplit(
            nccl::ncclComm_t, c_int, c_int, *mut nccl::ncclComm_t, *mut nccl::ncclConfig_t
        );
        ncclCommFinalize(nccl::ncclComm_t);
        ncclCommDestroy(nccl::ncclComm_t);
        ncclCommAbort(nccl::ncclComm_t);
        ncclGroupStart();
        ncclGroupEnd();
        ncclBroadcast(
            *const c_void, *mut c_void, usize, nccl::ncclDataType_t, c_int, nccl::ncclComm_t,
            nccl::cudaStream_t
        );
        ncclAllGather(
            *const c_void, *mut c_void, usize, nccl::ncclDataType_t, nccl::ncclComm_t,
            nccl::cudaStream_t
        );
        ncclSend(
            *const c_void, usize, nccl::ncclDataType_t, c_int, nccl::ncclComm_t,
            nccl::cudaStream_t
        );
        ncclRecv(
            *mut c_void, usize, nccl::ncclDataType_t, c_int, nccl::ncclComm_t, nccl::cudaStream_t
        );
    }
    other {
        ncclGetErrorString(c_uint) -> *const c_char;
        ncclGetLastError(nccl::ncclComm_t) -> *const c_char;
        ncclCommGetAsyncError(nccl::ncclComm_t, *mut c_uint) -> c_uint;
        // Operations are numbers here: those that a communicator made are beyond the enum.
        ncclAllReduce(
            *const c_void, *mut c_void, usize, nccl::ncclDataType_t, c_uint, nccl::ncclComm_t,
            nccl::cudaStream_t
        ) -> c_uint;
        ncclReduce(
            *const c_void, *mut c_void, usize, nccl::ncclDataType_t, c_uint, c_int,
            nccl::ncclComm_t, nccl::cudaStream_t
        ) -> c_uint;
        ncclReduceScatter(
            *const c_void, *mut c_void, usize, nccl::ncclDataType_t, c_uint, nccl::ncclComm_t,
            nccl::cudaStream_t
        ) -> c_uint;
        ncclRedOpCreatePreMulSum(
            *mut c_uint, *mut c_void, nccl::ncclDataType_t, nccl::ncclScalarResidence_t,
            nccl::ncclComm_t
        ) -> c_uint;
        ncclRedOpDestroy(c_uint, nccl::ncclComm_t) -> c_uint;
    }
}
