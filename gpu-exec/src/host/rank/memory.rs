//! A rank's tensors, and slices of them that messages read and write.
//!
//! Calls of different groups run on threads of their own and may touch one tensor at once if the
//! plan says so. Every piece is moved under the tensor's lock, which costs some nanoseconds a
//! piece and makes such a plan's result a mix of both, as on a GPU, but no undefined behaviour.

use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{self, ReduceOp};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tensor's bytes, or a schedule's scratch.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    /// Memory that holds these bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Memory {
        Memory(Arc::new(Mutex::new(bytes)))
    }

    /// The bytes, held until the guard is dropped.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when both are the same memory.
    fn is(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The bytes from `start` to `end`.
    ///
    /// # Errors
    /// When they are not all inside: a plan that was checked has none such.
    pub(super) fn slice(&self, start: u64, end: u64) -> Result<Slice, String> {
        let held = self.lock().len() as u64;
        if start > end || end > held {
            return Err(format!("bytes {start} to {end} of a memory of {held}"));
        }
        let (start, bytes) = (start as usize, (end - start) as usize);
        Ok(Slice { memory: Some(self.clone()), start, bytes })
    }
}

/// A run of bytes of a memory; it was checked to be inside.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    memory: Option<Memory>,
    start: usize,
    bytes: usize,
}

impl Slice {
    /// No bytes of no memory: what a barrier sends.
    pub(super) const EMPTY: Slice = Slice { memory: None, start: 0, bytes: 0 };

    /// How many bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `read` with the bytes from `from` on, at most `most`.
    pub(super) fn read<T>(&self, from: usize, most: usize, read: impl FnOnce(&[u8]) -> T) -> T {
        match &self.memory {
            Some(memory) => {
                let start = self.start + from;
                let end = (start + most).min(self.start + self.bytes);
                read(&memory.lock()[start..end])
            }
            None => read(&[]),
        }
    }

    /// Puts `incoming` at `at`.
    pub(super) fn write(&self, at: usize, incoming: &[u8]) {
        if let Some(memory) = &self.memory {
            let start = self.start + at;
            memory.lock()[start..start + incoming.len()].copy_from_slice(incoming);
        }
    }

    /// `self = local op incoming`, for the piece of `incoming`'s length at `at`.
    pub(super) fn reduce(
        &self,
        local: &Slice,
        at: usize,
        incoming: &[u8],
        dtype: Dtype,
        op: ReduceOp,
    ) {
        let Some(memory) = &self.memory else { return };
        if !self.is(local) {
            self.copy_piece(local, at, incoming.len());
        }
        let start = self.start + at;
        reduce::combine(dtype, op, &mut memory.lock()[start..start + incoming.len()], incoming);
    }

    /// Copies all of `from`, which is as long.
    pub(super) fn copy(&self, from: &Slice) {
        self.copy_piece(from, 0, self.bytes.min(from.bytes));
    }

    fn is(&self, other: &Slice) -> bool {
        match (&self.memory, &other.memory) {
            (Some(a), Some(b)) => a.is(b) && self.start == other.start,
            _ => false,
        }
    }

    fn copy_piece(&self, from: &Slice, at: usize, bytes: usize) {
        let (Some(into), Some(source)) = (&self.memory, &from.memory) else { return };
        let (start, source_start) = (self.start + at, from.start + at);
        if into.is(source) {
            into.lock().copy_within(source_start..source_start + bytes, start);
            return;
        }
        // Two locks at once, in one order for all threads: no two can wait for each other.
        let ordered = Arc::as_ptr(&into.0) < Arc::as_ptr(&source.0);
        let (mut into, source) = if ordered {
            let into = into.lock();
            (into, source.lock())
        } else {
            let source = source.lock();
            (into.lock(), source)
        };
        into[start..start + bytes].copy_from_slice(&source[source_start..source_start + bytes]);
    }

    /// Divides every element by `size`.
    pub(super) fn divide(&self, dtype: Dtype, size: u32) {
        if let Some(memory) = &self.memory {
            let end = self.start + self.bytes;
            reduce::divide(dtype, &mut memory.lock()[self.start..end], size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_from_another_memory_leaves_that_one_alone() {
        let (a, b) = (Memory::new(vec![1, 2, 3, 4]), Memory::new(vec![0; 2]));
        let local = a.slice(1, 3).unwrap();
        let into = b.slice(0, 2).unwrap();
        into.reduce(&local, 0, &[10, 20], Dtype::Uint8, ReduceOp::Sum);
        assert_eq!(*b.lock(), [12, 23]);
        local.reduce(&local, 1, &[5], Dtype::Uint8, ReduceOp::Sum);
        assert_eq!(*a.lock(), [1, 2, 8, 4]);
    }

    #[test]
    fn a_slice_outside_is_refused() {
        let memory = Memory::new(vec![0; 4]);
        assert!(memory.slice(2, 5).is_err());
        assert!(memory.slice(3, 2).is_err());
        assert!(memory.slice(4, 4).is_ok());
    }
}
