//! Painting: axis, pixels, texts, playhead.

use super::geometry::Geometry;
use super::rows::AXIS;
use crate::explain;
use crate::palette::{self, is_edge, span_ink, timeline_rgb};
use crate::ui::canvas::{FONT, Ink, cleared, context_of, ink};
use lockstep_web_protocol::{
    Area, CallMark, FoundCalls, Link, RowKind, SessionId, SpanText, Spot, Window,
};
use std::rc::Rc;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};
use yew::NodeRef;

/// Pixels that the worker picked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Raster {
    pub(super) session: SessionId,
    pub(super) window: Window,
    pub(super) tick: u64,
    pub(super) rows: Vec<RowKind>,
    pub(super) classes: Vec<u8>,
    pub(super) texts: Vec<SpanText>,
    /// True if what has not ended is cut by the end of the recording.
    pub(super) cut: bool,
}

impl Raster {
    /// Rows a rank.
    fn lanes(&self) -> u32 {
        (self.rows.len() as u32).max(1)
    }
}

/// The marks on the pixels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Marks {
    /// Ranks that the findings blame.
    pub(super) culprits: Vec<u32>,
    pub(super) playhead_ps: Option<u64>,
    /// True while what comes after the playhead is a question.
    pub(super) future_hidden: bool,
    pub(super) selected: Option<CallMark>,
    /// The calls that a search found; all others are dimmed.
    pub(super) found: Option<Rc<FoundCalls>>,
    pub(super) area: Option<Area>,
    /// A path across ranks, in order of time.
    pub(super) path: Rc<Vec<PathMark>>,
    /// Moments of ranks that have a flag.
    pub(super) flags: Vec<(u32, u64)>,
    /// The arrows of what is under the pointer.
    pub(super) links: Vec<Link>,
}

/// A stretch of a path on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMark {
    /// The rank.
    pub(crate) rank: u32,
    /// From when, in picoseconds.
    pub(crate) from_ps: u64,
    /// Until when.
    pub(crate) to_ps: u64,
}

/// Paints the whole canvas.
pub(super) fn paint(
    canvas: &NodeRef,
    now: &Geometry,
    drawn: Option<(&Raster, &HtmlCanvasElement)>,
    marks: &Marks,
    dark: bool,
) {
    if now.width <= now.gutter() {
        return;
    }
    let Some(context) = cleared(canvas, now.width, now.height) else { return };
    let ink = ink(dark);
    context.set_font(FONT);
    axis(&context, now, &ink);
    if let Some((raster, image)) = drawn {
        pixels(&context, now, raster, image, &ink);
        texts(&context, now, raster, &ink, dark);
        if let Some(found) = &marks.found {
            dim_others(&context, now, found, &ink, || {
                pixels(&context, now, raster, image, &ink);
                texts(&context, now, raster, &ink, dark);
            });
        }
    }
    names(&context, now, &marks.culprits, &ink);
    if let Some((raster, _)) = drawn {
        row_names(&context, now, raster, &ink);
    }
    if let Some(area) = &marks.area {
        shade(&context, now, area, &ink);
    }
    if let Some(time) = marks.playhead_ps.filter(|_| marks.future_hidden) {
        let x = now.x_of(time as f64).max(now.gutter());
        context.set_fill_style_str(ink.empty);
        context.fill_rect(x, AXIS, (now.width - x).max(0.0), now.height - AXIS);
    }
    path(&context, now, &marks.path, &ink);
    links(&context, now, &marks.links, &ink);
    flags(&context, now, &marks.flags, &ink);
    if let Some(mark) = &marks.selected {
        selection(&context, now, mark, &ink);
    }
    if let Some(time) = marks.playhead_ps {
        let x = now.x_of(time as f64);
        if x >= now.gutter() && x <= now.width {
            context.set_fill_style_str(ink.accent);
            context.fill_rect(x - 0.75, 0.0, 1.5, now.height);
            context.begin_path();
            context.move_to(x - 5.0, 0.0);
            context.line_to(x + 5.0, 0.0);
            context.line_to(x, 7.0);
            context.fill();
        }
    }
}

