//! Scrolls an answer into sight: on a phone, and in a long panel, it opens below the edge.

use crate::dom;
use web_sys::Element;
use yew::prelude::*;

/// A node that scrolls into view whenever `shown` changes to `Some`.
#[hook]
pub(crate) fn use_in_sight<T: PartialEq + 'static>(shown: Option<T>) -> NodeRef {
    let node = use_node_ref();
    use_effect_with(shown, {
        let node = node.clone();
        move |shown| {
            if let Some(element) = node.cast::<Element>().filter(|_| shown.is_some()) {
                dom::bring_into_sight(&element);
            }
        }
    });
    node
}
