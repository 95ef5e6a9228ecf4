//! A communicator: the target of its handle, and its way to the [hub] that carries out its calls.

use crate::cuda::bus_id_in_use;
use crate::hub::{self, FromHub, ToHub};
use crate::lock;
use std::collections::BTreeMap;
use std::ffi::{CString, c_uint, c_void};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const INTERNAL_ERROR: c_uint = 3;
pub(crate) const INVALID_ARGUMENT: c_uint = 4;
pub(crate) const INVALID_USAGE: c_uint = 5;
pub(crate) const REMOTE_ERROR: c_uint = 6;
pub(crate) const IN_PROGRESS: c_uint = 7;

/// Operations that a communicator made are numbered from here.
pub(crate) const OWN_OPERATIONS: c_uint = 1000;

/// A communicator has no more of them at once: whoever never destroys one is found.
pub(crate) const MOST_OPERATIONS: usize = 4;

/// The call that an answer of the hub belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Awaited {
    Collective(u64),
    Sent(u32, u64),
    Received(u32, u64),
}

/// A communicator, behind its handle.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) state: AtomicU32,
    pub(crate) aborted: AtomicBool,
    pub(crate) rank: AtomicU32,
    pub(crate) size: AtomicU32,
    pub(crate) stream: Mutex<Option<UnixStream>>,
    pub(crate) answers: Mutex<BTreeMap<Awaited, Vec<u8>>>,
    pub(crate) arrived: Condvar,
    pub(crate) collectives: AtomicU64,
    pub(crate) sends: Mutex<BTreeMap<u32, u64>>,
    pub(crate) receives: Mutex<BTreeMap<u32, u64>>,
    /// Splits under way: where the child has to go.
    pub(crate) splits: Mutex<BTreeMap<u64, Arc<Shared>>>,
    pub(crate) split_calls: AtomicU64,
    pub(crate) operations: Mutex<BTreeMap<c_uint, f64>>,
    pub(crate) operation_calls: AtomicU32,
    /// A thread is inside a call.
    pub(crate) inside: AtomicBool,
    pub(crate) finalized: AtomicBool,
}

pub(crate) struct Comm(pub(crate) Arc<Shared>);

pub(crate) static LAST_ERROR: Mutex<Option<CString>> = Mutex::new(None);

pub(crate) fn failed(code: c_uint, why: &str) -> c_uint {
    *lock(&LAST_ERROR) = CString::new(why).ok();
    code
}

pub(crate) unsafe fn of<'a>(comm: *mut c_void) -> Option<&'a Arc<Shared>> {
    unsafe { comm.cast::<Comm>().as_ref() }.map(|comm| &comm.0)
}

/// A call on a communicator, watched if the environment asks for it.
pub(crate) struct Alone<'a>(Option<&'a Shared>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.inside.store(false, Ordering::Release);
        }
    }
}

/// Leaves a file that says something of this process.
pub(crate) fn leave(folder: &std::ffi::OsStr, name: &str) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{name}-{}-{number}", std::process::id());
    let _ = std::fs::write(std::path::Path::new(folder).join(name), "");
}

impl Shared {
    pub(crate) fn alone(&self) -> Alone<'_> {
        let Some(folder) = std::env::var_os("STAND_IN_WATCHES") else { return Alone(None) };
        if self.inside.swap(true, Ordering::AcqRel) {
            leave(&folder, "two-threads-at-once");
        }
        std::thread::sleep(Duration::from_micros(700));
        if self.aborted.load(Ordering::Acquire) {
            leave(&folder, "after-its-end");
        }
        Alone(Some(self))
    }

    pub(crate) fn fail(&self, code: c_uint, why: &str) {
        self.state.store(failed(code, why), Ordering::Release);
    }

    pub(crate) fn tell(&self, message: &ToHub) {
        if let Some(stream) = &mut *lock(&self.stream) {
            // A hub that is gone is noticed by the thread that reads.
            let _ = hub::write(stream, message);
        }
    }

    /// The answer, or `None` once the communicator is aborted.
    pub(crate) fn wait(&self, what: Awaited) -> Option<Vec<u8>> {
        let mut answers = lock(&self.answers);
        loop {
            if self.aborted.load(Ordering::Acquire) {
                return None;
            }
            if let Some(answer) = answers.remove(&what) {
                return Some(answer);
            }
            let waited = self.arrived.wait_timeout(answers, Duration::from_millis(50));
            answers = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.arrived.notify_all();
        if let Some(stream) = lock(&self.stream).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Joins the others at a hub, on a thread of its own; the state says when that is done.
    pub(crate) fn join(self: &Arc<Shared>, name: String, size: u32, rank: u32) {
        self.state.store(IN_PROGRESS, Ordering::Release);
        self.rank.store(rank, Ordering::Release);
        self.size.store(size, Ordering::Release);
        let shared = self.clone();
        std::thread::spawn(move || {
            if let Err(error) = shared.listen(&name, size, rank)
                && !shared.aborted.load(Ordering::Acquire)
            {
                shared.fail(REMOTE_ERROR, &format!("the process of rank 0 is gone: {error}"));
            }
        });
    }

    pub(crate) fn listen(&self, name: &str, size: u32, rank: u32) -> std::io::Result<()> {
        let mut stream = hub::connect(name)?;
        let environment = |name: &str| std::env::var(name).unwrap_or_default();
        let (bus_id, host) = (bus_id_in_use(), environment("NCCL_HOSTID"));
        let may_share = environment("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
        hub::write(&mut stream, &ToHub::Hello { rank, size, bus_id, host, may_share })?;
        *lock(&self.stream) = Some(stream.try_clone()?);
        loop {
            let (what, data) = match hub::read(&mut stream)? {
                FromHub::Welcome(Ok(())) => {
                    self.state.store(SUCCESS, Ordering::Release);
                    continue;
                }
                FromHub::Welcome(Err(why)) => {
                    self.fail(INVALID_USAGE, &why);
                    continue;
                }
                FromHub::Split { seq, place } => {
                    let child = lock(&self.splits).remove(&seq);
                    if let (Some(child), Some((name, rank, size))) = (child, place) {
                        child.join(name, size, rank);
                    }
                    self.state.store(SUCCESS, Ordering::Release);
                    continue;
                }
                FromHub::Collective { seq, data } => (Awaited::Collective(seq), data),
                FromHub::Sent { to, number } => (Awaited::Sent(to, number), Vec::new()),
                FromHub::Received { from, number, data } => (Awaited::Received(from, number), data),
            };
            lock(&self.answers).insert(what, data);
            self.arrived.notify_all();
        }
    }

    /// True if this is the collective that is to fail.
    pub(crate) fn fails(&self, seq: u64) -> bool {
        let wanted = std::env::var("STAND_IN_FAILS").unwrap_or_default();
        wanted == format!("{}:{seq}", self.rank.load(Ordering::Acquire))
    }
}
