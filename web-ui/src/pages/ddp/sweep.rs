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

/// A figure of a step: its name, its title, its value, and how that is written.
type Figure = (&'static str, &'static str, fn(&Summary) -> f64, fn(f64) -> String);

/// A sweep, drawn.
#[component(Sweep)]
pub(super) fn sweep(props: &SweepProps) -> Html {
    let choice = &props.choice;
    let setting = &props.placed.setting;
    // The links of a cluster are its own.
    let own_links = props.placed.machine.cluster().is_some();
    let swept = |word: &str| own_links && word == "links";
    let across_name =
        if swept(&choice.sweep.0) { "caps".to_owned() } else { choice.sweep.0.clone() };
    let lines_name = match choice.sweep.1.as_str() {
        word if word == across_name || swept(word) => "none",
        word => word,
    };
    let (across, lines) = (axis(&across_name, setting, false), axis(lines_name, setting, true));
    let question = DdpQuestion::Sweep {
        placed: props.placed.clone(),
        across: across.clone(),
        lines: lines.clone(),
    };
    let asked_ms = use_mut_ref(|| (0.0, None::<DdpQuestion>, 0.0));
    let known = use_sweep(&props.model, Some(question.clone()));
    let own = {
        // The setting itself, alone: what is best for the reader.
        let lines = Axis::Worlds(vec![setting.training.world_size]);
        use_sweep(
            &props.model,
            Some(DdpQuestion::Sweep {
                placed: props.placed.clone(),
                across: across.clone(),
                lines,
            }),
        )
    };
    let took = {
        let mut asked = asked_ms.borrow_mut();
        let now = crate::dom::now_ms();
        if asked.1.as_ref() != Some(&question) {
            *asked = (now, Some(question), 0.0);
        } else if known.fresh && asked.2 == 0.0 {
            asked.2 = now - asked.0;
        }
        asked.2
    };
    let set = |which: fn(&mut LabChoice, String)| {
        let choice = choice.clone();
        props.on_choose.reform(move |value: String| {
            let mut next = choice.clone();
            which(&mut next, value);
            next
        })
    };
    let axes = [("caps", "bucket caps"), ("worlds", "world sizes"), ("links", "links' bandwidth")];
    let axes = || axes.iter().filter(|(word, _)| !swept(word));
    let choices = axes().map(|(word, label)| Choice::new(word, label)).collect::<Vec<_>>();
    let mut others: Vec<Choice> = axes()
        .filter(|(word, _)| *word != across_name)
        .map(|(word, label)| Choice::new(word, label))
        .collect();
    others.push(Choice::new("none", "nothing"));
    let values: Rc<Vec<String>> =
        Rc::new((0..across.len()).map(|index| across.words(index)).collect());
    let own_points = own.answer().and_then(|lines| lines.first()).cloned();
    let found = own_points.as_ref().and_then(|points| best(&across, points));
    let charts: [Figure; 3] = [
        ("step", "A step", |point| point.step_ps as f64, |ps| explain::time(ps.max(0.0) as u64)),
        (
            "exposed",
            "Exposed communication",
            |point| point.exposed_ps as f64,
            |ps| explain::time(ps.max(0.0) as u64),
        ),
        (
            "efficiency",
            "Share of the step that computes",
            |point| point.efficiency_permille() as f64 / 10.0,
            |percent| match percent.fract() == 0.0 {
                true => format!("{percent} %"),
                false => format!("{percent:.1} %"),
            },
        ),
    ];
    let draw = |of: fn(&Summary) -> f64| {
        let mut drawn = Vec::new();
        if let Some(points) = &own_points {
            drawn.push(Line {
                name: "this setting".to_owned(),
                colour: None,
                values: points.iter().map(of).collect(),
            });
        }
        if lines_name != "none" {
            for (index, points) in
                known.answer().into_iter().flat_map(|lines| lines.iter().enumerate())
            {
                drawn.push(Line {
                    name: lines.words(index),
                    colour: Some(piece_rgb(index as u32 + 1)),
                    values: points.iter().map(of).collect(),
                });
            }
        }
        Rc::new(drawn)
    };
    let points = across.len() * lines.len();
    let wrong = known.wrong().or(own.wrong());
    html! {
        <div class="ddp-sweep" data-test="sweep" data-ready={(known.fresh && own.fresh).to_string()} data-points={points.to_string()} data-ms={format!("{took:.0}")}
             data-best={found.as_ref().map_or(String::new(), |found| across.words(found.index))}>
            <div class="row">
                <SelectField name="sweep" label="Over" value={across_name.clone()} {choices} on_choose={set(|choice, value| choice.sweep.0 = value)} />
                <SelectField name="lines" label="Thin lines for some" value={lines_name.to_owned()} choices={others} on_choose={set(|choice, value| choice.sweep.1 = value)} />
                if let Some((done, total)) = known.progress { <span class="muted">{ format!("{done} of {total} points…") }</span> }
            </div>
            if let Some(why) = wrong { <p class="bad">{ why }</p> }
            if let Some(found) = &found {
                <p class="best" data-test="best"><b>{ "Best: " }</b>{ &found.why }</p>
            }
            <div class="charts">
                { for charts.into_iter().map(|(name, title, of, words)| html! {
                    <figure>
                        <figcaption>{ title }</figcaption>
                        <SweepChart {name} values={values.clone()} lines={draw(of)} at={found.as_ref().map(|found| found.index)} words={Words(words)} />
                    </figure>
                }) }
            </div>
            <p class="muted small-print">{ format!("{points} points in closed form; every other argument as in the form. The dashed line is the best of this setting. Each line is a step of the setting with one thing changed.") }</p>
        </div>
    }
}
