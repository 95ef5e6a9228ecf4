//! The value that one operation finds under one key, as far as it does not depend on anybody's speed.

use crate::stores::log::{At, Log, Op, Place, What};
use crate::stores::order::{Order, within};
use lockstep_torch::c10d::store::Store;
use std::collections::BTreeMap;

/// Operations on a key of several ranks that are put in order one by one.
const MAX_ORDERED: usize = 1024;

/// The value of a key for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) there: There,
    pub(super) value: Result<Option<Vec<u8>>, Unordered>,
}

/// The presence of a key when an operation looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum There {
    Yes,
    /// The key does not exist, and never will.
    No,
    /// It comes with this operation, and may be there already.
    Comes(At),
    /// The presence depends on the order of two operations.
    Unsure(Unordered),
}

/// Operations that nothing orders: the one that looks, if none other is named, and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unordered {
    pub(super) one: At,
    pub(super) other: Option<At>,
}

impl Seen {
    pub(super) fn known(value: Option<Vec<u8>>) -> Seen {
        let there = if value.is_some() { There::Yes } else { There::No };
        Seen { there, value: Ok(value) }
    }
}

/// The operations of a job that change a key, by the key.
pub(super) struct Changes<'l> {
    logs: &'l [Log],
    of_key: BTreeMap<(&'l Place, &'l str), Vec<At>>,
}

/// The changes of a key that are done before an operation, and those that may be done beside it.
pub(super) struct Split {
    pub(super) before: Vec<At>,
    pub(super) beside: Vec<At>,
}

impl<'l> Changes<'l> {
    pub(super) fn new(logs: &'l [Log]) -> Changes<'l> {
        let mut of_key: BTreeMap<(&Place, &str), Vec<At>> = BTreeMap::new();
        for (rank, log) in logs.iter().enumerate() {
            for (at, op) in log.ops.iter().enumerate().filter(|(_, op)| op.what.changes()) {
                for key in &op.keys {
                    of_key.entry((&op.store, key)).or_default().push((rank, at));
                }
            }
        }
        Changes { logs, of_key }
    }

    pub(super) fn op(&self, (rank, at): At) -> Option<&'l Op> {
        self.logs.get(rank)?.ops.get(at)
    }

