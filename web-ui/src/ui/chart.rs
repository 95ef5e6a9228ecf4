//! Time over message size, both on logarithmic axes: where one algorithm overtakes another.
//!
//! plotters draws it as SVG; the names stand at the end of the curves they belong to.

use super::canvas::{Ink, ink, use_size};
use crate::app::use_shared;
use crate::explain;
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
    /// Red, green, blue.
    pub(crate) colour: [u8; 3],
    /// Bytes, and picoseconds or bytes a second, by size.
    pub(crate) points: Vec<(u64, u64)>,
    /// Whether it is broken, so that a colour can be used twice.
    pub(crate) dashed: bool,
    /// Whether it is drawn heavier than the others.
    pub(crate) chosen: bool,
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
/// Pixels from one name to the next.
const LINE: i32 = 14;

/// Time over message size.
#[component(Chart)]
pub(crate) fn chart(props: &ChartProps) -> Html {
    let frame = use_node_ref();
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    let size = (width as u32, height as u32);
    let of = (props.curves.clone(), props.at, props.measure, size, dark);
    let svg = use_memo(of, |(curves, at, measure, size, dark)| {
        if size.0 < 200 || size.1 < 80 || curves.is_empty() {
            return String::new();
        }
        // Drawing into a String fails only when a coordinate is no number, which these all are.
        draw(curves, *at, *measure, *size, *dark).unwrap_or_default()
    });
    html! {
        <div class="chart" ref={frame} role="img" aria-label={props.words.clone()} data-test="chart"
             data-curves={props.curves.len().to_string()}>
            { Html::from_html_unchecked(AttrValue::from((*svg).clone())) }
        </div>
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

type Drawn = Result<String, Box<dyn std::error::Error>>;

fn draw(curves: &[Curve], at: u64, measure: Measure, size: (u32, u32), dark: bool) -> Drawn {
    let mut svg = String::new();
    let Ink { muted, line, text, .. } = ink(dark);
    let (muted, line, text) = (colour(muted), colour(line), colour(text));
    let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let least = points().map(|(_, ps)| log10(ps)).fold(f64::MAX, f64::min);
    let most = points().map(|(_, ps)| log10(ps)).fold(f64::MIN, f64::max);
    let from = points().map(|(bytes, _)| log2(bytes)).fold(f64::MAX, f64::min);
    let to = points().map(|(bytes, _)| log2(bytes)).fold(f64::MIN, f64::max);
    if !(least <= most && from <= to) {
        return Ok(svg);
    }
    let (low, high) = (least.floor(), (most + 0.05).max(least.floor() + 0.5));
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let names = size.0.saturating_sub(NAMES);
        let (left, _) = root.split_horizontally(names);
        let every = match size.0 {
            0..450 => 10,
            450..620 => 8,
            _ => 4,
        };
        let sizes: Vec<f64> =
            (0..=60).step_by(every).map(f64::from).filter(|at| (from..=to).contains(at)).collect();
        let decades: Vec<f64> =
            (0..=24).map(f64::from).filter(|at| (low..=high).contains(at)).collect();
        let mut chart = ChartBuilder::on(&left)
            .margin_top(8)
            .margin_right(2)
            .x_label_area_size(22)
            .y_label_area_size(58)
            .build_cartesian_2d(
                Axis { range: from..to.max(from + 1.0), marks: sizes },
                Axis { range: low..high, marks: decades },
            )?;
        let label = TextStyle::from((FONT, 11).into_font()).color(&muted);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(line)
            .axis_style(line)
            .label_style(label)
            .x_label_formatter(&|at| explain::bytes(at.exp2().round() as u64))
            .y_label_formatter(&|at| measure.words(10f64.powf(*at).round() as u64))
            .draw()?;
        let at = log2(at).clamp(from, to);
        chart.draw_series(DashedLineSeries::new(
            [(at, low), (at, high)],
            4,
            3,
            muted.stroke_width(1),
        ))?;
        let mut ends: Vec<(i32, &Curve)> = Vec::new();
        for curve in curves {
            let [r, g, b] = curve.colour;
            let style = RGBColor(r, g, b).stroke_width(if curve.chosen { 3 } else { 1 });
            let way = || curve.points.iter().map(|&(bytes, ps)| (log2(bytes), log10(ps)));
            match curve.dashed {
                true => drop(chart.draw_series(DashedLineSeries::new(way(), 7, 4, style))?),
                false => drop(chart.draw_series(LineSeries::new(way(), style))?),
            }
            if let Some(last) = way().next_back() {
                ends.push((chart.backend_coord(&last).1, curve));
            }
        }
        let (edge, names) = (chart.backend_coord(&(to, low)).0, names as i32);
        for (y, wanted, curve) in apart(ends, size.1 as i32) {
            let [r, g, b] = curve.colour;
            let lead = vec![(edge + 2, wanted), (names + 9, y)];
            root.draw(&PathElement::new(lead, RGBColor(r, g, b).stroke_width(1)))?;
            let ink = if curve.chosen { &text } else { &muted };
            let style = TextStyle::from((FONT, 11).into_font())
                .color(ink)
                .pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(curve.name.clone(), (names + 13, y), style))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Names a line apart, in the order of their curves' ends: where each stands, where its curve
/// ends, and the curve.
fn apart(mut ends: Vec<(i32, &Curve)>, height: i32) -> Vec<(i32, i32, &Curve)> {
    ends.sort_by_key(|(y, _)| *y);
    let mut stands: Vec<i32> = Vec::new();
    for (y, _) in &ends {
        let after = stands.last().map_or(LINE / 2, |last| last + LINE);
        stands.push((*y).max(after));
    }
    // What was pushed out at the foot goes up again.
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
        let curve = |name: &str| Curve {
            name: name.to_owned(),
            colour: [0; 3],
            points: Vec::new(),
            dashed: false,
            chosen: false,
        };
        let curves = [curve("a"), curve("b"), curve("c"), curve("d")];
        let ends = vec![(190, &curves[0]), (20, &curves[1]), (192, &curves[2]), (195, &curves[3])];
        let stands = apart(ends, 200);
        let names: Vec<&str> = stands.iter().map(|(_, _, curve)| curve.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c", "d"]);
        for pair in stands.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= LINE, "{stands:?}");
        }
        assert!(stands.iter().all(|(y, _, _)| (0..200).contains(y)));
    }
}
