//! Point-to-point calls: a thread that moves all of a rank's sends and receives at once. Calls of
//! one channel (group, peers, tag) match in the order in which they were made.
//!
//! A send completes when its receiver has taken everything: the rendezvous that NCCL's have, and
//! the simulator's.

use super::clerk::{Clerk, Message, Note};
use super::memory::Slice;
use super::transfer::{Header, Incoming, Moved, Outgoing};
use super::works::Works;
use crate::host::wiring::ChannelKey;
use crate::shm::{Doorbell, Patience, Receiver, Sender};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// A send or receive that was called.
#[derive(Debug)]
pub(super) struct P2pCall {
    pub(super) key: ChannelKey,
    pub(super) tensor: Slice,
    /// What both sides must agree on.
    pub(super) fingerprint: u64,
    pub(super) work: u32,
}

/// One end of a channel.
#[derive(Debug)]
pub(super) struct P2pChannel {
    pub(super) peer: GlobalRank,
    pub(super) bell: Doorbell,
    pub(super) end: End,
    /// Calls carried out so far: sender and receiver count alike.
    pub(super) calls: u64,
    pub(super) queue: VecDeque<P2pCall>,
    pub(super) current: Option<Current>,
}

/// Which end.
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
    /// For sends: everything is in the ring.
    all_sent: bool,
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
    /// What the thread takes over when it starts.
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
    ) -> Result<(), String> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(call);
        if let Some(channels) = self.channels.take() {
            let mut mover = Mover {
                inbox: self.inbox.clone(),
                channels,
                unfinished: 0,
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
                .map_err(super::cannot("cannot start a thread"))?;
        }
        self.bell.ring();
        Ok(())
    }
}

struct Mover {
    inbox: Arc<Mutex<VecDeque<P2pCall>>>,
    channels: BTreeMap<ChannelKey, P2pChannel>,
    unfinished: usize,
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
            // The wiring has a channel for every call of the plan; without one a call would stay
            // open and end by its timeout.
            if let Some(channel) = self.channels.get_mut(&call.key) {
                channel.queue.push_back(call);
            }
        }
        for channel in self.channels.values_mut() {
            while let Some(moved) = channel.advance(&self.clerk) {
                any |= moved != Moved::Nothing;
                if moved != Moved::All {
                    break;
                }
                if let Some(current) = channel.current.take() {
                    self.clerk.completed(current.message.work);
                    self.works.complete(current.message.work);
                    self.unfinished = self.unfinished.saturating_sub(1);
                }
            }
        }
        any
    }
}

impl P2pChannel {
    /// Moves the channel's current call on; `None` if it has none.
    fn advance(&mut self, clerk: &Clerk) -> Option<Moved> {
        if self.current.is_none() {
            let call = self.queue.pop_front()?;
            self.begin(call, clerk);
        }
        let current = self.current.as_mut()?;
        Some(match (&mut current.way, &mut self.end) {
            (Way::Out(outgoing), End::Sends(ring)) => {
                let mut moved = Moved::Nothing;
                if !current.all_sent {
                    let had_left = outgoing.left;
                    moved = outgoing.advance(ring, &self.bell);
                    if outgoing.left && !had_left {
                        clerk.sent(current.message);
                    }
                    current.all_sent = moved == Moved::All;
                }
                match (current.all_sent, ring.is_drained()) {
                    (true, true) => Moved::All,
                    (true, false) if moved == Moved::All => Moved::Some,
                    _ => moved,
                }
            }
            (Way::In(incoming), End::Receives(ring)) => {
                let moved = incoming.advance(ring, &self.bell);
                if moved == Moved::All {
                    clerk.received(current.message, false);
                }
                moved
            }
            _ => Moved::Nothing,
        })
    }

    fn begin(&mut self, call: P2pCall, clerk: &Clerk) {
        self.calls += 1;
        let bytes = call.tensor.bytes() as u64;
        let (seq, fingerprint) = (self.calls, call.fingerprint);
        let header = Header { seq, fingerprint, bytes, step: 0 };
        let way = match self.end {
            End::Sends(_) => Way::Out(Outgoing::new(header, call.tensor)),
            End::Receives(_) => Way::In(Incoming::new(header, call.tensor, None)),
        };
        let message = Message { work: call.work, step: 0, peer: self.peer, slice: None, bytes };
        clerk.note(Note::Started { work: call.work });
        self.current = Some(Current { way, message, all_sent: false });
    }
}
