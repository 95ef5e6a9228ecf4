//! The workbench: the timeline of a trace, its search, the call that is looked at, and the findings.
//!
//! Everything that names a rank or a call leads to it: findings, evidence, the wait graph, hits of
//! the search, members of a collective. They all say [`Go`], which the worker turns into a call.

mod analysis;
mod as_program;
mod details;
mod find;
mod measured;
mod notes;
mod repair;
mod rows;
pub(in crate::pages) mod sources;
mod what_if;

use crate::app::use_shared;
use crate::explain;
use crate::pages::exports::Exports;
use crate::turns::use_turns;
use crate::ui::dropped::Texts;
use crate::ui::prose;
use crate::ui::{
    Findings, Go, Legend, Look, PathMark, SelectField, Step, Timeline, WaitGraph, going, use_asking,
};
use analysis::WhereTimeWent;
use details::Details;
use find::Find;
use lockstep_core::trace::{Origin, Outcome};
use lockstep_core::words::counted;
use lockstep_diagnosis::WaitGroup;
use lockstep_replay::can_be_repaired;
use lockstep_web_protocol::{
    CallDetails, CallId, CallMark, FoundCalls, Opened, Response, SessionId, SessionQuestion, Which,
};
use measured::{Marked, MeasuredArea};
use notes::{Note, Notes};
use repair::{Repair, Stage};
use sources::Sources;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use yew::prelude::*;

/// The parameter of the address that says which call is looked at: `10.57` is the call 57 of rank 10.
const CALL: &str = "call";

/// The parameter of the address with the query.
const QUERY: &str = "find";

/// The parameter of the address with the ranks that are kept at the top: `10.15`.
const PINS: &str = "pins";

/// The parameter of the address with the reader's notes.
const NOTES: &str = "notes";

/// The address parameter for the ranks that share a row.
const TOGETHER: &str = "together";

/// The address parameter for the stretch of time that is shown, in picoseconds: `41000.78000`.
const SHOWN: &str = "shown";

/// The parameters of the address that are kept with a recording's files.
pub(super) const KEPT: [&str; 6] = [CALL, QUERY, PINS, NOTES, TOGETHER, SHOWN];

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
}

