//! Evidence from DDP's own calls about a rank that never came to one of them.

use crate::facts::{Facts, idle};
use crate::kinds::Kind;
use crate::model::ddp_frames::{VERIFY, is_ddp, is_within};
use crate::model::index::{Made, Row};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, Called, period};

/// The reason that a rank whose last call is DDP's may not have come to DDP's next one, in which
/// `made` waits: the kind, a sentence, and the fix. `None` where its calls do not tell.
pub(crate) fn reason(
    facts: &Facts<'_, '_>,
    rank: GlobalRank,
    group: GroupId,
    made: Made<'_>,
) -> Option<(Kind, &'static str, &'static str)> {
    let last = facts.job.rank(rank)?.calls.last()?;
    if !facts.job.log.recorded || !idle(facts, rank) || last.call.group != group {
        return None;
    }
    let (own, theirs) = (&last.call.stack, &made.record.call.stack);
    if is_within(own, VERIFY) && is_ddp(theirs) && !is_within(theirs, VERIFY) {
        return Some((
            Kind::DdpModelMismatch,
            "Its last call is the one in which DDP's constructor compares the parameters' shapes, \
             and the others went on from there: most likely its model has other shapes, and DDP \
             raised on it.",
            "Build the same model on every rank: the same configuration, the same order of \
             parameters, nothing that depends on the rank. The rank's log names the parameter: \
             \"params[…] in this process with sizes … appears not to match\".",
        ));
    }
    if made.record.call.is_ddp_bucket() && is_ddp(own) && !between_steps(facts, &last.call, made) {
        return Some((
            Kind::DdpUnusedParameters,
            "The others wait for a bucket of DDP's backward pass. Most likely a parameter of that \
             bucket got no gradient on this rank, so that the bucket never became ready; or the \
             rank stopped before or in its backward pass, or ran it past DDP: under no_sync(), or \
             through model.module.",
            "Let every parameter take part in the loss on every rank, or give DDP \
             find_unused_parameters=True, which does not help against passes past DDP. The rank's log says \"Expected to have finished reduction \
             in the prior iteration\" if so, and anything else that stopped it if not. \
             TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters.",
        ));
    }
    None
}

/// Said of a rank that has reduced all of its last step, where others wait for the first bucket of the next:
/// it may have been through that step's backward pass, and reduced nothing.
pub(crate) fn unready(last: &CallRecord, row: &Row<'_>) -> &'static str {
    let waits = row.made.iter().find(|made| made.pending());
    match waits.is_some_and(|made| made.record.call.is_ddp_bucket()) && last.call.is_ddp_bucket() {
        true => {
            " Or a parameter of that bucket got no gradient on it: DDP reduces no other bucket before, and \
             raises in the next forward pass."
        }
        false => "",
    }
}

/// True if a rank whose last call is `last` has reduced all buckets of its last step and none of
/// the next, in whose first one `made` waits: nothing says that it began that step. As any of those who
/// wait there shows; and where rings have dropped what would show it, that may be.
fn between_steps(facts: &Facts<'_, '_>, last: &Called, made: Made<'_>) -> bool {
    /// So many of those who wait are asked.
    const ASKED: usize = 64;
    if !last.is_ddp_bucket() {
        return false;
    }
    let rows = facts.job.rows_of(made.record.call.group);
    let row = rows.iter().find(|row| Some(row.seq) == made.record.seq);
    let waiting = row.into_iter().flat_map(|row| &row.made).filter(|made| made.pending());
    let shown: Vec<Option<bool>> =
        waiting.take(ASKED).map(|made| ends_a_step(facts, *made)).collect();
    shown.contains(&Some(true)) || shown.iter().all(Option::is_none)
}

/// True if the buckets that a rank has reduced before a call are whole steps; `None` where its ring has
/// dropped too many of them to tell.
fn ends_a_step(facts: &Facts<'_, '_>, made: Made<'_>) -> Option<bool> {
    let own = facts.job.rank(made.rank)?;
    let buckets = own.calls.iter().filter(|record| {
        record.call.group == made.record.call.group && record.call.is_ddp_bucket()
    });
    let (before, missing): (Vec<&CallRecord>, Vec<&CallRecord>) =
        buckets.partition(|record| record.work < made.record.work);
    let sizes: Vec<u64> = before.iter().map(|record| record.call.payload()).collect();
    let due: Vec<u64> = missing.iter().map(|record| record.call.payload()).collect();
    // Every step reduces the same buckets.
    let step = period(&sizes);
    match step {
        None if own.is_cut() => None,
        step => Some(step.is_some_and(|step| missing.len() >= step) || whole_steps(&sizes, &due)),
    }
}

/// True if the buckets before are whole steps, as the one that is missing: DDP makes its buckets anew
/// after the first step, so the first one's are of other sizes, and as many elements together.
fn whole_steps(before: &[u64], missing: &[u64]) -> bool {
    let step: u64 = missing.iter().fold(0, |sum, size| sum.saturating_add(*size));
    let (mut steps, mut open) = (0, 0u64);
    for size in before {
        open = open.saturating_add(*size);
        if open > step {
            return false;
        }
        if open == step {
            (steps, open) = (steps + 1, 0);
        }
    }
    steps > 1 && open == 0 && before.ends_with(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_has_other_buckets() {
        // All of them in one, then in two.
        assert!(whole_steps(&[4324, 2212, 2112], &[2212, 2112]));
        assert!(whole_steps(&[4000, 324, 2212, 2112], &[2212, 2112]));
        // In the middle of a step.
        assert!(!whole_steps(&[4324, 2212], &[2112]));
        assert!(!whole_steps(&[4324, 2212, 2112, 2212], &[2112]));
        // Of the first step nothing is known.
        assert!(!whole_steps(&[2212, 2112], &[2212, 2112]));
        assert!(!whole_steps(&[], &[]));
    }
}
