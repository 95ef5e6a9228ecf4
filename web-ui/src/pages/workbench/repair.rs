//! The repair of a recording: what would have to be called otherwise, and whether the job then completes.

use crate::app::use_shared;
use crate::dom;
use crate::ui::{Order, Timeline, prose, use_in_sight};
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{Opened, Repaired, Request, Response, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// The progress of a repair.
#[derive(Clone, PartialEq)]
pub(super) enum Stage {
    Idle,
    Trying,
    /// With the plan as JSON, and its session for as long as it is shown.
    Tried(Rc<Repaired>, Rc<Vec<u8>>, Session),
    None(String),
}

/// The repair of a recording's first finding: how far it is, and the callback that tries it.
#[hook]
pub(super) fn use_repair(session: SessionId) -> (UseStateHandle<Stage>, Callback<MouseEvent>) {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Idle);
    {
        let stage = stage.setter();
        use_effect_with(session, move |_| stage.set(Stage::Idle));
    }
    let setter = stage.setter();
    let try_it = Callback::from(move |_: MouseEvent| {
        setter.set(Stage::Trying);
        let (stage, client) = (setter.clone(), client.clone());
        let repaired = client.new_session();
        wasm_bindgen_futures::spawn_local(async move {
            let request = Request::Repair { session, repaired: repaired.id() };
            stage.set(match client.ask(request).await {
                Err(why) => Stage::None(why),
                Ok(answered) => {
                    let plan = answered.bytes();
                    match answered.response {
                        Response::Repaired(found) => {
                            Stage::Tried(Rc::new(*found), Rc::new(plan), repaired)
                        }
                        _ => Stage::Idle,
                    }
                }
            });
        });
    });
    (stage, try_it)
}

/// Properties of [`Repair`].
#[derive(Properties, PartialEq)]
pub(super) struct RepairProps {
    pub(super) stage: Stage,
    pub(super) try_it: Callback<MouseEvent>,
}

/// A button that tries the repair, and what comes of it.
#[component(Repair)]
pub(super) fn repair(props: &RepairProps) -> Html {
    // The button goes away when it is pressed: the focus goes on to what comes of it.
    let told = use_node_ref();
    {
        let told = told.clone();
        use_effect_with(props.stage != Stage::Idle, move |pressed| {
            if let Some(told) = told.cast::<web_sys::HtmlElement>().filter(|_| *pressed) {
                let _ = told.focus();
            }
        });
    }
    let inner = use_in_sight(Some(props.stage.clone()).filter(|stage| *stage != Stage::Idle));
    let inside = match &props.stage {
        Stage::Idle => html! {
            <><button onclick={props.try_it.clone()} data-test="try-repair">{ "Try the repair" }</button>
            <span class="muted">{ " Replays the recording with the ranks that are blamed calling as the others do, beside what was recorded." }</span></>
        },
        Stage::Trying => html! { <p class="muted">{ "Simulating the repaired job…" }</p> },
        Stage::None(why) => html! { <p class="muted" data-test="no-repair">{ prose(why) }</p> },
        Stage::Tried(found, plan, _) => tried(found, plan),
    };
    html! { <section class="repair" tabindex="-1" ref={told} aria-label="The repair" aria-live="polite"><div ref={inner}>{ inside }</div></section> }
}

fn tried(found: &Rc<Repaired>, plan: &Rc<Vec<u8>>) -> Html {
    let save = {
        let plan = plan.clone();
        Callback::from(move |_: MouseEvent| dom::download("repaired.json", &plan))
    };
    let beside = Callback::from(|_: MouseEvent| {
        let lanes = dom::document().query_selector("main:not([hidden]) .repaired").ok().flatten();
        lanes.iter().for_each(dom::bring_into_sight);
    });
    let (class, word) = match found.verified {
        true => ("good", "Proved"),
        false => ("bad", "Not proved"),
    };
    html! {
        <>
        <h3 data-test="repaired" data-verified={found.verified.to_string()}>{ "The repair" }</h3>
        <p>{ &found.change }</p>
        <p class={classes!("verdict", class)}>{ format!("{word}. {}", found.why) }</p>
        <p><button onclick={beside}>{ "See it beside the recording" }</button></p>
        <p><button onclick={save}>{ "Save the repaired plan" }</button>
            <span class="muted">{ " lockstep run repaired.json runs it for real." }</span></p>
        <details><summary>{ "What the replay assumes" }</summary>
            <ul>{ for found.assumed.iter().map(|one| html! { <li>{ prose(one) }</li> }) }</ul></details>
        </>
    }
}

/// The time that recording and repaired job are both shown over, in picoseconds: so long that neither is
/// cut.
pub(super) fn common_ps(recorded: &Opened, repaired: &Opened) -> u64 {
    let shown = |opened: &Opened| opened.fit.1.saturating_sub(opened.fit.0);
    shown(recorded).max(shown(repaired)).max(1)
}

/// A stretch that begins where a trace does, and is so long.
pub(super) fn stretch(opened: &Opened, length_ps: u64) -> (u64, u64) {
    let (from, _) = opened.fit;
    (from, from.saturating_add(length_ps))
}

/// The repaired job under the recording: the same rows, on the same scale, with a flag at the first call
/// of each rank that is another one.
pub(super) fn lanes(recorded: &Opened, found: &Repaired, order: Option<&Order>) -> Html {
    let opened = &found.opened;
    let flags: Vec<(u32, u64)> =
        found.changed.iter().map(|mark| (mark.id.rank, mark.from_ps)).collect();
    let words = match found.verified {
        true => "Repaired, simulated: all calls complete.",
        false => "Repaired, simulated: it does not complete.",
    };
    html! {
        <div class="repaired" role="region" aria-label="The repaired job" data-test="repaired-lanes" data-changed={flags.len().to_string()}>
            <p class="caption"><b>{ words }</b><span class="muted">{ " Over as much time as the recording above. A flag marks the first call of a rank that is another one." }</span></p>
            <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={opened.end_ps}
                      fit={stretch(opened, common_ps(recorded, opened))} order={order.cloned()} {flags} selected={found.changed.first().cloned()} />
        </div>
    }
}
