//! Every real store against the table in `core`, for random sequences of operations.

use lockstep_gpu_exec::store::{
    FileStore, HashStore, PrefixStore, Store, StoreClient, StoreError, StoreServer,
};
use lockstep_torch::c10d::store::{Answer, Store as Table, StoreKind};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Call {
    Set(String, Vec<u8>),
    Get(String),
    Add(String, i64),
    Append(String, Vec<u8>),
    Check(Vec<String>),
    CompareSet(String, Vec<u8>, Vec<u8>),
    Wait(Vec<String>),
    DeleteKey(String),
    NumKeys,
    MultiGet(Vec<String>),
    MultiSet(Vec<(String, Vec<u8>)>),
}

/// The result of a call, as text that can be compared.
fn told<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    answer.map_or_else(|error| error.to_string(), |answer| format!("{answer:?}"))
}

/// Long enough for a call, short enough for waits in vain.
const TIMEOUT: Duration = Duration::from_millis(2);

fn ask(store: &mut dyn Store, call: &Call) -> String {
    match call {
        Call::Set(key, value) => told(store.set(key, value)),
        Call::Get(key) => told(store.get(key)),
        Call::Add(key, by) => told(store.add(key, *by)),
        Call::Append(key, value) => told(store.append(key, value)),
        Call::CompareSet(key, expected, desired) => told(store.compare_set(key, expected, desired)),
        Call::DeleteKey(key) => told(store.delete_key(key)),
        Call::NumKeys => told(store.num_keys()),
        Call::Check(keys) => told(store.check(&refs(keys))),
        Call::Wait(keys) => told(store.wait(&refs(keys), None)),
        Call::MultiGet(keys) => told(store.multi_get(&refs(keys))),
        Call::MultiSet(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
            told(store.multi_set(&entries))
        }
    }
}

fn refs(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

/// The table's answer; a call that would wait has waited in vain.
fn model(table: &mut Table, call: &Call) -> String {
    fn answered<T: std::fmt::Debug>(
        table: &Table,
        keys: &[&str],
        get: bool,
        answer: Answer<T>,
    ) -> String {
        match answer {
            Answer::Ready(answer) => format!("{answer:?}"),
            Answer::WouldBlock(missing) if get => {
                table.timed_out_getting(keys, &missing[0], 2).to_string()
            }
            Answer::WouldBlock(_) => table.timed_out(keys, 2).to_string(),
        }
    }
    let result = match call {
        Call::Set(key, value) => table.set(key, value).map(|()| "()".to_owned()),
        Call::Get(key) => table.get(key).map(|answer| answered(table, &[key], true, answer)),
        Call::Add(key, by) => table.add(key, *by).map(|sum| format!("{sum:?}")),
        Call::Append(key, value) => table.append(key, value).map(|()| "()".to_owned()),
        Call::CompareSet(key, expected, desired) => {
            table.compare_set(key, expected, desired).map(|value| format!("{value:?}"))
        }
        Call::DeleteKey(key) => table.delete_key(key).map(|there| format!("{there:?}")),
        Call::NumKeys => table.num_keys().map(|keys| format!("{keys:?}")),
        Call::Check(keys) => table.check(&refs(keys)).map(|there| format!("{there:?}")),
        Call::Wait(keys) => {
            table.wait(&refs(keys)).map(|answer| answered(table, &refs(keys), false, answer))
        }
        Call::MultiGet(keys) => {
            table.multi_get(&refs(keys)).map(|answer| answered(table, &refs(keys), true, answer))
        }
        Call::MultiSet(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
            table.multi_set(&entries).map(|()| "()".to_owned())
        }
    };
    result.unwrap_or_else(|error| error.to_string())
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = || prop::sample::select(vec!["a", "b", "c", "n"]).prop_map(str::to_owned);
    let keys = || prop::collection::vec(key(), 1..4);
    let value = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            (-20i64..20).prop_map(|n| n.to_string().into_bytes()),
            Just(Vec::new()),
        ]
    };
    let call = prop_oneof![
        (key(), value()).prop_map(|(k, v)| Call::Set(k, v)),
        key().prop_map(Call::Get),
        (key(), -5i64..5).prop_map(|(k, n)| Call::Add(k, n)),
        (key(), value()).prop_map(|(k, v)| Call::Append(k, v)),
        keys().prop_map(Call::Check),
        (key(), value(), value()).prop_map(|(k, e, d)| Call::CompareSet(k, e, d)),
        keys().prop_map(Call::Wait),
        key().prop_map(Call::DeleteKey),
        Just(Call::NumKeys),
        keys().prop_map(Call::MultiGet),
        prop::collection::vec((key(), value()), 0..3).prop_map(Call::MultiSet),
    ];
    prop::collection::vec(call, 0..40)
}

/// Compares call by call, until the store's connection is dropped.
fn compare(kind: StoreKind, mut store: impl Store, calls: &[Call]) -> Result<(), TestCaseError> {
    let mut table = Table::new(kind);
    store.set_timeout(TIMEOUT);
    for (index, call) in calls.iter().enumerate() {
        let expected = model(&mut table, call);
        let answer = ask(&mut store, call);
        prop_assert_eq!(&answer, &expected, "{:?}, call {}: {:?}", kind, index, call);
        if expected.starts_with("DistNetworkError") {
            // A dropped connection: what is only sent would not notice at once.
            break;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_store_answers_as_the_table_does(calls in calls()) {
        compare(StoreKind::Hash, HashStore::new(), &calls)?;
        let folder = tempfile::tempdir().unwrap();
        let file = FileStore::open(folder.path().join("store"), Some(1)).unwrap();
        compare(StoreKind::File, file, &calls)?;
        let server = StoreServer::start().unwrap();
        let client = StoreClient::connect(server.address(), Duration::from_secs(20)).unwrap();
        compare(StoreKind::Tcp { counts_workers: false }, client, &calls)?;
    }

    /// A prefix changes nothing but the texts of timeouts, which name the keys below.
    #[test]
    fn a_prefix_is_a_store_of_its_own(calls in calls()) {
        let below = HashStore::new();
        below.clone().set("a", b"outside").unwrap();
        let mut prefixed = PrefixStore::new("p", below.clone());
        prefixed.set_timeout(TIMEOUT);
        let mut table = Table::new(StoreKind::Hash);
        for call in calls.iter().filter(|call| !matches!(call, Call::NumKeys)) {
            prop_assert_eq!(ask(&mut prefixed, call), model(&mut table, call), "{:?}", call);
        }
        prop_assert_eq!(below.clone().get("a").unwrap(), b"outside");
        prop_assert_eq!(below.clone().num_keys().unwrap(), table.num_keys().unwrap() + 1);
    }
}
