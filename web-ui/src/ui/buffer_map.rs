//! The buffers of many ranks: a row a rank, a pixel block a chunk.

use super::canvas::{FONT, Ink, cleared, ink, use_size};
use crate::app::use_shared;
use crate::dom::when;
use crate::explain;
use crate::palette::piece_fill;
use lockstep_sim::View;
use lockstep_sim::view::{CallView, ChunkView};
use std::rc::Rc;
use web_sys::CanvasRenderingContext2d;
use yew::prelude::*;

/// Properties of [`BufferMap`].
#[derive(Properties, PartialEq)]
pub(crate) struct BufferMapProps {
    pub(crate) view: Rc<View>,
    pub(crate) selected: u32,
    pub(crate) on_select: Callback<u32>,
}

const LEFT: f64 = 30.0;
const TOP: f64 = 18.0;
/// Between two buffers of a rank.
const GAP: f64 = 8.0;

/// The buffers of many ranks. The fuller a block, the more ranks are in it; data of one rank only
/// has its shade, and what is whole is green.
#[component(BufferMap)]
pub(crate) fn buffer_map(props: &BufferMapProps) -> Html {
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let pointed = use_state(|| None::<String>);
    let dark = use_shared().dark;
    let view = props.view.clone();
    let n = view.ranks.len().max(1);
    let row = ((height - TOP - 2.0) / n as f64).max(1.0);
    let calls = view.ranks.iter().filter_map(|rank| rank.calls.last());
    let wide = chunk_width(width - LEFT - 2.0, calls.map(|call| sizes(&chunks(call))));
    {
        let (canvas, view) = (canvas.clone(), view.clone());
        let deps = (props.view.clone(), props.selected, width as u32, height as u32, dark);
        use_effect_with(deps, move |(_, selected, _, _, dark)| {
            if let (Some(context), true) = (cleared(&canvas, width, height), width > 0.0) {
                let ranks = n;
                Map { context, ink: ink(*dark), wide, row, ranks }.draw(&view, *selected);
            }
        });
    }
    let rank_at = move |event: &MouseEvent| {
        let rank = (f64::from(event.offset_y()) - TOP) / row;
        (0.0..n as f64).contains(&rank).then_some(rank as usize)
    };
    let select = when(&props.on_select, move |event: MouseEvent| rank_at(&event).map(|r| r as u32));
    let point = {
        let (pointed, view) = (pointed.clone(), view.clone());
        Callback::from(move |event: MouseEvent| {
            let x = f64::from(event.offset_x()) - LEFT;
            pointed.set(rank_at(&event).and_then(|rank| describe(&view, rank, wide, x)));
        })
    };
    let leave = {
        let pointed = pointed.clone();
        Callback::from(move |_: MouseEvent| pointed.set(None))
    };
    let full =
        view.ranks.iter().filter_map(|rank| rank.calls.last()).flat_map(|call| &call.output.chunks);
    let full = full.filter(|chunk| chunk.contributors.count_ones() as usize == n).count();
    html! {
        <div class="buffer-map" ref={frame} data-test="buffer-map" data-full={full.to_string()}>
            <canvas ref={canvas} role="img" onclick={select} onmousemove={point} onmouseleave={leave}
                    aria-label={format!("buffers of {n} ranks; {full} chunks hold the data of all ranks")}
                    style={format!("width:{width}px;height:{height}px")} />
            if let Some(words) = &*pointed { <p class="pointed mono">{ words }</p> }
        </div>
    }
}

/// The drawing of all buffers.
struct Map {
    context: CanvasRenderingContext2d,
    ink: Ink,
    /// The width of a chunk and the height of a rank's row, in pixels.
    wide: f64,
    row: f64,
    ranks: usize,
}

impl Map {
    fn draw(&self, view: &View, selected: u32) {
        let context = &self.context;
        context.set_font(FONT);
        context.set_fill_style_str(self.ink.muted);
        for rank in (0..self.ranks).step_by(8) {
            let middle = TOP + (rank as f64 + 0.5) * self.row + 4.0;
            let _ = context.fill_text(&rank.to_string(), 8.0, middle);
        }
        let calls = view.ranks.iter().map(|rank| rank.calls.last());
        for (rank, call) in calls.enumerate().filter_map(|(rank, call)| Some((rank, call?))) {
            if rank == 0 {
                self.names(call);
            }
            let y = TOP + rank as f64 * self.row;
            self.buffers(call, y);
            if rank as u32 == selected {
                context.set_global_alpha(1.0);
                context.set_stroke_style_str(self.ink.accent);
                context.set_line_width(1.5);
                let sizes = sizes(&chunks(call));
                let all = left_of(&sizes, self.wide, sizes.len(), 0) - GAP;
                context.stroke_rect(LEFT - 1.0, y - 1.0, all + 1.0, self.row + 1.0);
            }
        }
        context.set_global_alpha(1.0);
    }

    /// The names of a call's buffers, above them.
    fn names(&self, call: &CallView) {
        let parts = chunks(call);
        let sizes = sizes(&parts);
        self.context.set_global_alpha(1.0);
        self.context.set_fill_style_str(self.ink.muted);
        for (at, (name, _)) in parts.into_iter().enumerate() {
            let _ = self.context.fill_text(name, LEFT + left_of(&sizes, self.wide, at, 0), 12.0);
        }
    }

