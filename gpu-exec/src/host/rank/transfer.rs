//! One message from the sender's and from the receiver's side: as a copy while it is small, in
//! place while it is large.

use super::super::arena::Memory;
use super::combine::{Blocks, Operand, Reduction};
use crate::shm::{Doorbell, Header, INLINE, Payload, Receiver, Sender};
use lockstep_core::schedule::Algorithm;

/// Messages up to this many bytes are copied, larger ones read where they are.
const MOST_COPIED: usize = Algorithm::MOST_COPIED_IN_SHARED_MEMORY as usize;

/// The mark that a receiver expects if it does not know it.
pub(super) const ANY_MARK: u64 = u64::MAX;

/// The way of a message's bytes to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// As a copy if they are few, else in place.
    ByLength,
    /// In place, whatever their number: the sender waits in any case.
    InPlace,
    /// As above, and the receiver may write its returned message there.
    Lent,
    /// They have been put where they belong.
    Delivered,
}

/// The progress of a message in one attempt.
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) header: Header,
    pub(super) from: Memory,
    pub(super) how: How,
}

/// A message that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Its number in the channel.
    pub(super) number: u64,
    /// True if the bytes must be left alone until the message is taken.
    pub(super) in_place: bool,
}

impl Outgoing {
    /// Sends it if there is room, and wakes the receiver if that sleeps.
    pub(super) fn advance(&self, to: &mut Sender, bell: &Doorbell) -> Option<Left> {
        let (header, at) = (self.header, self.from.offset);
        let bytes = self.from.bytes;
        let fits = bytes <= MOST_COPIED && bytes <= to.most_copied();
        let (number, in_place) = match self.how {
            How::Delivered => (to.post(header, Payload::Delivered)?, false),
            How::InPlace if bytes > INLINE => (to.post(header, Payload::At(at))?, true),
            How::Lent if !fits => (to.post(header, Payload::Lent(at))?, true),
            How::ByLength if !fits => (to.post(header, Payload::At(at))?, true),
            _ => (to.post_copy(header, at)?, false),
        };
        bell.ring();
        Some(Left { number, in_place })
    }
}

/// A message that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) expected: Header,
    pub(super) into: Memory,
    /// The rank's own operand and how the two combine; `None` to store the received chunk.
    pub(super) combine: Option<(Memory, Reduction)>,
}

impl Incoming {
    /// Takes it out if it is there, and wakes the sender if that sleeps.
    pub(super) fn advance(
        &self,
        from: &mut Receiver,
        bell: &Doorbell,
        blocks: &mut Blocks,
    ) -> Moved {
        let (found, moved) = arrived(self.expected, from, bell);
        let Some(payload) = found else { return moved };
        if let Some(operand) = Operand::of(payload) {
            let segment = from.segment();
            match self.combine {
                None => operand.copy(segment, self.into),
                Some((local, how)) => {
                    blocks.reduce(segment, how, local, &[operand], &[self.into.offset]);
                }
            }
        }
        from.take();
        bell.ring();
        Moved::All
    }
}

/// The next message if it is the expected one. A message of another call is left where it is: the
/// receiver then waits until its watchdog ends the run, as NCCL would. A message of a call that
/// this rank has left behind will never be expected again, and is dropped.
pub(super) fn arrived(
    expected: Header,
    from: &mut Receiver,
    bell: &Doorbell,
) -> (Option<Payload>, Moved) {
    let mut moved = Moved::Nothing;
    while let Some((header, payload)) = from.next() {
        let mark = if expected.mark == ANY_MARK { header.mark } else { expected.mark };
        if header == (Header { mark, ..expected }) {
            return (Some(payload), moved);
        }
        if header.seq >= expected.seq {
            break;
        }
        from.take();
        bell.ring();
        moved = Moved::Some;
    }
    (None, moved)
}
