//! A bounded queue of messages from one process to another, without locks.
//!
//! A message is one cache line that says what it is and where its bytes lie: a few in the line
//! itself, more in the channel's own bounce buffer, and many where the sender has them, so that
//! the receiver reads them in place and nothing is copied twice. Each line carries the lap it was
//! written in, so that the receiver looks at the line alone (FastForward, Giacomoni 2008); the
//! receiver answers with a count of what it has taken, which is also how the sender learns that
//! its memory is its own again.

use super::segment::LINE;
use super::{APART, Segment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages that can be under way.
const SLOTS: u64 = 32;

/// Bytes that fit into the line.
pub(crate) const INLINE: usize = 24;

/// The longest message whose bytes' lines are asked for before it is written: as many lines as a core
/// can ask for at once. Of 1 KB that takes a quarter off a call; more were as much slower.
const MOST_READY: usize = 16 * LINE;

/// The place of a channel: the count of messages taken, the lines, the bounce buffer.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    segment: Arc<Segment>,
    offset: usize,
    bounce: usize,
}

/// The header before a message's bytes: whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The call's number in its group, or in its channel for point-to-point.
    pub(crate) seq: u64,
    /// The fingerprint of the values that both sides must agree on about the call.
    pub(crate) fingerprint: u64,
    /// The message's length.
    pub(crate) bytes: u64,
    /// The schedule's step; of a point-to-point call, when it was posted, on the shared clock.
    pub(crate) mark: u64,
}

/// The place of a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// In the message itself: as many as the header says.
    Inline([u64; INLINE / 8]),
    /// At this offset of the segment, until the message is taken.
    At(usize),
    /// As above; and until it is taken the receiver may put the message there that it is going to send back
    /// into the same place.
    Lent(usize),
    /// The receiver's own memory: the sender has put them there.
    Delivered,
}

const KIND_INLINE: u64 = 0;
const KIND_AT: u64 = 1;
const KIND_LENT: u64 = 2;
const KIND_DELIVERED: u64 = 3;

impl Channel {
    /// The bytes that a channel with that bounce buffer takes in the segment.
    pub(crate) fn footprint(bounce: usize) -> usize {
        (APART + SLOTS as usize * LINE + bounce).next_multiple_of(APART)
    }

    /// The channel at `offset`, a multiple of [`APART`].
    pub(crate) fn at(segment: Arc<Segment>, offset: usize, bounce: usize) -> Channel {
        Channel { segment, offset, bounce: bounce - bounce % LINE }
    }

    /// The side that writes. There must be one in all processes.
    pub(crate) fn sender(self) -> Sender {
        Sender {
            channel: self,
            posted: 0,
            taken_seen: 0,
            bounced: 0,
            bounce_freed: 0,
            bounce_ends: Box::new([0; SLOTS as usize]),
        }
    }

    /// The side that reads. There must be one in all processes.
    pub(crate) fn receiver(self) -> Receiver {
        Receiver { channel: self, taken: 0, seen: false }
    }

    fn taken(&self) -> &AtomicU64 {
        self.segment.double_word(self.offset)
    }

    fn line(&self, number: u64) -> usize {
        self.offset + APART + (number % SLOTS) as usize * LINE
    }

    /// The fields of a message's line: its turn and kind, the header, and the payload.
    fn fields(&self, number: u64) -> &[AtomicU64; LINE / 8] {
        self.segment.line(self.line(number))
    }

    fn bounce_start(&self) -> usize {
        self.offset + APART + SLOTS as usize * LINE
    }
}

/// The mark of a line in its `number`'s turn, in the lower half of its first field, beside the message's
/// kind: never the mark of a lap before, nor zero.
fn turn_of(number: u64) -> u32 {
    ((number / SLOTS) as u32).wrapping_mul(2).wrapping_add(1)
}

/// The writing side of a channel.
#[derive(Debug)]
pub(crate) struct Sender {
    channel: Channel,
    /// Messages so far.
    posted: u64,
    /// Messages that were taken, when this side looked last.
    taken_seen: u64,
    /// Positions in the bounce buffer count bytes since the start and never wrap.
    bounced: u64,
    bounce_freed: u64,
    /// The end of each slot's message in the bounce buffer.
    bounce_ends: Box<[u64; SLOTS as usize]>,
}

impl Sender {
    #[cfg(test)]
    fn segment(&self) -> &Segment {
        &self.channel.segment
    }

    /// The most bytes that [`Sender::post_copy`] takes.
    pub(crate) fn most_copied(&self) -> usize {
        self.channel.bounce.max(INLINE)
    }

