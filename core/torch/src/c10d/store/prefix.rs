//! `PrefixStore`: a part of another store.

use super::{Answer, Store};
use crate::c10d::error::DistError;

/// The key of the inner store: `prefix/key`. Prefixes that end in a slash get a second one, as
/// c10d's own do: `0/` and `cpu/` over the default group's store make `default_pg/0//cpu//key`.
pub fn join_key(prefix: &str, key: &str) -> String {
    format!("{prefix}/{key}")
}

/// A store whose keys all get a prefix. Stacked prefixes are joined outermost first, since the
/// outer store hands its joined key to the inner one, which puts its own prefix before it.
#[derive(Debug)]
pub struct PrefixStore<'a> {
    inner: &'a mut Store,
    prefix: String,
}

impl<'a> PrefixStore<'a> {
    /// `PrefixStore(prefix, inner)`.
    pub fn new(prefix: &str, inner: &'a mut Store) -> PrefixStore<'a> {
        PrefixStore { inner, prefix: prefix.to_owned() }
    }

    /// `PrefixStore(prefix, self)`.
    pub fn nest(self, prefix: &str) -> PrefixStore<'a> {
        PrefixStore { prefix: join_key(&self.prefix, prefix), inner: self.inner }
    }

    /// The key in the store below.
    pub fn key(&self, key: &str) -> String {
        join_key(&self.prefix, key)
    }

    /// [`Store::set`].
    ///
    /// # Errors
    /// Those of the store below, as for every operation here.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.inner.set(&join_key(&self.prefix, key), value)
    }

    /// [`Store::get`]; the keys to wait for are those of the store below.
    ///
    /// # Errors
    /// Those of the store below.
    pub fn get(&self, key: &str) -> Result<Answer<Vec<u8>>, DistError> {
        self.inner.get(&self.key(key))
    }

    /// [`Store::add`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn add(&mut self, key: &str, amount: i64) -> Result<i64, DistError> {
        self.inner.add(&join_key(&self.prefix, key), amount)
    }

    /// [`Store::append`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn append(&mut self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.inner.append(&join_key(&self.prefix, key), value)
    }

    /// [`Store::compare_set`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, DistError> {
        self.inner.compare_set(&join_key(&self.prefix, key), expected, desired)
    }

    /// [`Store::check`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn check(&self, keys: &[&str]) -> Result<bool, DistError> {
        self.with_keys(keys, |inner, keys| inner.check(keys))
    }

    /// [`Store::wait`]; the keys to wait for are those of the store below.
    ///
    /// # Errors
    /// Those of the store below.
    pub fn wait(&self, keys: &[&str]) -> Result<Answer<()>, DistError> {
        self.with_keys(keys, |inner, keys| inner.wait(keys))
    }

    /// [`Store::delete_key`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn delete_key(&mut self, key: &str) -> Result<bool, DistError> {
        self.inner.delete_key(&join_key(&self.prefix, key))
    }

    /// [`Store::multi_get`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn multi_get(&self, keys: &[&str]) -> Result<Answer<Vec<Vec<u8>>>, DistError> {
        self.with_keys(keys, |inner, keys| inner.multi_get(keys))
    }

    /// [`Store::multi_set`].
    ///
    /// # Errors
    /// Those of the store below.
    pub fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), DistError> {
        entries.iter().try_for_each(|(key, value)| self.set(key, value))
    }

    fn with_keys<T>(&self, keys: &[&str], call: impl FnOnce(&Store, &[&str]) -> T) -> T {
        let joined: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        let keys: Vec<&str> = joined.iter().map(String::as_str).collect();
        call(self.inner, &keys)
    }
}