/// A veil over the area that is measured, row by row: they need not be neighbours.
fn shade(context: &CanvasRenderingContext2d, now: &Geometry, area: &Area, ink: &Ink) {
    let left = now.x_of(area.from_ps as f64).max(now.gutter());
    let right = now.x_of(area.to_ps as f64).min(now.width);
    if right <= left {
        return;
    }
    context.set_fill_style_str(ink.accent);
    context.set_global_alpha(0.16);
    for top in area.ranks.iter().filter_map(|rank| now.top_of(*rank)).filter(|top| *top >= 0.0) {
        context.fill_rect(left, AXIS + top, right - left, now.rank_height());
    }
    context.set_global_alpha(1.0);
    for x in [left, right] {
        context.fill_rect(x - 0.5, AXIS - 4.0, 1.0, now.height);
    }
}

/// A flag at each moment that has a note, on the row of its rank.
fn flags(context: &CanvasRenderingContext2d, now: &Geometry, flags: &[(u32, u64)], ink: &Ink) {
    for (rank, time_ps) in flags {
        let Some(top) = now.top_of(*rank).filter(|top| *top >= 0.0) else { continue };
        let (x, y) = (now.x_of(*time_ps as f64), AXIS + top);
        if x < now.gutter() || x > now.width {
            continue;
        }
        // The ground around it keeps it apart from calls of any colour.
        for (style, grow) in [(ink.empty, 1.5), (ink.accent, 0.0)] {
            context.set_fill_style_str(style);
            context.fill_rect(x - 0.75 - grow, y - 2.0 - grow, 1.5 + 2.0 * grow, 13.0 + 2.0 * grow);
            context.begin_path();
            context.move_to(x, y - 2.0 - grow);
            context.line_to(x + 9.0 + 2.0 * grow, y + 2.5);
            context.line_to(x, y + 7.0 + grow);
            context.fill();
        }
    }
}

/// Parts of a path this many pixels long are joined to the ones before: denser joints would hide the rows.
const JOINED: f64 = 3.0;

/// A line along the bottom of the rows that a path is on, and from row to row where it changes the rank.
fn path(context: &CanvasRenderingContext2d, now: &Geometry, marks: &[PathMark], ink: &Ink) {
    if marks.is_empty() {
        return;
    }
    let (from, to) = (now.stretch.from, now.stretch.to);
    let first = marks.partition_point(|mark| (mark.to_ps as f64) < from);
    context.save();
    context.begin_path();
    context.rect(now.gutter(), AXIS, now.width - now.gutter(), now.height - AXIS);
    context.clip();
    context.begin_path();
    // The end of the line, its row, and the length of its last part.
    let mut before: Option<(f64, f64, f64)> = None;
    for mark in marks.iter().skip(first).take_while(|mark| mark.from_ps as f64 <= to) {
        let Some(top) = now.top_of(mark.rank) else { continue };
        let y = AXIS + top + now.rank_height() - 3.0;
        let (left, right) = (now.x_of(mark.from_ps as f64), now.x_of(mark.to_ps as f64));
        let long = right - left;
        match before {
            Some((_, row, _)) if (row - y).abs() < 0.5 => {}
            Some((x, row, last)) if long >= JOINED || last >= JOINED => {
                context.move_to(x, row);
                context.line_to(left, y);
            }
            _ => context.move_to(left, y),
        }
        context.line_to(right, y);
        before = Some((right, y, long));
    }
    for (style, width) in [(ink.empty, 5.0), (ink.text, 2.0)] {
        context.set_stroke_style_str(style);
        context.set_line_width(width);
        context.stroke();
    }
    context.restore();
}

/// The arrows between what belongs together, each with a head where it ends.
fn links(context: &CanvasRenderingContext2d, now: &Geometry, links: &[Link], ink: &Ink) {
    if links.is_empty() {
        return;
    }
    let (tall, lane_tall) = (now.rank_height(), now.rows.lane_height(now.height));
    let place = |spot: &Spot| {
        let down = match spot.lane {
            Some(lane) if lane_tall >= 5.0 => 1.5 + (f64::from(lane) + 0.5) * lane_tall,
            _ => tall / 2.0,
        };
        Some((now.x_of(spot.time_ps as f64), AXIS + now.top_of(spot.rank)? + down))
    };
    context.save();
    context.begin_path();
    context.rect(now.gutter(), AXIS, now.width - now.gutter(), now.height - AXIS);
    context.clip();
    // A light line below a dark one is seen on every colour.
    for (style, width) in [(ink.empty, 4.0), (ink.text, 1.5)] {
        context.set_stroke_style_str(style);
        context.set_fill_style_str(style);
        context.set_line_width(width);
        for link in links {
            let Some((from, to)) = place(&link.from).zip(place(&link.to)) else { continue };
            let (across, down) = (to.0 - from.0, to.1 - from.1);
            let long = across.hypot(down);
            if long < 1.0 {
                continue;
            }
            let (x, y) = (across / long, down / long);
            context.begin_path();
            context.move_to(from.0, from.1);
            context.line_to(to.0, to.1);
            context.stroke();
            let (head, half) = (8.0 + width, 3.0 + width / 2.0);
            context.begin_path();
            context.move_to(to.0, to.1);
            context.line_to(to.0 - head * x - half * y, to.1 - head * y + half * x);
            context.line_to(to.0 - head * x + half * y, to.1 - head * y - half * x);
            context.fill();
        }
    }
    context.restore();
}

