//! Static files beside the page: the texts of lessons, and the files that they open.

use crate::dom;
use js_sys::{Array, Uint8Array};
use serde::de::DeserializeOwned;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, Response};
use yew::prelude::*;

/// A file on its way.
pub(super) enum Fetched<T> {
    Loading,
    Here(Rc<T>),
    Failed(Rc<str>),
}

impl<T> Clone for Fetched<T> {
    fn clone(&self) -> Fetched<T> {
        match self {
            Fetched::Loading => Fetched::Loading,
            Fetched::Here(here) => Fetched::Here(here.clone()),
            Fetched::Failed(why) => Fetched::Failed(why.clone()),
        }
    }
}

/// The bytes of a file below `lessons/`.
async fn bytes(name: &str) -> Result<Vec<u8>, String> {
    let path = format!("lessons/{name}");
    let words = |error: JsValue| format!("{path} cannot be fetched: {}", dom::words_of(&error));
    let fetched = JsFuture::from(dom::window().fetch_with_str(&path)).await.map_err(words)?;
    let response: Response = fetched.dyn_into().map_err(words)?;
    if !response.ok() {
        return Err(format!("{path} is not there: status {}", response.status()));
    }
    let buffer = JsFuture::from(response.array_buffer().map_err(words)?).await.map_err(words)?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

async fn json<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    let bytes = bytes(name).await?;
    // Text is parsed everywhere, so that one parser is linked.
    let text = String::from_utf8(bytes).map_err(|_| format!("lessons/{name} is no text"))?;
    serde_json::from_str(&text).map_err(|error| format!("lessons/{name} cannot be read: {error}"))
}

/// The JSON of a file below `lessons/`.
#[hook]
pub(super) fn use_fetched<T: DeserializeOwned + 'static>(name: &str) -> Fetched<T> {
    let state = use_state(|| Fetched::Loading);
    let set = state.setter();
    use_effect_with(name.to_owned(), move |name| {
        let name = name.clone();
        wasm_bindgen_futures::spawn_local(async move {
            set.set(match json(&name).await {
                Ok(found) => Fetched::Here(Rc::new(found)),
                Err(why) => Fetched::Failed(why.into()),
            });
        });
    });
    (*state).clone()
}

/// Files below `lessons/files/`, as if they had been chosen by the user.
///
/// # Errors
/// When one of them cannot be fetched.
pub(super) async fn files(names: &[String]) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for name in names {
        let bytes = bytes(&format!("files/{name}")).await?;
        let parts = Array::of1(&Uint8Array::from(bytes.as_slice()));
        let short = name.rsplit('/').next().unwrap_or(name);
        let file = File::new_with_u8_array_sequence(&parts, short);
        files.push(file.map_err(|error| dom::words_of(&error))?);
    }
    Ok(files)
}

/// The sentence while a file is on its way, or instead of it.
pub(super) fn waiting<T>(fetched: &Fetched<T>) -> Html {
    match fetched {
        Fetched::Failed(why) => html! {
            <p class="banner bad" role="alert" data-test="lesson-missing">{ why.to_string() }</p>
        },
        Fetched::Loading | Fetched::Here(_) => html! { <p class="muted">{ "Fetching…" }</p> },
    }
}
