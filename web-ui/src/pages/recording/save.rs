//! *Save as a page*: one HTML file with the viewer and the recording inside, written by
//! `assets/save.js`, which is fetched when it is asked for.

use super::files::path_of;
use super::without_source;
use crate::app::use_shared;
use crate::dom;
use crate::explain;
use js_sys::{Array, Function, Promise};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, File};
use yew::prelude::*;

/// A page of more is one that no browser opens.
const MAX_BYTES: f64 = (256u64 << 20) as f64;

/// The name of the file.
const NAME: &str = "lockstep-recording.html";

/// The function that `assets/page.js` puts into the window; a page that was saved has none.
fn saved_page() -> Option<Function> {
    js_sys::Reflect::get(&dom::window(), &"lockstep_saved_page".into()).ok()?.dyn_into().ok()
}

/// Properties of [`Save`].
#[derive(Properties)]
pub(super) struct SaveProps {
    /// All files that were opened together.
    pub(super) files: Rc<RefCell<Vec<File>>>,
    /// The programs among what was dropped.
    pub(super) programs: Rc<RefCell<Vec<File>>>,
}

impl PartialEq for SaveProps {
    fn eq(&self, other: &SaveProps) -> bool {
        Rc::ptr_eq(&self.files, &other.files) && Rc::ptr_eq(&self.programs, &other.programs)
    }
}

/// The button, and why it could not be done.
#[component(Save)]
pub(super) fn save(props: &SaveProps) -> Html {
    let nav = use_shared().nav;
    let said = use_state(String::new);
    if saved_page().is_none() {
        return html! {};
    }
    let save = {
        let (files, programs) = (props.files.clone(), props.programs.clone());
        // The page carries its files, a sample's too.
        let hash = without_source(nav.route.clone()).to_hash();
        let said = said.setter();
        Callback::from(move |_: MouseEvent| {
            let files = [files.borrow().clone(), programs.borrow().clone()].concat();
            let (said, hash) = (said.clone(), hash.clone());
            said.set("Packing…".to_owned());
            wasm_bindgen_futures::spawn_local(async move {
                said.set(match page_of(&files, &hash).await {
                    Ok(page) => {
                        dom::download_blob(NAME, &page);
                        format!("Saved as {NAME}.")
                    }
                    Err(why) => why,
                });
            });
        })
    };
    html! {
        <>
        <button onclick={save} title="One HTML file with this viewer and the recording inside: it opens anywhere, without a server"
                data-test="save-page">{ "Save as a page" }</button>
        <span class="muted small-print" aria-live="polite" data-test="save-said">{ (*said).clone() }</span>
        </>
    }
}

/// The page with these files, as it opens at an address.
async fn page_of(files: &[File], hash: &str) -> Result<Blob, String> {
    let bytes: f64 = files.iter().map(|file| file.size()).sum();
    if bytes > MAX_BYTES {
        return Err(format!(
            "The files have {} together; a page holds up to {}. Send the files themselves.",
            explain::bytes(bytes as u64),
            explain::bytes(MAX_BYTES as u64)
        ));
    }
    let words = |error: JsValue| format!("This could not be saved: {}", dom::words_of(&error));
    let pairs: Array = files.iter().map(|file| Array::of2(&path_of(file).into(), file)).collect();
    let saved_page = saved_page().ok_or("This page was saved itself: send its file.")?;
    let saved = saved_page.call2(&JsValue::NULL, &pairs, &hash.into()).map_err(words)?;
    let saved = JsFuture::from(saved.unchecked_into::<Promise>()).await.map_err(words)?;
    saved.dyn_into().map_err(words)
}
