//! The stores against c10d's semantics: in threads, in processes, over sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod file;
mod model;
mod tcp;

use lockstep_gpu_exec::store::{HashStore, Store, StoreError};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(80);
const LONG: Duration = Duration::from_secs(20);

/// Threads that wait, and threads that set: for a store that `open` opens once more each time.
fn waits_until_the_keys_exist<S: Store + Send + 'static>(open: impl Fn() -> S) {
    let (mut waiting, mut other) = (open(), open());
    let waiter = std::thread::spawn(move || {
        waiting.wait(&["a", "b"], Some(LONG)).unwrap();
        waiting.set_timeout(LONG);
        (waiting.get("c").unwrap(), waiting.multi_get(&["c", "d"]).unwrap())
    });
    other.set("a", b"").unwrap();
    other.add("b", 1).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiter.is_finished());
    assert_eq!(other.compare_set("c", b"", b"here").unwrap(), b"here");
    other.append("d", b"too").unwrap();
    let (one, both) = waiter.join().unwrap();
    assert_eq!((one, both), (b"here".to_vec(), vec![b"here".to_vec(), b"too".to_vec()]));
}

/// A wait that nothing ends, in `SHORT`; the store is as good as before.
fn ends_in_time(store: &mut impl Store, texts: [&str; 3]) {
    store.set_timeout(SHORT);
    store.set("there", b"").unwrap();
    let started = Instant::now();
    let errors = [
        store.get("k").unwrap_err().to_string(),
        store.wait(&["there", "k"], None).unwrap_err().to_string(),
        store.multi_get(&["there", "k"]).unwrap_err().to_string(),
    ];
    assert_eq!(errors, texts);
    assert!(started.elapsed() >= 3 * SHORT && started.elapsed() < LONG);
    store.set("k", b"late").unwrap();
    assert_eq!(store.get("k").unwrap(), b"late");
}

/// Additions of many users are all counted once.
fn counts_every_addition<S: Store + Send + 'static>(open: impl Fn() -> S) {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut store = open();
            std::thread::spawn(move || (0..50).map(|_| store.add("n", 1).unwrap()).collect())
        })
        .collect();
    let mut seen: Vec<i64> =
        threads.into_iter().flat_map(|t| -> Vec<i64> { t.join().unwrap() }).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

#[test]
fn a_hash_store_is_shared_by_threads() {
    let store = HashStore::new();
    waits_until_the_keys_exist(|| store.clone());
    counts_every_addition(|| store.clone());
    ends_in_time(&mut store.clone(), ["DistStoreError: Wait timeout"; 3]);
    let mut store = store;
    store.set("text", b"abc").unwrap();
    let error = store.add("text", 1).unwrap_err();
    assert!(matches!(&error, StoreError::C10d(_)) && error.to_string() == "ValueError: stoll");
}
