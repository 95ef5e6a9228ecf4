//! The files of the open recording, kept in the browser (IndexedDB), so that a reload loses nothing; and
//! the address with the reader's marks on it: the selected call, the filter, pins, notes.
//!
//! They stay on this machine, and until their user closes the recording. What does not fit is not
//! kept: the page works without.

use idb::{Database, DatabaseEvent, Error, Factory, ObjectStoreParams, TransactionMode};
use js_sys::{Array, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::File;

const DATABASE: &str = "lockstep";
const STORE: &str = "recording";
const KEY: &str = "files";
const ADDRESS: &str = "address";

/// Larger recordings are dropped again after a reload: a browser would ask, or make room by losing others.
const MAX_BYTES: f64 = (512u64 << 20) as f64;

/// A file with its place in the folder that was dropped.
pub(crate) struct Kept {
    pub(crate) file: File,
    pub(crate) path: String,
}

async fn database() -> Result<Database, Error> {
    let mut opening = Factory::new()?.open(DATABASE, Some(1))?;
    opening.on_upgrade_needed(|event| {
        if let Ok(database) = event.database() {
            // If it fails, so does the first use of the store.
            let _ = database.create_object_store(STORE, ObjectStoreParams::new());
        }
    });
    opening.await
}

/// Keeps these files, in place of what was kept before.
pub(crate) async fn keep(files: Vec<Kept>) {
    let bytes: f64 = files.iter().map(|kept| kept.file.size()).sum();
    // Nothing is kept of what cannot be kept whole.
    let _ = match bytes <= MAX_BYTES {
        true => write(Some(files)).await,
        false => write(None).await,
    };
}

/// Forgets what was kept.
pub(crate) async fn forget() {
    let _ = write(None).await;
}

async fn write(files: Option<Vec<Kept>>) -> Result<(), Error> {
    let value = files.map(|files| {
        let pairs = files.iter().map(|kept| Array::of2(&kept.file, &JsValue::from_str(&kept.path)));
        JsValue::from(pairs.collect::<Array>())
    });
    if value.is_none() {
        put(ADDRESS, None).await?;
    }
    put(KEY, value).await
}

/// Keeps the address of the recording with the reader's marks.
pub(crate) async fn keep_address(hash: String) {
    let _ = put(ADDRESS, Some(hash.into())).await;
}

/// Returns the address that was kept, if any.
pub(crate) async fn address() -> Option<String> {
    get(ADDRESS).await.ok().flatten()?.as_string()
}

async fn put(key: &str, value: Option<JsValue>) -> Result<(), Error> {
    let database = database().await?;
    let transaction = database.transaction(&[STORE], TransactionMode::ReadWrite)?;
    let store = transaction.object_store(STORE)?;
    let key = JsValue::from_str(key);
    match value {
        Some(value) => {
            store.put(&value, Some(&key))?.await?;
        }
        None => store.delete(key)?.await?,
    }
    transaction.commit()?.await?;
    database.close();
    Ok(())
}

async fn get(key: &str) -> Result<Option<JsValue>, Error> {
    let database = database().await?;
    let transaction = database.transaction(&[STORE], TransactionMode::ReadOnly)?;
    let found = transaction.object_store(STORE)?.get(JsValue::from_str(key))?.await?;
    database.close();
    Ok(found)
}

/// Returns the files that were kept, if any.
pub(crate) async fn kept() -> Vec<Kept> {
    read().await.unwrap_or_default()
}

async fn read() -> Result<Vec<Kept>, Error> {
    let found = get(KEY).await?;
    let pair = |pair: JsValue| {
        let file = Reflect::get_u32(&pair, 0).ok()?.dyn_into::<File>().ok()?;
        Some(Kept { file, path: Reflect::get_u32(&pair, 1).ok()?.as_string()? })
    };
    let pairs = found.and_then(|found| found.dyn_into::<Array>().ok());
    Ok(pairs.iter().flat_map(|pairs| pairs.iter()).filter_map(pair).collect())
}
