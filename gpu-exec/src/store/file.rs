//! `FileStore`: a file that only grows, under a lock (`FileStore.cpp`).
//!
//! The file is a list of records, each a key and a value with their lengths as `u32` before them.
//! A user's key has a `/` before it; `-` before that says that it was deleted. Two keys are the
//! store's own: `refcount/`, how many have it open, and `cleanup/`, how many have closed it. Who
//! waits looks again every 10 ms, since shared file systems tell nobody of changes.
//!
//! A writer that is killed can leave the beginning of a record at the end. Whoever holds the lock
//! then knows that nobody is writing it any more: readers leave it out, and the next writer cuts it
//! off. Where not even the first record is whole the file may be anybody's, and is left as it is.
//!
//! A file that was removed and made anew is another store: who has the old one open is told, and opens
//! it again.

use super::{DEFAULT_TIMEOUT, Store, StoreError, timed_out};
use lockstep_torch::c10d::DistError;
use lockstep_torch::c10d::store::{Answer, Store as Table, StoreKind};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval at which a file is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

const REFERENCES: &str = "refcount/";
const CLEANED_UP: &str = "cleanup/";

/// A store in a file. Dropping it counts down; the last of `num_workers` removes the file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    num_workers: Option<u32>,
    timeout: Duration,
    /// The table that the file gives up to `position`.
    table: Table,
    /// The store's own keys.
    own: BTreeMap<String, Vec<u8>>,
    /// The users' keys.
    keys: BTreeSet<String>,
    position: u64,
    /// Device and inode of the file that was read so far.
    read: Option<(u64, u64)>,
}

/// The file, locked for one operation.
struct Locked {
    file: File,
}

impl FileStore {
    /// Opens the store in the file at `path`, which is made if it is missing. With `num_workers`, the file is
    /// removed once so many have dropped the store and none has it open.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open(
        path: impl Into<PathBuf>,
        num_workers: Option<u32>,
    ) -> Result<FileStore, StoreError> {
        let mut store = FileStore {
            path: path.into(),
            num_workers,
            timeout: DEFAULT_TIMEOUT,
            table: Table::new(StoreKind::File),
            own: BTreeMap::new(),
            keys: BTreeSet::new(),
            position: 0,
            read: None,
        };
        store.count(REFERENCES, 1)?;
        Ok(store)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn broken(&self) -> impl Fn(io::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |cause| StoreError::File { path: path.clone(), cause }
    }

    /// Opens and locks the file, and reads its new records.
    fn locked(&mut self, change: bool) -> Result<Locked, StoreError> {
        let broken = self.broken();
        let make = self.read.is_none();
        let mut locked = Locked::open(&self.path, change, make, self.timeout).map_err(&broken)?;
        let whole = self.refresh(&mut locked.file).map_err(&broken)?;
        if change && !whole {
            locked.file.set_len(self.position).map_err(broken)?;
        }
        Ok(locked)
    }

    /// Reads the new records. False if they are followed by bytes that are no whole record.
    fn refresh(&mut self, file: &mut File) -> io::Result<bool> {
        let status = file.metadata()?;
        let (size, of) = (status.len(), (status.dev(), status.ino()));
        if size < self.position || *self.read.get_or_insert(of) != of {
            return Err(another());
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut records = file.take(size - self.position);
        while records.limit() > 0 {
            let record = read_part(&mut records)
                .and_then(|key| read_part(&mut records).map(|value| (key, value)));
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) if self.position > 0 && is_torn(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            self.position = size - records.limit();
            let key = String::from_utf8(key)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a key is no UTF-8"))?;
            // The table of a file store refuses nothing here.
            if let Some(key) = key.strip_prefix('/') {
                self.table.set(key, &value).map_err(io::Error::other)?;
                self.keys.insert(key.to_owned());
            } else if let Some(key) = key.strip_prefix("-/") {
                self.table.delete_key(key).map_err(io::Error::other)?;
                self.keys.remove(key);
            } else {
                self.own.insert(key, value);
            }
        }
        Ok(true)
    }

    /// Changes the table under the lock and appends the key's new value to the file, if it has changed.
    fn change<T>(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Table) -> Result<T, DistError>,
    ) -> Result<T, StoreError> {
        let mut locked = self.locked(true)?;
        let before = self.table.get(key)?;
        let answer = change(&mut self.table)?;
        let after = self.table.get(key)?;
        if after != before
            && let Answer::Ready(value) = after
        {
            locked.append(&format!("/{key}"), &value).map_err(self.broken())?;
        }
        Ok(answer)
    }

    /// Adds to one of the store's own numbers.
    fn count(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        let mut locked = self.locked(true)?;
        let before = self.own.get(key).and_then(|value| std::str::from_utf8(value).ok());
        let sum = before.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0) + by;
        locked.append(key, sum.to_string().as_bytes()).map_err(self.broken())?;
        Ok(sum)
    }

    /// Removes the file if the key still holds that value, and all keys begin with `part`: whoever else has it
    /// open is done with it. Unlike the count of those who have it open, this is also right where one of them
    /// was killed.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(crate) fn remove_while(
        &mut self,
        key: &str,
        value: &[u8],
        part: &str,
    ) -> Result<bool, StoreError> {
        if !self.path.exists() {
            return Ok(false);
        }
        let _locked = self.locked(true)?;
        let holds = matches!(self.table.get(key)?, Answer::Ready(held) if held == value);
        // One without a key was made by opening it, when another had just removed it.
        let holds = holds || self.keys.is_empty();
        if !holds || !self.keys.iter().all(|key| key.starts_with(part)) {
            return Ok(false);
        }
        std::fs::remove_file(&self.path).map_err(self.broken())?;
        Ok(true)
    }

    /// Looks at the file until the answer is there; `None` when it was not in time.
    fn ask<T>(
        &mut self,
        timeout: Duration,
        ask: impl Fn(&Table) -> Result<Answer<T>, DistError>,
    ) -> Result<Option<T>, StoreError> {
        let started = Instant::now();
        loop {
            drop(self.locked(false)?);
            if let Answer::Ready(answer) = ask(&self.table)? {
                return Ok(Some(answer));
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(LOOK_AGAIN));
        }
    }
}

