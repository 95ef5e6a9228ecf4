//! Objects and stores.

use super::*;

pub(super) fn objects_and_stores() -> Vec<Case> {
    vec![
        differs("broadcast_object_list_length_mismatch", &[1], MISMATCH, |dist| {
            gloo(dist)?;
            let objects = match rank(dist) {
                0 => vec![int(1), int(2)],
                _ => vec![int(0)],
            };
            dist.broadcast_object_list(&objects, FromRank::src(0)).map(nothing)
        }),
        case("scatter_object_list_missing", |dist| {
            gloo(dist)?;
            dist.scatter_object_list(1, None, FromRank::src(0)).map(nothing)
        }),
        case("all_gather_object_short_list", |dist| {
            gloo(dist)?;
            dist.all_gather_object(1, &int(1), None).map(nothing)
        }),
        case("store_get_missing_key", |_| {
            let store = Store::new(StoreKind::Tcp { counts_workers: true });
            let answer = store.wait(&["k"])?;
            assert!(store.get("k")?.ready().is_none());
            store_timeout(&store, answer, &["k"])
        }),
        case("store_wait_missing_key", |_| {
            let store = Store::new(StoreKind::Tcp { counts_workers: true });
            store_timeout(&store, store.wait(&["a", "b"])?, &["a", "b"])
        }),
        case("store_add_on_non_numeric_value", |_| {
            let mut store = Store::new(StoreKind::Tcp { counts_workers: true });
            store.set("k", b"text")?;
            let said = [store.add("k", 1).unwrap_err(), store.get("k").unwrap_err()];
            json(said.map(|error| error.to_string()).to_vec())
        }),
        case("hash_store_get_missing", |_| {
            let store = Store::new(StoreKind::Hash);
            store_timeout(&store, store.wait(&["k"])?, &["k"])
        }),
    ]
}
