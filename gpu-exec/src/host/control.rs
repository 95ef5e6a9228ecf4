//! The messages between the coordinator and a rank: frames of a little-endian `u32` length and
//! postcard, over the socket that is the rank's standard input.

use super::wiring::{ChannelKey, RankWiring};
use crate::nccl::options::DeviceSetup;
use crate::shm::Patience;
use lockstep_core::plan::SignalKind;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Event;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// No frame is longer; so neither is a plan that processes run.
pub(super) const MAX_FRAME_BYTES: usize = 64 << 20;

/// The most of a flight recorder's dump that one report holds.
const DUMP_PART_BYTES: usize = 16 << 20;

/// A rank's first byte, which the shared memory's descriptor travels with: the protocol's version, so that a
/// rank of another build says so instead of misreading its orders.
const VERSION: u8 = 5;

/// The byte that marks the keeper of the shared memory's name, in place of a rank's.
pub(super) const KEEPER: u8 = 255;

/// The store's key that a rank sets when it has joined.
pub(super) fn joined_key(rank: GlobalRank) -> String {
    format!("joined/{rank}")
}

/// The store's key under which ranks find time 0 of the run on the shared clock.
pub(super) const START_KEY: &str = "start_ns";

/// From the coordinator to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// The setup of the rank's run; the first order. Behind it the plan's binary form follows, as
    /// [`bytes_frame`] makes it: the same bytes for all ranks.
    Setup(Box<Setup>),
    /// Hand in the trace and exit.
    Abort,
    /// Hand in the flight recorder's entries.
    Dump,
    /// Hold before the next operation; timeouts do not pass meanwhile.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Begin: everybody has joined. For ranks that join by this line instead of a store.
    Begin {
        /// Time 0 of the run, on the rank's own clock.
        start_ns: u64,
    },
    /// The addresses at which every rank takes connections, in rank order.
    Peers(Vec<PeerAddress>),
    /// Everybody is done: exit.
    Leave,
    /// Go on after having been stopped by a signal, which is over.
    GoOn,
    /// Nothing: the coordinator is there, and has a processor.
    Alive,
    /// End at once and hand in nothing, as a kill would: for ranks that no signal reaches.
    Die,
}

/// The setup of one rank's run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) rank: GlobalRank,
    pub(super) wiring: RankWiring,
    /// The path of the shared memory, if it was not handed over.
    pub(super) memory: Option<PathBuf>,
    pub(crate) store: SocketAddr,
    pub(crate) join_timeout_ns: u64,
    /// Time that the rank may take to exit once all are done or the run is ended, in nanoseconds.
    pub(crate) grace_ns: u64,
    /// Replaces the groups' timeouts.
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) record_messages: bool,
    pub(super) patience: Patience,
    /// If messages go over TCP.
    pub(super) tcp: Option<TcpSetup>,
    /// For a rank that others started: it joins by this line, and leaves on an order.
    pub(super) launched: bool,
    /// For ranks on devices: which libraries, and how the plan is carried out there.
    pub(crate) device: Option<DeviceSetup>,
    /// Calls that the flight recorder holds.
    pub(crate) recorded_calls: u32,
    /// True if an abort asks for a dump too.
    pub(crate) dump_at_end: bool,
    /// Interval between the coordinator's signs of life, in nanoseconds, if the time in which it is stopped
    /// is to count for no timeout. For ranks that others started it counts: one of them is stopped with it.
    pub(crate) word_every_ns: Option<u64>,
}

/// From a rank to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The device that the rank computes on, in words; before it joins, and only by ranks on devices.
    Device(String),
    /// The next of the rank's events, in time order.
    Events(Vec<Event>),
    /// The port at which the rank takes connections.
    Listening {
        /// The port.
        port: u16,
    },
    /// The rank is ready to begin. For ranks that join by this line.
    Joined,
    /// A call's timeout has passed; its event was reported before.
    TimedOut,
    /// The next part of a dump.
    DumpPart(Vec<u8>),
    /// The last part of a flight recorder's entries, as a pickle. The rank is named, since several logical
    /// ones may share a process.
    Dumped {
        /// The rank whose dump it is.
        rank: GlobalRank,
        /// The reason that it comes.
        asked: Asked,
        /// The pickle from where the parts before have ended.
        rest: Vec<u8>,
    },
    /// The rank has come to a fault of its own, and everything before it is reported.
    AtSignal(SignalKind),
    /// The program has finished and all events were reported.
    Done,
    /// The rank cannot go on.
    Failed {
        /// The reason, in words.
        why: String,
        /// When it found that out, on its machine's clock.
        time_ns: u64,
    },
}

