//! The debugger of programs: the text with a cursor for each rank, what the ranks do, who waits
//! for whom, places to stop at, one rank in detail, and what the diagnosis makes of it.

mod address;
pub(super) mod code;
mod detail;
mod editor;
mod explore;
mod listing;
mod output;
mod question;
mod rank;
mod running;
mod search;
mod stops;
mod story;
mod waits;
mod wrong;

pub(super) use editor::text_of;

use super::exports::Exports;
use super::machine_note::machine_note;
use super::simulation::Base;
use super::standing::standing;
use super::stepping::use_ordered_stepping;
use super::workbench::{Along, Drawn, Next, notes_list, use_bench};
use crate::app::{Shared, use_shared};
use crate::dom::{self, Listener};
use crate::route::Route;
use crate::ui::prose;
use crate::ui::{Findings, RealRun, Transport, keys, use_asking};
use address::{Addressed, BESIDE, order_setter, rank_setter, stops_setter};
use detail::Detail;
use explore::Explore;
use listing::Listing;
use lockstep_core::group::ProcessGroup;
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{Direction, Stop};
use lockstep_scenarios::program::Options;
use lockstep_web_protocol::{Chapter, Machine, Opened};
use output::output;
use question::Question;
use rank::{OneRank, one_rank};
use running::use_running;
use search::use_search;
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
    /// True if it begins at its end, where everybody stands for good.
    #[prop_or_default]
    pub(super) from_end: bool,
    /// Asks which rank is to blame, and shows the answer when this is called.
    #[prop_or_default]
    pub(super) on_answer: Option<Callback<()>>,
    /// True if the program is written here, so that its text is open at first.
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
    let Shared { nav, .. } = use_shared();
    let running = use_running(PATH, &props.text, &props.options, props.machine);
    let Addressed { stops: marks, order, rank, wrong: wrong_address } = Addressed::read(&nav.route);
    let (plan, machine, world_size) = (&running.plan, running.machine, running.world_size());
    let rank = rank.min(world_size.saturating_sub(1));
    let base = Base { of: props.base.clone(), kept: BESIDE };
    let begin: fn(usize) -> usize = if props.from_end { |last| last } else { |_| 0 };
    let stepping = use_ordered_stepping(plan, machine, order.clone(), base, begin);
    let (opened, session) = (stepping.opened().cloned(), stepping.session());
    let (view, time_ps) = (stepping.view.clone(), stepping.time_ps);
    let groups = use_memo(opened.clone(), |opened| {
        let groups = opened.as_ref().map(|opened| opened.header.groups.clone());
        Rc::<[ProcessGroup]>::from(groups.unwrap_or_default())
    });
    let asking = use_asking() || props.on_answer.is_some();
    let search = use_search(session, &stepping.playback, (*groups).clone(), asking);
    let (select, set_stops) = (rank_setter(&nav), stops_setter(&nav));
    use_debug_keys(search.clone(), marks.clone(), rank);
    let blamed = opened.as_deref().map(culprits).unwrap_or_default();
    let on_place = {
        let (seek, select) = (stepping.seek.clone(), select.clone());
        Callback::from(move |(rank, time_ps): (u32, Option<u64>)| {
            time_ps.iter().for_each(|time_ps| seek.emit(*time_ps));
            select.emit(rank);
        })
    };
    let along = Along { asking, next: Next::SameProgram, on_place: Some(on_place) };
    let bench = use_bench(opened.as_ref(), &along);
    let culprits = if asking { Vec::new() } else { blamed.clone() };
    let appendix = bench.selection.report_appendix();
    let writing = props.writing && nav.route.get("code").is_none();
    html! {
        <div class="debug-grid" data-ready={session.is_some().to_string()} data-test="debugger" data-state={running.state(&stepping)}>
            <header class="story">{ props.children.clone() }
                if let Some(opened) = &opened { { machine_note(opened) } }
            </header>
            <Listing text={props.text.clone()} plan={plan.clone()} view={view.clone()} wrong={running.wrong().cloned()}
                     culprits={culprits.clone()} stops={marks.clone()} on_stops={set_stops.clone()} search={search.clone()}
                     {rank} on_rank={select.clone()} {writing} on_text={props.on_text.clone()} />
            <section class="panel lanes" aria-label="Timeline">
                if let Some(opened) = &opened {
                    { bench.lanes(opened, Drawn {
                        culprits: culprits.clone(),
                        playhead_ps: Some(time_ps),
                        on_seek: Some(stepping.seek.clone()),
                        future_hidden: asking,
                        plain: nav.is_inside(),
                        ..Drawn::default()
                    }) }
                } else {
                    <p class="muted">{ "The lanes of the ranks appear when the program has run." }</p>
                }
            </section>
            <p class="sentence" aria-live="polite" data-test="sentence">{ prose(&running.sentence(&stepping)) }</p>
            { for wrong_address.into_iter().map(|why| html! {
                <p class="bad unmet-stop" role="alert" data-test="wrong-stop">{ why }</p>
            }) }
            <section class="panel now" aria-label="At this moment">
                if let (Some(opened), Some(view), Ok(plan)) = (&opened, &view, &**plan) {
                    // One element, with the question or without: else yew inserts it behind its siblings.
                    <div>
                        if let Some(on_answer) = props.on_answer.clone() {
                            <Question {world_size} culprits={blamed} {on_answer} />
                        }
                    </div>
                    if !props.chapters.is_empty() {
                        <Story chapters={props.chapters.clone()} session={opened.session} playback={stepping.playback.clone()} />
                    }
                    { one_rank(&OneRank { view: view.clone(), plan: plan.clone(), session: opened.session, rank, on_rank: select.clone() }) }
                    <h2>{ "Every rank" }</h2>
                    <ul class="standing" data-test="standing">{ standing(Some(view), &opened.header.groups) }</ul>
                    <h2>{ "Who waits for whom, now" }</h2>
                    <WaitsAt session={opened.session} moment={stepping.playback.moment} world_size={opened.header.world_size} ranks_per_node={plan.ranks_per_node} culprits={culprits} />
                }
            </section>
            <section class="panel verdicts" aria-label="What is wrong">
                if let Some(compiled) = &running.compiled { { output(compiled, view.as_deref()) } }
                if let (Some(opened), Ok(plan)) = (&opened, &**plan) {
                    // One element, with findings or without: else yew inserts them behind their siblings.
                    <div>
                        if !asking { <Findings report={opened.report.clone()} on_go={bench.selection.go.clone()} {appendix} /> }
                    </div>
                    { notes_list(&bench.selection.notes, &bench.selection.go, &bench.selection.drop_note) }
                    <Detail plan={plan.clone()} />
                    <Explore plan={plan.clone()} {machine} {order} on_order={order_setter(&nav)} />
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
