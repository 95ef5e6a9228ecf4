//! The reports of NCCL's watchdogs: the call in which each rank timed out, and how far it had come.

use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// A call in which a rank timed out.
#[derive(Clone, Copy)]
pub(crate) struct Fired<'a> {
    pub(crate) at: &'a Statement,
    pub(crate) seq: u64,
    pub(crate) op: &'a str,
    numel_in: Option<u64>,
    numel_out: Option<u64>,
}

impl Fired<'_> {
    /// True of a call whose number is no count that the ranks of a group share: a send's and a receive's
    /// counts the calls of two ranks, and of calls made together either is said.
    pub(crate) fn is_of_few(&self) -> bool {
        matches!(self.op, "SEND" | "RECV" | "RECVANYSOURCE" | "COALESCED" | "UNKNOWN")
    }

    /// The collective without what PyTorch's variants of it are called: `ALLGATHER` for
    /// `_ALLGATHER_BASE`.
    pub(crate) fn family(&self) -> &str {
        self.op.trim_start_matches('_').trim_end_matches("_BASE")
    }

    /// The elements that all ranks of the group must have in common, if the call is one of those.
    pub(crate) fn numel(&self) -> Option<u64> {
        match self.family() {
            "ALLREDUCE" | "ALLREDUCE_COALESCED" | "BROADCAST" | "REDUCE" | "ALLGATHER" => {
                self.numel_in
            }
            "REDUCE_SCATTER" => self.numel_out,
            _ => None,
        }
    }

    /// `ALLREDUCE of 1048576 elements`.
    pub(crate) fn described(&self) -> String {
        match self.numel().or(self.numel_in) {
            Some(numel) => format!("{} of {numel} elements", self.op),
            None => self.op.to_owned(),
        }
    }
}

/// The watchdogs' reports, by group and number, ascending: of calls that all ranks of a group
/// number alike, or of the others.
pub(crate) fn fired(statements: &[Statement], of_few: bool) -> BTreeMap<&str, Vec<Fired<'_>>> {
    let mut groups: BTreeMap<&str, Vec<Fired<'_>>> = BTreeMap::new();
    for at in statements {
        if let Said::TimedOut { group, seq, op, numel_in, numel_out } = &at.said {
            let (numel_in, numel_out) = (*numel_in, *numel_out);
            let fired = Fired { at, seq: *seq, op, numel_in, numel_out };
            if fired.is_of_few() == of_few {
                groups.entry(group).or_default().push(fired);
            }
        }
    }
    for fired in groups.values_mut() {
        fired.sort_by(|a, b| (a.seq, a.at.rank, &a.at.place).cmp(&(b.seq, b.at.rank, &b.at.place)));
    }
    groups
}

/// The progress of a rank in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stood {
    /// The number of the last call that it had made.
    pub(crate) enqueued: u64,
    /// The number of the last one that had ended, if that is known.
    pub(crate) completed: Option<u64>,
}

/// The last call in which each rank timed out.
pub(crate) fn furthest<'a>(all: &[Fired<'a>]) -> BTreeMap<GlobalRank, Fired<'a>> {
    all.iter().map(|fired| (fired.at.rank, *fired)).collect()
}

/// The ranks that timed out somewhere, as their own watchdogs or others' say.
pub(crate) fn timed_out(statements: &[Statement]) -> BTreeSet<GlobalRank> {
    let timed_out = |it: &&Statement| matches!(it.said, Said::TimedOut { .. } | Said::Signalled);
    statements.iter().filter(timed_out).map(|it| it.rank).collect()
}