/// The reason that a dump comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// Somebody has asked for it, or the run is ended.
    Now,
    /// The rank's program has finished: of use if the others go on to hang.
    AtTheEnd,
}

/// A dump as reports, however long it is.
pub(crate) fn dump_reports(
    rank: GlobalRank,
    asked: Asked,
    pickle: &[u8],
) -> impl Iterator<Item = Report> {
    let last = pickle.len().saturating_sub(1) / DUMP_PART_BYTES * DUMP_PART_BYTES;
    let (parts, rest) = pickle.split_at(last);
    let parts = parts.chunks(DUMP_PART_BYTES).map(|part| Report::DumpPart(part.to_vec()));
    parts.chain([Report::Dumped { rank, asked, rest: rest.to_vec() }])
}

/// Bytes as they are, behind their length.
pub(super) fn bytes_frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

/// A message as bytes.
pub(crate) fn frame(body: &impl Serialize) -> Vec<u8> {
    // postcard fails only on types of unknown length, which these have none of.
    let mut frame = postcard::to_extend(body, vec![0; 4]).unwrap_or_else(|_| vec![0; 4]);
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Waits for the next message; `None` when the other side is gone.
pub(super) fn read_frame<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    read_short_frame(stream, MAX_FRAME_BYTES)
}

/// As above for a possible stranger: a longer message is refused.
pub(super) fn read_short_frame<T: DeserializeOwned>(
    stream: &mut impl Read,
    limit: usize,
) -> io::Result<Option<T>> {
    read_bytes(stream, limit)?.map(|body| decode(&body)).transpose()
}

/// Waits for the body of the next frame; `None` when the other side is gone.
pub(super) fn read_bytes(stream: &mut impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; checked_length(length, limit)?];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Takes the first whole message out of the bytes that have arrived.
pub(super) fn take_frame<T: DeserializeOwned>(arrived: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = arrived.first_chunk::<4>() else { return Ok(None) };
    let end = 4 + checked_length(*length, MAX_FRAME_BYTES)?;
    let Some(body) = arrived.get(4..end) else { return Ok(None) };
    let message = decode(body)?;
    arrived.drain(..end);
    Ok(Some(message))
}

fn checked_length(length: [u8; 4], limit: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        let why = format!("a frame of {length} bytes is over the limit of {limit}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(length)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("a message that breaks: {error}"))
    })
}

/// The first thing on a rank's socket, with the shared memory unless the rank opens it by name.
pub(super) fn send_memory(socket: impl AsFd, memory: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !memory.as_slice().is_empty()
        && !control.push(SendAncillaryMessage::ScmRights(memory.as_slice()))
    {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(&[VERSION])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The first message to a process that was started as a rank.
#[derive(Debug)]
pub(super) enum Greeting {
    /// The process is a rank, with the shared memory unless it opens that by name.
    Rank(Option<OwnedFd>),
    /// It keeps the shared memory's name.
    Keeper,
}

/// Receives the greeting that [`send_memory`] sent.
pub(super) fn receive_greeting(socket: impl AsFd) -> io::Result<Greeting> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut version = [0];
    let mut bytes = [IoSliceMut::new(&mut version)];
    let received = recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match version {
        _ if received.bytes == 0 => Err(io::Error::other("the coordinator is gone")),
        [VERSION] => Ok(Greeting::Rank(memory)),
        [KEEPER] => Ok(Greeting::Keeper),
        [other] => Err(io::Error::other(format!(
            "the coordinator speaks version {other}, this program {VERSION}; start both from the \
             same build"
        ))),
    }
}

/// The address and token that a rank listens with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TcpSetup {
    /// The token that only connections of the run know.
    pub(crate) token: [u8; 32],
    /// True if all ranks are on this machine: they then reach each other under 127.0.0.1, whatever rank 0's
    /// host name is.
    pub(crate) local: bool,
    /// The largest message of each channel that the rank reads, in bytes.
    pub(crate) landings: Vec<(ChannelKey, u64)>,
}

/// The address at which a rank takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerAddress {
    /// `None` for a rank on rank 0's machine, however that is reached.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces() {
        let mut bytes = frame(&Report::Failed { why: "x".into(), time_ns: 1 });
        bytes.extend(frame(&Report::Done));
        let mut arrived = Vec::new();
        let mut got = Vec::new();
        for byte in bytes {
            arrived.push(byte);
            while let Some(report) = take_frame::<Report>(&mut arrived).unwrap() {
                got.push(format!("{report:?}"));
            }
        }
        assert_eq!(got, [r#"Failed { why: "x", time_ns: 1 }"#, "Done"]);
        assert!(take_frame::<Report>(&mut vec![255; 8]).is_err());
    }
}
