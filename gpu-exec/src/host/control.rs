//! What the coordinator and a rank say to each other: frames of a little-endian `u32` length and
//! postcard, over the socket that is the rank's standard input.

use super::wiring::RankWiring;
use crate::shm::Patience;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Event;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::SocketAddr;

/// No frame is longer.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// The byte that the shared memory's descriptor travels with: the protocol's version, so that a
/// rank of another build says so instead of misreading its orders.
const VERSION: u8 = 1;

/// From the coordinator to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// What to run; the first order.
    Setup(Box<Setup>),
    /// Hand in the trace and exit.
    Abort,
}

/// What a rank is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) rank: GlobalRank,
    /// The plan's binary form, the same for all ranks.
    pub(super) plan: Vec<u8>,
    pub(super) wiring: RankWiring,
    pub(super) store: SocketAddr,
    pub(super) join_timeout_ns: u64,
    /// Replaces the groups' timeouts.
    pub(super) timeout_ns: Option<u64>,
    pub(super) record_messages: bool,
    pub(super) patience: Patience,
}

/// From a rank to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The next of the rank's events, in time order.
    Events(Vec<Event>),
    /// A call's timeout has passed; its event was reported before.
    TimedOut,
    /// The program has finished and all events were reported.
    Done,
    /// The rank cannot go on.
    Failed {
        /// Why.
        why: String,
    },
}

/// A message as bytes.
pub(super) fn frame(body: &impl Serialize) -> Vec<u8> {
    // postcard fails only on types of unknown length, which these have none of.
    let mut frame = postcard::to_extend(body, vec![0; 4]).unwrap_or_else(|_| vec![0; 4]);
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Waits for the next message; `None` when the other side is gone.
pub(super) fn read_frame<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; checked_length(length)?];
    stream.read_exact(&mut body)?;
    decode(&body).map(Some)
}

/// Takes the first whole message out of what has arrived.
pub(super) fn take_frame<T: DeserializeOwned>(arrived: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = arrived.first_chunk::<4>() else { return Ok(None) };
    let end = 4 + checked_length(*length)?;
    let Some(body) = arrived.get(4..end) else { return Ok(None) };
    let message = decode(body)?;
    arrived.drain(..end);
    Ok(Some(message))
}

fn checked_length(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        let why = format!("a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(length)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("a message that breaks: {error}"))
    })
}

/// Hands the shared memory to a rank: the first thing on its socket.
pub(super) fn send_memory(socket: impl AsFd, memory: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let memory = [memory.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&memory)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(&[VERSION])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes what [`send_memory`] sent.
pub(super) fn receive_memory(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut version = [0];
    let mut bytes = [IoSliceMut::new(&mut version)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match (version, memory) {
        ([VERSION], Some(memory)) => Ok(memory),
        ([0], _) => Err(io::Error::other("the coordinator is gone")),
        ([other], _) => Err(io::Error::other(format!(
            "the coordinator speaks version {other}, this program {VERSION}; start both from the \
             same build"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces() {
        let mut bytes = frame(&Report::Failed { why: "x".into() });
        bytes.extend(frame(&Report::Done));
        let mut arrived = Vec::new();
        let mut got = Vec::new();
        for byte in bytes {
            arrived.push(byte);
            while let Some(report) = take_frame::<Report>(&mut arrived).unwrap() {
                got.push(format!("{report:?}"));
            }
        }
        assert_eq!(got, [r#"Failed { why: "x" }"#, "Done"]);
        assert!(take_frame::<Report>(&mut vec![255; 8]).is_err());
    }
}
