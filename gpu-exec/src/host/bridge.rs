//! Messages between ranks that share no memory: over TCP.
//!
//! Each rank then has a shared memory of its own, laid out as that of a run on one machine, and at
//! the other end of every channel stand threads of the same process that carry its messages: what
//! the rank posts is written to a socket, what comes from one is posted to the rank. The rank's own
//! code, and with it the schedules and the bits, is the same.
//!
//! A channel has a connection of its own and one message under way at a time: the receiving end
//! answers when its rank has taken it, and only then is it taken at the sending end, so that a send
//! completes when it was received, as over shared memory. A receiving end thus always has room for
//! what comes, and nobody waits for a socket that nobody reads.

use super::control::{PeerAddress, TcpSetup, frame};
use super::greeters::{Greeters, Stranger};
use super::wiring::{ChannelKey, RankWiring, bell_offset};
use crate::host::rank::failure::{RankFailure, cannot};
use crate::shm::{Channel, Doorbell, Header, Patience, Payload, Receiver, Segment, Sender};
use lockstep_core::plan::Plan;
use lockstep_core::rank::{GlobalRank, GroupRank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A message's head on the wire: its four numbers.
const HEAD: usize = 32;

/// The receiving end's answer when it has taken a message.
const TAKEN: u8 = 1;

/// Interval between looks for new connections.
const LOOK: Duration = Duration::from_millis(2);

/// The first words on a connection.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    token: [u8; 32],
    channel: ChannelKey,
}

/// A rank's listener, before the others are known.
#[derive(Debug)]
pub(super) struct Bridge {
    listener: TcpListener,
    setup: TcpSetup,
    /// Under which address rank 0's machine is reached.
    rank_zero: IpAddr,
}

/// One channel's connection.
struct Connected {
    key: ChannelKey,
    offset: usize,
    stream: TcpStream,
}

impl Bridge {
    /// Listens on a free port.
    pub(super) fn listen(setup: TcpSetup, rank_zero: IpAddr) -> io::Result<Bridge> {
        let rank_zero = if setup.local { Ipv4Addr::LOCALHOST.into() } else { rank_zero };
        let listener = match setup.local {
            true => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            // Rank 0's child does not know by which family the others reach it: both, where the
            // machine has both.
            false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?,
        };
        listener.set_nonblocking(true)?;
        Ok(Bridge { listener, setup, rank_zero })
    }

    /// The port.
    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Connects every channel and returns the rank's own shared memory, with threads at the other
    /// ends.
    ///
    /// # Errors
    /// When a peer is out of reach or does not come in time.
    pub(super) fn connect(
        self,
        plan: &Plan,
        rank: GlobalRank,
        wiring: &RankWiring,
        peers: &[PeerAddress],
        timeout: Duration,
    ) -> Result<Arc<Segment>, RankFailure> {
        let failed = cannot::<io::Error>("cannot connect to the other ranks");
        let ends = Ends { plan, rank, wiring };
        let channels = wiring.channels.iter();
        let incoming: BTreeMap<ChannelKey, usize> = channels
            .filter(|channel| ends.me(&channel.key) == Some(channel.key.to))
            .map(|channel| (channel.key, channel.offset))
            .collect();
        // Others connect while this rank does: each waits for the others' replies otherwise.
        let (token, wanted) = (self.setup.token, incoming.clone());
        let listener = self.listener.try_clone().map_err(&failed)?;
        let accepting = thread::spawn(move || accept(&listener, token, wanted, timeout));
        let mut connections: BTreeMap<usize, Vec<Connected>> = BTreeMap::new();
        for channel in &wiring.channels {
            let key = channel.key;
            if ends.me(&key) == Some(key.from) {
                let stream = self.dial(&ends, key, peers, timeout)?;
                let connected = Connected { key, offset: channel.offset, stream };
                connections.entry(ends.bell(&key, key.to)?).or_default().push(connected);
            }
        }
        let accepted =
            accepting.join().map_err(|_| RankFailure::Unchecked("a thread that panicked"))??;
        for (key, stream) in accepted {
            let offset = incoming.get(&key).copied();
            let offset = offset.ok_or(RankFailure::Unchecked("a channel that is none"))?;
            let connected = Connected { key, offset, stream };
            connections.entry(ends.bell(&key, key.from)?).or_default().push(connected);
        }
        // Behind everything else, where messages land.
        let most: BTreeMap<ChannelKey, u64> = self.setup.landings.iter().copied().collect();
        let mut total = wiring.segment_bytes;
        let mut landings = BTreeMap::new();
        for key in incoming.keys() {
            let start = total.next_multiple_of(4096);
            let bytes = most.get(key).copied().unwrap_or(0) as usize;
            landings.insert(*key, (start, bytes));
            total = start.saturating_add(bytes);
        }
        let memory = Segment::create(total).map_err(&failed)?;
        let segment = Segment::map(memory, total).map_err(&failed)?;
        for (bell, connections) in connections {
            let end = far_end(&segment, bell, connections, &ends, &landings)?;
            thread::spawn(move || end.serve());
        }
        Ok(segment)
    }

