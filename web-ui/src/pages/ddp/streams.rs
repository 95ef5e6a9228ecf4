//! A rank's compute and communication streams over time, of one or two settings on one time axis.
//!
//! One colour a pixel column and row, found by time; texts where there is room.

use super::shown::Shown;
use super::spans::{self, Lanes, Span};
use super::stream_paint::{GUTTER, Label, Paint, Rows, playhead};
use super::stretch::Stretch;
use crate::app::use_shared;
use crate::dom::Listener;
use crate::explain;
use crate::ui::canvas::{cleared, ink, use_size};
use crate::ui::facts_list;
use std::cell::RefCell;
use std::rc::Rc;
use web_sys::{Element, WheelEvent};
use yew::prelude::*;

/// Properties of [`Streams`].
#[derive(Properties, PartialEq)]
pub(super) struct StreamsProps {
    pub(super) sides: Rc<Vec<Shown>>,
    pub(super) time_ps: u64,
    pub(super) on_seek: Callback<u64>,
    pub(super) rank: u32,
}

/// The item under the pointer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pointed {
    x: f64,
    y: f64,
    side: usize,
    span: Span,
}

/// The streams.
#[component(Streams)]
pub(super) fn streams(props: &StreamsProps) -> Html {
    let (frame, canvas, over) = (use_node_ref(), use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let end_ps = props.sides.iter().map(|side| side.account.pass.end_ps).max().unwrap_or(1);
    let stretch = use_state(|| Stretch::whole(end_ps));
    let lanes = use_memo(props.sides.clone(), |sides| {
        sides.iter().map(|side| Lanes::of(&side.account)).collect::<Vec<_>>()
    });
    let rows = Rows { width, height, sides: props.sides.len() };
    {
        let stretch = stretch.setter();
        use_effect_with(end_ps, move |end_ps| stretch.set(Stretch::whole(*end_ps)));
    }
    {
        // The playhead stays in sight.
        let (set, now) = (stretch.setter(), *stretch);
        use_effect_with(props.time_ps, move |time| {
            let followed = now.following(*time as f64, end_ps);
            if followed != now {
                set.set(followed);
            }
        });
    }
    use_painted(props, &canvas, &over, &lanes, rows, *stretch);
    use_wheel(&frame, &stretch, rows, end_ps);
    let pointed = use_state(|| None::<Pointed>);
    let dragged = Dragged { stretch: stretch.clone(), rows, end_ps };
    let drag = use_drag(&frame, &pointed, dragged, lanes, props.on_seek.clone());
    let keys = on_key(&stretch, props.time_ps as f64, end_ps);
    let exposed: Vec<String> =
        props.sides.iter().map(|side| side.account.pass.exposed_ps.to_string()).collect();
    let words = format!(
        "Compute and communication stream of rank {} over {}",
        props.rank,
        explain::time(end_ps)
    );
    html! {
        <div class="streams" data-test="streams" data-exposed={exposed.join(",")}
             data-from={format!("{:.0}", stretch.from)} data-to={format!("{:.0}", stretch.to)}>
            <div class="stage" ref={frame} tabindex="0" role="application" aria-label={words} onkeydown={keys}
                 onpointerdown={drag.down} onpointermove={drag.moved} onpointerup={drag.up} onpointerleave={drag.leave}>
                <canvas ref={canvas} style={format!("width:{width}px;height:{height}px")} />
                <canvas ref={over} style={format!("width:{width}px;height:{height}px")} />
                if let Some(pointed) = &*pointed { { card(props, pointed, rows) } }
            </div>
            { tools(props, &stretch, end_ps) }
        </div>
    }
}

/// Paints the spans, and above them the playhead and the labels, which lie upon the pale part.
#[hook]
fn use_painted(
    props: &StreamsProps,
    canvas: &NodeRef,
    over: &NodeRef,
    lanes: &Rc<Vec<Lanes>>,
    rows: Rows,
    stretch: Stretch,
) {
    let dark = use_shared().dark;
    let labels = use_mut_ref(Vec::<Label>::new);
    {
        let (canvas, labels) = (canvas.clone(), labels.clone());
        let deps = (props.sides.clone(), lanes.clone(), rows, stretch, dark);
        use_effect_with(deps, move |(sides, lanes, rows, stretch, dark)| {
            if rows.width > GUTTER
                && let Some(context) = cleared(&canvas, rows.width, rows.height)
            {
                let paint = Paint {
                    context,
                    rows,
                    stretch: *stretch,
                    ink: ink(*dark),
                    dark: *dark,
                    labels: RefCell::default(),
                };
                paint.all(sides, lanes);
                *labels.borrow_mut() = paint.labels.into_inner();
            }
        });
    }
    let over = over.clone();
    // Its effect runs after that of the spans, whose labels it writes.
    let deps = (props.time_ps, rows, stretch, dark, props.sides.clone());
    use_effect_with(deps, move |(time, rows, stretch, dark, _)| {
        if rows.width > GUTTER
            && let Some(context) = cleared(&over, rows.width, rows.height)
        {
            playhead(&context, rows, *stretch, *time, *dark);
            let x = GUTTER + stretch.x(*time as f64, rows.across());
            for label in labels.borrow().iter() {
                label.write(&context, x, *dark);
            }
        }
    });
}

/// A point of the window in pixels of the drawing.
fn place(frame: &NodeRef, x: i32, y: i32) -> (f64, f64) {
    let area = frame.cast::<Element>().map(|element| element.get_bounding_client_rect());
    area.map_or((-1.0, -1.0), |area| (f64::from(x) - area.left(), f64::from(y) - area.top()))
}

/// Moves with shift and the wheel, zooms with ctrl and the wheel; a wheel alone scrolls the page.
#[hook]
fn use_wheel(frame: &NodeRef, stretch: &UseStateHandle<Stretch>, rows: Rows, end_ps: u64) {
    let latest = use_mut_ref(|| (**stretch, rows, end_ps));
    *latest.borrow_mut() = (**stretch, rows, end_ps);
    let (frame, set) = (frame.clone(), stretch.setter());
    use_effect_with((), move |()| {
        let heard = frame.cast::<Element>().map(|element| {
            Listener::on(&element, "wheel", move |event: WheelEvent| {
                let (stretch, rows, end_ps) = *latest.borrow();
                let unit = if event.delta_mode() == 0 { 1.0 } else { 24.0 };
                let (dx, dy) = (event.delta_x() * unit, event.delta_y() * unit);
                let (x, _) = place(&frame, event.client_x(), event.client_y());
                let span = stretch.to - stretch.from;
                let next = if event.shift_key() || dx.abs() > dy.abs() {
                    stretch.moved((dx + dy) / rows.across() * span, end_ps)
                } else {
                    let factor = 1.0022f64.powf(dy.clamp(-300.0, 300.0));
                    stretch.zoomed(factor, stretch.time(x - GUTTER, rows.across()), end_ps)
                };
                if next != stretch {
                    event.prevent_default();
                    set.set(next);
                }
            })
        });
        move || drop(heard)
    });
}

/// The stretch that is dragged, and the rows that it is drawn in.
#[derive(Clone)]
struct Dragged {
    stretch: UseStateHandle<Stretch>,
    rows: Rows,
    end_ps: u64,
}

/// The pointer's events.
struct Drag {
    down: Callback<PointerEvent>,
    moved: Callback<PointerEvent>,
    up: Callback<PointerEvent>,
    leave: Callback<PointerEvent>,
}

/// Drags the stretch, points at the span under the pointer, and seeks at a click.
#[hook]
fn use_drag(
    frame: &NodeRef,
    pointed: &UseStateHandle<Option<Pointed>>,
    dragged: Dragged,
    lanes: Rc<Vec<Lanes>>,
    on_seek: Callback<u64>,
) -> Drag {
    // The last place of the pointer that is down, and the way that it has been moved.
    let held = use_mut_ref(|| None::<(f64, f64)>);
    let down = {
        let (held, frame) = (held.clone(), frame.clone());
        Callback::from(move |event: PointerEvent| {
            *held.borrow_mut() = Some((place(&frame, event.client_x(), event.client_y()).0, 0.0));
        })
    };
    let moved = {
        let (held, pointed, frame) = (held.clone(), pointed.clone(), frame.clone());
        let Dragged { stretch, rows, end_ps } = dragged.clone();
        Callback::from(move |event: PointerEvent| {
            let (x, y) = place(&frame, event.client_x(), event.client_y());
            if let Some((before, travelled)) = held.borrow_mut().as_mut() {
                let dx = x - *before;
                (*before, *travelled) = (x, *travelled + dx.abs());
                if *travelled > 4.0 {
                    if let Some(element) = frame.cast::<Element>() {
                        let _ = element.set_pointer_capture(event.pointer_id());
                    }
                    let span = stretch.to - stretch.from;
                    stretch.set(stretch.moved(-dx / rows.across() * span, end_ps));
                }
                return;
            }
            let time = stretch.time(x - GUTTER, rows.across());
            let pixel = (stretch.to - stretch.from) / rows.across();
            let found = rows.at(y).filter(|_| x > GUTTER).and_then(|(side, row)| {
                let lanes = lanes.get(side)?;
                let lane = if row == 0 { &lanes.compute } else { &lanes.communication };
                let span = *spans::at(lane, time - pixel, time + 2.0 * pixel)?;
                Some(Pointed { x, y, side, span })
            });
            if found != *pointed {
                pointed.set(found);
            }
        })
    };
    let up = {
        let (held, frame) = (held.clone(), frame.clone());
        let Dragged { stretch, rows, .. } = dragged;
        Callback::from(move |event: PointerEvent| {
            let Some((_, travelled)) = held.borrow_mut().take() else { return };
            let (x, _) = place(&frame, event.client_x(), event.client_y());
            if travelled <= 4.0 && x > GUTTER {
                on_seek.emit(stretch.time(x - GUTTER, rows.across()).max(0.0) as u64);
            }
        })
    };
    let pointed = pointed.setter();
    let leave = Callback::from(move |_: PointerEvent| {
        held.borrow_mut().take();
        pointed.set(None);
    });
    Drag { down, moved, up, leave }
}

/// Zooms and moves by keys.
fn on_key(stretch: &UseStateHandle<Stretch>, time: f64, end_ps: u64) -> Callback<KeyboardEvent> {
    let stretch = stretch.clone();
    Callback::from(move |event: KeyboardEvent| {
        let span = stretch.to - stretch.from;
        let next = match event.key().as_str() {
            "w" | "W" => stretch.zoomed(0.7, time, end_ps),
            "s" | "S" => stretch.zoomed(1.4, time, end_ps),
            "a" | "A" => stretch.moved(-0.15 * span, end_ps),
            "d" | "D" => stretch.moved(0.15 * span, end_ps),
            "0" => Stretch::whole(end_ps),
            _ => return,
        };
        event.prevent_default();
        stretch.set(next);
    })
}

/// The buttons that zoom.
fn tools(props: &StreamsProps, stretch: &UseStateHandle<Stretch>, end_ps: u64) -> Html {
    let zoom = |factor: f64| {
        let (stretch, time) = (stretch.clone(), props.time_ps as f64);
        Callback::from(move |_: MouseEvent| {
            let inside = (stretch.from..stretch.to).contains(&time);
            let around = if inside { time } else { (stretch.from + stretch.to) / 2.0 };
            stretch.set(stretch.zoomed(factor, around, end_ps));
        })
    };
    let whole = {
        let stretch = stretch.setter();
        Callback::from(move |_: MouseEvent| stretch.set(Stretch::whole(end_ps)))
    };
    html! {
        <div class="tools">
            <span class="muted small-print what">{ format!("rank {}", props.rank) }</span>
            <button class="quiet" onclick={zoom(0.5)} aria-label="Zoom in" title="Zoom in (W, wheel)" data-test="zoom-in">{ "+" }</button>
            <button class="quiet" onclick={zoom(2.0)} aria-label="Zoom out" title="Zoom out (S, wheel)" data-test="zoom-out">{ "−" }</button>
            <button class="quiet" onclick={whole} aria-label="Show all" title="Show all (0)" data-test="zoom-all">{ "all" }</button>
        </div>
    }
}

fn card(props: &StreamsProps, pointed: &Pointed, rows: Rows) -> Html {
    let Some(side) = props.sides.get(pointed.side) else { return html! {} };
    let (title, facts) = spans::about(&side.account, &pointed.span);
    let across = match pointed.x > rows.width / 2.0 {
        true => format!("right:{:.0}px", rows.width - pointed.x + 14.0),
        false => format!("left:{:.0}px", pointed.x + 14.0),
    };
    html! {
        <div class="hover" style={format!("{across};bottom:{:.0}px", rows.height - pointed.y + 10.0)} role="status" data-test="span-card">
            <h4>{ title }</h4>
            { facts_list(&facts) }
        </div>
    }
}
