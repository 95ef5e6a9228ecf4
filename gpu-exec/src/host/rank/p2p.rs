//! Point-to-point calls: a thread that moves all of a rank's sends and receives at once. Calls of
//! one channel (group, peers, tag) match in the order in which they were made.
//!
//! A receive from any source takes, of the messages that are there, the one that was posted first;
//! of the receives that could take a message, the one that was called first has it, but on gloo one
//! that names its source. These are the simulator's rules, MPI's and gloo's.
//!
//! A send completes when its receiver has taken everything: the rendezvous that NCCL's have, and
//! the simulator's.

use super::clerk::Clerk;
use super::combine::Blocks;
use super::failure::{RankFailure, cannot};
use super::note::{Message, Note};
use super::transfer::{ANY_MARK, How, Incoming, Moved, Outgoing};
use super::works::Works;
use crate::host::arena::Memory;
use crate::host::wiring::ChannelKey;
use crate::shm::{Doorbell, Header, Patience, Receiver, Sender};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// A send or receive that was called.
#[derive(Debug)]
pub(super) struct P2pCall {
    pub(super) with: With,
    pub(super) tensor: Memory,
    /// The fingerprint of the values that both sides must agree on.
    pub(super) fingerprint: u64,
    pub(super) work: u32,
    /// On the shared clock.
    pub(super) posted_ns: u64,
}

/// The other side of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum With {
    /// The one on this channel.
    One(ChannelKey),
    /// Whoever of the group sends first with this tag. It `holds` named receives that were called
    /// after it, until it has a message.
    Anyone { group: GroupId, tag: u32, holds: bool },
}

/// A call that waits for its turn, and its place among the rank's calls.
#[derive(Debug)]
pub(super) struct Waiting {
    order: u64,
    call: P2pCall,
}

/// One end of a channel.
#[derive(Debug)]
pub(super) struct P2pChannel {
    pub(super) peer: GlobalRank,
    pub(super) bell: Doorbell,
    pub(super) end: End,
    /// Calls carried out so far: sender and receiver count alike.
    pub(super) calls: u64,
    pub(super) queue: VecDeque<Waiting>,
    pub(super) current: Option<Current>,
}

/// The end of a channel that a rank holds.
#[derive(Debug)]
pub(super) enum End {
    Sends(Sender),
    Receives(Receiver),
}

/// The call that a channel carries out.
#[derive(Debug)]
pub(super) struct Current {
    way: Way,
    message: Message,
    /// The number in the channel of a send that has left.
    left: Option<u64>,
}

#[derive(Debug)]
enum Way {
    Out(Outgoing),
    In(Incoming),
}

/// The thread's mailbox, from the program's side.
#[derive(Debug)]
pub(super) struct PointToPoint {
    inbox: Arc<Mutex<VecDeque<P2pCall>>>,
    bell: Doorbell,
    /// The channels that the thread takes over when it starts.
    channels: Option<BTreeMap<ChannelKey, P2pChannel>>,
    patience: Patience,
}

impl PointToPoint {
    pub(super) fn new(
        bell: Doorbell,
        channels: BTreeMap<ChannelKey, P2pChannel>,
        patience: Patience,
    ) -> PointToPoint {
        PointToPoint { inbox: Arc::default(), bell, channels: Some(channels), patience }
    }

    /// Hands over a call; it is carried out in the background.
    pub(super) fn post(
        &mut self,
        call: P2pCall,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<(), RankFailure> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(call);
        if let Some(channels) = self.channels.take() {
            let mut mover = Mover {
                inbox: self.inbox.clone(),
                channels,
                from_anyone: BTreeMap::new(),
                calls: 0,
                unfinished: 0,
                blocks: Blocks::new(),
                clerk: clerk.clone(),
                works: works.clone(),
            };
            let (bell, patience) = (self.bell.clone(), self.patience);
            std::thread::Builder::new()
                .name("point-to-point".to_owned())
                .spawn(move || {
                    loop {
                        // With nothing in flight, only the program can bring news: no spinning.
                        let idle = mover.unfinished == 0;
                        let patience = if idle { Patience::NONE } else { patience };
                        bell.wait_for(patience, || mover.advance());
                    }
                })
                .map_err(cannot("cannot start a thread"))?;
        }
        self.bell.ring();
        Ok(())
    }
}

struct Mover {
    inbox: Arc<Mutex<VecDeque<P2pCall>>>,
    channels: BTreeMap<ChannelKey, P2pChannel>,
    /// Receives from any source that have no message yet, by group and tag.
    from_anyone: BTreeMap<(GroupId, u32), VecDeque<Waiting>>,
    /// Calls taken over so far.
    calls: u64,
    unfinished: usize,
    blocks: Blocks,
    clerk: Arc<Clerk>,
    works: Arc<Works>,
}

