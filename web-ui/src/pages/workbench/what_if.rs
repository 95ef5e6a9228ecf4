//! The job of a trace with a change, beside the job as it is.

use crate::app::use_shared;
use crate::explain;
use crate::pages::known_clusters::{cluster_choices, use_known_clusters};
use crate::turns::use_turns;
use crate::ui::prose;
use crate::ui::{Choice, NumberField, SelectField, Timeline, use_in_sight};
use lockstep_analysis::{Analysis, Cause, Stretch};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::Algorithm;
use lockstep_replay::{Side, Variation};
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{
    Changed, ClusterName, JobChange, Machine, Request, Response, SessionId,
};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`WhatIf`].
#[derive(Properties, PartialEq)]
pub(super) struct WhatIfProps {
    pub(super) session: SessionId,
    pub(super) world_size: u32,
    /// The rank that came late most.
    pub(super) straggler: Option<u32>,
}

/// A simulation that misses the recorded time by more than this, in percent, predicts nothing.
const MOST_OFF: f64 = 25.0;

/// The questions, most with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    WithoutStraggler,
    Faster,
    Rate,
    Buckets,
    Tree,
    Ring,
    Cluster,
}

impl Question {
    const ALL: [Question; 7] = [
        Question::WithoutStraggler,
        Question::Faster,
        Question::Rate,
        Question::Buckets,
        Question::Tree,
        Question::Ring,
        Question::Cluster,
    ];

    fn name(self) -> &'static str {
        match self {
            Question::WithoutStraggler => "without a straggler",
            Question::Faster => "with faster computing",
            Question::Rate => "with other links",
            Question::Buckets => "with other DDP buckets",
            Question::Tree => "with trees",
            Question::Ring => "with rings",
            Question::Cluster => "on another cluster",
        }
    }

    /// The name, unit and bounds of its number, and what it is at first.
    fn number(self, props: &WhatIfProps) -> Option<(&'static str, u64, u64, u64)> {
        match self {
            Question::WithoutStraggler => {
                let most = u64::from(props.world_size.saturating_sub(1));
                Some(("Rank", 0, most, props.straggler.map_or(0, u64::from)))
            }
            Question::Faster => Some(("Percent of the time", 1, 1000, 50)),
            Question::Rate => Some(("Gbit/s", 1, 10_000, 400)),
            Question::Buckets => Some(("MiB", 1, 10_000, 25)),
            Question::Tree | Question::Ring | Question::Cluster => None,
        }
    }

    fn change(self, number: u64, cluster: &str) -> JobChange {
        JobChange::Variation(match self {
            Question::Cluster => {
                let name = ClusterName::from(cluster).unwrap_or_default();
                return JobChange::Machine(Machine::on_cluster(name, 0));
            }
            Question::WithoutStraggler => Variation::WithoutStraggler(GlobalRank(number as u32)),
            Question::Faster => {
                Variation::Scale { ranks: Vec::new(), computing: number as f64 / 100.0 }
            }
            Question::Rate => Variation::Links {
                which: Side::Across,
                bytes_per_second: Some(number.saturating_mul(125_000_000)),
                latency_ps: None,
            },
            Question::Buckets => Variation::BucketBytes(number << 20),
            Question::Tree => Variation::Algorithm(Algorithm::Tree),
            Question::Ring => Variation::Algorithm(Algorithm::Ring),
        })
    }
}

/// The state of the answer.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    Simulating,
    /// With the changed job's session for as long as it is shown.
    Told(Rc<Told>, Session),
    Refused(String),
}

/// An answer; two of them are never the same.
struct Told(Changed);

impl PartialEq for Told {
    fn eq(&self, other: &Told) -> bool {
        self.0.opened.session == other.0.opened.session
    }
}

