//! The key-value store through which ranks find each other, with the semantics of c10d's
//! (`torch/csrc/distributed/c10d/Store.hpp`): `set get add wait`, and `compare_set`, `check`,
//! `delete_key`.

mod client;
mod server;
mod table;
mod wire;

pub use client::StoreClient;
pub use server::StoreServer;

use std::time::Duration;

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key that did not come in time.
    #[error("the store has no key {key:?} after {timeout:?}; does every rank run the same plan?")]
    Timeout {
        /// The first key that is missing.
        key: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// `add` on a value that is no number.
    #[error("the store's key {key:?} holds no number, so nothing can be added to it")]
    NotANumber {
        /// The key.
        key: String,
    },
    /// The store went away, or speaks something else.
    #[error("the store's connection broke: {0}")]
    Connection(#[from] std::io::Error),
    /// A key or value that is too long to be sent.
    #[error(
        "{bytes} bytes are too long for the store; the limit is {} with the key",
        wire::MAX_FRAME_BYTES
    )]
    TooLong {
        /// What it would take.
        bytes: usize,
    },
}

/// A store as a rank sees it; every process of a job sees the same keys.
pub trait Store {
    /// Sets the key, over what it held.
    ///
    /// # Errors
    /// When the store is gone.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// The key's value, once it exists.
    ///
    /// # Errors
    /// When it does not within `timeout`, or the store is gone.
    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError>;

    /// Adds to a number, which begins as 0, and returns the sum. The value is kept as decimal
    /// text, as c10d keeps it.
    ///
    /// # Errors
    /// When the key holds something else, or the store is gone.
    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError>;

    /// Returns once all keys exist.
    ///
    /// # Errors
    /// When they do not within `timeout`, or the store is gone.
    fn wait(&mut self, keys: &[&str], timeout: Duration) -> Result<(), StoreError>;

    /// Sets the key to `desired` if it holds `expected`, or if it does not exist and `expected` is
    /// empty. Returns what it then holds; `expected` if it still does not exist.
    ///
    /// # Errors
    /// When the store is gone.
    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError>;

    /// Whether all keys exist now.
    ///
    /// # Errors
    /// When the store is gone.
    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError>;

    /// Deletes the key; false if it did not exist.
    ///
    /// # Errors
    /// When the store is gone.
    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError>;
}
