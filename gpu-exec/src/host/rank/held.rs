//! The setup of a rank, and the memory and sockets that it holds.

use super::alone::Alone;
use super::clerk::Clerk;
use super::failure::{RankFailure, cannot};
use super::gate::Gate;
use crate::host::control::{self, PeerAddress, Report};
use crate::host::launched::stay;
use rustix::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The parts that the coordinator's orders reach, besides the end: the gate that holds the program,
/// and its clerk once there is one; a process of several logical ranks has a clerk for each.
#[derive(Default)]
pub(super) struct Held {
    pub(super) gate: Arc<Gate>,
    pub(super) clerks: OnceLock<Vec<Arc<Clerk>>>,
    /// Others started this rank: an early end is a failure of its process.
    pub(super) launched: bool,
    /// Called instead of ending the process, if another part has to end it.
    pub(super) exit: Option<Box<dyn Fn() + Send + Sync>>,
    /// The rank's end after losing rank 0, if it ends by itself then.
    pub(super) alone: Option<Arc<Alone>>,
    /// Orders that have come, with those that only say that rank 0 is there.
    pub(super) words: AtomicU64,
    pub(super) told: Mutex<Told>,
    pub(super) heard: Condvar,
}

/// The orders that a launched rank waits for.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Time 0 of the run on this rank's clock, once all have joined.
    pub(super) start_ns: Option<u64>,
    /// The addresses at which the other ranks take connections.
    pub(super) peers: Option<Vec<PeerAddress>>,
    pub(super) leave: bool,
    /// The run is over for this rank, which has failed with it and stays for rank 0's sake only.
    pub(super) over: bool,
    /// A dump that was asked for before there was a clerk.
    pub(super) dump: bool,
}

impl Held {
    pub(super) fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        self.heard.notify_all();
    }

    /// The number of orders that have come.
    pub(super) fn words(&self) -> u64 {
        self.words.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).over
    }

    /// From here on orders reach these clerks.
    pub(super) fn serve(&self, clerks: Vec<Arc<Clerk>>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.clerks.set(clerks);
        let dump = std::mem::take(&mut told.dump);
        drop(told);
        self.heard.notify_all();
        if dump {
            self.dump();
        }
    }

    /// Hands in the flight recorders' entries, as soon as there are some.
    pub(super) fn dump(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let clerks = self.clerks.get();
        told.dump = clerks.is_none();
        drop(told);
        clerks.into_iter().flatten().for_each(|clerk| clerk.dump());
    }

    /// Waits until a rank that all wait for no more is on its way: a run can end before a rank that begins late,
    /// with or without a clerk, has made its first call, and its dump would say that it came to none.
    pub(super) fn get_going(&self, at_most: Duration) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = !self.launched || told.start_ns.is_some();
        drop(told);
        if !begins {
            return;
        }
        let until = Instant::now() + at_most / 2;
        let _ = self.wait(at_most / 2, |_| self.clerks.get().map(|_| ()));
        let clerks = self.clerks.get().into_iter().flatten();
        clerks.for_each(|clerk| {
            clerk.wait_for_first_words(until.saturating_duration_since(Instant::now()));
        });
    }

    /// Waits for the value that `ready` returns; `None` if it does not come in time.
    pub(super) fn wait<T>(
        &self,
        timeout: Duration,
        ready: impl Fn(&Told) -> Option<T>,
    ) -> Option<T> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(told, timeout, |told| ready(told).is_none());
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ready(&told)
    }

    /// Says that this rank is ready and waits for the others. Returns time 0 of the run.
    pub(super) fn join(
        &self,
        mut socket: &UnixStream,
        timeout: Duration,
    ) -> Result<u64, RankFailure> {
        std::io::Write::write_all(&mut socket, &control::frame(&Report::Joined))
            .map_err(cannot("cannot join"))?;
        let begun = self.wait(timeout, |told| told.start_ns);
        begun.ok_or(RankFailure::Late { what: "join", within: timeout })
    }

    /// Stays, with nothing more to say, until rank 0's process has ended: its launcher ends that with
    /// this one.
    pub(super) fn stay(&self, line: &UnixStream) {
        self.tell(|told| told.over = true);
        stay(line);
    }

    /// Waits until everybody is done. How long the others may take is rank 0's to say: it ends the
    /// run at its limit, and the line with it.
    pub(super) fn leave(&self) -> Result<(), RankFailure> {
        while self.wait(Duration::from_secs(60), |told| told.leave.then_some(())).is_none() {}
        Ok(())
    }
}

/// Opens a memory file of another process of this machine.
pub(super) fn open_memory(path: &Path) -> std::io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    Ok(OwnedFd::from(file))
}
