//! The recording of a rank: its operations, and entries that are only settled once the whole job is known.

use super::pairs::Pair;
use super::work::Work;
use lockstep_core::group::GroupId;
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Op, SourceLine};
use lockstep_core::rank::GlobalRank;

/// One operation of a rank under recording.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    /// An operation whose arguments are known.
    Op(Op),
    /// A collective whose number of elements other ranks decide.
    Sized(Op, super::sizes::SizeId),
    /// The rank waits here until every member of a group has made it.
    Connect { group: GroupId, via: &'static str, at: Option<SourceLine> },
    /// The rank waits here until the other one of the pair has come.
    Pair { pair: Pair, at: Option<SourceLine> },
    /// The tag that a send or receive was given which NCCL carries out.
    Tag(GivenTag),
    /// A remark about the rank at this place, unless there turns out to be nothing to say.
    Remark(Noted),
}

/// A remark where it was made, while the job is recorded.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub(super) remark: Remark,
    /// The work that it is about, and that waiting for it makes it void.
    pub(super) work: Option<Work>,
    pub(super) at: Option<SourceLine>,
}

/// The tag that a program gave a send or receive of NCCL's, which matches them by their order alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenTag {
    /// The group, the sender and the receiver.
    pub(super) lane: (GroupId, GlobalRank, GlobalRank),
    /// True for the send.
    pub(super) sends: bool,
    pub(super) tag: i64,
    pub(super) at: Option<SourceLine>,
}