/// A trace that is open.
#[component(Workbench)]
pub(super) fn workbench(props: &WorkbenchProps) -> Html {
    let opened = &props.opened;
    let world_size = opened.header.world_size;
    let asking = use_asking() || !props.judged;
    let culprits = opened.report.culprits();
    let culprits: Vec<u32> = culprits.iter().filter(|_| !asking).map(|rank| rank.0).collect();
    let selection = use_selection(opened, asking);
    let together = selection.together.clone();
    let marked = use_state(|| Marked::None);
    let path = use_state(Rc::<Vec<PathMark>>::default);
    let draw_path = {
        let path = path.setter();
        Callback::from(move |marks| path.set(marks))
    };
    let mark_area = {
        let marked = marked.setter();
        Callback::from(move |area| marked.set(Some(area)))
    };
    {
        let marked = marked.setter();
        use_effect_with(selection.mark.clone(), move |_| marked.set(None));
    }
    let unmark = {
        let marked = marked.setter();
        Callback::from(move |()| marked.set(None))
    };
    let found = use_state(|| None::<Rc<FoundCalls>>);
    let on_found = {
        let found = found.setter();
        Callback::from(move |hits| found.set(hits))
    };
    let order = {
        let pins: BTreeSet<u32> = (*selection.pins).clone();
        let deps = (opened.session, pins, together.clone());
        let opened = opened.clone();
        use_memo(deps, move |(_, pins, by)| rows::order(&opened.header, pins, by, &opened.waits))
    };
    // A running job has no calls at first, and keeps its timeline.
    let no_calls = opened.calls == 0 && opened.last_ps == 0 && props.judged;
    let recorded = matches!(opened.header.origin, Origin::Recorded { .. });
    let first = opened.report.findings.first();
    let has_repair = opened.calls > 0 && first.is_some_and(|it| can_be_repaired(it.kind));
    let (repair, try_repair) = repair::use_repair(opened.session);
    let repaired = match &*repair {
        Stage::Tried(found, _, _) => Some(found.clone()),
        _ => None,
    };
    let fit = match &repaired {
        Some(found) => repair::stretch(opened, repair::common_ps(opened, &found.opened)),
        None => opened.fit,
    };
    let appendix = AttrValue::from(Note::markdown(&selection.notes));
    let flags: Vec<_> =
        selection.notes.iter().map(|note| (note.place.rank, note.place.time_ps)).collect();
    html! {
        <div class={classes!("trace-grid", no_calls.then_some("no-calls"))} data-test="open-trace" data-world={world_size.to_string()} data-calls={opened.calls.to_string()}>
            <p class="sentence" data-test="trace-summary">{ summary(opened, recorded) }</p>
            if !no_calls {
            <section class="panel lanes" aria-label="Timeline">
                { tools(opened, &selection, on_found, &together) }
                <ContextProvider<Texts> context={props.texts.clone()}>
                    <Timeline session={opened.session} {world_size} lanes={opened.lanes} end_ps={opened.end_ps} {fit} begins={selection.begins} on_range={selection.on_range.clone()}
                              {culprits} order={(*order).clone()} selected={selection.mark.clone()} found={(*found).clone()} look={(*selection.look).clone()}
                              area={marked.as_ref().map(|(area, _)| area.clone())} on_area={mark_area} path={(*path).clone()} {flags}
                              on_select={selection.select.clone()} on_step={selection.step.clone()} compared={repaired.is_some()} />
                    if let Some(found) = &repaired { { repair::lanes(opened, found, order.as_ref().as_ref()) } }
                    <Legend kinds={opened.kinds.clone()} unfinished={opened.unfinished} />
                    // One pane at a time, or no room is left for the timeline.
                    if let Some((area, _)) = marked.as_ref().filter(|(_, done)| *done) {
                        <MeasuredArea session={opened.session} area={area.clone()} on_note={selection.note.clone()} on_close={unmark} />
                    } else if let Some(details) = &selection.details {
                        <Details details={details.clone()} pinned={selection.pins.contains(&details.mark.id.rank)} notes={Rc::new((*selection.notes).clone())} on_call={selection.jump.clone()}
                                 on_go={selection.go.clone()} on_pin={selection.pin.clone()} on_note={selection.note.clone()} on_close={selection.close.clone()} />
                    }
                </ContextProvider<Texts>>
            </section>
            }
            <section class="panel verdicts" aria-label="What is wrong">
                { not_used(&opened.problems) }
                if !props.judged { <p class="muted" data-test="not-judged">{ "The job moves: what is wrong is said when no rank has made a call for 10 s, or when it has ended." }</p> }
                if !asking { <Findings report={opened.report.clone()} on_go={Some(selection.go.clone()).filter(|_| !no_calls)} {appendix} /> }
                if !asking && recorded && has_repair { <Repair stage={(*repair).clone()} try_it={try_repair} /> }
                <Notes notes={(*selection.notes).clone()} on_go={selection.go.clone()} on_drop={selection.drop_note.clone()} />
                if !no_calls {
                <h2 class="spaced">{ if props.judged { "Who waits for whom, at the end" } else { "Who waits for whom, in the newest calls" } }</h2>
                <WaitGraph waits={opened.waits.clone()} causes={causes(opened, props.judged)} {world_size} now={!props.judged} on_go={selection.go.clone()} />
                }
                if !asking && recorded && opened.calls > 0 { <as_program::AsProgram session={opened.session} /> }
                if !asking && opened.calls > 0 { <WhereTimeWent session={opened.session} {world_size} unfinished={opened.unfinished} on_go={selection.go.clone()} on_path={draw_path} /> }
                if opened.calls > 0 { <Exports session={Some(opened.session)} name={file_name(opened)} /> }
                if recorded { <Sources report={opened.report.clone()} texts={props.texts.clone()} /> }
            </section>
        </div>
    }
}

/// The waits by their cause; in a job that still moves nobody is to blame.
fn causes(opened: &Opened, judged: bool) -> Vec<WaitGroup> {
    let causes = opened.causes.iter().cloned();
    causes.map(|group| WaitGroup { culprits: group.culprits && judged, ..group }).collect()
}

