//! The drawing of the streams' canvas, and the places of its rows.

use super::shown::Shown;
use super::spans::{self, Kind, Lanes, Span};
use super::stretch::Stretch;
use super::words::tint;
use crate::explain;
use crate::palette::{bucket_piece, piece_ink};
use crate::ui::canvas::{FONT, Ink, ink};
use std::cell::RefCell;
use web_sys::CanvasRenderingContext2d;

/// The width of the column with the rows' names.
pub(super) const GUTTER: f64 = 66.0;
/// The height of the axis with the times; as high as the buttons beside them, on a phone too.
const AXIS: f64 = 28.0;

/// The width of the buttons at the axis' end, with some air.
const TOOLS: f64 = 156.0;

/// Marks on the axis; a screen has fewer.
const MAX_MARKS: u32 = 1000;

/// The places of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) sides: usize,
}

impl Rows {
    pub(super) fn pitch(&self) -> f64 {
        ((self.height - AXIS) / (2 * self.sides.max(1)) as f64).clamp(10.0, 64.0)
    }

    pub(super) fn top(&self, side: usize, row: usize) -> f64 {
        AXIS + self.pitch() * (2 * side + row) as f64 + if side > 0 { 3.0 } else { 0.0 }
    }

    pub(super) fn high(&self) -> f64 {
        self.pitch() - 3.0
    }

    pub(super) fn across(&self) -> f64 {
        (self.width - GUTTER).max(1.0)
    }

    /// Side and row under a point.
    pub(super) fn at(&self, y: f64) -> Option<(usize, usize)> {
        let row = ((y - AXIS) / self.pitch()).floor();
        let within = row >= 0.0 && row < (2 * self.sides) as f64;
        within.then_some((row as usize / 2, row as usize % 2))
    }
}

/// The playhead: the future is pale, and a line stands at the moment.
pub(super) fn playhead(
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

/// A word on a span.
pub(super) struct Label {
    text: String,
    x: f64,
    y: f64,
    /// The ink that can be read on the span's own colour.
    ink: &'static str,
}

impl Label {
    /// Writes the text: the future is pale, with words in the ink of the page, from the moment on,
    /// which may be within a word.
    pub(super) fn write(&self, context: &CanvasRenderingContext2d, now: f64, dark: bool) {
        context.set_font(FONT);
        context.set_text_baseline("middle");
        for (from, to, ink) in [(0.0, now, self.ink), (now, f64::from(u16::MAX), ink(dark).text)] {
            context.save();
            context.begin_path();
            context.rect(from, self.y - 20.0, (to - from).max(0.0), 40.0);
            context.clip();
            context.set_fill_style_str(ink);
            let _ = context.fill_text(&self.text, self.x, self.y);
            context.restore();
        }
    }
}

/// Painting the rows.
pub(super) struct Paint<'a> {
    pub(super) context: CanvasRenderingContext2d,
    pub(super) rows: &'a Rows,
    pub(super) stretch: Stretch,
    pub(super) ink: Ink,
    pub(super) dark: bool,
    pub(super) labels: RefCell<Vec<Label>>,
}

impl Paint<'_> {
    pub(super) fn all(&self, sides: &[Shown], lanes: &[Lanes]) {
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
        let first = (self.stretch.from / step).ceil();
        // Counted: adding a small step to a late time may leave it as it is.
        let marks = (0..MAX_MARKS).map(|mark| (first + f64::from(mark)) * step);
        for at in marks.take_while(|at| *at <= self.stretch.to) {
            let x = GUTTER + self.stretch.x(at, across);
            self.context.set_fill_style_str(self.ink.line);
            self.context.fill_rect(x, AXIS - 5.0, 1.0, foot - AXIS + 5.0);
            let text = explain::time_on_axis(at, step);
            let wide = self.context.measure_text(&text).map_or(0.0, |measured| measured.width());
            if x + wide < self.rows.width - TOOLS {
                self.context.set_fill_style_str(self.ink.muted);
                let _ = self.context.fill_text(&text, x + 3.0, 7.0);
            }
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
                (if self.dark { "#6b7785" } else { "#b9c2cc" }.to_owned(), self.ink.text)
            }
            Kind::Exposed => (
                if self.dark { "#c3ccd6" } else { "#3d4957" }.to_owned(),
                if self.dark { "#10161d" } else { "#ffffff" },
            ),
            Kind::Held => (if self.dark { "#44505d" } else { "#ccd4dc" }.to_owned(), self.ink.text),
            Kind::Bucket(bucket) => (tint(bucket, 255, self.dark), piece_ink(bucket_piece(bucket))),
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
        let y = top + high / 2.0 + 0.5;
        self.labels.borrow_mut().push(Label { text: shown, x: x + 4.0, y, ink: text });
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
