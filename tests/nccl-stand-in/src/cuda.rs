//! The driver: streams as threads, events as moments, device memory as memory.

use crate::lock;
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const SUCCESS: c_uint = 0;
const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const NO_DEVICE: c_uint = 100;
const INVALID_IMAGE: c_uint = 200;
const NOT_FOUND: c_uint = 500;
const NOT_READY: c_uint = 600;

/// The device whose context this process retained.
static DEVICE: AtomicI32 = AtomicI32::new(0);

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that a stream takes which it has not come to, as CUDA's do.
const MOST_QUEUED: usize = 1024;

/// Held inside the driver, also by who waits there for room on a stream: everybody else waits as well.
static INSIDE: Mutex<()> = Mutex::new(());

/// A stream: jobs in order, on a thread.
struct Stream {
    jobs: Mutex<Sender<Job>>,
    queue: Arc<Queue>,
}

/// The number of jobs that a stream has not done.
#[derive(Default)]
struct Queue {
    length: Mutex<usize>,
    shorter: Condvar,
}

impl Queue {
    fn lengthen(&self) {
        let mut length = lock(&self.length);
        while *length >= MOST_QUEUED {
            length = self.shorter.wait(length).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *length += 1;
    }

    fn shorten(&self) {
        *lock(&self.length) -= 1;
        self.shorter.notify_all();
    }
}

/// A moment that a stream comes to.
#[derive(Default)]
struct Moment {
    at: Mutex<Option<Instant>>,
    passed: Condvar,
}

impl Moment {
    fn pass(&self) {
        *lock(&self.at) = Some(Instant::now());
        self.passed.notify_all();
    }

