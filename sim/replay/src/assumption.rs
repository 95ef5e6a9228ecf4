//! Assumptions of a replay: each stands for something that the recording does not show.

use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that a recovered plan assumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumption {
    /// Reductions are sums: dumps do not record the operation.
    Sums,
    /// Roots are the groups' first ranks: dumps do not record the root.
    FirstRankIsRoot,
    /// A reduction or root that one member's recording lacks is the one that another member's tells.
    OfAnotherMember,
    /// The recording names no groups of calls: calls of one operation and size are of the largest group whose members
    /// all made them equally often.
    Groups,
    /// Calls whose group is not known are left out.
    UnknownGroup {
        /// The number of calls, all ranks together.
        calls: u64,
    },
    /// Messages between recorded ranks of which only one side was recorded are left out.
    OneSided {
        /// The number of sends and receives.
        calls: u64,
    },
    /// Calls with more elements than any device holds are of one element.
    HugeSizes,
    /// Element types that cannot be computed with are bytes.
    Bytes {
        /// The type's name.
        dtype: String,
    },
    /// A call that is not known by name is a barrier of its group.
    UnknownCall {
        /// Its name.
        op: String,
    },
    /// Calls whose tensors are not recorded are of one element: a profile has sizes only with record_shapes.
    NoSizes,
    /// Parts of an uneven all_to_all are equal.
    EvenParts,
    /// The first calls of a group are left out, since some members' recorders have dropped them.
    Dropped {
        /// The group's description, or its name if it has none.
        group: String,
        /// The number of calls.
        calls: u64,
    },
    /// The job went on: calls that not all ranks had come out of are left out.
    LeftOut {
        /// The number of calls, all ranks together.
        calls: u64,
    },
    /// Of ranks nothing was recorded: they call as another one does, in the groups that they share.
    LikeAnother {
        /// Which.
        ranks: Vec<GlobalRank>,
        /// As whom.
        like: GlobalRank,
    },
    /// Of ranks nothing was recorded: they receive what recorded ranks send them, and send what these receive.
    Answers {
        /// Which.
        ranks: Vec<GlobalRank>,
    },
    /// Of ranks nothing was recorded, and others wait for them: they ended before that call.
    Ended {
        /// Which.
        ranks: Vec<GlobalRank>,
    },
    /// Ranks are not in a call where their recording ends, and others wait for them: they stay where they are.
    Stays {
        /// Which.
        ranks: Vec<GlobalRank>,
    },
    /// A rank called in a group whose members do not name it: it is one of them.
    Member {
        /// The group's description, or its name if it has none.
        group: String,
    },
    /// The work between calls took as long as the gap between their recorded times.
    Computes,
}

impl Assumption {
    /// True if it is about calls that the recording does not show: a replay with it is no evidence of health.
    pub(crate) fn is_about_calls(&self) -> bool {
        match self {
            Assumption::UnknownCall { .. }
            | Assumption::Dropped { .. }
            | Assumption::LeftOut { .. }
            | Assumption::LikeAnother { .. }
            | Assumption::Answers { .. }
            | Assumption::UnknownGroup { .. }
            | Assumption::OneSided { .. }
            | Assumption::Ended { .. } => true,
            Assumption::Sums
            | Assumption::OfAnotherMember
            | Assumption::Groups
            | Assumption::HugeSizes
            | Assumption::FirstRankIsRoot
            | Assumption::Bytes { .. }
            | Assumption::NoSizes
            | Assumption::EvenParts
            | Assumption::Stays { .. }
            | Assumption::Member { .. }
            | Assumption::Computes => false,
        }
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |ranks: &[GlobalRank]| {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{noun} {}", rank_list(ranks))
        };
        match self {
            Assumption::Sums => f.write_str("reductions are sums: the recording does not tell"),
            Assumption::FirstRankIsRoot => {
                f.write_str("roots are the groups' first ranks: the recording does not tell")
            }
            Assumption::OfAnotherMember => f.write_str(
                "a reduction or root that a rank's recording does not tell is that of another rank in the same call",
            ),
            Assumption::Groups => f.write_str(
                "the recording does not name the groups of its calls: calls of one operation and size are of the \
                 largest group whose members all made them equally often",
            ),
            Assumption::UnknownGroup { calls } => {
                let are = if *calls == 1 { "call is" } else { "calls are" };
                write!(f, "{calls} {are} left out: no group fits, and the recording names none")
            }
            Assumption::OneSided { calls } => {
                let are = if *calls == 1 { "send or receive is" } else { "sends and receives are" };
                write!(f, "{calls} {are} left out: the other rank's recording lacks its side")
            }
            Assumption::HugeSizes => f.write_str(
                "calls with more elements than any device holds are of one element: their recorded sizes are damaged",
            ),
            Assumption::Bytes { dtype } => write!(f, "elements of {dtype} are bytes"),
            Assumption::UnknownCall { op } => write!(f, "{op} is taken for a barrier"),
            Assumption::NoSizes => f.write_str(
                "calls whose sizes were not recorded are of one element: profile with record_shapes=True",
            ),
            Assumption::EvenParts => f.write_str("the parts of every all_to_all are equal"),
            Assumption::Dropped { group, calls } => write!(
                f,
                "the first {calls} recorded calls of {group} are left out: some members' recorders have dropped \
                 theirs"
            ),
            Assumption::LeftOut { calls } => {
                let (noun, are) = if *calls == 1 { ("call", "is") } else { ("calls", "are") };
                write!(f, "{calls} {noun} that not all ranks had come out of {are} left out")
            }
            Assumption::LikeAnother { ranks, like } => {
                write!(f, "{} left nothing: assumed to call as rank {like} does", named(ranks))
            }
            Assumption::Answers { ranks } => write!(
                f,
                "{} left nothing: assumed to receive what others send there, and to send what others receive from there",
                named(ranks)
            ),
            Assumption::Ended { ranks } => {
                write!(
                    f,
                    "{} left nothing and others wait: assumed to have ended there",
                    named(ranks)
                )
            }
            Assumption::Stays { ranks } => {
                write!(f, "{} in no call at the end: assumed to stay there", named(ranks))
            }
            Assumption::Member { group } => {
                write!(f, "who called in {group} is a member of it")
            }
            Assumption::Computes => {
                f.write_str("what happened between calls takes as long as was recorded")
            }
        }
    }
}