/// The place of a call: its left edge and top, its width and height.
fn place_of(now: &Geometry, mark: &CallMark) -> Option<[f64; 4]> {
    let top = now.top_of(mark.id.rank)?;
    let left = now.x_of(mark.from_ps as f64);
    let right = mark.to_ps.map_or(now.width, |to| now.x_of(to as f64));
    let (tall, lane_tall) = (now.rank_height(), now.rows.lane_height(now.height));
    let (y, high) = match mark.lane {
        Some(lane) if lane_tall >= 5.0 => (top + 1.5 + f64::from(lane) * lane_tall, lane_tall),
        _ => (top, tall),
    };
    Some([left, AXIS + y, (right - left).max(2.0), high.max(3.0)])
}

/// A veil over everything, and the calls that were found painted once more above it.
fn dim_others(
    context: &CanvasRenderingContext2d,
    now: &Geometry,
    found: &FoundCalls,
    ink: &Ink,
    paint: impl FnOnce(),
) {
    context.set_fill_style_str(ink.empty);
    context.set_global_alpha(0.78);
    context.fill_rect(now.gutter(), AXIS, now.width - now.gutter(), now.height - AXIS);
    context.set_global_alpha(1.0);
    context.save();
    context.begin_path();
    let seen = |[left, top, wide, high]: &[f64; 4]| {
        left + wide >= now.gutter() && *left <= now.width && top + high > AXIS && *top < now.height
    };
    let places = found.calls.iter().filter_map(|mark| place_of(now, mark)).filter(seen);
    for [left, top, wide, high] in places {
        let left_in = left.max(now.gutter());
        context.rect(left_in, top, wide - (left_in - left), high);
    }
    context.clip();
    paint();
    context.restore();
}

/// A frame around the selected call, and a line from top to bottom where it was made.
fn selection(context: &CanvasRenderingContext2d, now: &Geometry, mark: &CallMark, ink: &Ink) {
    let Some([left, top, wide, high]) = place_of(now, mark) else { return };
    context.save();
    context.begin_path();
    context.rect(now.gutter(), 0.0, now.width - now.gutter(), now.height);
    context.clip();
    context.set_fill_style_str(ink.accent);
    context.set_global_alpha(0.5);
    context.fill_rect(left - 0.5, AXIS, 1.0, now.height - AXIS);
    context.set_global_alpha(1.0);
    if top > AXIS - now.rank_height() {
        context.set_stroke_style_str(ink.accent);
        context.set_line_width(2.0);
        context.stroke_rect(left - 1.0, top - 1.0, wide + 2.0, high + 1.0);
        context.set_line_width(1.0);
    }
    context.restore();
}

/// A round step that leaves a hundred pixels or more between two times.
fn round_step(span: f64, pixels: f64) -> f64 {
    let rough = (span * 110.0 / pixels.max(1.0)).max(1.0);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= rough).unwrap_or(rough)
}

/// More marks than any screen has room for.
const MAX_MARKS: usize = 500;

/// The multiples of a step from one time to another. They are counted: at late times a step may be
/// too small to come any further.
fn marks(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (from / step).ceil();
    let count = ((to / step).floor() - first + 1.0) as usize;
    (0..count.min(MAX_MARKS)).map(move |mark| (first + mark as f64) * step)
}

fn axis(context: &CanvasRenderingContext2d, now: &Geometry, ink: &Ink) {
    let step = round_step(now.stretch.to - now.stretch.from, now.width - now.gutter());
    for time in marks(now.stretch.from, now.stretch.to, step) {
        let x = now.x_of(time);
        context.set_fill_style_str(ink.line);
        context.fill_rect(x.round(), AXIS - 4.0, 1.0, now.height);
        context.set_fill_style_str(ink.muted);
        if x + 40.0 < now.width - now.tools() {
            let _ = context.fill_text(&explain::time_on_axis(time, step), x + 3.0, 12.0);
        }
    }
}

