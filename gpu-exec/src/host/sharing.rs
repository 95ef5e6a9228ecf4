//! The ways for ranks to get hold of the run's shared memory: torch.multiprocessing's two sharing
//! strategies (`torch/multiprocessing/reductions.py`, `libshm`).
//!
//! A descriptor that travels over each rank's socket has no name, so nothing can be left behind.
//! A named file can be opened by whoever knows the name, and stays behind if its maker is killed:
//! therefore a keeper, as PyTorch's `torch_shm_manager`, a process of its own that hears when the
//! coordinator is gone and removes the name. It knows the name before there is such a file. Once
//! all ranks have joined, nobody needs the name any more, and it is removed. If the keeper is killed
//! with all others, the next run finds a file that no coordinator holds a lock on, and removes it: a
//! lock is seen from every container that sees the file, and a process's number is not.

use super::control::{self, KEEPER};
use super::launcher::RankLauncher;
use crate::options::SharingStrategy;
use crate::shm::Segment;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The folder of POSIX shared memory on Linux.
const FOLDER: &str = "/dev/shm";

/// The prefix of the names; the coordinator's process and a random number follow.
const NAME: &str = "lockstep-";

/// A file without a lock may be that of a coordinator which has just made it.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);

/// The shared memory of a run, from the coordinator's side. Dropping it removes its name.
#[derive(Debug)]
pub(super) struct SharedMemory {
    descriptor: OwnedFd,
    named: Option<Named>,
}

/// A name in the file system, and the process that removes it if this one cannot.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    keeper: Child,
    /// The keeper notices its end.
    _line: UnixStream,
}

impl SharedMemory {
    /// Memory of that size, shared in that way.
    ///
    /// # Errors
    /// When the system refuses, or the keeper does not start within `patience`.
    pub(super) fn create(
        how: SharingStrategy,
        bytes: usize,
        launcher: &RankLauncher,
        patience: Duration,
    ) -> io::Result<SharedMemory> {
        sweep(Path::new(FOLDER));
        if how == SharingStrategy::FileDescriptor {
            return Ok(SharedMemory { descriptor: Segment::create(bytes)?, named: None });
        }
        let random = RandomState::new().hash_one(std::process::id());
        let name = format!("{NAME}{}-{random:016x}", std::process::id());
        let named = Named::kept(Path::new(FOLDER).join(name), launcher, patience)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&named.path, flags, Mode::RUSR | Mode::WUSR)?;
        // Ends with this process, however that ends: nobody else has this descriptor.
        rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive)?;
        // All of it now: a file system that is too small says so here, and not by a signal later.
        let all = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&descriptor, all, 0, bytes as u64).map_err(|error| {
            let error = io::Error::from(error);
            let why = format!(
                "{bytes} bytes do not fit into {FOLDER} ({error}); make it larger, or share by \
                 file descriptor, which it does not limit"
            );
            io::Error::new(error.kind(), why)
        })?;
        Ok(SharedMemory { descriptor, named: Some(named) })
    }

    /// The descriptor that a rank is handed, unless it opens the memory by name.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.named.is_none().then(|| self.descriptor.as_fd())
    }

    /// The path that a rank opens.
    pub(super) fn name(&self) -> Option<&Path> {
        self.named.as_ref().map(|named| &*named.path)
    }
}

/// Removes names that runs have left behind which were killed as a whole. Names that cannot be removed are
/// another user's.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_a_runs) && is_left_behind(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// `lockstep-4711-0123456789abcdef`.
fn is_a_runs(name: &str) -> bool {
    let parts = name.strip_prefix(NAME).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(pid, random)| {
        let is_hexadecimal = random.bytes().all(|digit| digit.is_ascii_hexdigit());
        pid.parse::<u32>().is_ok() && random.len() == 16 && is_hexadecimal
    })
}

/// True if no coordinator has a lock on the file, though it is old enough to have one.
fn is_left_behind(path: &Path) -> bool {
    let Ok(descriptor) = open(path) else { return false };
    let file = std::fs::File::from(descriptor);
    let Ok(metadata) = file.metadata() else { return false };
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    metadata.is_file()
        && age.is_some_and(|age| age >= LOCKED_WITHIN)
        && rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Opens a memory that a coordinator named.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

impl Named {
    /// A name that a keeper knows, and no file yet.
    fn kept(path: PathBuf, launcher: &RankLauncher, patience: Duration) -> io::Result<Named> {
        let (mut line, theirs) = UnixStream::pair()?;
        let keeper = Command::new(&launcher.program)
            .args(&launcher.args)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Whatever ends the coordinator's group must not end the keeper.
            .process_group(0)
            .spawn()?;
        let mut named = Named { path, keeper, _line: line.try_clone()? };
        line.set_read_timeout(Some(patience))?;
        line.write_all(&[KEEPER])?;
        line.write_all(&control::frame(&named.path))?;
        let mut ready = [0];
        line.read_exact(&mut ready).map_err(|error| {
            // Dropping reaps it; how it ended says more than that it does not answer.
            let ended = named.keeper.try_wait().ok().flatten();
            let how = ended.map_or_else(|| error.to_string(), |status| status.to_string());
            io::Error::new(error.kind(), format!("the keeper of its name did not start: {how}"))
        })?;
        Ok(named)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // There may be no file yet, or no more.
        let _ = std::fs::remove_file(&self.path);
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// The whole life of the keeper, once it got its mark on its connection.
pub(super) fn keep(line: &UnixStream) -> io::Result<()> {
    // It outlives its parent; that is what it is for.
    rustix::process::set_parent_process_death_signal(None)?;
    let mut line = line;
    let Some(path) = control::read_frame::<PathBuf>(&mut line)? else { return Ok(()) };
    line.write_all(&[KEEPER])?;
    // Nothing is ever said on it again: this returns when the other end is gone.
    while line.read(&mut [0])? > 0 {}
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn what_nobody_holds_any_more_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, age_s: u64| {
            let file = File::create_new(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
            file
        };
        let left = "lockstep-4711-0123456789abcdef";
        let held = "lockstep-4711-0000000000000001";
        let (new, other) = ("lockstep-4711-0000000000000002", "lockstep-notes-0123456789abcdef");
        let held_by =
            [(left, 60), (held, 60), (new, 0), (other, 60)].map(|(name, age)| make(name, age));
        rustix::fs::flock(&held_by[1], FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(folder.path());
        let there = |name: &str| folder.path().join(name).exists();
        assert_eq!([left, held, new, other].map(there), [false, true, true, true]);
        drop(held_by);
        sweep(folder.path());
        assert_eq!([held, new].map(there), [false, true]);
    }
}