/// The search, and the choice of a row.
fn tools(
    opened: &Opened,
    selection: &Selection,
    on_found: Callback<Option<Rc<FoundCalls>>>,
    together: &UseStateHandle<String>,
) -> Html {
    let choose = {
        let together = together.setter();
        Callback::from(move |by: String| together.set(by))
    };
    let choices = rows::choices(&opened.header, &opened.waits);
    html! {
        <div class="bench-tools">
            <Find session={opened.session} query={selection.query.clone()} on_call={selection.show.clone()} {on_found} />
            if choices.len() > 1 {
                <SelectField name="rows" label="A row is" value={(**together).clone()} {choices} on_choose={choose} />
            }
        </div>
    }
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
        Origin::Simulated { topology, .. } => format!("Simulated, {topology}"),
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

/// The selected call, and the callbacks that change it.
struct Selection {
    mark: Option<CallMark>,
    details: Option<Rc<CallDetails>>,
    look: UseStateHandle<Option<Look>>,
    /// Ranks that are kept at the top.
    pins: UseStateHandle<BTreeSet<u32>>,
    pin: Callback<u32>,
    notes: UseStateHandle<Vec<Note>>,
    note: Callback<Note>,
    drop_note: Callback<usize>,
    /// Selects a call that is in sight, or none.
    select: Callback<Option<CallId>>,
    /// Selects a call and brings it into sight.
    show: Callback<CallMark>,
    /// The same, and Back leads to the call before.
    jump: Callback<CallMark>,
    /// Looks for a call and jumps to it.
    go: Callback<Go>,
    step: Callback<Step>,
    close: Callback<()>,
    query: UseStateHandle<String>,
    /// The word for the ranks that share a row; see [`rows::choices`].
    together: UseStateHandle<String>,
    /// The stretch of time that the address shows.
    begins: Option<(u64, u64)>,
    on_range: Callback<Option<(u64, u64)>>,
}

/// A call as the address has it.
fn written(id: CallId) -> String {
    format!("{}.{}", id.rank, id.work)
}

fn read(text: &str) -> Option<CallId> {
    let (rank, work) = text.split_once('.')?;
    Some(CallId { rank: rank.parse().ok()?, work: work.parse().ok()? })
}

/// A stretch of time as the address has it.
fn read_stretch(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('.')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

/// Pinned ranks as the address has them.
fn written_pins(pins: &BTreeSet<u32>) -> String {
    pins.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

fn read_pins(text: &str) -> BTreeSet<u32> {
    text.split('.').filter_map(|rank| rank.parse().ok()).collect()
}

#[hook]
fn use_selection(opened: &Rc<Opened>, asking: bool) -> Selection {
    let shared = use_shared();
    let (client, nav, session) = (shared.client, shared.nav, opened.session);
    let from_address = nav.route.get(CALL).and_then(read);
    let selected = use_state(|| from_address);
    let query = {
        let asked = nav.route.get(QUERY).unwrap_or_default().to_owned();
        use_state(move || asked)
    };
    let together = {
        let asked = nav.route.get(TOGETHER).unwrap_or_default().to_owned();
        use_state(move || asked)
    };
    let shown = {
        let asked = nav.route.get(SHOWN).and_then(read_stretch);
        use_state(move || asked)
    };
    let culprits = opened.report.culprits();
    let culprits: BTreeSet<u32> = culprits.iter().filter(|_| !asking).map(|rank| rank.0).collect();
    let first = first_pins(opened.header.world_size, &culprits);
    let pins = {
        let asked = nav.route.get(PINS).map(read_pins);
        let first = first.clone();
        use_state(move || asked.unwrap_or(first))
    };
    let notes = {
        let asked = nav.route.get(NOTES).map(Note::read).unwrap_or_default();
        use_state(move || asked)
    };
    let (look, bring) = use_look();
    {
        // Another trace in the same place has other calls.
        let (selected, pins, before) = (selected.clone(), pins.clone(), use_mut_ref(|| session));
        let (notes, first, together) = (notes.clone(), first.clone(), together.clone());
        let shown = shown.setter();
        use_effect_with(session, move |session| {
            if *before.borrow() != *session {
                *before.borrow_mut() = *session;
                together.set(String::new());
                shown.set(None);
                selected.set(None);
                pins.set(first);
                notes.set(Vec::new());
            }
        });
    }
    let brought = use_mut_ref(|| from_address.is_some());
    use_history(&selected, &brought);
    let details = use_details(session, *selected, &brought, &bring);
    let jumped = use_mut_ref(|| false);
    let marks = Marks {
        call: *selected,
        query: (*query).clone(),
        pins: (*pins != first).then(|| written_pins(&pins)),
        notes: Note::write(&notes),
        together: (*together).clone(),
        shown: shown.map(|(from, to)| format!("{from}.{to}")),
    };
    use_marks_in_address(marks, &jumped);
    let select = {
        let selected = selected.setter();
        Callback::from(move |id| selected.set(id))
    };
    let show = {
        let selected = selected.setter();
        Callback::from(move |mark: CallMark| {
            selected.set(Some(mark.id));
            bring.emit(mark);
        })
    };
    let jump = {
        let (selected, jumped, show) = (selected.clone(), jumped, show.clone());
        Callback::from(move |mark: CallMark| {
            *jumped.borrow_mut() = *selected != Some(mark.id);
            show.emit(mark);
        })
    };
    let go = going(client.clone(), session, &jump);
    let step = Stepping {
        go: going(client, session, &show),
        show: show.clone(),
        select: select.clone(),
        details: details.clone(),
        first: culprits.first().copied().unwrap_or(0),
    };
    let step = Callback::from(move |to: Step| step.take(to));
    let (note, drop_note) = adding_and_dropping(&notes);
    let details = details.filter(|details| Some(details.mark.id) == *selected);
    Selection {
        mark: details.as_ref().map(|details| details.mark.clone()),
        details,
        look,
        pin: toggling(&pins),
        pins,
        notes,
        note,
        drop_note,
        close: select.reform(|()| None),
        select,
        show,
        jump,
        go,
        step,
        query,
        together,
        begins: *shown,
        on_range: {
            let shown = shown.setter();
            Callback::from(move |range| shown.set(range))
        },
    }
}

/// The way from call to call by keys.
struct Stepping {
    go: Callback<Go>,
    show: Callback<CallMark>,
    select: Callback<Option<CallId>>,
    /// The selected call.
    details: Option<Rc<CallDetails>>,
    /// The rank at which the keys begin.
    first: u32,
}

impl Stepping {
    fn take(&self, step: Step) {
        let Stepping { go, show, select, first, .. } = self;
        match (step, &self.details) {
            (Step::Leave, _) => select.emit(None),
            (Step::Open, Some(_)) => details::focus(),
            (Step::Open | Step::Previous | Step::Next, None) => {
                go.emit(Go { rank: *first, which: Which::Last });
            }
            (Step::Previous, Some(at)) => {
                at.previous.iter().for_each(|mark| show.emit(mark.clone()));
            }
            (Step::Next, Some(at)) => at.next.iter().for_each(|mark| show.emit(mark.clone())),
            (Step::To { rank }, Some(at)) => {
                let same = at.members.iter().find(|member| member.rank == rank);
                match same.and_then(|member| member.call.clone()) {
                    Some(mark) => show.emit(mark),
                    None => go.emit(Go { rank, which: Which::At(at.mark.from_ps) }),
                }
            }
            (Step::To { rank }, None) => go.emit(Go { rank, which: Which::Last }),
        }
    }
}

/// The stretch of the timeline that is to come in sight, and a callback that brings a call there.
#[hook]
fn use_look() -> (UseStateHandle<Option<Look>>, Callback<CallMark>) {
    let look = use_state(|| None::<Look>);
    let looks = use_mut_ref(|| 0u32);
    let bring = {
        let look = look.setter();
        Callback::from(move |mark: CallMark| {
            let mut number = looks.borrow_mut();
            *number += 1;
            look.set(Some(Look {
                rank: mark.id.rank,
                from_ps: mark.from_ps,
                to_ps: mark.to_ps.unwrap_or(mark.from_ps),
                number: *number,
            }));
        })
    };
    (look, bring)
}

/// Selects what the address names after the browser went back or forward to it, and has it brought in sight.
#[hook]
fn use_history(selected: &UseStateHandle<Option<CallId>>, brought: &Rc<RefCell<bool>>) {
    let nav = use_shared().nav;
    let own = use_memo((), |()| nav.route.path.clone());
    let before = use_mut_ref(|| true);
    let shown = nav.route.path == *own;
    let (selected, brought) = (selected.setter(), brought.clone());
    use_effect_with((nav.visits, shown), move |(visits, shown)| {
        // A view that is shown again has the marks that it was left with.
        let was_shown = before.replace(*shown);
        if *visits > 0 && *shown && was_shown {
            let call = nav.route.get(CALL).and_then(read);
            *brought.borrow_mut() = call.is_some();
            selected.set(call);
        }
    });
}

/// The details of the selected call, asked of the worker. A call that the address has led to is brought in
/// sight once.
#[hook]
fn use_details(
    session: SessionId,
    selected: Option<CallId>,
    brought: &Rc<RefCell<bool>>,
    bring: &Callback<CallMark>,
) -> Option<Rc<CallDetails>> {
    let client = use_shared().client;
    let details = use_state(|| None::<Rc<CallDetails>>);
    let turns = use_turns();
    let (setter, bring, brought) = (details.setter(), bring.clone(), brought.clone());
    use_effect_with((session, selected), move |&(session, selected)| {
        let turn = turns.next();
        let (bring, brought) = (bring.clone(), brought.clone());
        let Some(id) = selected else {
            setter.set(None);
            return;
        };
        wasm_bindgen_futures::spawn_local(async move {
            let answered = client.ask(SessionQuestion::AboutCall { id }.about(session)).await;
            if let Ok(Response::CallTold(told)) = answered.map(|answered| answered.response)
                && turn.counts()
            {
                if brought.replace(false)
                    && let Some(told) = &told
                {
                    bring.emit(told.mark.clone());
                }
                setter.set(told.map(|told| Rc::new(*told)));
            }
        });
    });
    (*details).clone()
}

/// The reader's marks on a trace, as far as they differ from those that it opens with.
#[derive(Clone, PartialEq)]
struct Marks {
    call: Option<CallId>,
    query: String,
    pins: Option<String>,
    notes: String,
    together: String,
    shown: Option<String>,
}

/// Keeps the marks in the address, so that a link leads back to them. From a call that was jumped to, the
/// browser goes back to the one before.
#[hook]
fn use_marks_in_address(marks: Marks, jumped: &Rc<RefCell<bool>>) {
    let jumped = jumped.clone();
    let nav = use_shared().nav;
    // Another view may be shown meanwhile, with parameters of its own.
    let own = use_memo((), |()| nav.route.path.clone());
    let shown = nav.route.path == *own;
    use_effect_with((marks, shown), move |(marks, shown)| {
        if !shown {
            return;
        }
        let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let values = [
            (CALL, marks.call.map(written)),
            (QUERY, filled(&marks.query)),
            (PINS, marks.pins.clone()),
            (NOTES, filled(&marks.notes)),
            (TOGETHER, filled(&marks.together)),
            (SHOWN, marks.shown.clone()),
        ];
        let route =
            values.into_iter().fold(nav.route.clone(), |route, (name, value)| match value {
                Some(value) => route.with(name, value),
                None => route.without(name),
            });
        if route == nav.route || nav.is_stale() {
            return;
        }
        match jumped.replace(false) {
            true => nav.push(route),
            false => nav.replace(route),
        }
    });
}

/// Pins a rank, or takes its pin away.
fn toggling(pins: &UseStateHandle<BTreeSet<u32>>) -> Callback<u32> {
    let pins = pins.clone();
    Callback::from(move |rank: u32| {
        let mut now = (*pins).clone();
        if !now.remove(&rank) {
            now.insert(rank);
        }
        pins.set(now);
    })
}

/// Adds a note, and drops the one at a place.
fn adding_and_dropping(notes: &UseStateHandle<Vec<Note>>) -> (Callback<Note>, Callback<usize>) {
    let add = {
        let notes = notes.clone();
        Callback::from(move |note: Note| notes.set([(*notes).clone(), vec![note]].concat()))
    };
    let notes = notes.clone();
    let remove = Callback::from(move |at: usize| {
        let mut now = (*notes).clone();
        if at < now.len() {
            now.remove(at);
        }
        notes.set(now);
    });
    (add, remove)
}

/// Ranks that are blamed are pinned, where they would not be in sight by themselves.
fn first_pins(world_size: u32, culprits: &BTreeSet<u32>) -> BTreeSet<u32> {
    const IN_SIGHT: u32 = 8;
    const MANY: usize = 16;
    match world_size > IN_SIGHT && culprits.len() <= MANY {
        true => culprits.clone(),
        false => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_survives_the_address() {
        let id = CallId { rank: 10, work: 57 };
        assert_eq!(read(&written(id)), Some(id));
        for no in ["", "10", "10.", ".5", "a.b", "-1.5", "1.5.2"] {
            assert_eq!(read(no), None, "{no}");
        }
        let pins = BTreeSet::from([10, 15]);
        assert_eq!(read_pins(&written_pins(&pins)), pins);
        assert!(read_pins("").is_empty());
        assert_eq!(read_stretch("41000.78000"), Some((41_000, 78_000)));
        assert_eq!(
            (read_stretch("5.5"), read_stretch("5"), read_stretch("a.b")),
            (None, None, None)
        );
    }

    #[test]
    fn those_who_are_blamed_are_pinned_where_they_would_be_missed() {
        let blamed = BTreeSet::from([400]);
        assert_eq!(first_pins(512, &blamed), blamed);
        assert!(first_pins(4, &BTreeSet::from([2])).is_empty());
        assert!(first_pins(512, &(0..300).collect()).is_empty());
    }
}
