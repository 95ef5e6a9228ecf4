//! NCCL's C interface: non-blocking communicators whose calls a [hub] carries out.

use crate::communicator::{
    Awaited, Comm, IN_PROGRESS, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, LAST_ERROR,
    MOST_OPERATIONS, OWN_OPERATIONS, REMOTE_ERROR, SUCCESS, Shared, failed, leave, of,
};
use crate::cuda::{at, enqueue};
use crate::hub::{self, Kind, ToHub};
use crate::lock;
use half::f16;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{Factor, ReduceOp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_uint {
    unsafe { version.write(22_800) };
    SUCCESS
}

/// NCCL's `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_uint {
    match hub::start() {
        Ok(name) => {
            let mut bytes = [0; 128];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            unsafe { id.write(UniqueId(bytes)) };
            SUCCESS
        }
        Err(error) => failed(INTERNAL_ERROR, &error.to_string()),
    }
}

/// The first fields of NCCL's `ncclConfig_t`.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

unsafe fn check(config: *const Config) -> Result<(), c_uint> {
    let Some(config) = (unsafe { config.as_ref() }) else {
        return Err(failed(INVALID_ARGUMENT, "no config: the stand-in is non-blocking only"));
    };
    if config.magic != 0xcafe_beef || config.size < size_of::<Config>() {
        return Err(failed(INVALID_ARGUMENT, "ncclConfig_t argument not initialized"));
    }
    if config.blocking != 0 {
        return Err(failed(INVALID_ARGUMENT, "the stand-in is non-blocking only"));
    }
    Ok(())
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *mut c_void,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_uint {
    if let Err(code) = unsafe { check(config) } {
        return code;
    }
    let shared = Arc::new(Shared::default());
    let name = String::from_utf8_lossy(&id.0).trim_end_matches('\0').to_owned();
    shared.join(name, size as u32, rank as u32);
    unsafe { comm.write(Box::into_raw(Box::new(Comm(shared))).cast()) };
    IN_PROGRESS
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: *mut c_void,
    colour: c_int,
    key: c_int,
    child: *mut *mut c_void,
    config: *mut Config,
) -> c_uint {
    if let Err(code) = unsafe { check(config) } {
        return code;
    }
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    let seq = shared.split_calls.fetch_add(1, Ordering::Relaxed);
    shared.state.store(IN_PROGRESS, Ordering::Release);
    if colour >= 0 {
        let made = Arc::new(Shared::default());
        made.state.store(IN_PROGRESS, Ordering::Release);
        lock(&shared.splits).insert(seq, made.clone());
        unsafe { child.write(Box::into_raw(Box::new(Comm(made))).cast()) };
    } else {
        unsafe { child.write(std::ptr::null_mut()) };
    }
    shared.tell(&ToHub::Split { seq, colour, key });
    IN_PROGRESS
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: *mut c_void) -> c_uint {
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    let _alone = shared.alone();
    if std::env::var_os("STAND_IN_NEVER_FINALIZES").is_some() {
        shared.finalized.store(true, Ordering::Release);
        shared.state.store(IN_PROGRESS, Ordering::Release);
        return IN_PROGRESS;
    }
    SUCCESS
}

/// NCCL's. The memory stays: a stream may still look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *mut c_void) -> c_uint {
    unsafe { ncclCommAbort(comm) }
}

/// NCCL's. The memory stays: a stream may still look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: *mut c_void) -> c_uint {
    match unsafe { of(comm) } {
        Some(shared) => {
            let _alone = shared.alone();
            if let Some(folder) = std::env::var_os("STAND_IN_NEVER_FINALIZES")
                && shared.finalized.load(Ordering::Acquire)
            {
                leave(&folder, "aborted");
            }
            shared.abort();
            SUCCESS
        }
        None => INVALID_ARGUMENT,
    }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *mut c_void, state: *mut c_uint) -> c_uint {
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    let _alone = shared.alone();
    unsafe { state.write(shared.state.load(Ordering::Acquire)) };
    SUCCESS
}

/// NCCL's.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_uint) -> *const c_char {
    match code {
        SUCCESS => c"no error",
        INTERNAL_ERROR => c"internal error - please report this issue to the NCCL developers",
        INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
    .as_ptr()
}

/// NCCL's.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: *mut c_void) -> *const c_char {
    match &*lock(&LAST_ERROR) {
        // Kept until the next error, which is as long as its readers need it.
        Some(text) => text.clone().into_raw(),
        None => c"".as_ptr(),
    }
}

