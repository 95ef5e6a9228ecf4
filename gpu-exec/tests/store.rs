//! The store against c10d's semantics, over real sockets.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_gpu_exec::store::{Store, StoreClient, StoreError, StoreServer};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(80);
const LONG: Duration = Duration::from_secs(20);

fn client(server: &StoreServer) -> StoreClient {
    StoreClient::connect(server.address(), LONG).unwrap()
}

#[test]
fn set_get_and_overwrite() {
    let server = StoreServer::start().unwrap();
    let (mut a, mut b) = (client(&server), client(&server));
    a.set("key", b"one").unwrap();
    assert_eq!(b.get("key", LONG).unwrap(), b"one");
    b.set("key", &[0, 255, 1]).unwrap();
    assert_eq!(a.get("key", LONG).unwrap(), [0, 255, 1]);
    assert!(a.check(&["key"]).unwrap());
    assert!(!a.check(&["key", "other"]).unwrap());
    assert!(a.delete_key("key").unwrap());
    assert!(!a.delete_key("key").unwrap());
}

#[test]
fn get_and_wait_block_until_the_key_exists() {
    let server = StoreServer::start().unwrap();
    let mut waiting = client(&server);
    let mut other = client(&server);
    let waiter = std::thread::spawn(move || {
        waiting.wait(&["a", "b"], LONG).unwrap();
        waiting.get("c", LONG).unwrap()
    });
    other.set("a", b"").unwrap();
    other.set("b", b"").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiter.is_finished());
    other.set("c", b"here").unwrap();
    assert_eq!(waiter.join().unwrap(), b"here");
}

#[test]
fn a_key_that_never_comes_times_out_and_is_named() {
    let server = StoreServer::start().unwrap();
    let mut store = client(&server);
    store.set("there", b"").unwrap();
    let started = Instant::now();
    let error = store.wait(&["there", "missing"], SHORT).unwrap_err();
    assert!(matches!(&error, StoreError::Timeout { key, .. } if key == "missing"), "{error}");
    assert!(store.get("missing", SHORT).is_err());
    assert!(started.elapsed() >= 2 * SHORT && started.elapsed() < LONG);
    // The connection is still good.
    store.set("missing", b"late").unwrap();
    assert_eq!(store.get("missing", SHORT).unwrap(), b"late");
}

#[test]
fn add_creates_with_zero_and_keeps_decimal_text() {
    let server = StoreServer::start().unwrap();
    let mut store = client(&server);
    assert_eq!(store.add("n", 5).unwrap(), 5);
    assert_eq!(store.add("n", -7).unwrap(), -2);
    assert_eq!(store.get("n", LONG).unwrap(), b"-2");
    store.set("text", b"abc").unwrap();
    assert!(matches!(store.add("text", 1), Err(StoreError::NotANumber { .. })));
}

#[test]
fn concurrent_adds_are_all_counted() {
    let server = StoreServer::start().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mut store = client(&server);
            std::thread::spawn(move || (0..100).map(|_| store.add("n", 1).unwrap()).collect())
        })
        .collect();
    let mut seen: Vec<i64> =
        threads.into_iter().flat_map(|t| -> Vec<i64> { t.join().unwrap() }).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=800).collect::<Vec<_>>());
}

#[test]
fn compare_set_follows_c10d() {
    let server = StoreServer::start().unwrap();
    let mut store = client(&server);
    assert_eq!(store.compare_set("k", b"old", b"new").unwrap(), b"old");
    assert!(!store.check(&["k"]).unwrap());
    assert_eq!(store.compare_set("k", b"", b"first").unwrap(), b"first");
    assert_eq!(store.compare_set("k", b"wrong", b"second").unwrap(), b"first");
    assert_eq!(store.compare_set("k", b"first", b"second").unwrap(), b"second");
}

#[test]
fn dropping_the_server_ends_those_who_wait() {
    let server = StoreServer::start().unwrap();
    let mut waiting = client(&server);
    let waiter = std::thread::spawn(move || waiting.get("never", LONG).is_err());
    std::thread::sleep(Duration::from_millis(20));
    let started = Instant::now();
    drop(server);
    assert!(waiter.join().unwrap());
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_is_no_request_is_cut_off_and_harms_nobody() {
    use std::io::{Read, Write};
    let server = StoreServer::start().unwrap();
    for bytes in [&[255u8; 64][..], &[4, 0, 0, 0, 255, 255, 255, 255]] {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(bytes).unwrap();
        // Closed, or reset because bytes were left unread: cut off either way.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
    let mut store = client(&server);
    store.set("key", b"fine").unwrap();
    assert_eq!(store.get("key", LONG).unwrap(), b"fine");
}
