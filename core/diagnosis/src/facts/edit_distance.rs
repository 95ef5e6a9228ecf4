//! The calls of two ranks in one group, laid along each other with the fewest edits: which of them
//! one left out, made on top, made in the other order, or made differently.
//!
//! An edit distance with transpositions (R. Wagner and M. Fischer, *The String-to-String Correction
//! Problem*, 1974; F. Damerau, 1964) along a band, worked out from the end, so that what comes after
//! each first edit is known and alternatives can be weighed. The ends are free: ranks stop where they
//! wait. What is not followed by calls that match again is no edit, and is not told as one.

use crate::model::roles::Roles;
use lockstep_core::trace::CallRecord;
use lockstep_core::trace::{CallSignature, Difference};

/// At most this many calls of either side are looked at.
pub(crate) const WINDOW: usize = 1024;
/// By so many calls the two may be shifted against each other.
pub(crate) const BAND: usize = 48;

/// The costs of edits and of pairs of aligned calls. A match counts for little: of two ways with as
/// many edits, the one that explains more calls is better.
const EDIT: i32 = 64;
/// One more call left out, or made on top, in a row.
const MORE: i32 = 16;
/// Another call in the place of one; the same with other arguments; and that from the same line, or
/// with all but what a tensor is.
const REPLACED: i32 = 96;
const OTHER_SIZE: i32 = 64;
const OTHER_ARGUMENT: i32 = 32;
const OTHER_LINE: i32 = 24;
const MATCH: i32 = -1;
/// To end in an edit: nothing shows that it was one.
const OPEN_END: i32 = 512;
/// Never worth it.
const FAR: i32 = i32::MAX / 4;

/// One thing that a rank did differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// It left out so many of the others' calls.
    Skipped { count: usize },
    /// It made so many of its own.
    Extra { count: usize },
    /// It made two calls in the other order.
    Swapped,
    /// It made another call in the place of one.
    Replaced,
}

/// An edit and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) edit: Edit,
    /// The index in the rank's calls.
    pub(crate) own: usize,
    /// The index in the others' calls.
    pub(crate) theirs: usize,
}

/// The alignment of two ranks' calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// The edits, in order.
    pub(crate) edits: Vec<Place>,
    /// The number of calls that match between the first edit and the next, or the end.
    pub(crate) matched: usize,
    /// True if no other first edit explains the calls as well.
    pub(crate) only: bool,
}

/// The likeness of two calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// The same call as far as NCCL is concerned, from another line.
    OtherLine,
    /// Not the same; what it costs to say that the one stands in the other's place.
    Differs(i32),
}

/// The likeness of two calls; of several groups `roles` says which stand for each other.
pub(crate) fn compare(a: &CallRecord, b: &CallRecord, roles: Option<&Roles>) -> Likeness {
    if std::sync::Arc::ptr_eq(&a.call, &b.call) {
        return Likeness::Same;
    }
    if roles.is_some_and(|roles| !roles.same(a.call.group, b.call.group)) {
        return Likeness::Differs(REPLACED);
    }
    let (a_stack, b_stack) = (&a.call.stack, &b.call.stack);
    let known = !a_stack.is_empty() && !b_stack.is_empty();
    match CallSignature::of(&a.call).difference(&CallSignature::of(&b.call)) {
        None if known && a_stack != b_stack => Likeness::OtherLine,
        None => Likeness::Same,
        Some(Difference::Op) => Likeness::Differs(REPLACED),
        Some(_) if known && a_stack != b_stack => Likeness::Differs(REPLACED),
        Some(_) if known => Likeness::Differs(OTHER_ARGUMENT),
        Some(Difference::Size) => Likeness::Differs(OTHER_SIZE),
        Some(Difference::Dtype | Difference::ReduceOp | Difference::Root) => {
            Likeness::Differs(OTHER_ARGUMENT)
        }
    }
}

/// The steps of an alignment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    End,
    Match,
    Skip,
    Extra,
    Swap,
    Replace,
}

const STEPS: [Step; 5] = [Step::Match, Step::Skip, Step::Extra, Step::Swap, Step::Replace];

/// The step before, as far as it matters to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Other,
    Skip,
    Extra,
    Replace,
}

const BEFORE: [Before; 4] = [Before::Other, Before::Skip, Before::Extra, Before::Replace];

impl Step {
    fn then(self) -> Before {
        match self {
            Step::Skip => Before::Skip,
            Step::Extra => Before::Extra,
            Step::Replace => Before::Replace,
            _ => Before::Other,
        }
    }
}

