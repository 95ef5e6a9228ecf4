//! MPI's nonblocking calls on memory that they own while they are under way.
//!
//! The crate `mpi` has these calls too, but its requests borrow their buffers for a scope, and a
//! work of a plan lives from one operation of a program to another: what is known of its lifetime
//! is known at run time. So the calls are made here, through the crate's bindings; communicators,
//! types, operations, initialisation and the end are the crate's.
//!
//! `unsafe`: calls through MPI's C interface. A call's buffers belong to its [`Pending`] and are
//! given back, or freed, only once MPI has said that the request is complete; one that is dropped
//! before leaks them. The lengths are checked against the counts before MPI sees either.
#![allow(unsafe_code, reason = "see the module's text")]

use super::lower::{Element, How, Operation};
use mpi::collective::SystemOperation;
use mpi::ffi::{self, MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request, MPI_Status};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{
    AsRaw, Communicator as _, CommunicatorCollectives as _, Equivalence, Group as _,
};
use std::ffi::{CStr, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};

/// More than any MPI says (`MPI_MAX_ERROR_STRING`).
const LONGEST_TEXT: usize = 8192;

/// MPI's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MpiError {
    /// A message was longer than the receive: the two do not match.
    #[error("{call}: the message is longer than the receive")]
    Truncated { call: &'static str },
    #[error("{call} failed: {text}")]
    Refused { call: &'static str, text: String },
    #[error("{call} on buffers of {bytes} bytes, which are too short for it")]
    Short { call: &'static str, bytes: usize },
}

/// Memory of a call, aligned for every element, and at a place of its own even if it is empty: MPI
/// refuses buffers that are one.
#[derive(Debug)]
pub(super) struct Buffer {
    words: Vec<u64>,
    bytes: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::zeros(0)
    }
}

impl Buffer {
    /// A buffer of so many zero bytes.
    pub(super) fn zeros(bytes: usize) -> Buffer {
        Buffer { words: vec![0; bytes.div_ceil(8).max(1)], bytes }
    }

    /// These bytes.
    pub(super) fn of(bytes: &[u8]) -> Buffer {
        let (whole, rest) = bytes.as_chunks::<8>();
        let mut words: Vec<u64> = whole.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_ne_bytes(last));
        Buffer { words, bytes: bytes.len() }
    }

    /// Its contents.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.words.len() * 8];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&self.words) {
            *bytes = word.to_ne_bytes();
        }
        bytes.truncate(self.bytes);
        bytes
    }

    fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }
}

impl Element {
    fn datatype(self) -> MPI_Datatype {
        match self {
            Element::Int8 => i8::equivalent_datatype().as_raw(),
            Element::Int16 => i16::equivalent_datatype().as_raw(),
            Element::Int32 => i32::equivalent_datatype().as_raw(),
            Element::Int64 => i64::equivalent_datatype().as_raw(),
            Element::Uint8 => u8::equivalent_datatype().as_raw(),
            Element::Uint16 => u16::equivalent_datatype().as_raw(),
            Element::Uint32 => u32::equivalent_datatype().as_raw(),
            Element::Uint64 => u64::equivalent_datatype().as_raw(),
            Element::Float32 => f32::equivalent_datatype().as_raw(),
            Element::Float64 => f64::equivalent_datatype().as_raw(),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Element::Int8 | Element::Uint8 => 1,
            Element::Int16 | Element::Uint16 => 2,
            Element::Int32 | Element::Uint32 | Element::Float32 => 4,
            Element::Int64 | Element::Uint64 | Element::Float64 => 8,
        }
    }
}

impl Operation {
    fn raw(self) -> MPI_Op {
        match self {
            Operation::Sum => SystemOperation::sum(),
            Operation::Product => SystemOperation::product(),
            Operation::Min => SystemOperation::min(),
            Operation::Max => SystemOperation::max(),
            Operation::And => SystemOperation::bitwise_and(),
            Operation::Or => SystemOperation::bitwise_or(),
            Operation::Xor => SystemOperation::bitwise_xor(),
        }
        .as_raw()
    }
}

/// A communicator that answers with errors instead of ending the job.
pub(super) struct Communicator {
    comm: SimpleCommunicator,
    me: usize,
    size: usize,
}

