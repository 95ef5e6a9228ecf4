//! Each rank's buffers as chunks: what they hold, and whose data is in them.

use crate::palette::{piece_fill, piece_ink};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::display_element;
use lockstep_core::schedule::{Action, Buffer, Slice};
use lockstep_sim::View;
use lockstep_sim::view::{BufferView, CallView, ChunkView};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Buffers`].
#[derive(Properties, PartialEq)]
pub(crate) struct BuffersProps {
    pub(crate) view: Rc<View>,
    pub(crate) selected: u32,
    pub(crate) on_select: Callback<u32>,
}

/// A row a rank, a cell a chunk. A cell's pips are the ranks whose data is in it.
#[component(Buffers)]
pub(crate) fn buffers(props: &BuffersProps) -> Html {
    let view = &props.view;
    let n = view.ranks.len();
    html! {
        <table class={classes!("buffers", (n > 8).then_some("small"))} style={format!("--n:{n}")} data-test="buffers">
            if let Some(call) = view.ranks.iter().find_map(|rank| rank.calls.last()) {
                <thead><tr><td />
                    { for parts(call).into_iter().map(|(_, name, _)| html! { <th scope="col">{ name }</th> }) }
                </tr></thead>
            }
            <tbody>
                { for view.ranks.iter().enumerate().map(|(rank, state)| {
                    let rank = rank as u32;
                    let select = props.on_select.reform(move |_: MouseEvent| rank);
                    let selected = rank == props.selected;
                    html! {
                        <tr class={classes!(selected.then_some("selected"))}>
                            <th scope="row">
                                <button class="rank" onclick={select} aria-pressed={selected.to_string()}
                                        data-test={format!("rank-{rank}")} aria-label={format!("rank {rank}")}>
                                    { rank }
                                </button>
                            </th>
                            { match state.calls.last() {
                                Some(call) => cells(rank, call, n as u32),
                                None => html! { <td class="nothing">{ "has not called yet" }</td> },
                            } }
                        </tr>
                    }
                }) }
            </tbody>
        </table>
    }
}

/// The buffers that the call has on any rank; which those are is the same for all of them.
fn parts(call: &CallView) -> Vec<(Buffer, &'static str, &BufferView)> {
    let in_place = matches!(call.op.as_str(), "all_reduce" | "broadcast" | "reduce");
    let barrier = call.op == "barrier";
    let scratch = barrier || !call.scratch.chunks.is_empty();
    let all = [
        (!in_place, (Buffer::Input, "input", &call.input)),
        (!barrier, (Buffer::Output, if in_place { "tensor" } else { "output" }, &call.output)),
        (scratch, (Buffer::Scratch, if barrier { "signals" } else { "scratch" }, &call.scratch)),
    ];
    all.into_iter().filter(|(there, _)| *there).map(|(_, part)| part).collect()
}

fn cells(rank: u32, call: &CallView, world: u32) -> Html {
    html! {
        { for parts(call).into_iter().map(|(which, name, buffer)| html! {
            <td>
                <div class="buffer" data-test={format!("buffer-{rank}-{name}")}>
                    <div class="chunks">
                        { for buffer.chunks.iter().enumerate().map(|(index, chunk)| {
                            cell(rank, call, which, buffer, index as u32, chunk, world)
                        }) }
                    </div>
                </div>
            </td>
        }) }
    }
}

fn cell(
    rank: u32,
    call: &CallView,
    which: Buffer,
    buffer: &BufferView,
    index: u32,
    chunk: &ChunkView,
    world: u32,
) -> Html {
    let here = Slice::one(which, index);
    let mut state = Classes::from("chunk");
    for action in &call.actions {
        match action {
            Action::Send { from, .. } if from.overlaps(here) => state.push("sends"),
            Action::Receive { into, .. } | Action::ReceiveReduce { into, .. }
                if into.overlaps(here) =>
            {
                state.push("awaits");
            }
            _ => {}
        }
    }
    let from = chunk.contributors.count_ones();
    let all = from == world && world > 1;
    if all {
        state.push("full");
    }
    let single = (from == 1 && world > 1).then(|| chunk.contributors.trailing_zeros());
    if single.is_some() {
        state.push("one");
    }
    if from == 0 {
        state.push("empty");
    }
    let style =
        single.map(|rank| format!("--fill:{};--chunk-ink:{}", piece_fill(rank), piece_ink(rank)));
    let values = values(buffer.dtype, chunk);
    let whose: Vec<u32> =
        (0..world.min(64)).filter(|rank| chunk.contributors >> rank & 1 == 1).collect();
    let title = format!(
        "rank {rank}, chunk {index}: elements {} to {}, from {}\n{values}",
        chunk.start,
        (chunk.start + chunk.elements).saturating_sub(1),
        if whose.is_empty() {
            "nobody".to_owned()
        } else {
            format!("ranks {}", crate::explain::ranks(whose))
        },
    );
    html! {
        <div class={state} {style} {title} data-chunk={index.to_string()} data-from={format!("{:x}", chunk.contributors)}>
            <span class="values">{ values }</span>
            <span class="pips" aria-hidden="true">
                { for (0..world.min(64)).map(|rank| {
                    let on = chunk.contributors >> rank & 1 == 1;
                    html! { <i style={on.then(|| format!("background:{}", piece_fill(rank)))} /> }
                }) }
            </span>
        </div>
    }
}

/// The first elements as people read them; `…` when there are more.
fn values(dtype: Option<Dtype>, chunk: &ChunkView) -> String {
    let size = dtype.map_or(0, Dtype::size_bytes) as usize;
    if chunk.elements == 0 || size == 0 {
        return "–".to_owned();
    }
    let dtype = dtype.unwrap_or(Dtype::Unknown);
    let mut words: Vec<String> =
        chunk.shown.chunks_exact(size).map(|bytes| short(&display_element(dtype, bytes))).collect();
    if (words.len() as u64) < chunk.elements && !words.is_empty() {
        words.push("…".to_owned());
    }
    words.join(" ")
}

/// At most seven digits: the inspector has all of them.
fn short(value: &str) -> String {
    match value.split_once('.') {
        Some((whole, _)) if whole.len() >= 6 => format!("{whole}…"),
        Some(_) if value.len() > 7 => format!("{}…", value.chars().take(6).collect::<String>()),
        _ => value.to_owned(),
    }
}