struct Table<'s, 'a> {
    own: &'s [&'a CallRecord],
    theirs: &'s [&'a CallRecord],
    /// Groups that stand for each other; `None` if all calls are of one group.
    roles: Option<&'s Roles>,
    /// Per place of `own`, the costs of `BAND` places of `theirs` on either side, for each of
    /// [`BEFORE`].
    costs: Vec<i32>,
}

impl<'s, 'a> Table<'s, 'a> {
    fn of(
        own: &'s [&'a CallRecord],
        theirs: &'s [&'a CallRecord],
        roles: Option<&'s Roles>,
    ) -> Table<'s, 'a> {
        let places = (own.len() + 1) * (2 * BAND + 1) * BEFORE.len();
        let mut table = Table { own, theirs, roles, costs: vec![FAR; places] };
        for at in (0..=own.len()).rev() {
            let from = at.saturating_sub(BAND);
            for other in (from..=(at + BAND).min(theirs.len())).rev() {
                for before in BEFORE {
                    let cost = table.best(at, other, before).1;
                    if let Some(place) = Self::place(at, other, before)
                        && let Some(slot) = table.costs.get_mut(place)
                    {
                        *slot = cost;
                    }
                }
            }
        }
        table
    }

    fn place(own: usize, theirs: usize, before: Before) -> Option<usize> {
        let across = (theirs + BAND).checked_sub(own).filter(|across| *across <= 2 * BAND)?;
        Some((own * (2 * BAND + 1) + across) * BEFORE.len() + before as usize)
    }

    fn cost(&self, own: usize, theirs: usize, before: Before) -> i32 {
        if own > self.own.len() || theirs > self.theirs.len() {
            return FAR;
        }
        let place = Self::place(own, theirs, before);
        place.and_then(|place| self.costs.get(place)).copied().unwrap_or(FAR)
    }

    /// The cost from here to the end, beginning with a step.
    fn with(&self, step: Step, own: usize, theirs: usize, before: Before) -> i32 {
        let pair = |a: usize, b: usize| Some((*self.own.get(a)?, *self.theirs.get(b)?));
        let likeness = |a: usize, b: usize| pair(a, b).map(|(a, b)| compare(a, b, self.roles));
        let edit = |run: Before| if before == run { MORE } else { EDIT };
        let (cost, (to, other)) = match step {
            Step::End => return 0,
            Step::Match => match likeness(own, theirs) {
                Some(Likeness::Same) => (MATCH, (own + 1, theirs + 1)),
                Some(Likeness::OtherLine) => (OTHER_LINE, (own + 1, theirs + 1)),
                _ => return FAR,
            },
            Step::Skip => (edit(Before::Skip), (own, theirs + 1)),
            Step::Extra => (edit(Before::Extra), (own + 1, theirs)),
            Step::Swap => {
                let same = |a, b| likeness(a, b) == Some(Likeness::Same);
                let crossed = same(own, theirs + 1)
                    && same(own + 1, theirs)
                    && likeness(own, theirs) != Some(Likeness::Same);
                if !crossed {
                    return FAR;
                }
                (EDIT + 2 * MATCH, (own + 2, theirs + 2))
            }
            Step::Replace => match likeness(own, theirs) {
                Some(Likeness::Differs(cost)) => (cost, (own + 1, theirs + 1)),
                _ => return FAR,
            },
        };
        cost.saturating_add(self.cost(to, other, step.then())).min(FAR)
    }

    /// The best step here and its cost; the first of equals in the order of [`STEPS`].
    fn best(&self, own: usize, theirs: usize, before: Before) -> (Step, i32) {
        if own >= self.own.len() || theirs >= self.theirs.len() {
            return (Step::End, if before == Before::Other { 0 } else { OPEN_END });
        }
        let costs = STEPS.map(|step| (step, self.with(step, own, theirs, before)));
        let best = costs.into_iter().min_by_key(|(_, cost)| *cost);
        best.filter(|(_, cost)| *cost < FAR).unwrap_or((Step::End, FAR))
    }
}

/// Lays a rank's calls along those of another; `None` where nothing differs that is followed by
/// calls that match again.
pub(crate) fn align(own: &[&CallRecord], theirs: &[&CallRecord]) -> Option<Alignment> {
    align_in(own, theirs, None)
}

