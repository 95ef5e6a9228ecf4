//! The mapping itself.
//!
//! Besides words that are only ever reached as atomics it holds bytes: tensors, and messages on their way.
//! Those have one writer at a time: sent bytes are left alone until the message is taken
//! ([`channel`](super::channel)). A plan that uses one tensor in two calls at once gets a mix of both, as on
//! a GPU.
#![allow(unsafe_code, reason = "memory that several processes write is outside Rust's ownership")]

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A cache line, for data that belongs together.
pub(super) const LINE: usize = 64;

/// Bytes copied at a time. A C library copies what fits into its second level cache by the
/// processor's own instruction for it, which need not read the lines that it overwrites; more it
/// copies line by line, unless it is more than the whole third level, which a virtual machine
/// tells wrongly. In pieces, 32 MB were copied 1.5 times as fast by each of two threads.
const PIECE: usize = 128 << 10;

/// From how many bytes on a copy is written past the caches. Lines that are overwritten as a whole
/// are then not read before, which the processor's own instruction for copying does not manage for
/// so many: with it 16 MB of an all_to_all among 2 took 1.7 times as long, of an all_gather 2.3 times
/// (`docs/benchmarks.md`). Less is better left in the caches, for whoever reads it next.
const PAST_CACHES: usize = 2 << 20;