    /// Sends a message, unless too many are under way. Returns its number, from 1.
    pub(crate) fn post(&mut self, header: Header, payload: Payload) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        let number = self.posted;
        let (kind, words) = match payload {
            Payload::Inline(words) => (KIND_INLINE, words),
            Payload::At(offset) => (KIND_AT, [offset as u64, 0, 0]),
            Payload::Lent(offset) => (KIND_LENT, [offset as u64, 0, 0]),
            Payload::Delivered => (KIND_DELIVERED, [0; 3]),
        };
        let Header { seq, fingerprint, bytes, mark } = header;
        let [turn, fields @ ..] = self.channel.fields(number);
        let [a, b, c] = words;
        for (field, value) in fields.iter().zip([seq, fingerprint, bytes, mark, a, b, c]) {
            field.store(value, Ordering::Relaxed);
        }
        self.bounce_ends[(number % SLOTS) as usize] = self.bounced;
        // Release: who sees the turn sees the fields, and the bytes that they speak of.
        turn.store(u64::from(turn_of(number)) | kind << 32, Ordering::Release);
        self.posted += 1;
        Some(self.posted)
    }

    /// Sends a message with a copy of the `header.bytes` at `from` in the segment, which are the
    /// sender's own again at once. `None` if there is no room now; that is for ever if there are
    /// more than [`Sender::most_copied`].
    pub(crate) fn post_copy(&mut self, header: Header, from: usize) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        let bytes = header.bytes as usize;
        if bytes <= INLINE {
            let mut copy = [0; INLINE];
            self.channel.segment.load(from, &mut copy[..bytes]);
            let mut words = [0; INLINE / 8];
            for (word, bytes) in words.iter_mut().zip(copy.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            return self.post(header, Payload::Inline(words));
        }
        let capacity = self.channel.bounce as u64;
        let within = self.bounced % capacity.max(1);
        // In one piece: what does not fit before the end begins at the start.
        let skipped = if within + bytes as u64 > capacity { capacity - within } else { 0 };
        let start = self.bounced + skipped;
        let end = start + bytes.next_multiple_of(LINE) as u64;
        if end - self.bounce_freed > capacity {
            self.look();
            if self.taken_seen == self.posted {
                self.bounce_freed = start;
            }
            if end - self.bounce_freed > capacity {
                return None;
            }
        }
        let into = self.channel.bounce_start() + (start % capacity) as usize;
        self.channel.segment.copy(from, into, bytes);
        self.bounced = end;
        self.post(header, Payload::At(into))
    }

    /// The next message is written soon, and is maybe as long as one of so many bytes: the lines that it
    /// takes are the sender's by then.
    pub(crate) fn make_ready(&self, bytes: usize) {
        let segment = &self.channel.segment;
        segment.about_to_write(self.channel.line(self.posted));
        if bytes > INLINE && bytes <= MOST_READY.min(self.channel.bounce) {
            let within = (self.bounced % self.channel.bounce as u64) as usize;
            let end = (within + bytes).min(self.channel.bounce);
            for at in (within..end).step_by(LINE) {
                segment.about_to_write(self.channel.bounce_start() + at);
            }
        }
    }

    /// True if the message was taken: its memory is the sender's own again.
    pub(crate) fn was_taken(&mut self, number: u64) -> bool {
        if self.taken_seen < number {
            self.look();
        }
        self.taken_seen >= number
    }

    fn has_room(&mut self) -> bool {
        if self.posted - self.taken_seen >= SLOTS {
            self.look();
        }
        self.posted - self.taken_seen < SLOTS
    }

    fn look(&mut self) {
        let taken = self.channel.taken().load(Ordering::Acquire);
        // A receiver never overtakes: anything else is a damaged segment, and changes nothing.
        if taken > self.taken_seen && taken <= self.posted {
            self.taken_seen = taken;
            self.bounce_freed = self.bounce_ends[((taken - 1) % SLOTS) as usize];
        }
    }
}

/// The reading side of a channel.
#[derive(Debug)]
pub(crate) struct Receiver {
    channel: Channel,
    taken: u64,
    /// True if the next message is there. Asking again reads a cache line that this core owns by then.
    seen: bool,
}

impl Receiver {
    /// The segment that the messages' bytes are in.
    pub(crate) fn segment(&self) -> &Segment {
        &self.channel.segment
    }

    /// The next message, if it is there. It stays the next until it is taken.
    pub(crate) fn next(&mut self) -> Option<(Header, Payload)> {
        let [turn, fields @ ..] = self.channel.fields(self.taken);
        // Acquire: of a message whose turn is seen, all of it is seen.
        let turn = turn.load(Ordering::Acquire);
        self.seen = turn as u32 == turn_of(self.taken);
        if !self.seen {
            return None;
        }
        let [seq, fingerprint, bytes, mark, a, b, c] =
            std::array::from_fn(|index| fields[index].load(Ordering::Relaxed));
        let payload = match turn >> 32 {
            KIND_INLINE => Payload::Inline([a, b, c]),
            KIND_AT => Payload::At(a as usize),
            KIND_LENT => Payload::Lent(a as usize),
            _ => Payload::Delivered,
        };
        Some((Header { seq, fingerprint, bytes, mark }, payload))
    }