fn names(context: &CanvasRenderingContext2d, now: &Geometry, culprits: &[u32], ink: &Ink) {
    let tall = now.rank_height();
    // Names as dense as they can be read.
    let every = (12.0 / tall).ceil().max(1.0) as u32;
    let every = if every > 1 { every.next_power_of_two() } else { 1 };
    let first = now.stretch.first_row as u32;
    for row in first..(first + now.visible()).min(now.rows.count) {
        let (Some(rank), Some((name, pinned))) = (now.order.rank_at(row), now.order.name_at(row))
        else {
            continue;
        };
        let y = AXIS + f64::from(row - first) * tall;
        let culprit = culprits.contains(&rank);
        if culprit || pinned {
            context.set_fill_style_str(if culprit { ink.bad } else { ink.accent });
            context.fill_rect(0.0, y, 3.0, (tall - 1.0).max(1.0));
        }
        if row.is_multiple_of(every) || (culprit && tall >= 8.0) {
            context.set_fill_style_str(if culprit { ink.bad } else { ink.text });
            let _ = context.fill_text(&name, 7.0, y + (tall / 2.0 + 4.0).min(tall.max(9.0)));
        }
        if tall >= 10.0 {
            context.set_fill_style_str(ink.line);
            context.fill_rect(0.0, y + tall - 0.5, now.width, 0.5);
        }
    }
}

/// The names of each rank's rows, beside them.
fn row_names(context: &CanvasRenderingContext2d, now: &Geometry, raster: &Raster, ink: &Ink) {
    let Some(full) = now.rows.named(now.width, now.height) else { return };
    let (tall, lane_tall) = (now.rank_height(), now.rows.lane_height(now.height));
    context.set_fill_style_str(ink.muted);
    context.set_font(SMALL);
    context.set_text_align("right");
    for rank in 0..now.visible() {
        let top = AXIS + f64::from(rank) * tall + 1.5;
        for (lane, kind) in raster.rows.iter().enumerate() {
            // Several rows of one kind are named once.
            if lane > 0 && raster.rows[lane - 1] == *kind {
                continue;
            }
            let y = top + (lane as f64 + 0.5) * lane_tall + 3.0;
            let _ = context.fill_text(kind.names()[usize::from(!full)], now.gutter() - 5.0, y);
        }
    }
    context.set_text_align("left");
    context.set_font(FONT);
}

/// The font of the rows' names.
const SMALL: &str = "9.5px system-ui, sans-serif";

fn pixels(
    context: &CanvasRenderingContext2d,
    now: &Geometry,
    raster: &Raster,
    image: &HtmlCanvasElement,
    ink: &Ink,
) {
    let columns = raster.window.columns;
    let rows = raster.classes.len() as u32 / columns.max(1);
    context.set_image_smoothing_enabled(false);
    let (from, to) = (raster.window.from_ps as f64, raster.window.to_ps as f64);
    let (left, right) = (now.x_of(from), now.x_of(to));
    context.save();
    context.begin_path();
    context.rect(now.gutter(), AXIS, now.width - now.gutter(), now.height - AXIS);
    context.clip();
    let tall = now.rank_height();
    // Without room for all lanes the program's is left out: it says least.
    let hidden =
        if tall < 9.0 { u32::from(raster.rows.first() == Some(&RowKind::Process)) } else { 0 };
    let shown = raster.lanes().saturating_sub(hidden).max(1);
    let lane_tall = (tall - if tall >= 8.0 { 3.0 } else { 0.0 }) / f64::from(shown);
    for row in 0..rows {
        let (shown, lane) = (row / raster.lanes(), row % raster.lanes());
        let Some(lane) = lane.checked_sub(hidden) else { continue };
        let rank = raster.window.ranks.get(shown as usize);
        let Some(top) = rank.and_then(|rank| now.top_of(*rank)) else { continue };
        let y = AXIS + top + f64::from(lane) * lane_tall + if tall >= 8.0 { 1.5 } else { 0.0 };
        if y < AXIS - tall || y > now.height {
            continue;
        }
        let gap = if lane_tall >= 5.0 { 1.0 } else { 0.0 };
        let _ = context
            .draw_image_with_html_canvas_element_and_sw_and_sh_and_dx_and_dy_and_dw_and_dh(
                image,
                0.0,
                f64::from(row),
                f64::from(columns),
                1.0,
                left,
                y,
                right - left,
                (lane_tall - gap).max(0.7),
            );
        if raster.cut && lane_tall >= TORN_FROM {
            let line = raster.classes.chunks_exact(columns as usize).nth(row as usize);
            let end = line.and_then(palette::cut_at);
            if let Some(end) = end {
                let x = left + (right - left) * end as f64 / f64::from(columns);
                torn(context, x, y, lane_tall - gap, ink);
            }
        }
    }
    context.restore();
}

