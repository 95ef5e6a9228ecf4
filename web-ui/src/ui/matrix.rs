//! Messages between many ranks: a row per sender, a column per receiver.

use super::canvas::{FONT, cleared, ink, inside, use_size};
use super::messages::MessagesProps;
use crate::app::use_shared;
use crate::dom::when;
use crate::palette::piece_fill;
use yew::prelude::*;

const MARGIN: f64 = 30.0;

/// Messages between many ranks: each fills its cell as it goes.
#[component(Matrix)]
pub(crate) fn matrix(props: &MessagesProps) -> Html {
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    let n = (props.view.ranks.len().max(1) + props.switches as usize) as f64;
    let side = ((width - MARGIN - 6.0).min(height - MARGIN - 6.0) / n).max(1.0);
    let (width, height) = (width.min(MARGIN + 6.0 + n * side), height.min(MARGIN + 6.0 + n * side));
    {
        let (canvas, view) = (canvas.clone(), props.view.clone());
        let ranks = props.view.ranks.len();
        let size = (width as u32, height as u32);
        let deps = (
            (props.view.clone(), props.time_ps, props.selected),
            (size, props.ranks_per_node, dark),
        );
        use_effect_with(deps, move |((_, time_ps, selected), (_, per_node, dark))| {
            let (Some(context), true) = (cleared(&canvas, width, height), width > 0.0) else {
                return;
            };
            let ink = ink(*dark);
            context.set_font(FONT);
            context.set_fill_style_str(ink.empty);
            context.fill_rect(MARGIN, MARGIN, n * side, n * side);
            // Lines where nodes end, if they are not too close.
            let every = match *per_node {
                node @ 4..=16 => node as usize,
                _ => 8,
            };
            context.set_fill_style_str(ink.line);
            for line in (0..=n as u32).step_by(every) {
                let at = MARGIN + f64::from(line) * side;
                context.fill_rect(MARGIN, at - 0.5, n * side, 1.0);
                context.fill_rect(at - 0.5, MARGIN, 1.0, n * side);
            }
            // Nodes: squares along the diagonal, whose messages stay inside.
            if *per_node > 0 && (*per_node as usize) < ranks {
                context.set_stroke_style_str(ink.muted);
                context.set_line_width(1.5);
                for first in (0..ranks).step_by(*per_node as usize) {
                    let at = MARGIN + first as f64 * side;
                    let tall = (*per_node as usize).min(ranks - first) as f64 * side;
                    context.stroke_rect(at, at, tall, tall);
                }
            }
            context.set_fill_style_str(ink.muted);
            for rank in (0..n as u32).step_by(every) {
                let at = MARGIN + (f64::from(rank) + 0.5) * side;
                // Behind the ranks come the switches, which are none.
                let text = match rank as usize >= ranks {
                    true => "sw".to_owned(),
                    false => rank.to_string(),
                };
                let _ = context.fill_text(&text, 8.0, at + 4.0);
                let _ = context.fill_text(&text, inside(&text, at, width), MARGIN - 4.0);
            }
            let _ = context.fill_text("to →", MARGIN + n * side - 30.0, 10.0);
            let _ = context.fill_text("from ↓", 0.0, 10.0);
            context.set_fill_style_str(ink.accent);
            context.set_global_alpha(0.14);
            let own = MARGIN + f64::from(*selected) * side;
            context.fill_rect(MARGIN, own, n * side, side);
            context.fill_rect(own, MARGIN, side, n * side);
            context.set_global_alpha(1.0);
            for message in &view.messages {
                let whole = message.arrives_ps.saturating_sub(message.departs_ps).max(1) as f64;
                let t = (time_ps.saturating_sub(message.departs_ps) as f64 / whole).clamp(0.0, 1.0);
                let x = MARGIN + f64::from(message.to.0) * side;
                let y = MARGIN + f64::from(message.from.0) * side;
                let inner = (side - 0.5).max(1.0);
                let chunk = message.slice.map_or(message.from.0, |slice| slice.chunk);
                context.set_fill_style_str(piece_fill(chunk));
                context.set_global_alpha(0.35);
                context.fill_rect(x, y, inner, inner);
                context.set_global_alpha(1.0);
                context.fill_rect(x, y, (inner * (0.15 + 0.85 * t)).max(1.0), inner);
            }
        });
    }
    let select = when(&props.on_select, move |event: MouseEvent| {
        let row = (f64::from(event.offset_y()) - MARGIN) / side;
        (0.0..n).contains(&row).then_some(row as u32)
    });
    let words = format!("{} messages on their way between {n} ranks", props.view.messages.len());
    html! {
        <div class="matrix" ref={frame} data-test="matrix" data-messages={props.view.messages.len().to_string()}>
            <canvas ref={canvas} role="img" aria-label={words} onclick={select}
                    style={format!("width:{width}px;height:{height}px")} />
        </div>
    }
}
