//! Time over message size, both on logarithmic axes: where one algorithm overtakes another.
//!
//! plotters draws it as SVG; the names stand at the end of the curves they belong to. Curves are grey, but
//! for those that are chosen and the one under the pointer.

use super::canvas::{Ink, ink, use_size};
use crate::app::use_shared;
use crate::explain;
use crate::sets::sort_few;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;
use std::rc::Rc;
use yew::prelude::*;

/// A curve of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Bytes, and picoseconds or bytes a second, by size.
    pub(crate) points: Vec<(u64, u64)>,
    /// True if it is broken, so that two chosen ones are told apart.
    pub(crate) dashed: bool,
    /// True if it is drawn in colour, and heavier than the others.
    pub(crate) chosen: bool,
    /// Stretches of sizes that nothing measured backs: it is broken there, and says so.
    pub(crate) extrapolated: Vec<(u64, u64)>,
}

impl Curve {
    /// The parts of the curve in their order: points, and whether they are extrapolated.
    fn parts(&self) -> Vec<(bool, Vec<(u64, u64)>)> {
        let mut parts: Vec<(bool, Vec<(u64, u64)>)> = Vec::new();
        for pair in self.points.windows(2) {
            let beyond = |(bytes, _): (u64, u64)| {
                self.extrapolated.iter().any(|(from, to)| (*from..=*to).contains(&bytes))
            };
            let beyond = beyond(pair[0]) || beyond(pair[1]);
            match parts.last_mut() {
                Some((same, part)) if *same == beyond => part.push(pair[1]),
                _ => parts.push((beyond, pair.to_vec())),
            }
        }
        parts
    }
}

/// Sizes for which one thing holds, marked behind the curves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Band {
    /// The smallest size, in bytes.
    pub(crate) from: u64,
    /// The largest size, in bytes.
    pub(crate) to: u64,
    pub(crate) name: String,
}

/// The measure that a chart shows of each size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Picoseconds.
    #[default]
    Time,
    /// Bytes a second.
    Rate,
}

impl Measure {
    /// A value in words.
    fn words(self, value: u64) -> String {
        match self {
            Measure::Time => explain::time(value),
            // Networks count in powers of ten.
            Measure::Rate if value < 1_000_000 => format!("{} KB/s", value / 1000),
            Measure::Rate if value < 1_000_000_000 => format!("{} MB/s", value / 1_000_000),
            Measure::Rate => format!("{} GB/s", value / 1_000_000_000),
        }
    }
}

/// Properties of [`Chart`].
#[derive(Properties, PartialEq)]
pub(crate) struct ChartProps {
    pub(crate) curves: Rc<Vec<Curve>>,
    /// Behind the curves, in increasing order.
    #[prop_or_default]
    pub(crate) bands: Rc<Vec<Band>>,
    /// Measured values, on top of the curves.
    #[prop_or_default]
    pub(crate) dots: Rc<Vec<(u64, u64)>>,
    /// The size that is chosen, in bytes.
    pub(crate) at: u64,
    /// The measure of its curves.
    #[prop_or_default]
    pub(crate) measure: Measure,
    pub(crate) words: String,
}

const FONT: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
/// Pixels that a curve's name takes on the right.
const NAMES: u32 = 142;
/// A drawing with fewer pixels has the names of its curves below it.
const NARROW: u32 = 480;
/// Pixels from one name to the next.
const LINE: i32 = 14;
/// Pixels of a letter of a name.
const LETTER: f64 = 6.7;

/// Written below a part of a curve that nothing measured backs.
const EXTRAPOLATED: &str = "extrapolated";

