//! The files of the open recording, kept in the browser (IndexedDB), so that a reload loses nothing.
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
    let database = database().await?;
    let transaction = database.transaction(&[STORE], TransactionMode::ReadWrite)?;
    let store = transaction.object_store(STORE)?;
    let key = JsValue::from_str(KEY);
    match files {
        Some(files) => {
            let pairs =
                files.iter().map(|kept| Array::of2(&kept.file, &JsValue::from_str(&kept.path)));
            store.put(&pairs.collect::<Array>(), Some(&key))?.await?;
        }
        None => store.delete(key)?.await?,
    }
    transaction.commit()?.await?;
    database.close();
    Ok(())
}

/// Returns the files that were kept, if any.
pub(crate) async fn kept() -> Vec<Kept> {
    read().await.unwrap_or_default()
}

async fn read() -> Result<Vec<Kept>, Error> {
    let database = database().await?;
    let transaction = database.transaction(&[STORE], TransactionMode::ReadOnly)?;
    let found = transaction.object_store(STORE)?.get(JsValue::from_str(KEY))?.await?;
    database.close();
    let pair = |pair: JsValue| {
        let file = Reflect::get_u32(&pair, 0).ok()?.dyn_into::<File>().ok()?;
        Some(Kept { file, path: Reflect::get_u32(&pair, 1).ok()?.as_string()? })
    };
    let pairs = found.and_then(|found| found.dyn_into::<Array>().ok());
    Ok(pairs.iter().flat_map(|pairs| pairs.iter()).filter_map(pair).collect())
}