/// The same of calls in several groups, of which `roles` says which stand for each other.
pub(crate) fn align_in(
    own: &[&CallRecord],
    theirs: &[&CallRecord],
    roles: Option<&Roles>,
) -> Option<Alignment> {
    let own = own.get(..own.len().min(WINDOW)).unwrap_or(own);
    let theirs = theirs.get(..theirs.len().min(WINDOW)).unwrap_or(theirs);
    let table = Table::of(own, theirs, roles);
    let (mut at, mut other, mut before) = (0, 0, Before::Other);
    let mut edits: Vec<Place> = Vec::new();
    let (mut since, mut matched, mut only) = (0usize, None, true);
    // The number of calls that match after the last edit.
    let mut trailing = 0usize;
    loop {
        let (step, cost) = table.best(at, other, before);
        let here = Place { edit: Edit::Replaced, own: at, theirs: other };
        let mut push = |edit: Edit| {
            if let (Some(last), true) = (edits.last_mut(), trailing == 0) {
                // A run of the same is one edit.
                match (&mut last.edit, edit) {
                    (Edit::Skipped { count }, Edit::Skipped { .. })
                    | (Edit::Extra { count }, Edit::Extra { .. }) => {
                        *count += 1;
                        return false;
                    }
                    _ => {}
                }
            }
            edits.push(Place { edit, ..here });
            true
        };
        let next = match step {
            Step::End => break,
            Step::Match => {
                let same = own.get(at).zip(theirs.get(other));
                let same = same.is_some_and(|(a, b)| compare(a, b, roles) == Likeness::Same);
                trailing += usize::from(same);
                since += usize::from(same);
                (at + 1, other + 1)
            }
            Step::Skip | Step::Extra | Step::Swap | Step::Replace => {
                let edit = match step {
                    Step::Skip => Edit::Skipped { count: 1 },
                    Step::Extra => Edit::Extra { count: 1 },
                    Step::Swap => Edit::Swapped,
                    _ => Edit::Replaced,
                };
                let is_first = push(edit) && edits.len() == 1;
                if is_first {
                    let rivals = STEPS.into_iter().filter(|rival| *rival != step);
                    let rival = rivals.map(|rival| table.with(rival, at, other, before)).min();
                    // A rival that has as few edits explains the calls as well.
                    only = rival.is_none_or(|rival| rival >= cost.saturating_add(EDIT / 2));
                    since = 0;
                } else if edits.len() == 2 && matched.is_none() {
                    matched = Some(since);
                }
                trailing = if step == Step::Swap { 2 } else { 0 };
                if is_first {
                    since = trailing;
                }
                match step {
                    Step::Skip => (at, other + 1),
                    Step::Extra => (at + 1, other),
                    Step::Swap => (at + 2, other + 2),
                    _ => (at + 1, other + 1),
                }
            }
        };
        (at, other) = next;
        before = step.then();
    }
    // An edit after which nothing matches is the point where the ranks stopped.
    if trailing == 0 {
        edits.pop();
    }
    let matched = matched.unwrap_or(since);
    (matched > 0 && !edits.is_empty()).then_some(Alignment { edits, matched, only })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::GroupId;
    use lockstep_core::trace::{CallState, Called, Frame, TensorShape};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A call for each letter: its size; letters that are written large are of another line.
    pub(crate) fn calls(text: &str) -> Vec<CallRecord> {
        let call = |letter: char| {
            let numel = u64::from(letter.to_ascii_lowercase() as u32);
            let tensor = vec![TensorShape { shape: vec![numel], dtype: Dtype::Float32 }];
            let line = 1 + u32::from(letter.is_ascii_uppercase());
            let frame = Frame { file: "a.py".into(), line, function: "f".into() };
            Called {
                op: "all_reduce".into(),
                group: GroupId::WORLD,
                p2p: false,
                peer: None,
                tag: 0,
                inputs: tensor.clone(),
                outputs: tensor,
                reduce_op: None,
                root: None,
                stack: [frame].into(),
            }
        };
        text.chars()
            .map(|letter| CallRecord {
                work: 0,
                state: CallState::Completed,
                seq: None,
                record_id: None,
                plan_op: None,
                scheduled_ps: 0,
                started_ps: None,
                completed_ps: None,
                call: Arc::new(call(letter)),
            })
            .collect()
    }

    fn aligned(own: &str, theirs: &str) -> Option<Alignment> {
        let (own, theirs) = (calls(own), calls(theirs));
        align(&own.iter().collect::<Vec<_>>(), &theirs.iter().collect::<Vec<_>>())
    }

    fn edits(own: &str, theirs: &str) -> Vec<(Edit, usize, usize)> {
        let found = aligned(own, theirs).map(|found| found.edits).unwrap_or_default();
        found.iter().map(|place| (place.edit, place.own, place.theirs)).collect()
    }

    #[test]
    fn edits_are_found_one_and_many() {
        use Edit::{Extra, Replaced, Skipped, Swapped};
        let theirs = "abcdefghij";
        assert_eq!(edits("abcdefghij", theirs), []);
        assert_eq!(edits("bcdefghij", theirs), [(Skipped { count: 1 }, 0, 0)]);
        assert_eq!(edits("abfghij", theirs), [(Skipped { count: 3 }, 2, 2)]);
        assert_eq!(edits("xabcdefghij", theirs), [(Extra { count: 1 }, 0, 0)]);
        assert_eq!(edits("abdcefghij", theirs), [(Swapped, 2, 2)]);
        assert_eq!(edits("abXdefghij", theirs), [(Replaced, 2, 2)]);
        assert_eq!(
            edits("bcdexfghji", theirs),
            [(Skipped { count: 1 }, 0, 0), (Extra { count: 1 }, 4, 5), (Swapped, 8, 8),]
        );
        // The same size from another line is the same call, as long as nothing better explains it.
        assert_eq!(edits("abCdefghij", theirs), []);
        assert_eq!(edits("aBaBaB", "AaBaBaBaB"), [(Skipped { count: 1 }, 0, 0)]);
    }

    /// Calls that nothing matching follows are no edit: the ranks stand there.
    #[test]
    fn what_nothing_follows_is_no_edit() {
        assert_eq!(aligned("x", "a"), None);
        assert_eq!(aligned("x", "abc"), None);
        assert_eq!(aligned("abx", "abc"), None);
        assert_eq!(aligned("", "abc"), None);
    }

    /// A loop of two calls begins with the second: one is left out, or one is on top.
    #[test]
    fn what_can_be_explained_otherwise_is_not_the_only_way() {
        assert!(!aligned("babababa", "abababab").unwrap().only);
        assert!(aligned("bcdefg", "abcdefg").unwrap().only);
    }

    proptest! {
        /// No dearer than the edits that were made; and the calls of the one become those of the
        /// other. What follows the edits matches, so that none of them is where the ranks stopped.
        #[test]
        fn few_edits_are_enough(
            theirs in "[a-h]{4,60}",
            changes in prop::collection::vec((0..60usize, 0..3u8, "[a-z]"), 0..4),
        ) {
            let mut own: Vec<char> = theirs.chars().collect();
            // In halves of a call left out or on top: calls that differ in size only, from one line,
            // cost half of it, and a call that is moved further is left out and on top.
            let mut made = 0;
            for (at, kind, letter) in &changes {
                let at = at % own.len().max(1);
                match kind {
                    0 if own.len() > 1 => drop(own.remove(at)),
                    1 => own.insert(at, letter.chars().next().unwrap()),
                    _ if at + 1 < own.len() => own.swap(at, at + 1),
                    _ => {}
                }
                made += if *kind == 2 { 4 } else { 2 };
            }
            let own = own.into_iter().collect::<String>() + "0123";
            let theirs = theirs + "0123";
            // None also where no call matches between the first edit and the next.
            let Some(found) = aligned(&own, &theirs) else { return Ok(()) };
            prop_assert_ne!(&own, &theirs);
            let weight = |place: &Place| if place.edit == Edit::Replaced { 1 } else { 2 };
            let told: i32 = found.edits.iter().map(weight).sum();
            prop_assert!(told <= made, "{own} {theirs} {found:?}");
            // Replayed, the edits make theirs of own.
            let (own, theirs) = (own.as_bytes(), theirs.as_bytes());
            let (mut at, mut other) = (0, 0);
            for place in &found.edits {
                prop_assert_eq!(&own[at..place.own], &theirs[other..place.theirs]);
                (at, other) = match place.edit {
                    Edit::Skipped { count } => (place.own, place.theirs + count),
                    Edit::Extra { count } => (place.own + count, place.theirs),
                    Edit::Swapped => (place.own + 2, place.theirs + 2),
                    Edit::Replaced => (place.own + 1, place.theirs + 1),
                };
            }
            prop_assert_eq!(&own[at..], &theirs[other..]);
        }
    }
}
