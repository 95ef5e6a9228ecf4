//! The keys, and when a key is not meant for us.

use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, KeyboardEvent};
use yew::prelude::*;

/// True while the user types into a field, or holds a key that belongs to the browser.
pub(crate) fn typing(event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok());
    let tag = target.as_ref().map(|target| target.tag_name()).unwrap_or_default();
    let range =
        target.as_ref().is_some_and(|t| t.get_attribute("type").as_deref() == Some("range"));
    event.ctrl_key()
        || event.meta_key()
        || event.alt_key()
        || tag == "SELECT"
        || tag == "TEXTAREA"
        || (tag == "INPUT" && !range)
        // Space and Enter press what has the focus.
        || (matches!(tag.as_str(), "BUTTON" | "A" | "SUMMARY")
            && matches!(event.key().as_str(), " " | "Enter"))
}

const KEYS: [(&str, &str); 13] = [
    ("Space", "play or pause"),
    ("→", "forward, to the next moment or step"),
    ("←", "back"),
    ("Home, End", "to the start, to the end"),
    ("+ −", "faster, slower"),
    ("C, Shift+C", "program: on to the next stop, back to the one before"),
    ("N P", "program: the rank's next call, the one before"),
    ("W S", "timeline: zoom in, out (also wheel, pinch)"),
    ("A D", "timeline: left, right (also drag)"),
    ("0", "timeline: show all of it"),
    ("↑ ↓", "timeline with the focus: other ranks"),
    ("Tab", "to the next control"),
    ("?", "this list"),
];

/// Properties of [`KeysHelp`].
#[derive(Properties, PartialEq)]
pub(crate) struct KeysHelpProps {
    pub(crate) on_close: Callback<()>,
}

/// The list of keys, over the page.
#[component(KeysHelp)]
pub(crate) fn keys_help(props: &KeysHelpProps) -> Html {
    let button = use_node_ref();
    {
        let button = button.clone();
        use_effect_with((), move |()| {
            if let Some(button) = button.cast::<HtmlElement>() {
                let _ = button.focus();
            }
        });
    }
    let close = props.on_close.reform(|_: MouseEvent| ());
    let stay = Callback::from(|event: MouseEvent| event.stop_propagation());
    html! {
        <div class="veil" onclick={close.clone()}>
            <div class="dialog" role="dialog" aria-modal="true" aria-label="Keys" onclick={stay} data-test="keys-help">
                <h2>{ "Keys" }</h2>
                <dl class="facts">
                    { for KEYS.iter().map(|(key, does)| html! {
                        <><dt><kbd>{ *key }</kbd></dt><dd>{ *does }</dd></>
                    }) }
                </dl>
                <button ref={button} onclick={close} data-test="keys-close">{ "Close" }</button>
            </div>
        </div>
    }
}
