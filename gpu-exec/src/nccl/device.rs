//! One GPU: its streams, events, memory and kernels.
//!
//! `unsafe`: calls through the driver's C interface. Handles are made by the driver, live until the
//! process ends (a rank's process has one program to run), and are passed back to it only; memory
//! is named by [`Region`]s that were checked against their allocation.
#![allow(unsafe_code, reason = "see the module's text")]

use super::compiler;
use super::error::DeviceError;
use super::table::{Driver, Nvrtc};
use crate::clock;
use cudarc::driver::sys::{self, CUcontext, CUevent, CUfunction, CUmodule, CUstream};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Threads a block of every kernel.
const BLOCK: u32 = 256;

const SUCCESS: c_uint = sys::CUresult::CUDA_SUCCESS as c_uint;
const NOT_READY: c_uint = sys::CUresult::CUDA_ERROR_NOT_READY as c_uint;

/// A stream of a device: its commands run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream(pub(super) CUstream);

// SAFETY: the driver's handles may be used from any thread that has made the context current.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Stream {}

/// A point on a stream, with its time.
#[derive(Debug)]
pub(super) struct Event {
    event: CUevent,
    driver: Arc<Driver>,
}

// SAFETY: as `Stream`.
unsafe impl Send for Event {}
// SAFETY: as `Stream`.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `Device::event`, and dropped once. The driver frees it when it is over.
        unsafe { (self.driver.cuEventDestroy_v2)(self.event) };
    }
}

/// Bytes on a device: an address and a length inside one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    address: u64,
    bytes: u64,
}

impl Region {
    pub(super) fn address(self) -> u64 {
        self.address
    }

    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// A part of it; `None` when it is not inside.
    pub(super) fn part(self, offset: u64, bytes: u64) -> Option<Region> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(Region { address: self.address + offset, bytes })
    }
}

/// A GPU that this process computes on.
#[derive(Debug)]
pub(super) struct Device {
    driver: Arc<Driver>,
    context: CUcontext,
    name: String,
    pub(super) bus_id: String,
    multiprocessors: u32,
    capability: (i32, i32),
    cuda: i32,
    module: CUmodule,
    functions: Mutex<BTreeMap<String, Function>>,
}

#[derive(Clone, Copy, Debug)]
struct Function(CUfunction);

// SAFETY: as `Stream`.
unsafe impl Send for Function {}
// SAFETY: as `Stream`.
unsafe impl Send for Device {}
// SAFETY: as `Stream`.
unsafe impl Sync for Device {}

/// The names of a driver's errors, and the function that was called.
fn check(driver: &Driver, call: &'static str, code: c_uint) -> Result<(), DeviceError> {
    if code == SUCCESS {
        return Ok(());
    }
    let text = |get: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
        let mut text = ptr::null();
        // SAFETY: writes one pointer to a text that lives as long as the library, or null.
        let found = unsafe { get(code, &raw mut text) } == SUCCESS && !text.is_null();
        // SAFETY: a C string, as above.
        found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(driver.cuGetErrorName).unwrap_or_else(|| format!("error {code}"));
    let text = text(driver.cuGetErrorString).unwrap_or_else(|| "no description".to_owned());
    Err(DeviceError::Cuda { call, name, text })
}

/// Calls a function of the driver and checks its code.
macro_rules! cuda {
    ($driver:expr, $call:ident($($argument:expr),* $(,)?)) => {{
        let driver: &Driver = &$driver;
        // SAFETY: the arguments are what the driver's documentation asks of this function: handles
        // that it made, memory that lives and is long enough, pointers to results of its types.
        let code = unsafe { (driver.$call)($($argument),*) };
        check(driver, stringify!($call), code)
    }};
}

/// The number of GPUs that the driver shows. `CUDA_VISIBLE_DEVICES` can hide some.
pub(super) fn count(driver: &Driver) -> Result<u32, DeviceError> {
    let visible_devices = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let none = || DeviceError::NoDevice { visible_devices: visible_devices.clone() };
    match cuda!(driver, cuInit(0)) {
        Err(DeviceError::Cuda { name, .. }) if name == "CUDA_ERROR_NO_DEVICE" => Err(none()),
        other => other,
    }?;
    let mut count = 0;
    cuda!(driver, cuDeviceGetCount(&raw mut count))?;
    if count <= 0 {
        return Err(none());
    }
    Ok(count as u32)
}