/// Time over message size.
#[component(Chart)]
pub(crate) fn chart(props: &ChartProps) -> Html {
    let frame = use_node_ref();
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    let size = (width as u32, height as u32);
    let pointed = use_state(|| None::<usize>);
    let shown = (props.curves.clone(), props.bands.clone(), props.dots.clone());
    let of = (shown, props.at, props.measure, size, dark, *pointed);
    let drawn = use_memo(of, |((curves, bands, dots), at, measure, size, dark, pointed)| {
        if size.0 < 200 || size.1 < 80 || curves.is_empty() {
            return Drawn::default();
        }
        let shown = Shown { curves, bands, dots, at: *at, measure: *measure };
        // Drawing into a String fails only when a coordinate is no number, which these all are.
        draw(&shown, Look { size: *size, dark: *dark, pointed: *pointed }).unwrap_or_default()
    });
    let point = {
        let (pointed, drawn, frame) = (pointed.clone(), drawn.clone(), frame.clone());
        Callback::from(move |event: PointerEvent| {
            let Some(frame) = frame.cast::<web_sys::Element>() else { return };
            let area = frame.get_bounding_client_rect();
            let at = (
                f64::from(event.client_x()) - area.left(),
                f64::from(event.client_y()) - area.top(),
            );
            let nearest = drawn.nearest(at);
            if nearest != *pointed {
                pointed.set(nearest);
            }
        })
    };
    let leave = {
        let pointed = pointed.setter();
        Callback::from(move |_: PointerEvent| pointed.set(None))
    };
    let name = pointed.and_then(|at| props.curves.get(at)).map(|curve| curve.name.clone());
    let below = |(_, index): &(i32, usize)| {
        let (curve, index) = (props.curves.get(*index)?, *index);
        let point = {
            let (pointed, is_it) = (pointed.setter(), *pointed == Some(index));
            Callback::from(move |_: MouseEvent| pointed.set((!is_it).then_some(index)))
        };
        let class = classes!("quiet", curve.chosen.then_some("chosen"));
        let pressed = (*pointed == Some(index)).to_string();
        Some(
            html! { <button {class} onclick={point} aria-pressed={pressed}>{ &curve.name }</button> },
        )
    };
    html! {
        <>
        <div class="chart" ref={frame} role="img" aria-label={props.words.clone()} onpointermove={point} onpointerleave={leave} data-test="chart"
             data-curves={props.curves.len().to_string()} data-pointed={name}>
            { Html::from_html_unchecked(AttrValue::from(drawn.svg.clone())) }
        </div>
        if drawn.narrow && drawn.names.len() > 1 {
            <div class="curve-names" data-test="curve-names">{ for drawn.names.iter().filter_map(below) }</div>
        }
        </>
    }
}

/// `#1d4ed8` as plotters takes it.
pub(crate) fn colour(hex: &str) -> RGBColor {
    let part = |at: usize| {
        hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()).unwrap_or(128)
    };
    RGBColor(part(1), part(3), part(5))
}

