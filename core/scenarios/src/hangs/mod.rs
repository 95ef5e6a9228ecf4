//! The hang scenarios, taken from real jobs: a file for each kind of mistake, and the programs beside them.

mod absent;
mod branches;
mod ddp;
mod mismatches;
mod order;
mod texts;

use super::scenario::Scenario;

/// Every scenario, in the order of the gallery: the most frequent mistakes come first.
pub(super) const ALL: &[Scenario] = &[
    branches::CHECKPOINT_ON_RANK_0,
    branches::LOGGING_ON_RANK_0,
    branches::SKIPPED_ALL_REDUCE,
    absent::STUCK_DATA_LOADER,
    branches::ONE_BATCH_LESS,
    ddp::UNEVEN_INPUTS,
    ddp::VALIDATION_ON_RANK_0,
    ddp::UNUSED_ON_ONE_RANK,
    ddp::CAUGHT_EXCEPTION,
    absent::OUT_OF_MEMORY,
    absent::CHECKPOINT_OUTLASTS_TIMEOUT,
    absent::THROTTLED_GPU,
    branches::EARLY_STOPPING,
    branches::EXPERT_WITHOUT_TOKENS,
    mismatches::MISMATCHED_COLLECTIVES,
    mismatches::UNEVEN_LAST_BATCH,
    mismatches::ALL_GATHER_SIZES,
    mismatches::HALF_ON_ONE_RANK,
    mismatches::BEST_RANK_BROADCAST,
    mismatches::SUM_OR_MEAN,
    order::OPPOSITE_GROUP_ORDER,
    order::TP_DP_OPPOSITE_ORDER,
    order::NEW_GROUP_ON_MEMBERS_ONLY,
    order::FACING_SENDS,
    order::RING_OF_ISENDS,
    order::WRONG_TAG,
    order::MICROBATCH_LESS,
    ddp::DIFFERENT_ORDER,
    ddp::NO_SYNC_OUT_OF_STEP,
];
