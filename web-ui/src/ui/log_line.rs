//! A line of a job's log that a finding names, with those around it.

use super::dropped::excerpt;
use crate::app::use_shared;
use crate::dom;
use lockstep_diagnosis::Place;
use lockstep_web_protocol::{Request, Response, SessionId};
use web_sys::Element;
use yew::prelude::*;

/// Properties of [`LogLine`].
#[derive(Properties, PartialEq)]
pub(crate) struct LogLineProps {
    pub(crate) place: Place,
    /// The session whose files hold it.
    pub(crate) session: SessionId,
    /// The words that open it.
    pub(crate) words: Html,
}

/// Words that open the line of the log below them, and close it again.
#[component(LogLine)]
pub(crate) fn log_line(props: &LogLineProps) -> Html {
    let client = use_shared().client;
    let shown = use_state(|| None::<Html>);
    let lines = use_node_ref();
    use_effect_with(shown.is_some(), {
        let lines = lines.clone();
        move |_| {
            // The element around the lines has no box of its own.
            let lines = lines.cast::<Element>().and_then(|lines| lines.first_element_child());
            lines.iter().for_each(dom::bring_into_sight);
        }
    });
    let (session, place, open) = (props.session, props.place.clone(), shown.clone());
    let toggle = Callback::from(move |_: MouseEvent| {
        let (client, place, open) = (client.clone(), place.clone(), open.clone());
        if open.is_some() {
            return open.set(None);
        }
        wasm_bindgen_futures::spawn_local(async move {
            let request = Request::LogLines { session, place: place.clone() };
            open.set(match client.ask(request).await.map(|answered| answered.response) {
                Ok(Response::LogLines(lines)) => Some(excerpt(
                    &place.file,
                    &lines.text,
                    lines.first as usize,
                    place.line as usize,
                )),
                Ok(_) => None,
                Err(why) => Some(
                    html! { <p class="note" role="status" data-test="log-missing">{ why }</p> },
                ),
            });
        });
    });
    html! {
        <>
            <button class="goes line" onclick={toggle} aria-expanded={shown.is_some().to_string()} title="Show the line of the log" data-test="go-log">{ props.words.clone() }</button>
            // One element, open or not: without it the button would be replaced and lose the focus.
            <div class="log-lines" ref={lines}>{ for (*shown).clone() }</div>
        </>
    }
}
