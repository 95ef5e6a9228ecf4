//! c10d's key-value stores, through which the ranks of a job find each other: [`HashStore`] inside one
//! process, [`FileStore`] in a file that processes share, [`TcpStore`] served by one of them, and
//! [`PrefixStore`], a part of another.
//!
//! [`lockstep_torch::c10d::store`] defines the answers of the operations; this module stores, shares, sends
//! and waits. The file's format and the protocol are PyTorch's own (`FileStore.cpp`, `TCPStoreBackend.hpp` of
//! 2.7), so that its processes and ours can share one store.

mod file;
mod hash;
mod prefix;
mod tcp;

pub use file::FileStore;
pub use hash::HashStore;
pub use prefix::PrefixStore;
pub use tcp::{StoreClient, StoreServer, TcpStore, TcpStoreOptions};

use lockstep_torch::c10d::DistError;
use lockstep_torch::c10d::store::{DEFAULT_STORE_TIMEOUT_MS, Store as Table, StoreKind};
use std::path::PathBuf;
use std::time::Duration;

/// Time that `get`, `wait` and `multi_get` wait by default: c10d's five minutes.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(DEFAULT_STORE_TIMEOUT_MS);

/// The reason that an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of c10d, in its words: a wait that timed out, a value that is no number, a
    /// connection that is lost.
    #[error(transparent)]
    C10d(#[from] DistError),
    /// The other side of a TCP store speaks something else, or the system refused.
    #[error("the store's connection broke: {0}")]
    Connection(std::io::Error),
    /// The file of a file store cannot be used.
    #[error("the store's file {path:?} cannot be used: {cause}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// More than the store takes; PyTorch's limits, which its server enforces by hanging up.
    #[error("{what} of {length} is too long for the store; the limit is {limit}")]
    TooLong {
        /// "a key", "a value", "a list of keys" or "a request".
        what: &'static str,
        /// Its length, in bytes or keys.
        length: usize,
        /// The most, in the same unit.
        limit: usize,
    },
}

/// A store as a process sees it; every process of a job sees the same keys.
///
/// Every operation fails when the store is gone; further errors are named with each.
pub trait Store {
    /// Sets the key, replacing its value.
    ///
    /// # Errors
    /// When the store is gone.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// The key's value, once it exists.
    ///
    /// # Errors
    /// When it does not within the store's timeout.
    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError>;

    /// Adds to a number, which begins as 0, and returns the sum. The value is kept as decimal
    /// text.
    ///
    /// # Errors
    /// When the key holds something else.
    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError>;

    /// Appends bytes to the key's value; sets it if it does not exist.
    ///
    /// # Errors
    /// When the store is gone.
    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// True if all keys exist now.
    ///
    /// # Errors
    /// When the store is gone.
    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError>;

    /// Sets the key to `desired` if its value is `expected`, or if it does not exist and `expected` is empty.
    /// Returns the value afterwards; `expected` if it still does not exist.
    ///
    /// # Errors
    /// When the store is gone.
    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError>;

    /// Returns once all keys exist, within `timeout` or else the store's.
    ///
    /// # Errors
    /// When they do not in time.
    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError>;

    /// Deletes the key; whether it existed.
    ///
    /// # Errors
    /// When the store is gone.
    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError>;

    /// The number of keys, with those that the store keeps for itself.
    ///
    /// # Errors
    /// When the store is gone.
    fn num_keys(&mut self) -> Result<u64, StoreError>;

    /// The values of all keys, in their order, once all exist.
    ///
    /// # Errors
    /// When they do not within the store's timeout.
    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError>;

    /// Sets each key to its value.
    ///
    /// # Errors
    /// When the store is gone.
    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError>;

    /// The time that `get`, `wait` and `multi_get` wait.
    fn timeout(&self) -> Duration;

    /// Changes how long they wait.
    fn set_timeout(&mut self, timeout: Duration);
}

/// The error of a wait that has come to its end.
fn timed_out(kind: StoreKind, keys: &[&str], timeout: Duration) -> StoreError {
    StoreError::C10d(Table::new(kind).timed_out(keys, milliseconds(timeout)))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
