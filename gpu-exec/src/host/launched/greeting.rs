//! The greeting between a rank and rank 0: it establishes the rank's number, that both have the same plan,
//! and the difference of their clocks.

use crate::clock;
use crate::error::RunError;
use crate::host::control::frame;
use crate::host::greeters::Stranger;
use lockstep_core::rank::GlobalRank;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::{IpAddr, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The first message of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) token: Token,
    pub(super) rank: GlobalRank,
    pub(super) world_size: u32,
    pub(super) pid: u32,
    /// XXH3 of the plan's binary form.
    pub(super) plan: u64,
    /// True if the rank can map rank 0's memory.
    pub(super) same_machine: bool,
}

/// Rank 0's answer, and the messages that follow while clocks are compared.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Greeting {
    Welcome,
    Refused {
        why: String,
    },
    /// The time of rank 0's clock, in nanoseconds.
    Clock(u64),
}

/// A rank's message while clocks are compared: a question, or the offset it found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Asking {
    Clock,
    /// Its clock minus rank 0's.
    Offset(i64),
}

/// A rank that has come.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) rank: GlobalRank,
    pub(crate) pid: u32,
    pub(crate) line: UnixStream,
    /// Its clock minus rank 0's, in nanoseconds.
    pub(crate) offset_ns: i64,
    pub(crate) same_machine: bool,
    /// The address it is connected from.
    pub(crate) address: IpAddr,
}

/// The result of a greeting.
#[derive(Debug)]
pub(super) enum Came {
    Guest(Guest),
    /// One of this run's, which cannot take part in it, and why.
    Refused(GlobalRank, String),
}

/// A TCP connection in the type that orders and reports travel on: for reading and writing, one stream socket
/// is like another.
pub(super) fn line_of(stream: TcpStream) -> UnixStream {
    UnixStream::from(OwnedFd::from(stream))
}

/// True if the other side of a connection is still there. It sends nothing until it gets the order to go.
pub(super) fn is_open(line: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut word = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(line, &mut word, flags) {
        Ok((heard, _)) => heard > 0,
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}

/// Orders and reports take as long as they take.
pub(super) fn settle(stranger: Stranger) -> io::Result<TcpStream> {
    let stream = stranger.known()?;
    // A machine that is switched off says nothing: the kernel then asks it.
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10))?;
    rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
    rustix::net::sockopt::set_tcp_keepcnt(&stream, 4)?;
    Ok(stream)
}

/// One connection, from rank 0's side.
pub(super) fn greet(
    mut stranger: Stranger,
    address: IpAddr,
    token: Token,
    plan: u64,
    ranks: Range<u32>,
) -> io::Result<Came> {
    let hello: Hello = stranger.hear()?;
    if hello.token != token {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let refused = if !ranks.contains(&hello.rank.0) {
        Some(format!("there is no other rank {} in a world of {}", hello.rank, ranks.end))
    } else if hello.world_size != ranks.end {
        Some(format!(
            "it was started as one of {} processes, and rank 0 as one of {}; give every rank the same \
             WORLD_SIZE",
            hello.world_size, ranks.end
        ))
    } else if hello.plan != plan {
        Some(
            "its plan is another one than rank 0's; give every rank the same --plan and --fault"
                .to_owned(),
        )
    } else {
        None
    };
    if let Some(why) = refused {
        // It is told as well, if it listens.
        let _ = stranger.stream.write_all(&frame(&Greeting::Refused { why: why.clone() }));
        return Ok(Came::Refused(hello.rank, why));
    }
    stranger.stream.write_all(&frame(&Greeting::Welcome))?;
    let offset_ns = loop {
        match stranger.hear()? {
            Asking::Clock => {
                stranger.stream.write_all(&frame(&Greeting::Clock(clock::now_ns())))?;
            }
            Asking::Offset(offset_ns) => break offset_ns,
        }
    };
    let stream = settle(stranger)?;
    // It is told every second that rank 0 is there: a machine that takes none of it is gone. The
    // other side has no such limit: a rank 0 that is stopped for a while takes nothing either.
    rustix::net::sockopt::set_tcp_user_timeout(&stream, LOST_AFTER_MS)?;
    let Hello { rank, pid, same_machine, .. } = hello;
    let line = line_of(stream);
    Ok(Came::Guest(Guest { rank, pid, line, offset_ns, same_machine, address }))
}

/// Round trips that clocks are compared in.
const PINGS: u32 = 8;

/// Time that a rank's machine may leave data unacknowledged, in milliseconds.
const LOST_AFTER_MS: u32 = 30_000;

/// Introduces this rank and compares the clocks.
///
/// # Errors
/// When rank 0 is out of reach, or refuses.
pub(super) fn introduce(host: &mut Stranger, hello: &Hello) -> Result<i64, RunError> {
    let lost = RunError::system::<io::Error>("reach rank 0");
    host.stream.write_all(&frame(hello)).map_err(&lost)?;
    match host.hear().map_err(&lost)? {
        Greeting::Welcome => {}
        Greeting::Refused { why } => {
            return Err(RunError::DidNotJoin { rank: hello.rank, why });
        }
        Greeting::Clock(_) => return Err(lost(io::ErrorKind::InvalidData.into())),
    }
    // Processes of one machine share the clock: what is measured there is only noise.
    let offset_ns = clock_offset_ns(host).map_err(lost)?;
    Ok(if hello.same_machine { 0 } else { offset_ns })
}

/// The lead of this machine's clock over rank 0's, by the fastest of some questions.
fn clock_offset_ns(host: &mut Stranger) -> io::Result<i64> {
    let mut best = (u64::MAX, 0i64);
    for _ in 0..PINGS {
        let asked = clock::now_ns();
        host.stream.write_all(&frame(&Asking::Clock))?;
        let Greeting::Clock(theirs) = host.hear()? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let took = clock::now_ns().saturating_sub(asked);
        let middle = asked.saturating_add(took / 2);
        best = best.min((took, middle.wrapping_sub(theirs) as i64));
    }
    Ok(best.1)
}

/// The secret of a run, which also marks its memory file.
pub(crate) type Token = [u8; 32];
