//! The order of operations: a rank's own order, barriers of all ranks, and waits that were answered.

use super::log::{At, Log};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// The order of all operations, as far as it does not depend on anybody's speed.
pub(super) struct Order<'l> {
    logs: &'l [Log],
    /// Per operation, those that it waits for.
    waits_for: BTreeMap<At, BTreeSet<At>>,
    /// Per operation, those that it does not begin before.
    begins_after: BTreeMap<At, BTreeSet<At>>,
    /// Per operation, those that wait for it.
    lets_go: BTreeMap<At, BTreeSet<At>>,
    /// The number of operations that may still be looked at.
    budget: Cell<u64>,
}

impl<'l> Order<'l> {
    pub(super) fn new(logs: &'l [Log], budget: u64) -> Order<'l> {
        let none = BTreeMap::new;
        let budget = Cell::new(budget);
        Order { logs, waits_for: none(), begins_after: none(), lets_go: none(), budget }
    }

    /// `later` does not end before `earlier` is done.
    pub(super) fn wait(&mut self, later: At, earlier: At) {
        self.waits_for.entry(later).or_default().insert(earlier);
        self.lets_go.entry(earlier).or_default().insert(later);
    }

    /// `later` does not begin before `earlier` is done.
    pub(super) fn follow(&mut self, later: At, earlier: At) {
        self.wait(later, earlier);
        self.begins_after.entry(later).or_default().insert(earlier);
    }

    /// True if the search has used up its budget.
    pub(super) fn exhausted(&self) -> bool {
        self.budget.get() == 0
    }

    /// Counts steps against the budget.
    pub(super) fn spend(&self, steps: usize) {
        self.budget.set(self.budget.get().saturating_sub(steps as u64));
    }

    fn barriers(&self, (rank, at): At) -> u32 {
        self.logs.get(rank).and_then(|log| log.ops.get(at)).map_or(0, |op| op.barriers)
    }

    /// Per rank, how many of its first operations are done before this one begins, whatever it
    /// waits for once it has begun.
    pub(super) fn before(&self, (rank, at): At) -> Vec<usize> {
        let passed = self.barriers((rank, at));
        let until = |log: &Log| log.ops.partition_point(|op| op.barriers < passed);
        let mut done: Vec<usize> = self.logs.iter().map(until).collect();
        self.spend(done.len());
        if let Some(own) = done.get_mut(rank) {
            *own = at;
        }
        let mut open = vec![(rank, 0, at)];
        for (other, nth) in self.begins_after.get(&(rank, at)).into_iter().flatten() {
            let Some(known) = done.get_mut(*other).filter(|known| **known <= *nth) else {
                continue;
            };
            open.push((*other, *known, nth + 1));
            *known = nth + 1;
        }
        while let Some((rank, from, to)) = open.pop() {
            for earlier in self.waits_for.range((rank, from)..(rank, to)).flat_map(|(_, e)| e) {
                self.spend(1);
                let (other, nth) = *earlier;
                let Some(known) = done.get_mut(other) else { continue };
                if *known <= nth && !self.exhausted() {
                    open.push((other, *known, nth + 1));
                    *known = nth + 1;
                }
            }
        }
        done
    }

    /// Per rank, from which of its operations on it begins when this one is done.
    pub(super) fn after(&self, (rank, at): At) -> Vec<usize> {
        let passed = self.barriers((rank, at));
        let from = |log: &Log| log.ops.partition_point(|op| op.barriers <= passed);
        let mut first: Vec<usize> = self.logs.iter().map(from).collect();
        self.spend(first.len());
        if let Some(own) = first.get_mut(rank) {
            *own = at + 1;
        }
        let mut open = vec![(rank, at, usize::MAX)];
        while let Some((rank, from, to)) = open.pop() {
            for later in self.lets_go.range((rank, from)..(rank, to)).flat_map(|(_, l)| l) {
                self.spend(1);
                let (other, nth) = *later;
                let Some(known) = first.get_mut(other) else { continue };
                if *known > nth && !self.exhausted() {
                    open.push((other, nth, *known));
                    *known = nth;
                }
            }
        }
        first
    }
}

/// True if an operation is among the first `done` ones of its rank.
pub(super) fn within((rank, at): At, done: &[usize]) -> bool {
    done.get(rank).is_some_and(|done| at < *done)
}
