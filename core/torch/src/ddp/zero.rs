//! `ZeroRedundancyOptimizer`: which rank keeps the optimizer's state of which parameter, and the
//! broadcasts after its step (`torch/distributed/optim/zero_redundancy_optimizer.py`).

use super::call::{DdpCall, Purpose};
use super::error::DdpError;
use super::model::Model;
use lockstep_core::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::ops::Range;

/// Per rank, the indices of its parameters: the largest first, each to the rank that has the fewest
/// elements so far, the lowest of equals (`_partition_parameters`).
pub fn partition(numels: &[u64], world_size: u32) -> Vec<Vec<u32>> {
    let mut largest: Vec<(u32, u64)> = (0..).zip(numels.iter().copied()).collect();
    // Stable, as Python's sort is.
    largest.sort_by_key(|(_, numel)| Reverse(*numel));
    let mut ranks = vec![(0u64, Vec::new()); world_size.max(1) as usize];
    for (index, numel) in largest {
        if let Some((size, params)) = ranks.iter_mut().min_by_key(|(size, _)| *size) {
            *size = size.saturating_add(numel);
            params.push(index);
        }
    }
    ranks.into_iter().map(|(_, params)| params).collect()
}

/// The broadcasts after a step (`_sync_params`): every rank's parameters one by one, or as one
/// buffer with `parameters_as_bucket_view`. Frozen parameters are shared out and broadcast too, but
/// have no place in a buffer; a buffer of nothing is one zero.
pub(crate) fn sync_params(
    model: &Model,
    world_size: u32,
    parameters_as_bucket_view: bool,
) -> Vec<DdpCall> {
    let numels: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
    let mut calls = Vec::new();
    for (root, indices) in (0..).zip(partition(&numels, world_size)) {
        let own = indices.iter().filter_map(|index| model.params.get(*index as usize));
        let own: Vec<_> = own.collect();
        let broadcast = |dtype, numel| DdpCall::broadcast(dtype, numel, root, Purpose::Shard);
        if !parameters_as_bucket_view {
            calls.extend(own.iter().map(|param| broadcast(param.dtype, param.numel())));
            continue;
        }
        let trained = own.iter().filter(|param| param.requires_grad);
        let numel = trained.map(|param| param.numel()).fold(0, u64::saturating_add);
        // The type of the parameter that it came to last.
        let dtype = own.last().map_or(Dtype::Float32, |param| param.dtype);
        calls.push(match numel {
            0 => broadcast(Dtype::Float32, 1),
            numel => broadcast(dtype, numel),
        });
    }
    calls
}

/// `overlap_with_ddp=True`: the step of a bucket's parameters and their broadcast are made in the
/// communication hook (`ddp_comm_hooks/ddp_zero_hook.py`). The first two or three iterations update
/// nothing: the buckets have to be rebuilt and seen once. Without a rebuild nothing is ever updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroOverlap {
    /// `hook_with_zero_step_interleaved`: behind every bucket, in place of behind the last.
    pub interleaved: bool,
    /// `shard_buckets`: a bucket may be shared out among several ranks.
    pub shard_buckets: bool,
    /// Ranks that share the parameters.
    pub world_size: u32,
}

/// Parameters of a bucket that a rank updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketShard {
    /// The rank.
    pub rank: u32,
    /// The first of them, in the bucket's order.
    pub first: usize,
    /// The number of its parameters.
    pub params: usize,
}

impl ZeroOverlap {
    /// Per bucket of such parameters, the shard that each rank updates (`_bucket_assignments_per_rank`).
    ///
    /// # Errors
    /// A bucket falls into more pieces than there are ranks.
    pub fn assign(&self, buckets: &[Vec<u64>]) -> Result<Vec<Vec<BucketShard>>, DdpError> {
        let world_size = self.world_size.max(1);
        let mut shards: Vec<Vec<BucketShard>> = vec![Vec::new(); buckets.len()];
        if !self.shard_buckets {
            for ((index, bucket), shards) in (0u32..).zip(buckets).zip(&mut shards) {
                let (rank, params) = (index % world_size, bucket.len());
                shards.push(BucketShard { rank, first: 0, params });
            }
            return Ok(shards);
        }
        let total = buckets.iter().flatten().map(|numel| u128::from(*numel)).sum::<u128>();
        let mut sizes = vec![0u64; world_size as usize];
        let mut smallest: Vec<usize> = (0..buckets.len()).collect();
        smallest.sort_by_key(|index| buckets[*index].iter().copied().fold(0, u64::saturating_add));
        for index in smallest {
            let shards = &mut shards[index];
            let (mut first, mut size) = (0, 0u64);
            for (place, &numel) in buckets[index].iter().enumerate() {
                let grown = u128::from(size) + u128::from(numel);
                if grown * u128::from(world_size) >= total && place > first {
                    give(shards, &mut sizes, first..place, size)?;
                    (first, size) = (place, 0);
                }
                size = size.saturating_add(numel);
            }
            give(shards, &mut sizes, first..buckets[index].len(), size)?;
            shards.sort_by_key(|shard| shard.rank);
        }
        Ok(shards)
    }
}