    /// A rank's buffers, at a height.
    fn buffers(&self, call: &CallView, y: f64) {
        let parts = chunks(call);
        let sizes = sizes(&parts);
        let reduces = call.op.contains("reduce");
        for (at, (_, part)) in parts.into_iter().enumerate() {
            for (index, chunk) in part.iter().enumerate() {
                let x = LEFT + left_of(&sizes, self.wide, at, index);
                self.block((x, y), self.ink.empty, 1.0);
                if let Some((fill, share)) = self.fill(chunk, reduces) {
                    self.block((x, y), fill, share);
                }
            }
        }
    }

    fn block(&self, (x, y): (f64, f64), fill: &str, alpha: f64) {
        self.context.set_fill_style_str(fill);
        self.context.set_global_alpha(alpha);
        self.context.fill_rect(x, y, (self.wide - 0.4).max(0.4), (self.row - 0.6).max(0.6));
    }

    /// Colour and strength of a chunk; nothing of an empty one.
    fn fill(&self, chunk: &ChunkView, reduces: bool) -> Option<(&'static str, f64)> {
        let from = chunk.contributors.count_ones();
        match from {
            0 => None,
            // One reserved colour: all of it is there.
            _ if from as usize == self.ranks => Some((self.ink.done, 0.9)),
            1 => {
                // Where sums grow, a rank's own data stays pale.
                let share = if reduces { 0.55 } else { 1.0 };
                Some((piece_fill(chunk.contributors.trailing_zeros()), share))
            }
            _ => Some((self.ink.muted, 0.15 + 0.6 * f64::from(from) / self.ranks as f64)),
        }
    }
}

/// The buffers of a call that have chunks.
fn chunks(call: &CallView) -> Vec<(&'static str, &[ChunkView])> {
    let all = [
        ("input", call.input.chunks.as_slice()),
        (
            if call.input.chunks.is_empty() { "tensor" } else { "output" },
            call.output.chunks.as_slice(),
        ),
        ("scratch", call.scratch.chunks.as_slice()),
    ];
    all.into_iter().filter(|(_, part)| !part.is_empty()).collect()
}

/// The number of chunks of each buffer.
fn sizes(parts: &[(&'static str, &[ChunkView])]) -> Vec<usize> {
    parts.iter().map(|(_, part)| part.len()).collect()
}

/// The width of a chunk, so that every rank's buffers fit into the room with the gaps between them.
fn chunk_width(room: f64, ranks: impl Iterator<Item = Vec<usize>>) -> f64 {
    let fits = ranks.map(|sizes| {
        let gaps = sizes.len().saturating_sub(1) as f64 * GAP;
        (room - gaps) / sizes.iter().sum::<usize>().max(1) as f64
    });
    fits.reduce(f64::min).unwrap_or(room).max(0.5)
}

/// The place of a buffer's chunk in the drawing, in pixels right of the first one.
fn left_of(sizes: &[usize], wide: f64, buffer: usize, chunk: usize) -> f64 {
    let before: usize = sizes.iter().take(buffer).sum();
    (before + chunk) as f64 * wide + buffer as f64 * GAP
}

/// The buffer and the chunk that are drawn there; none between two buffers and beyond the last.
fn chunk_at(sizes: &[usize], wide: f64, x: f64) -> Option<(usize, usize)> {
    let buffer = (0..sizes.len()).rev().find(|buffer| x >= left_of(sizes, wide, *buffer, 0))?;
    let chunk = ((x - left_of(sizes, wide, buffer, 0)) / wide) as usize;
    (chunk < sizes[buffer]).then_some((buffer, chunk))
}

fn describe(view: &View, rank: usize, wide: f64, x: f64) -> Option<String> {
    let parts = chunks(view.ranks.get(rank)?.calls.last()?);
    let (buffer, index) = chunk_at(&sizes(&parts), wide, x)?;
    let (name, part) = parts.get(buffer)?;
    let chunk = part.get(index)?;
    let whose = explain::ranks((0..64).filter(|rank| chunk.contributors >> rank & 1 == 1));
    let whose = if whose.is_empty() { "nobody".to_owned() } else { format!("ranks {whose}") };
    let elements = chunk.elements;
    Some(format!("rank {rank}, {name} chunk {index} ({elements} elements): from {whose}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_drawn_there_is_what_is_said_of_it(
            sizes in prop::collection::vec(1usize..70, 1..4), room in 200.0..2000.0f64,
        ) {
            let wide = chunk_width(room, [sizes.clone(), vec![1]].into_iter());
            for (buffer, size) in sizes.iter().enumerate() {
                for chunk in 0..*size {
                    let x = left_of(&sizes, wide, buffer, chunk);
                    prop_assert_eq!(chunk_at(&sizes, wide, x + wide / 2.0), Some((buffer, chunk)));
                }
                let end = left_of(&sizes, wide, buffer, *size);
                prop_assert_eq!(chunk_at(&sizes, wide, end + GAP / 2.0), None);
                prop_assert!(wide == 0.5 || end <= room + 1e-6);
            }
            prop_assert_eq!(chunk_at(&sizes, wide, -1.0), None);
        }
    }
}
