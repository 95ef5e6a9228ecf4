//! The waits at the moment that is shown: each rank, and the ranks it waits for.

use crate::app::use_shared;
use crate::ui::WaitGraph;
use lockstep_diagnosis::{Wait, WaitGroup};
use lockstep_web_protocol::{Response, SessionId, SessionQuestion};
use yew::prelude::*;

/// Properties of [`WaitsAt`].
#[derive(Properties, PartialEq)]
pub(super) struct WaitsAtProps {
    pub(super) session: SessionId,
    pub(super) moment: usize,
    pub(super) world_size: u32,
    /// Ranks of a node; 0 when there are no nodes.
    pub(super) ranks_per_node: u32,
    /// The ranks that the findings blame.
    pub(super) culprits: Vec<u32>,
}

/// The waits at a moment: each rank, and the ranks it waits for.
#[component(WaitsAt)]
pub(super) fn waits_at(props: &WaitsAtProps) -> Html {
    let client = use_shared().client;
    let waits = use_state(|| Ok::<(Vec<Wait>, Vec<WaitGroup>), String>(Default::default()));
    {
        let waits = waits.setter();
        use_effect_with((props.session, props.moment), move |&(session, moment)| {
            let request = SessionQuestion::WaitsAt { moment }.about(session);
            let (asked, answer) = client.ask_with(request, &[], None);
            wasm_bindgen_futures::spawn_local(async move {
                match answer.await.map(|answered| answered.response) {
                    Ok(Response::Waits(found, causes)) => waits.set(Ok((found, causes))),
                    Ok(_) => {}
                    Err(why) if why == lockstep_web_protocol::CANCELLED => {}
                    Err(why) => waits.set(Err(why)),
                }
            });
            move || drop(asked)
        });
    }
    match &*waits {
        Ok((waits, causes)) => {
            let mut causes = causes.clone();
            for cause in &mut causes {
                cause.culprits |= cause.ranks.iter().all(|rank| props.culprits.contains(&rank.0));
            }
            html! { <WaitGraph waits={waits.clone()} {causes} world_size={props.world_size} ranks_per_node={props.ranks_per_node} now=true /> }
        }
        Err(why) => html! { <p class="muted">{ why }</p> },
    }
}
