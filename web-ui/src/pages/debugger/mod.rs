//! The debugger of programs: the text with a cursor for each rank, what the ranks do, who waits
//! for whom, places to stop at, one rank in detail, and what the diagnosis makes of it.

pub(super) mod code;
mod detail;
mod editor;
mod explore;
mod output;
mod rank;
mod search;
mod stops;
mod story;
mod waits;

pub(super) use editor::text_of;

use super::exports::Exports;
use super::machine_note::MachineNote;
use super::simulation::Simulated;
use super::standing::standing;
use super::stepping::use_ordered_stepping;
use crate::app::use_shared;
use crate::dom::{self, Listener};
use crate::explain;
use crate::programs::{Compiling, use_compiled};
use crate::route::Route;
use crate::ui::prose;
use crate::ui::{Findings, LineTools, RealRun, SourceView, Timeline, Transport, keys, use_asking};
use detail::Detail;
use editor::Editor;
use explore::Explore;
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Plan, Source};
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{Direction, Stop};
use lockstep_scenarios::program::{Compiled, Options, ProgramError};
use lockstep_sim::{Order, Topology};
use lockstep_web_protocol::{Chapter, Machine, Opened};
use output::Output;
use rank::OneRank;
use search::use_search;
use std::collections::BTreeSet;
use std::rc::Rc;
use stops::Stops;
use story::Story;
use waits::WaitsAt;
use web_sys::KeyboardEvent;
use yew::prelude::*;

/// The name that a program's lines are shown with.
const PATH: &str = "train.py";

/// Properties of [`Debugger`].
#[derive(Properties, PartialEq)]
pub(super) struct DebuggerProps {
    pub(super) text: Rc<str>,
    /// The options that the address gives instead of the program.
    pub(super) options: Options,
    pub(super) machine: Machine,
    /// The address of what is debugged, without moment, rank and stops.
    pub(super) base: Route,
    /// For the files that are saved.
    pub(super) name: String,
    /// The story of the program, step by step.
    #[prop_or_default]
    pub(super) chapters: Rc<Vec<Chapter>>,
    /// Whether it begins at its end, where everybody stands for good.
    #[prop_or_default]
    pub(super) from_end: bool,
    /// Whether the program is written here, so that its text is open at first.
    #[prop_or_default]
    pub(super) writing: bool,
    /// Hears of another text.
    pub(super) on_text: Callback<String>,
    /// The head: title, story, choices.
    pub(super) children: Children,
}

