//! The times that the calls of a recording took, for a simulation that plays them instead of working them out.
//!
//! Each collective takes its own recorded time on each rank. One without, which a rank's recording does not show to have
//! ended, takes the median of its kind.

use crate::recover::Recovered;
use lockstep_analysis::{Activity, Transfer, member_times, transfers};
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, CallTimes, Plan, TimedCall, TimedTransfer, TransferTime};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The times of a recovered plan's calls by `activity`, of the same recording: from when a call's last member was ready
/// to its end on a rank. Calls of which no time was recorded are left out; nothing is left where no call took any time.
pub fn recorded_times(recovered: &Recovered, activity: &Activity) -> CallTimes {
    let plan = &recovered.plan;
    let mut collectives: BTreeMap<TimedCall, Vec<u64>> = BTreeMap::new();
    let mut messages: BTreeMap<TimedTransfer, Vec<u64>> = BTreeMap::new();
    let mut times = CallTimes::new("times as recorded");
    let transfers = transfers(activity);
    // A trace without times has all calls at once.
    if transfers.iter().all(|transfer| transfer.time_ps == 0) {
        return times;
    }
    let op_of = |transfer: &Transfer| {
        let own = activity.ranks.get(transfer.rank.index());
        own.and_then(|own| own.calls.get(transfer.call)?.plan_op)
            .or_else(|| recovered.calls.op_of_record(transfer.rank, transfer.call))
    };
    for transfer in transfers {
        let op = op_of(&transfer);
        let op = op.and_then(|op| plan.program(transfer.rank)?.ops.get(op as usize));
        // Of calls that are made together none has a time of its own.
        let Some([call]) = op.map(|op| op.action.calls()) else { continue };
        if let Some(timed) = plan.timed_call(call) {
            collectives.entry(timed).or_default().push(transfer.time_ps);
        } else if let Some(timed) = message_of(recovered, transfer.rank, call) {
            messages.entry(timed).or_default().push(transfer.time_ps);
        }
    }
    let seqs = (0..plan.world_size).map(|rank| seqs(plan, GlobalRank(rank)));
    let seqs: Vec<Vec<Option<(GroupId, u64)>>> = seqs.collect();
    for member in member_times(activity) {
        let seqs = seqs.get(member.rank.index());
        let seq = op_of(&member).and_then(|op| *seqs?.get(op as usize)?);
        if let Some((group, seq)) = seq {
            times.set_single((member.rank, group, seq), member.time_ps);
        }
    }
    for (call, mut took) in collectives {
        if let Some(median_ps) = median(&mut took) {
            times.set_collective(call, median_ps);
        }
    }
    for (message, mut took) in messages {
        if let Some(latency_ps) = median(&mut took) {
            times.set_transfer(message, TransferTime { latency_ps, transmit_ps: 0 });
        }
    }
    times
}

/// By operation of a rank's program, the group and the sequence number of the collective that it makes; `None` of one
/// that makes none or several.
fn seqs(plan: &Plan, rank: GlobalRank) -> Vec<Option<(GroupId, u64)>> {
    let mut made: BTreeMap<GroupId, u64> = BTreeMap::new();
    let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
    let of_op = ops.iter().map(|op| {
        let collectives = op.action.calls().iter().filter(|call| !call.is_p2p());
        let seqs = collectives.map(|call| {
            let seq = made.entry(call.group()).or_default();
            *seq += 1;
            (call.group(), *seq)
        });
        let seqs: Vec<(GroupId, u64)> = seqs.collect();
        match seqs.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    });
    of_op.collect()
}

/// The message that a rank sends or receives by a call; `None` where the other side is not known.
fn message_of(recovered: &Recovered, rank: GlobalRank, call: &Call) -> Option<TimedTransfer> {
    let plan = &recovered.plan;
    let of = |peer| plan.group(call.group())?.global_rank(peer);
    let (from, to, tensor) = match call {
        Call::Send { peer, tensor, .. } => (rank, of(*peer)?, tensor),
        Call::Recv { peer, tensor, .. } => (of((*peer)?)?, rank, tensor),
        Call::Collective { .. } => return None,
    };
    let bytes = plan.tensor(*tensor)?.bytes();
    Some(TimedTransfer { group: call.group(), from, to, bytes })
}

fn median(times: &mut [u64]) -> Option<u64> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
