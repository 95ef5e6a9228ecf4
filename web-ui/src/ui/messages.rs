//! Messages between the ranks: on a circle while they can be told apart there, else as a matrix.

use super::{Matrix, Parents, Ring};
use lockstep_sim::View;
use std::rc::Rc;
use yew::prelude::*;

/// Larger worlds have no room on a circle.
const MAX_RING: usize = 16;

/// Properties of [`Messages`], and of the two ways to draw them.
#[derive(Clone, Properties, PartialEq)]
pub(crate) struct MessagesProps {
    pub(crate) view: Rc<View>,
    /// The virtual time that is shown: from the view's to that of the next moment.
    pub(crate) time_ps: u64,
    pub(crate) selected: u32,
    pub(crate) on_select: Callback<u32>,
    /// Switches that take part, behind the ranks: one of all, or one a node and one above them.
    #[prop_or_default]
    pub(crate) switches: u32,
    /// Ranks of a node; 0 when there are no nodes.
    #[prop_or_default]
    pub(crate) ranks_per_node: u32,
    /// The trees along which messages go, if they go along any.
    #[prop_or_default]
    pub(crate) trees: Option<Rc<Vec<Parents>>>,
}

/// Messages between the ranks.
#[component(Messages)]
pub(crate) fn messages(props: &MessagesProps) -> Html {
    let props = props.clone();
    match props.view.ranks.len() {
        0..=MAX_RING => html! { <Ring ..props /> },
        _ => html! { <Matrix ..props /> },
    }
}
