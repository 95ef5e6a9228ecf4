//! One figure over the values of a sweep, a curve a line; plotters draws it as SVG.

use crate::app::use_shared;
use crate::sets::sort_few;
use crate::ui::canvas::{ink, use_size};
use crate::ui::chart::{Axis, colour};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::rc::Rc;
use yew::prelude::*;

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Red, green, blue; the reader's own setting is in the colour of the text.
    pub(super) colour: Option<[u8; 3]>,
    pub(super) values: Vec<f64>,
}

/// The text of a value on an axis; functions are the same when they are one function.
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) fn(f64) -> String);

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

/// Properties of [`SweepChart`].
#[derive(Properties, PartialEq)]
pub(super) struct SweepChartProps {
    pub(super) name: &'static str,
    /// The values along the foot.
    pub(super) values: Rc<Vec<String>>,
    pub(super) lines: Rc<Vec<Line>>,
    /// The best of the reader's own setting.
    pub(super) at: Option<usize>,
    pub(super) words: Words,
}

const FONT: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

/// One figure over the values of a sweep.
#[component(SweepChart)]
pub(super) fn sweep_chart(props: &SweepChartProps) -> Html {
    let frame = use_node_ref();
    let (width, height) = use_size(&frame);
    let dark = use_shared().dark;
    let size = (width as u32, height as u32);
    let deps = (props.values.clone(), props.lines.clone(), props.at, props.words, size, dark);
    let svg = use_memo(deps, |(values, lines, at, words, size, dark)| {
        if size.0 < 120 || size.1 < 80 || lines.is_empty() || values.is_empty() {
            return String::new();
        }
        // Drawing into a String fails only when a coordinate is no number, which these all are.
        draw(values, lines, *at, *words, *size, *dark).unwrap_or_default()
    });
    let legend = props.lines.iter().map(|line| {
        let colour =
            line.colour.map_or("var(--ink)".to_owned(), |[r, g, b]| format!("rgb({r} {g} {b})"));
        html! { <li><i style={format!("background:{colour}")} />{ &line.name }</li> }
    });
    html! {
        <>
        <div class="chart" ref={frame} role="img" aria-label={props.name} data-test={format!("chart-{}", props.name)} data-lines={props.lines.len().to_string()}>
            { Html::from_html_unchecked(AttrValue::from((*svg).clone())) }
        </div>
        <ul class="legend">{ for legend }</ul>
        </>
    }
}

type Drawn = Result<String, Box<dyn std::error::Error>>;

/// The upright axis: values as they are, or their logarithms where they lie many powers apart.
struct Upright {
    logarithmic: bool,
    least: f64,
    low: f64,
    high: f64,
}

impl Upright {
    fn of(lines: &[Line]) -> Upright {
        let all = || lines.iter().flat_map(|line| line.values.iter().copied());
        let most = all().fold(0.0, f64::max).max(1.0);
        let least = all().fold(f64::MAX, f64::min).min(most);
        // Many powers apart, what is small would lie on the foot: then logarithms.
        let logarithmic = least > 0.0 && most / least > 30.0;
        let (low, high) = match logarithmic {
            true => (least.log10() - 0.05, most.log10() + 0.1),
            // A small range is drawn large.
            false if least > most / 2.0 => {
                let margin = (most - least).max(most / 50.0) * 0.2;
                (least - margin, most + margin)
            }
            false => (0.0, most * 1.08),
        };
        Upright { logarithmic, least, low, high }
    }