/// A form that asks what if, and the answer.
#[component(WhatIf)]
pub(super) fn what_if(props: &WhatIfProps) -> Html {
    let client = use_shared().client;
    let question = use_state(|| Question::WithoutStraggler);
    let first = question.number(props).map_or(0, |(_, _, _, first)| first);
    let number = use_state(|| first);
    let cluster = use_state(|| "h100x8".to_owned());
    let known = use_known_clusters(*question == Question::Cluster);
    let stage = use_state(|| Stage::Idle);
    let answer = use_in_sight(Some((*stage).clone()).filter(|stage| *stage != Stage::Idle));
    let turns = use_turns();
    let choose = {
        let (question, number) = (question.clone(), number.clone());
        let (session, world_size, straggler) = (props.session, props.world_size, props.straggler);
        Callback::from(move |name: String| {
            let Some(chosen) = Question::ALL.into_iter().find(|it| it.name() == name) else {
                return;
            };
            let props = WhatIfProps { session, world_size, straggler };
            number.set(chosen.number(&props).map_or(0, |(_, _, _, first)| first));
            question.set(chosen);
        })
    };
    let set = {
        let number = number.setter();
        Callback::from(move |value| number.set(value))
    };
    let set_cluster = {
        let cluster = cluster.setter();
        Callback::from(move |name| cluster.set(name))
    };
    let ask = {
        let (stage, session) = (stage.setter(), props.session);
        let change = question.change(*number, &cluster);
        Callback::from(move |_: MouseEvent| {
            stage.set(Stage::Simulating);
            let (stage, client, turn) = (stage.clone(), client.clone(), turns.next());
            let (changed, change) = (client.new_session(), Box::new(change.clone()));
            wasm_bindgen_futures::spawn_local(async move {
                let request = Request::WhatIf { session, changed: changed.id(), change };
                let answered = client.ask(request).await;
                if turn.counts() {
                    stage.set(match answered.map(|answered| answered.response) {
                        Ok(Response::Changed(told)) => Stage::Told(Rc::new(Told(*told)), changed),
                        Ok(_) => Stage::Idle,
                        Err(why) => Stage::Refused(why),
                    });
                }
            });
        })
    };
    let choices = Question::ALL.map(|it| Choice::new(it.name(), it.name())).to_vec();
    html! {
        <section class="what-if" data-test="what-if">
            <h4>{ "What if?" }</h4>
            <div class="row">
                <SelectField name="what-if" label="The same job …" value={question.name()} {choices} on_choose={choose} />
                if let Some((label, min, max, _)) = question.number(props) {
                    <NumberField name="what-if-number" {label} value={*number} {min} {max} on_choose={set} />
                }
                if *question == Question::Cluster {
                    <SelectField name="what-if-cluster" label="Cluster" value={(*cluster).clone()} choices={cluster_choices(&known, &cluster)} on_choose={set_cluster} />
                }
                <button onclick={ask} disabled={*stage == Stage::Simulating} data-test="ask-what-if">{ "Simulate" }</button>
            </div>
            <div ref={answer}>{ match &*stage {
                Stage::Idle => html! {},
                Stage::Simulating => html! { <p class="muted" aria-live="polite">{ "Simulating the job as it is and changed…" }</p> },
                Stage::Refused(why) => html! { <p class="muted" data-test="no-what-if">{ prose(why) }</p> },
                Stage::Told(told, _) => shown(&told.0, props.world_size),
            } }</div>
        </section>
    }
}

fn shown(told: &Changed, world_size: u32) -> Html {
    let (before, after) = (&told.before, &told.after);
    let stretch = Stretch::of_both(before, after);
    let row = |name: &str, of: &dyn Fn(&Analysis) -> Option<u64>| {
        let (Some(before), Some(after)) = (of(before), of(after)) else { return html! {} };
        let change = match before {
            0 => String::new(),
            before => format!("{:+.1}%", (after as f64 / before as f64 - 1.0) * 100.0),
        };
        html! {
            <tr><th scope="row">{ name }</th><td class="n">{ explain::time(before) }</td>
                <td class="n">{ explain::time(after) }</td><td class="n">{ change }</td></tr>
        }
    };
    let replayed_ps = before.step_ps.unwrap_or(before.time_ps);
    let recorded_ps = told.recorded_ps.filter(|recorded| *recorded > 0);
    let off = recorded_ps.map(|recorded| (replayed_ps as f64 / recorded as f64 - 1.0) * 100.0);
    let as_it_is = recorded_ps.zip(off).map(|(recorded_ps, off)| {
        format!(
            "As it is, the simulation takes {} where {} was recorded ({off:+.1}%).",
            explain::time(replayed_ps),
            explain::time(recorded_ps)
        )
    });
    let misses = off.is_some_and(|off| off.abs() > MOST_OFF);
    let fit = told.fit_error.map(|error| {
        format!(", fitted from this trace, whose calls are {:.0}% off in the mean", error * 100.0)
    });
    let opened = &told.opened;
    html! {
        <div data-test="what-if-told" data-before={before.time_ps.to_string()} data-after={after.time_ps.to_string()}>
            if misses { <p class="notice" data-test="what-if-misses">{ format!("Do not rely on this: the simulation does not match the recording. {}", as_it_is.clone().unwrap_or_default()) }</p> }
            <p>{ format!("If {}:", told.words) }</p>
            <div class="scroll" tabindex="0"><table class="figures-table">
                <thead><tr><td />{ for ["as it is", "changed", ""].map(|name| html! { <th class="n">{ name }</th> }) }</tr></thead>
                <tbody>
                    { row("a step", &|it| it.step_ps) }
                    { row("all", &|it| Some(it.time_ps)) }
                    { row("exposed", &|it| Some(it.mean_ps(stretch, |share| share.communicating_ps))) }
                    { row("waiting", &|it| Some(it.mean_ps(stretch, |share| share.waiting_ps))) }
                    { row("path: computing", &|it| Some(it.critical_path.time_of(Cause::Computing))) }
                    { row("path: communicating", &|it| Some(it.critical_path.time_of(Cause::Communicating))) }
                </tbody>
            </table></div>
            <p class="muted">{ as_it_is.filter(|_| !misses).unwrap_or_default() }{ format!(" Links: {}{}.", told.links, fit.unwrap_or_default()) }</p>
            <div class="lanes repaired"><Timeline session={opened.session} {world_size} lanes={opened.lanes} end_ps={opened.end_ps} fit={opened.fit} culprits={Vec::<u32>::new()} /></div>
            if !told.assumed.is_empty() {
                <details><summary>{ "What the simulation assumes" }</summary>
                    <ul>{ for told.assumed.iter().map(|one| html! { <li>{ prose(one) }</li> }) }</ul></details>
            }
        </div>
    }
}
