//! The files of a drop or a picker, with those of folders.

use crate::kept::Kept;
use js_sys::{Array, Promise};
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DragEvent, File, FileList, FileSystemDirectoryEntry, FileSystemEntry, FileSystemFileEntry,
    HtmlInputElement,
};

/// A folder with more files than this is not a job's dumps.
const MAX_FILES: usize = 100_000;

/// A property of files in dropped folders: where they lie there, which browsers do not say of them.
const DROPPED_AT: &str = "droppedAt";

/// A file's place in the folder that was chosen or dropped, if one was, else its name.
pub(in crate::pages) fn path_of(file: &File) -> String {
    let said = |key: &str| js_sys::Reflect::get(file, &key.into()).ok()?.as_string();
    let mut within = [DROPPED_AT, "webkitRelativePath"].into_iter().filter_map(said);
    within.find(|path| !path.is_empty()).unwrap_or_else(|| file.name())
}

/// A file that was kept, with its place in the folder that was dropped.
pub(super) fn put_back(kept: Kept) -> File {
    let _ = js_sys::Reflect::set(&kept.file, &DROPPED_AT.into(), &kept.path.into());
    kept.file
}

/// The files that were chosen.
pub(in crate::pages) fn picked(input: &HtmlInputElement) -> Vec<File> {
    listed(input.files())
}

fn listed(files: Option<FileList>) -> Vec<File> {
    let files = files.iter().flat_map(|files| (0..files.length()).filter_map(|at| files.get(at)));
    // What a system leaves in every folder (.DS_Store) is no recording.
    files.filter(|file| !file.name().starts_with('.')).collect()
}

/// The files that were dropped; folders are walked.
pub(crate) fn dropped(event: &DragEvent) -> impl Future<Output = Vec<File>> + use<> {
    let transfer = event.data_transfer();
    let items = transfer.as_ref().map(|transfer| transfer.items());
    let entries: Vec<FileSystemEntry> = items
        .iter()
        .flat_map(|items| (0..items.length()).filter_map(|at| items.get(at)))
        .filter_map(|item| item.webkit_get_as_entry().ok().flatten())
        .collect();
    let plain = listed(transfer.and_then(|transfer| transfer.files()));
    async move {
        if !entries.iter().any(|entry| entry.is_directory()) {
            return plain;
        }
        let (mut files, mut ahead) = (Vec::new(), entries);
        while let Some(entry) = ahead.pop() {
            if files.len() >= MAX_FILES {
                break;
            }
            if entry.is_directory() {
                ahead.extend(inside(entry.unchecked_into()).await);
            } else if !entry.name().starts_with('.')
                && let Some(file) = file_of(entry.unchecked_into()).await
            {
                files.push(file);
            }
        }
        files
    }
}

async fn file_of(entry: FileSystemFileEntry) -> Option<File> {
    let promise = Promise::new(&mut |resolve, reject| {
        entry.file_with_callback_and_callback(&resolve, &reject);
    });
    let file: File = JsFuture::from(promise).await.ok()?.dyn_into().ok()?;
    let path = entry.full_path();
    let _ = js_sys::Reflect::set(&file, &DROPPED_AT.into(), &path.trim_start_matches('/').into());
    Some(file)
}

async fn inside(folder: FileSystemDirectoryEntry) -> Vec<FileSystemEntry> {
    let reader = folder.create_reader();
    let mut entries = Vec::new();
    // A reader gives at most a hundred entries at a time, and none at the end.
    loop {
        let promise = Promise::new(&mut |resolve, reject| {
            let fail = reject.clone();
            let failed =
                Closure::once_into_js(move |error: JsValue| fail.call1(&JsValue::NULL, &error));
            let read =
                reader.read_entries_with_callback_and_callback(&resolve, failed.unchecked_ref());
            if let Err(error) = read {
                let _ = reject.call1(&JsValue::NULL, &error);
            }
        });
        let batch =
            JsFuture::from(promise).await.ok().and_then(|batch| batch.dyn_into::<Array>().ok());
        let before = entries.len();
        entries.extend(
            batch
                .iter()
                .flat_map(|batch| batch.iter())
                .map(JsCast::unchecked_into::<FileSystemEntry>),
        );
        if entries.len() == before || entries.len() >= MAX_FILES {
            return entries;
        }
    }
}
