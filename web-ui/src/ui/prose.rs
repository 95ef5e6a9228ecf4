//! Text with code in backticks.

use yew::prelude::*;

/// The text, with what stands in backticks as code.
pub(crate) fn prose(text: &str) -> Html {
    let parts = text.split('`').enumerate().map(|(nth, part)| match nth % 2 {
        0 => html! { { part } },
        _ => html! { <code>{ part }</code> },
    });
    html! { { for parts } }
}
