//! What a rank does that no call of the plan shows, and that a diagnosis has to know of. A plan says
//! it in the name of a moment that takes no time, where it happens, and a diagnosis reads it there.

use super::dist::Dist;
use super::job::{RankState, Recorded};
use super::work::{Work, WorkState};
use crate::plan::{Action, Op, SourceLine};
use crate::rank::GlobalRank;
use std::fmt;

/// Something that a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remark {
    /// `new_group`, which every rank is to call, and not every rank calls alike.
    NewGroup {
        /// The group's name on this rank: how many it has made.
        name: String,
        /// The members that it lists, ascending.
        ranks: Vec<GlobalRank>,
    },
    /// An asynchronous call has failed, and the rank never waits for its work.
    Failed {
        /// The call.
        call: String,
        /// What waiting would raise.
        error: String,
    },
    /// The work of a send or receive is let go of as soon as the call returns it.
    Dropped {
        /// `isend` or `irecv`.
        call: String,
    },
    /// The one name that holds the work of a send or receive gets another value, or ends with its
    /// function, before anything has happened that takes time.
    Unheld {
        /// `isend` or `irecv`.
        call: String,
        /// The name.
        name: String,
    },
    /// The work of a send or receive is never waited for, and nothing that follows waits either.
    Left {
        /// `isend` or `irecv`.
        call: String,
    },
}

impl Remark {
    /// What a name tells, if it is one of these.
    pub(crate) fn parse(name: &str) -> Option<Remark> {
        let dropped = || {
            let call = name.strip_suffix(DROPPED)?;
            Some(Remark::Dropped { call: call.to_owned() })
        };
        let failed = || {
            let (call, error) = name.strip_suffix(UNHEARD)?.split_once(" fails with ")?;
            Some(Remark::Failed { call: call.to_owned(), error: error.to_owned() })
        };
        let new_group = || {
            let (list, group) = name.strip_prefix("new_group([")?.split_once("]), group ")?;
            let ranks: Result<Vec<u32>, _> = match list {
                "" => Ok(Vec::new()),
                list => list.split(", ").map(str::parse).collect(),
            };
            let ranks = ranks.ok()?.into_iter().map(GlobalRank).collect();
            Some(Remark::NewGroup { name: group.to_owned(), ranks })
        };
        let left = || {
            let call = name.strip_suffix(LEFT)?;
            Some(Remark::Left { call: call.to_owned() })
        };
        let unheld = || {
            let (call, held) = name.strip_suffix(UNHELD)?.split_once(HELD)?;
            Some(Remark::Unheld { call: call.to_owned(), name: held.to_owned() })
        };
        new_group().or_else(dropped).or_else(left).or_else(unheld).or_else(failed)
    }
}

const DROPPED: &str = ": its work is let go of at once";
const HELD: &str = ": its work is held by ";
const UNHELD: &str = ", which lets go of it";
const LEFT: &str = ": nothing waits for it";
const UNHEARD: &str = ", and nobody waits for it";

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::NewGroup { name, ranks } => {
                let ranks: Vec<String> = ranks.iter().map(GlobalRank::to_string).collect();
                write!(f, "new_group([{}]), group {name}", ranks.join(", "))
            }
            Remark::Failed { call, error } => write!(f, "{call} fails with {error}{UNHEARD}"),
            Remark::Dropped { call } => write!(f, "{call}{DROPPED}"),
            Remark::Unheld { call, name } => write!(f, "{call}{HELD}{name}{UNHELD}"),
            Remark::Left { call } => write!(f, "{call}{LEFT}"),
        }
    }
}

/// What is known once a rank has been recorded as a whole.
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

/// A remark where it was made, while the job is recorded.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    remark: Remark,
    /// The work that it is about, and that waiting for it makes it void.
    work: Option<Work>,
    at: Option<SourceLine>,
}

impl Noted {
    /// Whether there is something to say at the end: a work that was waited for has said it, and
    /// groups that all ranks make alike are as they should be.
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
            // What nothing waits behind is told as that.
            Remark::Unheld { .. } => unheard && !last(),
            Remark::Failed { .. } | Remark::Dropped { .. } => unheard,
        }
    }

    /// The moment of the plan that says it.
    pub(super) fn op(self) -> Op {
        let action = Action::Sleep { name: self.remark.to_string(), duration_ns: 0 };
        Op { action, at: self.at, via: None }
    }
}

/// Whether every rank calls `new_group` for the same ranks in the same order, as far as it comes.
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

impl Dist<'_> {
    /// Notes what is said of this rank here, about a work if it is about one.
    pub(super) fn remark(&mut self, remark: Remark, work: Option<Work>) {
        let at = self.state.at;
        self.remark_at(remark, work, at);
    }

    /// The same of another line.
    pub(super) fn remark_at(&mut self, remark: Remark, work: Option<Work>, at: Option<SourceLine>) {
        self.state.recorded.push(Recorded::Remark(Noted { remark, work, at }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_tells_what_was_said(
            ranks in proptest::collection::vec(0u32..99, 0..5),
            error in "\\PC{0,20}",
            nth in 0usize..5,
        ) {
            let remarks = [
                Remark::NewGroup {
                    name: "3".into(),
                    ranks: ranks.into_iter().map(GlobalRank).collect(),
                },
                Remark::Failed { call: "all_reduce".into(), error },
                Remark::Dropped { call: "isend".into() },
                Remark::Left { call: "irecv".into() },
                Remark::Unheld { call: "irecv".into(), name: "req".into() },
            ];
            let said = remarks[nth].to_string();
            prop_assert_eq!(Remark::parse(&said), Some(remarks[nth].clone()));
        }

        #[test]
        fn no_name_panics(name in "\\PC{0,60}") {
            let _ = Remark::parse(&name);
            let _ = Remark::parse(&format!("new_group([{name}"));
        }
    }
}
