//! The program as a text to write in.

use super::wrong::wrong_with;
use crate::dom;
use lockstep_scenarios::program::ProgramError;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use web_sys::{File, HtmlInputElement, HtmlTextAreaElement, KeyboardEvent};
use yew::prelude::*;

/// Larger files are no programs.
const MAX_FILE_BYTES: f64 = (1u32 << 20) as f64;

/// Properties of [`Editor`].
#[derive(Properties, PartialEq)]
pub(super) struct EditorProps {
    pub(super) text: Rc<str>,
    pub(super) path: &'static str,
    /// The problem with the text as it was last run.
    pub(super) wrong: Option<Rc<ProgramError>>,
    pub(super) on_run: Callback<String>,
    pub(super) on_close: Callback<()>,
}

/// A text to write in, with numbered lines.
#[component(Editor)]
pub(super) fn editor(props: &EditorProps) -> Html {
    let draft = use_state(|| props.text.to_string());
    let problem = use_state(|| None::<String>);
    {
        let draft = draft.setter();
        use_effect_with(props.text.clone(), move |text| draft.set(text.to_string()));
    }
    let changed = {
        let draft = draft.setter();
        Callback::from(move |event: InputEvent| {
            draft.set(event.target_unchecked_into::<HtmlTextAreaElement>().value());
        })
    };
    let run = {
        let (draft, on_run) = (draft.clone(), props.on_run.clone());
        Callback::from(move |_: MouseEvent| on_run.emit((*draft).clone()))
    };
    let keys = {
        let (draft, on_run) = (draft.clone(), props.on_run.clone());
        Callback::from(move |event: KeyboardEvent| {
            let area: HtmlTextAreaElement = event.target_unchecked_into();
            match event.key().as_str() {
                "Enter" if event.ctrl_key() || event.meta_key() => {
                    event.prevent_default();
                    on_run.emit(area.value());
                }
                // Tab indents; Escape, then Tab, leaves the text for who has no pointer.
                "Tab" if !event.shift_key() => {
                    event.prevent_default();
                    let _ = area.set_range_text("    ");
                    let at = area.selection_start().ok().flatten().unwrap_or(0) + 4;
                    let _ = area.set_selection_range(at, at);
                    draft.set(area.value());
                }
                "Escape" => {
                    let _ = area.blur();
                }
                _ => {}
            }
        })
    };
    let open = {
        let (draft, problem, on_run) = (draft.setter(), problem.setter(), props.on_run.clone());
        Callback::from(move |event: Event| {
            let input: HtmlInputElement = event.target_unchecked_into();
            let file: Option<File> = input.files().and_then(|files| files.get(0));
            // The same file can be chosen again once it was changed.
            input.set_value("");
            let Some(file) = file else { return };
            let (draft, problem, on_run) = (draft.clone(), problem.clone(), on_run.clone());
            wasm_bindgen_futures::spawn_local(async move {
                match text_of(&file).await {
                    Ok(text) => {
                        problem.set(None);
                        draft.set(text.clone());
                        // As one that is dropped: or the last one's ranks would stand beside it.
                        on_run.emit(text);
                    }
                    Err(why) => problem.set(Some(why)),
                }
            });
        })
    };
    let close = props.on_close.reform(|_: MouseEvent| ());
    let rows = draft.lines().count().max(12) + 1;
    let numbers: Vec<String> = (1..=rows).map(|line| line.to_string()).collect();
    html! {
        <div class="editor" data-test="editor">
            <div class="row tools">
                <button class="primary" onclick={run} title="Execute it (Ctrl+Enter)" data-test="run-program">{ "Run" }</button>
                <button onclick={close} data-test="close-editor">{ "Close the editor" }</button>
                <label class="button">{ "Open a file…" }
                    <input class="hidden" type="file" accept=".py,.star,.txt,text/plain" onchange={open} data-test="open-program" /></label>
                <span class="muted mono">{ props.path }</span>
            </div>
            if let Some(why) = &*problem { <p class="bad" role="alert">{ why }</p> }
            if let Some(error) = &props.wrong { { wrong_with(error) } }
            <div class="sheet-of-text">
                <pre class="gutter" aria-hidden="true">{ numbers.join("\n") }</pre>
                <textarea class="mono" spellcheck="false" autocomplete="off" autocapitalize="off" wrap="off" rows={rows.to_string()}
                          value={(*draft).clone()} oninput={changed} onkeydown={keys} aria-label="The program's text" data-test="program-text" />
            </div>
        </div>
    }
}

/// The text of a file.
pub(in crate::pages) async fn text_of(file: &File) -> Result<String, String> {
    if file.size() > MAX_FILE_BYTES {
        return Err(format!("{} is larger than 1 MiB: that is no program.", file.name()));
    }
    let text = wasm_bindgen_futures::JsFuture::from(file.text()).await;
    let text = text.map_err(|error| dom::words_of(&error))?;
    let text = text.dyn_into::<js_sys::JsString>().map(String::from).unwrap_or_default();
    match text.contains('\u{fffd}') || text.contains('\0') {
        true => Err(format!("{} is no text.", file.name())),
        false => Ok(text),
    }
}
