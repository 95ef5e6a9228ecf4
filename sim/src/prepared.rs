//! What is known of a plan before it runs: where each group's members are, and what must agree
//! between the ranks of a call.

use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Plan, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{Algorithm, Schedule};

/// What the ranks of a collective must agree on for its messages to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature {
    pub(crate) schedule: Schedule,
    pub(crate) dtype: Dtype,
    /// Elements a rank.
    pub(crate) count: u64,
}

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
        let used: Vec<Vec<TensorId>> = plan
            .programs
            .iter()
            .map(|program| {
                let mut used: Vec<_> = program
                    .ops
                    .iter()
                    .flat_map(|op| tensors_of(&op.action))
                    .flatten()
                    .collect();
                used.sort_unstable();
                used.dedup();
                used
            })
            .collect();
        let bytes_of: Vec<u64> = used
            .iter()
            .map(|ids| {
                let sizes = ids.iter().filter_map(|id| Some(plan.tensor(*id)?.bytes()));
                sizes.fold(0, u64::saturating_add)
            })
            .collect();
        let programs = plan
            .program_of
            .iter()
            .filter_map(|program| bytes_of.get(*program as usize));
        let total = programs.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        Prepared {
            channel_base,
            channels,
            used,
            values: total <= max_value_bytes,
        }
    }

    /// The channel of a group's member.
    pub(crate) fn channel(&self, group: GroupId, member: GroupRank) -> u32 {
        self.channel_base[group.index()] + member.0
    }
}

/// The tensors an operation names.
pub(crate) fn tensors_of(action: &Action) -> [Option<TensorId>; 2] {
    match action {
        Action::Collective { input, output, .. } => [*input, *output],
        Action::Send { tensor, .. } | Action::Recv { tensor, .. } => [Some(*tensor), None],
        Action::Wait { .. } | Action::Compute { .. } | Action::Sleep { .. } => [None, None],
    }
}

/// The signature of a collective as `rank` calls it; `None` for a plan that was not checked.
pub(crate) fn signature(plan: &Plan, rank: GlobalRank, action: &Action) -> Option<Signature> {
    let Action::Collective {
        group,
        collective,
        count,
        input,
        output,
        algorithm,
        ..
    } = action
    else {
        return None;
    };
    let group = plan.group(*group)?;
    group.group_rank(rank)?;
    let algorithm = algorithm.unwrap_or(Algorithm::of(*collective)[0]);
    let schedule = Schedule::new(*collective, algorithm, group.size()).ok()?;
    let tensor = output.or(*input).and_then(|id| plan.tensor(id));
    let dtype = tensor.map_or(Dtype::Unknown, |tensor| tensor.dtype);
    Some(Signature {
        schedule,
        dtype,
        count: *count,
    })
}
