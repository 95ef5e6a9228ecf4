//! The call of a trace that is looked at, the pins and notes beside it, and the ways from call to call.

use super::details;
use super::marks::{
    CALL, Marks, NOTES, PINS, QUERY, SHOWN, TOGETHER, read_call, read_pins, read_stretch,
    use_marks_in_address,
};
use super::notes::Note;
use crate::app::use_shared;
use crate::sets::set;
use crate::turns::use_turns;
use crate::ui::{Go, Look, Step, going};
use lockstep_web_protocol::{
    CallDetails, CallId, CallMark, Opened, Response, SessionId, SessionQuestion, Which,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use yew::prelude::*;

/// The selected call, and the callbacks that change it.
pub(in crate::pages) struct Selection {
    /// The selected call.
    pub(super) mark: Option<CallMark>,
    /// All that is known of it.
    pub(super) details: Option<Rc<CallDetails>>,
    /// The place that is to come in sight.
    pub(super) look: UseStateHandle<Option<Look>>,
    /// Ranks that are kept at the top.
    pub(super) pins: BTreeSet<u32>,
    /// Pins a rank, or takes its pin away.
    pub(super) pin: Callback<u32>,
    /// The reader's notes.
    pub(in crate::pages) notes: UseStateHandle<Vec<Note>>,
    /// Adds a note.
    pub(super) note: Callback<Note>,
    /// Drops the note of this number.
    pub(in crate::pages) drop_note: Callback<usize>,
    /// Selects a call that is in sight, or none.
    pub(super) select: Callback<Option<CallId>>,
    /// Selects a call and brings it into sight.
    pub(super) show: Callback<CallMark>,
    /// The same, and Back leads to the call before.
    pub(super) jump: Callback<CallMark>,
    /// Looks for a call and jumps to it. Stays the same for as long as the trace does.
    pub(in crate::pages) go: Callback<Go>,
    /// Goes from call to call by keys.
    pub(super) step: Callback<Step>,
    pub(super) close: Callback<()>,
    /// The text of the search.
    pub(super) query: UseStateHandle<String>,
    /// The word for the ranks that share a row; see [`super::rows::choices`].
    pub(super) together: UseStateHandle<String>,
    /// The stretch of time that the address shows.
    pub(super) begins: Option<(u64, u64)>,
    pub(super) on_range: Callback<Option<(u64, u64)>>,
}

impl Selection {
    /// The reader's notes, as a section of the report.
    pub(in crate::pages) fn report_appendix(&self) -> AttrValue {
        AttrValue::from(Note::markdown(&self.notes))
    }
}

/// The settings and callbacks that a view gives to its selection.
#[derive(Clone, Default)]
pub(in crate::pages) struct Along {
    /// True while culprits are hidden: a question is open, or the job still runs.
    pub(in crate::pages) asking: bool,
    /// The next trace in the same place.
    pub(in crate::pages) next: Next,
    /// Called with the rank of a newly selected call, and its time if the view should move there.
    pub(in crate::pages) on_place: Option<Callback<(u32, Option<u64>)>>,
}

/// The trace that may take the place of one, as far as it decides what the reader keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::pages) enum Next {
    /// Of another job: nothing is kept.
    #[default]
    Another,
    /// Of the same job, further on: pins are kept. Its calls have other numbers.
    SameJob,
    /// Of the same program, changed: pins and notes are kept.
    SameProgram,
}

