//! `ZeroRedundancyOptimizer`: which rank keeps the optimizer's state of which parameter, and the
//! broadcasts after its step (`torch/distributed/optim/zero_redundancy_optimizer.py`).

use super::call::{DdpCall, Purpose};
use super::model::Model;
use std::cmp::Reverse;

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
/// buffer with `parameters_as_bucket_view`. That buffer has the type of its first parameter.
pub fn sync_params(
    model: &Model,
    world_size: u32,
    parameters_as_bucket_view: bool,
) -> Vec<DdpCall> {
    let params: Vec<_> = model.trained().collect();
    let numels: Vec<u64> = params.iter().map(|param| param.numel()).collect();
    let mut calls = Vec::new();
    for (root, indices) in (0..).zip(partition(&numels, world_size)) {
        let own: Vec<_> = indices.iter().filter_map(|index| params.get(*index as usize)).collect();
        let broadcast = |dtype, numel| DdpCall::broadcast(dtype, numel, root, Purpose::Shard);
        match (parameters_as_bucket_view, own.first()) {
            (true, Some(first)) => {
                let numel = own.iter().map(|param| param.numel()).fold(0, u64::saturating_add);
                calls.push(broadcast(first.dtype, numel));
            }
            _ => calls.extend(own.iter().map(|param| broadcast(param.dtype, param.numel()))),
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::model::Model;
    use crate::ddp::truth::{list, numbers, recorded};

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
        let model = crate::ddp::model::mlp("m", &[4, 8, 2], crate::dtype::Dtype::Float32);
        // 32, 8, 16, 2: rank 0 gets the 32, rank 1 the rest.
        let shown = |view| -> Vec<(super::super::DdpOp, u64)> {
            sync_params(&model, 2, view).iter().map(|call| (call.op, call.numel)).collect()
        };
        let from = |root| super::super::DdpOp::Broadcast { root };
        assert_eq!(shown(false), [(from(0), 32), (from(1), 16), (from(1), 8), (from(1), 2)]);
        assert_eq!(shown(true), [(from(0), 32), (from(1), 26)]);
    }
}
