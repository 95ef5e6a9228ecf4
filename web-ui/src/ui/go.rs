//! Texts that lead to a call in the timeline.

use lockstep_web_protocol::Which;
use yew::prelude::*;

/// A call that somebody wants to see.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Go {
    pub(crate) rank: u32,
    pub(crate) which: Which,
}

/// A text that goes to a call, where it can be gone to.
pub(crate) fn goes(words: String, to: Go, on_go: Option<&Callback<Go>>) -> Html {
    match on_go {
        None => html! { <b>{ words }</b> },
        Some(on_go) => {
            let go = on_go.reform(move |_: MouseEvent| to.clone());
            html! { <button class="goes" onclick={go} title="Show it in the timeline">{ words }</button> }
        }
    }
}
