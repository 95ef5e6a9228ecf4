//! Sweeps over bucket caps, world sizes and links: the step, what is exposed, how much of it
//! computes; the best value named with its reason.

use super::answers::use_sweep;
use super::choice::LabChoice;
use super::sweep_chart::{Line, SweepChart, Words};
use crate::explain;
use crate::palette::piece_rgb;
use crate::ui::{Choice, SelectField};
use lockstep_torch::ddp::BucketCap;
use lockstep_torch::ddp::lab::{Axis, Setting, Summary, best};
use lockstep_web_protocol::{DdpQuestion, ModelRef, PlacedSetting};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Sweep`].
#[derive(Properties, PartialEq)]
pub(super) struct SweepProps {
    pub(super) model: ModelRef,
    pub(super) placed: PlacedSetting,
    pub(super) choice: LabChoice,
    pub(super) on_choose: Callback<LabChoice>,
}

/// The values of an axis: with `few`, so many as lines can be told apart.
fn axis(name: &str, setting: &Setting, few: bool) -> Axis {
    let mib = |mib: i64| BucketCap::Bytes(mib << 20);
    match name {
        "caps" => {
            let caps: &[i64] =
                if few { &[1, 25, 100] } else { &[0, 1, 2, 5, 10, 25, 50, 100, 400] };
            let mut all = vec![BucketCap::Default];
            all.extend(caps.iter().copied().map(mib));
            Axis::Caps(all)
        }
        "worlds" => {
            let worlds: &[u32] =
                if few { &[2, 16, 128, 1024] } else { &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] };
            Axis::Worlds(worlds.to_vec())
        }
        "links" => {
            let rates: &[u64] =
                if few { &[3, 12, 50, 200] } else { &[1, 2, 3, 6, 12, 25, 50, 100, 200, 400] };
            Axis::Rates(rates.iter().map(|rate| rate * 1_000_000_000).collect())
        }
        _ => Axis::Worlds(vec![setting.training.world_size]),
    }
}

/// A figure of a step.
struct Figure {
    name: &'static str,
    title: &'static str,
    value: fn(&Summary) -> f64,
    /// The value as it is written.
    words: fn(f64) -> String,
}

fn time_words(ps: f64) -> String {
    explain::time(ps.max(0.0) as u64)
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "step",
        title: "A step",
        value: |point| point.step_ps as f64,
        words: time_words,
    },
    Figure {
        name: "exposed",
        title: "Exposed communication",
        value: |point| point.exposed_ps as f64,
        words: time_words,
    },
    Figure {
        name: "efficiency",
        title: "Share of the step that computes",
        value: |point| point.efficiency_permille() as f64 / 10.0,
        words: |percent| match percent.fract() == 0.0 {
            true => format!("{percent} %"),
            false => format!("{percent:.1} %"),
        },
    },
];

/// The axis of a sweep by its word, and its label.
const AXES: [(&str, &str); 3] =
    [("caps", "bucket caps"), ("worlds", "world sizes"), ("links", "links' bandwidth")];

/// The words of the two axes: the one that is swept, and the one that has thin lines. They are not
/// the same one, and the links of a cluster are its own.
fn axes_of(choice: &LabChoice, own_links: bool) -> (&str, &str) {
    let possible = |word: &str| !(own_links && word == "links");
    let across = Some(choice.sweep.0.as_str()).filter(|word| possible(word)).unwrap_or("caps");
    let lines = Some(choice.sweep.1.as_str()).filter(|word| possible(word) && *word != across);
    (across, lines.unwrap_or("none"))
}

/// Milliseconds from the question to its answer; 0 until it is there.
#[hook]
fn use_took(question: &DdpQuestion, answered: bool) -> f64 {
    let asked_ms = use_mut_ref(|| (0.0, None::<DdpQuestion>, 0.0));
    let mut asked = asked_ms.borrow_mut();
    let now = crate::dom::now_ms();
    if asked.1.as_ref() != Some(question) {
        *asked = (now, Some(question.clone()), 0.0);
    } else if answered && asked.2 == 0.0 {
        asked.2 = now - asked.0;
    }
    asked.2
}

/// The curves of a figure: the reader's own setting first, then the thin ones with their names.
fn curves(
    own: Option<&[Summary]>,
    thin: &[(String, &[Summary])],
    figure: &Figure,
) -> Rc<Vec<Line>> {
    let values = |points: &[Summary]| points.iter().map(figure.value).collect();
    let own = own.map(|points| Line {
        name: "this setting".to_owned(),
        colour: None,
        values: values(points),
    });
    let thin = thin.iter().enumerate().map(|(index, (name, points))| Line {
        name: name.clone(),
        colour: Some(piece_rgb(index as u32 + 1)),
        values: values(points),
    });
    Rc::new(own.into_iter().chain(thin).collect())
}

/// A sweep, drawn.
#[component(Sweep)]
pub(super) fn sweep(props: &SweepProps) -> Html {
    let choice = &props.choice;
    let setting = &props.placed.setting;
    let own_links = props.placed.machine.cluster().is_some();
    let (across_name, lines_name) = axes_of(choice, own_links);
    let (across, lines) = (axis(across_name, setting, false), axis(lines_name, setting, true));
    let asks = |lines: Axis| DdpQuestion::Sweep {
        placed: props.placed.clone(),
        across: across.clone(),
        lines,
    };
    let question = asks(lines.clone());
    let known = use_sweep(&props.model, Some(question.clone()));
    // The setting itself, alone: what is best for the reader.
    let own = use_sweep(&props.model, Some(asks(Axis::Worlds(vec![setting.training.world_size]))));
    let took = use_took(&question, known.fresh);
    let set = |which: fn(&mut LabChoice, String)| {
        let choice = choice.clone();
        props.on_choose.reform(move |value: String| {
            let mut next = choice.clone();
            which(&mut next, value);
            next
        })
    };
    let axes = || AXES.iter().filter(|(word, _)| !(own_links && *word == "links"));
    let label = |(word, label): &(&str, &str)| Choice::new(word, label);
    let choices: Vec<Choice> = axes().map(label).collect();
    let mut others: Vec<Choice> =
        axes().filter(|(word, _)| *word != across_name).map(label).collect();
    others.push(Choice::new("none", "nothing"));
    let values: Rc<Vec<String>> =
        Rc::new((0..across.len()).map(|index| across.words(index)).collect());
    let own_points = own.answer().and_then(|lines| lines.first());
    let found = own_points.and_then(|points| best(&across, points));
    let thin: Vec<(String, &[Summary])> = match (lines_name, known.answer()) {
        ("none", _) | (_, None) => Vec::new(),
        (_, Some(answer)) => answer
            .iter()
            .enumerate()
            .map(|(index, points)| (lines.words(index), points.as_slice()))
            .collect(),
    };
    let draw = |figure: &Figure| curves(own_points.map(Vec::as_slice), &thin, figure);
    let points = across.len() * lines.len();
    let wrong = known.wrong().or(own.wrong());
    html! {
        <div class="ddp-sweep" data-test="sweep" data-ready={(known.fresh && own.fresh).to_string()} data-points={points.to_string()} data-ms={format!("{took:.0}")}
             data-best={found.as_ref().map_or(String::new(), |found| across.words(found.index))}>
            <div class="row">
                <SelectField name="sweep" label="Over" value={across_name.to_owned()} {choices} on_choose={set(|choice, value| choice.sweep.0 = value)} />
                <SelectField name="lines" label="Thin lines for some" value={lines_name.to_owned()} choices={others} on_choose={set(|choice, value| choice.sweep.1 = value)} />
                if let Some((done, total)) = known.progress { <span class="muted">{ format!("{done} of {total} points…") }</span> }
            </div>
            if let Some(why) = wrong { <p class="bad">{ why }</p> }
            if let Some(found) = &found {
                <p class="best" data-test="best"><b>{ "Best: " }</b>{ &found.why }</p>
            }
            <div class="charts">
                { for FIGURES.iter().map(|figure| html! {
                    <figure>
                        <figcaption>{ figure.title }</figcaption>
                        <SweepChart name={figure.name} values={values.clone()} lines={draw(figure)} at={found.as_ref().map(|found| found.index)} words={Words(figure.words)} />
                    </figure>
                }) }
            </div>
            <p class="muted small-print">{ format!("{points} points in closed form; every other argument as in the form. The dashed line is the best of this setting. Each line is a step of the setting with one thing changed.") }</p>
        </div>
    }
}