/// A mapping of shared memory; it begins as zeros.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread; what is in it is reached only through atomics and
// through rings, whose protocol says who may touch what.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Anonymous shared memory of that size, not yet mapped. Its size is sealed, so that no
    /// process can shrink it under another.
    pub(crate) fn create(bytes: usize) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("lockstep-run", flags)?;
        rustix::fs::ftruncate(&memory, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(memory)
    }

    /// Maps memory made by [`Segment::create`].
    ///
    /// # Errors
    /// When the memory is smaller than `bytes` or the system refuses.
    pub(crate) fn map(memory: impl AsFd, bytes: usize) -> io::Result<Arc<Segment>> {
        let memory = memory.as_fd();
        let size = rustix::fs::fstat(memory)?.st_size;
        if bytes == 0 || u64::try_from(size).unwrap_or(0) < bytes as u64 {
            return Err(io::Error::other(format!("{size} bytes of shared memory, not {bytes}")));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing of ours;
        // the size was checked above and is sealed, so that no access can fault.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, memory, 0)?
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) => Ok(Arc::new(Segment { base, bytes })),
            None => Err(io::Error::other("mapped at address 0")),
        }
    }

    /// Panics unless the range is inside: positions come from our own wiring.
    fn at(&self, offset: usize, bytes: usize, align: usize) -> NonNull<u8> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(align), "{offset}+{bytes} of {}", self.bytes);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.base.add(offset) }
    }

    /// The word at `offset`, a multiple of 4.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside and aligned; lives as long as the mapping; zeros are a valid value; every
        // process reaches it only as an atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).as_ptr().cast()) }
    }

    /// The double word at `offset`, a multiple of 8.
    pub(crate) fn double_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).as_ptr().cast()) }
    }

    /// The cache line at `offset`, a multiple of [`LINE`]: looked up once for all that is in it.
    #[inline]
    pub(super) fn line(&self, offset: usize) -> &[AtomicU64; LINE / 8] {
        // SAFETY: inside and aligned; an array of atomics lies as one of numbers does; else as for
        // `word`, and nobody reaches a part of it as a `word`.
        unsafe { self.at(offset, LINE, LINE).cast().as_ref() }
    }

    /// Asks for the cache line at `offset`, which is about to be written, without waiting for it: a line that
    /// a peer has read last is taken away from it meanwhile.
    #[inline]
    pub(crate) fn about_to_write(&self, offset: usize) {
        let line = self.at(offset, 1, 1).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which neither reads, writes nor faults; processors without it take it for
        // nothing.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }

    /// Asks for the cache line at `offset`, which is about to be read, without waiting for it.
    #[inline]
    pub(crate) fn about_to_read(&self, offset: usize) {
        let line = self.at(offset, 1, 1).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which neither reads, writes nor faults.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }

    /// Copies bytes out.
    pub(crate) fn load(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len(), 1).as_ptr();
        // SAFETY: inside by `at`; ordinary memory, which is exclusively borrowed, does not overlap
        // the mapping. Whether another process writes the bytes meanwhile, see the module.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    pub(crate) fn store(&self, offset: usize, from: &[u8]) {
        let into = self.at(offset, from.len(), 1).as_ptr();
        // SAFETY: as for `load`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) }
    }

    /// Copies bytes from one place to another, which may overlap.
    pub(crate) fn copy(&self, from: usize, into: usize, bytes: usize) {
        if bytes <= PIECE || from.abs_diff(into) < bytes {
            return self.copy_piece(from, into, bytes);
        }
        #[cfg(target_arch = "x86_64")]
        if bytes >= PAST_CACHES {
            return self.copy_past_caches(from, into, bytes);
        }
        for start in (0..bytes).step_by(PIECE) {
            self.copy_piece(from + start, into + start, PIECE.min(bytes - start));
        }
    }

    fn copy_piece(&self, from: usize, into: usize, bytes: usize) {
        let (from, into) = (self.at(from, bytes, 1).as_ptr(), self.at(into, bytes, 1).as_ptr());
        // SAFETY: both inside by `at`. Whether another process writes them, see the module.
        unsafe { std::ptr::copy(from, into, bytes) }
    }

    /// Copies bytes to a place that does not overlap them, a line at a time past the caches.
    #[cfg(target_arch = "x86_64")]
    fn copy_past_caches(&self, from: usize, into: usize, bytes: usize) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const WORD: usize = size_of::<__m128i>();
        let lead = self.at(into, bytes, 1).as_ptr().align_offset(LINE).min(bytes);
        let lines = (bytes - lead) / LINE * LINE;
        self.copy_piece(from, into, lead);
        let source = self.at(from + lead, lines, 1).as_ptr();
        let target = self.at(into + lead, lines, 1).as_ptr();
        for line in (0..lines).step_by(LINE) {
            // SAFETY: the line is inside by `at`, in the source and in the target, where `lead` has
            // it begin at a multiple of its size; SSE2 is part of x86-64. Whether another process
            // writes them, see the module.
            unsafe {
                let (source, target) = (source.add(line), target.add(line));
                let words: [__m128i; LINE / WORD] =
                    std::array::from_fn(|at| _mm_loadu_si128(source.add(at * WORD).cast()));
                for (at, word) in words.into_iter().enumerate() {
                    _mm_stream_si128(target.add(at * WORD).cast(), word);
                }
            }
        }
        // SAFETY: SSE2, as above. Such stores are in no order with others: whoever is told of the
        // bytes by one of those must find them.
        unsafe { _mm_sfence() };
        let done = lead + lines;
        self.copy_piece(from + done, into + done, bytes - done);
    }

    /// Calls `look` with bytes that are not written meanwhile: the rank's own, and those that a peer has sent
    /// until that message is taken.
    pub(crate) fn look<T>(&self, offset: usize, bytes: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        let from = self.at(offset, bytes, 1).as_ptr();
        // SAFETY: inside by `at`. A rank's memory is written by its own calls, one after the
        // other, and by peers between the message that lends it and its being taken, for which a
        // call waits. A plan that uses one tensor in two calls at once breaks this, and gets
        // numbers that mix both: no length, index or type is ever read from here.
        look(unsafe { std::slice::from_raw_parts(from, bytes) })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing borrows from it any more. A
        // failure would leave it mapped until the process ends, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies in one piece, in several and past the caches, from and to odd places, leave the bytes
    /// around them.
    #[test]
    fn a_copy_is_what_it_was_made_from_and_no_more() {
        let past = PAST_CACHES;
        for bytes in [1, PIECE, PIECE + 1, 3 * PIECE - 1, past - 1, past, past + 77] {
            let (from, into) = (3, bytes + 9);
            let all = into + bytes + 5;
            let segment = Segment::map(Segment::create(all).unwrap(), all).unwrap();
            let source: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
            segment.store(from, &source);
            segment.copy(from, into, bytes);
            let mut whole = vec![7; all];
            segment.load(0, &mut whole);
            assert!(whole[into..into + bytes] == source, "{bytes} bytes");
            assert_eq!(whole[from + bytes..into], [0; 6], "before {bytes} bytes");
            assert_eq!(whole[into + bytes..], [0; 5], "after {bytes} bytes");
        }
    }
}