    /// A connection to the rank at the other end of a channel, which has been told which one it is.
    fn dial(
        &self,
        ends: &Ends<'_>,
        key: ChannelKey,
        peers: &[PeerAddress],
        timeout: Duration,
    ) -> Result<TcpStream, RankFailure> {
        let failed = cannot::<io::Error>("cannot connect to the other ranks");
        let peer =
            ends.global(&key, key.to).ok_or(RankFailure::Unchecked("a channel to nobody"))?;
        let address = peers.get(peer.index());
        let address = address.ok_or(RankFailure::Unchecked("a peer without an address"))?;
        let address = SocketAddr::new(address.ip.unwrap_or(self.rank_zero), address.port);
        let stream = TcpStream::connect_timeout(&address, timeout);
        let mut stream =
            stream.map_err(|cause| RankFailure::Unreachable { peer, address, cause })?;
        stream.set_nodelay(true).map_err(&failed)?;
        let introduction = Introduction { token: self.setup.token, channel: key };
        stream.write_all(&frame(&introduction)).map_err(&failed)?;
        Ok(stream)
    }
}

/// The ends of a rank's channels.
struct Ends<'a> {
    plan: &'a Plan,
    rank: GlobalRank,
    wiring: &'a RankWiring,
}

impl Ends<'_> {
    /// The rank itself in a channel's group.
    fn me(&self, key: &ChannelKey) -> Option<GroupRank> {
        self.plan.group(key.group)?.group_rank(self.rank)
    }

    fn global(&self, key: &ChannelKey, member: GroupRank) -> Option<GlobalRank> {
        self.plan.group(key.group)?.global_rank(member)
    }

    /// The offset of the bell that a rank rings for a member: one of its group, or that of
    /// point-to-point calls.
    fn bell(&self, key: &ChannelKey, member: GroupRank) -> Result<usize, RankFailure> {
        let bell = match key.tag {
            None => {
                let first = self.wiring.bells.get(key.group.index()).copied();
                first.map(|first| bell_offset(first, member.0))
            }
            Some(_) => {
                let member = self.global(key, member);
                member.map(|member| bell_offset(self.wiring.p2p_bells, member.0))
            }
        };
        bell.ok_or(RankFailure::Unchecked("a channel without a bell"))
    }
}

/// The far end of the channels that ring one bell, with a thread for each that hears its peer.
fn far_end(
    segment: &Arc<Segment>,
    bell: usize,
    connections: Vec<Connected>,
    ends: &Ends<'_>,
    landings: &BTreeMap<ChannelKey, (usize, usize)>,
) -> Result<FarEnd, RankFailure> {
    let failed = cannot::<io::Error>("cannot connect to the other ranks");
    let mut end = FarEnd {
        bell: Doorbell::at(segment.clone(), bell),
        outgoing: Vec::new(),
        incoming: Vec::new(),
    };
    for Connected { key, offset, stream } in connections {
        let wire = Channel::at(segment.clone(), offset, ends.wiring.bounce_bytes);
        let me = ends.me(&key).ok_or(RankFailure::Unchecked("no bell of its own"))?;
        let own = Doorbell::at(segment.clone(), ends.bell(&key, me)?);
        match landings.get(&key) {
            None => {
                let taken = Arc::new(AtomicBool::new(false));
                let answers = stream.try_clone().map_err(&failed)?;
                let (flag, bell) = (taken.clone(), end.bell.clone());
                thread::spawn(move || hear_answers(answers, &flag, &bell));
                let from = wire.receiver();
                end.outgoing.push(Out { stream, from, own, taken, under_way: false });
            }
            Some(&landing) => {
                let to = Arc::new(Mutex::new(In { to: wire.sender(), landed: None }));
                let messages = stream.try_clone().map_err(&failed)?;
                let (posting, segment) = (to.clone(), segment.clone());
                thread::spawn(move || {
                    // Its end is the end of the peer, which the coordinator sees too.
                    let _ = land(messages, &segment, landing, &posting, &own);
                });
                end.incoming.push((stream, to));
            }
        }
    }
    Ok(end)
}

/// The connections of all channels that come in.
fn accept(
    listener: &TcpListener,
    token: [u8; 32],
    wanted: BTreeMap<ChannelKey, usize>,
    timeout: Duration,
) -> Result<BTreeMap<ChannelKey, TcpStream>, RankFailure> {
    let started = Instant::now();
    let mut connected = BTreeMap::new();
    let greeters = Greeters::new();
    while connected.len() < wanted.len() {
        greeters.admit(listener, move |stranger, _| introduced_as(stranger, &token));
        while let Some((key, stream)) = greeters.next() {
            if wanted.contains_key(&key) {
                connected.insert(key, stream);
            }
        }
        if started.elapsed() > timeout {
            let missing = wanted.len() - connected.len();
            return Err(RankFailure::NotConnected { missing, within: timeout });
        }
        thread::sleep(LOOK);
    }
    Ok(connected)
}

