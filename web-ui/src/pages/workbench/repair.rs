//! The repair of a recording: what would have to be called otherwise, and whether the job then completes.

use crate::app::use_shared;
use crate::dom;
use crate::ui::Timeline;
use crate::ui::prose;
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{Repaired, Request, Response, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Repair`].
#[derive(Properties, PartialEq)]
pub(super) struct RepairProps {
    /// The recording.
    pub(super) session: SessionId,
    pub(super) world_size: u32,
}

/// The progress of a repair.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    Trying,
    /// With the plan as JSON, and its session for as long as it is shown.
    Tried(Rc<Repaired>, Rc<Vec<u8>>, Session),
    None(String),
}

/// A button that tries the repair, and what comes of it.
#[component(Repair)]
pub(super) fn repair(props: &RepairProps) -> Html {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Idle);
    {
        let stage = stage.setter();
        use_effect_with(props.session, move |_| stage.set(Stage::Idle));
    }
    let try_it = {
        let (stage, client, session) = (stage.setter(), client.clone(), props.session);
        Callback::from(move |_: MouseEvent| {
            stage.set(Stage::Trying);
            let (stage, client) = (stage.clone(), client.clone());
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
        })
    };
    match &*stage {
        Stage::Idle => html! {
            <p class="repair"><button onclick={try_it} data-test="try-repair">{ "Try the repair" }</button>
                <span class="muted">{ " Replays the recording with the ranks that are blamed calling as the others do." }</span></p>
        },
        Stage::Trying => {
            html! { <p class="repair muted" aria-live="polite">{ "Simulating the repaired job…" }</p> }
        }
        Stage::None(why) => {
            html! { <p class="repair muted" data-test="no-repair">{ prose(why) }</p> }
        }
        Stage::Tried(found, plan, _) => shown(found, plan, props.world_size),
    }
}

fn shown(found: &Rc<Repaired>, plan: &Rc<Vec<u8>>, world_size: u32) -> Html {
    let save = {
        let plan = plan.clone();
        Callback::from(move |_: MouseEvent| dom::download("repaired.json", &plan))
    };
    let opened = &found.opened;
    let (class, word) = match found.verified {
        true => ("good", "Proved"),
        false => ("bad", "Not proved"),
    };
    html! {
        <section class="repair" data-test="repaired" data-verified={found.verified.to_string()}>
            <h3>{ "The repair" }</h3>
            <p>{ &found.change }</p>
            <p class={classes!("verdict", class)}>{ format!("{word}. {}", found.why) }</p>
            <div class="lanes repaired"><Timeline session={opened.session} {world_size} lanes={opened.lanes} end_ps={opened.end_ps} fit={opened.fit} culprits={Vec::<u32>::new()} /></div>
            <p><button onclick={save}>{ "Save the repaired plan" }</button>
                <span class="muted">{ " lockstep run repaired.json runs it for real." }</span></p>
            <details><summary>{ "What the replay assumes" }</summary>
                <ul>{ for found.assumed.iter().map(|one| html! { <li>{ prose(one) }</li> }) }</ul></details>
        </section>
    }
}
