//! Hangs: a gallery of jobs that do not end, and each of them to be stepped through.

use super::exports::Exports;
use super::simulation::{Addressed, Simulated, use_addressed_moment, use_simulation, use_view};
use crate::app::use_shared;
use crate::explain;
use crate::playback::{Act, use_playback};
use crate::protocol::Opened;
use crate::route::{Route, View};
use crate::ui::{
    Choice, Findings, NumberField, RealRun, SelectField, SourceView, Timeline, Transport, WaitGraph,
};
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::Source;
use lockstep_core::scenario::{self, ScenarioOptions};
use lockstep_sim::Topology;
use lockstep_sim::view::{CallView, Doing};
use std::rc::Rc;
use yew::prelude::*;

/// The largest world that a scenario is shown with.
const MAX_WORLD: u64 = 32;

/// The gallery, or the scenario that the address names.
#[component(Hangs)]
pub(crate) fn hangs() -> Html {
    let nav = use_shared().nav;
    match nav.route.name().map(|name| (name, scenario::find(name))) {
        None => html! { <Gallery /> },
        Some((_, Some(scenario))) => html! { <OneHang key={scenario.id} id={scenario.id} /> },
        Some((name, None)) => html! {
            <><p class="banner bad" role="alert">{ format!("There is no scenario {name:?}.") }</p><Gallery /></>
        },
    }
}

#[component(Gallery)]
fn gallery() -> Html {
    html! {
        <div class="gallery">
            <h1>{ "Jobs that hang" }</h1>
            <p class="lead">{ "Each is a program whose ranks wait for each other for ever. Step through it, see who waits for whom, and read what the diagnosis makes of it." }</p>
            <ul class="cards">
                { for scenario::all().iter().map(|scenario| html! {
                    <li>
                        <a class="card" href={Route::below(View::Hangs, scenario.id).to_hash()} data-test={format!("scenario-{}", scenario.id)}>
                            <h2>{ scenario.title }</h2>
                            <p>{ scenario.story }</p>
                            <pre class="mono">{ excerpt(scenario.program) }</pre>
                        </a>
                    </li>
                }) }
            </ul>
        </div>
    }
}

