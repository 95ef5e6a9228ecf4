//! The workbench: the timeline of a trace, its search, the call that is looked at, and the findings.
//!
//! Everything that names a rank or a call leads to it: findings, evidence, the wait graph, hits of
//! the search, members of a collective. They all say [`Go`](crate::ui::Go), which the worker turns into a call.

mod analysis;
mod as_program;
mod bench;
mod details;
mod find;
mod marks;
mod measured;
mod notes;
mod repair;
mod rows;
mod selection;
pub(in crate::pages) mod sources;
mod what_if;

use crate::explain;
use crate::pages::exports::Exports;
use crate::ui::dropped::Texts;
use crate::ui::prose;
use crate::ui::{Findings, WaitGraph, use_asking};
use analysis::WhereTimeWent;
pub(super) use bench::{Drawn, use_bench};
use lockstep_core::trace::{Origin, Outcome};
use lockstep_core::words::counted;
use lockstep_diagnosis::WaitGroup;
use lockstep_replay::can_be_repaired;
use lockstep_web_protocol::{LiveCount, Opened};
pub(super) use marks::KEPT;
pub(super) use notes::notes_list;
use repair::{Repair, Stage};
pub(super) use selection::{Along, Next};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Workbench`].
#[derive(Properties, PartialEq)]
pub(super) struct WorkbenchProps {
    pub(super) opened: Rc<Opened>,
    /// The job's own files, as far as they were dropped.
    #[prop_or_default]
    pub(super) texts: Texts,
    /// True if what is wrong is shown: what a job that still moves has not finished is no hang.
    #[prop_or(true)]
    pub(super) judged: bool,
    /// The trace that may take its place.
    #[prop_or_default]
    pub(super) next: Next,
    /// The size of a live trace, newer than `opened`.
    #[prop_or_default]
    pub(super) grown: Option<LiveCount>,
}

/// A trace that is open.
#[component(Workbench)]
pub(super) fn workbench(props: &WorkbenchProps) -> Html {
    let opened = &props.opened;
    let world_size = opened.header.world_size;
    let asking = use_asking() || !props.judged;
    let culprits = opened.report.culprits();
    let culprits: Vec<u32> = culprits.iter().filter(|_| !asking).map(|rank| rank.0).collect();
    let bench = use_bench(Some(opened), &Along { asking, next: props.next, on_place: None });
    let selection = &bench.selection;
    // A running job has no calls at first, and keeps its timeline.
    let no_calls = opened.calls == 0 && opened.last_ps == 0 && props.judged;
    let recorded = matches!(opened.header.origin, Origin::Recorded { .. });
    let first = opened.report.findings.first();
    let has_repair = opened.calls > 0 && first.is_some_and(|it| can_be_repaired(it.kind));
    let (repair, try_repair) = repair::use_repair(opened.session);
    let repaired = match &*repair {
        Stage::Tried(found, _, _) => Some(found),
        _ => None,
    };
    let drawn = Drawn {
        culprits,
        fit: repaired
            .map(|found| repair::stretch(opened, repair::common_ps(opened, &found.opened))),
        below: repaired.map(|found| repair::lanes(opened, found, bench.order.as_ref().as_ref())),
        grown: props.grown,
        ..Drawn::default()
    };
    let appendix = selection.report_appendix();
    html! {
        <div class={classes!("trace-grid", no_calls.then_some("no-calls"))} data-test="open-trace" data-world={world_size.to_string()} data-calls={opened.calls.to_string()}>
            <p class="sentence" data-test="trace-summary">{ summary(opened, recorded) }</p>
            if !no_calls {
            <section class="panel lanes" aria-label="Timeline">
                <ContextProvider<Texts> context={props.texts.clone()}>{ bench.lanes(opened, drawn) }</ContextProvider<Texts>>
            </section>
            }
            <section class="panel verdicts" aria-label="What is wrong">
                { not_used(&opened.problems) }
                if !props.judged { <p class="muted" data-test="not-judged">{ not_judged(props.grown.is_some()) }</p> }
                if !asking { <Findings report={opened.report.clone()} session={opened.session} on_go={Some(selection.go.clone()).filter(|_| !no_calls)} {appendix} /> }
                if !asking && recorded && has_repair { <Repair stage={(*repair).clone()} try_it={try_repair} /> }
                { notes_list(&selection.notes, &selection.go, &selection.drop_note) }
                if !no_calls {
                <h2 class="spaced">{ if props.judged { "Who waits for whom, at the end" } else { "Who waits for whom, in the newest calls" } }</h2>
                <WaitGraph waits={opened.waits.clone()} causes={causes(opened, props.judged)} {world_size} now={!props.judged} on_go={selection.go.clone()} />
                }
                if !asking && recorded && opened.calls > 0 { <as_program::AsProgram session={opened.session} /> }
                if !asking && opened.calls > 0 { <WhereTimeWent session={opened.session} {world_size} unfinished={opened.unfinished} on_go={selection.go.clone()} on_path={bench.draw_path()} /> }
                if opened.calls > 0 && props.grown.is_none() { <Exports session={Some(opened.session)} name={file_name(opened)} /> }
                if recorded { { sources::sources(&opened.report, &props.texts) } }
            </section>
        </div>
    }
}

/// The reason that nobody is blamed yet; the ranks of a run of ours are not watched for silence.
fn not_judged(is_run: bool) -> &'static str {
    match is_run {
        true => "Findings appear when the run has ended.",
        false => {
            "The job still makes calls. Findings appear when no rank has made a call for 10 s, or when the job has ended."
        }
    }
}

/// The waits by their cause; in a job that still moves nobody is to blame.
fn causes(opened: &Opened, judged: bool) -> Vec<WaitGroup> {
    let causes = opened.causes.iter().cloned();
    causes.map(|group| WaitGroup { culprits: group.culprits && judged, ..group }).collect()
}

/// The files that were not used, and why: no trouble of the job, so folded where there are many.
fn not_used(problems: &[String]) -> Html {
    const FEW: usize = 2;
    let line = |problem: &String| html! { <p class="note muted" data-test="file-problem">{ prose(problem) }</p> };
    let lines: Html = problems.iter().map(line).collect();
    if problems.len() <= FEW {
        return lines;
    }
    html! { <details><summary>{ format!("{} were not used, or not whole", counted(problems.len(), "file")) }</summary>{ lines }</details> }
}

/// The name of files that are saved of a trace, without an ending.
fn file_name(opened: &Opened) -> String {
    let plan = opened.header.plan.as_deref().map(|plan| plan.name.as_str());
    let name = plan.filter(|name| !name.is_empty()).unwrap_or("recording");
    name.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-', "-")
}

/// Describes the trace in a sentence or two.
fn summary(opened: &Opened, recorded: bool) -> String {
    let origin = match &opened.header.origin {
        Origin::Simulated { topology, .. } | Origin::SimulatedOnCluster { topology, .. } => {
            format!("Simulated, {topology}")
        }
        Origin::Run { backend, device } => format!("Run on backend {backend}, {device}"),
        Origin::Recorded { by, files } if files.is_empty() => format!("Recorded by {by}"),
        Origin::Recorded { by, files } => {
            format!("Recorded by {by}, {}", counted(files.len(), "file"))
        }
    };
    let ranks = counted(opened.header.world_size, "rank");
    let groups = counted(opened.header.groups.len(), "group");
    let calls = counted(opened.calls, "call");
    let time = explain::time(if recorded { opened.last_ps } else { opened.end_ps });
    // Logs and stacks hold no calls; a finding says how the job ended.
    if opened.calls == 0 {
        if opened.header.world_size == 0 {
            return format!("{origin}. It names no rank: is it of a job?");
        }
        return format!("{origin}. {ranks}, no calls.");
    }
    let end = opened.outcome.as_ref().filter(|outcome| **outcome != Outcome::Unknown);
    let end = end.map(|outcome| format!("The end: {}", explain::ending(outcome)));
    format!("{origin}. {ranks}, {groups}, {calls} over {time}. {}", end.unwrap_or_default())
}