/// Gives a piece to the rank that has least and none of this bucket yet.
fn give(
    shards: &mut Vec<BucketShard>,
    sizes: &mut [u64],
    piece: Range<usize>,
    size: u64,
) -> Result<(), DdpError> {
    let free = (0u32..).zip(sizes).filter(|(rank, _)| !shards.iter().any(|s| s.rank == *rank));
    let (rank, own) = free.min_by_key(|(_, size)| **size).ok_or(DdpError::ZeroMorePieces)?;
    *own = own.saturating_add(size);
    shards.push(BucketShard { rank, first: piece.start, params: piece.len() });
    Ok(())
}

/// The hook's knowledge of the buckets (`_OverlapInfo`).
#[derive(Clone, Debug)]
pub(super) struct OverlapState {
    overlap: ZeroOverlap,
    /// Elements of the parameters of each bucket, and the bucket's type, as they were first seen.
    seen: Vec<(Dtype, Vec<u64>)>,
    shards: Option<Vec<Vec<BucketShard>>>,
}

impl OverlapState {
    pub(super) fn new(overlap: ZeroOverlap) -> OverlapState {
        OverlapState { overlap, seen: Vec::new(), shards: None }
    }

    /// A rebuilt bucket has been reduced: the broadcasts of the hook behind it.
    pub(super) fn after_bucket(
        &mut self,
        index: usize,
        buckets: usize,
        dtype: Dtype,
        numels: Vec<u64>,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        if self.shards.is_none() {
            if index > 0 || self.seen.is_empty() {
                self.seen.push((dtype, numels));
                return Ok(());
            }
            let seen: Vec<_> = self.seen.iter().map(|(_, numels)| numels.clone()).collect();
            self.shards = Some(self.overlap.assign(&seen)?);
        }
        let last = index + 1 == buckets;
        let due = match self.overlap.interleaved {
            true => index..index + 1,
            false if last => 0..buckets,
            false => 0..0,
        };
        let shards = self.shards.as_deref().unwrap_or_default();
        let seen = self.seen.iter().zip(shards).skip(due.start).take(due.len());
        for ((dtype, numels), shards) in seen {
            calls.extend(shards.iter().map(|shard| {
                let own = numels.iter().skip(shard.first).take(shard.params);
                let numel = own.copied().fold(0, u64::saturating_add);
                DdpCall::broadcast(*dtype, numel, shard.rank, Purpose::Shard)
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::model::Model;
    use crate::ddp::tests::{list, numbers, recorded};

    #[test]
    fn parameters_are_partitioned_as_recorded() {
        let (models, file) = (recorded("models.json"), recorded("zero_partition.json"));
        let mut compared = 0;
        for (name, truth) in file["partitions"].as_object().unwrap() {
            let (name, world_size) = name.split_once('/').unwrap();
            let model = Model::read(name, &models["models"][name].to_string()).unwrap();
            let numels: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
            let own = partition(&numels, world_size.parse().unwrap());
            let own: Vec<Vec<u64>> =
                own.iter().map(|p| p.iter().map(|i| u64::from(*i)).collect()).collect();
            let truth: Vec<Vec<u64>> = list(truth).iter().map(numbers).collect();
            assert_eq!(own, truth, "{name} {world_size}");
            compared += 1;
        }
        assert_eq!(compared, 12);
    }

    #[test]
    fn shards_are_broadcast_by_their_ranks() {
        let model = crate::ddp::model::mlp("m", &[4, 8, 2], lockstep_core::dtype::Dtype::Float32);
        // 32, 8, 16, 2: rank 0 gets the 32, rank 1 the rest.
        let shown = |view| -> Vec<(super::super::DdpOp, u64)> {
            sync_params(&model, 2, view).iter().map(|call| (call.op, call.numel)).collect()
        };
        let from = |root| super::super::DdpOp::Broadcast { root };
        assert_eq!(shown(false), [(from(0), 32), (from(1), 16), (from(1), 8), (from(1), 2)]);
        assert_eq!(shown(true), [(from(0), 32), (from(1), 26)]);
    }
}
