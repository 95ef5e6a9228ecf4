//! A process's side of the stores: its handles, its operations, and their answers.

use crate::stores::handle::{Handle, Of};
use crate::stores::log::{Log, Op, Place, What};
use crate::stores::unknown_answer::{Need, Needed, Stuck, Until};
use lockstep_torch::c10d::Clock;
use lockstep_torch::c10d::store::{Store, StoreKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stores of one rank.
const MAX_STORES: usize = 10_000;

/// The stores of a process.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(super) log: Log,
    /// The values that the rank itself has put into shared stores.
    pub(super) tables: BTreeMap<Arc<Place>, Store>,
    /// Its own stores.
    pub(super) hashes: Vec<Store>,
    made: usize,
    /// The places where it listens.
    pub(super) serves: BTreeSet<Place>,
    pub(super) need: Need,
    /// True while the condition of a `while` is evaluated.
    pub(super) polling: bool,
    /// True if the condition compares with one value only, by `==` or `!=`.
    pub(super) exact: bool,
    /// True if the condition has waited for its answer.
    pub(super) waited: bool,
    /// The result of `_get_default_store()`, if the program passed a store.
    pub(super) given: Option<Arc<Handle>>,
}

impl Side {
    /// The log of the rank, when it has ended; `clock` says when that was, if it was its own end.
    pub(crate) fn end(&mut self, failure: Option<&str>, clock: Option<Clock>) -> Log {
        let misused =
            failure.is_some_and(|text| text.contains(crate::stores::unknown_answer::CLASS));
        if !self.log.stops() {
            let tells = |op: &Op| !matches!(op.what, What::Set(_) | What::Append(_));
            let last = self.log.ops.iter().rposition(|op| op.told.is_none() && tells(op));
            let last = last.filter(|_| misused).map(|op| Needed { op, until: None });
            self.log.stuck = self.need.get().or(last).map(|needed| {
                if let (Some(until), Some(op)) = (needed.until, self.log.ops.get_mut(needed.op)) {
                    op.what = match until {
                        Until::AtLeast(number) => What::AtLeast { number, exact: false },
                        Until::Is(value) => What::Until(value),
                    };
                }
                needed.op
            });
        }
        self.log.end = clock.filter(|_| !self.log.stops());
        std::mem::take(&mut self.log)
    }

    /// The process may go on only if it has all answers that it has asked for.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn go_on(&self) -> anyhow::Result<()> {
        match self.log.stops() || self.need.get().is_some() {
            true => Err(anyhow::Error::new(Stuck)),
            false => Ok(()),
        }
    }

    /// A new store that only the process has.
    pub(super) fn hash(&mut self) -> anyhow::Result<Of> {
        self.counted()?;
        self.hashes.push(Store::new(StoreKind::Hash));
        Ok(Of::Process(self.hashes.len() - 1))
    }

    /// The number of stores that were made before.
    pub(super) fn counted(&mut self) -> anyhow::Result<usize> {
        anyhow::ensure!(self.made < MAX_STORES, "a process has at most {MAX_STORES} stores");
        self.made += 1;
        Ok(self.made - 1)
    }
}
