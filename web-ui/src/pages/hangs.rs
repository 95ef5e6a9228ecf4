//! Hangs: a gallery of jobs that do not end, and each of them to be stepped through.

use super::exports::Exports;
use super::simulation::{Addressed, Simulated, use_addressed_moment, use_simulation, use_view};
use super::standing::standing;
use crate::app::use_shared;
use crate::explain;
use crate::playback::{Act, use_playback};
use crate::protocol::Opened;
use crate::route::{Route, View};
use crate::ui::{
    Choice, Findings, NumberField, RealRun, SelectField, SourceView, Timeline, Transport, WaitGraph,
};
use lockstep_core::plan::Source;
use lockstep_core::scenario::{self, ScenarioOptions};
use lockstep_sim::Topology;
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
    let texts = vec![Choice::new("faulty", "as it hangs"), Choice::new("repaired", "repaired")];
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
                    if let Ok(plan) = &*plan {
                        <RealRun plan={plan.clone()} simulated={session} hangs={!repaired} />
                    }
                    <h3>{ "Who waits for whom, at the end" }</h3>
                    <WaitGraph waits={opened.waits.clone()} world_size={opened.header.world_size} />
                    if let Ok(plan) = &*plan {
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
