//! `PrefixStore`: a part of another store, as process groups share one.

use super::{Store, StoreError};
use lockstep_torch::c10d::store::join_key;
use std::time::Duration;

/// A store whose keys all begin with `prefix/` in the store below.
#[derive(Clone, Debug)]
pub struct PrefixStore<S> {
    prefix: String,
    inner: S,
}

impl<S> PrefixStore<S> {
    /// The part of `inner` under that prefix.
    pub fn new(prefix: impl Into<String>, inner: S) -> PrefixStore<S> {
        PrefixStore { prefix: prefix.into(), inner }
    }

    /// The store below: c10d's `underlying_store`.
    pub fn underlying_store(&mut self) -> &mut S {
        &mut self.inner
    }

    fn key(&self, key: &str) -> String {
        join_key(&self.prefix, key)
    }

    fn keys(&self, keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| self.key(key)).collect()
    }
}

fn borrowed(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

impl<S: Store> Store for PrefixStore<S> {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = self.key(key);
        self.inner.set(&key, value)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        let key = self.key(key);
        self.inner.get(&key)
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        let key = self.key(key);
        self.inner.add(&key, by)
    }

    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = self.key(key);
        self.inner.append(&key, value)
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        let keys = self.keys(keys);
        self.inner.check(&borrowed(&keys))
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let key = self.key(key);
        self.inner.compare_set(&key, expected, desired)
    }

    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError> {
        let keys = self.keys(keys);
        self.inner.wait(&borrowed(&keys), timeout)
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        let key = self.key(key);
        self.inner.delete_key(&key)
    }

    /// All keys of the store below, as c10d counts them.
    fn num_keys(&mut self) -> Result<u64, StoreError> {
        self.inner.num_keys()
    }

    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        let keys = self.keys(keys);
        self.inner.multi_get(&borrowed(&keys))
    }

    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let keys: Vec<String> = entries.iter().map(|(key, _)| self.key(key)).collect();
        let entries: Vec<(&str, &[u8])> =
            keys.iter().zip(entries).map(|(key, (_, value))| (key.as_str(), *value)).collect();
        self.inner.multi_set(&entries)
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }
}
