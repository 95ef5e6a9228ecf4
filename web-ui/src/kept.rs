//! The files of the recordings that were opened last, kept in the browser (IndexedDB), so that neither a reload nor
//! another recording loses one; and per recording its address with the reader's marks: the selected call, the filter,
//! pins, notes.
//!
//! They stay on this machine until their user closes the recording, or until newer ones need the room. What does not
//! fit is not kept: the page works without.

use idb::{Database, DatabaseEvent, Error, Factory, ObjectStoreParams, TransactionMode};
use js_sys::{Array, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::File;

const DATABASE: &str = "lockstep";
const STORE: &str = "recording";

/// The key of the names of all that is kept with their bytes, the newest last: `m3x9 1200000 m3xb 52000`.
const NAMES: &str = "names";

/// The bytes that are kept. More have to be dropped again after a reload: a browser would ask, or make room by losing
/// others.
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

/// Returns the name of a recording that is opened now: no other one has it.
pub(crate) fn new_name() -> String {
    format!("{:x}", js_sys::Date::now() as u64)
}

/// Keeps the files of a recording, in place of those that it had before, and drops the oldest ones that leave it no room.
pub(crate) async fn keep(name: String, files: Vec<Kept>) {
    let bytes: f64 = files.iter().map(|kept| kept.file.size()).sum();
    // If it fails, nothing is kept.
    let _ = write(name, bytes, files).await;
}

async fn write(name: String, bytes: f64, files: Vec<Kept>) -> Result<(), Error> {
    if bytes > MAX_BYTES {
        forget(&name).await;
        return Ok(());
    }
    let mut names = names().await;
    names.retain(|(kept, _)| *kept != name);
    while !names.is_empty() && names.iter().map(|(_, bytes)| bytes).sum::<f64>() + bytes > MAX_BYTES
    {
        forget(&names.remove(0).0).await;
    }
    let pairs = files.iter().map(|kept| Array::of2(&kept.file, &JsValue::from_str(&kept.path)));
    put(&name, Some(pairs.collect::<Array>().into())).await?;
    names.push((name, bytes));
    write_names(&names).await
}

/// Forgets a recording.
pub(crate) async fn forget(name: &str) {
    let mut names = names().await;
    names.retain(|(kept, _)| kept != name);
    let _ = write_names(&names).await;
    let _ = put(name, None).await;
    let _ = put(&address_of(name), None).await;
}

async fn names() -> Vec<(String, f64)> {
    let text = get(NAMES).await.ok().flatten().and_then(|text| text.as_string());
    let text = text.unwrap_or_default();
    let mut words = text.split(' ');
    let mut names = Vec::new();
    while let (Some(name), Some(bytes)) = (words.next(), words.next()) {
        names.push((name.to_owned(), bytes.parse().unwrap_or(0.0)));
    }
    names
}

async fn write_names(names: &[(String, f64)]) -> Result<(), Error> {
    let words: Vec<String> = names.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
    put(NAMES, Some(words.join(" ").into()).filter(|_| !words.is_empty())).await
}

/// Returns the name of the recording that was opened last, if any is kept.
pub(crate) async fn newest() -> Option<String> {
    names().await.pop().map(|(name, _)| name)
}

/// Keeps the address of a recording with the reader's marks.
pub(crate) async fn keep_address(name: &str, hash: String) {
    let _ = put(&address_of(name), Some(hash.into())).await;
}

/// Returns the address of a recording that was kept, if any.
pub(crate) async fn address(name: &str) -> Option<String> {
    get(&address_of(name)).await.ok().flatten()?.as_string()
}

fn address_of(name: &str) -> String {
    format!("{name} address")
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

/// Returns the files of a recording that was kept; none if it is not.
pub(crate) async fn kept(name: &str) -> Vec<Kept> {
    let found = get(name).await.ok().flatten();
    let pair = |pair: JsValue| {
        let file = Reflect::get_u32(&pair, 0).ok()?.dyn_into::<File>().ok()?;
        Some(Kept { file, path: Reflect::get_u32(&pair, 1).ok()?.as_string()? })
    };
    let pairs = found.and_then(|found| found.dyn_into::<Array>().ok());
    pairs.iter().flat_map(|pairs| pairs.iter()).filter_map(pair).collect()
}
