//! Deviations of a rank from the majority: their kinds, and the calls that they are about.

use crate::facts::alternatives::Alternatives;
use crate::model::ddp_frames::DdpPart;
use crate::model::index::Job;
use crate::words::{duration, line_of, ranks, within};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;

/// A deviation of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It left out `count` calls.
    Skipped(Deed),
    /// Its DDP model's backward pass ran, and did not reduce all of its gradients.
    Unused(Deed),
    /// It made `count` calls of its own.
    Extra(Deed),
    /// It made two calls in the other order, or `count` of them in another.
    Swapped(Deed),
    /// It left a loop that the others are still in.
    LeftLoop {
        /// True if the loop is one of DDP's training steps.
        ddp: bool,
        /// The number of times it made the call in which the others wait, if that is known.
        rounds: Option<usize>,
        /// The number of calls of the loop that it left out, if that is known.
        short_by: Option<usize>,
    },
    /// It goes on with a loop that the others have left.
    StayedInLoop {
        /// True if the loop is one of DDP's training steps.
        ddp: bool,
    },
    /// It called something else in the place of the others' call, as the calls behind both show.
    Replaced,
    /// It called something else.
    Other,
}

impl Reason {
    /// The same, no surer than that.
    pub(crate) fn at_most(mut self, sure: Alternatives) -> Reason {
        if let Reason::Skipped(deed)
        | Reason::Unused(deed)
        | Reason::Extra(deed)
        | Reason::Swapped(deed) = &mut self
        {
            deed.alternatives = deed.alternatives.max(sure);
        }
        self
    }

    /// True if both are the same thing done: of the same kind, and about the same calls.
    pub(crate) fn same(&self, other: &Reason) -> bool {
        let calls = |reason: &Reason| match reason {
            Reason::Skipped(deed)
            | Reason::Unused(deed)
            | Reason::Extra(deed)
            | Reason::Swapped(deed) => Some((deed.op.clone(), deed.seq, deed.count)),
            _ => None,
        };
        std::mem::discriminant(self) == std::mem::discriminant(other) && calls(self) == calls(other)
    }
}

/// Calls left out, added or swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    /// The first of them.
    pub(crate) op: String,
    /// The call on objects that it is a part of, if a plan tells.
    pub(crate) part_of: Option<String>,
    /// Its number in the group.
    pub(crate) seq: u64,
    /// The last number that it could have as well.
    pub(crate) last_seq: u64,
    /// The pause that tells which of them it is, if times do.
    pub(crate) pause: Option<Pause>,
    /// The number of calls.
    pub(crate) count: usize,
    /// Its line.
    pub(crate) line: Option<String>,
    /// For swaps, the second call; of more than two, in which orders they were made.
    pub(crate) other: Option<(String, Option<String>)>,
    /// The part of DDP that makes the calls by itself, if one does.
    pub(crate) ddp: Option<DdpPart>,
    /// The weight of the open alternatives.
    pub(crate) alternatives: Alternatives,
    /// True if the plan tells it: the rank may not have come so far.
    pub(crate) planned: bool,
}

impl Deed {
    /// One call that a rank made or left out, likely; `of` made it.
    pub(crate) fn of(job: &Job<'_>, record: &CallRecord, of: GlobalRank) -> Deed {
        let seq = record.seq.unwrap_or(0);
        Deed {
            op: record.call.op.clone(),
            part_of: None,
            seq,
            last_seq: seq,
            pause: None,
            count: 1,
            line: line_of(job.log, of, record),
            other: None,
            ddp: DdpPart::of_stack(&record.call.stack),
            alternatives: Alternatives::LessLikely,
            planned: false,
        }
    }

    /// The number that the finding is told under: of calls that are all alike, the one that shows it.
    pub(crate) fn told_seq(&self) -> u64 {
        let known = if self.planned { self.seq } else { self.last_seq };
        self.pause.map_or(known, |pause| pause.seq)
    }

    /// The first of the calls, as people know it.
    pub(crate) fn named(&self) -> String {
        within(self.part_of.as_deref(), &self.op)
    }
}

pub(crate) fn sure(matched: usize) -> Alternatives {
    if matched > 1 { Alternatives::None } else { Alternatives::LessLikely }
}

/// The pause in which a rank left its call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The number that the call would have had, which its next one has.
    pub(crate) seq: u64,
    pub(crate) rank: GlobalRank,
    pub(crate) pause_ps: u64,
    pub(crate) usual_ps: u64,
}

impl Pause {
    /// `2.00 ms passed on rank 2 before its own #6, where 1.00 ms is usual`.
    pub(crate) fn said(&self) -> String {
        format!(
            "{} passed on {} before its own #{}, where {} is usual",
            duration(self.pause_ps),
            ranks(&[self.rank]),
            self.seq,
            duration(self.usual_ps)
        )
    }
}
