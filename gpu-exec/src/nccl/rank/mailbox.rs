//! Messages between logical ranks of one process, on one device: copies into a box that two ranks
//! share, and two numbers a box that their streams write and wait for.
//!
//! A sender copies into its box and writes how many messages it has put there; the receiver waits
//! for that number, copies out, and writes that number back; the sender waits for it before it goes
//! on. So a send completes when it was received, as NCCL's do, and the box is empty when the next
//! message is put there.
//! In a group all sends are put before a receive is waited for, so that ranks which send to each
//! other do not wait for ever. Nothing of this involves a host thread: a rank that does not come
//! leaves the others' streams waiting, as a GPU's do.

use crate::nccl::device::{Device, Region, Stream};
use crate::nccl::error::DeviceError;
use crate::nccl::lower::{CommunicatorId, Communicators, Lowered, Step};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sender and a receiver on a communicator, by their places there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    communicator: CommunicatorId,
    from: u32,
    to: u32,
}

/// The memory that two ranks share.
#[derive(Clone, Copy, Debug)]
struct Letterbox {
    bytes: Region,
    put: Region,
    taken: Region,
}

/// All boxes of a run.
#[derive(Debug)]
pub(super) struct Mailboxes {
    boxes: BTreeMap<Way, Letterbox>,
}

/// A rank's messages so far.
#[derive(Debug)]
pub(super) struct Post {
    boxes: Arc<Mailboxes>,
    numbers: BTreeMap<Way, u32>,
}

/// The offset at which the next part of a group begins in its box: apart enough for every element.
fn place(bytes: u64) -> u64 {
    bytes.next_multiple_of(16)
}

impl Mailboxes {
    /// The boxes that programs need, each as large as the most that is in it at once.
    pub(super) fn of(
        device: &Device,
        stream: Stream,
        programs: &[Lowered],
        communicators: &Communicators,
    ) -> Result<Mailboxes, DeviceError> {
        let mut most: BTreeMap<Way, u64> = BTreeMap::new();
        for (rank, program) in (0..).map(GlobalRank).zip(programs) {
            for step in program.ops.iter().flatten() {
                let Step::Exchange { communicator, sends, receives } = step else { continue };
                let communicator = *communicator;
                let members = communicators.members(communicator);
                let Some(me) = members.iter().position(|member| *member == rank) else { continue };
                let me = me as u32;
                let mut at_once: BTreeMap<Way, u64> = BTreeMap::new();
                for (to, span) in sends {
                    let way = Way { communicator, from: me, to: *to };
                    *at_once.entry(way).or_default() += place(span.bytes);
                }
                for (from, span) in receives {
                    let way = Way { communicator, from: *from, to: me };
                    *at_once.entry(way).or_default() += place(span.bytes);
                }
                for (way, bytes) in at_once {
                    let most = most.entry(way).or_default();
                    *most = bytes.max(*most);
                }
            }
        }
        let mut boxes = BTreeMap::new();
        for (way, bytes) in most {
            let number = || {
                let number = device.memory(4)?;
                device.clear(stream, number)?;
                Ok::<_, DeviceError>(number)
            };
            let bytes = device.memory(bytes)?;
            boxes.insert(way, Letterbox { bytes, put: number()?, taken: number()? });
        }
        device.synchronize(stream)?;
        Ok(Mailboxes { boxes })
    }

    /// A rank's side of them.
    pub(super) fn post(self: &Arc<Mailboxes>) -> Post {
        Post { boxes: self.clone(), numbers: BTreeMap::new() }
    }
}

impl Post {
    /// Puts sends and receives on the stream, as one group.
    pub(super) fn exchange(
        &mut self,
        device: &Device,
        stream: Stream,
        (communicator, me): (CommunicatorId, u32),
        sends: &[(u32, Region)],
        receives: &[(u32, Region)],
    ) -> Result<(), DeviceError> {
        let mut out: BTreeMap<Way, Vec<Region>> = BTreeMap::new();
        for (to, from) in sends {
            let way = Way { communicator, from: me, to: *to };
            out.entry(way).or_default().push(*from);
        }
        let mut back: BTreeMap<Way, Vec<Region>> = BTreeMap::new();
        for (from, into) in receives {
            let way = Way { communicator, from: *from, to: me };
            back.entry(way).or_default().push(*into);
        }
        let mut put = Vec::new();
        for (way, parts) in out {
            let Some((letterbox, number)) = self.next(way) else { continue };
            for (from, into) in parts.iter().zip(places(letterbox.bytes, &parts)) {
                device.copy(stream, *from, into)?;
            }
            device.write_value(stream, letterbox.put, number)?;
            put.push((letterbox, number));
        }
        for (way, parts) in back {
            let Some((letterbox, number)) = self.next(way) else { continue };
            device.wait_for_value(stream, letterbox.put, number)?;
            for (into, from) in parts.iter().zip(places(letterbox.bytes, &parts)) {
                device.copy(stream, from, *into)?;
            }
            device.write_value(stream, letterbox.taken, number)?;
        }
        for (letterbox, number) in put {
            device.wait_for_value(stream, letterbox.taken, number)?;
        }
        Ok(())
    }

    fn next(&mut self, way: Way) -> Option<(Letterbox, u32)> {
        let letterbox = self.boxes.boxes.get(&way)?;
        let number = self.numbers.entry(way).or_default();
        *number = number.wrapping_add(1);
        Some((*letterbox, *number))
    }
}

/// The places of a message's parts in its box: those that do not fit are left out, since the two
/// sides then disagree.
fn places(all: Region, parts: &[Region]) -> Vec<Region> {
    let mut offset = 0;
    let place_of = |part: &Region| {
        let here = all.part(offset, part.bytes());
        offset += place(part.bytes());
        here
    };
    parts.iter().map_while(place_of).collect()
}
