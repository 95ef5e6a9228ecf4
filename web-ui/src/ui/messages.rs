//! Messages between the ranks: on a circle while they can be told apart there, else as a matrix.

use super::{Matrix, Ring};
use lockstep_sim::View;
use std::rc::Rc;
use yew::prelude::*;

/// Larger worlds have no room on a circle.
const MAX_RING: usize = 16;

/// Properties of [`Messages`].
#[derive(Clone, Properties, PartialEq)]
pub(crate) struct MessagesProps {
    pub(crate) view: Rc<View>,
    /// The virtual time that is shown: from the view's to that of the next moment.
    pub(crate) time_ps: u64,
    pub(crate) selected: u32,
    pub(crate) on_select: Callback<u32>,
    /// Switches that take part, behind the ranks.
    #[prop_or_default]
    pub(crate) switches: u32,
    /// Ranks of a node; 0 when there are no nodes.
    #[prop_or_default]
    pub(crate) ranks_per_node: u32,
}

/// Messages between the ranks.
#[component(Messages)]
pub(crate) fn messages(props: &MessagesProps) -> Html {
    let MessagesProps { view, on_select, .. } = props.clone();
    let MessagesProps { time_ps, selected, switches, ranks_per_node, .. } = *props;
    if view.ranks.len() <= MAX_RING {
        html! { <Ring {view} {time_ps} {selected} {on_select} {switches} {ranks_per_node} /> }
    } else {
        html! { <Matrix {view} {time_ps} {selected} {on_select} {switches} {ranks_per_node} /> }
    }
}
