//! Passes that reduce nothing on one rank, while another reduces: under `no_sync()` in other steps, or
//! past DDP. Only a plan tells them from calls that are left out for other reasons.

use super::causes::Cause;
use super::explain::Reason;
use super::index::Job;
use super::words::at_line;
use crate::ddp::passes::Pass;
use crate::rank::GlobalRank;

/// What is said of two ranks' passes that differ, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    said: String,
    fix: &'static str,
}

/// Why `rank` made other calls of DDP's than `peer`, if it is that another pass of it reduces nothing:
/// no parameter went without a gradient then.
pub(super) fn told(
    job: &Job<'_>,
    rank: GlobalRank,
    peer: GlobalRank,
    why: Reason,
) -> (Reason, Option<Told>) {
    let of_ddp = match &why {
        Reason::Unused(_) => true,
        Reason::Skipped(deed) | Reason::Extra(deed) => deed.ddp,
        Reason::LeftLoop { ddp, .. } | Reason::StayedInLoop { ddp } => *ddp,
        Reason::Swapped(_) | Reason::Replaced | Reason::Other => false,
    };
    let told = of_ddp.then(|| differing(job, rank, peer)).flatten();
    let why = match why {
        Reason::Unused(deed) if told.is_some() => Reason::Skipped(deed),
        why => why,
    };
    (why, told)
}

/// The first pass that one of the two ranks reduces and the other does not.
fn differing(job: &Job<'_>, rank: GlobalRank, peer: GlobalRank) -> Option<Told> {
    let plan = job.log.plan.as_ref()?;
    let passes = |rank| Some(Pass::of(&plan.program(rank)?.ops));
    let (own, theirs) = (passes(rank)?, passes(peer)?);
    let reduces = |pass: Pass| pass == Pass::Reduces;
    let mut both = (1..).zip(own.into_iter().zip(theirs));
    let (number, ((pass, at), (other, other_at))) =
        both.find(|(_, ((own, _), (their, _)))| reduces(*own) != reduces(*their))?;
    let line = |at: Option<crate::plan::SourceLine>| at_line(at.map(|at| plan.describe_line(at)));
    let does = |pass: Pass, whose: GlobalRank, at| match pass {
        Pass::Reduces => format!("that of rank {whose}{} reduces its gradients", line(at)),
        Pass::Unsynced => format!("that of rank {whose}{} runs under no_sync()", line(at)),
        Pass::Past => format!(
            "that of rank {whose}{} goes through model.module, past DDP, which reduces none of its \
             gradients",
            line(at)
        ),
    };
    let said = format!(
        " Of the ranks' backward passes #{number} differs: {}, and {}.",
        does(pass, rank, at),
        does(other, peer, other_at)
    );
    let fix = match (pass, other) {
        (Pass::Past, _) | (_, Pass::Past) => {
            "Call the wrapped model on every rank wherever gradients are to be reduced. \
             find_unused_parameters=True does not help: DDP never sees that pass. model.module is for \
             passes whose gradients nobody reduces, such as a validation."
        }
        _ => {
            "Enter no_sync() in the same steps on every rank: count accumulated steps alike, by one \
             number that all ranks have."
        }
    };
    Some(Told { said, fix })
}

/// The cause with what is told of its passes.
pub(super) fn with(mut cause: Cause, told: Option<Told>) -> Cause {
    if let Some(told) = told {
        cause.message += &told.said;
        cause.fix = told.fix.to_owned();
    }
    cause
}