/// A program, executed, simulated and stepped through.
#[component(Debugger)]
pub(super) fn debugger(props: &DebuggerProps) -> Html {
    let nav = use_shared().nav;
    let compiling = use_compiled(PATH, props.text.clone(), props.options.clone());
    // What runs stays in sight while the next text is executed.
    let known = use_state(|| None::<Rc<Compiled>>);
    {
        let known = known.setter();
        use_effect_with(compiling.clone(), move |compiling| match compiling {
            Compiling::Done(compiled) => known.set(Some(compiled.clone())),
            Compiling::Wrong(_) | Compiling::Failed(_) => known.set(None),
            Compiling::Running => {}
        });
    }
    let compiled = (*known).clone();
    // Where the address says nothing of links, the program may.
    let machine = match &compiled {
        Some(compiled) if props.machine == Machine::default() => {
            Topology::of_ranks_per_node(compiled.plan.ranks_per_node).into()
        }
        _ => props.machine,
    };
    let plan = use_memo((compiled.clone(), machine), |(compiled, machine)| match compiled {
        Some(compiled) => Ok(Rc::new(placed(&compiled.plan, *machine))),
        None => Err(String::new()),
    });
    let (marks, wrong_stops) = stops::read(nav.route.get("stop").unwrap_or_default());
    let (order, wrong_order) = explore::read(nav.route.get("order").unwrap_or_default());
    // As they were written, so that what in them is wrong stays where it can be read.
    let base = ["order", "stop", "rank"].into_iter().fold(props.base.clone(), |route, name| {
        match nav.route.get(name) {
            Some(value) if !value.is_empty() => route.with(name, value),
            _ => route,
        }
    });
    let begin: fn(usize) -> usize = if props.from_end { |last| last } else { |_| 0 };
    let stepping = use_ordered_stepping(&plan, machine, order.clone(), base, begin);
    let (opened, session) = (stepping.opened().cloned(), stepping.session());
    let (view, time_ps) = (stepping.view.clone(), stepping.time_ps);
    let groups = use_memo(opened.clone(), |opened| {
        let groups = opened.as_ref().map(|opened| opened.header.groups.clone());
        Rc::<[ProcessGroup]>::from(groups.unwrap_or_default())
    });
    let search = use_search(session, &stepping.playback, (*groups).clone());
    let world_size = plan.as_ref().as_ref().map_or(1, |plan| plan.world_size);
    let rank = nav.route.number::<u32>("rank").unwrap_or(0).min(world_size.saturating_sub(1));
    let select = {
        let nav = nav.clone();
        Callback::from(move |rank: u32| nav.replace(nav.route.clone().with("rank", rank)))
    };
    let set_stops = {
        let nav = nav.clone();
        Callback::from(move |stops: Vec<Stop>| {
            let route = nav.route.clone();
            nav.replace(match stops.is_empty() {
                true => route.without("stop"),
                false => route.with("stop", stops::write(&stops)),
            });
        })
    };
    let set_order = {
        let nav = nav.clone();
        Callback::from(move |order: Option<Order>| {
            let route = nav.route.clone().without("moment");
            nav.replace(match order {
                None => route.without("order"),
                Some(order) => route.with("order", explore::write(&order)),
            });
        })
    };
    use_debug_keys(search.clone(), marks.clone(), rank);
    let editing = use_state(|| props.writing && nav.route.get("code").is_none());
    let edit = {
        let editing = editing.setter();
        Callback::from(move |_: MouseEvent| editing.set(true))
    };
    let run = {
        let (editing, on_text) = (editing.setter(), props.on_text.clone());
        Callback::from(move |text: String| {
            editing.set(false);
            on_text.emit(text);
        })
    };
    let close = {
        let editing = editing.setter();
        Callback::from(move |()| editing.set(false))
    };
    let asking = use_asking();
    let culprits = opened.as_deref().filter(|_| !asking).map(culprits).unwrap_or_default();
    let source = Source { path: PATH.to_owned(), text: props.text.to_string() };
    let wrong = match &compiling {
        Compiling::Wrong(error) => Some(error.clone()),
        _ => None,
    };
    let lines = use_memo(plan.clone(), |plan| {
        plan.as_ref().as_ref().map(|plan| lines_of(plan)).unwrap_or_default()
    });
    let tools = LineTools {
        stops: marks.iter().filter_map(whole_line).collect(),
        reached: lines.clone(),
        wrong: wrong.as_ref().map_or(0, |error| error.line),
        on_stop: {
            let (set_stops, marks) = (set_stops.clone(), marks.clone());
            Callback::from(move |line| {
                set_stops.emit(stops::toggled(&marks, Stop::Line { line, rank: None }));
            })
        },
        on_run_to: {
            let search = search.clone();
            Callback::from(move |line| {
                search.go(vec![Stop::Line { line, rank: None }], Direction::Forward);
            })
        },
        on_rank: select.clone(),
        selected: Some(rank),
    };
    let sentence = match (&compiling, &stepping.simulated, &view) {
        (Compiling::Running, _, None) => {
            "Executing the program… (the first time, what executes it is fetched: 2 MB)".to_owned()
        }
        (Compiling::Wrong(_), ..) => {
            "The program is not a plan yet: see what is wrong with it.".to_owned()
        }
        (Compiling::Failed(why), ..) => why.to_string(),
        (_, Simulated::Failed { why }, _) => why.clone(),
        (_, _, Some(view)) => explain::job(view),
        (_, Simulated::Loading { progress }, None) => format!("Simulating… {progress}"),
        (_, Simulated::Ready(_), None) => "Simulating…".to_owned(),
    };
    let state = match (&compiling, session) {
        (Compiling::Wrong(_) | Compiling::Failed(_), _) => "wrong",
        (Compiling::Done(_), Some(_)) => "ready",
        _ => "busy",
    };
    html! {
        <div class="debug-grid" data-ready={session.is_some().to_string()} data-test="debugger" data-state={state}>
            <header class="story">{ props.children.clone() }
                if let Some(opened) = &opened { <MachineNote opened={opened.clone()} /> }
            </header>
            <section class="panel listing" aria-label="Program">
                if *editing {
                    <Editor text={props.text.clone()} path={PATH} wrong={wrong.clone()} on_run={run} on_close={close} />
                } else {
                    <div class="row tools">
                        <button onclick={edit} data-test="edit">{ "Edit" }</button>
                    </div>
                    if let Some(error) = &wrong { { wrong_with(error) } }
                    <SourceView {source} view={view.clone()} culprits={culprits.clone()} {tools} />
                }
            </section>
            <section class="panel lanes" aria-label="Timeline">
                if let Some(opened) = &opened {
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={opened.end_ps}
                              fit={opened.fit} playhead_ps={time_ps} on_seek={stepping.seek.clone()} culprits={culprits.clone()} />
                } else {
                    <p class="muted">{ "The lanes of the ranks appear when the program has run." }</p>
                }
            </section>
            <p class="sentence" aria-live="polite" data-test="sentence">{ prose(&sentence) }</p>
            { for [wrong_stops, wrong_order].into_iter().flatten().map(|why| html! {
                <p class="bad unmet-stop" role="alert" data-test="wrong-stop">{ why }</p>
            }) }
            <section class="panel now" aria-label="At this moment">
                if let (Some(opened), Some(view), Ok(plan)) = (&opened, &view, &*plan) {
                    if !props.chapters.is_empty() {
                        <Story chapters={props.chapters.clone()} session={opened.session} playback={stepping.playback.clone()} />
                    }
                    <OneRank view={view.clone()} plan={plan.clone()} session={opened.session} {rank} on_rank={select.clone()} />
                    <h2>{ "Every rank" }</h2>
                    <ul class="standing" data-test="standing">{ standing(Some(view), &opened.header.groups) }</ul>
                    <h2>{ "Who waits for whom, now" }</h2>
                    <WaitsAt session={opened.session} moment={stepping.playback.moment} world_size={opened.header.world_size} ranks_per_node={plan.ranks_per_node} />
                }
            </section>
            <section class="panel verdicts" aria-label="What is wrong">
                if let Some(compiled) = &compiled { <Output compiled={compiled.clone()} view={view.clone()} /> }
                if let (Some(opened), Ok(plan)) = (&opened, &*plan) {
                    if !asking { <Findings report={opened.report.clone()} /> }
                    <Detail plan={plan.clone()} />
                    <Explore plan={plan.clone()} {machine} {order} on_order={set_order} />
                    <RealRun plan={plan.clone()} simulated={session} hangs={!opened.report.findings.is_empty()} />
                    <Exports {session} name={props.name.clone()} plan={plan.clone()} />
                }
            </section>
            <div class="drive">
                if opened.is_some() {
                    <Stops stops={marks} groups={groups.to_vec()} {world_size} {rank} {search} on_stops={set_stops} />
                    <Transport playback={stepping.playback.clone()} {time_ps} />
                }
            </div>
        </div>
    }
}

