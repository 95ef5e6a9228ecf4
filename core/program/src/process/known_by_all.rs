//! The facts that a rank hears from the others while it runs, and only the whole job knows: whether
//! they wrapped the same model, how many inputs they have in a `join()` and which of their passes
//! reduce, and what they sent in object calls.
//!
//! Ranks are executed one after the other, so a program that needs this is executed again with
//! what the first time has shown.

use crate::dist::sent_objects::{Board, Sent};
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::Compiled;
use lockstep_torch::ddp::join::JoinPasses;
use lockstep_torch::ddp::model::Model;
use lockstep_torch::ddp::{DdpError, verify_params};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most executions of a program for these facts: an end that was learned from other ranks can change the
/// calls after it, but those rarely depend on other ranks again.
pub(crate) const MAX_TIMES: usize = 4;

/// The facts that one rank has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    wrapped: Vec<(Vec<GlobalRank>, Arc<Model>)>,
    /// By the number of a wrapped model, the order of gradients from which its buckets are rebuilt.
    rebuilt: BTreeMap<usize, Vec<u32>>,
    /// By `join()`, of each input whether its pass reduces.
    joined: Vec<(Vec<GlobalRank>, Vec<bool>)>,
    /// The rank's use of stores.
    pub(crate) stores: crate::stores::Log,
    /// The objects that it sent in object calls.
    pub(crate) objects: Sent,
}

impl Shown {
    /// Notes that a model is wrapped in DDP by these ranks; returns how many were before.
    pub(crate) fn wrap(&mut self, members: Vec<GlobalRank>, model: Arc<Model>) -> usize {
        self.wrapped.push((members, model));
        self.wrapped.len() - 1
    }

    /// Notes the order of gradients from which a wrapped model's buckets are rebuilt.
    pub(crate) fn rebuilds(&mut self, wrapped: usize, order: Vec<u32>) {
        self.rebuilt.entry(wrapped).or_insert(order);
    }

    /// Notes a `join()` that these ranks enter; returns how many were before.
    pub(crate) fn join(&mut self, members: Vec<GlobalRank>) -> usize {
        self.joined.push((members, Vec::new()));
        self.joined.len() - 1
    }

    /// Notes another input of a `join()`, and whether its pass reduces; returns how many were before.
    pub(crate) fn input(&mut self, join: usize, syncs: bool) -> u32 {
        let Some((_, inputs)) = self.joined.get_mut(join) else { return 0 };
        inputs.push(syncs);
        inputs.len() as u32 - 1
    }
}

/// The facts that ranks hear from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The error of each refused DDP constructor, by rank and the constructor's number.
    refusals: BTreeMap<(GlobalRank, usize), DdpError>,
    /// By rank and the number of its wrapped model, the order of its group's rank 0, where it is another one.
    rebuilt: BTreeMap<(GlobalRank, usize), Vec<u32>>,
    /// By rank and which of its joins, the passes of all members.
    passes: BTreeMap<(GlobalRank, usize), Arc<JoinPasses>>,
    /// The answers of stores.
    pub(crate) stores: Arc<crate::stores::Agreed>,
    /// The objects that ranks send each other in object calls.
    pub(crate) objects: Arc<Board>,
}

impl Known {
    /// The error that a rank's constructor raises.
    pub(crate) fn refusal(&self, rank: GlobalRank, wrapped: usize) -> Option<&DdpError> {
        self.refusals.get(&(rank, wrapped))
    }

    /// The order of gradients from which rank 0 of a wrapped model's group rebuilds its buckets, where it is not
    /// the rank's own.
    pub(crate) fn rebuilt(&self, rank: GlobalRank, wrapped: usize) -> Option<&[u32]> {
        self.rebuilt.get(&(rank, wrapped)).map(Vec::as_slice)
    }

    /// The passes of all members of a rank's join.
    pub(crate) fn passes(&self, rank: GlobalRank, join: usize) -> Option<Arc<JoinPasses>> {
        self.passes.get(&(rank, join)).cloned()
    }

