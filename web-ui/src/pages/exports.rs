//! The buttons that hand a trace or a plan to the user as a file.

use crate::app::use_shared;
use crate::dom;
use lockstep_core::plan::Plan;
use lockstep_web_protocol::{Form, Request, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Exports`].
#[derive(Properties, PartialEq)]
pub(super) struct ExportsProps {
    pub(super) session: Option<SessionId>,
    /// The file's name without its ending.
    pub(super) name: String,
    #[prop_or_default]
    pub(super) plan: Option<Rc<Plan>>,
}

/// The buttons that hand a trace or a plan to the user as a file.
#[component(Exports)]
pub(super) fn exports(props: &ExportsProps) -> Html {
    let client = use_shared().client;
    let save = |form: Form, ending: &'static str| {
        let (client, session, name) = (client.clone(), props.session, props.name.clone());
        Callback::from(move |_: MouseEvent| {
            let (Some(session), client, name) = (session, client.clone(), name.clone()) else {
                return;
            };
            wasm_bindgen_futures::spawn_local(async move {
                if let Ok(answered) = client.ask(Request::Export { session, form }).await {
                    dom::download(&format!("{name}.{ending}"), &answered.bytes());
                }
            });
        })
    };
    let plan = {
        let (plan, name) = (props.plan.clone(), props.name.clone());
        Callback::from(move |_: MouseEvent| {
            if let Some(plan) = &plan {
                dom::download(&format!("{name}.plan.json"), plan.to_json().as_bytes());
            }
        })
    };
    let disabled = props.session.is_none();
    html! {
        <div class="row exports">
            <span class="muted">{ "Save" }</span>
            <button class="quiet" onclick={save(Form::Binary, "lks")} {disabled} title="The trace, binary" data-test="export-binary">{ "trace .lks" }</button>
            <button class="quiet" onclick={save(Form::Json, "trace.json")} {disabled} title="The trace as JSON" data-test="export-json">{ "trace .json" }</button>
            if props.plan.is_some() {
                <button class="quiet" onclick={plan} title="The plan as JSON" data-test="export-plan">{ "plan .json" }</button>
            }
        </div>
    }
}
