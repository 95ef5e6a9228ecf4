//! The program's text: read with a cursor for each rank and places to stop at, or edited.

use super::editor::Editor;
use super::search::Search;
use super::wrong::wrong_with;
use super::{PATH, stops};
use crate::dom;
use crate::sets::set;
use crate::ui::{LineTools, SourceView};
use lockstep_core::plan::{Plan, Source};
use lockstep_core::stop::{Direction, Stop};
use lockstep_scenarios::program::ProgramError;
use lockstep_sim::View;
use std::collections::BTreeSet;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Listing`].
#[derive(Properties, PartialEq)]
pub(super) struct ListingProps {
    pub(super) text: Rc<str>,
    pub(super) plan: Rc<Result<Rc<Plan>, String>>,
    pub(super) view: Option<Rc<View>>,
    /// The error of the text, if it is no program.
    pub(super) wrong: Option<Rc<ProgramError>>,
    pub(super) culprits: Vec<u32>,
    pub(super) stops: Vec<Stop>,
    pub(super) on_stops: Callback<Vec<Stop>>,
    pub(super) search: Search,
    /// The rank that is looked at.
    pub(super) rank: u32,
    pub(super) on_rank: Callback<u32>,
    /// True if the text is edited at first.
    pub(super) writing: bool,
    /// Hears of another text.
    pub(super) on_text: Callback<String>,
}

/// The text, or its editor.
#[component(Listing)]
pub(super) fn listing(props: &ListingProps) -> Html {
    let editing = use_state(|| props.writing);
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
    use_focus_of(*editing);
    let lines = use_memo(props.plan.clone(), |plan| {
        plan.as_ref().as_ref().map(|plan| lines_of(plan)).unwrap_or_default()
    });
    let source = Source { path: PATH.to_owned(), text: props.text.to_string() };
    html! {
        <section class="panel listing" aria-label="Program">
            if *editing {
                <Editor text={props.text.clone()} path={PATH} wrong={props.wrong.clone()} on_run={run} on_close={close} />
            } else {
                <div class="row tools">
                    <button onclick={edit} data-test="edit">{ "Edit" }</button>
                </div>
                if let Some(error) = &props.wrong { { wrong_with(error) } }
                <SourceView {source} view={props.view.clone()} culprits={props.culprits.clone()} tools={tools(props, lines)} />
            }
        </section>
    }
}

/// The button that was pressed goes away with the other of listing and editor: the focus goes on into the
/// text, and back to the button that opens it.
#[hook]
fn use_focus_of(editing: bool) {
    let before = use_mut_ref(|| editing);
    use_effect_with(editing, move |editing| {
        if before.replace(*editing) != *editing {
            let there = if *editing { "program-text" } else { "edit" };
            dom::focus(&format!("main:not([hidden]) [data-test={there}]"));
        }
    });
}

/// The tools of a line.
fn tools(props: &ListingProps, reached: Rc<BTreeSet<u32>>) -> LineTools {
    let on_stop = {
        let (on_stops, stops) = (props.on_stops.clone(), props.stops.clone());
        Callback::from(move |line| {
            on_stops.emit(stops::toggled(&stops, Stop::Line { line, rank: None }));
        })
    };
    let on_run_to = {
        let search = props.search.clone();
        Callback::from(move |line| {
            search.go(vec![Stop::Line { line, rank: None }], Direction::Forward);
        })
    };
    LineTools {
        stops: props.stops.iter().filter_map(whole_line).collect(),
        reached,
        wrong: props.wrong.as_ref().map_or(0, |error| error.line),
        on_stop,
        on_run_to,
        on_rank: props.on_rank.clone(),
        selected: Some(props.rank),
    }
}

/// The line of a stop that any rank meets.
fn whole_line(stop: &Stop) -> Option<u32> {
    match stop {
        Stop::Line { line, rank: None } => Some(*line),
        _ => None,
    }
}

/// The lines of the program that some rank's operations stand on.
fn lines_of(plan: &Plan) -> BTreeSet<u32> {
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    set(ops.filter_map(|op| op.at).filter(|at| at.source == 0).map(|at| at.line))
}
