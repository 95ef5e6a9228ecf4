//! The cluster whose times a simulation has, in words.

use lockstep_core::trace::Origin;
use lockstep_web_protocol::Opened;
use yew::prelude::*;

/// The cluster that calls were timed on, and what of its times is extrapolated; nothing where
/// messages over links took their time.
pub(super) fn machine_note(opened: &Opened) -> Html {
    let Origin::SimulatedOnCluster { topology, .. } = &opened.header.origin else {
        return html! {};
    };
    let words = topology.strip_prefix("cluster ").unwrap_or(topology);
    html! {
        <p class="muted small-print" data-test="on-cluster">{ format!("On {words}. A collective takes its time as a whole; its steps are laid over that time by their bytes.") }</p>
    }
}
