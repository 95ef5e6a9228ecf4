//! A bounded ring of bytes between one sending and one receiving process, without locks
//! (Lamport 1983; the two sides keep their own copy of the other's position, as in FastForward
//! and rigtorp's SPSCQueue, so that a cache line travels only when a side runs out).
#![allow(unsafe_code, reason = "the ring's protocol is what makes its bytes owned by one side")]

use super::{APART, GRAIN, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a ring lies: two positions, each on its own cache lines, then the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    segment: Arc<Segment>,
    offset: usize,
    capacity: usize,
}

impl Ring {
    /// What a ring of that capacity takes in the segment.
    pub(crate) fn footprint(capacity: usize) -> usize {
        2 * APART + capacity
    }

    /// The ring at `offset` with `capacity` bytes, a multiple of [`GRAIN`].
    pub(crate) fn at(segment: Arc<Segment>, offset: usize, capacity: usize) -> Ring {
        Ring { segment, offset, capacity: capacity - capacity % GRAIN }
    }

    /// The side that writes. There must be one in all processes.
    pub(crate) fn sender(self) -> Sender {
        Sender { ring: self, written: 0, read_seen: 0 }
    }

    /// The side that reads. There must be one in all processes.
    pub(crate) fn receiver(self) -> Receiver {
        Receiver { ring: self, read: 0, written_seen: 0 }
    }

    fn published(&self) -> &std::sync::atomic::AtomicU64 {
        self.segment.double_word(self.offset)
    }

    fn consumed(&self) -> &std::sync::atomic::AtomicU64 {
        self.segment.double_word(self.offset + APART)
    }

    /// Where position `at` lies in the segment, and how many bytes follow it before the end.
    fn place(&self, at: u64) -> (usize, usize) {
        let within = (at % self.capacity as u64) as usize;
        (self.offset + 2 * APART + within, self.capacity - within)
    }
}

/// The writing side of a ring. Positions count bytes since the start and never wrap.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Ring,
    written: u64,
    read_seen: u64,
}

impl Sender {
    /// Bytes that can be written at once now: a multiple of [`GRAIN`].
    pub(crate) fn room(&mut self) -> usize {
        let capacity = self.ring.capacity as u64;
        if self.written - self.read_seen == capacity {
            self.read_seen = self.ring.consumed().load(Ordering::Acquire);
        }
        let free = capacity.saturating_sub(self.written.wrapping_sub(self.read_seen)) as usize;
        free.min(self.ring.place(self.written).1)
    }

    /// Writes as much of `bytes` as there is room for, makes it visible and returns how much.
    /// Anything but the end of a message must be a multiple of [`GRAIN`]; the end is padded.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.room())];
        // SAFETY: `room` says that the receiver has consumed these bytes and that they are not
        // published again, so that until the store below only this side touches them.
        unsafe { self.ring.segment.write(self.ring.place(self.written).0, bytes) };
        self.written += bytes.len().next_multiple_of(GRAIN) as u64;
        self.ring.published().store(self.written, Ordering::Release);
        bytes.len()
    }

    /// True once the other side has read everything.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.read_seen = self.ring.consumed().load(Ordering::Acquire);
        self.read_seen == self.written
    }
}

/// The reading side of a ring.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Ring,
    read: u64,
    written_seen: u64,
}

impl Receiver {
    /// The bytes that can be read at once now; empty when nothing is there.
    pub(crate) fn readable(&mut self) -> &[u8] {
        if self.read == self.written_seen {
            let written = self.ring.published().load(Ordering::Acquire);
            // A sender never overtakes: anything else is a damaged segment, read as empty.
            if written.wrapping_sub(self.read) <= self.ring.capacity as u64 {
                self.written_seen = written;
            }
        }
        let (offset, until_end) = self.ring.place(self.read);
        let bytes = ((self.written_seen - self.read) as usize).min(until_end);
        // SAFETY: published and not yet consumed: the sender writes them again only after
        // `consume`, which needs this borrow to have ended.
        unsafe { self.ring.segment.read(offset, bytes) }
    }

    /// Gives back the first `bytes` of what is readable; the end of a message is padded as the
    /// sender did.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.next_multiple_of(GRAIN) as u64;
        self.read += bytes.min(self.written_seen - self.read);
        self.ring.consumed().store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(capacity: usize) -> (Sender, Receiver) {
        let bytes = Ring::footprint(capacity);
        let memory = Segment::create(bytes).unwrap();
        // Two mappings, as two processes have them.
        let ring = || Ring::at(Segment::map(&memory, bytes).unwrap(), 0, capacity);
        (ring().sender(), ring().receiver())
    }

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
        let (mut sender, mut receiver) = pair(64);
        assert!(receiver.readable().is_empty());
        assert_eq!(sender.write(&[7; 100]), 64);
        assert_eq!(sender.room(), 0);
        assert_eq!(receiver.readable(), [7; 64]);
        receiver.consume(32);
        assert!(!sender.is_drained());
        assert_eq!(sender.write(&[8; 5]), 5);
        assert_eq!(receiver.readable(), [7; 32]);
        receiver.consume(32);
        assert_eq!(receiver.readable()[..5], [8; 5]);
        receiver.consume(5);
        assert!(sender.is_drained());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Messages of any size arrive whole and in order through a ring of any size, with both
        /// sides running at once and reading and writing in pieces of any size.
        #[test]
        fn bytes_arrive_in_order(
            grains in 1usize..20,
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 1..20),
            piece in 1usize..8,
        ) {
            let (mut sender, mut receiver) = pair(grains * GRAIN);
            let expected = messages.clone();
            let piece = piece * GRAIN;
            let writer = std::thread::spawn(move || {
                for message in messages {
                    let mut sent = 0;
                    while sent < message.len() {
                        let end = message.len().min(sent + piece);
                        let written = sender.write(&message[sent..end]);
                        sent += written;
                        if written == 0 {
                            std::thread::yield_now();
                        }
                    }
                }
                while !sender.is_drained() {
                    std::thread::yield_now();
                }
            });
            for message in expected {
                let mut got = Vec::new();
                while got.len() < message.len() {
                    let ready = receiver.readable();
                    let take = ready.len().min(message.len() - got.len()).min(2 * piece);
                    got.extend_from_slice(&ready[..take]);
                    if take == 0 {
                        std::thread::yield_now();
                    } else {
                        receiver.consume(take);
                    }
                }
                prop_assert_eq!(got, message);
            }
            writer.join().unwrap();
        }
    }
}
