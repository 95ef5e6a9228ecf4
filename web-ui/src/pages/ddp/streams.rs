//! A rank's compute and communication streams over time, of one or two settings on one time axis.
//!
//! One colour a pixel column and row, found by time; texts where there is room.

use super::blocks::tint;
use super::spans::{self, Kind, Lanes, Span};
use super::stretch::Stretch;
use crate::app::use_shared;
use crate::dom::Listener;
use crate::explain;
use crate::palette::rank_ink;
use crate::protocol::DdpAccount;
use crate::ui::Facts;
use crate::ui::canvas::{FONT, Ink, cleared, ink, use_size};
use std::rc::Rc;
use web_sys::{CanvasRenderingContext2d, Element, WheelEvent};
use yew::prelude::*;

/// A setting whose streams are shown.
#[derive(Clone, PartialEq)]
pub(super) struct Shown {
    /// Empty where there is one only.
    pub(super) label: &'static str,
    pub(super) account: Rc<DdpAccount>,
}

/// Properties of [`Streams`].
#[derive(Properties, PartialEq)]
pub(super) struct StreamsProps {
    pub(super) sides: Rc<Vec<Shown>>,
    pub(super) time_ps: u64,
    pub(super) on_seek: Callback<u64>,
    pub(super) rank: u32,
}

/// Where the rows' names stand.
const GUTTER: f64 = 66.0;
/// Where the times stand.
const AXIS: f64 = 18.0;

/// Where the rows are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rows {
    width: f64,
    height: f64,
    sides: usize,
}

impl Rows {
    fn pitch(&self) -> f64 {
        ((self.height - AXIS) / (2 * self.sides.max(1)) as f64).clamp(10.0, 64.0)
    }

    fn top(&self, side: usize, row: usize) -> f64 {
        AXIS + self.pitch() * (2 * side + row) as f64 + if side > 0 { 3.0 } else { 0.0 }
    }

    fn high(&self) -> f64 {
        self.pitch() - 3.0
    }

    fn across(&self) -> f64 {
        (self.width - GUTTER).max(1.0)
    }

    /// Side and row under a point.
    fn at(&self, y: f64) -> Option<(usize, usize)> {
        let row = ((y - AXIS) / self.pitch()).floor();
        let within = row >= 0.0 && row < (2 * self.sides) as f64;
        within.then_some((row as usize / 2, row as usize % 2))
    }
}

