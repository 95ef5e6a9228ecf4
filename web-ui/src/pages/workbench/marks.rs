//! The reader's marks on a trace as the address has them, so that a link leads back to them.

use super::notes::Note;
use crate::app::use_shared;
use crate::sets::set;
use lockstep_web_protocol::CallId;
use std::collections::BTreeSet;
use yew::prelude::*;

/// The parameter of the address that says which call is looked at: `10.57` is the call 57 of rank 10.
pub(super) const CALL: &str = "call";

/// The parameter of the address with the query.
pub(super) const QUERY: &str = "find";

/// The parameter of the address with the ranks that are kept at the top: `10.15`.
pub(super) const PINS: &str = "pins";

/// The parameter of the address with the reader's notes.
pub(super) const NOTES: &str = "notes";

/// The address parameter for the ranks that share a row.
pub(super) const TOGETHER: &str = "together";

/// The address parameter for the stretch of time that is shown, in picoseconds: `41000.78000`.
pub(super) const SHOWN: &str = "shown";

/// The parameters of the address that are kept with a trace.
pub(in crate::pages) const KEPT: [&str; 6] = [CALL, QUERY, PINS, NOTES, TOGETHER, SHOWN];

/// A call as the address has it.
fn written(id: CallId) -> String {
    format!("{}.{}", id.rank, id.work)
}

/// Reads what [`written`] wrote.
pub(super) fn read_call(text: &str) -> Option<CallId> {
    let (rank, work) = text.split_once('.')?;
    Some(CallId { rank: rank.parse().ok()?, work: work.parse().ok()? })
}

/// A stretch of time as the address has it.
pub(super) fn read_stretch(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('.')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

fn written_pins(pins: &BTreeSet<u32>) -> String {
    pins.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// Pinned ranks as the address has them.
pub(super) fn read_pins(text: &str) -> BTreeSet<u32> {
    set(text.split('.').filter_map(|rank| rank.parse().ok()))
}

/// The reader's marks on a trace.
#[derive(Clone, PartialEq)]
pub(super) struct Marks {
    pub(super) call: Option<CallId>,
    pub(super) query: String,
    /// None while they are those that the trace opens with.
    pub(super) pins: Option<BTreeSet<u32>>,
    pub(super) notes: Vec<Note>,
    pub(super) together: String,
    pub(super) shown: Option<(u64, u64)>,
}

/// Keeps the marks in the address.
#[hook]
pub(super) fn use_marks_in_address(marks: Marks) {
    let nav = use_shared().nav;
    // Another view may be shown meanwhile, with parameters of its own.
    let own = use_memo((), |()| nav.route.path.clone());
    let shown = nav.route.path == *own;
    // Visits are no dependency: `selection` first selects the call of a visited address.
    use_effect_with((marks, shown), move |(marks, shown)| {
        let now = nav.now();
        if !shown || now.path != *own {
            return;
        }
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        let values = [
            (CALL, marks.call.map(written)),
            (QUERY, filled(marks.query.clone())),
            (PINS, marks.pins.as_ref().map(written_pins)),
            (NOTES, filled(Note::write(&marks.notes))),
            (TOGETHER, filled(marks.together.clone())),
            (SHOWN, marks.shown.map(|(from, to)| format!("{from}.{to}"))),
        ];
        let route = values.into_iter().fold(now.clone(), |route, (name, value)| match value {
            Some(value) => route.with(name, value),
            None => route.without(name),
        });
        if route != now && !nav.is_stale() {
            nav.replace(route);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_address() {
        let id = CallId { rank: 10, work: 57 };
        assert_eq!(read_call(&written(id)), Some(id));
        for no in ["", "10", "10.", ".5", "a.b", "-1.5", "1.5.2"] {
            assert_eq!(read_call(no), None, "{no}");
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
}
