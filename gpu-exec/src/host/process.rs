//! A rank as the coordinator sees it: a process, a socket, and its messages.

use super::control::{self, Report};
use super::launched::Guest;
use super::launcher::RankLauncher;
use crate::MemoryGroup;
use lockstep_core::plan::Deadly;
use lockstep_core::rank::GlobalRank;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

/// No dump of a flight recorder is longer.
const MAX_DUMP_BYTES: usize = 1 << 30;

/// The process itself, as far as it is ours.
#[derive(Debug)]
pub(super) enum Body {
    /// Started by us.
    Child {
        child: Child,
        /// Readable once the process has ended.
        pidfd: OwnedFd,
    },
    /// Started by others, perhaps on another machine: only its connection is known.
    Elsewhere { pid: u32, address: IpAddr, same_machine: bool },
}

/// A rank's process. Dropping it kills and reaps it, or hangs up on it if others started it and it has not ended.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) rank: GlobalRank,
    pub(super) body: Body,
    socket: UnixStream,
    /// Bytes that still have to be written; messages to many ranks are shared.
    outbox: VecDeque<Arc<[u8]>>,
    /// The bytes of the first of it that are sent.
    sent: usize,
    /// The bytes of the next report that have arrived.
    inbox: Vec<u8>,
    /// The bytes of the next dump that have arrived.
    dump: Vec<u8>,
    /// False once the rank's side of the socket is closed.
    pub(super) connected: bool,
    /// The port at which it takes connections, if messages go over TCP.
    pub(super) port: Option<u16>,
    /// It has said that it is ready to begin.
    pub(super) ready: bool,
    /// Set once the process is reaped.
    pub(super) ended: Option<ExitStatus>,
    /// Its end was looked at.
    pub(super) end_seen: bool,
    /// It has reported that its program is finished.
    pub(super) done: bool,
    /// A fault of the run has stopped it for ever.
    pub(super) held: bool,
    /// We have killed it.
    pub(super) killed: bool,
    /// The signal by which a fault of the run ends it.
    pub(super) killed_by: Option<Deadly>,
    /// The number of processes that the kernel had killed here for want of memory when it was started.
    pub(super) oom_kills: Option<u64>,
    /// Its own report of why it cannot go on.
    pub(super) failure: Option<String>,
    /// When it said so, on its machine's clock; `None` if it ended without a word.
    pub(super) failed_ns: Option<u64>,
}

impl RankProcess {
    /// Starts the process and hands it the shared memory. Must be called on a thread that lives
    /// as long as the run: ranks ask to be killed when their parent *thread* ends.
    pub(super) fn start(
        launcher: &RankLauncher,
        rank: GlobalRank,
        memory: Option<BorrowedFd<'_>>,
        environment: Vec<(String, String)>,
    ) -> io::Result<RankProcess> {
        // Both ends close on exec; being the standard input is what lets one end through, so that
        // nothing else that this program starts meanwhile can inherit it.
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        control::send_memory(&socket, memory)?;
        // NCCL says there what NCCL_DEBUG asks for; our own output is the findings'.
        let said = match environment.is_empty() {
            true => Stdio::null(),
            false => Stdio::from(io::stderr()),
        };
        let child = Command::new(&launcher.program)
            .args(&launcher.args)
            .envs(environment)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(said)
            // Ctrl-C is for the coordinator, which then ends its ranks in order.
            .process_group(0)
            .spawn()?;
        let mut child = KillOnDrop(Some(child));
        let pid = child.0.as_ref().and_then(|c| Pid::from_raw(c.id() as i32));
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let child = child.0.take().ok_or_else(|| io::Error::other("no process"))?;
        Ok(RankProcess::with(rank, Body::Child { child, pidfd }, socket))
    }

    /// A rank that others started, connected.
    pub(super) fn joined(guest: Guest) -> io::Result<RankProcess> {
        let Guest { rank, pid, line, address, same_machine, .. } = guest;
        line.set_nonblocking(true)?;
        Ok(RankProcess::with(rank, Body::Elsewhere { pid, address, same_machine }, line))
    }