/// Rows that are lower than this many pixels have no torn ends.
const TORN_FROM: f64 = 5.0;

/// A torn edge at the end of a row that the end of a recording cuts: teeth of the ground's colour.
fn torn(context: &CanvasRenderingContext2d, x: f64, y: f64, high: f64, ink: &Ink) {
    const DEEP: f64 = 5.0;
    let teeth = (high / 4.0).round().max(1.0);
    let tooth = high / teeth;
    context.set_fill_style_str(ink.empty);
    context.begin_path();
    context.move_to(x + 1.0, y - 0.5);
    for nth in 0..teeth as u32 {
        let top = y + f64::from(nth) * tooth;
        context.line_to(x - DEEP, top + tooth / 2.0);
        context.line_to(x + 1.0, top + tooth);
    }
    context.fill();
}

/// The pixels as an image one pixel high a row, to be stretched while it is painted.
pub(super) fn image_of(raster: &Raster, dark: bool) -> Option<HtmlCanvasElement> {
    let columns = raster.window.columns;
    let rows = raster.classes.len() as u32 / columns.max(1);
    if columns == 0 || rows == 0 {
        return None;
    }
    let mut rgba = Vec::with_capacity(raster.classes.len() * 4);
    for (y, line) in raster.classes.chunks_exact(columns as usize).enumerate() {
        for (x, class) in line.iter().enumerate() {
            rgba.extend(timeline_rgb(*class, (x as u32, y as u32), is_edge(line, x), dark));
        }
    }
    let data = ImageData::new_with_u8_clamped_array_and_sh(Clamped(&rgba), columns, rows).ok()?;
    let canvas: HtmlCanvasElement =
        crate::dom::document().create_element("canvas").ok()?.unchecked_into();
    canvas.set_width(columns);
    canvas.set_height(rows);
    context_of(&canvas)?.put_image_data(&data, 0.0, 0.0).ok()?;
    Some(canvas)
}

fn texts(
    context: &CanvasRenderingContext2d,
    now: &Geometry,
    raster: &Raster,
    ink: &Ink,
    dark: bool,
) {
    let lane_tall = now.rows.lane_height(now.height);
    if !now.rows.readable(now.height) {
        return;
    }
    for text in &raster.texts {
        let Some(top) = now.top_of(text.rank).filter(|top| *top >= 0.0) else { continue };
        let y = AXIS + top + 1.5 + (f64::from(text.lane) + 0.5) * lane_tall;
        let left = now.x_of(text.from_ps as f64).max(now.gutter()) + 4.0;
        let room = now.x_of(text.to_ps as f64).min(now.width) - left - 2.0;
        // A character is 6.6 pixels wide in this font.
        let fits = (room / 6.6).floor().max(0.0) as usize;
        if fits < 3 {
            continue;
        }
        let words: String = match text.text.chars().count() > fits {
            true => text.text.chars().take(fits - 1).chain(['…']).collect(),
            false => text.text.clone(),
        };
        context.set_fill_style_str(span_ink(text.class, dark).unwrap_or(ink.text));
        let _ = context.fill_text(&words, left, y + 3.5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_few_marks_at_any_time() {
        let marked: Vec<f64> = marks(90.0, 410.0, 100.0).collect();
        assert_eq!(marked, [100.0, 200.0, 300.0, 400.0]);
        assert_eq!(marks(110.0, 190.0, 100.0).count(), 0);
        for (from, to) in [(1e19, 1e19 + 4096.0), (0.0, 1.8e19), (1e19, 1e19), (5.0, 1.0)] {
            let step = round_step(to - from, 1400.0);
            assert!(marks(from, to, step).count() <= 50, "{from} {to}");
        }
        // A step below what an f64 tells apart at that time.
        assert!(marks(1e19, 1e19 + 2048.0, 1.0).count() <= MAX_MARKS);
        assert_eq!(marks(f64::NAN, 1.0, 1.0).count(), 0);
    }
}
