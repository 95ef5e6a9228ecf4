//! What is known of a plan before it runs: where each group's members are, and which
//! tensors its programs use.

use lockstep_core::group::GroupId;
use lockstep_core::plan::{Plan, TensorId};
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
}

impl Prepared {
    pub(crate) fn new(plan: &Plan, max_value_bytes: u64) -> Prepared {
        let mut channels = 0;
        let mut channel_base = Vec::with_capacity(plan.groups.len());
        for group in &plan.groups {
            channel_base.push(channels);
            channels += group.size();
        }
        let programs = 0..plan.programs.len();
        let used: Vec<_> = programs.map(|program| plan.tensors_used(program)).collect();
        let bytes_of: Vec<u64> = used
            .iter()
            .map(|ids| {
                let sizes = ids.iter().filter_map(|id| Some(plan.tensor(*id)?.bytes()));
                sizes.fold(0, u64::saturating_add)
            })
            .collect();
        let programs = plan.program_of.iter().filter_map(|program| bytes_of.get(*program as usize));
        let total = programs.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        Prepared { channel_base, channels, used, values: total <= max_value_bytes }
    }

    /// The channel of a group's member.
    pub(crate) fn channel(&self, group: GroupId, member: GroupRank) -> u32 {
        self.channel_base[group.index()] + member.0
    }
}
