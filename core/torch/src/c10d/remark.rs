//! The notes of [`Remark`]s while a rank is recorded, and which of them a plan keeps: whether a
//! work was waited for, or groups were made alike, is only known at the end.

use super::dist::Dist;
use super::recorded::{GivenTag, Noted, Recorded};
use super::state::RankState;
use super::work::{Work, WorkState};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Action, Op, SourceLine};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, VecDeque};

/// The facts that are known once a rank has been recorded as a whole.
pub(super) struct Whole<'w> {
    groups_alike: bool,
    works: &'w [WorkState],
    /// Before this operation the rank waits for others once more.
    last_wait: u32,
}

impl<'w> Whole<'w> {
    pub(super) fn of(groups_alike: bool, works: &'w [WorkState], ops: &[Recorded]) -> Whole<'w> {
        let waits = |recorded: &Recorded| match recorded {
            Recorded::Op(op) => match &op.action {
                Action::Wait { .. } | Action::Die { .. } => true,
                action => !action.calls().is_empty() && !action.is_async(),
            },
            _ => false,
        };
        let last_wait = ops.iter().rposition(waits).map_or(0, |at| at as u32);
        Whole { groups_alike, works, last_wait }
    }
}

impl Noted {
    /// True if the remark is reported at the end. A remark on a work is not if the program waited for the
    /// work, which reported it already; one on a group is not if all ranks make the same groups.
    pub(super) fn is_said(&self, whole: &Whole<'_>) -> bool {
        let work = |Work(work): Work| whole.works.get(work as usize);
        let unheard = self.work.is_none_or(|of| work(of).is_none_or(|work| !work.waited));
        let last = || {
            let op = self.work.and_then(work).and_then(|work| work.ops.first());
            op.is_some_and(|op| *op >= whole.last_wait)
        };
        match &self.remark {
            Remark::NewGroup { .. } => !whole.groups_alike,
            Remark::Left { .. } => {
                let dropped = self.work.and_then(work).is_some_and(|work| work.dropped);
                unheard && !dropped && last()
            }
            // A work with no later wait is reported as left.
            Remark::Unheld { .. } => unheard && !last(),
            Remark::Failed { .. } | Remark::Dropped { .. } => unheard,
            Remark::TagIgnored { .. }
            | Remark::NotReduced { .. }
            | Remark::NotFollowed { .. }
            | Remark::Assumed { .. } => true,
        }
    }

    /// The moment of the plan that says it.
    pub(super) fn op(self) -> Op {
        self.remark.to_op(self.at)
    }
}

/// True if every rank calls `new_group` for the same ranks in the same order, as far as it comes.
pub(super) fn groups_made_alike(ranks: &[RankState]) -> bool {
    let of = |state: &'_ RankState| -> Vec<Vec<GlobalRank>> {
        let made = state.recorded.iter().filter_map(|recorded| match recorded {
            Recorded::Remark(Noted { remark: Remark::NewGroup { ranks, .. }, .. }) => {
                Some(ranks.clone())
            }
            _ => None,
        });
        made.collect()
    };
    let made: Vec<_> = ranks.iter().map(of).collect();
    let longest = made.iter().max_by_key(|made| made.len()).cloned().unwrap_or_default();
    let ends = |state: &RankState| {
        matches!(state.recorded.last(), Some(Recorded::Op(Op { action: Action::Die { .. }, .. })))
    };
    made.iter().zip(ranks).all(|(made, state)| match ends(state) {
        true => longest.starts_with(made),
        false => longest == *made,
    })
}

impl GivenTag {
    /// The operation of the plan that says that a receive gets a message sent with another tag.
    pub(super) fn op(self, sent: i64) -> Op {
        let remark = Remark::TagIgnored { received: self.tag, sent, from: self.lane.1 };
        Noted { remark, work: None, at: self.at }.op()
    }
}

/// The receives on NCCL that get a message sent with another tag: per receiving rank, by their index in the
/// rank's records, the tag of the send.
pub(super) fn tags_ignored(ranks: &[RankState]) -> Vec<BTreeMap<usize, i64>> {
    let mut sent: BTreeMap<_, VecDeque<i64>> = BTreeMap::new();
    let given = |state: &RankState| -> Vec<(usize, GivenTag)> {
        let tags = state.recorded.iter().enumerate().filter_map(|(at, one)| match one {
            Recorded::Tag(given) => Some((at, *given)),
            _ => None,
        });
        tags.collect()
    };
    let all: Vec<_> = ranks.iter().map(given).collect();
    for (_, given) in all.iter().flatten().filter(|(_, given)| given.sends) {
        sent.entry(given.lane).or_default().push_back(given.tag);
    }
    let ignored = |given: Vec<(usize, GivenTag)>| {
        let receives = given.into_iter().filter(|(_, given)| !given.sends);
        let other = receives.filter_map(|(at, given)| {
            let tag = sent.get_mut(&given.lane)?.pop_front()?;
            (tag != given.tag).then_some((at, tag))
        });
        other.collect()
    };
    all.into_iter().map(ignored).collect()
}

impl Dist<'_> {
    /// Notes a remark at this point of the rank, about a work if there is one.
    pub(super) fn remark(&mut self, remark: Remark, work: Option<Work>) {
        let at = self.state.at;
        self.remark_at(remark, work, at);
    }

    /// Notes that an optimizer steps on gradients that DDP has not reduced: those of a pass under
    /// `no_sync()`, or `past` DDP through the model that it wraps.
    pub fn step_on_local_gradients(&mut self, past: bool) {
        self.remark(Remark::NotReduced { past }, None);
    }

    /// Notes a part of the program of which nothing is known but that it was run: `Net.forward`, in that
    /// line, and why.
    pub fn note_unfollowed(&mut self, what: String, line: u32, why: String) {
        self.remark(Remark::NotFollowed { what, line, why }, None);
    }

    /// Notes a remark on another line.
    pub(super) fn remark_at(&mut self, remark: Remark, work: Option<Work>, at: Option<SourceLine>) {
        self.state.recorded.push(Recorded::Remark(Noted { remark, work, at }));
    }
}
