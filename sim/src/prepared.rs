//! What is known of a plan before it runs: where each group's members are, and which
//! tensors its programs use.

use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Plan, Program, TensorId};
use lockstep_core::rank::GroupRank;

/// Tables over a plan that never change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Per group, the channel of its group rank 0; channels of a group are neighbours.
    channel_base: Vec<u32>,
    pub(crate) channels: u32,
    /// Per program, the tensors it uses, in id order.
    pub(crate) used: Vec<Vec<TensorId>>,
    /// Whether tensors carry values.
    pub(crate) values: bool,
    /// Per rank, whether it has a device: it is a member of a group that NCCL carries out.
    pub(crate) on_device: Vec<bool>,
    /// Per group, whether its calls are put on a stream.
    nccl: Vec<bool>,
}

impl Prepared {
    pub(crate) fn new(plan: &Plan, max_value_bytes: u64) -> Prepared {
        let mut channels = 0;
        let mut channel_base = Vec::with_capacity(plan.groups.len());
        for group in &plan.groups {
            channel_base.push(channels);
            channels += group.size();
        }
        let used = plan.programs.iter().map(Program::tensors).collect();
        let bytes = plan.tensor_bytes().saturating_add(plan.scratch_bytes());
        let values = bytes <= max_value_bytes;
        let nccl: Vec<_> =
            plan.groups.iter().map(|group| group.backend() == BackendName::Nccl).collect();
        let mut on_device = vec![false; plan.world_size as usize];
        for (group, _) in plan.groups.iter().zip(&nccl).filter(|(_, nccl)| **nccl) {
            for rank in group.ranks() {
                if let Some(on_device) = on_device.get_mut(rank.index()) {
                    *on_device = true;
                }
            }
        }
        Prepared { channel_base, channels, used, values, on_device, nccl }
    }

    /// Whether calls are put on the rank's streams; calls made together are all of one backend,
    /// or hold the program.
    pub(crate) fn on_stream(&self, calls: &[Call]) -> bool {
        !calls.is_empty() && calls.iter().all(|call| self.is_nccl(call.group()))
    }

    /// Whether NCCL carries out the group's calls.
    pub(crate) fn is_nccl(&self, group: GroupId) -> bool {
        self.nccl.get(group.index()).is_some_and(|nccl| *nccl)
    }

    /// The channel of a group's member.
    pub(crate) fn channel(&self, group: GroupId, member: GroupRank) -> u32 {
        self.channel_base[group.index()] + member.0
    }
}
