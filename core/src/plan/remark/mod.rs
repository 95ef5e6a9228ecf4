//! Facts that no call of a plan shows and the diagnosis needs: groups that ranks make differently, works that
//! nothing waits for, parts of a program that were not followed ([`Remark`]), waits in a store that never end
//! ([`LostWait`]), and backward passes that reduce nothing ([`BackwardPass`]).
//!
//! A plan keeps each in the name of an operation that takes no time, or in the `via` of an operation.
//! PyTorch's layer writes these names and the diagnosis parses them, both from here.

mod backward_pass;
mod lost_wait;

pub use backward_pass::{BACKWARD, BackwardPass};
pub use lost_wait::{Lost, LostWait};

use crate::plan::{Action, Op, SourceLine};
use crate::rank::GlobalRank;
use std::fmt;

/// The description of the group in which a plan shows waits in stores, which are no collectives.
pub const STORE_GROUP: &str = "what ranks wait for in stores";

/// Something that a rank does and that none of its calls shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
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
        /// The error that waiting would raise.
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
    /// A receive of NCCL's, which ignores tags, gets a message that was sent with another tag.
    TagIgnored {
        /// The receive's.
        received: i64,
        /// The send's.
        sent: i64,
        /// The sender.
        from: GlobalRank,
    },
    /// An optimizer steps on gradients that DDP has not reduced.
    NotReduced {
        /// True if the backward pass went past DDP, through the model that it wraps; false if it ran under
        /// `no_sync()`.
        past: bool,
    },
    /// A part of the program that was run, and of which nothing else is known: which calls it makes, or which
    /// parameters it uses.
    NotFollowed {
        /// `Net.forward`.
        what: String,
        /// Its line in the program's text, counted from 1.
        line: u32,
        /// The reason: a few words behind "since".
        why: String,
    },
    /// The plan was recovered from a recording that does not show this, which is assumed.
    Assumed {
        /// The assumption, as a clause.
        what: String,
    },
}

impl Remark {
    /// The remark that an operation makes: one that idles for no time, under the remark's name.
    pub fn of(op: &Op) -> Option<Remark> {
        match &op.action {
            Action::Sleep { name, duration_ns: 0 } => Remark::parse(name),
            _ => None,
        }
    }

    /// The operation that makes this remark.
    pub fn to_op(&self, at: Option<SourceLine>) -> Op {
        Op::new(Action::Sleep { name: self.to_string().into(), duration_ns: 0 }, at)
    }

    /// The remark that an operation's name describes; `None` for any other name.
    pub fn parse(name: &str) -> Option<Remark> {
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
        let tag = || {
            let (received, rest) = name.strip_prefix(TAGGED)?.split_once(SENT)?;
            let (sent, from) = rest.split_once(SENDER)?;
            let from = GlobalRank(from.parse().ok()?);
            Some(Remark::TagIgnored {
                received: received.parse().ok()?,
                sent: sent.parse().ok()?,
                from,
            })
        };
        let not_reduced = || match name.strip_prefix(STEPS)? {
            UNSYNCED => Some(Remark::NotReduced { past: false }),
            PAST => Some(Remark::NotReduced { past: true }),
            _ => None,
        };
        let not_followed = || {
            let (what, rest) = name.split_once(LINE)?;
            let (line, why) = rest.split_once(UNFOLLOWED)?;
            let line = line.parse().ok()?;
            Some(Remark::NotFollowed { what: what.to_owned(), line, why: why.to_owned() })
        };
        let assumed = || {
            let what = name.strip_prefix(ASSUMED)?.to_owned();
            Some(Remark::Assumed { what })
        };
        let of_program = || tag().or_else(not_reduced).or_else(assumed).or_else(not_followed);
        of_program()
            .or_else(new_group)
            .or_else(dropped)
            .or_else(left)
            .or_else(unheld)
            .or_else(failed)
    }
}

const DROPPED: &str = ": its work is let go of at once";
const HELD: &str = ": its work is held by ";
const UNHELD: &str = ", which lets go of it";
const LEFT: &str = ": nothing waits for it";
const TAGGED: &str = "the receive of tag ";
const SENT: &str = " gets what was sent with tag ";
const SENDER: &str = " by rank ";
const STEPS: &str = "optimizer.step on gradients of ";
const UNSYNCED: &str = "a pass under no_sync()";
const PAST: &str = "a pass through the wrapped model";
const LINE: &str = " in line ";
const UNFOLLOWED: &str = " is not followed, since ";
const ASSUMED: &str = "the replay assumes: ";
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
            Remark::TagIgnored { received, sent, from } => {
                write!(f, "{TAGGED}{received}{SENT}{sent}{SENDER}{from}")
            }
            Remark::NotReduced { past } => {
                write!(f, "{STEPS}{}", if *past { PAST } else { UNSYNCED })
            }
            Remark::NotFollowed { what, line, why } => {
                write!(f, "{what}{LINE}{line}{UNFOLLOWED}{why}")
            }
            Remark::Assumed { what } => write!(f, "{ASSUMED}{what}"),
        }
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
            nth in 0usize..9,
        ) {
            let remarks = [
                Remark::NewGroup {
                    name: "3".into(),
                    ranks: ranks.into_iter().map(GlobalRank).collect(),
                },
                Remark::Failed { call: "all_reduce".into(), error: error.clone() },
                Remark::Dropped { call: "isend".into() },
                Remark::Left { call: "irecv".into() },
                Remark::Unheld { call: "irecv".into(), name: "req".into() },
                Remark::TagIgnored { received: -3, sent: 4, from: GlobalRank(2) },
                Remark::NotReduced { past: nth % 2 == 0 },
                Remark::NotFollowed { what: "Net.forward".into(), line: 7, why: error.clone() },
                Remark::Assumed { what: error },
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
