//! Each rank's buffers as chunks: what they hold, and whose data is in them. Where a message has landed and
//! was added, the addition is shown; a chunk that is clicked is marked on every rank.

use super::in_sight::use_in_sight;
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

/// More ranks than this have no room for additions in their cells.
const MAX_ADDED: usize = 8;

/// A chunk of every rank's buffer.
type Place = (Buffer, u32);

/// A row a rank, a cell a chunk. A cell's pips are the ranks whose data is in it.
#[component(Buffers)]
pub(crate) fn buffers(props: &BuffersProps) -> Html {
    let view = &props.view;
    let n = view.ranks.len();
    let marked = use_state(|| None::<Place>);
    let before = use_before(view);
    let about = use_in_sight(*marked);
    let table = Table { view, before: before.as_deref(), marked: *marked, mark: marked.setter() };
    html! {
        <>
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
                                Some(call) => table.cells(rank, call),
                                None => html! { <td class="nothing">{ "has not called yet" }</td> },
                            } }
                        </tr>
                    }
                }) }
            </tbody>
        </table>
        if let Some(place) = *marked { { table.about(place, about) } }
        </>
    }
}

/// The view that was shown before, if time went forward.
#[hook]
fn use_before(view: &Rc<View>) -> Option<Rc<View>> {
    let shown = use_mut_ref(|| None::<(Rc<View>, Option<Rc<View>>)>);
    let mut shown = shown.borrow_mut();
    let before = match shown.take() {
        Some((now, before)) if Rc::ptr_eq(&now, view) => before,
        // Steps forward only: backwards nothing lands.
        Some((now, _)) if now.moment < view.moment => Some(now),
        _ => None,
    };
    *shown = Some((view.clone(), before.clone()));
    before
}

/// The buffers of a call by their kind.
fn buffer_of(call: &CallView, which: Buffer) -> &BufferView {
    match which {
        Buffer::Input => &call.input,
        Buffer::Output => &call.output,
        Buffer::Scratch => &call.scratch,
    }
}

/// The buffers at a moment.
struct Table<'t> {
    view: &'t View,
    before: Option<&'t View>,
    marked: Option<Place>,
    mark: UseStateSetter<Option<Place>>,
}