fn log2(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

fn log10(ps: u64) -> f64 {
    (ps.max(1) as f64).log10()
}

/// An axis that is marked where it is told to be.
pub(crate) struct Axis {
    pub(crate) range: Range<f64>,
    pub(crate) marks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            // Light lines would lie on the bold ones.
            true => Vec::new(),
            false => self.marks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {}

/// The drawing, and where its curves and their names lie in it.
#[derive(Default)]
struct Drawn {
    svg: String,
    /// The points of each curve, in pixels.
    ways: Vec<Vec<(i32, i32)>>,
    /// The place of each name, and the curve's number.
    names: Vec<(i32, usize)>,
    /// Names stand right of this.
    edge: i32,
    /// True if names stand below the drawing.
    narrow: bool,
}

impl Drawn {
    /// The curve that a point of the drawing is nearest to, if it is near to one.
    fn nearest(&self, (x, y): (f64, f64)) -> Option<usize> {
        const NEAR: f64 = 24.0;
        let height_at = |way: &Vec<(i32, i32)>| {
            way.windows(2).find_map(|pair| {
                let [(ax, ay), (bx, by)] =
                    [pair[0], pair[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
                (ax..=bx).contains(&x).then(|| ay + (by - ay) * (x - ax) / (bx - ax).max(1.0))
            })
        };
        let heights: Vec<(f64, usize)> = match x > f64::from(self.edge) {
            true => self.names.iter().map(|(y, curve)| (f64::from(*y), *curve)).collect(),
            false => {
                let ways = self.ways.iter().enumerate();
                ways.filter_map(|(curve, way)| Some((height_at(way)?, curve))).collect()
            }
        };
        let away = heights.into_iter().map(|(height, curve)| ((height - y).abs(), curve));
        let nearest = away.min_by(|(a, _), (b, _)| a.total_cmp(b));
        nearest.filter(|(away, _)| *away <= NEAR).map(|(_, curve)| curve)
    }
}

/// The look of a drawing.
struct Look {
    size: (u32, u32),
    dark: bool,
    /// The curve under the pointer.
    pointed: Option<usize>,
}

/// The things that a drawing shows.
struct Shown<'a> {
    curves: &'a [Curve],
    bands: &'a [Band],
    dots: &'a [(u64, u64)],
    at: u64,
    measure: Measure,
}

/// The bands behind the curves: every second one is shaded, and named above where its name has room. `x`
/// says where a size lies, `top` and `foot` where the curves do, in pixels.
fn draw_bands(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    bands: &[Band],
    (x, top, foot): (impl Fn(u64) -> i32, i32, i32),
    (shade, ink): (RGBColor, RGBColor),
) -> Result<(), Box<dyn std::error::Error>> {
    let style = TextStyle::from((FONT, 11).into_font()).color(&ink);
    let style = style.pos(Pos::new(HPos::Center, VPos::Top));
    for (at, band) in bands.iter().enumerate() {
        let (from, to) = (x(band.from), x(band.to.saturating_add(1)));
        if at % 2 == 1 {
            area.draw(&Rectangle::new([(from, top), (to, foot)], shade.mix(0.35).filled()))?;
        }
        if at > 0 {
            area.draw(&PathElement::new(vec![(from, top), (from, foot)], ink.mix(0.5)))?;
        }
        if f64::from(to - from) > band.name.len() as f64 * LETTER + 6.0 {
            area.draw(&Text::new(band.name.clone(), ((from + to) / 2, top - LINE), style.clone()))?;
        }
    }
    Ok(())
}

/// The logarithms that the axes reach over: sizes to the base of 2, values to that of 10.
struct Reach {
    sizes: Range<f64>,
    values: Range<f64>,
}

impl Reach {
    /// Room for every curve and dot; nothing where there are none.
    fn of(curves: &[Curve], dots: &[(u64, u64)]) -> Option<Reach> {
        let points = || curves.iter().flat_map(|curve| curve.points.iter()).chain(dots).copied();
        let least = points().map(|(_, ps)| log10(ps)).fold(f64::MAX, f64::min);
        let most = points().map(|(_, ps)| log10(ps)).fold(f64::MIN, f64::max);
        let from = points().map(|(bytes, _)| log2(bytes)).fold(f64::MAX, f64::min);
        let to = points().map(|(bytes, _)| log2(bytes)).fold(f64::MIN, f64::max);
        let values = least.floor()..(most + 0.05).max(least.floor() + 0.5);
        (least <= most && from <= to).then_some(Reach { sizes: from..to, values })
    }

    /// The sizes that have a label on `width` pixels.
    fn size_marks(&self, width: u32) -> Vec<f64> {
        let every = match width {
            0..450 => 10,
            450..620 => 8,
            _ => 4,
        };
        let marks = (0..=60).step_by(every).map(f64::from);
        marks.filter(|at| (self.sizes.start..=self.sizes.end).contains(at)).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let decades = (0..=24).map(f64::from);
        decades.filter(|at| (self.values.start..=self.values.end).contains(at)).collect()
    }
}

/// The colours of a drawing.
struct Inks {
    muted: RGBColor,
    line: RGBColor,
    text: RGBColor,
    chosen: RGBColor,
    faint: RGBColor,
}

impl Inks {
    fn of(dark: bool) -> Inks {
        let Ink { muted, line, text, .. } = ink(dark);
        let [r, g, b] = crate::palette::chosen_rgb(dark);
        let faint = if dark { RGBColor(0x56, 0x62, 0x6f) } else { RGBColor(0xb9, 0xc2, 0xcc) };
        let chosen = RGBColor(r, g, b);
        Inks { muted: colour(muted), line: colour(line), text: colour(text), chosen, faint }
    }

    /// Colour and width of a curve, and the ink of its name.
    fn pen(
        &self,
        index: usize,
        curve: &Curve,
        pointed: Option<usize>,
    ) -> (RGBColor, u32, RGBColor) {
        match pointed {
            Some(at) if at == index => (self.text, 3, self.text),
            Some(_) if curve.chosen => (self.chosen, 3, self.muted),
            None if curve.chosen => (self.chosen, 3, self.text),
            _ => (self.faint, 1, self.muted),
        }
    }
}

fn draw(shown: &Shown<'_>, look: Look) -> Result<Drawn, Box<dyn std::error::Error>> {
    let &Shown { curves, bands, dots, at, measure } = shown;
    let Look { size, dark, pointed } = look;
    let mut drawn = Drawn::default();
    let inks = Inks::of(dark);
    let Some(reach) = Reach::of(curves, dots) else { return Ok(drawn) };
    let (from, to) = (reach.sizes.start, reach.sizes.end);
    let (low, high) = (reach.values.start, reach.values.end);
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let narrow = size.0 < NARROW;
    let names = size.0.saturating_sub(if narrow { 16 } else { NAMES });
    let (left, _) = root.split_horizontally(names);
    let mut chart = ChartBuilder::on(&left)
        .margin_top(if bands.is_empty() { 8 } else { 8 + LINE })
        .margin_right(2)
        .x_label_area_size(22)
        .y_label_area_size(58)
        .build_cartesian_2d(
            Axis { range: from..to.max(from + 1.0), marks: reach.size_marks(size.0) },
            Axis { range: low..high, marks: reach.decades() },
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(inks.line)
        .axis_style(inks.line)
        .label_style(TextStyle::from((FONT, 11).into_font()).color(&inks.muted))
        .x_label_formatter(&|at| explain::bytes(at.exp2().round() as u64))
        .y_label_formatter(&|at| measure.words(10f64.powf(*at).round() as u64))
        .draw()?;
    let (top, foot) = (chart.backend_coord(&(from, high)).1, chart.backend_coord(&(from, low)).1);
    let x = |bytes: u64| chart.backend_coord(&(log2(bytes).clamp(from, to), low)).0;
    draw_bands(&left, bands, (x, top, foot), (inks.line, inks.muted))?;
    for (first, last) in curves.iter().flat_map(|curve| &curve.extrapolated) {
        let (first, last) = (x(*first), x(*last));
        if f64::from(last - first) > EXTRAPOLATED.len() as f64 * LETTER + 6.0 {
            let style = TextStyle::from((FONT, 11).into_font()).color(&inks.muted);
            // Curves rise: what is free of them is above on the left, and below on the right.
            let (across, beside, down, height) = match first - x(0) < x(u64::MAX) - last {
                true => (first + 6, HPos::Left, VPos::Top, top + 4),
                false => (last - 6, HPos::Right, VPos::Bottom, foot - 4),
            };
            let style = style.pos(Pos::new(beside, down));
            left.draw(&Text::new(EXTRAPOLATED, (across, height), style))?;
        }
    }
    let at = log2(at).clamp(from, to);
    let upright = inks.muted.stroke_width(1);
    chart.draw_series(DashedLineSeries::new([(at, low), (at, high)], 4, 3, upright))?;
    let mut ends: Vec<(i32, usize)> = Vec::new();
    // Grey ones first: those with a colour lie on top.
    let mut order: Vec<usize> = (0..curves.len()).collect();
    sort_few(&mut order, |index| (pointed == Some(*index), curves[*index].chosen));
    drawn.ways = vec![Vec::new(); curves.len()];
    for index in order {
        let curve = &curves[index];
        let (ink, wide, _) = inks.pen(index, curve, pointed);
        let style = ink.stroke_width(wide);
        let way = || curve.points.iter().map(|&(bytes, ps)| (log2(bytes), log10(ps)));
        for (beyond, part) in curve.parts() {
            let part = part.into_iter().map(|(bytes, ps)| (log2(bytes), log10(ps)));
            match curve.dashed || beyond {
                true => drop(chart.draw_series(DashedLineSeries::new(part, 7, 4, style))?),
                false => drop(chart.draw_series(LineSeries::new(part, style))?),
            }
        }
        drawn.ways[index] = way().map(|at| chart.backend_coord(&at)).collect();
        if let Some((_, y)) = drawn.ways[index].last() {
            ends.push((*y, index));
        }
    }
    let dot = |&(bytes, value): &(u64, u64)| {
        Circle::new((log2(bytes), log10(value)), 3, inks.text.stroke_width(1))
    };
    chart.draw_series(dots.iter().map(dot))?;
    (drawn.edge, drawn.narrow) = (chart.backend_coord(&(to, low)).0, narrow);
    for (y, wanted, index) in apart(ends, size.1 as i32) {
        drawn.names.push((y, index));
        if narrow {
            continue;
        }
        let (line, _, ink) = inks.pen(index, &curves[index], pointed);
        let lead = vec![(drawn.edge + 2, wanted), (names as i32 + 9, y)];
        root.draw(&PathElement::new(lead, line.stroke_width(1)))?;
        let style = TextStyle::from((FONT, 11).into_font()).color(&ink);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(curves[index].name.clone(), (names as i32 + 13, y), style))?;
    }
    root.present()?;
    drop((chart, left, root));
    drawn.svg = svg;
    Ok(drawn)
}

/// Names a line apart, in the order of their curves' ends: where each stands, where its curve
/// ends, and the curve.
fn apart(mut ends: Vec<(i32, usize)>, height: i32) -> Vec<(i32, i32, usize)> {
    sort_few(&mut ends, |end| *end);
    let mut stands: Vec<i32> = Vec::new();
    for (y, _) in &ends {
        let after = stands.last().map_or(LINE / 2, |last| last + LINE);
        stands.push((*y).max(after));
    }
    // Labels that were pushed out at the foot go up again.
    let mut under = height - LINE / 2;
    for stand in stands.iter_mut().rev() {
        *stand = (*stand).min(under);
        under = *stand - LINE;
    }
    stands.into_iter().zip(ends).map(|(stand, (wanted, curve))| (stand, wanted, curve)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order_and_their_distance() {
        let stands = apart(vec![(190, 0), (20, 1), (192, 2), (195, 3)], 200);
        let order: Vec<usize> = stands.iter().map(|(_, _, curve)| *curve).collect();
        assert_eq!(order, [1, 0, 2, 3]);
        for pair in stands.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= LINE, "{stands:?}");
        }
        assert!(stands.iter().all(|(y, _, _)| (0..200).contains(y)));
    }

    #[test]
    fn the_curve_under_the_pointer_is_found() {
        let drawn = Drawn {
            svg: String::new(),
            ways: vec![vec![(0, 0), (100, 100)], vec![(0, 50), (100, 50)]],
            names: vec![(50, 1), (90, 0)],
            edge: 110,
            narrow: false,
        };
        assert_eq!(drawn.nearest((10.0, 12.0)), Some(0));
        assert_eq!(drawn.nearest((10.0, 47.0)), Some(1));
        assert_eq!(drawn.nearest((90.0, 5.0)), None);
        assert_eq!(drawn.nearest((150.0, 88.0)), Some(0));
    }
}
