//! The explanation of a kind of finding, which the engine is asked for once somebody wants it.

use super::prose::prose;
use crate::app::use_shared;
use crate::route::{Route, View};
use crate::turns::use_turns;
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
    let told = use_state(|| None::<Result<Rc<KindExplanation>, String>>);
    {
        let (told, turns) = (told.setter(), use_turns());
        use_effect_with((props.kind, *asked), move |&(kind, asked)| {
            told.set(None);
            let turn = turns.next();
            if asked {
                wasm_bindgen_futures::spawn_local(async move {
                    let answered = client.ask(Request::ExplainKind { kind }).await;
                    let found = match answered.map(|answered| answered.response) {
                        Ok(Response::KindExplained(found)) => Ok(Rc::new(found)),
                        Ok(_) => return,
                        Err(why) => Err(why),
                    };
                    if turn.counts() {
                        told.set(Some(found));
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
            { match &*told {
                None => html! {},
                Some(Err(why)) => html! { <p class="bad" role="alert">{ why }</p> },
                Some(Ok(told)) => html! {
                    <><dl>{ for told.parts.iter().map(part) }</dl>
                    if let Some(id) = &told.hang {
                        <p><a href={Route::below(View::Hangs, id).to_hash()}>{ "Step through a job that hangs like this" }</a></p>
                    }</>
                },
            } }
        </details>
    }
}