/// The problem with a program.
fn wrong_with(error: &ProgramError) -> Html {
    let place = match (error.line, error.column) {
        (0, _) => String::new(),
        (line, 0) => format!("Line {line}: "),
        (line, column) => format!("Line {line}, column {column}: "),
    };
    html! {
        <div class="wrong" role="alert" data-test="program-wrong" data-line={error.line.to_string()} data-column={error.column.to_string()}>
            <p><b>{ place }</b>{ &error.message }</p>
            if let Some(help) = &error.help { <p class="muted">{ help }</p> }
        </div>
    }
}

/// The plan on nodes, if the address has any.
fn placed(plan: &Plan, machine: Machine) -> Plan {
    match machine.ranks_per_node() {
        0 => plan.clone(),
        ranks_per_node => Plan { ranks_per_node, ..plan.clone() },
    }
}

fn whole_line(stop: &Stop) -> Option<u32> {
    match stop {
        Stop::Line { line, rank: None } => Some(*line),
        _ => None,
    }
}

/// The lines of the program that some rank's operations stand on.
fn lines_of(plan: &Plan) -> BTreeSet<u32> {
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    ops.filter_map(|op| op.at).filter(|at| at.source == 0).map(|at| at.line).collect()
}

fn culprits(opened: &Opened) -> Vec<u32> {
    opened.report.culprits().iter().map(|rank| rank.0).collect()
}

/// C, N, P: on to the next stop, to the rank's next call, to the one before.
#[hook]
fn use_debug_keys(search: search::Search, stops: Vec<Stop>, rank: u32) {
    use_effect_with((search, stops, rank), |(search, stops, rank)| {
        let (search, stops, rank) = (search.clone(), stops.clone(), GlobalRank(*rank));
        let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
            if keys::typing(&event) || event.default_prevented() {
                return;
            }
            let (stops, direction) = match event.key().as_str() {
                "c" => (stops.clone(), Direction::Forward),
                "C" => (stops.clone(), Direction::Back),
                "n" => (vec![Stop::Rank(rank)], Direction::Forward),
                "p" => (vec![Stop::Rank(rank)], Direction::Back),
                _ => return,
            };
            event.prevent_default();
            search.go(stops, direction);
        });
        move || drop(heard)
    });
}
