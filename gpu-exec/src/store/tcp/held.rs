//! The state of a TCP store's server: the table of keys, the queues beside it (`queue_push` of PyTorch 2.8),
//! the memory that both take, and the clients that wait.
//!
//! A client is woken by the change that it waits for and not by the state a moment later, so that a key which
//! is set and deleted at once has been there, as in `TCPStoreLibUvBackend.cpp`.

use super::wire::{MAX_HELD_BYTES, Request};
use lockstep_torch::c10d::store::{Answer, Store as Table, StoreKind};
use std::collections::{BTreeMap, VecDeque};

/// A connection, by the order in which they came.
pub(super) type ClientId = u64;

/// The state of a server.
#[derive(Debug)]
pub(super) struct Held {
    table: Table,
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
    /// Bytes of the table's keys, each with its value; not less than there are.
    sizes: BTreeMap<String, usize>,
    /// Bytes of the table and the queues together.
    bytes: usize,
    /// In the order in which they began to wait.
    waiting: Vec<Waiting>,
    /// The clients whose wait has ended, until they get their answer.
    woken: Vec<ClientId>,
}

#[derive(Debug)]
struct Waiting {
    client: ClientId,
    until: Until,
}

#[derive(Debug)]
enum Until {
    /// All of these keys, or something in the queues of their names.
    Keys(Vec<String>),
    /// The barrier's key has counted so many workers.
    Reached { key: String, workers: i64 },
}

/// The way in which a request puts a value under a key.
#[derive(Clone, Copy)]
enum Put {
    Instead(usize),
    OnTop(usize),
    /// One or the other.
    Either(usize),
}

/// Digits of an `i64`, at most.
const NUMBER_BYTES: usize = 20;

