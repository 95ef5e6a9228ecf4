//! The keys and values, and who waits for them.

use super::StoreError;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest a request may block: nothing waits for ever.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<String, Vec<u8>>,
    closed: bool,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves whole values: every change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, key: String, value: Vec<u8>) {
        self.lock().values.insert(key, value);
        self.changed.notify_all();
    }

    pub(super) fn add(&self, key: &str, by: i64) -> Result<i64, StoreError> {
        let mut state = self.lock();
        let before = match state.values.get(key) {
            None => 0,
            Some(value) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(|| StoreError::NotANumber { key: key.to_owned() })?,
        };
        let sum = before.wrapping_add(by);
        state.values.insert(key.to_owned(), sum.to_string().into_bytes());
        self.changed.notify_all();
        Ok(sum)
    }

    /// Waits until all keys exist; then the value of the first.
    pub(super) fn wait(&self, keys: &[String], timeout: Duration) -> Result<Vec<u8>, StoreError> {
        let deadline = Instant::now() + timeout.min(MAX_WAIT);
        let mut state = self.lock();
        loop {
            let Some(missing) = keys.iter().find(|key| !state.values.contains_key(*key)) else {
                let first = keys.first().and_then(|key| state.values.get(key));
                return Ok(first.cloned().unwrap_or_default());
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                return Err(StoreError::Timeout { key: missing.clone(), timeout });
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn compare_set(&self, key: &str, expected: &[u8], desired: Vec<u8>) -> Vec<u8> {
        let mut state = self.lock();
        match state.values.get(key) {
            None if !expected.is_empty() => return expected.to_vec(),
            Some(value) if value != expected => return value.clone(),
            _ => {}
        }
        state.values.insert(key.to_owned(), desired.clone());
        self.changed.notify_all();
        desired
    }

    pub(super) fn check(&self, keys: &[String]) -> bool {
        let state = self.lock();
        keys.iter().all(|key| state.values.contains_key(key))
    }

    pub(super) fn delete_key(&self, key: &str) -> bool {
        self.lock().values.remove(key).is_some()
    }

    /// Ends every wait.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
