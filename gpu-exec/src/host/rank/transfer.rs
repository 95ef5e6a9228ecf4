//! One message on its way through a ring, in pieces: what a sender puts in and a receiver takes
//! out as room and bytes allow, so that messages larger than the ring flow both ways at once.

use super::memory::Slice;
use crate::shm::{Doorbell, GRAIN, Receiver, Sender};
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;

/// Bytes moved before the other side is told. The receiver then works on them while the sender
/// fills the next piece; both fit a first or second level cache.
const PIECE: usize = 32 << 10;

/// What goes before a message's bytes: whose message it is. Fills one [`GRAIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The call's number in its group, or in its channel for point-to-point.
    pub(super) seq: u64,
    /// What both sides must agree on about the call.
    pub(super) fingerprint: u64,
    /// The message's length.
    pub(super) bytes: u64,
    /// The schedule's step; of a point-to-point call, when it was posted, on the shared clock.
    pub(super) mark: u64,
}

impl Header {
    /// What a receiver expects for a mark that it does not know.
    pub(super) const ANY_MARK: u64 = u64::MAX;

    fn to_bytes(self) -> [u8; GRAIN] {
        let mut bytes = [0; GRAIN];
        let fields = [self.seq, self.fingerprint, self.bytes, self.mark];
        for (place, field) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        bytes
    }

    /// The header of the next message in the ring, if it is there.
    pub(super) fn next_in(ring: &mut Receiver) -> Option<Header> {
        let (fields, _) = ring.readable().get(..GRAIN)?.as_chunks::<8>();
        let [seq, fingerprint, bytes, mark] = fields.first_chunk::<4>()?.map(u64::from_le_bytes);
        Some(Header { seq, fingerprint, bytes, mark })
    }

    fn expects(self, other: Header) -> bool {
        let mark = if self.mark == Header::ANY_MARK { other.mark } else { self.mark };
        Header { mark, ..self } == other
    }
}

/// How far a message has got by one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Nothing could be done.
    Nothing,
    /// Some.
    Some,
    /// All of it is through.
    All,
}

/// A message that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    header: Header,
    from: Slice,
    sent: usize,
    /// Whether the header is in the ring.
    pub(super) left: bool,
}

impl Outgoing {
    pub(super) fn new(header: Header, from: Slice) -> Outgoing {
        Outgoing { header, from, sent: 0, left: false }
    }

    /// Puts in what there is room for and wakes the receiver if it sleeps.
    pub(super) fn advance(&mut self, ring: &mut Sender, bell: &Doorbell) -> Moved {
        let mut moved = Moved::Nothing;
        if !self.left {
            if ring.room() < GRAIN {
                return Moved::Nothing;
            }
            ring.write(&self.header.to_bytes());
            self.left = true;
            moved = Moved::Some;
        }
        let all = self.from.bytes();
        if self.sent < all {
            let written = match ring.room() {
                0 => 0,
                _ => self.from.read(self.sent, PIECE, |bytes| ring.write(bytes)),
            };
            self.sent += written;
            if written > 0 {
                moved = Moved::Some;
            }
        }
        if moved != Moved::Nothing {
            bell.ring();
            if self.sent == all {
                moved = Moved::All;
            }
        }
        moved
    }
}

/// A message that is being received.
#[derive(Debug)]
pub(super) struct Incoming {
    expected: Header,
    into: Slice,
    /// The rank's own operand and how the two combine; `None` to store what comes.
    combine: Option<(Slice, Dtype, ReduceOp)>,
    received: usize,
    accepted: bool,
    /// What is left of a message that is dropped, padded as it lies in the ring.
    dropping: usize,
}

impl Incoming {
    pub(super) fn new(
        expected: Header,
        into: Slice,
        combine: Option<(Slice, Dtype, ReduceOp)>,
    ) -> Incoming {
        Incoming { expected, into, combine, received: 0, accepted: false, dropping: 0 }
    }

    /// Takes out what is there and wakes the sender if it sleeps. A message of another call is
    /// left where it is: the receiver then waits until its watchdog ends the run, as NCCL would. A
    /// message of a call that this rank has left behind will never be expected again, and is
    /// dropped.
    pub(super) fn advance(&mut self, ring: &mut Receiver, bell: &Doorbell) -> Moved {
        let mut moved = Moved::Nothing;
        while !self.accepted {
            if self.drop_some(ring) {
                moved = Moved::Some;
            }
            match Header::next_in(ring) {
                _ if self.dropping > 0 => break,
                Some(header) if self.expected.expects(header) => self.accepted = true,
                Some(header) if header.seq < self.expected.seq => {
                    self.dropping = (header.bytes as usize).next_multiple_of(GRAIN);
                }
                _ => break,
            }
            ring.consume(GRAIN);
            moved = Moved::Some;
        }
        if !self.accepted {
            if moved != Moved::Nothing {
                bell.ring();
            }
            return moved;
        }
        let all = self.into.bytes();
        if self.received < all {
            let ready = ring.readable();
            let piece = &ready[..ready.len().min(PIECE).min(all - self.received)];
            let taken = piece.len();
            match &self.combine {
                _ if taken == 0 => {}
                None => self.into.write(self.received, piece),
                Some((local, dtype, op)) => {
                    self.into.reduce(local, self.received, piece, *dtype, *op);
                }
            }
            if taken > 0 {
                ring.consume(taken);
                self.received += taken;
                moved = Moved::Some;
            }
        }
        if moved != Moved::Nothing {
            bell.ring();
            if self.received == all {
                moved = Moved::All;
            }
        }
        moved
    }

    /// Drops what is there of a message that nobody wants.
    fn drop_some(&mut self, ring: &mut Receiver) -> bool {
        let mut any = false;
        while self.dropping > 0 {
            let there = ring.readable().len().min(self.dropping);
            if there == 0 {
                break;
            }
            ring.consume(there);
            self.dropping -= there;
            any = true;
        }
        any
    }
}
