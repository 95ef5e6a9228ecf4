//! Hangs: a gallery of jobs that do not end, and each of them to be stepped through.

use super::asked::{Asked, Unmet, UnmetList};
use super::exports::Exports;
use super::simulation::Simulated;
use super::standing::standing;
use super::stepping::use_stepping;
use super::topology_choice::{self, Links, TopologyFields};
use crate::app::use_shared;
use crate::explain;
use crate::protocol::Opened;
use crate::route::{Route, View};
use crate::ui::{
    Choice, Findings, NumberField, RealRun, SelectField, SourceView, Timeline, Transport, WaitGraph,
};
use lockstep_core::c10d::detail_of;
use lockstep_core::plan::{Plan, Source};
use lockstep_core::scenario::{self, Scenario, ScenarioOptions, nearest};
use lockstep_sim::Topology;
use std::rc::Rc;
use yew::prelude::*;

/// The largest world that a scenario is shown with.
const MAX_WORLD: u64 = 32;

/// The gallery, or the scenario that the address names.
#[component(Hangs)]
pub(crate) fn hangs() -> Html {
    let nav = use_shared().nav;
    let Some(name) = nav.route.name() else { return html! { <Gallery /> } };
    let Some(scenario) = scenario::find(name) else {
        return html! {
            <><p class="banner bad" role="alert">{ unknown(name) }</p><Gallery /></>
        };
    };
    match HangChoice::read(&nav.route, scenario) {
        (choice, unmet) if unmet.is_empty() => html! { <OneHang key={scenario.id} {choice} /> },
        (_, unmet) => html! { <UnmetList {unmet} /> },
    }
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, scenario::all().iter().map(|scenario| scenario.id), 1).first() {
        Some(near) => format!("There is no scenario {shown:?}; {near} is like it. These are all:"),
        None => format!("There is no scenario {shown:?}. These are all:"),
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

/// A scenario, as it is chosen.
#[derive(Clone, Copy, Debug)]
struct HangChoice {
    scenario: &'static Scenario,
    world_size: u32,
    repaired: bool,
    topology: Topology,
}

impl PartialEq for HangChoice {
    fn eq(&self, other: &HangChoice) -> bool {
        (self.scenario.id, self.world_size, self.repaired, self.topology)
            == (other.scenario.id, other.world_size, other.repaired, other.topology)
    }
}

impl HangChoice {
    /// The choice in an address, and what it asks for that cannot be.
    fn read(route: &Route, scenario: &'static Scenario) -> (HangChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let least = smallest(scenario);
        let why = format!("This one is shown with {least} to {MAX_WORLD} ranks.");
        let world_size = asked.number("world", (least, MAX_WORLD), least.max(4), &why) as u32;
        let topology = topology_choice::asked(&mut asked);
        let repaired = route.get("repaired") == Some("true");
        (HangChoice { scenario, world_size, repaired, topology }, asked.unmet)
    }

    /// The address of the choice.
    fn route(&self) -> Route {
        topology_choice::write(Route::below(View::Hangs, self.scenario.id), self.topology)
            .with("world", self.world_size)
            .with("repaired", self.repaired)
    }

    /// The plan, or why there is none.
    fn plan(&self) -> Result<Plan, String> {
        let HangChoice { world_size, repaired, .. } = *self;
        let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
        let plan = self.scenario.plan(&options).map_err(|error| error.to_string())?;
        Ok(Plan { ranks_per_node: self.topology.ranks_per_node(), ..plan })
    }
}

/// The smallest world in which somebody can wait for somebody.
fn smallest(scenario: &Scenario) -> u64 {
    u64::from(scenario.min_world_size).max(2)
}

#[derive(Properties, PartialEq)]
struct OneHangProps {
    choice: HangChoice,
}

/// One scenario, stepped through.
#[component(OneHang)]
fn one_hang(props: &OneHangProps) -> Html {
    let nav = use_shared().nav;
    let HangChoice { scenario, world_size, repaired, topology } = props.choice;
    let base = props.choice.route();
    let plan = use_memo(props.choice, |choice| choice.plan().map(Rc::new));
    // Where everybody stands for good is what people come for.
    let stepping = use_stepping(&plan, topology, base.clone(), |last| last);
    let (opened, session) = (stepping.opened().cloned(), stepping.session());
    let (view, time_ps) = (stepping.view.clone(), stepping.time_ps);
    let culprits = opened.as_deref().map(culprits).unwrap_or_default();
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
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    let source = Source { path: "train.py".to_owned(), text: scenario.text(repaired).to_owned() };
    let texts = vec![Choice::new("faulty", "as it hangs"), Choice::new("repaired", "repaired")];
    let sentence = match (&stepping.simulated, &view) {
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
                    <NumberField name="world" label="World size" value={u64::from(world_size)} min={smallest(scenario)} max={MAX_WORLD} on_choose={choose_world} />
                    <SelectField name="text" label="Program" value={if repaired { "repaired" } else { "faulty" }} choices={texts} on_choose={choose_text} />
                    <TopologyFields {topology} route={base.clone()} {world_size} links={Links::Absent} on_route={go} />
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
                    <WaitGraph waits={opened.waits.clone()} world_size={opened.header.world_size} ranks_per_node={topology.ranks_per_node()} />
                    { detail(&plan) }
                    if let Ok(plan) = &*plan {
                        <Exports {session} name={scenario.id} plan={plan.clone()} />
                    }
                </section>
                <section class="panel lanes" aria-label="Timeline">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={opened.end_ps}
                              fit={opened.fit} playhead_ps={time_ps} on_seek={stepping.seek.clone()} {culprits} />
                </section>
                <Transport playback={stepping.playback.clone()} {time_ps} />
            }
        </div>
    }
}

/// What the ranks raise under `TORCH_DISTRIBUTED_DEBUG=DETAIL`.
fn detail(plan: &Result<Rc<Plan>, String>) -> Html {
    let Ok(plan) = plan else { return html! {} };
    let raised = detail_of(plan);
    let words = match &raised {
        None => {
            "It compares collectives, and says nothing of sends and receives: this hangs with it, too."
        }
        Some(raised) if raised.is_empty() => "No rank raises.",
        Some(_) => {
            "PyTorch compares the ranks' calls before it makes them, and they raise here instead of hanging:"
        }
    };
    html! {
        <details class="detail" data-test="debug-detail" data-raised={raised.as_ref().map(|raised| raised.len().to_string())}>
            <summary>{ "With TORCH_DISTRIBUTED_DEBUG=DETAIL" }</summary>
            <p class="muted">{ words }</p>
            <ul>{ for raised.into_iter().flatten().map(|one| {
                let line = one.at.map(|at| format!(" (train.py:{})", at.line)).unwrap_or_default();
                html! { <li><b>{ format!("rank {}{line}", one.rank) }</b><code>{ one.error.to_string() }</code></li> }
            }) }</ul>
        </details>
    }
}

fn culprits(opened: &Opened) -> Vec<u32> {
    opened.report.culprits().iter().map(|rank| rank.0).collect()
}
