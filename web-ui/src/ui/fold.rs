//! A form that folds on a phone, so that the drawings are in sight; elsewhere it is always open.

use crate::dom::{self, Listener};
use wasm_bindgen::JsCast;
use web_sys::{Element, Event, HtmlElement};
use yew::prelude::*;

/// The widths at which `assets/style.css` lays out for a phone.
const NARROW: &str = "(max-width: 640px)";

/// Given around a view that is shown beside a text: its form folds on wide pages, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Beside {
    /// True if the text asks what the diagnosis would answer, so that it is not shown yet.
    pub(crate) asking: bool,
}

/// True if a text beside this view asks what the diagnosis would answer.
#[hook]
pub(crate) fn use_asking() -> bool {
    use_context::<Beside>().is_some_and(|beside| beside.asking)
}

/// Properties of [`Fold`].
#[derive(Properties, PartialEq)]
pub(crate) struct FoldProps {
    /// The choice, in a few words.
    pub(crate) words: String,
    pub(crate) children: Children,
}

/// The part of a form that folds.
#[component(Fold)]
pub(crate) fn fold(props: &FoldProps) -> Html {
    let beside = use_context::<Beside>().is_some();
    let narrow = use_state(|| dom::media(NARROW));
    let open = use_state(|| false);
    {
        let narrow = narrow.setter();
        use_effect_with((), move |()| {
            let list = dom::window().match_media(NARROW).ok().flatten();
            let heard = list.map(|list| {
                Listener::on(&list, "change", move |_: Event| narrow.set(dom::media(NARROW)))
            });
            move || drop(heard)
        });
    }
    let toggle = {
        let open = open.clone();
        // The attribute is ours to set.
        Callback::from(move |event: MouseEvent| {
            event.prevent_default();
            open.set(!*open);
        })
    };
    let skip = Callback::from(|event: MouseEvent| {
        let button = event.target_dyn_into::<Element>();
        let form = button.and_then(|button| button.closest("aside").ok().flatten());
        let behind = form.and_then(|form| form.next_element_sibling());
        if let Some(behind) = behind.and_then(|behind| behind.dyn_into::<HtmlElement>().ok()) {
            behind.set_tab_index(-1);
            let _ = behind.focus();
        }
    });
    html! {
        <details class="fold" open={!(*narrow || beside) || *open}>
            <summary onclick={toggle} data-test="fold"><span>{ &props.words }</span></summary>
            <div class="body"><button class="skip" type="button" onclick={skip} data-test="skip-form">{ "Skip the form" }</button>
                { props.children.clone() }</div>
        </details>
    }
}
