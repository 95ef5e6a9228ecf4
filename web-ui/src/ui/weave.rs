//! The messages of a schedule, step by step: ranks down, steps across, a line a message.

use super::canvas::{FONT, cleared, ink, use_size};
use crate::app::use_shared;
use lockstep_web_protocol::{Account, Weave};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`WeaveDrawing`].
#[derive(Properties, PartialEq)]
pub(crate) struct WeaveProps {
    pub(crate) account: Rc<Account>,
    /// Draws a line between nodes of so many ranks; 0 for none.
    #[prop_or_default]
    pub(crate) ranks_per_node: u32,
    pub(crate) words: String,
}

/// The width of the column with the ranks' numbers.
const GUTTER: f64 = 18.0;
/// The height of the line with the steps' numbers.
const FOOT: f64 = 14.0;
const MARGIN: f64 = 7.0;

/// A schedule as a drawing: solid lines are kept, dashed ones combined by who receives them.
#[component(WeaveDrawing)]
pub(crate) fn weave_drawing(props: &WeaveProps) -> Html {
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    {
        let canvas = canvas.clone();
        let deps = (props.account.clone(), props.ranks_per_node, width as u32, height as u32, dark);
        use_effect_with(deps, move |(account, ranks_per_node, _, _, dark)| {
            if width > GUTTER && height > FOOT {
                draw(&canvas, &account.weave, *ranks_per_node, (width, height), *dark);
            }
        });
    }
    html! {
        <div class="weave" ref={frame} data-test="weave" data-strokes={props.account.weave.strokes.len().to_string()}>
            <canvas ref={canvas} role="img" aria-label={props.words.clone()} style={format!("width:{width}px;height:{height}px")} />
        </div>
    }
}

fn draw(canvas: &NodeRef, weave: &Weave, node: u32, (width, height): (f64, f64), dark: bool) {
    let Some(context) = cleared(canvas, width, height) else { return };
    let ink = ink(dark);
    let columns = weave.shown.len().max(1);
    let cut = weave.steps as usize > columns;
    // A cut takes the room of half a column.
    let gap = if cut { 0.6 } else { 0.0 };
    let wide = (width - GUTTER - MARGIN) / (columns as f64 + gap);
    let rows = f64::from(weave.ranks.max(2) - 1);
    let y_of = |rank: u32| MARGIN + f64::from(rank) / rows * (height - FOOT - 2.0 * MARGIN);
    let x_of = |column: usize| {
        let past = if cut && column >= columns / 2 { gap } else { 0.0 };
        GUTTER + (column as f64 + past) * wide
    };
    context.set_font(FONT);
    context.set_fill_style_str(ink.muted);
    context.set_stroke_style_str(ink.line);
    context.set_line_width(1.0);
    context.begin_path();
    for rank in 0..weave.ranks {
        let y = y_of(rank);
        context.move_to(GUTTER, y);
        context.line_to(width - MARGIN, y);
    }
    if weave.ranks <= 24 {
        context.stroke();
    }
    let every = (weave.ranks.div_ceil(((height / 13.0) as u32).max(1))).next_power_of_two();
    for rank in (0..weave.ranks).step_by(every as usize) {
        // Behind the ranks come the switches, which are none.
        let text = match rank >= weave.ranks.saturating_sub(weave.switches) {
            true => "sw".to_owned(),
            false => rank.to_string(),
        };
        let _ = context.fill_text(&text, 0.0, y_of(rank) + 4.0);
    }
    if node > 0 {
        context.set_stroke_style_str(ink.muted);
        context.set_global_alpha(0.5);
        context.begin_path();
        for border in (node..weave.ranks).step_by(node as usize) {
            let y = (y_of(border) + y_of(border - 1)) / 2.0;
            context.move_to(GUTTER, y);
            context.line_to(width - MARGIN, y);
        }
        let _ = context.set_line_dash(&js_sys::Array::of2(&2.into(), &3.into()));
        context.stroke();
        let _ = context.set_line_dash(&js_sys::Array::new());
        context.set_global_alpha(1.0);
    }
    // One path a kind of line: thousands of messages are four strokes of the pen.
    let crowd = weave.strokes.len() as f64 / columns as f64;
    let alpha = if crowd > 400.0 {
        0.35
    } else if crowd > 80.0 {
        0.6
    } else {
        0.9
    };
    for (across, reduces) in [(false, false), (false, true), (true, false), (true, true)] {
        context.set_stroke_style_str(if across { ink.text } else { ink.accent });
        context.set_line_width(if crowd > 80.0 { 0.7 } else { 1.3 });
        context.set_global_alpha(alpha);
        context.begin_path();
        for stroke in &weave.strokes {
            if (stroke.across, stroke.reduces) == (across, reduces) {
                let x = x_of(usize::from(stroke.column));
                context.move_to(x + wide * 0.08, y_of(stroke.from));
                context.line_to(x + wide * 0.92, y_of(stroke.to));
            }
        }
        let dash = match reduces {
            true => js_sys::Array::of2(&4.into(), &2.5.into()),
            false => js_sys::Array::new(),
        };
        let _ = context.set_line_dash(&dash);
        context.stroke();
    }
    let _ = context.set_line_dash(&js_sys::Array::new());
    context.set_global_alpha(1.0);
    context.set_fill_style_str(ink.muted);
    let every = (26.0 / wide).ceil().max(1.0) as usize;
    for (column, step) in weave.shown.iter().enumerate().step_by(every) {
        let _ = context.fill_text(&(step + 1).to_string(), x_of(column) + wide * 0.3, height - 2.0);
    }
    if cut {
        let x = x_of(columns / 2) - gap * wide;
        let _ = context.fill_text("⋯", x + gap * wide / 2.0 - 5.0, height / 2.0);
    }
}