fn another() -> io::Error {
    let why = "it is not the file any more that was opened: somebody has removed or emptied it";
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, why)
}

impl Locked {
    /// A process that has had the file open before does not `make` another one in its place, because nothing
    /// would remove it.
    fn open(path: &Path, change: bool, make: bool, timeout: Duration) -> io::Result<Locked> {
        let started = Instant::now();
        loop {
            let locked = Locked::found(path, (change, make), started, timeout)?;
            // It may have been removed while its lock was waited for: what would be written then, nobody reads.
            if !change || locked.file.metadata()?.nlink() > 0 || started.elapsed() >= timeout {
                return Ok(locked);
            }
        }
    }

    /// The file that is there at this moment, locked.
    fn found(
        path: &Path,
        (change, make): (bool, bool),
        started: Instant,
        timeout: Duration,
    ) -> io::Result<Locked> {
        let file = loop {
            match OpenOptions::new().read(true).write(change).create(change && make).open(path) {
                Ok(file) => break file,
                Err(error) if change && !make && error.kind() == io::ErrorKind::NotFound => {
                    return Err(another());
                }
                // Another process may be about to make it. (Where it would be made here, its folder
                // is missing, which c10d waits for, too.)
                Err(error) if !change && error.kind() == io::ErrorKind::NotFound => {
                    if started.elapsed() >= timeout {
                        return Err(error);
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(error) => return Err(error),
            }
        };
        let operation = if change {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        // Others hold the lock for as long as an operation takes: soon looked at again, but not for
        // ever, since one of them may have been stopped meanwhile.
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Locked { file }),
                Err(rustix::io::Errno::WOULDBLOCK) if started.elapsed() < timeout => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let why = format!("another process has held its lock for {timeout:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a record behind the last, in one piece.
    fn append(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(key.len() + value.len() + 8);
        for part in [key.as_bytes(), value] {
            let length = u32::try_from(part.len())
                .map_err(|_| io::Error::other("more than 4 GiB at once"))?;
            record.extend(length.to_ne_bytes());
            record.extend(part);
        }
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(&record)
    }
}

/// True if the file ends within a record.
fn is_torn(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// A length and so many bytes, no more than there are.
fn read_part(records: &mut io::Take<&mut File>) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    records.read_exact(&mut length)?;
    let length = u64::from(u32::from_ne_bytes(length));
    if length > records.limit() {
        let why = format!("a record of {length} bytes with {} left", records.limit());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    let mut part = vec![0; length as usize];
    records.read_exact(&mut part)?;
    Ok(part)
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // Whoever removed the file has cleaned up already.
        if !self.path.exists() {
            return;
        }
        let Ok(finished) = self.count(CLEANED_UP, 1) else { return };
        let Ok(open) = self.count(REFERENCES, -1) else { return };
        if self.num_workers.is_some_and(|workers| finished >= i64::from(workers)) && open <= 0 {
            // A file that cannot be removed is left, as c10d leaves it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Store for FileStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.change(key, |table| table.set(key, value))
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        let timeout = self.timeout;
        match self.ask(timeout, |table| table.get(key))? {
            Some(value) => Ok(value),
            None => {
                let timeout_ms = super::milliseconds(timeout);
                Err(self.table.timed_out_getting(&[key], key, timeout_ms).into())
            }
        }
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        self.change(key, |table| table.add(key, by))
    }

    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.change(key, |table| table.append(key, value))
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        drop(self.locked(false)?);
        Ok(self.table.check(keys)?)
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.change(key, |table| table.compare_set(key, expected, desired))
    }

    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError> {
        let timeout = timeout.unwrap_or(self.timeout);
        match self.ask(timeout, |table| table.wait(keys))? {
            Some(()) => Ok(()),
            None => Err(timed_out(StoreKind::File, keys, timeout)),
        }
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        let mut locked = self.locked(true)?;
        let deleted = self.table.delete_key(key)?;
        locked.append(&format!("-/{key}"), b"").map_err(self.broken())?;
        Ok(deleted)
    }

    fn num_keys(&mut self) -> Result<u64, StoreError> {
        drop(self.locked(false)?);
        // The table counts one key of the store's own, the references.
        let closed = u64::from(self.own.contains_key(CLEANED_UP));
        Ok(self.table.num_keys()? + closed)
    }

    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError> {
        entries.iter().try_for_each(|(key, value)| self.set(key, value))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}
