//! The output and the errors of the ranks by a moment.

use crate::explain;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Printed};
use lockstep_sim::View;
use yew::prelude::*;

/// Lines shown before the rest is counted.
const MAX_LINES: usize = 200;

/// The output of the ranks by the moment of `view`, and the errors that they raise; without one, all that would come.
pub(super) fn output(compiled: &Compiled, view: Option<&View>) -> Html {
    let Compiled { plan, printed, raised, assumed, .. } = compiled;
    // A rank has gone on from the operations before the one that it is at.
    let ended: Option<Vec<u32>> = view.map(|view| view.ranks.iter().map(|rank| rank.op).collect());
    let is_reached = |print: &&Printed| ended.as_ref().is_none_or(|ops| print.is_reached(ops));
    let reached: Vec<&Printed> = printed.iter().filter(is_reached).collect();
    // An exception is the last thing that a rank does.
    let has_raised = |rank: &GlobalRank| {
        let ops = plan.program(*rank).map_or(0, |program| program.ops.len());
        let at = ended.as_ref().and_then(|ended| ended.get(rank.index()));
        at.is_some_and(|at| *at as usize + 1 >= ops)
    };
    html! {
        <>
            { for raised.iter().map(|(ranks, error)| {
                let who = if ranks.len() == 1 { "Rank" } else { "Ranks" };
                let named = explain::ranks(ranks.iter().map(|rank| rank.0));
                let line = error.line;
                let head = match (ranks.iter().all(has_raised), ranks.len()) {
                    (true, _) => format!("{who} {named} raised at line {line}: "),
                    (false, 1) => format!("{who} {named} raises at line {line}, once it gets there: "),
                    (false, _) => format!("{who} {named} raise at line {line}, once they get there: "),
                };
                html! {
                    <div class="wrong" data-test="raised">
                        <p><b>{ head }</b>{ &error.message }</p>
                        if let Some(help) = &error.help { <p class="muted">{ help }</p> }
                    </div>
                }
            }) }
            { for assumed.iter().take(MAX_LINES).map(|(line, text)| html! {
                <p class="muted" data-test="assumed">{ format!("Line {line}: {text}") }</p>
            }) }
            if !printed.is_empty() {
                <details class="printed" data-test="printed" data-lines={reached.len().to_string()}>
                    <summary>{ format!("Printed by now: {} of {} lines", reached.len(), printed.len()) }</summary>
                    <pre class="mono">{ for reached.iter().take(MAX_LINES).map(|Printed { rank, line, text, .. }| format!("[rank {rank}, line {line}] {text}\n")) }</pre>
                    if reached.len() > MAX_LINES { <p class="muted">{ format!("and {} lines more", reached.len() - MAX_LINES) }</p> }
                </details>
            }
        </>
    }
}