/// What is under the pointer.
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
    let dark = use_shared().dark;
    let (frame, canvas, over) = (use_node_ref(), use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let end_ps = props.sides.iter().map(|side| side.account.pass.end_ps).max().unwrap_or(1);
    let stretch = use_state(|| Stretch::whole(end_ps));
    let lanes = use_memo(props.sides.clone(), |sides| {
        sides.iter().map(|side| Lanes::of(&side.account)).collect::<Vec<_>>()
    });
    let rows = Rows { width, height, sides: props.sides.len() };
    let pointed = use_state(|| None::<Pointed>);
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
    {
        let (canvas, sides, lanes) = (canvas.clone(), props.sides.clone(), lanes.clone());
        use_effect_with(
            (sides, lanes, rows, *stretch, dark),
            move |(sides, lanes, rows, stretch, dark)| {
                if rows.width > GUTTER
                    && let Some(context) = cleared(&canvas, rows.width, rows.height)
                {
                    let paint =
                        Paint { context, rows, stretch: *stretch, ink: ink(*dark), dark: *dark };
                    paint.all(sides, lanes);
                }
            },
        );
    }
    {
        let over = over.clone();
        use_effect_with(
            (props.time_ps, rows, *stretch, dark),
            move |(time, rows, stretch, dark)| {
                if rows.width > GUTTER
                    && let Some(context) = cleared(&over, rows.width, rows.height)
                {
                    playhead(&context, rows, *stretch, *time, *dark);
                }
            },
        );
    }
    let latest = use_mut_ref(|| (*stretch, rows, end_ps));
    *latest.borrow_mut() = (*stretch, rows, end_ps);
    let place = {
        let frame = frame.clone();
        move |x: i32, y: i32| {
            let area = frame.cast::<Element>().map(|element| element.get_bounding_client_rect());
            area.map_or((-1.0, -1.0), |area| {
                (f64::from(x) - area.left(), f64::from(y) - area.top())
            })
        }
    };
    {
        let (frame, latest, set, place) =
            (frame.clone(), latest.clone(), stretch.setter(), place.clone());
        use_effect_with((), move |()| {
            let heard = frame.cast::<Element>().map(|element| {
                Listener::on(&element, "wheel", move |event: WheelEvent| {
                    // A wheel alone scrolls the page; with shift it moves, with ctrl it zooms.
                    let (stretch, rows, end_ps) = *latest.borrow();
                    let unit = if event.delta_mode() == 0 { 1.0 } else { 24.0 };
                    let (dx, dy) = (event.delta_x() * unit, event.delta_y() * unit);
                    let (x, _) = place(event.client_x(), event.client_y());
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
    // Where the pointer went down, and how far it has been moved.
    let held = use_mut_ref(|| None::<(f64, f64)>);
    let down = {
        let (held, place) = (held.clone(), place.clone());
        Callback::from(move |event: PointerEvent| {
            *held.borrow_mut() = Some((place(event.client_x(), event.client_y()).0, 0.0));
        })
    };
    let moved = {
        let (held, place, stretch, pointed, lanes, frame) = (
            held.clone(),
            place.clone(),
            stretch.clone(),
            pointed.clone(),
            lanes.clone(),
            frame.clone(),
        );
        Callback::from(move |event: PointerEvent| {
            let (x, y) = place(event.client_x(), event.client_y());
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
        let (held, place, stretch, seek) =
            (held.clone(), place.clone(), stretch.clone(), props.on_seek.clone());
        Callback::from(move |event: PointerEvent| {
            let Some((_, travelled)) = held.borrow_mut().take() else { return };
            let (x, _) = place(event.client_x(), event.client_y());
            if travelled <= 4.0 && x > GUTTER {
                seek.emit(stretch.time(x - GUTTER, rows.across()).max(0.0) as u64);
            }
        })
    };
    let leave = {
        let (held, pointed) = (held.clone(), pointed.setter());
        Callback::from(move |_: PointerEvent| {
            held.borrow_mut().take();
            pointed.set(None);
        })
    };
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
    let keys = {
        let (stretch, time) = (stretch.clone(), props.time_ps as f64);
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
    };
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
                 onpointerdown={down} onpointermove={moved} onpointerup={up} onpointerleave={leave}>
                <canvas ref={canvas} style={format!("width:{width}px;height:{height}px")} />
                <canvas ref={over} style={format!("width:{width}px;height:{height}px")} />
                if let Some(pointed) = &*pointed { { card(props, pointed, rows) } }
            </div>
            <div class="tools">
                <span class="muted small-print what">{ format!("rank {}", props.rank) }</span>
                <button class="quiet" onclick={zoom(0.5)} aria-label="Zoom in" title="Zoom in (W, wheel)" data-test="zoom-in">{ "+" }</button>
                <button class="quiet" onclick={zoom(2.0)} aria-label="Zoom out" title="Zoom out (S, wheel)" data-test="zoom-out">{ "−" }</button>
                <button class="quiet" onclick={whole} aria-label="Show all" title="Show all (0)" data-test="zoom-all">{ "all" }</button>
            </div>
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
            <Facts {facts} />
        </div>
    }
}

/// What is still to come is pale, and a line stands at the moment.
fn playhead(
    context: &CanvasRenderingContext2d,
    rows: &Rows,
    stretch: Stretch,
    time: u64,
    dark: bool,
) {
    let x = GUTTER + stretch.x(time as f64, rows.across());
    let foot = rows.top(rows.sides.saturating_sub(1), 1) + rows.high();
    context.set_fill_style_str(if dark { "rgb(22 28 36 / 62%)" } else { "rgb(255 255 255 / 62%)" });
    let from = x.max(GUTTER);
    if from < rows.width {
        context.fill_rect(from, AXIS, rows.width - from, foot - AXIS);
    }
    if x >= GUTTER && x <= rows.width {
        context.set_fill_style_str(ink(dark).accent);
        context.fill_rect(x - 1.0, AXIS - 6.0, 2.0, foot - AXIS + 6.0);
    }
}

/// Painting the rows.
struct Paint<'a> {
    context: CanvasRenderingContext2d,
    rows: &'a Rows,
    stretch: Stretch,
    ink: Ink,
    dark: bool,
}

impl Paint<'_> {
    fn all(&self, sides: &[Shown], lanes: &[Lanes]) {
        self.context.set_font(FONT);
        self.context.set_text_baseline("middle");
        self.axis();
        for (number, (side, lanes)) in sides.iter().zip(lanes).enumerate() {
            self.names(number, side.label);
            self.row(side, &lanes.compute, self.rows.top(number, 0));
            let top = self.rows.top(number, 1);
            self.row(side, &lanes.communication, top);
            self.queued(side, top);
        }
    }

    fn names(&self, side: usize, label: &str) {
        let (short, high) = (self.rows.width < 560.0, self.rows.high());
        let names = if short { ["cmp", "comm"] } else { ["compute", "comm."] };
        for (row, name) in names.into_iter().enumerate() {
            let top = self.rows.top(side, row);
            self.context.set_fill_style_str(self.ink.muted);
            let text = if label.is_empty() { name.to_owned() } else { format!("{label} {name}") };
            let _ = self.context.fill_text(&text, 2.0, top + high / 2.0);
            self.context.set_fill_style_str(self.ink.empty);
            self.context.fill_rect(GUTTER, top, self.rows.across(), high);
        }
    }

    fn axis(&self) {
        let (across, span) = (self.rows.across(), self.stretch.to - self.stretch.from);
        let wanted = span / (across / 110.0).max(1.0);
        let power = 10f64.powf(wanted.max(1.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|times| times * power)
            .into_iter()
            .find(|step| *step >= wanted);
        let step = step.unwrap_or(wanted).max(1.0);
        let foot = self.rows.top(self.rows.sides.saturating_sub(1), 1) + self.rows.high();
        let mut at = (self.stretch.from / step).ceil() * step;
        while at <= self.stretch.to {
            let x = GUTTER + self.stretch.x(at, across);
            self.context.set_fill_style_str(self.ink.line);
            self.context.fill_rect(x, AXIS - 5.0, 1.0, foot - AXIS + 5.0);
            if x < self.rows.width - 150.0 {
                self.context.set_fill_style_str(self.ink.muted);
                let _ = self.context.fill_text(&explain::time_on_axis(at, step), x + 3.0, 7.0);
            }
            at += step;
        }
    }

    /// One span a pixel column; columns of one span are one rectangle.
    fn row(&self, side: &Shown, lane: &[Span], top: f64) {
        let across = self.rows.across();
        let pixel = (self.stretch.to - self.stretch.from) / across;
        let mut run: Option<(f64, Span)> = None;
        let columns = across.floor() as u32;
        for column in 0..=columns {
            let x = f64::from(column);
            let time = self.stretch.time(x, across);
            let found = match column < columns {
                true => spans::at(lane, time + pixel / 2.0, time + pixel).copied(),
                false => None,
            };
            match (&run, found) {
                (Some((_, span)), Some(found)) if *span == found => {}
                (before, _) => {
                    if let Some((from, span)) = before {
                        self.span(side, span, *from, x, top);
                    }
                    run = found.map(|found| (x, found));
                }
            }
        }
    }

    fn span(&self, side: &Shown, span: &Span, from: f64, to: f64, top: f64) {
        let (context, high) = (&self.context, self.rows.high());
        let (x, width) = (GUTTER + from, to - from);
        // Neighbours are told apart by a gap, where there is room for one.
        let inside = if width >= 4.0 { width - 1.0 } else { width };
        let odd = span.of % 2 == 1;
        let (fill, text) = match span.kind {
            Kind::Forward => (
                if self.dark {
                    if odd { "#3a4654" } else { "#465464" }
                } else if odd {
                    "#c3ccd6"
                } else {
                    "#b3bec9"
                }
                .to_owned(),
                self.ink.text,
            ),
            Kind::Backward(Some(bucket)) => {
                (tint(bucket, if odd { 120 } else { 150 }, self.dark), self.ink.text)
            }
            Kind::Backward(None) => {
                (if self.dark { "#566270" } else { "#98a4b0" }.to_owned(), self.ink.text)
            }
            Kind::Optimizer => {
                (if self.dark { "#2e7d63" } else { "#6fbfa3" }.to_owned(), self.ink.text)
            }
            Kind::Exposed => {
                (self.ink.bad.to_owned(), if self.dark { "#1a1a1a" } else { "#ffffff" })
            }
            Kind::Held => (if self.dark { "#6b3a2e" } else { "#f0b8a8" }.to_owned(), self.ink.text),
            Kind::Bucket(bucket) => (tint(bucket, 255, self.dark), rank_ink(bucket)),
            Kind::Other => ("#707c8a".to_owned(), "#ffffff"),
        };
        context.set_fill_style_str(&fill);
        context.fill_rect(x, top, inside, high);
        if matches!(span.kind, Kind::Exposed | Kind::Held) && width >= 3.0 {
            // Hatched: nothing happens here.
            context.set_fill_style_str(if self.dark {
                "rgb(0 0 0 / 22%)"
            } else {
                "rgb(255 255 255 / 28%)"
            });
            let mut at = 0.0;
            while at < inside {
                context.fill_rect(x + at, top, 3.0_f64.min(inside - at), high);
                at += 8.0;
            }
        }
        if width < 16.0 || high < 11.0 {
            return;
        }
        let Some(shown) = spans::text(&side.account, span, ((width - 8.0) / 6.7) as usize) else {
            return;
        };
        context.set_fill_style_str(text);
        let _ = context.fill_text(&shown, x + 4.0, top + high / 2.0 + 0.5);
    }

    /// From launch to start: a line above the row.
    fn queued(&self, side: &Shown, top: f64) {
        const MOST: usize = 2000;
        let across = self.rows.across();
        for call in side.account.pass.calls.iter().take(MOST) {
            let Some(bucket) = call.of_bucket().filter(|_| call.start_ps > call.ready_ps) else {
                continue;
            };
            let from = self.stretch.x(call.ready_ps as f64, across).max(0.0);
            let to = self.stretch.x(call.start_ps as f64, across).min(across);
            if to > from {
                self.context.set_fill_style_str(&tint(bucket, 255, self.dark));
                self.context.fill_rect(GUTTER + from, top - 2.0, to - from, 2.0);
            }
        }
    }
}
