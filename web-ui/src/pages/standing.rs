//! The acts of every rank at a moment, ranks that do the same together.

use crate::explain;
use lockstep_core::group::ProcessGroup;
use lockstep_sim::view::{CallView, Doing, StreamView};
use yew::prelude::*;

/// Worlds above this are told by call, without each rank's step in it.
const MAX_TOLD_APART: usize = 8;

/// The act of a rank, in words for one rank and for several.
#[derive(PartialEq)]
struct Does {
    one: String,
    many: String,
}

/// The acts of every rank, ranks that do the same together.
pub(super) fn standing(view: Option<&lockstep_sim::View>, groups: &[ProcessGroup]) -> Html {
    let mut lines: Vec<(Does, Vec<u32>)> = Vec::new();
    for (rank, state) in view.iter().flat_map(|view| view.ranks.iter().enumerate()) {
        let call = state.calls.iter().max_by_key(|call| call.work);
        let plain = |words: &str| (words.to_owned(), words.to_owned());
        let (one, many) = match (state.doing, call) {
            (Doing::Finished, _) => plain("finished"),
            (Doing::Died, _) => plain("died"),
            (Doing::Stopped, _) => plain("stopped by a signal"),
            (Doing::Busy, _) => (
                "busy or idle in its own code".to_owned(),
                "busy or idle in their own code".to_owned(),
            ),
            (Doing::Waiting { work }, Some(call)) if call.work == work => {
                let group = groups.get(call.group.index()).map_or("", ProcessGroup::label);
                let told = format!("in {} #{} of {group}", call.op, call.seq);
                match view.is_some_and(|view| view.ranks.len() <= MAX_TOLD_APART) {
                    true => plain(&(told + &step_of(call))),
                    false => plain(&told),
                }
            }
            (Doing::Waiting { work }, _) => {
                // A call that waits for its stream, or a send or recv.
                match state.pending.iter().find(|pending| pending.work == work) {
                    Some(pending) => {
                        let group = groups.get(pending.group.index());
                        let group = group.map_or("", ProcessGroup::label);
                        plain(&format!("in {} #{} of {group}", pending.name, pending.seq))
                    }
                    None => plain("in a call"),
                }
            }
            (Doing::Synchronizing, _) => {
                ("waits for its streams".to_owned(), "wait for their streams".to_owned())
            }
            (Doing::Running, _) => ("goes on".to_owned(), "go on".to_owned()),
            (Doing::Draining, _) => plain("past the program"),
        };
        let stream = stream_of(state.stream);
        let does = Does { one: one + &stream, many: many + &stream };
        match lines.iter_mut().find(|(words, _)| *words == does) {
            Some((_, ranks)) => ranks.push(rank as u32),
            None => lines.push((does, vec![rank as u32])),
        }
    }
    html! {
        { for lines.into_iter().map(|(does, ranks)| {
            let (who, does) = match ranks.len() {
                1 => ("rank", does.one),
                _ => ("ranks", does.many),
            };
            html! { <li><b>{ format!("{who} {}", explain::ranks(ranks)) }</b>{ " " }{ does }</li> }
        }) }
    }
}

/// `, step 2 of 6, next from rank 3`.
fn step_of(call: &CallView) -> String {
    let step = format!(", {}", explain::place(call.round, call.rounds));
    match explain::ranks(call.waits_for.iter().map(|rank| rank.0)) {
        nobody if nobody.is_empty() => step,
        whom => format!("{step}, next from rank {whom}"),
    }
}

/// `; compute stream waits for a call, 2 more queued`: blocking a stream is not blocking the
/// process.
fn stream_of(stream: Option<StreamView>) -> String {
    let Some(stream) = stream else { return String::new() };
    let behind = stream.queued.saturating_sub(usize::from(stream.op.is_some()));
    let behind = if behind > 0 { format!(", {behind} more queued") } else { String::new() };
    match (stream.op, stream.waits) {
        (None, _) if stream.queued == 0 => "; compute stream is empty".to_owned(),
        (None, _) if stream.queued == 1 => "; compute stream holds 1 item".to_owned(),
        (None, _) => format!("; compute stream holds {} items", stream.queued),
        (Some(_), true) => format!("; compute stream waits for a call{behind}"),
        (Some(_), false) => format!("; compute stream computes{behind}"),
    }
}