impl Held {
    pub(super) fn new() -> Held {
        Held {
            table: Table::new(StoreKind::Hash),
            queues: BTreeMap::new(),
            sizes: BTreeMap::new(),
            bytes: 0,
            waiting: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Makes room for a request's bytes; `None` if there is none.
    pub(super) fn make_room_for(&mut self, request: &Request) -> Option<()> {
        match request {
            Request::Set { key, value } => self.make_room(key, Put::Instead(value.len())),
            Request::Append { key, value } => self.make_room(key, Put::OnTop(value.len())),
            Request::CompareSet { key, desired, .. } => {
                self.make_room(key, Put::Either(desired.len()))
            }
            Request::Add { key, .. } | Request::Barrier { key, .. } => {
                self.make_room(key, Put::Either(NUMBER_BYTES))
            }
            Request::MultiSet(entries) => (entries.iter())
                .try_for_each(|(key, value)| self.make_room(key, Put::Instead(value.len()))),
            Request::QueuePush { key, value } => {
                let bytes = self.bytes.saturating_add(queued(key, value));
                (bytes <= MAX_HELD_BYTES).then(|| self.bytes = bytes)
            }
            _ => Some(()),
        }
    }

    fn make_room(&mut self, key: &str, put: Put) -> Option<()> {
        let before = self.sizes.get(key).copied();
        let old = before.unwrap_or(0);
        let after = match put {
            Put::Instead(bytes) => key.len() + bytes,
            Put::OnTop(bytes) => before.unwrap_or(key.len()) + bytes,
            Put::Either(bytes) => old.max(key.len() + bytes),
        };
        let bytes = self.bytes.saturating_sub(old).saturating_add(after);
        if bytes > MAX_HELD_BYTES {
            return None;
        }
        self.bytes = bytes;
        self.sizes.insert(key.to_owned(), after);
        Some(())
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Option<()> {
        self.table.set(key, value).ok()?;
        self.changed(key);
        Some(())
    }

    pub(super) fn append(&mut self, key: &str, value: &[u8]) -> Option<()> {
        self.table.append(key, value).ok()?;
        self.changed(key);
        Some(())
    }

    pub(super) fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Option<Vec<u8>> {
        let holds = self.table.compare_set(key, expected, desired).ok()?;
        self.changed(key);
        Some(holds)
    }

    /// A key's value, if it is there.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.table.get(key).ok()?.ready()
    }

    /// The sum; `None` if the key holds something else.
    pub(super) fn add(&mut self, key: &str, by: i64) -> Option<i64> {
        // `std::stoll` refuses an empty value, which a plain table takes for none.
        if self.table.get(key).ok()? == Answer::Ready(Vec::new()) {
            return None;
        }
        let sum = self.table.add(key, by).ok()?;
        self.changed(key);
        Some(sum)
    }

    pub(super) fn delete_key(&mut self, key: &str) -> Option<bool> {
        self.bytes = self.bytes.saturating_sub(self.sizes.remove(key).unwrap_or(0));
        self.table.delete_key(key).ok()
    }

    /// The number of keys in the table, without the queues.
    pub(super) fn num_keys(&self) -> Option<u64> {
        self.table.num_keys().ok()
    }

    /// The table's keys.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.sizes.keys().map(String::as_str).filter(|key| self.has(key)).collect()
    }

    fn has(&self, key: &str) -> bool {
        self.table.check(&[key]).unwrap_or(false)
    }

    /// True if all keys exist, as keys or as queues that are not empty.
    pub(super) fn has_all(&self, keys: &[String]) -> bool {
        keys.iter().all(|key| self.has(key) || self.queue_len(key) > 0)
    }

    /// Puts a value at a queue's end, and wakes the client that has waited for it longest.
    pub(super) fn queue_push(&mut self, key: String, value: Vec<u8>) {
        self.queues.entry(key.clone()).or_default().push_back(value);
        let longest = (self.waiting.iter()).position(|waiting| match &waiting.until {
            Until::Keys(keys) => keys.contains(&key) && self.has_all(keys),
            Until::Reached { .. } => false,
        });
        if let Some(longest) = longest {
            self.woken.push(self.waiting.remove(longest).client);
        }
    }

    /// Takes a queue's first value, which comes with how many there were.
    pub(super) fn queue_pop(&mut self, key: &str) -> (i64, Option<Vec<u8>>) {
        let length = self.queue_len(key);
        let Some(queue) = self.queues.get_mut(key) else { return (length, None) };
        let value = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        let bytes = value.as_ref().map_or(0, |value| queued(key, value));
        self.bytes = self.bytes.saturating_sub(bytes);
        (length, value)
    }

    /// The number of values in a queue; 0 for one that does not exist.
    pub(super) fn queue_len(&self, key: &str) -> i64 {
        let length = self.queues.get(key).map_or(0, VecDeque::len);
        i64::try_from(length).unwrap_or(i64::MAX)
    }

    /// Has a client wait for keys; it is woken at once if they are there.
    pub(super) fn wait(&mut self, client: ClientId, keys: Vec<String>) {
        match self.has_all(&keys) {
            true => self.woken.push(client),
            false => self.waiting.push(Waiting { client, until: Until::Keys(keys) }),
        }
    }

    /// Counts a client that has come to a barrier, and has it wait for the others; `None` if the
    /// key holds no number.
    pub(super) fn barrier(&mut self, client: ClientId, key: String, workers: i64) -> Option<()> {
        let until = Until::Reached { key: key.clone(), workers };
        self.waiting.push(Waiting { client, until });
        self.add(&key, 1).map(|_| ())
    }

    /// Ends a client's wait without waking it.
    pub(super) fn stop_waiting(&mut self, client: ClientId) {
        self.waiting.retain(|waiting| waiting.client != client);
        self.woken.retain(|woken| *woken != client);
    }

    /// True, once, if a client's wait has ended.
    pub(super) fn has_woken(&mut self, client: ClientId) -> bool {
        let at = self.woken.iter().position(|woken| *woken == client);
        at.map(|at| self.woken.swap_remove(at)).is_some()
    }

    /// Wakes the clients that have waited for a key's value.
    fn changed(&mut self, key: &str) {
        let waiting = std::mem::take(&mut self.waiting);
        let (woken, waiting) = waiting.into_iter().partition(|one: &Waiting| match &one.until {
            Until::Keys(keys) => keys.iter().any(|one| one == key) && self.has_all(keys),
            Until::Reached { key: barrier, workers } => {
                barrier == key && self.number(key).is_some_and(|come| come >= *workers)
            }
        });
        self.waiting = waiting;
        self.woken.extend(woken.into_iter().map(|one: Waiting| one.client));
    }

    fn number(&self, key: &str) -> Option<i64> {
        String::from_utf8(self.get(key)?).ok()?.parse().ok()
    }
}

/// The bytes that a value in a queue counts as: an entry's own overhead is a key's at least.
fn queued(key: &str, value: &[u8]) -> usize {
    key.len() + value.len() + size_of::<Vec<u8>>()
}
