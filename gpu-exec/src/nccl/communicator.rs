//! NCCL's communicators as a debugger needs them: non-blocking from the start, asked for their
//! errors while they work, and ended by an abort from another thread.
//!
//! A call on a non-blocking communicator may answer `ncclInProgress`; nothing else may be called on
//! it until [`Communicator::settle`] has seen it through. That wait has no limit of its own while a
//! program runs: the watchdog of the rank's calls ends the process.
//!
//! Three threads reach a communicator: the program, the timeline that asks for errors, and whoever
//! aborts. NCCL allows one of them at a time (user guide, "Thread Safety"), and an abort frees what
//! the handle points to: so the handle lies in a mutex that is held for the length of each call,
//! and an abort takes it out.
//!
//! `unsafe`: calls through NCCL's C interface. A handle is made by an initialisation and goes back
//! to NCCL only, by whoever holds the mutex; after an abort there is none.
#![allow(unsafe_code, reason = "see the module's text")]

use super::device::{Device, Region, Stream};
use super::error::DeviceError;
use super::lower::{Element, Operation};
use super::table::Nccl;
use cudarc::nccl::sys::{self, ncclComm, ncclConfig_t, ncclDataType_t, ncclUniqueId};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::time::{Duration, Instant};

/// Interval at which a communicator that is not ready yet is asked again …
const LOOK: Duration = Duration::from_micros(100);

/// … and for how long without a pause: a call on a communicator that is connected takes NCCL's own thread
/// less, and the next one waits for it.
const LOOKS_ON: Duration = Duration::from_micros(200);

/// Time that an abort waits for a call that is under way. One that puts something on a stream whose
/// queue is full does not come back before the stream moves on; the process then ends with its
/// communicators as they are.
const ABORT_WAITS: Duration = Duration::from_millis(200);

const SUCCESS: c_uint = sys::ncclResult_t::ncclSuccess as c_uint;
const IN_PROGRESS: c_uint = sys::ncclResult_t::ncclInProgress as c_uint;

/// The id that all ranks of a communicator must know to meet.
pub(super) type UniqueId = [u8; 128];

/// Loads NCCL.
pub(super) fn load(path: &Path) -> Result<Arc<Nccl>, DeviceError> {
    Nccl::load(path).map(Arc::new)
}

/// NCCL's version as people write it.
pub(super) fn version(nccl: &Nccl) -> Result<String, DeviceError> {
    let mut version: c_int = 0;
    // SAFETY: writes one int.
    let code = unsafe { (nccl.ncclGetVersion)(&raw mut version) };
    check(nccl, "ncclGetVersion", ptr::null_mut(), code)?;
    Ok(super::probe::display_version(version))
}

/// A new meeting place, made by one rank for all of a communicator.
pub(super) fn unique_id(nccl: &Nccl) -> Result<UniqueId, DeviceError> {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: writes the 128 bytes that it is given.
    let code = unsafe { (nccl.ncclGetUniqueId)(&raw mut id) };
    check(nccl, "ncclGetUniqueId", ptr::null_mut(), code)?;
    Ok(id.internal.map(|byte| byte as u8))
}

fn check(
    nccl: &Nccl,
    call: &'static str,
    handle: *mut ncclComm,
    code: c_uint,
) -> Result<(), DeviceError> {
    if code == SUCCESS || code == IN_PROGRESS {
        return Ok(());
    }
    // SAFETY: both return texts that live as long as the library, or null; a null communicator is
    // allowed (nccl.h).
    let [text, last] = unsafe {
        [(nccl.ncclGetErrorString)(code), (nccl.ncclGetLastError)(handle)]
    }
    .map(|text| match text.is_null() {
        true => String::new(),
        // SAFETY: a C string, as above.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned(),
    });
    Err(DeviceError::Nccl { call, text, last })
}

/// A rank's side of a communicator.
#[derive(Debug)]
pub(super) struct Communicator {
    nccl: Arc<Nccl>,
    /// `None` once it is aborted or destroyed.
    handle: Mutex<Option<Handle>>,
}

/// NCCL's pointer, for whoever holds the mutex around it.
#[derive(Debug)]
struct Handle(*mut ncclComm);

// SAFETY: NCCL allows any thread to use a communicator, one at a time.
unsafe impl Send for Handle {}

/// The sends and receives of a call in one group: to and from ranks of the communicator.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) sends: Vec<(u32, Region)>,
    pub(super) receives: Vec<(u32, Region)>,
}

