//! The effect of each option that differs between A and B, by itself, and its reason.

use super::answers::use_changes;
use super::choice::{LabChoice, Side, Tab};
use super::knobs::Knobs;
use crate::explain;
use lockstep_torch::ddp::lab::Summary;
use lockstep_web_protocol::{ChangeRow, DdpAccount, ModelRef};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Changes`].
#[derive(Properties, PartialEq)]
pub(super) struct ChangesProps {
    pub(super) model: ModelRef,
    pub(super) a: Rc<DdpAccount>,
    pub(super) b: Option<Rc<DdpAccount>>,
    pub(super) choice: LabChoice,
    pub(super) on_choose: Callback<LabChoice>,
}

/// Comparisons to begin with: what it shows, and what B is.
type Start = (&'static str, fn(Knobs) -> Knobs);
const STARTS: [Start; 6] = [
    ("an explicit bucket_cap_mb=25 is not the default", |a| Knobs { cap: "25".to_owned(), ..a }),
    ("one bucket for everything", |a| Knobs { cap: "1000000".to_owned(), ..a }),
    ("fp16_compress_hook", |a| Knobs { hook: "fp16", ..a }),
    ("find_unused_parameters=True", |a| Knobs { find_unused: true, ..a }),
    ("four times the ranks", |a| Knobs { world: (a.world * 4).min(super::knobs::MAX_WORLD), ..a }),
    ("no_sync for three of four passes", |a| Knobs { accumulate: 4, ..a }),
];

/// The table of what changed.
#[component(Changes)]
pub(super) fn changes(props: &ChangesProps) -> Html {
    let pair = props.b.as_ref().map(|b| (props.a.placed(), b.placed()));
    let known = use_changes(&props.model, pair);
    let Some(b) = &props.b else {
        let starts = STARTS.iter().map(|(words, of)| {
            let next = LabChoice {
                b: Some(of(props.choice.a.clone())),
                edits: Side::B,
                tab: Tab::Changes,
                ..props.choice.clone()
            };
            let onclick = props.on_choose.reform(move |_: MouseEvent| next.clone());
            html! { <button {onclick}>{ *words }</button> }
        });
        return html! {
            <div class="starts"><p>{ "Put a second setting beside this one. What would you like to see?" }</p><div class="row">{ for starts }</div></div>
        };
    };
    let rows = known.answer();
    // Steps of more passes do more work: then a pass is compared.
    let passes = props.a.summary.passes;
    let differ = |row: &ChangeRow| row.summary.as_ref().is_ok_and(|of| of.passes != passes);
    let each = b.summary.passes != passes || rows.is_some_and(|rows| rows.iter().any(differ));
    let changed = rows.into_iter().flat_map(|rows| rows.iter()).map(|row| match &row.summary {
        Ok(summary) => line(&row.option, Some((&row.from, &row.to)), summary, Some(&props.a.summary), each, &row.why),
        Err(why) => html! {
            <tr><th scope="row" class="mono">{ &row.option }</th><td>{ format!("{} → {}", row.from, row.to) }</td><td colspan="7" class="bad">{ why }</td></tr>
        },
    });
    let none = rows.is_some_and(|rows| rows.is_empty());
    html! {
        <div class="scroll" tabindex="0" data-test="changes" data-rows={rows.map_or(0, |rows| rows.len()).to_string()} data-ready={known.fresh.to_string()}>
        <table class="plain figures-table changes-table">
            <caption class="muted">{ match each {
                true => "Each option of B by itself, on top of A. Steps differ in their passes, so in their work: figures are a step's, and under them a pass's, which compare.",
                false => "Each option of B by itself, on top of A. Figures are of one optimizer step.",
            } }</caption>
            <thead><tr><th>{ "option" }</th><th>{ "from → to" }</th><th class="n">{ "buckets" }</th><th class="n">{ "collectives" }</th><th class="n">{ "bytes" }</th>
                <th class="n">{ "step" }</th><th class="n">{ "exposed" }</th><th class="n">{ "first reduction" }</th><th>{ "why" }</th></tr></thead>
            <tbody>
                { line("A", None, &props.a.summary, None, each, "the setting on top") }
                { for changed }
                { line("B", None, &b.summary, Some(&props.a.summary), each, "all of it together") }
            </tbody>
        </table>
        if none { <p class="muted" data-test="changes-none">{ "A and B are the same so far: change something in the form, it belongs to B." }</p> }
        </div>
    }
}

fn line(
    option: &str,
    values: Option<(&String, &String)>,
    summary: &Summary,
    before: Option<&Summary>,
    each: bool,
    why: &str,
) -> Html {
    let signed = |now: u64, was: Option<u64>| match was.map(|was| now.cmp(&was)) {
        Some(std::cmp::Ordering::Less) => Some("down"),
        Some(std::cmp::Ordering::Greater) => Some("up"),
        _ => None,
    };
    let cell = |name: &'static str, of: fn(&Summary) -> u64, words: fn(u64) -> String| {
        let value = of(summary);
        let sign = signed(value, before.map(of));
        html! { <td class={classes!("n", sign)} data-name={name}>{ words(value) }</td> }
    };
    // Figures that add up over the passes of a step.
    let summed = |name: &'static str, of: fn(&Summary) -> u64, words: fn(u64) -> String| {
        if !each {
            return cell(name, of, words);
        }
        let a_pass = summary.per_pass(of(summary));
        let sign = signed(a_pass, before.map(|before| before.per_pass(of(before))));
        html! {
            <td class="n" data-name={name}>{ words(of(summary)) }
                <span class={classes!("each", sign)} data-test="a-pass">{ format!("{} a pass", words(a_pass)) }</span></td>
        }
    };
    html! {
        <tr class={classes!(values.is_none().then_some("whole"))}>
            <th scope="row" class="mono">{ option }</th>
            <td class="change">{ values.map(|(from, to)| format!("{from} → {to}")).unwrap_or_default() }</td>
            { cell("buckets", |of| of.buckets.into(), |value| value.to_string()) }
            { summed("collectives", |of| of.collectives.into(), |value| value.to_string()) }
            { summed("bytes", |of| of.bytes, explain::bytes) }
            { summed("step", |of| of.step_ps, explain::time) }
            { summed("exposed", |of| of.exposed_ps, explain::time) }
            <td class="n" data-name="first reduction">{ summary.first_reduction_ps.map_or("–".to_owned(), |ps| format!("{} into backward", explain::time(ps))) }</td>
            <td class="why">{ why }</td>
        </tr>
    }
}