    /// The next message is looked for soon: its line is here by then, if it was sent.
    pub(crate) fn make_ready(&self) {
        self.channel.segment.about_to_read(self.channel.line(self.taken));
    }

    /// Takes the next message away: the sender may use its memory again.
    pub(crate) fn take(&mut self) {
        if std::mem::take(&mut self.seen) {
            self.taken += 1;
            // Release: what was read is read before its sender writes there again.
            self.channel.taken().store(self.taken, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: usize = 4096;

    /// Both sides, each with a mapping of its own as two processes have them, and where memory
    /// begins that is theirs to use.
    fn pair(bounce: usize) -> (Sender, Receiver, usize) {
        let bytes = Channel::footprint(bounce) + AREA;
        let memory = Segment::create(bytes).unwrap();
        let channel = || Channel::at(Segment::map(&memory, bytes).unwrap(), 0, bounce);
        (channel().sender(), channel().receiver(), Channel::footprint(bounce))
    }

    fn header(seq: u64, bytes: usize) -> Header {
        Header { seq, fingerprint: !seq, bytes: bytes as u64, mark: seq * 3 }
    }

    fn bytes_of(receiver: &Receiver, header: Header, payload: Payload) -> Vec<u8> {
        let mut bytes = vec![0; header.bytes as usize];
        match payload {
            Payload::Inline(words) => {
                let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                bytes.copy_from_slice(&words[..header.bytes as usize]);
            }
            Payload::At(offset) | Payload::Lent(offset) => {
                receiver.segment().load(offset, &mut bytes);
            }
            Payload::Delivered => {}
        }
        bytes
    }

    #[test]
    fn a_full_channel_takes_nothing_until_one_is_taken() {
        let (mut sender, mut receiver, area) = pair(256);
        assert_eq!(receiver.next(), None);
        for number in 1..=SLOTS {
            assert_eq!(sender.post(header(number, 0), Payload::Lent(area)), Some(number));
        }
        assert_eq!(sender.post(header(99, 0), Payload::Delivered), None);
        assert!(!sender.was_taken(1));
        for number in 1..=SLOTS {
            assert_eq!(receiver.next(), Some((header(number, 0), Payload::Lent(area))));
            receiver.take();
            assert!(sender.was_taken(number) && !sender.was_taken(number + 1));
        }
        assert_eq!(receiver.next(), None);
        assert_eq!(sender.post(header(99, 0), Payload::Delivered), Some(SLOTS + 1));
        assert_eq!(receiver.next(), Some((header(99, 0), Payload::Delivered)));
    }

    #[test]
    fn what_was_copied_can_be_overwritten() {
        let (mut sender, mut receiver, area) = pair(256);
        sender.segment().store(area, &[7; 100]);
        sender.post_copy(header(1, 100), area).unwrap();
        sender.segment().store(area, &[8; 100]);
        sender.post_copy(header(2, 100), area).unwrap();
        assert_eq!(sender.post_copy(header(3, 100), area), None, "256 bytes hold two of 128");
        for byte in [7, 8] {
            let (header, payload) = receiver.next().unwrap();
            assert_eq!(bytes_of(&receiver, header, payload), [byte; 100]);
            receiver.take();
        }
        assert!(sender.post_copy(header(3, 100), area).is_some());
        assert_eq!(sender.post_copy(header(4, 257), area), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Messages of any size arrive whole and in order, with both sides running at once.
        #[test]
        fn messages_arrive_in_order(
            lines in 11usize..40,
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 1..120),
        ) {
            let (mut sender, mut receiver, area) = pair(lines * LINE);
            let expected = messages.clone();
            let writer = std::thread::spawn(move || {
                let mut last = 0;
                for (seq, message) in (0..).zip(messages) {
                    sender.segment().store(area, &message);
                    last = loop {
                        match sender.post_copy(header(seq, message.len()), area) {
                            Some(number) => break number,
                            None => std::thread::yield_now(),
                        }
                    };
                }
                while !sender.was_taken(last) {
                    std::thread::yield_now();
                }
            });
            for (seq, message) in (0..).zip(expected) {
                let (got, payload) = loop {
                    match receiver.next() {
                        Some(next) => break next,
                        None => std::thread::yield_now(),
                    }
                };
                prop_assert_eq!(got, header(seq, message.len()));
                prop_assert_eq!(bytes_of(&receiver, got, payload), message);
                receiver.take();
            }
            writer.join().unwrap();
        }
    }
}