impl Communicator {
    /// Joins the others. Returns when all have come, or as late at the deadline.
    pub(super) fn join(
        nccl: Arc<Nccl>,
        id: &UniqueId,
        size: u32,
        rank: u32,
        limit: Duration,
    ) -> Result<Communicator, DeviceError> {
        let id = ncclUniqueId { internal: id.map(|byte| byte as _) };
        let mut config = non_blocking();
        let mut handle = ptr::null_mut();
        let (size, rank) = (size as c_int, rank as c_int);
        // SAFETY: writes one handle; reads a configuration whose size it is told.
        let code = unsafe {
            (nccl.ncclCommInitRankConfig)(&raw mut handle, size, id, rank, &raw mut config)
        };
        check(&nccl, "ncclCommInitRankConfig", handle, code)?;
        let communicator = Communicator::with(nccl, handle);
        communicator.settle("ncclCommInitRankConfig", Some(limit))?;
        Ok(communicator)
    }

    fn with(nccl: Arc<Nccl>, handle: *mut ncclComm) -> Communicator {
        Communicator { nccl, handle: Mutex::new(Some(Handle(handle))) }
    }

    /// A communicator of the ranks that pass a place in it; `None` for those that pass none. Every
    /// rank of this one must call.
    pub(super) fn split(
        &self,
        place: Option<u32>,
        limit: Duration,
    ) -> Result<Option<Communicator>, DeviceError> {
        /// `NCCL_SPLIT_NOCOLOR`.
        const NO_COLOUR: c_int = -1;
        let mut config = non_blocking();
        // NCCL writes it from a thread of its own, perhaps after this one has given up: so it stays.
        let child: &'static AtomicPtr<ncclComm> = Box::leak(Box::default());
        let colour = if place.is_some() { 0 } else { NO_COLOUR };
        let key = place.unwrap_or(0) as c_int;
        self.call("ncclCommSplit", |parent| {
            // SAFETY: as `join`; the parent is alive.
            Ok(unsafe {
                (self.nccl.ncclCommSplit)(parent, colour, key, child.as_ptr(), &raw mut config)
            })
        })?;
        // The child is there when the parent is ready.
        self.settle("ncclCommSplit", Some(limit))?;
        if place.is_none() {
            return Ok(None);
        }
        let began = Instant::now();
        let handle = loop {
            match child.load(Ordering::Acquire) {
                handle if !handle.is_null() => break handle,
                _ if began.elapsed() > limit => {
                    let seconds = limit.as_secs();
                    return Err(DeviceError::Late { call: "ncclCommSplit", seconds });
                }
                _ => std::thread::sleep(LOOK),
            }
        };
        let child = Communicator::with(self.nccl.clone(), handle);
        child.settle("ncclCommSplit", Some(limit))?;
        Ok(Some(child))
    }

    fn handle(&self) -> MutexGuard<'_, Option<Handle>> {
        // Whoever panicked, the handle is there or not.
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call on the communicator, alone, and checks its code.
    fn call(
        &self,
        call: &'static str,
        made: impl FnOnce(*mut ncclComm) -> Result<c_uint, DeviceError>,
    ) -> Result<(), DeviceError> {
        let handle = self.handle();
        let Some(Handle(handle)) = *handle else { return Err(DeviceError::Aborted) };
        let code = made(handle)?;
        check(&self.nccl, call, handle, code)
    }

    /// The communicator's own state: in progress, or the error that it ran into.
    fn state(&self, call: &'static str) -> Result<bool, DeviceError> {
        let mut state = SUCCESS;
        self.call(call, |handle| {
            // SAFETY: a live handle; writes one code, which has an int's size.
            let code = unsafe { (self.nccl.ncclCommGetAsyncError)(handle, &raw mut state) };
            check(&self.nccl, "ncclCommGetAsyncError", handle, code)?;
            Ok(state)
        })?;
        Ok(state == IN_PROGRESS)
    }

    /// An error that the communicator ran into by itself.
    pub(super) fn asynchronous_error(&self) -> Option<DeviceError> {
        match self.state("a collective in flight") {
            Ok(_) | Err(DeviceError::Aborted) => None,
            Err(error) => Some(error),
        }
    }

    /// Waits until the last call is through, at most for `limit` if there is one.
    fn settle(&self, call: &'static str, limit: Option<Duration>) -> Result<(), DeviceError> {
        let began = Instant::now();
        while self.state(call)? {
            if let Some(limit) = limit.filter(|limit| began.elapsed() > *limit) {
                self.abort();
                return Err(DeviceError::Late { call, seconds: limit.as_secs() });
            }
            match began.elapsed() < LOOKS_ON {
                true => std::thread::yield_now(),
                false => std::thread::sleep(LOOK),
            }
        }
        Ok(())
    }