impl Device {
    /// Opens the GPU with that number, and compiles the kernels for it.
    pub(super) fn open(
        driver: Arc<Driver>,
        nvrtc: &Nvrtc,
        number: u32,
    ) -> Result<Device, DeviceError> {
        let mut device = 0;
        cuda!(driver, cuDeviceGet(&raw mut device, number as c_int))?;
        let attribute = |which| {
            let mut value = 0;
            cuda!(driver, cuDeviceGetAttribute(&raw mut value, which, device)).map(|()| value)
        };
        use sys::CUdevice_attribute as Attribute;
        let multiprocessors =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let mut text: [c_char; 128] = [0; 128];
        cuda!(driver, cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, device))?;
        let name = to_text(&text);
        cuda!(driver, cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device))?;
        let bus_id = to_text(&text);
        let mut cuda = 0;
        cuda!(driver, cuDriverGetVersion(&raw mut cuda))?;
        let mut context = ptr::null_mut();
        cuda!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        cuda!(driver, cuCtxSetCurrent(context))?;
        let architecture = format!("sm_{}{}", capability.0, capability.1);
        let image = compiler::compile(nvrtc, &architecture)?;
        let mut module = ptr::null_mut();
        cuda!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast::<c_void>()))?;
        let functions = Mutex::default();
        Ok(Device {
            driver,
            context,
            name,
            bus_id,
            multiprocessors,
            capability,
            cuda,
            module,
            functions,
        })
    }

    /// Its description in a trace: `NVIDIA H200 (sm_90, CUDA 13.0, driver 580.95.05)`.
    pub(super) fn describe(&self, driver_version: Option<&str>) -> String {
        let (major, minor) = self.capability;
        let cuda = (self.cuda / 1000, self.cuda % 1000 / 10);
        let driver = driver_version.map(|version| format!(", driver {version}"));
        let driver = driver.unwrap_or_default();
        format!("{} (sm_{major}{minor}, CUDA {}.{}{driver})", self.name, cuda.0, cuda.1)
    }

    /// Must be called on every thread before it uses the device.
    pub(super) fn make_current(&self) -> Result<(), DeviceError> {
        cuda!(self.driver, cuCtxSetCurrent(self.context))
    }

    /// Bytes of memory that are free.
    pub(super) fn free_bytes(&self) -> Result<u64, DeviceError> {
        let (mut free, mut total) = (0, 0);
        cuda!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok(free as u64)
    }

    /// Memory of so many bytes, at least one. It is given back when the process ends: freeing waits
    /// for the whole device, which a collective that never ends would make for ever.
    pub(super) fn memory(&self, bytes: u64) -> Result<Region, DeviceError> {
        let mut address = 0;
        let asked = bytes.max(1);
        let made = cuda!(self.driver, cuMemAlloc_v2(&raw mut address, asked as usize));
        match made {
            Ok(()) => Ok(Region { address, bytes }),
            Err(DeviceError::Cuda { name, .. }) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                Err(DeviceError::OutOfMemory { asked, free: self.free_bytes()? })
            }
            Err(error) => Err(error),
        }
    }

    /// A stream that waits for no other by itself.
    pub(super) fn stream(&self) -> Result<Stream, DeviceError> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        cuda!(self.driver, cuStreamCreate(&raw mut stream, flags))?;
        Ok(Stream(stream))
    }

    /// Waits until everything that was put on the stream is done.
    pub(super) fn synchronize(&self, stream: Stream) -> Result<(), DeviceError> {
        cuda!(self.driver, cuStreamSynchronize(stream.0))
    }

    /// Marks where the stream is now.
    pub(super) fn record(&self, stream: Stream) -> Result<Event, DeviceError> {
        let mut event = ptr::null_mut();
        cuda!(self.driver, cuEventCreate(&raw mut event, 0))?;
        let event = Event { event, driver: self.driver.clone() };
        cuda!(self.driver, cuEventRecord(event.event, stream.0))?;
        Ok(event)
    }

    /// True if the stream has passed the event.
    pub(super) fn has_passed(&self, event: &Event) -> Result<bool, DeviceError> {
        // SAFETY: an event that the driver made.
        match unsafe { (self.driver.cuEventQuery)(event.event) } {
            NOT_READY => Ok(false),
            code => check(&self.driver, "cuEventQuery", code).map(|()| true),
        }
    }

    /// Nanoseconds from one event to another, both passed; negative if they came the other way.
    pub(super) fn nanoseconds_between(&self, from: &Event, to: &Event) -> Result<i64, DeviceError> {
        let mut milliseconds = 0f32;
        let (from, to) = (from.event, to.event);
        cuda!(self.driver, cuEventElapsedTime_v2(&raw mut milliseconds, from, to))?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }

    /// An event that has passed and when that was on the shared clock: the best of some attempts,
    /// within half of what that took. `None` if none passes within the limit: the stream may share
    /// its way to the device with one that waits for a peer.
    pub(super) fn anchor(
        &self,
        stream: Stream,
        limit: Duration,
    ) -> Result<Option<(Event, u64)>, DeviceError> {
        let mut best: Option<(u64, Event, u64)> = None;
        let until = clock::now_ns().saturating_add(clock::nanoseconds(limit));
        for _ in 0..5 {
            let before = clock::now_ns();
            let event = self.record(stream)?;
            while !self.has_passed(&event)? {
                if clock::now_ns() > until {
                    return Ok(best.map(|(_, event, at)| (event, at)));
                }
                std::thread::yield_now();
            }
            let after = clock::now_ns();
            let took = after.saturating_sub(before);
            if best.as_ref().is_none_or(|(least, ..)| took < *least) {
                best = Some((took, event, before + took / 2));
            }
        }
        Ok(best.map(|(_, event, at)| (event, at)))
    }

    /// Makes the stream wait until the event has passed.
    pub(super) fn wait(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
        cuda!(self.driver, cuStreamWaitEvent(stream.0, event.event, 0))
    }

    /// Makes the stream wait until the number at `flag` is `value` or a little more, as numbers
    /// that wrap compare.
    pub(super) fn wait_for_value(
        &self,
        stream: Stream,
        flag: Region,
        value: u32,
    ) -> Result<(), DeviceError> {
        let at_least = sys::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
        cuda!(self.driver, cuStreamWaitValue32_v2(stream.0, flag.address, value, at_least))
    }

    /// Writes a number behind everything that the stream has done so far.
    pub(super) fn write_value(
        &self,
        stream: Stream,
        flag: Region,
        value: u32,
    ) -> Result<(), DeviceError> {
        cuda!(self.driver, cuStreamWriteValue32_v2(stream.0, flag.address, value, 0))
    }

    /// Fills memory with bytes and returns when they are there.
    pub(super) fn fill(
        &self,
        stream: Stream,
        into: Region,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let length = bytes.len().min(into.bytes as usize);
        if length == 0 {
            return Ok(());
        }
        let from = bytes.as_ptr().cast::<c_void>();
        cuda!(self.driver, cuMemcpyHtoDAsync_v2(into.address, from, length, stream.0))?;
        self.synchronize(stream)
    }

    /// Fills memory with zeros, on the stream.
    pub(super) fn clear(&self, stream: Stream, into: Region) -> Result<(), DeviceError> {
        match into.bytes {
            0 => Ok(()),
            bytes => cuda!(self.driver, cuMemsetD8Async(into.address, 0, bytes as usize, stream.0)),
        }
    }

    /// Reads memory once the stream has done everything so far.
    pub(super) fn read(&self, stream: Stream, from: Region) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0u8; from.bytes as usize];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let into = bytes.as_mut_ptr().cast::<c_void>();
        cuda!(self.driver, cuMemcpyDtoHAsync_v2(into, from.address, bytes.len(), stream.0))?;
        self.synchronize(stream)?;
        Ok(bytes)
    }

    /// Copies on the stream; both are as long.
    pub(super) fn copy(
        &self,
        stream: Stream,
        from: Region,
        into: Region,
    ) -> Result<(), DeviceError> {
        let bytes = from.bytes.min(into.bytes) as usize;
        if bytes == 0 || from.address == into.address {
            return Ok(());
        }
        cuda!(self.driver, cuMemcpyDtoDAsync_v2(into.address, from.address, bytes, stream.0))
    }

    /// Puts a kernel on the stream: one thread for each of `count` elements, up to eight blocks a
    /// multiprocessor.
    pub(super) fn launch(
        &self,
        stream: Stream,
        kernel: &str,
        [into, first, second]: [u64; 3],
        count: u64,
        parameter: u64,
    ) -> Result<(), DeviceError> {
        if count == 0 {
            return Ok(());
        }
        let function = self.function(kernel)?;
        let most = u64::from(self.multiprocessors) * 8;
        let blocks = count.div_ceil(u64::from(BLOCK)).clamp(1, most) as c_uint;
        let mut values = [into, first, second, count, parameter];
        let mut arguments = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
        let arguments = arguments.as_mut_ptr();
        cuda!(
            self.driver,
            cuLaunchKernel(
                function.0,
                blocks,
                1,
                1,
                BLOCK,
                1,
                1,
                0,
                stream.0,
                arguments,
                ptr::null_mut()
            )
        )
    }

    /// Elements that give every multiprocessor one block: work everywhere, which leaves room for NCCL's
    /// blocks beside it (640 threads of 96 registers, where a multiprocessor has 65,536).
    pub(super) fn full_width(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(BLOCK)
    }

    fn function(&self, name: &str) -> Result<Function, DeviceError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get(name) {
            return Ok(*known);
        }
        let c_name = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        cuda!(self.driver, cuModuleGetFunction(&raw mut function, self.module, c_name.as_ptr()))?;
        functions.insert(name.to_owned(), Function(function));
        Ok(Function(function))
    }
}

fn to_text(text: &[c_char]) -> String {
    let bytes: Vec<u8> =
        text.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Loads the driver.
pub(super) fn driver(path: &Path) -> Result<Arc<Driver>, DeviceError> {
    Driver::load(path).map(Arc::new)
}
