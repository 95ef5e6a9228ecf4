//! Backward passes of DDP that one side reduces and the other side does not.

use crate::model::ddp_frames::{FORWARD, is_within};
use lockstep_core::trace::CallRecord;

/// A backward pass whose gradients one side reduces, and behind which the other side is in its next forward
/// pass already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnePass {
    /// It is the others that reduce, in so many buckets as are seen of it.
    Theirs(usize),
    /// It is the rank.
    Own(usize),
}

/// Finds the pass in which two ranks part, after the same calls from the same lines.
pub(crate) fn one_pass(own: &[&CallRecord], theirs: &[&CallRecord]) -> Option<OnePass> {
    let buckets = |calls: &[&CallRecord]| {
        calls.iter().take_while(|record| record.call.is_ddp_bucket()).count()
    };
    let forward = |calls: &[&CallRecord]| {
        calls.first().is_some_and(|record| is_within(&record.call.stack, FORWARD))
    };
    match (buckets(own), buckets(theirs)) {
        (0, count @ 1..) if forward(own) => Some(OnePass::Theirs(count)),
        (count @ 1.., 0) if forward(theirs) => Some(OnePass::Own(count)),
        _ => None,
    }
}

/// The words about a rank's call in such a pass, `own` beside `theirs`; empty where it is none, and
/// where the others do not reduce in it as `theirs_reduce` has it: a forward pass of its own is a
/// call on top.
pub(crate) fn of_pass(own: &CallRecord, theirs: &CallRecord, theirs_reduce: bool) -> &'static str {
    match one_pass(&[own], &[theirs]) {
        Some(OnePass::Theirs(_)) if theirs_reduce => {
            " With that DDP reduces gradients: it left out that backward pass, or ran it under no_sync(), and \
             is in its next forward pass."
        }
        Some(OnePass::Own(_)) if !theirs_reduce => {
            " With that DDP reduces gradients: it ran a backward pass that the others left out or ran under \
             no_sync(), who are in their next forward pass."
        }
        _ => "",
    }
}
