//! Names and values in two columns.

use yew::prelude::*;

/// Names and values in two columns.
pub(crate) fn facts_list(facts: &[(String, String)]) -> Html {
    html! {
        <dl class="facts">
            { for facts.iter().map(|(name, value)| html! {
                <><dt>{ name }</dt><dd>{ value }</dd></>
            }) }
        </dl>
    }
}