impl Communicator {
    /// That of some ranks of the world, in their order; every one of them makes it, with the same
    /// tag (`MPI_Comm_create_group`). `None` if MPI made none here.
    pub(super) fn of(world: &SimpleCommunicator, ranks: &[i32], tag: i32) -> Option<Communicator> {
        let group = world.group().include(ranks);
        let comm = world.split_by_subgroup_with_tag(&group, tag)?;
        // SAFETY: the communicator is live, and the handler is MPI's own.
        unsafe { ffi::MPI_Comm_set_errhandler(comm.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
        // An MPI connects ranks when they first talk: that is no part of a call's time.
        comm.barrier();
        let (me, size) = (comm.rank().max(0) as usize, comm.size().max(1) as usize);
        Some(Communicator { comm, me, size })
    }

    /// Starts a call. `send` is what it passes in, `receive` is written by the time it is complete.
    ///
    /// # Errors
    /// When MPI refuses it, or a buffer is too short.
    pub(super) fn begin(
        &self,
        how: &How,
        element: Element,
        send: Buffer,
        receive: Buffer,
    ) -> Result<Pending, MpiError> {
        let call = how.name();
        self.long_enough(how, element, &send, &receive)?;
        let comm: MPI_Comm = self.comm.as_raw();
        let dt = element.datatype();
        let offsets = |counts: &[c_int]| -> Vec<c_int> {
            let ends = counts.iter().scan(0, |end: &mut c_int, count| {
                let start = *end;
                *end = end.saturating_add(*count);
                Some(start)
            });
            ends.collect()
        };
        let counts = match how {
            How::AllToAllV { to, from } => [to.clone(), offsets(to), from.clone(), offsets(from)],
            _ => Default::default(),
        };
        let mut held = Held { send, receive, counts };
        let (from, into) = (held.send.pointer(), held.receive.pointer());
        let [to, to_at, of, of_at] = &held.counts;
        // SAFETY: a constant of MPI's.
        let mut request: MPI_Request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let new = &raw mut request;
        // SAFETY: `long_enough` has seen that both buffers hold what MPI reads and writes for
        // these counts; they and the counts live on the heap until the request is complete, since
        // `Pending` owns them and leaks them otherwise. All other arguments are values or live
        // handles, and this is the one thread that calls MPI.
        let code = unsafe {
            match *how {
                How::Barrier => ffi::MPI_Ibarrier(comm, new),
                How::Broadcast { root, count } => {
                    let buffer = if root as usize == self.me { from } else { into };
                    ffi::MPI_Ibcast(buffer, count, dt, root, comm, new)
                }
                How::AllReduce { op, count } => {
                    ffi::MPI_Iallreduce(from, into, count, dt, op.raw(), comm, new)
                }
                How::Reduce { op, root, count } => {
                    ffi::MPI_Ireduce(from, into, count, dt, op.raw(), root, comm, new)
                }
                How::ReduceScatter { op, count } => {
                    ffi::MPI_Ireduce_scatter_block(from, into, count, dt, op.raw(), comm, new)
                }
                How::AllGather { count } => {
                    ffi::MPI_Iallgather(from, count, dt, into, count, dt, comm, new)
                }
                How::Gather { root, count } => {
                    ffi::MPI_Igather(from, count, dt, into, count, dt, root, comm, new)
                }
                How::Scatter { root, count } => {
                    ffi::MPI_Iscatter(from, count, dt, into, count, dt, root, comm, new)
                }
                How::AllToAll { count } => {
                    ffi::MPI_Ialltoall(from, count, dt, into, count, dt, comm, new)
                }
                How::AllToAllV { .. } => ffi::MPI_Ialltoallv(
                    from,
                    to.as_ptr(),
                    to_at.as_ptr(),
                    dt,
                    into,
                    of.as_ptr(),
                    of_at.as_ptr(),
                    dt,
                    comm,
                    new,
                ),
                How::Send { peer, tag, count } => {
                    ffi::MPI_Issend(from, count, dt, peer, tag, comm, new)
                }
                How::Receive { peer, tag, count } => {
                    let peer = peer.unwrap_or(ffi::RSMPI_ANY_SOURCE);
                    ffi::MPI_Irecv(into, count, dt, peer, tag, comm, new)
                }
            }
        };
        let (held, expected) = (ManuallyDrop::new(held), how.received());
        let pending = Pending { request, held, call, dt, expected, complete: false };
        // A refused call may be under way all the same: its buffers are not freed.
        checked(call, code).map(|()| pending)
    }

    /// Checks that the buffers are long enough for the counts.
    fn long_enough(
        &self,
        how: &How,
        element: Element,
        send: &Buffer,
        receive: &Buffer,
    ) -> Result<(), MpiError> {
        let (size, me) = (self.size, self.me);
        let n = |count: i32| usize::try_from(count).unwrap_or(usize::MAX);
        let sum = |counts: &[i32]| counts.iter().fold(0, |all: usize, c| all.saturating_add(n(*c)));
        let at = |root: i32, elements: usize| if n(root) == me { elements } else { 0 };
        let all = |count: i32| n(count).saturating_mul(size);
        let (sent, received) = match how {
            How::Barrier => (0, 0),
            How::Broadcast { root, count } => {
                let own = at(*root, n(*count));
                (own, n(*count) - own.min(n(*count)))
            }
            How::AllReduce { count, .. } => (n(*count), n(*count)),
            How::Reduce { root, count, .. } => (n(*count), at(*root, n(*count))),
            How::ReduceScatter { count, .. } => (all(*count), n(*count)),
            How::AllGather { count } => (n(*count), all(*count)),
            How::Gather { root, count } => (n(*count), at(*root, all(*count))),
            How::Scatter { root, count } => (at(*root, all(*count)), n(*count)),
            How::AllToAll { count } => (all(*count), all(*count)),
            How::AllToAllV { to, from } if to.len() != size || from.len() != size => {
                (usize::MAX, usize::MAX)
            }
            How::AllToAllV { to, from } => (sum(to), sum(from)),
            How::Send { count, .. } => (n(*count), 0),
            How::Receive { count, .. } => (0, n(*count)),
        };
        let fits = |buffer: &Buffer, elements: usize| {
            elements.saturating_mul(element.bytes()) <= buffer.words.len().saturating_mul(8)
        };
        match fits(send, sent) && fits(receive, received) {
            true => Ok(()),
            false => {
                let bytes = send.bytes.saturating_add(receive.bytes);
                Err(MpiError::Short { call: how.name(), bytes })
            }
        }
    }
}

impl How {
    /// Its function of MPI's.
    pub(super) fn name(&self) -> &'static str {
        match self {
            How::Barrier => "MPI_Ibarrier",
            How::Broadcast { .. } => "MPI_Ibcast",
            How::AllReduce { .. } => "MPI_Iallreduce",
            How::Reduce { .. } => "MPI_Ireduce",
            How::ReduceScatter { .. } => "MPI_Ireduce_scatter_block",
            How::AllGather { .. } => "MPI_Iallgather",
            How::Gather { .. } => "MPI_Igather",
            How::Scatter { .. } => "MPI_Iscatter",
            How::AllToAll { .. } => "MPI_Ialltoall",
            How::AllToAllV { .. } => "MPI_Ialltoallv",
            How::Send { .. } => "MPI_Issend",
            How::Receive { .. } => "MPI_Irecv",
        }
    }

    /// The number of elements that a receive expects.
    fn received(&self) -> Option<c_int> {
        match self {
            How::Receive { count, .. } => Some(*count),
            _ => None,
        }
    }
}

/// The buffers that keep MPI's pointers alive while a call is under way.
#[derive(Debug, Default)]
struct Held {
    send: Buffer,
    receive: Buffer,
    counts: [Vec<c_int>; 4],
}

/// A call that is under way.
pub(super) struct Pending {
    request: MPI_Request,
    held: ManuallyDrop<Held>,
    call: &'static str,
    dt: MPI_Datatype,
    /// Elements, of a receive.
    expected: Option<c_int>,
    complete: bool,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) receive: Buffer,
    /// The sender of a received message, as a rank of the communicator.
    pub(super) source: i32,
}

