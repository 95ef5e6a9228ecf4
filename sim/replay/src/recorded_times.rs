//! The times that the calls of a recording took, for a simulation that plays them instead of working them out.

use crate::recover::Recovered;
use lockstep_analysis::{Activity, transfers};
use lockstep_core::plan::{Call, CallTimes, TimedCall, TimedTransfer, TransferTime};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The times of a recovered plan's calls by `activity`, of the same recording: per call of a group and its size, the
/// median from when its last member was ready to its end. Calls of which no time was recorded are left out.
pub fn recorded_times(recovered: &Recovered, activity: &Activity) -> CallTimes {
    let plan = &recovered.plan;
    let mut collectives: BTreeMap<TimedCall, Vec<u64>> = BTreeMap::new();
    let mut messages: BTreeMap<TimedTransfer, Vec<u64>> = BTreeMap::new();
    for transfer in transfers(activity) {
        let own = activity.ranks.get(transfer.rank.index());
        let op = own
            .and_then(|own| own.calls.get(transfer.call)?.plan_op)
            .or_else(|| recovered.calls.op_of_record(transfer.rank, transfer.call));
        let op = op.and_then(|op| plan.program(transfer.rank)?.ops.get(op as usize));
        // Of calls that are made together none has a time of its own.
        let Some([call]) = op.map(|op| op.action.calls()) else { continue };
        if let Some(timed) = plan.timed_call(call) {
            collectives.entry(timed).or_default().push(transfer.time_ps);
        } else if let Some(timed) = message_of(recovered, transfer.rank, call) {
            messages.entry(timed).or_default().push(transfer.time_ps);
        }
    }
    let mut times = CallTimes::new("times as recorded");
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