    /// Adds the assumptions about a program's stores.
    pub(crate) fn assumed(&self, mut compiled: Compiled, shown: &[Shown]) -> Compiled {
        let logs: Vec<_> = shown.iter().map(|shown| shown.stores.clone()).collect();
        compiled.assumed.extend(self.stores.assumed(&logs));
        compiled
    }

    /// These facts with other answers of stores.
    pub(crate) fn with_stores(&self, stores: crate::stores::Agreed) -> Known {
        Known { stores: Arc::new(stores), ..self.clone() }
    }

    /// These facts with other objects.
    pub(crate) fn with_objects(&self, objects: Board) -> Known {
        Known { objects: Arc::new(objects), ..self.clone() }
    }

    /// The facts that follow from those that all ranks have shown, in rank order, and from the
    /// answers of stores.
    pub(crate) fn from(shown: &[Shown], stores: crate::stores::Agreed) -> Known {
        let objects = Arc::new(Board::of(shown.iter().map(|shown| &shown.objects)));
        let mut known = Known { stores: Arc::new(stores), objects, ..Known::default() };
        let models = matched(shown, |shown| &shown.wrapped);
        for together in models.values() {
            let Some((rank0, nth0, first)) = together.first() else { continue };
            let order_of = |rank: GlobalRank, nth: usize| {
                shown.get(rank.0 as usize).and_then(|shown| shown.rebuilt.get(&nth))
            };
            if let Some(order) = order_of(*rank0, *nth0) {
                let others = together
                    .iter()
                    .filter(|(rank, nth, _)| order_of(*rank, *nth).is_some_and(|own| own != order));
                for (rank, nth, _) in others {
                    known.rebuilt.insert((*rank, *nth), order.clone());
                }
            }
            let shapes = |model: &Model| -> Vec<Vec<u64>> {
                model.trained().map(|param| param.shape.clone()).collect()
            };
            // The same model on all ranks, which is nearly always so, is compared by its address.
            if together.iter().all(|(_, _, model)| Arc::ptr_eq(model, first)) {
                continue;
            }
            let shapes: Vec<_> = together.iter().map(|(_, _, model)| shapes(model)).collect();
            for ((rank, nth, _), verified) in together.iter().zip(verify_params(&shapes)) {
                if let Err(error) = verified {
                    known.refusals.insert((*rank, *nth), error);
                }
            }
        }
        for together in matched(shown, |shown| &shown.joined).values() {
            let passes = JoinPasses::of(together.iter().map(|(_, _, own)| own.as_slice()));
            let passes = Arc::new(passes);
            for (rank, nth, _) in together {
                known.passes.insert((*rank, *nth), passes.clone());
            }
        }
        known
    }
}

/// The acts that the same ranks do for the n-th time together: of each rank, in the order of the
/// group, which of its own it is. Left out where not every member does it.
#[allow(clippy::type_complexity, reason = "a table of places")]
fn matched<'s, T>(
    shown: &'s [Shown],
    of: impl Fn(&'s Shown) -> &'s Vec<(Vec<GlobalRank>, T)>,
) -> BTreeMap<(&'s [GlobalRank], usize), Vec<(GlobalRank, usize, &'s T)>> {
    let mut table: BTreeMap<(&[GlobalRank], usize), Vec<(GlobalRank, usize, &T)>> = BTreeMap::new();
    for (rank, shown) in (0..).map(GlobalRank).zip(shown) {
        let mut counts: BTreeMap<&[GlobalRank], usize> = BTreeMap::new();
        for (nth, (members, what)) in of(shown).iter().enumerate() {
            let count = counts.entry(members).or_default();
            table.entry((members, *count)).or_default().push((rank, nth, what));
            *count += 1;
        }
    }
    table.retain(|(members, _), together| {
        let ranks = together.iter().map(|(rank, _, _)| rank);
        members.iter().eq(ranks)
    });
    table
}
