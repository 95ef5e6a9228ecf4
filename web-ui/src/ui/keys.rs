//! The keys, and when a key is not meant for us.

use crate::dom::{self, Listener};
use lockstep_web_protocol::RowKind;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Event, HtmlDialogElement, HtmlElement, KeyboardEvent};
use yew::prelude::*;

/// True while the user types into a field, or holds a key that belongs to the browser.
pub(crate) fn typing(event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok());
    let tag = target.as_ref().map(|target| target.tag_name()).unwrap_or_default();
    // The one slider that says where the simulation is: it moves by the same keys. Any other has
    // them for itself.
    let scrub = target.as_ref().is_some_and(|target| target.class_list().contains("scrub"));
    let dialog = dom::document().query_selector("dialog[open]").ok().flatten();
    dialog.is_some()
        || event.ctrl_key()
        || event.meta_key()
        || event.alt_key()
        || tag == "SELECT"
        || tag == "TEXTAREA"
        || (tag == "INPUT" && !scrub)
        // Space and Enter press what has the focus.
        || (matches!(tag.as_str(), "BUTTON" | "A" | "SUMMARY")
            && matches!(event.key().as_str(), " " | "Enter"))
}

/// A place where keys are heard, and the effect of each.
type Keys = (&'static str, &'static [(&'static str, &'static str)]);

const KEYS: [Keys; 6] = [
    ("Everywhere", &[("Tab", "to the next control"), ("?", "this list")]),
    (
        "Moments: Step, Hangs, Program, Learn",
        &[
            ("Space", "play or pause"),
            ("→ ←", "forward, to the next moment or step; back"),
            ("Home, End", "to the start, to the end"),
            ("+ −", "faster, slower"),
        ],
    ),
    (
        "Programs",
        &[
            ("C, Shift+C", "on to the next stop, back to the one before"),
            ("N P", "the rank's next call, the one before"),
            (
                "F, /, R, M",
                "as in recordings; so are the arrows, once a call of the timeline is selected",
            ),
            ("Ctrl+Enter", "editor: run what was typed"),
            ("Tab", "editor: indent; Esc leaves it, so that Tab goes on"),
        ],
    ),
    (
        "Timelines",
        &[
            ("W S", "zoom in, out (also wheel, pinch)"),
            ("A D", "left, right (also drag)"),
            ("0", "show all of it"),
            ("↑ ↓", "with the focus: other ranks; with a call selected, the same call there"),
        ],
    ),
    (
        "Recordings",
        &[
            ("F", "to the next rank that is blamed"),
            ("/", "find calls; Enter and Shift+Enter go to the next hit and the one before"),
            ("← →", "timeline with the focus: the rank's call before and after"),
            ("Enter, Esc", "into the selected call's details, and back"),
            ("N", "a note on the selected call"),
            ("R", "copy the report"),
            ("M", "timeline with the focus: measure what is in sight"),
            ("Shift and drag", "measure a stretch: time in calls, computing, bytes, bus bandwidth"),
        ],
    ),
    ("Lessons", &[("J K", "the next step, the one before"), ("1 2 3 …", "the answers")]),
];

/// Properties of [`KeysHelp`].
#[derive(Properties, PartialEq)]
pub(crate) struct KeysHelpProps {
    pub(crate) on_close: Callback<()>,
}

/// The name of a row, with the one that it has where room is scarce.
fn row_name(kind: RowKind) -> String {
    match kind.names() {
        [full, short] if full == short => full.to_owned(),
        [full, short] => format!("{full} ({short})"),
    }
}

/// The list of keys, over the page.
#[component(KeysHelp)]
pub(crate) fn keys_help(props: &KeysHelpProps) -> Html {
    let dialog = use_node_ref();
    {
        let (dialog, on_close) = (dialog.clone(), props.on_close.clone());
        use_effect_with((), move |()| {
            // The browser keeps the focus in it, and what lies behind it from being used; its own
            // Escape ends in the same event.
            let shown = dialog.cast::<HtmlDialogElement>();
            let heard = shown.as_ref().map(|dialog| {
                let _ = dialog.show_modal();
                // The browser scrolls to the first button, which is the last thing in it.
                dialog.set_scroll_top(0);
                Listener::on(dialog, "close", move |_: Event| on_close.emit(()))
            });
            move || drop(heard)
        });
    }
    let close = {
        let dialog = dialog.clone();
        Callback::from(move |()| {
            if let Some(dialog) = dialog.cast::<HtmlDialogElement>() {
                dialog.close();
            }
        })
    };
    let beside = {
        let (dialog, close) = (dialog.clone(), close.clone());
        // The backdrop belongs to the dialog but is no part of its content.
        Callback::from(move |event: MouseEvent| {
            if event.target().map(JsValue::from) == dialog.get().map(JsValue::from) {
                close.emit(());
            }
        })
    };
    let keyed = {
        let close = close.clone();
        Callback::from(move |event: KeyboardEvent| {
            if event.key() == "?" {
                close.emit(());
            }
        })
    };
    let close = close.reform(|_: MouseEvent| ());
    html! {
        <dialog class="keys" ref={dialog} aria-label="Keys" onclick={beside} onkeydown={keyed} data-test="keys-help">
            <div class="inside">
                <h2>{ "Keys, and names of rows" }</h2>
                { for KEYS.iter().map(|(place, keys)| html! {
                    <section>
                        <h3>{ *place }</h3>
                        <dl class="facts">
                            { for keys.iter().map(|(key, does)| html! {
                                <><dt><kbd>{ *key }</kbd></dt><dd>{ *does }</dd></>
                            }) }
                        </dl>
                    </section>
                }) }
                <section>
                    <h3>{ "Rows of a rank, and their short names" }</h3>
                    <dl class="facts">
                        { for RowKind::ALL.map(|kind| html! {
                            <><dt>{ row_name(kind) }</dt><dd>{ kind.explanation() }</dd></>
                        }) }
                    </dl>
                </section>
                <button onclick={close} data-test="keys-close">{ "Close" }</button>
            </div>
        </dialog>
    }
}
