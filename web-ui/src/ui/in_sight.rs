//! What is asked for is brought in sight: on a phone, and in a long panel, it would open below the edge.

use crate::dom;
use web_sys::Element;
use yew::prelude::*;

/// A node that is brought in sight when `shown` changes to something.
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
