//! The buttons that hand a trace or a plan to the user as a file.

use crate::app::use_shared;
use crate::dom;
use lockstep_core::plan::Plan;
use lockstep_web_protocol::{Form, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// A form of a trace: the ending of its file, its button, and what reads it.
struct Offer {
    form: Form,
    ending: &'static str,
    label: &'static str,
    title: &'static str,
    test: &'static str,
}

/// Lockstep's own forms.
const OWN: [Offer; 2] = [
    Offer {
        form: Form::Binary,
        ending: "lks",
        label: "trace .lks",
        title: "The trace, binary",
        test: "export-binary",
    },
    Offer {
        form: Form::Json,
        ending: "trace.json",
        label: "trace .json",
        title: "The trace as JSON",
        test: "export-json",
    },
];

/// The forms of other tools.
const OTHERS: [Offer; 4] = [
    Offer {
        form: Form::Perfetto,
        ending: "perfetto-trace",
        label: "Perfetto",
        title: "A trace for ui.perfetto.dev: a process a rank, a track a stream",
        test: "export-perfetto",
    },
    Offer {
        form: Form::Kineto,
        ending: "kineto.zip",
        label: "PyTorch profiles",
        title: "A zip of profiles as PyTorch's profiler (Kineto) writes them, for HolisticTraceAnalysis",
        test: "export-kineto",
    },
    Offer {
        form: Form::Chakra,
        ending: "chakra.zip",
        label: "Chakra",
        title: "A zip of MLCommons Chakra execution traces, for ASTRA-sim",
        test: "export-chakra",
    },
    Offer {
        form: Form::FlightRecorder,
        ending: "dumps.zip",
        label: "Flight Recorder dumps",
        title: "A zip of dumps as PyTorch's Flight Recorder writes them, for torchfrtrace",
        test: "export-flight-recorder",
    },
];

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
    let said = use_state(String::new);
    let save = |offer: &'static Offer| {
        let (client, session, name) = (client.clone(), props.session, props.name.clone());
        let said = said.setter();
        let press = Callback::from(move |_: MouseEvent| {
            let (Some(session), client, name) = (session, client.clone(), name.clone()) else {
                return;
            };
            let said = said.clone();
            said.set("Writing…".to_owned());
            wasm_bindgen_futures::spawn_local(async move {
                let request = SessionQuestion::Export { form: offer.form }.about(session);
                said.set(match client.ask(request).await {
                    Ok(answered) => {
                        dom::download(&format!("{name}.{}", offer.ending), &answered.bytes());
                        String::new()
                    }
                    Err(why) => why,
                });
            });
        });
        html! { <button class="quiet" onclick={press} disabled={session.is_none()} title={offer.title} data-test={offer.test}>{ offer.label }</button> }
    };
    let plan = {
        let (plan, name) = (props.plan.clone(), props.name.clone());
        Callback::from(move |_: MouseEvent| {
            if let Some(plan) = &plan {
                dom::download(&format!("{name}.plan.json"), plan.to_json().as_bytes());
            }
        })
    };
    html! {
        <div class="exports">
            <div class="row">
                <span class="muted">{ "Save" }</span>
                { for OWN.iter().map(&save) }
                if props.plan.is_some() {
                    <button class="quiet" onclick={plan} title="The plan as JSON" data-test="export-plan">{ "plan .json" }</button>
                }
            </div>
            <details class="row"><summary>{ "for other tools" }</summary>
                <div class="row">{ for OTHERS.iter().map(&save) }</div></details>
            <span class="muted" aria-live="polite" data-test="export-said">{ (*said).clone() }</span>
        </div>
    }
}
