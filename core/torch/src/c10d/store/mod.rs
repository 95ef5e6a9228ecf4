//! c10d's key-value stores as a pure state machine: the answers of `set get add append check compare_set wait
//! delete_key num_keys multi_get multi_set`, for hash, file and TCP stores, and the joining of prefixes.
//! There is no clock: an operation that would wait returns the keys that it waits for.
//!
//! The rules are those of `HashStore.cpp`, `FileStore.cpp` and `TCPStore.cpp` (PyTorch 2.7), which differ
//! from each other in places. The real stores are made on this table by `gpu-exec`.

mod prefix;

pub use prefix::{PrefixStore, join_key};

use super::error::{
    DistError, index_error, network_error, runtime_error, store_error, value_error,
};
use std::collections::BTreeMap;

/// The c10d store that a table behaves like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// `HashStore`: inside one process.
    Hash,
    /// `FileStore`: a file that the processes share.
    File,
    /// `TCPStore`: served by one process.
    Tcp {
        /// True if the store was made with a world size, so that its clients are counted as they connect.
        counts_workers: bool,
    },
}

/// The store's default timeout: five minutes (`Store::kDefaultTimeout`).
pub const DEFAULT_STORE_TIMEOUT_MS: u64 = 300_000;

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It is done.
    Ready(T),
    /// It waits until all of these keys are there; never empty.
    WouldBlock(Vec<String>),
}

impl<T> Answer<T> {
    /// The answer, or `None` if the operation would wait.
    pub fn ready(self) -> Option<T> {
        match self {
            Answer::Ready(value) => Some(value),
            Answer::WouldBlock(_) => None,
        }
    }

    /// The answer with its value converted.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Answer::Ready(value) => Answer::Ready(f(value)),
            Answer::WouldBlock(keys) => Answer::WouldBlock(keys),
        }
    }
}

/// The state that all clients of a store share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    kind: StoreKind,
    entries: BTreeMap<String, Vec<u8>>,
    timeout_ms: u64,
    /// Set once a TCPStore's server has dropped the connection on an `add` that it could not read.
    dropped: bool,
}

impl Store {
    /// An empty store.
    pub fn new(kind: StoreKind) -> Store {
        Store {
            kind,
            entries: BTreeMap::new(),
            timeout_ms: DEFAULT_STORE_TIMEOUT_MS,
            dropped: false,
        }
    }

    /// The kind of the store.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// `store.timeout`, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// `store.set_timeout`, in milliseconds: how long `get` and `wait` may wait.
    pub fn set_timeout(&mut self, timeout_ms: u64) {
        self.timeout_ms = timeout_ms;
    }

