//! The stores' rules, one by one, and against a model.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const TCP: StoreKind = StoreKind::Tcp { counts_workers: true };

#[test]
fn get_and_wait_say_which_keys_they_wait_for() {
    let mut store = Store::new(TCP);
    store.set("a", b"1").unwrap();
    assert_eq!(store.get("a").unwrap(), Answer::Ready(b"1".to_vec()));
    assert_eq!(store.get("k").unwrap(), Answer::WouldBlock(vec!["k".into()]));
    assert_eq!(store.wait(&["a", "b", "c"]).unwrap().ready(), None);
    assert_eq!(store.multi_get(&["a", "b"]).unwrap(), Answer::WouldBlock(vec!["b".into()]));
    assert_eq!(store.wait(&[]).unwrap(), Answer::Ready(()));
    let late = store.timed_out(&["a", "b"], 1000);
    assert_eq!(late.text, "wait timeout after 1000ms, keys: /a, /b");
    assert_eq!(Store::new(StoreKind::Hash).timed_out(&["k"], 1).text, "Wait timeout");
    let file = Store::new(StoreKind::File);
    assert_eq!(file.timed_out(&["k"], 1).to_string(), "RuntimeError: Wait timeout");
    let late = file.timed_out_getting(&["a", "k"], "k", 1200);
    assert_eq!(late.to_string(), "RuntimeError: Timeout waiting for key: k after 1200 ms");
}

/// HashStore.cpp, TCPStore.cpp and FileStore.cpp agree: a missing key is set only on an empty
/// expectation, and otherwise the expectation comes back.
#[test]
fn compare_set_on_a_missing_key() {
    for kind in [StoreKind::Hash, StoreKind::File, TCP] {
        let mut store = Store::new(kind);
        assert_eq!(store.compare_set("k", b"old", b"new").unwrap(), b"old");
        assert!(!store.check(&["k"]).unwrap());
        assert_eq!(store.compare_set("k", b"", b"first").unwrap(), b"first");
        assert_eq!(store.compare_set("k", b"wrong", b"second").unwrap(), b"first");
        assert_eq!(store.compare_set("k", b"first", b"second").unwrap(), b"second");
    }
}

#[test]
fn add_reads_numbers_as_stoll_does() {
    let mut store = Store::new(StoreKind::Hash);
    assert_eq!(store.add("n", 5).unwrap(), 5);
    assert_eq!(store.add("n", -7).unwrap(), -2);
    assert_eq!(store.get("n").unwrap().ready().unwrap(), b"-2");
    store.set("n", b" +12 apples").unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 13);
    store.set("n", b"apples").unwrap();
    assert_eq!(store.add("n", 1).unwrap_err().to_string(), "ValueError: stoll");
    store.set("n", b"99999999999999999999").unwrap();
    assert_eq!(store.add("n", 1).unwrap_err().to_string(), "IndexError: stoll");
    store.set("n", b"").unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 1);
    let mut store = Store::new(StoreKind::File);
    store.set("n", b"").unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 1);
}

/// Recorded as `store_add_on_non_numeric_value`: this call and every later one.
#[test]
fn a_tcp_store_drops_the_connection_on_a_bad_add() {
    let mut store = Store::new(TCP);
    store.set("n", b"apples").unwrap();
    let expected = "DistNetworkError: failed to recv, got 0 bytes";
    assert_eq!(store.add("n", 1).unwrap_err().to_string(), expected);
    assert_eq!(store.get("n").unwrap_err().to_string(), expected);
}

#[test]
fn some_stores_count_a_key_of_their_own() {
    for (kind, own) in [
        (StoreKind::Hash, 0),
        (StoreKind::File, 1),
        (TCP, 1),
        (StoreKind::Tcp { counts_workers: false }, 0),
    ] {
        let mut store = Store::new(kind);
        store.multi_set(&[("a", b"1"), ("b", b"2")]).unwrap();
        assert_eq!(store.num_keys().unwrap(), 2 + own);
        assert!(store.delete_key("a").unwrap());
        // A FileStore always says that the key was there, as 2.7.1's did when it was asked.
        assert_eq!(store.delete_key("a").unwrap(), kind == StoreKind::File);
        assert_eq!(store.num_keys().unwrap(), 1 + own);
    }
}

/// Recorded as `init_duplicate_rank1`: gloo waits for `/default_pg/0//cpu//0/2`, through three
/// prefix stores.
#[test]
fn prefixes_join_as_recorded() {
    let mut store = Store::new(TCP);
    let gloo = PrefixStore::new("default_pg", &mut store).nest("0/").nest("cpu/").nest("0");
    let Answer::WouldBlock(keys) = gloo.get("2").unwrap() else { panic!("it is not there") };
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let error = store.timed_out(&keys, 3000);
    assert_eq!(error.text, "wait timeout after 3000ms, keys: /default_pg/0//cpu//0/2");
}

proptest! {
    /// Against a plain map, for any sequence of operations, through a prefix and beside it.
    #[test]
    fn a_prefix_store_is_a_map_of_its_own(
        calls in prop::collection::vec((0..5u8, 0..4u8, prop::collection::vec(any::<u8>(), 0..3)), 0..60)
    ) {
        let mut store = Store::new(StoreKind::Hash);
        store.set("k0", b"outside").unwrap();
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut prefixed = PrefixStore::new("p", &mut store);
        for (call, key, value) in calls {
            let key = format!("k{key}");
            match call {
                0 => {
                    prefixed.set(&key, &value).unwrap();
                    model.insert(key.clone(), value);
                }
                1 => {
                    prefixed.append(&key, &value).unwrap();
                    model.entry(key.clone()).or_default().extend(value);
                }
                2 => prop_assert_eq!(prefixed.delete_key(&key).unwrap(), model.remove(&key).is_some()),
                3 => {
                    let held = model.get(&key).cloned();
                    let answer = prefixed.compare_set(&key, &value, b"new").unwrap();
                    let swaps = held.as_deref().unwrap_or_default() == value;
                    let expected = if swaps { b"new".to_vec() } else { held.unwrap_or(value) };
                    prop_assert_eq!(&answer, &expected);
                    if swaps {
                        model.insert(key.clone(), answer);
                    }
                }
                _ => prop_assert_eq!(prefixed.check(&[&key]).unwrap(), model.contains_key(&key)),
            }
            prop_assert_eq!(prefixed.get(&key).unwrap().ready(), model.get(&key).cloned());
        }
        prop_assert_eq!(store.num_keys().unwrap(), model.len() as u64 + 1);
        prop_assert_eq!(store.get("k0").unwrap().ready().unwrap(), b"outside");
    }
}
