//! Facts about a plan before it runs: the places of each group's members, and the tensors that its
//! programs use.

use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Call, Plan, Program, SignalKind, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};

/// Tables over a plan that never change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Per group, the channel of its group rank 0; channels of a group are neighbours, those of
    /// the switches that its calls need behind those of its ranks.
    channel_base: Vec<u32>,
    /// Per group, how many switches its calls need.
    switches: Vec<u32>,
    /// Per group, how many switches the groups before it need.
    switch_base: Vec<u32>,
    pub(crate) channels: u32,
    /// Per program, the tensors it uses, in id order, but for those that the plan does not know.
    pub(crate) used: Vec<Vec<TensorId>>,
    /// Per program, the number of its calls.
    pub(crate) calls: Vec<usize>,
    /// True if tensors carry values.
    pub(crate) values: bool,
    /// Per rank, whether it has a device: it is a member of a group that NCCL carries out.
    pub(crate) on_device: Vec<bool>,
    /// True if a rank ends or is stopped for good: it may leave a call half done.
    pub(crate) half_done: bool,
    /// Per group, whether its calls are put on a stream.
    nccl: Vec<bool>,
}

/// Bytes that the values of a plan's tensors take in a simulation, all ranks together.
pub fn value_bytes(plan: &Plan) -> u64 {
    plan.tensor_bytes().saturating_add(plan.scratch_bytes())
}

impl Prepared {
    pub(crate) fn new(plan: &Plan, max_value_bytes: u64) -> Prepared {
        let mut channels = 0;
        let mut channel_base = Vec::with_capacity(plan.groups.len());
        let switches = switches(plan);
        let (mut switch_base, mut all_switches) = (Vec::with_capacity(switches.len()), 0);
        for (group, switches) in plan.groups.iter().zip(&switches) {
            channel_base.push(channels);
            switch_base.push(all_switches);
            channels += group.size() + switches;
            all_switches += switches;
        }
        let unknown = plan.unknown();
        let known = |tensor: &TensorId| !unknown.get(tensor.index()).is_some_and(|own| *own);
        let tensors = plan.programs.iter().map(Program::tensors);
        let used = tensors.map(|used| used.into_iter().filter(known).collect()).collect();
        let calls_of =
            |program: &Program| program.ops.iter().map(|op| op.action.calls().len()).sum::<usize>();
        let calls = plan.programs.iter().map(calls_of).collect();
        // Scratch is added only where the tensors alone would fit: it needs the schedule of every call.
        let values = plan.tensor_bytes() <= max_value_bytes && value_bytes(plan) <= max_value_bytes;
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
        let mut ops = plan.programs.iter().flat_map(|program| &program.ops);
        let half_done = ops.any(|op| {
            let stops = matches!(op.action, Action::Signal(SignalKind::Stop { for_ms: None }));
            op.action.ends_by().is_some() || stops
        });
        Prepared {
            channel_base,
            switches,
            switch_base,
            channels,
            used,
            calls,
            values,
            on_device,
            half_done,
            nccl,
        }
    }

    /// True if calls are put on the rank's streams; calls made together are all of one backend, or block the
    /// program.
    pub(crate) fn on_stream(&self, calls: &[Call]) -> bool {
        !calls.is_empty() && calls.iter().all(|call| self.is_nccl(call.group()))
    }

    /// True if NCCL carries out the group's calls.
    pub(crate) fn is_nccl(&self, group: GroupId) -> bool {
        self.nccl.get(group.index()).is_some_and(|nccl| *nccl)
    }

    /// The number of switches that a group's calls need.
    pub(crate) fn switches(&self, group: GroupId) -> u32 {
        self.switches.get(group.index()).copied().unwrap_or(0)
    }

    /// The rank of a group's member, or the number of its switch: they come behind all ranks.
    pub(crate) fn participant(
        &self,
        plan: &Plan,
        group: GroupId,
        participant: GroupRank,
    ) -> Option<GlobalRank> {
        let members = plan.group(group)?;
        let Some(switch) = participant.0.checked_sub(members.size()) else {
            return members.global_rank(participant);
        };
        let base = self.switch_base.get(group.index())?;
        (switch < self.switches(group)).then(|| GlobalRank(plan.world_size + base + switch))
    }

    /// The channel of a group's member, or of a switch of its schedules.
    pub(crate) fn channel(&self, group: GroupId, member: GroupRank) -> u32 {
        self.channel_base[group.index()] + member.0
    }
}

/// Per group, the most switches that a schedule of its calls needs.
fn switches(plan: &Plan) -> Vec<u32> {
    let mut switches = vec![0; plan.groups.len()];
    for call in
        plan.programs.iter().flat_map(|program| &program.ops).flat_map(|op| op.action.calls())
    {
        if let Some(Ok(schedule)) = plan.schedule(call)
            && let Some(most) = switches.get_mut(call.group().index())
        {
            *most = schedule.switches().max(*most);
        }
    }
    switches
}
