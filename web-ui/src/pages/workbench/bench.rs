//! The timeline of a trace with what a reader does in it: search, choice of rows, the selected call, a measured area.
//! Recordings, runs, simulations and programs all have this one.

use super::details::Details;
use super::find::Find;
use super::measured::{Marked, MeasuredArea};
use super::rows;
use super::selection::{Along, Selection, use_selection};
use crate::ui::{Legend, Order, PathMark, SelectField, Timeline};
use lockstep_core::trace::Origin;
use lockstep_web_protocol::{FoundCalls, LiveCount, Opened};
use std::collections::BTreeSet;
use std::rc::Rc;
use yew::prelude::*;

/// The reader's work in a trace.
pub(in crate::pages) struct Bench {
    pub(in crate::pages) selection: Selection,
    pub(super) order: Rc<Option<Order>>,
    marked: UseStateHandle<Marked>,
    found: UseStateHandle<Option<Rc<FoundCalls>>>,
    path: UseStateHandle<Rc<Vec<PathMark>>>,
}

/// The reader's work in a trace; `None` before it is open.
#[hook]
pub(in crate::pages) fn use_bench(opened: Option<&Rc<Opened>>, along: &Along) -> Bench {
    let selection = use_selection(opened, along);
    let marked = use_state(|| Marked::None);
    {
        let marked = marked.setter();
        let of = opened.map(|opened| opened.session);
        use_effect_with((of, selection.mark.clone()), move |_| marked.set(None));
    }
    let order = {
        let pins: BTreeSet<u32> = selection.pins.clone();
        let of = opened.map(|opened| (opened.session, opened.account()));
        let deps = (of, pins, (*selection.together).clone());
        let opened = opened.cloned();
        use_memo(deps, move |(_, pins, by)| {
            let opened = opened?;
            rows::order(&opened.header, pins, by, &opened.waits)
        })
    };
    Bench {
        selection,
        order,
        marked,
        found: use_state(|| None),
        path: use_state(Rc::<Vec<PathMark>>::default),
    }
}

/// The view's own part of a timeline.
#[derive(Default)]
pub(in crate::pages) struct Drawn {
    /// Ranks that the findings blame.
    pub(in crate::pages) culprits: Vec<u32>,
    /// The range that is shown at first, if not that of the trace.
    pub(in crate::pages) fit: Option<(u64, u64)>,
    /// Another timeline on the same scale, under this one.
    pub(in crate::pages) below: Option<Html>,
    /// The time that is played, in picoseconds.
    pub(in crate::pages) playhead_ps: Option<u64>,
    /// A click goes to a time, in picoseconds.
    pub(in crate::pages) on_seek: Option<Callback<u64>>,
    /// Hides what lies after the playhead, and search and details with it.
    pub(in crate::pages) future_hidden: bool,
    /// Hides search, details and measuring: there is no room for them.
    pub(in crate::pages) plain: bool,
    /// The size of a live trace, newer than `Opened`.
    pub(in crate::pages) grown: Option<LiveCount>,
}

impl Bench {
    /// Draws a path across ranks.
    pub(super) fn draw_path(&self) -> Callback<Rc<Vec<PathMark>>> {
        let path = self.path.setter();
        Callback::from(move |marks| path.set(marks))
    }

    /// The timeline, and what belongs to it.
    pub(in crate::pages) fn lanes(&self, opened: &Opened, drawn: Drawn) -> Html {
        let Bench { selection, order, marked, found, path } = self;
        let Drawn { culprits, fit, below, playhead_ps, on_seek, future_hidden, plain, grown } =
            drawn;
        let session = opened.session;
        let mark_area = {
            let marked = marked.setter();
            Callback::from(move |area| marked.set(Some(area)))
        };
        let unmark = {
            let marked = marked.setter();
            Callback::from(move |()| marked.set(None))
        };
        let flags: Vec<_> =
            selection.notes.iter().map(|note| (note.place.rank, note.place.time_ps)).collect();
        let (world_size, lanes, end_ps) = match grown {
            Some(count) => (count.world_size, count.lanes.max(1), count.end_ps),
            None => (opened.header.world_size, opened.lanes, opened.end_ps),
        };
        // A live trace is fitted as it grows.
        let fit = fit.or_else(|| grown.is_none().then_some(opened.fit));
        let looks = !future_hidden && !plain;
        html! {
            <>
            if looks { { self.tools(opened) } }
            <Timeline {session} {world_size} {lanes} {end_ps} {fit} begins={selection.begins} on_range={looks.then(|| selection.on_range.clone())}
                      {culprits} {playhead_ps} {on_seek} {future_hidden} tick={grown.map_or(0, |count| count.events)} follow={grown.is_some()}
                      order={(**order).clone()} selected={selection.mark.clone()} found={(**found).clone()} look={(*selection.look).clone()}
                      area={marked.as_ref().map(|(area, _)| area.clone())} on_area={looks.then_some(mark_area)} path={(**path).clone()} {flags}
                      on_select={looks.then(|| selection.select.clone())} on_step={looks.then(|| selection.step.clone())} compared={below.is_some()} />
            { below.unwrap_or_default() }
            <Legend kinds={opened.kinds.clone()} has_messages={opened.has_messages} unfinished={opened.unfinished && !future_hidden && grown.is_none()}
                    cut={matches!(opened.header.origin, Origin::Recorded { .. })} />
            // One pane at a time, or no room is left for the timeline.
            if let Some((area, _)) = marked.as_ref().filter(|(_, done)| *done && looks) {
                <MeasuredArea {session} account={opened.account()} area={area.clone()} on_note={selection.note.clone()} on_close={unmark} />
            } else if let Some(details) = selection.details.as_ref().filter(|_| looks) {
                <Details details={details.clone()} pinned={selection.pins.contains(&details.mark.id.rank)} notes={Rc::new((*selection.notes).clone())} on_call={selection.jump.clone()}
                         on_go={selection.go.clone()} on_pin={selection.pin.clone()} on_note={selection.note.clone()} on_close={selection.close.clone()} />
            }
            </>
        }
    }

    /// The search, and the choice of a row.
    fn tools(&self, opened: &Opened) -> Html {
        let Selection { query, show, together, .. } = &self.selection;
        let on_found = {
            let found = self.found.setter();
            Callback::from(move |hits| found.set(hits))
        };
        let choose = {
            let together = together.setter();
            Callback::from(move |by: String| together.set(by))
        };
        let choices = rows::choices(&opened.header, &opened.waits);
        html! {
            <div class="bench-tools">
                <Find session={opened.session} account={opened.account()} query={query.clone()} on_call={show.clone()} {on_found} />
                if choices.len() > 1 {
                    <SelectField name="rows" label="A row is" value={(**together).clone()} {choices} on_choose={choose} />
                }
            </div>
        }
    }
}
