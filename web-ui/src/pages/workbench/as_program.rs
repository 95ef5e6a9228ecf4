//! A recording as a program that makes the same calls: to be opened in the debugger, or saved.

use crate::app::use_shared;
use crate::dom;
use crate::pages::debugger::code;
use crate::route::{Route, View};
use crate::ui::prose;
use lockstep_web_protocol::{Response, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// A longer text is no address that every browser takes; it can be saved.
const LONGEST_ADDRESS: usize = 60_000;

/// Properties of [`AsProgram`].
#[derive(Properties, PartialEq)]
pub(super) struct AsProgramProps {
    /// The recording.
    pub(super) session: SessionId,
}

/// The progress of the text.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    Written(Rc<str>),
    None(String),
}

/// A button that writes the program, and what can be done with it.
#[component(AsProgram)]
pub(super) fn as_program(props: &AsProgramProps) -> Html {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Idle);
    {
        let stage = stage.setter();
        use_effect_with(props.session, move |_| stage.set(Stage::Idle));
    }
    let write = {
        let (stage, session) = (stage.setter(), props.session);
        Callback::from(move |_: MouseEvent| {
            let (stage, client) = (stage.clone(), client.clone());
            wasm_bindgen_futures::spawn_local(async move {
                stage.set(match client.ask(SessionQuestion::AsProgram.about(session)).await {
                    Err(why) => Stage::None(why),
                    Ok(answered) => match answered.response {
                        Response::ProgramWritten(text) => Stage::Written(text.into()),
                        _ => Stage::Idle,
                    },
                });
            });
        })
    };
    match &*stage {
        Stage::Idle => html! {
            <p class="repair"><button onclick={write} data-test="as-program">{ "Write it as a program" }</button>
                <span class="muted">{ " A few lines of Python that make the same calls, to be changed and run again." }</span></p>
        },
        Stage::None(why) => {
            html! { <p class="repair muted" data-test="no-program">{ prose(why) }</p> }
        }
        Stage::Written(text) => html! {
            <section class="repair" data-test="program-written">
                <h3>{ "As a program" }</h3>
                <pre class="code"><code>{ text.clone() }</code></pre>
                <p>{ open(text) }{ " " }<button onclick={save(text)}>{ "Save job.py" }</button></p>
            </section>
        },
    }
}

/// The link into the debugger.
fn open(text: &Rc<str>) -> Html {
    let code = code::write(text);
    if code.len() > LONGEST_ADDRESS {
        return html! { <span class="muted">{ "It is too long for an address: save it, and drop the file on Program." }</span> };
    }
    let route = Route::to(View::Program).with("code", code);
    html! { <a href={route.to_hash()} data-test="debug-program">{ "Open it in the debugger" }</a> }
}

fn save(text: &Rc<str>) -> Callback<MouseEvent> {
    let text = text.clone();
    Callback::from(move |_: MouseEvent| dom::download("job.py", text.as_bytes()))
}