fn introduced_as(mut stranger: Stranger, token: &[u8; 32]) -> io::Result<(ChannelKey, TcpStream)> {
    let said: Introduction = stranger.hear()?;
    match said.token == *token {
        true => Ok((said.channel, stranger.known()?)),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// One peer, as this rank's side sees it.
struct FarEnd {
    /// The bell that the rank rings for the peer.
    bell: Doorbell,
    outgoing: Vec<Out>,
    incoming: Vec<(TcpStream, Arc<Mutex<In>>)>,
}

/// A channel to the peer.
struct Out {
    stream: TcpStream,
    from: Receiver,
    /// The rank's own bell.
    own: Doorbell,
    /// The peer has taken the message that is under way.
    taken: Arc<AtomicBool>,
    under_way: bool,
}

/// A channel from the peer.
struct In {
    to: Sender,
    /// The number of the message that lies in the landing place.
    landed: Option<u64>,
}

impl FarEnd {
    fn serve(mut self) {
        let bell = self.bell.clone();
        loop {
            let mut broken = false;
            bell.wait_for(Patience::NONE, || match self.advance() {
                Ok(moved) => moved,
                Err(_) => {
                    broken = true;
                    true
                }
            });
            // The peer is gone: the coordinator ends the run, or this rank's watchdog does.
            if broken {
                return;
            }
        }
    }

    fn advance(&mut self) -> io::Result<bool> {
        let mut any = false;
        for out in &mut self.outgoing {
            any |= out.advance()?;
        }
        for (stream, to) in &mut self.incoming {
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(number) = to.landed
                && to.to.was_taken(number)
            {
                to.landed = None;
                drop(to);
                stream.write_all(&[TAKEN])?;
                any = true;
            }
        }
        Ok(any)
    }
}

impl Out {
    fn advance(&mut self) -> io::Result<bool> {
        if self.under_way {
            if !self.taken.swap(false, Ordering::Acquire) {
                return Ok(false);
            }
            self.under_way = false;
            self.from.take();
            self.own.ring();
        }
        let Some((header, payload)) = self.from.next() else { return Ok(false) };
        let Header { seq, fingerprint, bytes, mark } = header;
        let mut head = [0; HEAD];
        for (place, field) in
            head.as_chunks_mut::<8>().0.iter_mut().zip([seq, fingerprint, bytes, mark])
        {
            *place = field.to_le_bytes();
        }
        let length = bytes as usize;
        let mut whole = vec![0; HEAD + length];
        whole[..HEAD].copy_from_slice(&head);
        match payload {
            Payload::Inline(words) => {
                let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let some = length.min(words.len());
                whole[HEAD..HEAD + some].copy_from_slice(&words[..some]);
            }
            Payload::At(offset) | Payload::Lent(offset) => {
                self.from.segment().load(offset, &mut whole[HEAD..]);
            }
            // Only what was lent by the peer can be delivered, and over a wire nothing is.
            Payload::Delivered => {}
        }
        self.stream.write_all(&whole)?;
        self.under_way = true;
        Ok(true)
    }
}

/// Hears of every message that the peer has taken, until the peer is gone.
fn hear_answers(mut stream: TcpStream, taken: &AtomicBool, bell: &Doorbell) {
    let mut answer = [0];
    while let Ok(1) = stream.read(&mut answer) {
        taken.store(true, Ordering::Release);
        bell.ring();
    }
}

/// Takes messages from the peer and posts them to the rank, until the peer is gone.
fn land(
    mut stream: TcpStream,
    segment: &Segment,
    landing: (usize, usize),
    to: &Mutex<In>,
    own: &Doorbell,
) -> io::Result<()> {
    let mut piece = vec![0; 256 << 10];
    loop {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let (fields, _) = head.as_chunks::<8>();
        let [seq, fingerprint, bytes, mark] = match fields {
            [a, b, c, d] => [a, b, c, d].map(|field| u64::from_le_bytes(*field)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let (start, room) = landing;
        if bytes > room as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut there = 0;
        while there < bytes as usize {
            let next = piece.len().min(bytes as usize - there);
            stream.read_exact(&mut piece[..next])?;
            segment.store(start + there, &piece[..next]);
            there += next;
        }
        let header = Header { seq, fingerprint, bytes, mark };
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        // One message is under way at a time: there is room.
        to.landed = to.to.post(header, Payload::At(start));
        drop(to);
        own.ring();
    }
}