/// The selection in a trace; `None` before it is open.
#[hook]
pub(super) fn use_selection(opened: Option<&Rc<Opened>>, along: &Along) -> Selection {
    let shared = use_shared();
    let (client, nav) = (shared.client, shared.nav);
    let session = opened.map(|opened| opened.session);
    let from_address = nav.route.get(CALL).and_then(read_call);
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
    let culprits = opened.map(|opened| opened.report.culprits()).unwrap_or_default();
    let culprits = set(culprits.iter().filter(|_| !along.asking).map(|rank| rank.0));
    let world_size = opened.map_or(0, |opened| opened.header.world_size);
    let first = first_pins(world_size, &culprits);
    // None for those that the trace opens with.
    let pins = {
        let asked = nav.route.get(PINS).map(read_pins);
        use_state(move || asked)
    };
    let notes = {
        let asked = nav.route.get(NOTES).map(Note::read).unwrap_or_default();
        use_state(move || asked)
    };
    let (look, bring) = use_look();
    {
        // Another trace in the same place has other calls.
        let (selected, pins, before) = (selected.clone(), pins.setter(), use_mut_ref(|| None));
        let (notes, together, shown) = (notes.setter(), together.setter(), shown.setter());
        let next = along.next;
        use_effect_with(session, move |session| {
            let before = before.borrow_mut().replace(*session).flatten();
            if before.is_some() && before != *session {
                selected.set(None);
                if next != Next::SameProgram {
                    notes.set(Vec::new());
                }
                if next == Next::Another {
                    together.set(String::new());
                    shown.set(None);
                    pins.set(None);
                }
            }
        });
    }
    let brought = use_mut_ref(|| from_address.is_some());
    use_history(&selected, &brought);
    let account = opened.map(|opened| opened.account());
    let details = use_details((session, account), *selected, &brought, &bring);
    let marks = Marks {
        call: *selected,
        query: (*query).clone(),
        pins: (*pins).clone(),
        notes: (*notes).clone(),
        together: (*together).clone(),
        shown: *shown,
    };
    use_marks_in_address(marks);
    let latest = use_mut_ref(Along::default);
    *latest.borrow_mut() = along.clone();
    let place = move |rank: u32, time_ps: Option<u64>| {
        let on_place = latest.borrow().on_place.clone();
        on_place.iter().for_each(|on_place| on_place.emit((rank, time_ps)));
    };
    let select = {
        let (selected, place) = (selected.setter(), place.clone());
        Callback::from(move |id: Option<CallId>| {
            id.iter().for_each(|id| place(id.rank, None));
            selected.set(id);
        })
    };
    let show = {
        let selected = selected.setter();
        Callback::from(move |mark: CallMark| {
            place(mark.id.rank, Some(mark.from_ps));
            selected.set(Some(mark.id));
            bring.emit((mark, None));
        })
    };
    let now = use_mut_ref(|| None);
    *now.borrow_mut() = *selected;
    let jump = {
        let (show, nav) = (show.clone(), nav.clone());
        Callback::from(move |mark: CallMark| {
            // The reader may have gone elsewhere while the call was looked for.
            if nav.now().path != nav.route.path {
                return;
            }
            // Later changes belong to a new entry of the history: Back leads to this one, unchanged.
            if *now.borrow() != Some(mark.id) && nav.is_here() {
                nav.push(nav.now());
            }
            show.emit(mark);
        })
    };
    let going_to = |show: &Callback<CallMark>| match session {
        Some(session) => going(client.clone(), session, show),
        None => Callback::noop(),
    };
    // Memoised, so that findings are not redrawn on every frame of playback.
    let go = (*use_memo(session, |_| going_to(&jump))).clone();
    let step = Stepping {
        go: going_to(&show),
        show: show.clone(),
        select: select.clone(),
        details: details.clone(),
        first: culprits.first().copied().unwrap_or(0),
    };
    let step = Callback::from(move |to: Step| step.take(to));
    let (note, drop_note) = adding_and_dropping(&notes);
    let details = details.filter(|details| Some(details.mark.id) == *selected);
    let pin = toggling(&pins, &first);
    Selection {
        mark: details.as_ref().map(|details| details.mark.clone()),
        details,
        look,
        pins: (*pins).clone().unwrap_or(first),
        pin,
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

/// A call that is to come in sight, and the stretch of time to show it in, if not one around it.
type InSight = (CallMark, Option<(u64, u64)>);

/// The stretch of the timeline that is to come in sight, and a callback that brings a call there: at the stretch of time
/// that is named with it, or zoomed to the call.
#[hook]
fn use_look() -> (UseStateHandle<Option<Look>>, Callback<InSight>) {
    let look = use_state(|| None::<Look>);
    let looks = use_mut_ref(|| 0u32);
    let bring = {
        let look = look.setter();
        Callback::from(move |(mark, shown): InSight| {
            let mut number = looks.borrow_mut();
            *number += 1;
            look.set(Some(Look {
                rank: mark.id.rank,
                from_ps: mark.from_ps,
                to_ps: mark.to_ps.unwrap_or(mark.from_ps),
                shown,
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
            let call = nav.route.get(CALL).and_then(read_call);
            *brought.borrow_mut() = call.is_some();
            selected.set(call);
        }
    });
}

/// The details of the selected call, asked of the worker. A call that the address has led to is brought in
/// sight once, at the stretch of time that the address shows.
#[hook]
fn use_details(
    of: (Option<SessionId>, Option<(u64, u64)>),
    selected: Option<CallId>,
    brought: &Rc<RefCell<bool>>,
    bring: &Callback<InSight>,
) -> Option<Rc<CallDetails>> {
    let shared = use_shared();
    let (client, nav) = (shared.client, shared.nav);
    let details = use_state(|| None::<Rc<CallDetails>>);
    let turns = use_turns();
    let (setter, bring, brought) = (details.setter(), bring.clone(), brought.clone());
    use_effect_with((of, selected), move |&((session, _), selected)| {
        let turn = turns.next();
        let (bring, brought, nav) = (bring.clone(), brought.clone(), nav.clone());
        let (Some(session), Some(id)) = (session, selected) else {
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
                    let shown = nav.now().get(SHOWN).and_then(read_stretch);
                    bring.emit((told.mark.clone(), shown));
                }
                setter.set(told.map(|told| Rc::new(*told)));
            }
        });
    });
    (*details).clone()
}

/// Pins a rank, or takes its pin away.
fn toggling(pins: &UseStateHandle<Option<BTreeSet<u32>>>, first: &BTreeSet<u32>) -> Callback<u32> {
    let (pins, first) = (pins.clone(), first.clone());
    Callback::from(move |rank: u32| {
        let mut now = (*pins).clone().unwrap_or_else(|| first.clone());
        if !now.remove(&rank) {
            now.insert(rank);
        }
        pins.set(Some(now).filter(|now| *now != first));
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
    fn those_who_are_blamed_are_pinned_where_they_would_be_missed() {
        let blamed = BTreeSet::from([400]);
        assert_eq!(first_pins(512, &blamed), blamed);
        assert!(first_pins(4, &BTreeSet::from([2])).is_empty());
        assert!(first_pins(512, &(0..300).collect()).is_empty());
    }
}