    /// The keys of a store that anybody ever sets.
    pub(super) fn keys(&self, store: &Place) -> Vec<&'l str> {
        let keys = self.of_key.keys().filter(|(of, _)| *of == store);
        keys.map(|(_, key)| *key).collect()
    }

    /// All changes of a key.
    pub(super) fn of_key<'s>(&'s self, store: &'s Place, key: &'s str) -> &'s [At] {
        let changes: Option<&Vec<At>> = self.of_key.get(&(store, key));
        changes.map(Vec::as_slice).unwrap_or_default()
    }

    /// True if all changes of a key are additions.
    pub(super) fn only_adds(&self, store: &Place, key: &str) -> bool {
        let changes = self.of_key(store, key);
        changes.iter().all(|at| matches!(self.what(*at), Some(What::Add(_))))
    }

    fn what(&self, at: At) -> Option<&'l What> {
        self.op(at).map(|op| &op.what)
    }

    /// The changes of a key, seen from an operation.
    pub(super) fn split(&self, from: At, store: &Place, key: &str, order: &Order<'_>) -> Split {
        let changes = self.of_key(store, key);
        order.spend(changes.len());
        if changes.iter().all(|(rank, _)| *rank == from.0) {
            let before = changes.iter().copied().filter(|change| change.1 < from.1).collect();
            return Split { before, beside: Vec::new() };
        }
        let (done, later) = (order.before(from), order.after(from));
        let mut split = Split { before: Vec::new(), beside: Vec::new() };
        for &change in changes.iter().filter(|change| **change != from) {
            if within(change, &done) {
                split.before.push(change);
            } else if later.get(change.0).is_some_and(|first| change.1 < *first) {
                split.beside.push(change);
            }
        }
        split
    }

    /// The value that an operation finds under a key.
    pub(super) fn seen(&self, from: At, store: &Place, key: &str, order: &Order<'_>) -> Seen {
        let Split { before, beside } = self.split(from, store, key, order);
        let held = self.held(store, key, &before, order);
        if beside.is_empty() {
            return held;
        }
        let unordered = |other: &At| Unordered { one: *other, other: None };
        // If the key already has the value that all compete to set, nobody changes it.
        let competes = |expected: &[u8], desired: &[u8]| match &held.value {
            Ok(Some(value)) => value != expected || value == desired,
            _ => false,
        };
        let deletes = |at: &&At| match self.what(**at) {
            Some(What::CompareSet { expected, desired }) => !competes(expected, desired),
            Some(What::Delete) | None => true,
            Some(_) => false,
        };
        if let Some(delete) = beside.iter().find(deletes) {
            let unordered = unordered(delete);
            return Seen { there: There::Unsure(unordered), value: Err(unordered) };
        }
        let same = |held: &Option<Vec<u8>>| {
            let leaves = |at: &At| match self.what(*at) {
                Some(What::Set(value)) => Some(value) == held.as_ref(),
                // Asks what a counter holds.
                Some(What::Add(0)) => held.is_some(),
                Some(What::CompareSet { expected, desired }) => competes(expected, desired),
                _ => false,
            };
            beside.iter().all(leaves)
        };
        match &held.there {
            There::Yes => match &held.value {
                Ok(value) if same(value) => held,
                _ => {
                    let value =
                        Err(beside.first().map_or(Unordered { one: from, other: None }, unordered));
                    Seen { there: There::Yes, value }
                }
            },
            There::No => {
                let Some(&first) = beside.first() else { return held };
                if let Some(other) = beside.iter().find(|other| other.0 != first.0) {
                    let unordered = Unordered { one: first, other: Some(*other) };
                    return Seen { there: There::Unsure(unordered), value: Err(unordered) };
                }
                let value = self.applied(store, key, None, &[first]);
                let value = match beside.len() == 1 || same(&value) {
                    true => Ok(value),
                    false => Err(beside.get(1).map_or(unordered(&first), unordered)),
                };
                Seen { there: There::Comes(first), value }
            }
            _ => held,
        }
    }

    /// The value of a key once these are done, and nothing else is.
    pub(super) fn held(&self, store: &Place, key: &str, done: &[At], order: &Order<'_>) -> Seen {
        let Some(&first) = done.first() else { return Seen::known(None) };
        let one_rank = done.iter().all(|at| at.0 == first.0);
        let only_adds = done.iter().all(|at| matches!(self.what(*at), Some(What::Add(_))));
        if one_rank || only_adds {
            return Seen::known(self.applied(store, key, None, done));
        }
        let unsure = |unordered: Unordered| {
            let stays =
                |at: &At| !matches!(self.what(*at), Some(What::Delete | What::CompareSet { .. }));
            let there = match done.iter().all(stays) {
                true => There::Yes,
                false => There::Unsure(unordered),
            };
            Seen { there, value: Err(unordered) }
        };
        if done.len() > MAX_ORDERED {
            return unsure(Unordered { one: first, other: done.last().copied() });
        }
        // Whatever comes before another has fewer before it.
        let mut sorted: Vec<(usize, At, Vec<usize>)> = done
            .iter()
            .map(|at| {
                let before = order.before(*at);
                (before.iter().sum(), *at, before)
            })
            .collect();
        sorted.sort_by_key(|(sum, at, _)| (*sum, *at));
        // The values before one that is set after all of them do not matter any more.
        let overwrites = |at: &At| matches!(self.what(*at), Some(What::Set(_) | What::Delete));
        let fresh = (0..sorted.len()).rev().find(|nth| {
            let (earlier, rest) = sorted.split_at(*nth);
            rest.first().is_some_and(|(_, at, before)| {
                overwrites(at) && earlier.iter().all(|(_, other, _)| within(*other, before))
            })
        });
        let rest = sorted.get(fresh.unwrap_or(0)..).unwrap_or_default();
        for (nth, (_, later, before)) in rest.iter().enumerate() {
            let earlier = rest.iter().take(nth);
            let mut unordered = earlier.filter(|(_, at, _)| !within(*at, before));
            if let Some((_, at, _)) = unordered.find(|(_, at, _)| !self.commute(*at, *later)) {
                return unsure(Unordered { one: *at, other: Some(*later) });
            }
        }
        let rest: Vec<At> = rest.iter().map(|(_, at, _)| *at).collect();
        Seen::known(self.applied(store, key, None, &rest))
    }

    /// True if two changes have the same result in either order.
    fn commute(&self, one: At, other: At) -> bool {
        match (self.what(one), self.what(other)) {
            (Some(What::Add(_)), Some(What::Add(_))) => true,
            (Some(What::Delete), Some(What::Delete)) => true,
            (Some(What::Set(one)), Some(What::Set(other))) => one == other,
            (Some(What::Append(one)), Some(What::Append(other))) => one == other,
            (Some(one @ What::CompareSet { .. }), Some(other)) => one == other,
            _ => false,
        }
    }

    /// The value of the key after changes in this order.
    pub(super) fn applied(
        &self,
        store: &Place,
        key: &str,
        held: Option<&[u8]>,
        changes: &[At],
    ) -> Option<Vec<u8>> {
        let mut table = Store::new(store.kind());
        if let Some(held) = held {
            let _ = table.set(key, held);
        }
        for change in changes {
            let Some(op) = self.op(*change) else { continue };
            let _ = crate::stores::answer::change(&mut table, key, &op.what);
        }
        table.get(key).ok()?.ready()
    }
}