fn dtype(code: c_uint) -> Option<Dtype> {
    Some(match code {
        0 => Dtype::Int8,
        1 => Dtype::Uint8,
        2 => Dtype::Int32,
        4 => Dtype::Int64,
        6 => Dtype::Float16,
        7 => Dtype::Float32,
        8 => Dtype::Float64,
        9 => Dtype::Bfloat16,
        10 => Dtype::Float8E4m3fn,
        11 => Dtype::Float8E5m2,
        _ => return None,
    })
}

fn operation(shared: &Shared, code: c_uint) -> Option<ReduceOp> {
    Some(match code {
        0 => ReduceOp::Sum,
        1 => ReduceOp::Product,
        2 => ReduceOp::Max,
        3 => ReduceOp::Min,
        4 => ReduceOp::Avg,
        own => ReduceOp::PremulSum(Factor::new(*lock(&shared.operations).get(&own)?)?),
    })
}

/// NCCL's, for a factor in host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut c_uint,
    scalar: *mut c_void,
    of_type: c_uint,
    residence: c_uint,
    comm: *mut c_void,
) -> c_uint {
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    if residence != 1 {
        return failed(INVALID_ARGUMENT, "the stand-in takes factors from host memory only");
    }
    let factor = unsafe {
        match dtype(of_type) {
            Some(Dtype::Float64) => scalar.cast::<f64>().read(),
            Some(Dtype::Float32) => scalar.cast::<f32>().read().into(),
            Some(Dtype::Bfloat16) => {
                f32::from_bits(u32::from(scalar.cast::<u16>().read()) << 16).into()
            }
            Some(Dtype::Float16) => f16::from_bits(scalar.cast::<u16>().read()).into(),
            _ => return failed(INVALID_ARGUMENT, "the stand-in scales floats only"),
        }
    };
    let _alone = shared.alone();
    let mut operations = lock(&shared.operations);
    if operations.len() == MOST_OPERATIONS {
        return failed(INTERNAL_ERROR, "the stand-in has no more operations: none was destroyed");
    }
    let number = OWN_OPERATIONS + shared.operation_calls.fetch_add(1, Ordering::Relaxed);
    operations.insert(number, factor);
    unsafe { op.write(number) };
    SUCCESS
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpDestroy(op: c_uint, comm: *mut c_void) -> c_uint {
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    let _alone = shared.alone();
    match lock(&shared.operations).remove(&op) {
        Some(_) => SUCCESS,
        None => failed(INVALID_ARGUMENT, "no such operation"),
    }
}

/// Like a kernel that was ended: nothing behind it on its stream runs.
fn never() -> ! {
    loop {
        std::thread::park();
    }
}

/// A collective: of `sent` bytes from `from`, and as many as come back into `into`.
unsafe fn collective(
    comm: *mut c_void,
    stream: *mut c_void,
    kind: impl FnOnce(&Shared) -> Option<Kind>,
    [from, into]: [usize; 2],
    of_type: c_uint,
    [count, parts]: [usize; 2],
) -> c_uint {
    let Some(shared) = (unsafe { of(comm) }) else { return INVALID_ARGUMENT };
    let _alone = shared.alone();
    let (Some(kind), Some(dtype)) = (kind(shared), dtype(of_type)) else {
        return failed(INVALID_ARGUMENT, "no such type or operation");
    };
    let shared = shared.clone();
    let seq = shared.collectives.fetch_add(1, Ordering::Relaxed) + 1;
    let sent = count * parts * dtype.size_bytes() as usize;
    let job = move || {
        if shared.fails(seq) {
            shared.fail(REMOTE_ERROR, "the stand-in was told to fail here");
            never();
        }
        let data = unsafe { std::slice::from_raw_parts(at::<u8>(from), sent) }.to_vec();
        shared.tell(&ToHub::Collective { seq, kind, dtype, count: count as u64, data });
        if let Some(data) = shared.wait(Awaited::Collective(seq)) {
            unsafe { at::<u8>(into).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        } else {
            never();
        }
    };
    unsafe { enqueue(stream, job) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_uint,
    op: c_uint,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let kind = |shared: &Shared| Some(Kind::AllReduce(operation(shared, op)?));
    let memory = [from.expose_provenance(), into.expose_provenance()];
    unsafe { collective(comm, stream, kind, memory, dtype, [count, 1]) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_uint,
    op: c_uint,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let kind = |shared: &Shared| Some(Kind::Reduce(operation(shared, op)?, root as u32));
    let memory = [from.expose_provenance(), into.expose_provenance()];
    unsafe { collective(comm, stream, kind, memory, dtype, [count, 1]) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_uint,
    op: c_uint,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let size = unsafe { of(comm) }.map_or(0, |shared| shared.size.load(Ordering::Acquire));
    let kind = |shared: &Shared| Some(Kind::ReduceScatter(operation(shared, op)?));
    let memory = [from.expose_provenance(), into.expose_provenance()];
    unsafe { collective(comm, stream, kind, memory, dtype, [count, size as usize]) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_uint,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let kind = |_: &Shared| Some(Kind::Broadcast(root as u32));
    let memory = [from.expose_provenance(), into.expose_provenance()];
    unsafe { collective(comm, stream, kind, memory, dtype, [count, 1]) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_uint,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let memory = [from.expose_provenance(), into.expose_provenance()];
    unsafe { collective(comm, stream, |_| Some(Kind::AllGather), memory, dtype, [count, 1]) }
}

/// A send or receive of a group.
struct Transfer {
    comm: usize,
    stream: usize,
    sends: bool,
    peer: u32,
    memory: usize,
    bytes: usize,
}

thread_local! {
    static GROUP: RefCell<Option<Vec<Transfer>>> = const { RefCell::new(None) };
}

/// NCCL's.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_uint {
    GROUP.with(|group| *group.borrow_mut() = Some(Vec::new()));
    SUCCESS
}

/// NCCL's, for groups of one communicator and one stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> c_uint {
    let transfers = GROUP.with(|group| group.borrow_mut().take()).unwrap_or_default();
    let Some(first) = transfers.first() else { return SUCCESS };
    let (comm, stream) = (at::<c_void>(first.comm), at::<c_void>(first.stream));
    let Some(shared) = (unsafe { of(comm) }).cloned() else { return INVALID_ARGUMENT };
    let _alone = shared.alone();
    let shared = shared.clone();
    // Numbered now, as they were called.
    let next = |numbers: &Mutex<BTreeMap<u32, u64>>, peer: u32| {
        let mut numbers = lock(numbers);
        let number = numbers.entry(peer).or_default();
        *number += 1;
        *number
    };
    let numbered: Vec<(Transfer, u64)> = transfers
        .into_iter()
        .map(|transfer| {
            let numbers = if transfer.sends { &shared.sends } else { &shared.receives };
            let number = next(numbers, transfer.peer);
            (transfer, number)
        })
        .collect();
    let job = move || {
        for (transfer, number) in &numbered {
            let (peer, number) = (transfer.peer, *number);
            if transfer.sends {
                let from = at::<u8>(transfer.memory);
                let data = unsafe { std::slice::from_raw_parts(from, transfer.bytes) }.to_vec();
                shared.tell(&ToHub::Send { to: peer, number, data });
            } else {
                shared.tell(&ToHub::Receive { from: peer, number });
            }
        }
        for (transfer, number) in &numbered {
            let what = match transfer.sends {
                true => Awaited::Sent(transfer.peer, *number),
                false => Awaited::Received(transfer.peer, *number),
            };
            match shared.wait(what) {
                Some(data) => {
                    let length = data.len().min(transfer.bytes);
                    let into = at::<u8>(transfer.memory);
                    unsafe { into.copy_from_nonoverlapping(data.as_ptr(), length) };
                }
                None => never(),
            }
        }
    };
    unsafe { enqueue(stream, job) }
}

unsafe fn transfer(
    comm: *mut c_void,
    stream: *mut c_void,
    sends: bool,
    peer: c_int,
    memory: usize,
    bytes: usize,
) -> c_uint {
    let (comm, stream) = (comm.expose_provenance(), stream.expose_provenance());
    GROUP.with(|group| match &mut *group.borrow_mut() {
        Some(group) => {
            group.push(Transfer { comm, stream, sends, peer: peer as u32, memory, bytes });
            SUCCESS
        }
        None => failed(INVALID_USAGE, "the stand-in sends and receives in groups only"),
    })
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    of_type: c_uint,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let Some(dtype) = dtype(of_type) else { return INVALID_ARGUMENT };
    let bytes = count * dtype.size_bytes() as usize;
    unsafe { transfer(comm, stream, true, peer, from.expose_provenance(), bytes) }
}

/// NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    into: *mut c_void,
    count: usize,
    of_type: c_uint,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_uint {
    let Some(dtype) = dtype(of_type) else { return INVALID_ARGUMENT };
    let bytes = count * dtype.size_bytes() as usize;
    unsafe { transfer(comm, stream, false, peer, into.expose_provenance(), bytes) }
}
