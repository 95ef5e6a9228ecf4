//! Groups of neighbouring ranks (`dist.new_subgroups`): those of a node, in which post-localSGD
//! reduces gradients, and those among which a hierarchical averager averages.

use super::training::{MAX_OPS, Training, TrainingError};
use crate::ddp::hook::HookAlgorithm;
use lockstep_core::group::{GroupError, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// Subgroups by size, and the operations that are made in them.
#[derive(Debug, Default)]
pub(super) struct Subgroups {
    /// Per size, the first of its groups in the plan.
    first: BTreeMap<u32, u32>,
    /// Operations, each with the size of its group.
    operations: Vec<(usize, u32)>,
}

impl Subgroups {
    /// Makes the groups that a run needs.
    pub(super) fn new(
        training: &Training,
        groups: &mut Vec<ProcessGroup>,
    ) -> Result<Subgroups, GroupError> {
        let world_size = training.world_size;
        let hook = training.options.comm_hook.map(|hook| hook.algorithm);
        let mut sizes = match hook {
            Some(HookAlgorithm::PostLocalSgd(state)) => vec![state.subgroup],
            _ => Vec::new(),
        };
        let averager = training.averager.as_ref();
        sizes.extend(averager.map(|a| a.subgroup_sizes(world_size)).unwrap_or_default());
        let mut first = BTreeMap::new();
        // Evenly, or `check` has refused.
        for size in sizes.into_iter().map(|size| size.clamp(1, world_size)) {
            if first.contains_key(&size) {
                continue;
            }
            first.insert(size, groups.len() as u32);
            for begin in (0..world_size).step_by(size as usize) {
                let ranks = (begin..(begin + size).min(world_size)).map(GlobalRank).collect();
                let name = groups.len().to_string();
                let group = ProcessGroup::new(name, training.backend, ranks)?;
                groups.push(group.with_desc("subgroup"));
            }
        }
        Ok(Subgroups { first, operations: Vec::new() })
    }

    /// An operation is made in a subgroup of so many ranks.
    pub(super) fn made_in(&mut self, operation: usize, size: u32, world_size: u32) {
        self.operations.push((operation, size.clamp(1, world_size)));
    }

    fn group_of(&self, rank: u32, size: u32) -> GroupId {
        self.first.get(&size).map_or(GroupId::WORLD, |first| GroupId(first + rank / size.max(1)))
    }

    /// Gives every rank its program: one for all, or one for all ranks of the same subgroups.
    ///
    /// # Errors
    /// When these are too many.
    pub(super) fn programs(&self, ops: Vec<Op>, plan: &mut Plan) -> Result<(), TrainingError> {
        if self.operations.is_empty() {
            plan.programs = vec![Program { ops }];
            plan.program_of = vec![0; plan.world_size as usize];
            return Ok(());
        }
        let smallest = self.operations.iter().map(|(_, size)| *size).min().unwrap_or(1);
        let programs = u64::from(plan.world_size.div_ceil(smallest.max(1)));
        if programs.saturating_mul(ops.len() as u64) > MAX_OPS {
            return Err(TrainingError::TooMany { programs, ops: ops.len() });
        }
        let mut known: BTreeMap<Vec<GroupId>, u32> = BTreeMap::new();
        for rank in 0..plan.world_size {
            let groups: Vec<_> = self.first.keys().map(|size| self.group_of(rank, *size)).collect();
            let next = plan.programs.len() as u32;
            let program = *known.entry(groups).or_insert(next);
            if program == next {
                let mut own = ops.clone();
                for &(operation, size) in &self.operations {
                    let calls = own.get_mut(operation).map(|op| op.action.calls_mut());
                    if let Some([Call::Collective { group, .. }]) = calls {
                        *group = self.group_of(rank, size);
                    }
                }
                plan.programs.push(Program { ops: own });
            }
            plan.program_of.push(program);
        }
        Ok(())
    }
}