impl Pending {
    /// Asks MPI whether the call is complete; `None` while it is not, and ever after it was.
    ///
    /// # Errors
    /// When it failed, or a message of another size than this receive's came.
    pub(super) fn test(&mut self) -> Result<Option<Arrived>, MpiError> {
        if self.complete {
            return Ok(None);
        }
        let mut flag: c_int = 0;
        let mut status = MaybeUninit::<MPI_Status>::zeroed();
        // SAFETY: the request is that of a call under way, or MPI's null; both pointers are to
        // locals that outlive the call.
        let code =
            unsafe { ffi::MPI_Test(&raw mut self.request, &raw mut flag, status.as_mut_ptr()) };
        checked(self.call, code)?;
        if flag == 0 {
            return Ok(None);
        }
        self.complete = true;
        // SAFETY: integers, all zero at first and written by MPI since.
        let status = unsafe { status.assume_init() };
        let mut count: c_int = 0;
        // SAFETY: the request is complete: nothing of MPI's points to the memory any more, and
        // `complete` keeps this from being reached twice.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        if let Some(expected) = self.expected {
            // SAFETY: a status of a receive, a live type and a local.
            let code = unsafe { ffi::MPI_Get_count(&raw const status, self.dt, &raw mut count) };
            checked("MPI_Get_count", code)?;
            if count != expected {
                return Err(MpiError::Truncated { call: self.call });
            }
        }
        Ok(Some(Arrived { receive: held.receive, source: status.MPI_SOURCE }))
    }
}

/// An error of MPI's in its words.
fn checked(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut class: c_int = 0;
    let mut text = [0; LONGEST_TEXT];
    let mut length: c_int = 0;
    // SAFETY: pointers to locals; the text is longer than MPI's longest, and stays ended by a zero.
    unsafe {
        ffi::MPI_Error_class(code, &raw mut class);
        ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut length);
    }
    if class == ffi::MPI_ERR_TRUNCATE as c_int {
        return Err(MpiError::Truncated { call });
    }
    // SAFETY: the last byte was never written: zero.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Err(MpiError::Refused { call, text: text.to_string_lossy().into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_any_number_of_bytes() {
        for length in 0..40u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at ^ 0x5a).collect();
            let buffer = Buffer::of(&bytes);
            assert_eq!(buffer.to_bytes(), bytes);
            assert!(buffer.words.len() * 8 >= bytes.len());
            assert_eq!(Buffer::zeros(bytes.len()).to_bytes(), vec![0; bytes.len()]);
        }
    }
}