    /// Ends whatever the communicator does, on this rank; may be called from any thread. One that
    /// is inside a call for longer than [`ABORT_WAITS`] is left to the end of the process.
    pub(super) fn abort(&self) {
        let began = Instant::now();
        let mut handle = loop {
            match self.handle.try_lock() {
                Ok(handle) => break handle,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if began.elapsed() > ABORT_WAITS => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        };
        if let Some(Handle(handle)) = handle.take() {
            // SAFETY: a live handle that nobody else has: it was taken out, and no call on it is
            // under way.
            unsafe { (self.nccl.ncclCommAbort)(handle) };
        }
    }

    /// Aborts all of them at once, each on a thread of its own: an abort waits for its communicator's
    /// kernel, which may wait behind another communicator's. Returns when all are through, or at the limit
    /// without those that are not: they end with the process.
    pub(super) fn abort_all(all: &[Arc<Communicator>], device: &Arc<Device>, limit: Duration) {
        let (end, ended) = mpsc::channel::<()>();
        for communicator in all {
            let (other, device, end) = (communicator.clone(), device.clone(), end.clone());
            let abort = move || {
                // NCCL goes back to the device that was current, and would begin on the first one.
                let _ = device.make_current();
                other.abort();
                drop(end);
            };
            // Without a thread it is aborted here: later than the others, or never.
            let named = std::thread::Builder::new().name("abort".to_owned());
            if named.spawn(abort).is_err() {
                communicator.abort();
            }
        }
        drop(end);
        // Nothing is ever sent: it hangs up when the last is through.
        let _ = ended.recv_timeout(limit);
    }

    /// Gives it back when all its work is done: every rank of it must do so.
    pub(super) fn destroy(&self, limit: Duration) -> Result<(), DeviceError> {
        self.call("ncclCommFinalize", |handle| {
            // SAFETY: a live handle without work.
            Ok(unsafe { (self.nccl.ncclCommFinalize)(handle) })
        })?;
        // One that failed, as its peers' aborts make it, is not left behind either.
        self.settle("ncclCommFinalize", Some(limit)).inspect_err(|_| self.abort())?;
        let Some(Handle(handle)) = self.handle().take() else { return Ok(()) };
        // SAFETY: finalized, and nobody gets the handle any more.
        let code = unsafe { (self.nccl.ncclCommDestroy)(handle) };
        check(&self.nccl, "ncclCommDestroy", ptr::null_mut(), code)
    }

    /// Puts one of NCCL's collectives on the stream: from `input` into `output`, `count` elements
    /// as NCCL counts them for that call.
    pub(super) fn collective(
        &self,
        stream: Stream,
        operation: Operation,
        element: Element,
        count: u64,
        [input, output]: [Region; 2],
    ) -> Result<(), DeviceError> {
        let reduction = match operation {
            Operation::AllReduce(by) | Operation::Reduce(by, _) | Operation::ReduceScatter(by) => {
                Some(self.reduction(by, element)?)
            }
            Operation::Broadcast(_) | Operation::AllGather => None,
        };
        let op = reduction.as_ref().map_or(0, |reduction| reduction.op);
        let (nccl, dtype, count) = (&*self.nccl, dtype(element), count as usize);
        let from = input.address() as *const c_void;
        let into = output.address() as *mut c_void;
        let stream = stream.0.cast::<_>();
        let call = operation.call();
        self.call(call, |handle| {
            // SAFETY: the handle lives; the regions are memory of the communicator's device, as
            // long as `lower` made them for this count, and stay until the process ends.
            Ok(unsafe {
                match operation {
                    Operation::AllReduce(_) => {
                        (nccl.ncclAllReduce)(from, into, count, dtype, op, handle, stream)
                    }
                    Operation::Reduce(_, root) => {
                        let root = root as c_int;
                        (nccl.ncclReduce)(from, into, count, dtype, op, root, handle, stream)
                    }
                    Operation::ReduceScatter(_) => {
                        (nccl.ncclReduceScatter)(from, into, count, dtype, op, handle, stream)
                    }
                    Operation::Broadcast(root) => {
                        let root = root as c_int;
                        (nccl.ncclBroadcast)(from, into, count, dtype, root, handle, stream)
                    }
                    Operation::AllGather => {
                        (nccl.ncclAllGather)(from, into, count, dtype, handle, stream)
                    }
                }
            })
        })?;
        // An operation of its own may go once the call that was given it is through.
        self.settle(call, None)
    }

    /// NCCL's number of a reduction; one with a factor is made, and gone when it is dropped.
    fn reduction(
        &self,
        reduction: super::lower::Reduction,
        element: Element,
    ) -> Result<OwnReduction<'_>, DeviceError> {
        use super::lower::Reduction;
        use sys::ncclRedOp_t as Op;
        let known = |op: Op| Ok(OwnReduction { op: op as c_uint, made_by: None });
        match reduction {
            Reduction::Sum => known(Op::ncclSum),
            Reduction::Product => known(Op::ncclProd),
            Reduction::Min => known(Op::ncclMin),
            Reduction::Max => known(Op::ncclMax),
            Reduction::Avg => known(Op::ncclAvg),
            Reduction::PremulSum(factor) => {
                let mut op = 0;
                let mut scalar = element.factor(factor.value());
                let residence = sys::ncclScalarResidence_t::ncclScalarHostImmediate;
                let scalar = scalar.as_mut_ptr().cast::<c_void>();
                self.call("ncclRedOpCreatePreMulSum", |handle| {
                    let create = self.nccl.ncclRedOpCreatePreMulSum;
                    // SAFETY: reads one element of the type from host memory before it returns.
                    Ok(unsafe { create(&raw mut op, scalar, dtype(element), residence, handle) })
                })?;
                Ok(OwnReduction { op, made_by: Some(self) })
            }
        }
    }

