//! The timeline: a lane per rank, drawn from pixels that the worker picks.
//!
//! The page never sees spans. It asks for one byte per pixel column and row, paints those in one
//! go, and asks anew when the stretch that is shown changes; until the answer comes the old pixels
//! are stretched to fit.

mod geometry;
mod hover;
mod order;
mod paint;
mod pointer;
mod rows;

use super::canvas::use_size;
use super::fold::use_asking;
use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::palette;
use geometry::{Geometry, Stretch};
use hover::{Hover, Hovered, use_hover};
use lockstep_core::words::counted;
use lockstep_web_protocol::{
    Area, CallId, CallMark, FoundCalls, Response, SessionId, SessionQuestion, Window,
};
pub(crate) use order::{Order, Shown};
pub(crate) use paint::PathMark;
use paint::{Marks, Raster, image_of, paint};
use pointer::{Clicks, Pointer, use_pointer};
use rows::Rows;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Timeline`].
#[derive(Properties, PartialEq)]
pub(crate) struct TimelineProps {
    pub(crate) session: SessionId,
    pub(crate) world_size: u32,
    pub(crate) lanes: u32,
    pub(crate) end_ps: u64,
    /// The range that is shown at first; everything if absent.
    #[prop_or_default]
    pub(crate) fit: Option<(u64, u64)>,
    /// The range that the timeline begins with instead, as it was left.
    #[prop_or_default]
    pub(crate) begins: Option<(u64, u64)>,
    /// Hears of the range that is shown once it stays; none if it is that of [`fit`](Self::fit).
    #[prop_or_default]
    pub(crate) on_range: Option<Callback<Option<(u64, u64)>>>,
    /// True if the timeline draws nothing later than the playhead, because a question asks for it.
    #[prop_or_default]
    pub(crate) future_hidden: bool,
    #[prop_or_default]
    pub(crate) playhead_ps: Option<u64>,
    /// True beside another timeline on the same scale: it shows everything again when the other one comes.
    #[prop_or_default]
    pub(crate) compared: bool,
    /// A click goes to a time.
    #[prop_or_default]
    pub(crate) on_seek: Option<Callback<u64>>,
    /// Ranks that the findings blame.
    #[prop_or_default]
    pub(crate) culprits: Vec<u32>,
    /// Changes whenever there is more to draw.
    #[prop_or_default]
    pub(crate) tick: u64,
    /// Rows are at least this high, in pixels, even if not all ranks are in sight then.
    #[prop_or_default]
    pub(crate) least_row: f64,
    /// True if the end stays in sight as it moves.
    #[prop_or_default]
    pub(crate) follow: bool,
    /// The rows; a row a rank if absent.
    #[prop_or_default]
    pub(crate) order: Option<Order>,
    /// The call that is marked.
    #[prop_or_default]
    pub(crate) selected: Option<CallMark>,
    /// The calls that a search found: all others are dimmed.
    #[prop_or_default]
    pub(crate) found: Option<Rc<FoundCalls>>,
    /// A place to bring into sight; each once.
    #[prop_or_default]
    pub(crate) look: Option<Look>,
    /// A click on a call selects it, and one beside all calls none.
    #[prop_or_default]
    pub(crate) on_select: Option<Callback<Option<CallId>>>,
    /// The area that is marked.
    #[prop_or_default]
    pub(crate) area: Option<Area>,
    /// A path across ranks that is drawn over them, in order of time.
    #[prop_or_default]
    pub(crate) path: Rc<Vec<PathMark>>,
    /// Moments of ranks that have a flag.
    #[prop_or_default]
    pub(crate) flags: Vec<(u32, u64)>,
    /// Dragging with Shift, or after "Measure", marks an area; true once it is let go.
    #[prop_or_default]
    pub(crate) on_area: Option<Callback<(Area, bool)>>,
    /// Keys that move the selection.
    #[prop_or_default]
    pub(crate) on_step: Option<Callback<Step>>,
}

/// A place of a timeline that is to be brought into sight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Look {
    pub(crate) rank: u32,
    pub(crate) from_ps: u64,
    pub(crate) to_ps: u64,
    /// The stretch of time to show, if not one around the place.
    pub(crate) shown: Option<(u64, u64)>,
    /// Differs from one to the next, so that the same place can be gone to again.
    pub(crate) number: u32,
}

/// A move of the selection by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Previous,
    Next,
    /// To the rank in the row above, and below.
    To {
        rank: u32,
    },
    /// Shows all of it.
    Open,
    Leave,
}

/// A range that is shown for so long stays.
const STAYS_MS: i32 = 400;

/// A lane per rank over time.
#[component(Timeline)]
pub(crate) fn timeline(props: &TimelineProps) -> Html {
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let order = props.order.clone().unwrap_or(Order::All(props.world_size));
    let stretch = use_stretch(props, &order, width, height);
    let raster = use_raster(props, &order, *stretch, width, height);
    let in_sight = in_sight(&order, *stretch, rows_of(props), height);
    let hover = use_hover(props.session, in_sight);
    let now = Rc::new(Geometry {
        stretch: *stretch,
        width,
        height,
        rows: rows_of(props),
        order: order.clone(),
        end: props.end_ps as f64,
    });
    let future_hidden = use_asking() || props.future_hidden;
    let marks = Marks {
        culprits: props.culprits.clone(),
        playhead_ps: props.playhead_ps,
        future_hidden,
        selected: props.selected.clone(),
        found: props.found.clone(),
        area: props.area.clone(),
        path: props.path.clone(),
        flags: props.flags.clone(),
        links: hover.links(),
    };
    use_painted(&canvas, &raster, &now, marks);
    let measures = use_state(|| false);
    let on_click = use_click(props.session, &props.on_select, &hover);
    let pointer = use_pointer(
        &frame,
        now.clone(),
        stretch.setter(),
        hover.clone(),
        Clicks {
            on_seek: props.on_seek.clone(),
            on_click,
            on_area: props.on_area.clone(),
            measures: *measures,
        },
    );
    let keys = on_key(props, &stretch, &now);
    let words = format!(
        "Timeline of {} over {}",
        counted(props.world_size, "rank"),
        explain::time(props.end_ps)
    );
    let row_words = row_words(&pointer, raster.as_deref());
    let busy = if pointer.dragging { "dragging" } else { "" };
    let first_row = stretch.first_row as u32;
    html! {
        <div class="timeline" data-test="timeline" data-from={format!("{:.0}", stretch.from)} data-to={format!("{:.0}", stretch.to)}
             data-first={now.order.rank_at(first_row).map(|rank| rank.to_string())} data-drawn={raster.is_some().to_string()}
             data-links={hover.links().len().to_string()}>
            <div class={classes!("stage", busy)} ref={frame} tabindex="0" role="application" aria-label={words} title={row_words} onkeydown={keys}
                 onpointerdown={pointer.down} onpointermove={pointer.moved} onpointerup={pointer.up.clone()}
                 onpointercancel={pointer.up} onpointerleave={pointer.leave}>
                <canvas ref={canvas} style={format!("width:{width}px;height:{height}px")} />
                <Hover hover={(*hover).clone()} {width} {height} />
            </div>
            if future_hidden && props.playhead_ps.is_some_and(|at| at < props.end_ps) { <p class="later muted">{ "What comes later is hidden: a question asks about it." }</p> }
            { tools(props, &stretch, &now, &measures) }
        </div>
    }
}

/// The stretch of time and rows that is shown: all of it at first, again when another trace is shown or a
/// live one has grown, and the place of a call that is to come in sight.
#[hook]
fn use_stretch(
    props: &TimelineProps,
    order: &Order,
    width: f64,
    height: f64,
) -> UseStateHandle<Stretch> {
    let fit = props.fit.unwrap_or((0, props.end_ps.saturating_add(props.end_ps / 50).max(1)));
    let begins = props.begins.unwrap_or(fit);
    let stretch = use_state(|| Stretch::whole(begins));
    {
        let (stretch, before, follow) = (stretch.clone(), use_mut_ref(|| None), props.follow);
        let again = (props.session, if follow { props.end_ps } else { fit.1 }, props.compared);
        use_effect_with(again, move |_| {
            let Some(before) = before.replace(Some(Stretch::whole(fit))) else { return };
            // If the reader has zoomed in, the stretch stays.
            let looks = follow && stretch.to - stretch.from < 0.999 * (before.to - before.from);
            if !looks {
                let first_row = if follow { stretch.first_row } else { 0.0 };
                stretch.set(Stretch { first_row, ..Stretch::whole(fit) });
            }
        });
    }
    {
        let on_range = props.on_range.clone();
        use_effect_with((*stretch, fit), move |(stretch, fit)| {
            let whole = Stretch::whole(*fit);
            let range = Some((stretch.from as u64, stretch.to as u64))
                .filter(|_| (stretch.from, stretch.to) != (whole.from, whole.to));
            // Not in each frame of a movement.
            let said = on_range
                .clone()
                .and_then(|on_range| dom::later(STAYS_MS, move || on_range.emit(range)));
            move || drop(said)
        });
    }
    {
        let (stretch, order) = (stretch.clone(), order.clone());
        let (rows, end) = (rows_of(props), props.end_ps as f64);
        let ready = width > 0.0;
        use_effect_with((props.look.clone(), ready), move |(look, ready)| {
            if let Some(Look { rank, from_ps, to_ps, shown, .. }) = look.as_ref().filter(|_| *ready)
            {
                let row = order.row_of(*rank);
                let there = stretch.showing(*from_ps, *to_ps, row, rows, height, end);
                stretch.set(match shown {
                    Some(shown) => Stretch { first_row: there.first_row, ..Stretch::whole(*shown) },
                    None => there,
                });
            }
        });
    }
    stretch
}

/// Paints the canvas. The playhead moves every frame, the pixels beneath it seldom: they are kept as an
/// image.
#[hook]
fn use_painted(canvas: &NodeRef, raster: &Option<Rc<Raster>>, now: &Rc<Geometry>, marks: Marks) {
    let dark = use_shared().dark;
    let image = use_memo((raster.clone(), dark), |(raster, dark)| {
        raster.as_ref().and_then(|raster| image_of(raster, *dark))
    });
    let (canvas, raster, now) = (canvas.clone(), raster.clone(), now.clone());
    let deps = (now.clone(), raster.clone(), marks, dark);
    use_effect_with(deps, move |(_, _, marks, dark)| {
        let drawn = raster.as_deref().zip((*image).as_ref());
        paint(&canvas, &now, drawn, marks, *dark);
    });
}

/// Selects the call at a point; anything else that is there is explained on the spot.
#[hook]
fn use_click(
    session: SessionId,
    on_select: &Option<Callback<Option<CallId>>>,
    hover: &Rc<Hovered>,
) -> Option<Callback<Option<hover::Point>>> {
    let client = use_shared().client;
    let hover = hover.clone();
    on_select.clone().map(|on_select| {
        Callback::from(move |point: Option<hover::Point>| {
            let (client, hover, on_select) = (client.clone(), hover.clone(), on_select.clone());
            wasm_bindgen_futures::spawn_local(async move {
                let picked = match point {
                    Some(point) => hover::picked(&client, session, point).await,
                    None => None,
                };
                let call = picked.as_ref().and_then(|picked| picked.call);
                match (point, call) {
                    (Some(point), Some(work)) => {
                        hover.set.emit((None, false));
                        on_select.emit(Some(CallId { rank: point.rank, work }));
                    }
                    (Some(_), None) if picked.is_some() => hover.set.emit((point, true)),
                    _ => on_select.emit(None),
                }
            });
        })
    })
}

/// The explanation of the row whose name the pointer is on.
fn row_words(pointer: &Pointer, raster: Option<&Raster>) -> Option<&'static str> {
    let lane = pointer.named_lane? as usize;
    raster?.rows.get(lane).map(|kind| kind.explanation())
}

/// Moves the selection or the stretch by keys.
fn on_key(
    props: &TimelineProps,
    stretch: &UseStateHandle<Stretch>,
    now: &Rc<Geometry>,
) -> Callback<KeyboardEvent> {
    let (stretch, now) = (stretch.clone(), now.clone());
    let (on_step, selected) = (props.on_step.clone(), props.selected.clone());
    let (on_area, plays) = (props.on_area.clone(), props.playhead_ps.is_some());
    Callback::from(move |event: KeyboardEvent| {
        if event.ctrl_key() || event.meta_key() || event.alt_key() {
            return;
        }
        // Without a selected call, a program's keys go from moment to moment.
        if let Some(on_step) = on_step.as_ref().filter(|_| selected.is_some() || !plays)
            && let Some(step) = step_of(&event.key(), selected.as_ref(), &now)
        {
            event.prevent_default();
            on_step.emit(step);
            return;
        }
        let (middle, span) = ((stretch.from + stretch.to) / 2.0, stretch.to - stretch.from);
        let changed = match event.key().as_str() {
            "w" | "W" => stretch.zoomed(0.7, middle, now.end),
            "s" | "S" => stretch.zoomed(1.4, middle, now.end),
            "a" | "A" => stretch.moved(-0.15 * span, now.end),
            "d" | "D" => stretch.moved(0.15 * span, now.end),
            "0" => Stretch::whole((0, (now.end * 1.02) as u64)),
            "m" | "M" if on_area.is_some() => {
                event.prevent_default();
                // All that is in sight.
                let area = now.area((now.gutter(), 0.0), (now.width, now.height - 1.0));
                on_area.iter().for_each(|on_area| on_area.emit((area.clone(), true)));
                return;
            }
            "ArrowUp" => stretch.scrolled(-4.0, now.rows.count, now.visible()),
            "ArrowDown" => stretch.scrolled(4.0, now.rows.count, now.visible()),
            _ => return,
        };
        event.prevent_default();
        stretch.set(changed);
    })
}

/// The buttons that scroll and zoom.
fn tools(
    props: &TimelineProps,
    stretch: &UseStateHandle<Stretch>,
    now: &Rc<Geometry>,
    measures: &UseStateHandle<bool>,
) -> Html {
    let toggle = {
        let measures = measures.clone();
        Callback::from(move |_: MouseEvent| measures.set(!*measures))
    };
    let whole = {
        let (stretch, end) = (stretch.setter(), props.end_ps);
        Callback::from(move |_: MouseEvent| {
            stretch.set(Stretch::whole((0, end.saturating_add(end / 50).max(1))))
        })
    };
    let zoom = |factor: f64| {
        let (stretch, now) = (stretch.clone(), now.clone());
        Callback::from(move |_: MouseEvent| {
            let middle = (stretch.from + stretch.to) / 2.0;
            stretch.set(stretch.zoomed(factor, middle, now.end));
        })
    };
    let scroll = |pages: f64| {
        let (stretch, now) = (stretch.clone(), now.clone());
        let by = pages * f64::from((now.visible() / 2).max(1));
        Callback::from(move |_: MouseEvent| {
            stretch.set(stretch.scrolled(by, now.rows.count, now.visible()));
        })
    };
    let first_row = stretch.first_row as u32;
    html! {
        <div class="tools">
            if now.visible() < now.rows.count {
                <span class="muted mono" data-test="visible-ranks">{ match now.order {
                    Order::All(_) => format!("r{}–{} of {}", first_row, first_row + now.visible() - 1, props.world_size),
                    Order::Chosen { .. } => format!("rows {}–{} of {}", first_row + 1, first_row + now.visible(), now.rows.count),
                } }</span>
                <button class="quiet" onclick={scroll(-1.0)} aria-label="Ranks before" title="Ranks before (↑, shift and wheel)" data-test="ranks-up">{ "↑" }</button>
                <button class="quiet" onclick={scroll(1.0)} aria-label="Ranks after" title="Ranks after (↓, shift and wheel)" data-test="ranks-down">{ "↓" }</button>
            }
            if props.on_area.is_some() {
                <button class="quiet" onclick={toggle} aria-pressed={measures.to_string()} title="Drag over the timeline to measure (or hold Shift)" data-test="measure">{ "Measure" }</button>
            }
            <button class="quiet" onclick={zoom(0.6)} aria-label="Zoom in" title="Zoom in (W, wheel)" data-test="zoom-in">{ "+" }</button>
            <button class="quiet" onclick={zoom(1.7)} aria-label="Zoom out" title="Zoom out (S, wheel)" data-test="zoom-out">{ "−" }</button>
            <button class="quiet" onclick={whole} aria-label="Show all" title="Show all (0)" data-test="zoom-all">{ "all" }</button>
        </div>
    }
}

/// The ranks whose rows are in sight, top down.
fn in_sight(order: &Order, stretch: Stretch, rows: Rows, height: f64) -> Vec<u32> {
    let first = stretch.first_row as u32;
    (first..first + rows.visible(height)).filter_map(|row| order.rank_at(row)).collect()
}

fn rows_of(props: &TimelineProps) -> Rows {
    let TimelineProps { world_size, lanes, least_row: least, .. } = *props;
    let count = props.order.as_ref().map_or(world_size, Order::len);
    let several = props.order.as_ref().is_some_and(Order::stands_for_several);
    Rows { count, lanes, least, several }
}

/// The step of the selection for a key, if it has one.
fn step_of(key: &str, selected: Option<&CallMark>, now: &Geometry) -> Option<Step> {
    let row = selected.and_then(|mark| now.order.row_of(mark.id.rank));
    let beside = |row: Option<u32>| Some(Step::To { rank: now.order.rank_at(row?)? });
    match key {
        "Escape" => selected.map(|_| Step::Leave),
        "Enter" => Some(Step::Open),
        "ArrowLeft" => Some(Step::Previous),
        "ArrowRight" => Some(Step::Next),
        // Without a selection they scroll.
        "ArrowUp" => beside(row?.checked_sub(1)),
        "ArrowDown" => beside(row?.checked_add(1)),
        _ => None,
    }
}

/// The newest pixels. One question is under way at a time; when it is answered and the stretch has
/// changed meanwhile, the next one follows.
#[hook]
fn use_raster(
    props: &TimelineProps,
    order: &Order,
    stretch: Stretch,
    width: f64,
    height: f64,
) -> Option<Rc<Raster>> {
    let client = use_shared().client;
    let raster = use_state(|| None::<Rc<Raster>>);
    let asking = use_state(|| false);
    let rows = rows_of(props);
    let gutter = rows.gutter(width, height);
    let wanted = (width > gutter).then(|| {
        let columns = ((width - gutter) * crate::dom::pixel_ratio()) as u32;
        let window = Window {
            from_ps: stretch.from.max(0.0) as u64,
            to_ps: stretch.to.max(1.0) as u64,
            columns,
            ranks: in_sight(order, stretch, rows, height),
            label_columns: if rows.readable(height) {
                (34.0 * crate::dom::pixel_ratio()) as u32
            } else {
                0
            },
        };
        (props.session, window, props.tick)
    });
    let drawn = raster.as_ref().map(|raster| (raster.session, raster.window.clone(), raster.tick));
    {
        let (raster, asking) = (raster.clone(), asking.clone());
        use_effect_with((wanted, drawn, *asking), move |(wanted, drawn, busy)| {
            let Some((session, window, tick)) = wanted.clone().filter(|_| wanted != drawn && !busy)
            else {
                return;
            };
            asking.set(true);
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client
                    .ask(SessionQuestion::Draw { window: window.clone() }.about(session))
                    .await;
                if let Ok(answered) = answered {
                    let bytes = answered.bytes();
                    if let Response::Drawn { cut, rows, texts } = answered.response {
                        raster.set(Some(Rc::new(Raster {
                            session,
                            window,
                            tick,
                            rows,
                            classes: bytes,
                            texts,
                            cut,
                        })));
                    }
                } else {
                    // The session is gone: nothing will come of asking again.
                    let nothing = Raster {
                        session,
                        window,
                        tick,
                        rows: Vec::new(),
                        classes: Vec::new(),
                        texts: Vec::new(),
                        cut: false,
                    };
                    raster.set(Some(Rc::new(nothing)));
                }
                asking.set(false);
            });
        });
    }
    raster.as_ref().filter(|raster| raster.session == props.session).cloned()
}

/// Properties of [`Legend`].
#[derive(Properties, PartialEq)]
pub(crate) struct LegendProps {
    /// The kinds of calls that are there.
    pub(crate) kinds: Vec<u8>,
    /// True if messages have rows of their own.
    pub(crate) has_messages: bool,
    /// True if one of the calls never ended.
    pub(crate) unfinished: bool,
    /// True if the end of the recording cuts what has not ended.
    #[prop_or_default]
    pub(crate) cut: bool,
}

/// The kinds of calls that are in a timeline, and their colours.
#[component(Legend)]
pub(crate) fn legend(props: &LegendProps) -> Html {
    let dark = use_shared().dark;
    html! {
        <ul class="legend">
            { for props.kinds.iter().map(|kind| html! {
                <li><i style={format!("background:{}", palette::kind_css(*kind, dark))} />{ lockstep_web_protocol::call_kinds::op_kind_name(*kind) }</li>
            }) }
            if props.has_messages {
                <li><i style={format!("background:linear-gradient(90deg, {}, {})", palette::piece_fill(0), palette::piece_fill(7))} />{ "messages, by chunk" }</li>
            }
            if props.unfinished {
                <li><i class="stuck" />{ "not completed by the end" }</li>
                if props.cut { <li><i class="cut" />{ "the recording ends here" }</li> }
            }
        </ul>
    }
}