/// The program without its imports.
fn excerpt(program: &str) -> String {
    let lines = program.lines().filter(|line| !line.starts_with("import"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[derive(Properties, PartialEq)]
struct OneHangProps {
    id: &'static str,
}

/// One scenario, stepped through.
#[component(OneHang)]
fn one_hang(props: &OneHangProps) -> Html {
    let nav = use_shared().nav;
    let Some(scenario) = scenario::find(props.id) else { return html! {} };
    let world = nav
        .route
        .number("world")
        .unwrap_or(4u64)
        .clamp(u64::from(scenario.min_world_size).max(2), MAX_WORLD);
    let repaired = nav.route.get("repaired") == Some("true");
    let options =
        ScenarioOptions { world_size: world as u32, repaired, ..ScenarioOptions::default() };
    let plan = use_memo((props.id, options.world_size, repaired), |_| {
        scenario.plan(&options).map(Rc::new).map_err(|error| error.to_string())
    });
    let simulated = use_simulation(&plan, Topology::default());
    let playback = use_playback();
    let opened = simulated.ready().cloned();
    let session = opened.as_ref().map(|opened| opened.session);
    let base = Route::below(View::Hangs, props.id).with("world", world).with("repaired", repaired);
    // Where everybody stands for good is what people come for.
    use_addressed_moment(&playback, Addressed::of(opened.as_ref()), base.clone(), |last| last);
    let view = use_view(session, playback.moment);
    let moments = opened.as_ref().map(|opened| opened.moments.clone()).unwrap_or_default();
    let time_ps = playback.time_ps(&moments);
    let culprits = opened.as_deref().map(culprits).unwrap_or_default();
    let seek = {
        let (dispatch, moments) = (playback.dispatcher(), moments.clone());
        Callback::from(move |time_ps: u64| {
            dispatch
                .dispatch(Act::To(moments.partition_point(|at| *at <= time_ps).saturating_sub(1)));
        })
    };
    let choose_world = {
        let (nav, base) = (nav.clone(), base.clone());
        Callback::from(move |world: u64| nav.replace(base.clone().with("world", world)))
    };
    let choose_text = {
        let (nav, base) = (nav.clone(), base.clone());
        Callback::from(move |which: String| {
            nav.replace(base.clone().with("repaired", which == "repaired"))
        })
    };
    let source = Source { path: "train.py".to_owned(), text: scenario.text(repaired).to_owned() };
    let texts = vec![
        Choice { value: "faulty".to_owned(), label: "as it hangs".to_owned() },
        Choice { value: "repaired".to_owned(), label: "repaired".to_owned() },
    ];
    let sentence = match (&simulated, &view) {
        (Simulated::Failed { why }, _) => why.clone(),
        (_, Some(view)) => explain::job(view),
        (_, None) => "Simulating…".to_owned(),
    };
    html! {
        <div class="hang-grid" data-ready={session.is_some().to_string()}>
            <header class="story">
                <p class="crumbs"><a href={Route::to(View::Hangs).to_hash()} data-test="back-to-gallery">{ "← All hangs" }</a></p>
                <h1>{ scenario.title }</h1>
                <p>{ if repaired { scenario.repair } else { scenario.story } }</p>
                <div class="row">
                    <NumberField name="world" label="World size" value={world} min={u64::from(scenario.min_world_size).max(2)} max={MAX_WORLD} on_choose={choose_world} />
                    <SelectField name="text" label="Program" value={if repaired { "repaired" } else { "faulty" }} choices={texts} on_choose={choose_text} />
                </div>
            </header>
            <section class="panel program" aria-label="Program">
                <SourceView {source} view={view.clone()} culprits={culprits.clone()} />
                <ul class="standing" data-test="standing">{ standing(view.as_deref(), opened.as_deref().map_or(&[], |opened| &opened.header.groups)) }</ul>
            </section>
            <p class="sentence" aria-live="polite" data-test="sentence">{ sentence }</p>
            if let Some(opened) = &opened {
                <section class="panel verdicts">
                    <Findings report={opened.report.clone()} />
                    <h3>{ "Who waits for whom, at the end" }</h3>
                    <WaitGraph waits={opened.waits.clone()} world_size={opened.header.world_size} />
                    if let Ok(plan) = &*plan {
                        <RealRun plan={plan.clone()} simulated={session} hangs={!repaired} />
                        <Exports {session} name={props.id} plan={plan.clone()} />
                    }
                </section>
                <section class="panel lanes" aria-label="Timeline">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={opened.end_ps}
                              fit={opened.fit} playhead_ps={time_ps} on_seek={seek} {culprits} />
                </section>
                <Transport {playback} {time_ps} />
            }
        </div>
    }
}

fn culprits(opened: &Opened) -> Vec<u32> {
    opened.report.culprits().iter().map(|rank| rank.0).collect()
}

/// Worlds above this are told by call, without each rank's step in it.
const MAX_TOLD_APART: usize = 8;

/// What every rank does, ranks that do the same together.
fn standing(view: Option<&lockstep_sim::View>, groups: &[ProcessGroup]) -> Html {
    let mut lines: Vec<(String, Vec<u32>)> = Vec::new();
    for (rank, state) in view.iter().flat_map(|view| view.ranks.iter().enumerate()) {
        let call = state.calls.iter().max_by_key(|call| call.work);
        let does = match (state.doing, call) {
            (Doing::Finished, _) => "finished".to_owned(),
            (Doing::Busy, _) => "busy or idle in its own code".to_owned(),
            (Doing::Waiting { work }, Some(call)) if call.work == work => {
                let group = groups.get(call.group.index()).map_or("", ProcessGroup::label);
                let told = format!("in {} #{} of {group}", call.op, call.seq);
                match view.is_some_and(|view| view.ranks.len() <= MAX_TOLD_APART) {
                    true => told + &step_of(call),
                    false => told,
                }
            }
            (Doing::Waiting { .. }, _) => "waits in a send or recv".to_owned(),
            (Doing::Synchronizing, _) => "waits for its streams".to_owned(),
            (Doing::Running | Doing::Draining, _) => "goes on".to_owned(),
        };
        match lines.iter_mut().find(|(words, _)| *words == does) {
            Some((_, ranks)) => ranks.push(rank as u32),
            None => lines.push((does, vec![rank as u32])),
        }
    }
    html! {
        { for lines.into_iter().map(|(does, ranks)| {
            let who = if ranks.len() == 1 { "rank" } else { "ranks" };
            html! { <li><b>{ format!("{who} {}", explain::ranks(ranks)) }</b>{ " " }{ does }</li> }
        }) }
    }
}

/// `, step 2 of 6, next from rank 3`.
fn step_of(call: &CallView) -> String {
    let step = format!(", step {} of {}", (call.step + 1).min(call.steps), call.steps);
    match explain::ranks(call.waits_for.iter().map(|rank| rank.0)) {
        nobody if nobody.is_empty() => step,
        whom => format!("{step}, next from rank {whom}"),
    }
}
