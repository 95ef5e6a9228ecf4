//! Texts that lead to a call in the timeline.

use lockstep_web_protocol::{CallMark, Client, Response, SessionId, SessionQuestion, Which};
use yew::prelude::*;

/// A call that somebody wants to see.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Go {
    pub(crate) rank: u32,
    pub(crate) which: Which,
}

/// Looks for a call in a session, and hands it to `show`.
pub(crate) fn going(client: Client, session: SessionId, show: &Callback<CallMark>) -> Callback<Go> {
    let show = show.clone();
    Callback::from(move |Go { rank, which }: Go| {
        let (client, show) = (client.clone(), show.clone());
        wasm_bindgen_futures::spawn_local(async move {
            let question = SessionQuestion::Locate { rank, which }.about(session);
            let answered = client.ask(question).await;
            if let Ok(Response::Located(Some(mark))) = answered.map(|answered| answered.response) {
                show.emit(mark);
            }
        });
    })
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
