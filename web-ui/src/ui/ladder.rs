//! The call ladder of a finding: the ranks' calls side by side around their first disagreement.

use super::go::{Go, goes};
use lockstep_diagnosis::{Ladder, LadderCall, LadderSide, LadderStep, Rung};
use lockstep_web_protocol::Which;
use yew::prelude::*;

/// The ladder as a table: a column a side, a row a call.
pub(crate) fn ladder(ladder: &Ladder, on_go: Option<&Callback<Go>>) -> Html {
    let head = |side: &LadderSide| {
        let class = side.culprits.then_some("culprit");
        let first = side.ranks.first().map_or(0, |rank| rank.0);
        html! { <th scope="col" {class}>{ goes(side.title(), Go { rank: first, which: Which::Last }, on_go) }</th> }
    };
    let left_out = |count: u64| {
        let colspan = ladder.sides.len().to_string();
        let text = match count {
            1 => "1 call more".to_owned(),
            count => format!("{count} calls more"),
        };
        html! { if count > 0 { <tr class="cut"><td {colspan}>{ text }</td></tr> } }
    };
    html! {
        <div class="ladder" data-test="ladder">
            <h3>{ "Calls side by side" }</h3>
            <div class="wide"><table>
                <thead><tr>{ for ladder.sides.iter().map(head) }</tr></thead>
                <tbody>
                    { left_out(ladder.before) }
                    { for ladder.rungs.iter().map(|rung| row(rung, &ladder.sides, on_go)) }
                    { left_out(ladder.after) }
                </tbody>
            </table></div>
        </div>
    }
}

fn row(rung: &Rung, sides: &[LadderSide], on_go: Option<&Callback<Go>>) -> Html {
    let steps = rung.steps.iter().zip(sides).map(|(each, side)| step(each, side, on_go));
    html! { <tr class={rung.differs.then_some("differs")}>{ for steps }</tr> }
}

/// The way to a call of the ladder.
pub(crate) fn which(call: &LadderCall) -> Which {
    let group = Some(call.group.clone()).filter(|group| !group.is_empty());
    Which::Numbered { group, op: Some(call.op.clone()), seq: call.seq }
}

/// The lines of the user's code that led to a call, one below the other.
fn own_lines(call: &LadderCall) -> String {
    let own = call.stack.iter().filter(|part| part.own).flat_map(|part| &part.frames);
    own.map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// A call of a side leads to that of its first rank.
fn step(step: &LadderStep, side: &LadderSide, on_go: Option<&Callback<Go>>) -> Html {
    match step {
        LadderStep::LeftOut => html! { <td class="none">{ "did not call it" }</td> },
        LadderStep::NotReached => html! { <td class="none muted">{ "did not get here" }</td> },
        LadderStep::Called(call) => html! {
            <td title={own_lines(call)}>
                { goes(call.title(), Go { rank: side.ranks.first().map_or(0, |rank| rank.0), which: which(call) }, on_go) }
                if call.waits { <span class="waits">{ "waits" }</span> }
                if !call.what.is_empty() { <span class="muted">{ &call.what }</span> }
                if let Some(line) = &call.line { <code>{ line }</code> }
            </td>
        },
    }
}
