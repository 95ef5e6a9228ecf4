//! Passes that reduce nothing on one rank, while another reduces: under `no_sync()` in other steps, or
//! past DDP. Only a plan tells them from calls that are left out for other reasons.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::{Deed, Reason};
use crate::model::ddp_frames::DdpPart;
use crate::model::index::Job;
use crate::words::at_line;
use lockstep_core::group::GroupId;
use lockstep_core::plan::remark::{BACKWARD, BackwardPass};
use lockstep_core::plan::{Action, Call, Op, Plan, SourceLine};
use lockstep_core::rank::GlobalRank;
use std::cmp::Ordering;

/// The text on two ranks' passes that differ, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    said: String,
    fix: &'static str,
}

/// The reason that `rank` made other calls of DDP's than `peer`, if it is that another pass of it
/// reduces nothing: no parameter went without a gradient then.
pub(crate) fn told(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    peer: GlobalRank,
    why: Reason,
) -> (Reason, Option<Told>) {
    let of_ddp = match &why {
        Reason::Unused(_) => true,
        Reason::Skipped(deed) | Reason::Extra(deed) => deed.ddp.is_some(),
        Reason::LeftLoop { ddp, .. } | Reason::StayedInLoop { ddp } => *ddp,
        Reason::Swapped(_) | Reason::Replaced | Reason::Other => false,
    };
    let plan = job.log.plan.as_deref();
    let differing = || differing(plan?, rank, peer);
    if why == Reason::Other
        && let Some((plan, differing)) = plan.zip(differing())
        && let Some(why) = differing.why(plan, group, rank, peer)
    {
        // With join(), more differs than the calls that the pass leaves out, as a consequence of them.
        return (why, Some(differing.told(plan, rank, peer)));
    }
    let told = plan.filter(|_| of_ddp).zip(differing());
    let told = told.map(|(plan, differing)| differing.told(plan, rank, peer));
    let why = match why {
        Reason::Unused(deed) if told.is_some() => Reason::Skipped(deed),
        why => why,
    };
    (why, told)
}

/// The first pass that one of two ranks reduces and the other does not.
struct Differing {
    /// Counted from 1.
    number: usize,
    own: (BackwardPass, Option<SourceLine>),
    theirs: (BackwardPass, Option<SourceLine>),
}

fn differing(plan: &Plan, rank: GlobalRank, peer: GlobalRank) -> Option<Differing> {
    let passes = |rank| Some(BackwardPass::of(&plan.program(rank)?.ops));
    let reduces = |pass: BackwardPass| pass == BackwardPass::Reduces;
    let mut both = (1..).zip(passes(rank)?.into_iter().zip(passes(peer)?));
    let (number, (own, theirs)) =
        both.find(|(_, ((own, _), (their, _)))| reduces(*own) != reduces(*their))?;
    Some(Differing { number, own, theirs })
}

impl Differing {
    fn told(&self, plan: &Plan, rank: GlobalRank, peer: GlobalRank) -> Told {
        let line = |at: Option<SourceLine>| at_line(at.map(|at| plan.describe_line(at)));
        let does = |(pass, at), whose: GlobalRank| match pass {
            BackwardPass::Reduces => {
                format!("that of rank {whose}{} reduces its gradients", line(at))
            }
            BackwardPass::Unsynced => {
                format!("that of rank {whose}{} runs under no_sync()", line(at))
            }
            BackwardPass::Past => format!(
                "that of rank {whose}{} goes through model.module, past DDP, which reduces none of its \
                 gradients",
                line(at)
            ),
        };
        let said = format!(
            " Of the ranks' backward passes #{} differs: {}, and {}.",
            self.number,
            does(self.own, rank),
            does(self.theirs, peer)
        );
        let fix = match (self.own.0, self.theirs.0) {
            (BackwardPass::Past, _) | (_, BackwardPass::Past) => {
                "Call the wrapped model on every rank wherever gradients are to be reduced. \
                 find_unused_parameters=True does not help: DDP never sees that pass. model.module is for \
                 passes whose gradients nobody reduces, such as a validation."
            }
            _ => {
                "Enter no_sync() in the same steps on every rank: count accumulated steps alike, by one \
                 number that all ranks have."
            }
        };
        Told { said, fix }
    }

    /// The deviation of `rank` in that pass, calls left out or made on top, if the two reduced as
    /// many buckets before.
    fn why(
        &self,
        plan: &Plan,
        group: GroupId,
        rank: GlobalRank,
        peer: GlobalRank,
    ) -> Option<Reason> {
        let on_top = self.own.0 == BackwardPass::Reduces;
        let buckets = |rank| Some(Buckets::of(&plan.program(rank)?.ops, group, self.number));
        let (own, theirs) = (buckets(rank)?, buckets(peer)?);
        let more = if on_top { &own } else { &theirs };
        let (op, seq) = more.first?;
        if own.before != theirs.before {
            return None;
        }
        let deed = Deed {
            op: op.action.name().to_owned(),
            part_of: None,
            seq,
            last_seq: seq,
            pause: None,
            count: more.count,
            line: op.at.map(|at| plan.describe_line(at)),
            other: None,
            ddp: Some(DdpPart::Backward),
            alternatives: Alternatives::None,
            planned: true,
        };
        Some(if on_top { Reason::Extra(deed) } else { Reason::Skipped(deed) })
    }
}

/// The buckets that a program reduces in one backward pass.
struct Buckets<'a> {
    /// The number that it reduces in the passes before.
    before: usize,
    /// The first, and its number in the group.
    first: Option<(&'a Op, u64)>,
    count: usize,
}

impl<'a> Buckets<'a> {
    fn of(ops: &'a [Op], group: GroupId, number: usize) -> Buckets<'a> {
        let mut found = Buckets { before: 0, first: None, count: 0 };
        let (mut passes, mut inside, mut calls) = (0, false, 0);
        for op in ops {
            if let Action::Compute { name, .. } = &op.action {
                passes += usize::from(**name == *BACKWARD && !inside);
                inside = **name == *BACKWARD;
            }
            let of_group = |call: &&Call| call.collective().is_some() && call.group() == group;
            let Some(_) = op.action.calls().iter().find(of_group) else { continue };
            calls += 1;
            match passes.cmp(&number) {
                _ if !is_bucket(op) => {}
                Ordering::Less => found.before += 1,
                Ordering::Equal => {
                    found.first = found.first.or(Some((op, calls)));
                    found.count += 1;
                }
                Ordering::Greater => break,
            }
        }
        found
    }
}

/// True of an operation with which DDP reduces a bucket.
fn is_bucket(op: &Op) -> bool {
    op.via.as_deref().is_some_and(|via| {
        via.strip_prefix("DistributedDataParallel").is_some_and(|part| part.ends_with(BACKWARD))
    })
}

/// The cause with what is told of its passes.
pub(crate) fn with(mut claim: Claim, told: Option<Told>) -> Claim {
    if let Some(told) = told {
        claim.message.said += &told.said;
        claim.fix = told.fix.to_owned();
    }
    claim
}
