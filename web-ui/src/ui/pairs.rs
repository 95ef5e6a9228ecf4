//! The traffic between pairs of ranks along a dimension: a row per sender, a column per receiver,
//! darker for more bytes, with the nodes' borders.

use super::canvas::{FONT, cleared, ink, inside, use_size};
use crate::app::use_shared;
use lockstep_web_protocol::MeshAccount;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`PairsMatrix`].
#[derive(Properties, PartialEq)]
pub(crate) struct PairsProps {
    pub(crate) account: Rc<MeshAccount>,
    pub(crate) dim: usize,
    pub(crate) ranks_per_node: u32,
    pub(crate) selected: Option<u32>,
}

const MARGIN: f64 = 30.0;

/// Bytes between ranks as a matrix.
#[component(PairsMatrix)]
pub(crate) fn pairs_matrix(props: &PairsProps) -> Html {
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    let n = props.account.coordinates.len().max(1) as f64;
    let side = ((width - MARGIN - 6.0).min(height - MARGIN - 6.0) / n).max(0.5);
    let size = MARGIN + 6.0 + n * side;
    let pairs = props.account.dims.get(props.dim).map_or(0, |dim| dim.pairs.len());
    {
        let canvas = canvas.clone();
        let deps = (
            props.account.clone(),
            props.dim,
            props.ranks_per_node,
            props.selected,
            (width as u32, height as u32),
            dark,
        );
        use_effect_with(deps, move |(account, dim, node, selected, _, dark)| {
            let (Some(context), true) = (cleared(&canvas, size, size), width > 0.0) else { return };
            let ink = ink(*dark);
            let at = |rank: u32| MARGIN + f64::from(rank) * side;
            context.set_font(FONT);
            context.set_fill_style_str(ink.empty);
            context.fill_rect(MARGIN, MARGIN, n * side, n * side);
            let Some(dim) = account.dims.get(*dim) else { return };
            let most = dim.pairs.iter().map(|(_, _, bytes)| *bytes).max().unwrap_or(1).max(1);
            for (from, to, bytes) in &dim.pairs {
                let across = from.checked_div(*node) != to.checked_div(*node);
                context.set_fill_style_str(if across { ink.text } else { ink.accent });
                context.set_global_alpha(0.3 + 0.7 * *bytes as f64 / most as f64);
                let inner = if side > 4.0 { side - 0.5 } else { side };
                context.fill_rect(at(*to), at(*from), inner, inner);
            }
            context.set_global_alpha(1.0);
            let many = *node > 0 && n > 8.0 * f64::from(*node);
            context.set_fill_style_str(if many { ink.line } else { ink.muted });
            for border in (0..=n as u32).step_by((*node).max(1) as usize) {
                context.fill_rect(MARGIN, at(border) - 0.5, n * side, 1.0);
                context.fill_rect(at(border) - 0.5, MARGIN, 1.0, n * side);
            }
            context.set_fill_style_str(ink.muted);
            let every = ((22.0 / side).ceil() as u32).max(1).next_power_of_two();
            for rank in (0..n as u32).step_by(every as usize) {
                let middle = at(rank) + side / 2.0;
                let text = rank.to_string();
                let _ = context.fill_text(&text, 8.0, middle + 4.0);
                let _ = context.fill_text(&text, inside(&text, middle, size), MARGIN - 4.0);
            }
            let _ = context.fill_text("to →", MARGIN + (n * side - 30.0).max(0.0), 10.0);
            let _ = context.fill_text("from ↓", 0.0, 10.0);
            if let Some(rank) = *selected {
                context.set_stroke_style_str(ink.text);
                context.set_line_width(1.5);
                context.stroke_rect(MARGIN, at(rank), n * side, side);
                context.stroke_rect(at(rank), MARGIN, side, n * side);
            }
        });
    }
    html! {
        <div class="matrix" ref={frame} data-test="pairs" data-pairs={pairs.to_string()}>
            <canvas ref={canvas} role="img" aria-label={format!("{pairs} pairs of ranks talk")}
                    style={format!("width:{size}px;height:{size}px")} />
        </div>
    }
}
