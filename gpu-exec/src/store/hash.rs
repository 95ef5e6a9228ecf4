//! `HashStore`: a table in this process, for its threads.

use super::{DEFAULT_TIMEOUT, Store, StoreError, timed_out};
use lockstep_torch::c10d::store::{Answer, Store as Table, StoreKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A store inside this process. Clones share its keys, each with a timeout of its own.
#[derive(Clone, Debug)]
pub struct HashStore {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Default for HashStore {
    fn default() -> HashStore {
        let table = Mutex::new(Table::new(StoreKind::Hash));
        let shared = Arc::new(Shared { table, changed: Condvar::new() });
        HashStore { shared, timeout: DEFAULT_TIMEOUT }
    }
}

impl HashStore {
    /// An empty store.
    pub fn new() -> HashStore {
        HashStore::default()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic elsewhere leaves whole values: every change is one call of the table.
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let answer = change(&mut self.table());
        self.shared.changed.notify_all();
        answer
    }

    /// Asks until the answer is there.
    fn ask<T, E: Into<StoreError>>(
        &self,
        keys: &[&str],
        timeout: Duration,
        ask: impl Fn(&Table) -> Result<Answer<T>, E>,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let mut table = self.table();
        loop {
            if let Answer::Ready(answer) = ask(&table).map_err(Into::into)? {
                return Ok(answer);
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(timed_out(StoreKind::Hash, keys, timeout));
            }
            let waited = self.shared.changed.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Store for HashStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        Ok(self.change(|table| table.set(key, value))?)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(&[key], self.timeout, |table| table.get(key))
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        Ok(self.change(|table| table.add(key, by))?)
    }

    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        Ok(self.change(|table| table.append(key, value))?)
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        Ok(self.table().check(keys)?)
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        Ok(self.change(|table| table.compare_set(key, expected, desired))?)
    }

    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError> {
        self.ask(keys, timeout.unwrap_or(self.timeout), |table| table.wait(keys))
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        Ok(self.table().delete_key(key)?)
    }

    fn num_keys(&mut self) -> Result<u64, StoreError> {
        Ok(self.table().num_keys()?)
    }

    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.ask(keys, self.timeout, |table| table.multi_get(keys))
    }

    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError> {
        Ok(self.change(|table| table.multi_set(entries))?)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}