    fn with(rank: GlobalRank, body: Body, socket: UnixStream) -> RankProcess {
        RankProcess {
            rank,
            body,
            socket,
            port: None,
            ready: false,
            outbox: VecDeque::new(),
            sent: 0,
            inbox: Vec::new(),
            dump: Vec::new(),
            connected: true,
            ended: None,
            end_seen: false,
            done: false,
            held: false,
            killed: false,
            killed_by: None,
            oom_kills: MemoryGroup::now().oom_kills,
            failure: None,
            failed_ns: None,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        match &self.body {
            Body::Child { child, .. } => child.id(),
            Body::Elsewhere { pid, .. } => *pid,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Readable once the process has ended, if it is ours.
    pub(super) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.body {
            Body::Child { pidfd, .. } => Some(pidfd.as_fd()),
            Body::Elsewhere { .. } => None,
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Queues a message and sends as much as the socket takes.
    pub(super) fn send(&mut self, frame: impl Into<Arc<[u8]>>) {
        self.outbox.push_back(frame.into());
        self.flush();
    }

    /// Sends as much as the socket takes. A rank that is gone is noticed by its end, not here.
    pub(super) fn flush(&mut self) {
        while let Some(frame) = self.outbox.front() {
            match self.socket.write(&frame[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.outbox.clear();
                    self.sent = 0;
                    break;
                }
            }
            if self.sent >= frame.len() {
                self.sent = 0;
                self.outbox.pop_front();
            }
        }
    }

    /// Reads the rank's reports and then checks whether it has ended: in this order, so that everything that
    /// a process wrote before it ended is read.
    pub(super) fn hear(&mut self) -> Vec<Report> {
        self.flush();
        self.reap();
        let reports = self.receive();
        // The end of one that others started is its line's. A child that ends by now has left
        // words behind that are read the next time.
        if self.is_elsewhere() {
            self.reap();
        }
        reports
    }

    /// Reads the bytes that have arrived and returns the reports that they complete.
    fn receive(&mut self) -> Vec<Report> {
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
                Ok(Some(Report::DumpPart(part))) => {
                    if self.dump.len().saturating_add(part.len()) <= MAX_DUMP_BYTES {
                        self.dump.extend_from_slice(&part);
                    } else {
                        self.connected = false;
                        let why = format!(
                            "its flight recorder's dump is over the limit of {MAX_DUMP_BYTES} \
                             bytes; record fewer calls"
                        );
                        self.failure.get_or_insert(why);
                        break;
                    }
                }
                Ok(Some(Report::Dumped { rank, asked, rest })) => {
                    let mut whole = std::mem::take(&mut self.dump);
                    whole.extend(rest);
                    reports.push(Report::Dumped { rank, asked, rest: whole });
                }
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

    /// Reaps the process if it has ended; one that others started has when its line has.
    fn reap(&mut self) {
        if self.ended.is_none() {
            self.ended = match &mut self.body {
                // An error can only mean that it was reaped by somebody else: ended in any case.
                Body::Child { child, .. } => {
                    child.try_wait().unwrap_or(Some(ExitStatus::default()))
                }
                Body::Elsewhere { .. } => (!self.connected).then(ExitStatus::default),
            };
        }
    }

    /// SIGKILL: also ends a stopped process. A rank that others started is hung up on, and ends by itself,
    /// unless it is stopped.
    pub(super) fn kill(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.killed = true;
        match &mut self.body {
            Body::Child { child, .. } => {
                let _ = child.kill();
            }
            Body::Elsewhere { .. } => {
                let _ = self.socket.shutdown(Shutdown::Both);
                self.signal(Signal::CONT);
                self.connected = false;
                self.ended = Some(ExitStatus::default());
            }
        }
    }

    /// Leaves the end of a rank that others started to itself: it has the order.
    pub(super) fn let_go(&mut self) {
        if self.is_elsewhere() {
            self.ended.get_or_insert_default();
        }
    }

    /// Ends the rank as a fault of the run: by SIGKILL on this machine; elsewhere it gets the order to end,
    /// and is hung up on.
    pub(super) fn kill_by_fault(&mut self) {
        self.killed_by = Some(Deadly::Kill);
        match self.pid_here() {
            Some(_) => self.signal(Signal::KILL),
            None => {
                self.send(control::frame(&control::Order::Die));
                self.kill();
            }
        }
    }

    /// SIGKILL, SIGSTOP or SIGCONT, to a process on this machine. Only a process that was not reaped, or
    /// whose connection is open, certainly still has its number.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.ended.is_none()
            && let Some(pid) = self.pid_here().and_then(|pid| Pid::from_raw(pid as i32))
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Its number, if it runs on this machine.
    pub(super) fn pid_here(&self) -> Option<u32> {
        match &self.body {
            Body::Child { child, .. } => Some(child.id()),
            Body::Elsewhere { pid, same_machine, .. } => same_machine.then_some(*pid),
        }
    }

    /// Its machine's address, unless that is ours.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        match &self.body {
            Body::Elsewhere { address, .. } if !address.is_loopback() => Some(*address),
            _ => None,
        }
    }

    /// True if another process started the rank.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.body, Body::Elsewhere { .. })
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        self.kill();
        if let (None, Body::Child { child, .. }) = (self.ended, &mut self.body) {
            let _ = child.wait();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::control::{Asked, dump_reports, frame};
    use std::net::Ipv4Addr;

    fn rank() -> (RankProcess, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let guest = Guest {
            rank: GlobalRank(1),
            pid: 1,
            line: ours,
            offset_ns: 0,
            same_machine: true,
            address: Ipv4Addr::LOCALHOST.into(),
        };
        (RankProcess::joined(guest).unwrap(), theirs)
    }

    fn received(process: &mut RankProcess, until: impl Fn(&[Report]) -> bool) -> Vec<Report> {
        let mut reports = Vec::new();
        while !until(&reports) && process.connected {
            reports.extend(process.receive());
        }
        reports
    }

    /// Longer than any frame may be.
    #[test]
    fn a_dump_of_any_length_arrives_whole() {
        for length in [0, 1, 16 << 20, (16 << 20) + 1, 70 << 20] {
            let (mut process, mut line) = rank();
            let pickle: Vec<u8> = (0..length).map(|at: usize| (at % 251) as u8).collect();
            let sent = pickle.clone();
            let writing = std::thread::spawn(move || {
                for report in dump_reports(GlobalRank(5), Asked::AtTheEnd, &sent) {
                    line.write_all(&frame(&report)).unwrap();
                }
                line
            });
            let reports = received(&mut process, |reports| !reports.is_empty());
            assert_eq!(process.failure, None);
            let [Report::Dumped { rank, asked: Asked::AtTheEnd, rest }] = &reports[..] else {
                panic!("{} reports", reports.len())
            };
            assert!(*rank == GlobalRank(5) && *rest == pickle, "{length}");
            writing.join().unwrap();
        }
    }

    #[test]
    fn what_many_are_told_is_sent_in_order_and_whole() {
        let (mut process, mut line) = rank();
        let shared: Arc<[u8]> = (0..3_000_000u32).map(|at| (at % 241) as u8).collect();
        let reading = std::thread::spawn(move || {
            let mut told = vec![0; 2 * 3_000_000 + 3];
            line.read_exact(&mut told).unwrap();
            told
        });
        process.send(shared.clone());
        process.send(vec![1, 2, 3]);
        process.send(shared.clone());
        while process.has_unsent() {
            process.flush();
        }
        assert_eq!(reading.join().unwrap(), [&shared[..], &[1, 2, 3], &shared[..]].concat());
    }

    /// It ends between two messages, the first of which it has read in part.
    #[test]
    fn who_is_gone_is_told_nothing_more() {
        let (mut process, line) = rank();
        process.send(vec![0; 3_000_000]);
        assert!(process.has_unsent());
        drop(line);
        process.send(vec![1, 2, 3]);
        process.send(vec![4]);
        assert!(!process.has_unsent());
    }
}
