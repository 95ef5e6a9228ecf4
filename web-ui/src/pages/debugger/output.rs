//! What the ranks printed, and what they raised.

use crate::explain;
use lockstep_core::program::{Compiled, Printed};
use std::rc::Rc;
use yew::prelude::*;

/// Lines shown before the rest is counted.
const MAX_LINES: usize = 200;

/// Properties of [`Output`].
#[derive(Properties, PartialEq)]
pub(super) struct OutputProps {
    pub(super) compiled: Rc<Compiled>,
}

/// What the ranks printed, and what they raised.
#[component(Output)]
pub(super) fn output(props: &OutputProps) -> Html {
    let Compiled { printed, raised, assumed, .. } = &*props.compiled;
    html! {
        <>
            { for raised.iter().map(|(ranks, error)| html! {
                <div class="wrong" data-test="raised">
                    <p><b>{ format!("{} {} raised at line {}: ", if ranks.len() == 1 { "Rank" } else { "Ranks" },
                        explain::ranks(ranks.iter().map(|rank| rank.0)), error.line) }</b>{ &error.message }</p>
                    if let Some(help) = &error.help { <p class="muted">{ help }</p> }
                </div>
            }) }
            { for assumed.iter().take(MAX_LINES).map(|(line, text)| html! {
                <p class="muted" data-test="assumed">{ format!("Line {line}: {text}") }</p>
            }) }
            if !printed.is_empty() {
                <details class="printed" data-test="printed" data-lines={printed.len().to_string()}>
                    <summary>{ format!("Printed by the ranks: {} lines", printed.len()) }</summary>
                    <pre class="mono">{ for printed.iter().take(MAX_LINES).map(|Printed { rank, line, text, .. }| format!("[rank {rank}, line {line}] {text}\n")) }</pre>
                    if printed.len() > MAX_LINES { <p class="muted">{ format!("and {} lines more", printed.len() - MAX_LINES) }</p> }
                </details>
            }
        </>
    }
}