    /// Puts sends and receives on the stream, all at once. Those between two ranks match in order.
    pub(super) fn exchange(&self, stream: Stream, all: &Transfers) -> Result<(), DeviceError> {
        let nccl = &*self.nccl;
        let stream = stream.0.cast::<_>();
        let byte = ncclDataType_t::ncclUint8;
        self.call("ncclGroupEnd", |handle| {
            // SAFETY: no arguments; ended below on this thread.
            let code = unsafe { (nccl.ncclGroupStart)() };
            check(nccl, "ncclGroupStart", handle, code)?;
            let mut first = Ok(());
            for (peer, from) in &all.sends {
                let (buffer, bytes) = (from.address() as *const c_void, from.bytes() as usize);
                let peer = *peer as c_int;
                // SAFETY: as `collective`.
                let code = unsafe { (nccl.ncclSend)(buffer, bytes, byte, peer, handle, stream) };
                first = first.and_then(|()| check(nccl, "ncclSend", handle, code));
            }
            for (peer, into) in &all.receives {
                let (buffer, bytes) = (into.address() as *mut c_void, into.bytes() as usize);
                let peer = *peer as c_int;
                // SAFETY: as `collective`.
                let code = unsafe { (nccl.ncclRecv)(buffer, bytes, byte, peer, handle, stream) };
                first = first.and_then(|()| check(nccl, "ncclRecv", handle, code));
            }
            // SAFETY: ends the group, whatever went wrong inside.
            let code = unsafe { (nccl.ncclGroupEnd)() };
            first.map(|()| code)
        })?;
        self.settle("ncclGroupEnd", None)
    }
}

/// A reduction's number, which a communicator may have made for one call.
struct OwnReduction<'a> {
    op: c_uint,
    made_by: Option<&'a Communicator>,
}

impl Drop for OwnReduction<'_> {
    fn drop(&mut self) {
        if let Some(communicator) = self.made_by {
            // The operation is gone already with an aborted communicator.
            let _ = communicator.call("ncclRedOpDestroy", |handle| {
                // SAFETY: made by this communicator, destroyed once.
                Ok(unsafe { (communicator.nccl.ncclRedOpDestroy)(self.op, handle) })
            });
        }
    }
}

/// `NCCL_CONFIG_INITIALIZER` of nccl.h, but for `blocking`.
fn non_blocking() -> ncclConfig_t {
    const UNSET: c_int = c_int::MIN;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22_800,
        blocking: 0,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
        netName: ptr::null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: ptr::null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
    }
}

fn dtype(element: Element) -> ncclDataType_t {
    match element {
        Element::Int8 => ncclDataType_t::ncclInt8,
        Element::Uint8 => ncclDataType_t::ncclUint8,
        Element::Int32 => ncclDataType_t::ncclInt32,
        Element::Int64 => ncclDataType_t::ncclInt64,
        Element::Float16 => ncclDataType_t::ncclFloat16,
        Element::Bfloat16 => ncclDataType_t::ncclBfloat16,
        Element::Float32 => ncclDataType_t::ncclFloat32,
        Element::Float64 => ncclDataType_t::ncclFloat64,
        Element::Float8E4m3 => ncclDataType_t::ncclFloat8e4m3,
        Element::Float8E5m2 => ncclDataType_t::ncclFloat8e5m2,
    }
}
