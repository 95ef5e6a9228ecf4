//! A stand-in for CUDA's driver, NVRTC and NCCL: the functions of their C interface that Lockstep
//! calls, carried out by the CPU, so that what surrounds a GPU can be tested without one.
//!
//! Built by the tests and loaded in place of `libcuda.so.1`, `libnvrtc.so.12` and `libnccl.so.2`;
//! never shipped. It says what it is wherever it shows: in the device's name and through
//! [`lockstep_stand_in`], whose words every trace repeats.
//!
//! Streams are threads that do what is put on them in order, and take as much ahead as CUDA's;
//! kernels are compiled by the C compiler from the text that NVRTC would get, and called once for
//! every thread of the grid; a communicator's ranks meet at a socket of the process that made its
//! id. Nothing here is fast, and no time that it gives means anything.
//!
//! Environment: `STAND_IN_DEVICES` (how many GPUs, 8), `STAND_IN_ONE_BUS` (all show the same PCI
//! address), `STAND_IN_FAILS=RANK:N` (that rank's N-th collective fails by itself),
//! `STAND_IN_LACKS=KERNEL` (a kernel that the driver does not find), `STAND_IN_WATCHES=FOLDER` (calls
//! take a while, and a file there says of each that NCCL forbids: from two threads at once, or on a
//! communicator that is gone), `STAND_IN_NEVER_FINALIZES=FOLDER` (communicators do not end by
//! themselves, and a file there says of each that it was aborted).
#![allow(clippy::missing_safety_doc, reason = "NVIDIA's documentation has it")]
#![allow(non_snake_case, reason = "the functions are called what they are called in C")]

mod communicator;
mod cuda;
mod hub;
mod nccl;
mod nvrtc;

use std::ffi::c_char;

/// A description of this library.
#[unsafe(no_mangle)]
pub extern "C" fn lockstep_stand_in() -> *const c_char {
    c"stand-in built by Lockstep's tests: the CPU, no GPU".as_ptr()
}

/// A poisoned lock is as good as another: a test has failed already.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
