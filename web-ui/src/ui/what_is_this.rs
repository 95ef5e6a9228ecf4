//! The explanation of a kind of finding, which the engine is asked for once somebody wants it.

use super::prose::prose;
use crate::app::use_shared;
use crate::route::{Route, View};
use lockstep_diagnosis::Kind;
use lockstep_web_protocol::{KindExplanation, Request, Response};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`WhatIsThis`].
#[derive(Properties, PartialEq)]
pub(super) struct WhatIsThisProps {
    pub(super) kind: Kind,
}

/// The explanation of a kind of finding, for whoever asks, with a hang of the gallery that shows one.
#[component(WhatIsThis)]
pub(super) fn what_is_this(props: &WhatIsThisProps) -> Html {
    let client = use_shared().client;
    let asked = use_state(|| false);
    let told = use_state(|| None::<Rc<KindExplanation>>);
    {
        let told = told.setter();
        use_effect_with((props.kind, *asked), move |&(kind, asked)| {
            told.set(None);
            if asked {
                wasm_bindgen_futures::spawn_local(async move {
                    let answered = client.ask(Request::ExplainKind { kind }).await;
                    if let Ok(Response::KindExplained(found)) =
                        answered.map(|answered| answered.response)
                    {
                        told.set(Some(Rc::new(found)));
                    }
                });
            }
        });
    }
    let ask = {
        let asked = asked.setter();
        Callback::from(move |_: MouseEvent| asked.set(true))
    };
    let part = |(label, text): &(String, String)| {
        html! { <><dt>{ label }</dt><dd>{ prose(text) }</dd></> }
    };
    html! {
        <details class="what" data-test="what-is-this">
            <summary onclick={ask}>{ "What is this?" }</summary>
            if let Some(told) = &*told {
                <dl>{ for told.parts.iter().map(part) }</dl>
                if let Some(id) = &told.hang {
                    <p><a href={Route::below(View::Hangs, id).with("ask", true).to_hash()}>{ "Step through a job that hangs like this" }</a></p>
                }
            }
        </details>
    }
}