impl Table<'_> {
    fn cells(&self, rank: u32, call: &CallView) -> Html {
        html! {
            { for parts(call).into_iter().map(|(which, name, buffer)| html! {
                <td>
                    <div class="buffer" data-test={format!("buffer-{rank}-{name}")}>
                        <div class="chunks">
                            { for buffer.chunks.iter().enumerate().map(|(index, chunk)| {
                                self.cell(rank, call, (which, index as u32), chunk)
                            }) }
                        </div>
                    </div>
                </td>
            }) }
        }
    }

    /// The addition that made a chunk what it is, where its message has just landed: `48 + 51 → 99`.
    fn addition(&self, rank: u32, call: &CallView, (which, index): Place) -> Option<String> {
        let before = self.before.filter(|before| before.ranks.len() <= MAX_ADDED)?;
        let of = |rank: u32| before.ranks.get(rank as usize)?.calls.last();
        let own = of(rank).filter(|own| own.work == call.work)?;
        let (was, now) = (
            buffer_of(own, which).chunks.get(index as usize)?,
            buffer_of(call, which).chunks.get(index as usize)?,
        );
        let added = now.contributors & !was.contributors;
        if was.contributors == 0 || added == 0 {
            return None;
        }
        // The data that has come lay with another rank, as a sum of just these ranks.
        let others = (0..before.ranks.len() as u32).filter(|other| *other != rank);
        let buffers = [which, Buffer::Input, Buffer::Output, Buffer::Scratch];
        let chunks = others.filter_map(of).flat_map(|other| {
            buffers.map(|buffer| buffer_of(other, buffer).chunks.get(index as usize))
        });
        let brought = chunks.flatten().find(|chunk| chunk.contributors == added)?;
        let dtype = buffer_of(call, which).dtype;
        let [was, brought, now] = [was, brought, now].map(|chunk| first(dtype, chunk));
        Some(combined(&was?, &brought?, &now?))
    }

    fn cell(&self, rank: u32, call: &CallView, place: Place, chunk: &ChunkView) -> Html {
        let (which, index) = place;
        let world = self.view.ranks.len() as u32;
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
        if from == world && world > 1 {
            state.push("full");
        }
        let single = (from == 1 && world > 1).then(|| chunk.contributors.trailing_zeros());
        match from {
            0 => state.push("empty"),
            1 if world > 1 => state.push("one"),
            _ => {}
        }
        let is_marked = self.marked == Some(place);
        if is_marked {
            state.push("marked");
        }
        let style = single
            .map(|rank| format!("--fill:{};--chunk-ink:{}", piece_fill(rank), piece_ink(rank)));
        let dtype = buffer_of(call, which).dtype;
        let values = values(dtype, chunk);
        let title = format!(
            "rank {rank}, chunk {index}: elements {} to {}, from {}\n{values}",
            chunk.start,
            (chunk.start + chunk.elements).saturating_sub(1),
            contributors(chunk, world),
        );
        let added = self.addition(rank, call, place);
        if added.is_some() {
            state.push("landed");
        }
        let mark = {
            let mark = self.mark.clone();
            let next = (!is_marked).then_some(place);
            Callback::from(move |_: MouseEvent| mark.set(next))
        };
        html! {
            <button type="button" class={state} {style} {title} onclick={mark} aria-pressed={is_marked.to_string()}
                    data-test="chunk" data-chunk={index.to_string()} data-from={format!("{:x}", chunk.contributors)} data-added={added.clone()}>
                <span class="values">{ added.unwrap_or(values) }</span>
                <span class="pips" aria-hidden="true">
                    { for (0..world.min(64)).map(|rank| {
                        let on = chunk.contributors >> rank & 1 == 1;
                        html! { <i style={on.then(|| format!("background:{}", piece_fill(rank)))} /> }
                    }) }
                </span>
            </button>
        }
    }

    /// The marked chunk on every rank.
    fn about(&self, (which, index): Place, node: NodeRef) -> Html {
        let world = self.view.ranks.len() as u32;
        let row = |(rank, state): (usize, &lockstep_sim::view::RankView)| {
            let call = state.calls.last()?;
            let buffer = buffer_of(call, which);
            let chunk = buffer.chunks.get(index as usize)?;
            let here = Slice::one(which, index);
            let next = call.actions.iter().find_map(|action| match action {
                Action::Send { peer, from } if from.overlaps(here) => {
                    Some(format!("being sent to rank {peer}"))
                }
                Action::Receive { peer, into } | Action::ReceiveReduce { peer, into, .. }
                    if into.overlaps(here) =>
                {
                    Some(format!("awaited from rank {peer}"))
                }
                _ => None,
            });
            Some(html! {
                <li><span class="chip">{ rank }</span><span class="mono">{ values(buffer.dtype, chunk) }</span>
                    <span class="muted">{ format!("from {}", contributors(chunk, world)) }</span>
                    if let Some(next) = next { <span>{ next }</span> }</li>
            })
        };
        let close = {
            let mark = self.mark.clone();
            Callback::from(move |_: MouseEvent| mark.set(None))
        };
        html! {
            <section ref={node} class="about-chunk" aria-label={format!("Chunk {index} on every rank")} data-test="about-chunk" data-chunk={index.to_string()}>
                <header><h3>{ format!("Chunk {index} on every rank") }</h3><span class="grow" />
                    <button class="quiet" onclick={close} aria-label="Close">{ "×" }</button></header>
                <ul>{ for self.view.ranks.iter().enumerate().filter_map(row) }</ul>
            </section>
        }
    }
}

/// `48 + 51 → 99`, with the sign of what was done.
fn combined(was: &str, brought: &str, now: &str) -> String {
    let numbers = [was, brought, now].map(|text| text.parse::<f64>().unwrap_or(f64::NAN));
    let [a, b, c] = numbers;
    let near = |value: f64| (value - c).abs() <= 1e-3 * c.abs().max(1.0);
    match () {
        () if near(a + b) => format!("{was} + {brought} → {now}"),
        () if near(a * b) => format!("{was} × {brought} → {now}"),
        () if near(a.max(b)) => format!("max({was}, {brought}) → {now}"),
        () if near(a.min(b)) => format!("min({was}, {brought}) → {now}"),
        () => format!("{was}, {brought} → {now}"),
    }
}

/// `ranks 0–2`, whose data is in a chunk.
fn contributors(chunk: &ChunkView, world: u32) -> String {
    let whose: Vec<u32> =
        (0..world.min(64)).filter(|rank| chunk.contributors >> rank & 1 == 1).collect();
    match whose.len() {
        0 => "nobody".to_owned(),
        1 => format!("rank {}", whose[0]),
        _ => format!("ranks {}", crate::explain::ranks(whose)),
    }
}

/// The first element of a chunk.
fn first(dtype: Option<Dtype>, chunk: &ChunkView) -> Option<String> {
    let dtype = dtype?;
    let bytes = chunk.shown.get(..dtype.size_bytes() as usize)?;
    (!bytes.is_empty()).then(|| short(&display_element(dtype, bytes)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addition_has_its_sign() {
        assert_eq!(combined("48", "51", "99"), "48 + 51 → 99");
        assert_eq!(combined("3", "5", "15"), "3 × 5 → 15");
        assert_eq!(combined("3", "5", "5"), "max(3, 5) → 5");
        assert_eq!(combined("3", "5", "3"), "min(3, 5) → 3");
        assert_eq!(combined("3", "5", "7"), "3, 5 → 7");
    }
}
