//! A job that goes on without some of its ranks: their groups have the other members only, and calls have the sizes and
//! roots that this makes.

use crate::rank_programs::{rewritten, set_program};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, Fill, Op, Plan, Program, Tensor, TensorData, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_diagnosis::Change;
use std::sync::Arc;

/// Makes the other ranks go on without these; `None` where nobody is left, or a group cannot be made smaller.
pub(crate) fn give_up(plan: &mut Plan, ranks: &[GlobalRank]) -> Option<Change> {
    if ranks.is_empty() || plan.world_size as usize <= ranks.len() {
        return None;
    }
    let before = plan.clone();
    let smaller = smaller_groups(plan, ranks)?;
    for rank in (0..plan.world_size).map(GlobalRank) {
        if ranks.contains(&rank) {
            set_program(plan, rank, Program::default());
            continue;
        }
        let own = before.program(rank)?;
        let mut ops = own.clone();
        let mut out = Vec::new();
        for (at, op) in ops.ops.iter_mut().enumerate() {
            if !without(plan, op, (&before, &smaller)) {
                out.push(at);
            }
        }
        let ops = if out.is_empty() { ops.ops } else { rewritten(&ops, &[], &out) };
        set_program(plan, rank, Program { ops });
    }
    Some(Change { ranks: ranks.to_vec(), given_up: ranks.to_vec(), ..Change::default() })
}

/// Per group of the plan, the one that its calls are made in now.
fn smaller_groups(plan: &mut Plan, ranks: &[GlobalRank]) -> Option<Vec<GroupId>> {
    let mut smaller = Vec::with_capacity(plan.groups.len());
    for at in 0..plan.groups.len() {
        let id = GroupId(at as u32);
        let group = plan.groups.get(at)?.clone();
        let mut left = group.ranks().to_vec();
        left.retain(|rank| !ranks.contains(rank));
        if left.len() == group.ranks().len() || left.is_empty() {
            smaller.push(id);
            continue;
        }
        let made = ProcessGroup::new(group.name(), group.backend(), left).ok()?;
        let made = made.with_desc(group.desc()).with_timeout_ms(group.timeout_ms());
        // The default group is the world of the plan, which has as many ranks as before.
        if id == GroupId::WORLD {
            plan.groups.push(made);
            smaller.push(GroupId(plan.groups.len() as u32 - 1));
        } else {
            *plan.groups.get_mut(at)? = made;
            smaller.push(id);
        }
    }
    Some(smaller)
}

/// Changes an operation's calls to those of the smaller groups; false if it has no call left.
fn without(plan: &mut Plan, op: &mut Op, (before, smaller): (&Plan, &[GroupId])) -> bool {
    let mut changed = |call: &mut Call| {
        let id = smaller.get(call.group().index()).copied().unwrap_or(call.group());
        let now = changed_call(plan, call, (before, id));
        now.map(|now| *call = now).is_some()
    };
    match &mut op.action {
        Action::Call { call, .. } => changed(Arc::make_mut(call)),
        Action::Coalesced { calls, .. } => {
            calls.retain_mut(changed);
            !calls.is_empty()
        }
        _ => true,
    }
}

/// A call in the smaller group; `None` of a message from or to a rank that is given up.
fn changed_call(plan: &mut Plan, call: &Call, (before, id): (&Plan, GroupId)) -> Option<Call> {
    let old = before.group(call.group())?;
    let new = plan.group(id)?.clone();
    let place = |rank: GroupRank| new.group_rank(old.global_rank(rank)?);
    let now = match call.clone() {
        Call::Send { peer, tensor, tag, .. } => {
            Call::Send { group: id, peer: place(peer)?, tensor, tag }
        }
        Call::Recv { peer, tensor, tag, .. } => {
            let peer = match peer {
                Some(peer) => Some(place(peer)?),
                None => None,
            };
            Call::Recv { group: id, peer, tensor, tag }
        }
        Call::Collective { collective, count, input, output, .. } => {
            // Another member takes the place of a root that is given up.
            let root = |root: GroupRank| place(root).unwrap_or(GroupRank(0));
            let collective = match collective {
                Collective::Broadcast { root: of } => Collective::Broadcast { root: root(of) },
                Collective::Reduce { op, root: of } => Collective::Reduce { op, root: root(of) },
                Collective::Gather { root: of } => Collective::Gather { root: root(of) },
                Collective::Scatter { root: of } => Collective::Scatter { root: root(of) },
                other => other,
            };
            let mut resized = |id: Option<TensorId>| {
                let tensor = id.and_then(|id| plan.tensor(id))?.clone();
                // Parts of all members: as many fewer as there are members less.
                let numel = match count > 0 && tensor.numel == count * u64::from(old.size()) {
                    true => count * u64::from(new.size()),
                    false => tensor.numel,
                };
                Some(tensor_of(plan, tensor.dtype, numel))
            };
            let (input, output) = (resized(input), resized(output));
            Call::collective_of(id, collective, count, input, output)
        }
    };
    Some(now)
}

/// The plan's tensor of this type and size, which is made if there is none.
fn tensor_of(plan: &mut Plan, dtype: Dtype, numel: u64) -> TensorId {
    let same = |tensor: &Tensor| (tensor.dtype, tensor.numel) == (dtype, numel);
    if let Some(at) = plan.tensors.iter().position(same) {
        return TensorId(at as u32);
    }
    let (name, data) = (format!("{}[{numel}]", dtype.name()), TensorData::default());
    plan.tensors.push(Tensor { name, dtype, numel, fill: Fill::Unknown, data });
    TensorId(plan.tensors.len() as u32 - 1)
}