    fn wait(&self) {
        let mut at = lock(&self.at);
        while at.is_none() {
            at = self.passed.wait(at).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

#[derive(Default)]
struct Event(Mutex<Option<Arc<Moment>>>);

type Kernel = unsafe extern "C" fn(u64, u64, u64, u64, u64);
type SetIndex = unsafe extern "C" fn(c_uint, c_uint, c_uint, c_uint);

struct Function {
    kernel: Kernel,
    set_index: SetIndex,
}

/// Puts a job on a stream of `cuStreamCreate`'s.
pub(crate) unsafe fn enqueue(stream: *mut c_void, job: impl FnOnce() + Send + 'static) -> c_uint {
    match unsafe { stream.cast::<Stream>().as_ref() } {
        Some(stream) => {
            let _inside = lock(&INSIDE);
            stream.queue.lengthen();
            let sent = lock(&stream.jobs).send(Box::new(job));
            if sent.is_ok() { SUCCESS } else { INVALID_VALUE }
        }
        None => INVALID_VALUE,
    }
}

fn devices() -> i32 {
    std::env::var("STAND_IN_DEVICES").ok().and_then(|count| count.parse().ok()).unwrap_or(8)
}

/// The PCI address of the device in use.
pub(crate) fn bus_id_in_use() -> String {
    bus_id(DEVICE.load(Ordering::Relaxed))
}

fn bus_id(device: i32) -> String {
    let device = if std::env::var_os("STAND_IN_ONE_BUS").is_some() { 0 } else { device };
    format!("0000:{device:02x}:00.0")
}

unsafe fn give<T>(into: *mut T, value: T) -> c_uint {
    if into.is_null() {
        return INVALID_VALUE;
    }
    unsafe { into.write(value) };
    SUCCESS
}

unsafe fn give_text(into: *mut c_char, length: c_int, text: &str) -> c_uint {
    let bytes = text.as_bytes();
    let fits = bytes.len().min((length - 1).max(0) as usize);
    unsafe {
        into.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), fits);
        into.add(fits).write(0);
    }
    SUCCESS
}

/// The driver's.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    if devices() == 0 { NO_DEVICE } else { SUCCESS }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    unsafe { give(version, 13_000) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    unsafe { give(count, devices()) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    if ordinal >= devices() {
        return INVALID_VALUE;
    }
    unsafe { give(device, ordinal) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_uint {
    unsafe { give_text(name, len, "stand-in for a GPU") }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    _device: c_int,
) -> c_uint {
    // Multiprocessors; compute capability 9.0.
    let answer = match attribute {
        16 => 2,
        75 => 9,
        _ => 0,
    };
    unsafe { give(value, answer) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    id: *mut c_char,
    length: c_int,
    device: c_int,
) -> c_uint {
    unsafe { give_text(id, length, &bus_id(device)) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_uint {
    DEVICE.store(device, Ordering::Relaxed);
    unsafe { give(context, std::ptr::without_provenance_mut(1 + device as usize)) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(_context: *mut c_void) -> c_uint {
    SUCCESS
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_uint {
    let (sender, jobs): (Sender<Job>, Receiver<Job>) = channel();
    let queue = Arc::new(Queue::default());
    let made = Stream { jobs: Mutex::new(sender), queue: queue.clone() };
    std::thread::spawn(move || {
        for job in jobs {
            job();
            queue.shorten();
        }
    });
    let made = Box::into_raw(Box::new(made));
    unsafe { give(stream, made.cast()) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_uint {
    let moment = Arc::new(Moment::default());
    let passing = moment.clone();
    let code = unsafe { enqueue(stream, move || passing.pass()) };
    if code == SUCCESS {
        moment.wait();
    }
    code
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(
    stream: *mut c_void,
    event: *mut c_void,
    _flags: c_uint,
) -> c_uint {
    let Some(event) = (unsafe { event.cast::<Event>().as_ref() }) else { return INVALID_VALUE };
    // As the driver: an event that was never recorded holds nobody.
    let Some(moment) = lock(&event.0).clone() else { return SUCCESS };
    unsafe { enqueue(stream, move || moment.wait()) }
}

fn number(address: u64) -> &'static AtomicU32 {
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitValue32_v2(
    stream: *mut c_void,
    address: u64,
    value: u32,
    flags: c_uint,
) -> c_uint {
    if flags != 0 {
        return INVALID_VALUE;
    }
    let wait = move || {
        while (number(address).load(Ordering::Acquire).wrapping_sub(value) as i32) < 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    };
    unsafe { enqueue(stream, wait) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWriteValue32_v2(
    stream: *mut c_void,
    address: u64,
    value: u32,
    _flags: c_uint,
) -> c_uint {
    unsafe { enqueue(stream, move || number(address).store(value, Ordering::Release)) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_uint {
    unsafe { give(event, Box::into_raw(Box::<Event>::default()).cast()) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_uint {
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    SUCCESS
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_uint {
    let Some(event) = (unsafe { event.cast::<Event>().as_ref() }) else { return INVALID_VALUE };
    let moment = Arc::new(Moment::default());
    *lock(&event.0) = Some(moment.clone());
    unsafe { enqueue(stream, move || moment.pass()) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> c_uint {
    let _inside = lock(&INSIDE);
    let Some(event) = (unsafe { event.cast::<Event>().as_ref() }) else { return INVALID_VALUE };
    match &*lock(&event.0) {
        Some(moment) if lock(&moment.at).is_none() => NOT_READY,
        _ => SUCCESS,
    }
}

/// The driver's, by the name that it has in drivers before CUDA 12.8 and keeps in later ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    from: *mut c_void,
    to: *mut c_void,
) -> c_uint {
    let at = |event: *mut c_void| {
        let event = unsafe { event.cast::<Event>().as_ref() }?;
        let moment = lock(&event.0).clone()?;
        *lock(&moment.at)
    };
    let (Some(from), Some(to)) = (at(from), at(to)) else { return NOT_READY };
    let between = match to.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    };
    unsafe { give(milliseconds, (between * 1e3) as f32) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    let layout = std::alloc::Layout::from_size_align(bytes.max(1), 256);
    let Ok(layout) = layout else { return OUT_OF_MEMORY };
    // Not zeros: nobody may count on them.
    let memory = unsafe { std::alloc::alloc(layout) };
    if memory.is_null() {
        return OUT_OF_MEMORY;
    }
    unsafe {
        memory.write_bytes(0xa5, bytes);
        give(address, memory.expose_provenance() as u64)
    }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    unsafe { give(free, 1 << 32) | give(total, 1 << 33) }
}

/// Device memory.
pub(crate) fn at<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

unsafe fn copy(from: usize, into: usize, bytes: usize, stream: *mut c_void) -> c_uint {
    unsafe { enqueue(stream, move || at::<u8>(from).copy_to(at::<u8>(into), bytes)) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    into: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_uint {
    unsafe { copy(from.expose_provenance(), into as usize, bytes, stream) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    into: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_uint {
    unsafe { copy(from as usize, into.expose_provenance(), bytes, stream) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    into: u64,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_uint {
    unsafe { copy(from as usize, into as usize, bytes, stream) }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    address: u64,
    value: c_uchar,
    bytes: usize,
    stream: *mut c_void,
) -> c_uint {
    unsafe { enqueue(stream, move || at::<u8>(address as usize).write_bytes(value, bytes)) }
}

/// The driver's; an image is what this library's NVRTC makes: the path of what was compiled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(
    module: *mut *mut c_void,
    image: *const c_void,
) -> c_uint {
    let path = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
    match unsafe { Library::new(path) } {
        Ok(library) => unsafe { give(module, Box::into_raw(Box::new(library)).cast()) },
        Err(_) => INVALID_IMAGE,
    }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_uint {
    let Some(library) = (unsafe { module.cast::<Library>().as_ref() }) else {
        return INVALID_VALUE;
    };
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    let lacks = std::env::var("STAND_IN_LACKS").unwrap_or_default();
    if name.strip_suffix(b"\0") == Some(lacks.as_bytes()) {
        return NOT_FOUND;
    }
    let found = unsafe {
        let kernel = library.get::<Kernel>(name).map(|symbol| *symbol);
        let set_index = library.get::<SetIndex>(b"stand_in_index\0").map(|symbol| *symbol);
        kernel.and_then(|kernel| Ok(Function { kernel, set_index: set_index? }))
    };
    match found {
        Ok(found) => unsafe { give(function, Box::into_raw(Box::new(found)).cast()) },
        Err(_) => NOT_FOUND,
    }
}

/// The driver's, for kernels of five 64-bit numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    blocks: c_uint,
    _: c_uint,
    _: c_uint,
    threads: c_uint,
    _: c_uint,
    _: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_uint {
    let Some(function) = (unsafe { function.cast::<Function>().as_ref() }) else {
        return INVALID_VALUE;
    };
    let (kernel, set_index) = (function.kernel, function.set_index);
    let argument = |index| unsafe { arguments.add(index).read().cast::<u64>().read() };
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(argument);
    let run = move || {
        for block in 0..blocks {
            for thread in 0..threads {
                unsafe {
                    set_index(block, thread, blocks, threads);
                    kernel(a, b, c, d, e);
                }
            }
        }
    };
    unsafe { enqueue(stream, run) }
}

fn names() -> BTreeMap<c_uint, (&'static CStr, &'static CStr)> {
    BTreeMap::from([
        (SUCCESS, (c"CUDA_SUCCESS", c"no error")),
        (INVALID_VALUE, (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument")),
        (OUT_OF_MEMORY, (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory")),
        (NO_DEVICE, (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected")),
        (INVALID_IMAGE, (c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid")),
        (NOT_FOUND, (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found")),
        (NOT_READY, (c"CUDA_ERROR_NOT_READY", c"device not ready")),
    ])
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, text: *mut *const c_char) -> c_uint {
    match names().get(&code) {
        Some((name, _)) => unsafe { give(text, name.as_ptr()) },
        None => INVALID_VALUE,
    }
}

/// The driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_uint, text: *mut *const c_char) -> c_uint {
    match names().get(&code) {
        Some((_, words)) => unsafe { give(text, words.as_ptr()) },
        None => INVALID_VALUE,
    }
}