impl Mover {
    /// Tries everything once; true if anything moved.
    fn advance(&mut self) -> bool {
        let posted =
            std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        let mut any = !posted.is_empty();
        for call in posted {
            self.unfinished += 1;
            self.calls += 1;
            self.clerk.note(Note::Started { work: call.work });
            let waiting = Waiting { order: self.calls, call };
            match waiting.call.with {
                With::Anyone { group, tag, .. } => {
                    self.from_anyone.entry((group, tag)).or_default().push_back(waiting);
                }
                // The wiring has a channel for every send of the plan; a receive that nobody
                // sends to stays open and ends by its timeout.
                With::One(key) => {
                    if let Some(channel) = self.channels.get_mut(&key) {
                        channel.queue.push_back(waiting);
                    }
                }
            }
        }
        any |= self.take_from_anyone();
        for (key, channel) in &mut self.channels {
            let held = self.from_anyone.get(&(key.group, key.tag.unwrap_or_default()));
            let held = held
                .and_then(|queue| queue.front())
                .filter(|waiting| matches!(waiting.call.with, With::Anyone { holds: true, .. }));
            let held = held.map(|waiting| waiting.order);
            channel.begin_next(held);
            while let Some(moved) = channel.advance(&mut self.blocks, &self.clerk) {
                any |= moved != Moved::Nothing;
                if moved != Moved::All {
                    break;
                }
                if let Some(current) = channel.current.take() {
                    self.clerk.completed(current.message.work);
                    self.works.complete(current.message.work);
                    self.unfinished = self.unfinished.saturating_sub(1);
                }
                channel.begin_next(held);
            }
        }
        any
    }

    /// Gives receives from any source the messages that are there; true if one was given.
    fn take_from_anyone(&mut self) -> bool {
        let mut any = false;
        for ((group, tag), queue) in &mut self.from_anyone {
            while let Some(first) = queue.front() {
                let offers = self.channels.iter_mut().filter_map(|(key, channel)| {
                    let fits = (key.group, key.tag) == (*group, Some(*tag));
                    let posted_ns = channel.offers_since(first.order).filter(|_| fits)?;
                    Some((posted_ns, *key))
                });
                let Some((_, key)) = offers.min() else { break };
                let (Some(waiting), Some(channel)) =
                    (queue.pop_front(), self.channels.get_mut(&key))
                else {
                    break;
                };
                channel.begin(waiting.call);
                any = true;
            }
        }
        any
    }
}

impl P2pChannel {
    /// When the message was posted that a receive of that order could take here: there is one, and
    /// no call of the channel's own comes before.
    fn offers_since(&mut self, order: u64) -> Option<u64> {
        let End::Receives(from) = &mut self.end else { return None };
        let own = self.queue.front().is_some_and(|waiting| waiting.order < order);
        if own || self.current.is_some() {
            return None;
        }
        from.next().map(|(header, _)| header.mark)
    }

    /// Begins the channel's next own call, unless a receive from any source that was called before
    /// it, `held`, still has to have the next message.
    fn begin_next(&mut self, held: Option<u64>) {
        let receives = matches!(self.end, End::Receives(_));
        let next = self.queue.front().map(|waiting| waiting.order);
        let waits = receives && next.zip(held).is_some_and(|(own, held)| held < own);
        if self.current.is_none()
            && !waits
            && let Some(waiting) = self.queue.pop_front()
        {
            self.begin(waiting.call);
        }
    }

    /// Moves the channel's current call on; `None` if it has none.
    fn advance(&mut self, blocks: &mut Blocks, clerk: &Clerk) -> Option<Moved> {
        let current = self.current.as_mut()?;
        Some(match (&current.way, &mut self.end) {
            (Way::Out(outgoing), End::Sends(to)) => match current.left {
                None => match outgoing.advance(to, &self.bell) {
                    Some(left) => {
                        clerk.sent(current.message);
                        current.left = Some(left.number);
                        Moved::Some
                    }
                    None => Moved::Nothing,
                },
                Some(number) if to.was_taken(number) => Moved::All,
                Some(_) => Moved::Nothing,
            },
            (Way::In(incoming), End::Receives(from)) => {
                let moved = incoming.advance(from, &self.bell, blocks);
                if moved == Moved::All {
                    clerk.received(current.message, false);
                }
                moved
            }
            _ => Moved::Nothing,
        })
    }

    fn begin(&mut self, call: P2pCall) {
        self.calls += 1;
        let bytes = call.tensor.bytes as u64;
        let mark = match self.end {
            End::Sends(_) => call.posted_ns,
            End::Receives(_) => ANY_MARK,
        };
        let header = Header { seq: self.calls, fingerprint: call.fingerprint, bytes, mark };
        let way = match self.end {
            End::Sends(_) => Way::Out(Outgoing { header, from: call.tensor, how: How::InPlace }),
            End::Receives(_) => {
                Way::In(Incoming { expected: header, into: call.tensor, combine: None })
            }
        };
        let message = Message { work: call.work, step: 0, peer: self.peer, slice: None, bytes };
        self.current = Some(Current { way, message, left: None });
    }
}
