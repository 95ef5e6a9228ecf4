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
    /// The schedule's step.
    pub(super) step: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; GRAIN] {
        let mut bytes = [0; GRAIN];
        bytes[..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.step.to_le_bytes());
        bytes
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
}

impl Incoming {
    pub(super) fn new(
        expected: Header,
        into: Slice,
        combine: Option<(Slice, Dtype, ReduceOp)>,
    ) -> Incoming {
        Incoming { expected, into, combine, received: 0, accepted: false }
    }

    /// Takes out what is there and wakes the sender if it sleeps. A message of another call is
    /// left where it is: the receiver then waits until its watchdog ends the run, as NCCL would.
    pub(super) fn advance(&mut self, ring: &mut Receiver, bell: &Doorbell) -> Moved {
        let mut moved = Moved::Nothing;
        if !self.accepted {
            match ring.readable().get(..GRAIN) {
                Some(header) if header == self.expected.to_bytes() => {}
                _ => return Moved::Nothing,
            }
            ring.consume(GRAIN);
            self.accepted = true;
            moved = Moved::Some;
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
}