    /// The place of a value on the axis.
    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(self.least).log10() } else { value }
    }

    /// The value at a place.
    fn value(&self, place: f64) -> f64 {
        if self.logarithmic { 10f64.powf(place) } else { place }
    }

    /// The places that have a label.
    fn marks(&self) -> Vec<f64> {
        let (low, high) = (self.low, self.high);
        if self.logarithmic {
            return ((low.ceil() as i32)..=(high.floor() as i32)).map(f64::from).collect();
        }
        let power = 10f64.powf(((high - low) / 4.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = steps.into_iter().find(|step| (high - low) / step <= 5.0).unwrap_or(high);
        (0..=6)
            .map(|index| ((low / step).ceil() + f64::from(index)) * step)
            .filter(|mark| *mark <= high)
            .collect()
    }
}

/// The values along the foot that have a label: as many as have room in `width` pixels. The best has
/// its mark in any case, and its neighbours make room for it.
fn feet(count: usize, at: Option<usize>, width: u32) -> Vec<f64> {
    let every = (count as f64 * 62.0 / f64::from(width.max(1))).ceil().max(1.0) as usize;
    let far = |index: &usize| at.is_none_or(|at| *index == at || index.abs_diff(at) >= every);
    let mut feet: Vec<usize> = (0..count).step_by(every).filter(far).collect();
    feet.extend(at.filter(|at| *at < count && !feet.contains(at)));
    sort_few(&mut feet, |index| *index);
    feet.into_iter().map(|index| index as f64).collect()
}

/// A value as the foot has it, without its unit's name.
fn short(words: &str) -> String {
    words.replace(" ranks", "").replace(" MiB", "M").replace(" GB/s", "G")
}

fn draw(
    values: &[String],
    lines: &[Line],
    at: Option<usize>,
    words: Words,
    size: (u32, u32),
    dark: bool,
) -> Drawn {
    let mut svg = String::new();
    let of = ink(dark);
    let (muted, line, text) = (colour(of.muted), colour(of.line), colour(of.text));
    let upright = Upright::of(lines);
    let (low, high) = (upright.low, upright.high);
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let last = values.len().saturating_sub(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin_top(8)
        .margin_right(14)
        .x_label_area_size(22)
        .y_label_area_size(58)
        .build_cartesian_2d(
            Axis { range: -0.3..last + 0.3, marks: feet(values.len(), at, size.0) },
            Axis { range: low..high, marks: upright.marks() },
        )?;
    let label = TextStyle::from((FONT, 11).into_font()).color(&muted);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(line)
        .axis_style(line)
        .label_style(label)
        .x_label_formatter(&|index| {
            values
                .get(index.round().max(0.0) as usize)
                .map_or_else(String::new, |words| short(words))
        })
        .y_label_formatter(&|place| (words.0)(upright.value(*place)))
        .draw()?;
    if let Some(at) = at {
        let at = at as f64;
        let style = muted.stroke_width(1);
        chart.draw_series(DashedLineSeries::new([(at, low), (at, high)], 4, 3, style))?;
    }
    // The reader's own line on top of the others.
    for line in lines.iter().rev() {
        let (stroke, ink) = match line.colour {
            Some([r, g, b]) => (1, RGBColor(r, g, b)),
            None => (3, text),
        };
        let place = |(index, value): (usize, &f64)| (index as f64, upright.place(*value));
        let way: Vec<(f64, f64)> = line.values.iter().enumerate().map(place).collect();
        chart.draw_series(LineSeries::new(way.clone(), ink.stroke_width(stroke)))?;
        chart.draw_series(way.iter().map(|at| Circle::new(*at, 2, ink.filled())))?;
    }
    let own = lines.iter().find(|line| line.colour.is_none());
    let best = at.and_then(|at| Some((at, *own?.values.get(at)?)));
    if let Some((at, value)) = best {
        // At the end of the dashed line that is farther from the curve.
        let upper = upright.place(value) < (low + high) / 2.0;
        let (x, end) = chart.backend_coord(&(at as f64, if upper { high } else { low }));
        let y = if upper { end + 18 } else { end - 2 };
        draw_value(&root, (words.0)(value), (x, y), size.0, (text, dark))?;
    }
    root.present()?;
    drop(chart);
    drop(root);
    Ok(svg)
}

/// The best value beside the dashed line, on a ground of its own: curves may pass there.
fn draw_value(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    told: String,
    (x, y): (i32, i32),
    width: u32,
    (text, dark): (RGBColor, bool),
) -> Result<(), Box<dyn std::error::Error>> {
    let at_the_edge = x > width as i32 - 80;
    let side = if at_the_edge { HPos::Right } else { HPos::Left };
    let style = TextStyle::from((FONT, 11).into_font()).color(&text);
    let style = style.pos(Pos::new(side, VPos::Bottom));
    let wide = told.chars().count() as i32 * 7;
    let left = if at_the_edge { x + 5 - wide } else { x + 5 };
    let ground = if dark { RGBColor(22, 28, 36) } else { RGBColor(255, 255, 255) };
    let top = (y - 18).max(0);
    let under = [(left - 2, top), (left + wide + 2, top + 15)];
    area.draw(&Rectangle::new(under, ground.mix(0.85).filled()))?;
    area.draw(&Text::new(told, (x + 5, top + 14), style))?;
    Ok(())
}
