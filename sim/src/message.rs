//! Messages of collectives: their contents, and their storage while they are on their way or wait in a
//! mailbox.

use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::Slice;

/// A message of a collective's schedule.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) to: u32,
    pub(crate) from: GroupRank,
    pub(crate) seq: u64,
    pub(crate) step: u32,
    /// The sender's signature, by its number.
    pub(crate) signature: u32,
    pub(crate) slice: Slice,
    pub(crate) bytes: u64,
    pub(crate) departs: u64,
    /// Its receiver reads it where it is, which its sender waits for.
    pub(crate) lent: bool,
    /// Its contents, where values or marks are kept: a message without is one cache line.
    pub(crate) cargo: Option<Box<Cargo>>,
}

/// The contents of a message.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    pub(crate) elements: Option<Box<[u8]>>,
    pub(crate) marks: Option<Box<[u64]>>,
    /// When it would have left if messages took no time, where its call's steps are laid over a known time.
    pub(crate) reached: u64,
}

/// Messages on their way or in a mailbox; places are used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    places: Vec<Option<Message>>,
    free: Vec<u32>,
}

impl Messages {
    pub(crate) fn put(&mut self, message: Message) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(message);
            return place;
        }
        self.places.push(Some(message));
        self.places.len() as u32 - 1
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Message> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(crate) fn take(&mut self, place: u32) -> Option<Message> {
        let message = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(message)
    }
}
