//! The named clusters, as forms list them.

use crate::app::use_shared;
use crate::ui::Choice;
use lockstep_web_protocol::{KnownCluster, Request, Response};
use std::cell::RefCell;
use std::rc::Rc;
use yew::prelude::*;

thread_local! {
    /// Asked for once: every form lists the same.
    static KNOWN: RefCell<Rc<Vec<KnownCluster>>> = RefCell::default();
}

/// The named clusters; none until they are known, or while nobody wants them.
#[hook]
pub(super) fn use_known_clusters(wanted: bool) -> Rc<Vec<KnownCluster>> {
    let client = use_shared().client;
    let known = use_state(|| KNOWN.with_borrow(Rc::clone));
    {
        let known = known.setter();
        use_effect_with(wanted, move |wanted| {
            if !wanted || KNOWN.with_borrow(|known| !known.is_empty()) {
                known.set(KNOWN.with_borrow(Rc::clone));
                return;
            }
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client.ask(Request::KnownClusters).await;
                if let Ok(Response::KnownClusters(all)) = answered.map(|answered| answered.response)
                {
                    let all = Rc::new(all);
                    KNOWN.set(all.clone());
                    known.set(all);
                }
            });
        });
    }
    (*known).clone()
}

/// The choices of a form, those with measurements first; the present one is among them, whether
/// it is known or not.
pub(super) fn cluster_choices(known: &[KnownCluster], present: &str) -> Vec<Choice> {
    let choice = |cluster: &KnownCluster| {
        let group = if cluster.measured { "Measured" } else { "Extrapolated" };
        Choice::new(&cluster.name, &format!("{}: {}", cluster.name, cluster.title)).under(group)
    };
    let (measured, others): (Vec<_>, Vec<_>) = known.iter().partition(|cluster| cluster.measured);
    let mut choices: Vec<Choice> = measured.into_iter().chain(others).map(choice).collect();
    if !known.iter().any(|cluster| cluster.name == present) {
        choices.insert(0, Choice::word(present));
    }
    choices
}
