//! Names and values in two columns.

use yew::prelude::*;

/// Properties of [`Facts`].
#[derive(Properties, PartialEq)]
pub(crate) struct FactsProps {
    pub(crate) facts: Vec<(String, String)>,
}

/// Names and values in two columns.
#[component(Facts)]
pub(crate) fn facts(props: &FactsProps) -> Html {
    html! {
        <dl class="facts">
            { for props.facts.iter().map(|(name, value)| html! {
                <><dt>{ name }</dt><dd>{ value }</dd></>
            }) }
        </dl>
    }
}
