//! A rank as the coordinator sees it: a process, a socket, what was said on it.

use super::RankLauncher;
use super::control::{self, Report};
use lockstep_core::rank::GlobalRank;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A rank's process. Dropping it kills and reaps it.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) rank: GlobalRank,
    child: Child,
    /// Readable once the process has ended.
    pidfd: OwnedFd,
    socket: UnixStream,
    /// What still has to be written.
    outbox: Vec<u8>,
    /// What has arrived of the next report.
    inbox: Vec<u8>,
    /// False once the rank's side of the socket is closed.
    pub(super) connected: bool,
    /// Set once the process is reaped.
    pub(super) ended: Option<ExitStatus>,
    /// It has reported that its program is finished.
    pub(super) done: bool,
    /// What it reported about why it cannot go on.
    pub(super) failure: Option<String>,
}

impl RankProcess {
    /// Starts the process and hands it the shared memory. Must be called on a thread that lives
    /// as long as the run: ranks ask to be killed when their parent *thread* ends.
    pub(super) fn start(
        launcher: &RankLauncher,
        rank: GlobalRank,
        memory: impl AsFd,
    ) -> io::Result<RankProcess> {
        // Both ends close on exec; being the standard input is what lets one end through, so that
        // nothing else that this program starts meanwhile can inherit it.
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        control::send_memory(&socket, memory)?;
        let child = Command::new(&launcher.program)
            .args(&launcher.args)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Ctrl-C is for the coordinator, which then ends its ranks in order.
            .process_group(0)
            .spawn()?;
        let mut child = KillOnDrop(Some(child));
        let pid = child.0.as_ref().and_then(|c| Pid::from_raw(c.id() as i32));
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let child = child.0.take().ok_or_else(|| io::Error::other("no process"))?;
        Ok(RankProcess {
            rank,
            child,
            pidfd,
            socket,
            outbox: Vec::new(),
            inbox: Vec::new(),
            connected: true,
            ended: None,
            done: false,
            failure: None,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, frame: &[u8]) {
        self.outbox.extend_from_slice(frame);
        self.flush();
    }

    /// Sends what the socket takes. A rank that is gone is noticed by its end, not here.
    pub(super) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.outbox.len() {
            match self.socket.write(&self.outbox[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => sent = self.outbox.len(),
            }
        }
        self.outbox.drain(..sent);
    }

    /// Reads what has arrived and returns the reports that it completes.
    pub(super) fn receive(&mut self) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut piece = [0; 1 << 16];
        // One rank that never stops talking must not keep the others waiting; what a socket can
        // hold is far less than this, so that an ended rank's last words are all read at once.
        for _ in 0..256 {
            if !self.connected {
                break;
            }
            match self.socket.read(&mut piece) {
                Ok(0) => self.connected = false,
                Ok(bytes) => self.inbox.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.connected = false,
            }
        }
        loop {
            match control::take_frame(&mut self.inbox) {
                Ok(Some(report)) => reports.push(report),
                Ok(None) => break,
                Err(error) => {
                    self.connected = false;
                    self.failure.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        reports
    }

    /// Reaps the process if it has ended.
    pub(super) fn reap(&mut self) {
        if self.ended.is_none() {
            // An error can only mean that it was reaped by somebody else: ended in any case.
            self.ended = self.child.try_wait().unwrap_or(Some(ExitStatus::default()));
        }
    }

    /// SIGKILL: also ends what is stopped.
    pub(super) fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
        }
    }

    /// How it ended, in words.
    pub(super) fn how_it_ended(&self) -> String {
        let status = self.ended.unwrap_or_default();
        let mut how = match (status.signal(), status.code()) {
            (Some(signal), _) => match signal_name(signal) {
                Some(name) => format!("killed by signal {signal} ({name})"),
                None => format!("killed by signal {signal}"),
            },
            (None, Some(0)) => "exited before its program ended".to_owned(),
            (None, code) => format!("exited with status {}", code.unwrap_or(-1)),
        };
        if let Some(failure) = &self.failure {
            how.push_str(": ");
            how.push_str(failure);
        }
        how
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

struct KillOnDrop(Option<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return None,
    })
}