    /// `store.set`: replaces the key's value.
    ///
    /// # Errors
    /// `DistNetworkError` on a dropped connection, as for every operation.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.connected()?;
        self.entries.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    /// `store.get`: waits for the key.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn get(&self, key: &str) -> Result<Answer<Vec<u8>>, DistError> {
        self.connected()?;
        Ok(match self.entries.get(key) {
            Some(value) => Answer::Ready(value.clone()),
            None => Answer::WouldBlock(vec![key.to_owned()]),
        })
    }

    /// `store.add`: adds to the number that the key holds in decimal digits, from 0 if there is
    /// none, and returns the sum.
    ///
    /// # Errors
    /// When the key holds no number: `ValueError: stoll` from a hash or file store; a TCPStore's
    /// server drops the connection instead, which is lost for good.
    pub fn add(&mut self, key: &str, amount: i64) -> Result<i64, DistError> {
        self.connected()?;
        let old = self.entries.get(key).map(Vec::as_slice).unwrap_or_default();
        // HashStore and FileStore take an empty value for none; TCPStore's std::stoll refuses it.
        let is_tcp = matches!(self.kind, StoreKind::Tcp { .. });
        let empty_is_none = !is_tcp || !self.entries.contains_key(key);
        let old = match old {
            [] if empty_is_none => Ok(0),
            value => stoll(value),
        };
        let sum = match old {
            Ok(old) => old.wrapping_add(amount),
            Err(_) if matches!(self.kind, StoreKind::Tcp { .. }) => {
                self.dropped = true;
                return Err(disconnected().with_help(format!(
                    "The value of {key:?} is no number, so the server cannot add to it and drops \
                     the connection."
                )));
            }
            Err(error) => return Err(error),
        };
        self.entries.insert(key.to_owned(), sum.to_string().into_bytes());
        Ok(sum)
    }

    /// `store.append`: adds bytes at the end of the key's value, which it makes if there is none.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn append(&mut self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.connected()?;
        self.entries.entry(key.to_owned()).or_default().extend_from_slice(value);
        Ok(())
    }

    /// `store.check`: whether all keys are there. Never waits.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn check(&self, keys: &[&str]) -> Result<bool, DistError> {
        self.connected()?;
        Ok(keys.iter().all(|key| self.entries.contains_key(*key)))
    }

    /// `store.compare_set`: sets the key if its value is `expected`, and returns the value afterwards. A
    /// missing key is set if `expected` is empty; otherwise it stays missing and the answer is `expected`, as
    /// if it had been its value.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, DistError> {
        self.connected()?;
        match self.entries.get(key) {
            None if !expected.is_empty() => Ok(expected.to_vec()),
            Some(value) if value != expected => Ok(value.clone()),
            _ => {
                self.entries.insert(key.to_owned(), desired.to_vec());
                Ok(desired.to_vec())
            }
        }
    }

    /// `store.wait`: waits until all keys are there.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn wait(&self, keys: &[&str]) -> Result<Answer<()>, DistError> {
        self.connected()?;
        let missing: Vec<_> = keys.iter().filter(|key| !self.entries.contains_key(**key)).collect();
        Ok(match missing[..] {
            [] => Answer::Ready(()),
            _ => Answer::WouldBlock(missing.into_iter().map(|key| (*key).to_owned()).collect()),
        })
    }

    /// `store.delete_key`: whether the key was there; a FileStore, which only writes down that it
    /// is gone, always says so.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn delete_key(&mut self, key: &str) -> Result<bool, DistError> {
        self.connected()?;
        let was_there = self.entries.remove(key).is_some();
        Ok(was_there || self.kind == StoreKind::File)
    }

    /// `store.num_keys`: keys in the store, and one more where the store keeps one of its own: a
    /// FileStore counts its users, a TCPStore made with a world size its workers.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn num_keys(&self) -> Result<u64, DistError> {
        self.connected()?;
        let own = match self.kind {
            StoreKind::Hash | StoreKind::Tcp { counts_workers: false } => 0,
            StoreKind::File | StoreKind::Tcp { counts_workers: true } => 1,
        };
        Ok(self.entries.len() as u64 + own)
    }

    /// `store.multi_get`: waits for all keys; values in the order of the keys.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn multi_get(&self, keys: &[&str]) -> Result<Answer<Vec<Vec<u8>>>, DistError> {
        let there = self.wait(keys)?;
        Ok(there.map(|()| keys.iter().filter_map(|key| self.entries.get(*key)).cloned().collect()))
    }

    /// `store.multi_set`: sets each key to the value at the same place.
    ///
    /// # Errors
    /// Those of [`Store::set`].
    pub fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), DistError> {
        entries.iter().try_for_each(|(key, value)| self.set(key, value))
    }

    /// The error that `get` or `wait` raises when `keys` (as the caller named them) have not come
    /// within `timeout_ms`.
    pub fn timed_out(&self, keys: &[&str], timeout_ms: u64) -> DistError {
        match self.kind {
            StoreKind::Tcp { .. } => {
                // TCPStore puts a slash before every key that it sends.
                let keys: Vec<_> = keys.iter().map(|key| format!("/{key}")).collect();
                let keys = keys.join(", ");
                store_error(format!("wait timeout after {timeout_ms}ms, keys: {keys}"))
            }
            StoreKind::Hash => store_error("Wait timeout"),
            StoreKind::File => runtime_error("Wait timeout"),
        }
    }

    /// The error that `get` and `multi_get` raise when `keys` have not come within `timeout_ms`:
    /// the one of `wait`, save that a FileStore gets one key after the other and names the first
    /// that is `missing`.
    pub fn timed_out_getting(&self, keys: &[&str], missing: &str, timeout_ms: u64) -> DistError {
        match self.kind {
            StoreKind::File => {
                runtime_error(format!("Timeout waiting for key: {missing} after {timeout_ms} ms"))
            }
            StoreKind::Hash | StoreKind::Tcp { .. } => self.timed_out(keys, timeout_ms),
        }
    }

    fn connected(&self) -> Result<(), DistError> {
        if self.dropped { Err(disconnected()) } else { Ok(()) }
    }
}

fn disconnected() -> DistError {
    network_error("failed to recv, got 0 bytes")
}

/// C++'s `std::stoll`: leading white space, a sign, digits; the rest is left.
fn stoll(value: &[u8]) -> Result<i64, DistError> {
    let text = value.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let mut sum: Option<i64> = None;
    for digit in digits {
        let digit = i64::from(digit - b'0');
        let next = sum.unwrap_or(0).checked_mul(10).and_then(|tens| match negative {
            true => tens.checked_sub(digit),
            false => tens.checked_add(digit),
        });
        sum = Some(next.ok_or_else(|| index_error("stoll"))?);
    }
    sum.ok_or_else(|| value_error("stoll").with_help("The key's value is no number."))
}

#[cfg(test)]
mod tests;
