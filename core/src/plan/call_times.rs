//! The times of a plan's calls, each as a whole, if a model of a machine has worked them out.
//!
//! Without them a simulator adds up messages. With them a call takes the table's time from the moment at
//! which everything that it waits for is there; the schedule still decides which ranks wait for which.
//!
//! The table can also say which links a call or a transfer loads, and how much of each. Those in flight at the
//! same time whose loads add up to more than a link carries share it, and take longer.

use super::{Call, Plan};
use crate::collective::Collective;
use crate::group::GroupId;
use crate::rank::{GlobalRank, GroupRank};
use crate::reduce::ReduceOp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of c10d's barrier on NCCL: an `all_reduce` of one float32.
const BARRIER_BYTES: u64 = 4;

/// The rate of a rank that computes as usual: thousandths.
const USUAL_RATE: u64 = 1000;

/// A collective as far as its time depends on it. Roots and reductions do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimedCall {
    /// The group of the call.
    pub group: GroupId,
    /// The call, with root 0 and SUM.
    pub collective: Collective,
    /// Bytes as nccl-tests counts them: the larger of a rank's two buffers.
    pub bytes: u64,
}

/// A send and its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimedTransfer {
    /// The group of the two ranks.
    pub group: GroupId,
    /// The sender.
    pub from: GlobalRank,
    /// The receiver.
    pub to: GlobalRank,
    /// Bytes of the tensor.
    pub bytes: u64,
}

/// The time of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferTime {
    /// From the first byte's departure to its arrival, in picoseconds.
    pub latency_ps: u64,
    /// Time that the sender's and the receiver's port are busy with it, in picoseconds.
    pub transmit_ps: u64,
}

/// The part of a link that a call takes while it is carried out alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkLoad {
    /// The link, by its number on the machine.
    pub link: u32,
    /// Parts of [`LinkLoad::FULL`].
    pub load: u32,
}

impl LinkLoad {
    /// The load of a link that carries all it can.
    pub const FULL: u32 = 1 << 20;
}

/// A named cluster, and how a job sits on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCluster {
    /// Its name, or the TOML file that describes it.
    pub name: String,
    /// The number of ranks on each node.
    pub ranks_per_node: u32,
    /// The cluster's faults, as `--cluster-fault` takes them: `link:node=3,rate=0.5`.
    pub faults: Vec<String>,
}

/// The times of a plan's calls on a machine, and the ranks that compute slowly there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTimes {
    /// The machine in words, for the trace's origin.
    pub machine: String,
    /// The cluster, if the machine is one that has a name.
    pub cluster: Option<NamedCluster>,
    /// Per collective, picoseconds.
    collectives: BTreeMap<TimedCall, u64>,
    transfers: BTreeMap<TimedTransfer, TransferTime>,
    /// Times of single collectives on a rank, by group and sequence number: they go before those of their kind.
    single: BTreeMap<(GlobalRank, GroupId, u64), u64>,
    /// The links that collectives share with others.
    loads: BTreeMap<TimedCall, Vec<LinkLoad>>,
    /// The links that transfers share with others, while their bytes leave.
    transfer_loads: BTreeMap<TimedTransfer, Vec<LinkLoad>>,
    /// Ranks that do not compute as fast as the others: how fast, in thousandths.
    rates: BTreeMap<GlobalRank, u64>,
}

impl CallTimes {
    /// No times yet, of a machine in words.
    pub fn new(machine: impl Into<String>) -> CallTimes {
        CallTimes { machine: machine.into(), ..CallTimes::default() }
    }

    /// True if it has no time of any call.
    pub fn is_empty(&self) -> bool {
        self.collectives.is_empty() && self.transfers.is_empty() && self.single.is_empty()
    }

    /// Sets the time of a collective, in picoseconds.
    pub fn set_collective(&mut self, call: TimedCall, takes_ps: u64) {
        self.collectives.insert(call, takes_ps);
    }

    /// Sets the time of one collective on a rank, in picoseconds, by its sequence number in the group.
    pub fn set_single(&mut self, (rank, group, seq): (GlobalRank, GroupId, u64), takes_ps: u64) {
        self.single.insert((rank, group, seq), takes_ps);
    }

    /// Returns the time that one collective has on a rank, by its sequence number in the group; `None` if it takes the
    /// time of its kind.
    pub fn single(&self, (rank, group, seq): (GlobalRank, GroupId, u64)) -> Option<u64> {
        self.single.get(&(rank, group, seq)).copied()
    }

    /// Says which links a collective loads, each once. Links that nothing else loads may be left
    /// out. Loads above [`LinkLoad::FULL`] count as that: alone, a call takes its time.
    pub fn set_loads(&mut self, call: TimedCall, loads: impl IntoIterator<Item = LinkLoad>) {
        self.loads.insert(call, in_order(loads));
    }

    /// Says which links a transfer loads while its bytes leave: the directions in which it uses them have
    /// numbers of their own. A transfer with loads waits for no port; it shares its links.
    pub fn set_transfer_loads(
        &mut self,
        transfer: TimedTransfer,
        loads: impl IntoIterator<Item = LinkLoad>,
    ) {
        self.transfer_loads.insert(transfer, in_order(loads));
    }

    /// Returns the links that a transfer loads, in increasing order.
    pub fn transfer_loads(&self, transfer: &TimedTransfer) -> &[LinkLoad] {
        self.transfer_loads.get(transfer).map_or(&[], Vec::as_slice)
    }

    /// Returns the links that a collective loads, in increasing order.
    pub fn loads(&self, call: &TimedCall) -> &[LinkLoad] {
        self.loads.get(call).map_or(&[], Vec::as_slice)
    }

    /// True if any collective shares a link with others.
    pub fn has_loads(&self) -> bool {
        self.loads.values().any(|loads| !loads.is_empty())
    }

    /// Sets the time of a transfer.
    pub fn set_transfer(&mut self, transfer: TimedTransfer, takes: TransferTime) {
        self.transfers.insert(transfer, takes);
    }

    /// Lets a rank compute at so many thousandths of the usual rate; 0 counts as 1.
    pub fn set_rate(&mut self, rank: GlobalRank, thousandths: u64) {
        self.rates.insert(rank, thousandths.max(1));
    }

    /// Returns the time of a collective, in picoseconds; `None` if it is not in the table.
    pub fn collective(&self, call: &TimedCall) -> Option<u64> {
        self.collectives.get(call).copied()
    }

    /// Returns the time of a transfer; `None` if it is not in the table.
    pub fn transfer(&self, transfer: &TimedTransfer) -> Option<TransferTime> {
        self.transfers.get(transfer).copied()
    }

    /// Returns the time of a computation on a rank, in the unit of `usual`, its time elsewhere.
    pub fn computing(&self, rank: GlobalRank, usual: u64) -> u64 {
        match self.rates.get(&rank) {
            None => usual,
            Some(rate) => {
                let slowed = u128::from(usual) * u128::from(USUAL_RATE) / u128::from(*rate);
                u64::try_from(slowed).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Loads in the order of their links, each at most a full link.
fn in_order(loads: impl IntoIterator<Item = LinkLoad>) -> Vec<LinkLoad> {
    let loads = loads.into_iter().filter(|it| it.load > 0);
    let mut loads: Vec<LinkLoad> =
        loads.map(|it| LinkLoad { load: it.load.min(LinkLoad::FULL), ..it }).collect();
    loads.sort_unstable();
    loads.dedup_by_key(|load| load.link);
    loads
}

impl Plan {
    /// The parameters of a collective that its time depends on; `None` for sends and receives, and for groups
    /// that the plan does not have. For an uneven `all_to_all` the bytes are the larger of the rank's sent
    /// and received bytes.
    pub fn timed_call(&self, call: &Call) -> Option<TimedCall> {
        let Call::Collective { group, collective, count, input, output, splits, .. } = call else {
            return None;
        };
        let size = u64::from(self.group(*group)?.size());
        let tensor = output.or(*input).and_then(|id| self.tensor(id));
        let element = tensor.map_or(0, |tensor| tensor.dtype.size_bytes());
        let elements = match (collective, splits) {
            (_, Some(splits)) => {
                let sum = |parts: &[u64]| parts.iter().copied().fold(0, u64::saturating_add);
                sum(&splits.input).max(sum(&splits.output))
            }
            (it, None) if it.in_place() => *count,
            (_, None) => count.saturating_mul(size),
        };
        let bytes = match collective.is_barrier() {
            true => BARRIER_BYTES,
            false => elements.saturating_mul(element),
        };
        Some(TimedCall { group: *group, collective: plain(*collective), bytes })
    }

    /// The transfer of a send of `rank`; `None` for other calls.
    pub(crate) fn timed_transfer(&self, rank: GlobalRank, call: &Call) -> Option<TimedTransfer> {
        let Call::Send { group, peer, tensor, .. } = call else { return None };
        let to = self.group(*group)?.global_rank(*peer)?;
        let bytes = self.tensor(*tensor).map_or(0, |tensor| tensor.bytes());
        Some(TimedTransfer { group: *group, from: rank, to, bytes })
    }

    /// Every collective whose time a table has to say, in increasing order.
    pub fn timed_calls(&self) -> Vec<TimedCall> {
        let calls = self.programs.iter().flat_map(|program| &program.ops);
        let calls = calls.flat_map(|op| op.action.calls());
        let mut timed: Vec<TimedCall> = calls.filter_map(|call| self.timed_call(call)).collect();
        timed.sort_unstable();
        timed.dedup();
        timed
    }

    /// Every transfer whose time a table has to say, in increasing order.
    pub fn timed_transfers(&self) -> Vec<TimedTransfer> {
        let ranks = (0..self.world_size).map(GlobalRank);
        let of_rank = |rank: GlobalRank| {
            let ops = self.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
            let calls = ops.iter().flat_map(|op| op.action.calls());
            calls.filter_map(move |call| self.timed_transfer(rank, call))
        };
        let mut timed: Vec<TimedTransfer> = ranks.flat_map(of_rank).collect();
        timed.sort_unstable();
        timed.dedup();
        timed
    }
}

/// The call with root 0 and SUM.
fn plain(collective: Collective) -> Collective {
    let (op, root) = (ReduceOp::Sum, GroupRank(0));
    match collective {
        Collective::Broadcast { .. } => Collective::Broadcast { root },
        Collective::AllReduce { .. } => Collective::AllReduce { op },
        Collective::Reduce { .. } => Collective::Reduce { op, root },
        Collective::Gather { .. } => Collective::Gather { root },
        Collective::Scatter { .. } => Collective::Scatter { root },
        Collective::ReduceScatter { .. } => Collective::ReduceScatter { op },
        Collective::AllGather
        | Collective::AllToAll
        | Collective::Barrier
        | Collective::MonitoredBarrier { .. } => collective,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CollectiveLab;

    /// nccl-tests counts the larger buffer of a rank (PERFORMANCE.md).
    #[test]
    fn bytes_are_those_of_nccl_tests() {
        let (op, root) = (ReduceOp::Max, GroupRank(2));
        for collective in Collective::every(op, root) {
            let plan = CollectiveLab::new(collective, 4, 6).plan().unwrap();
            let timed = plan.timed_calls();
            let [timed] = timed.as_slice() else { panic!("{collective}: {timed:?}") };
            let bytes = match collective {
                Collective::Barrier => 4,
                it if it.in_place() => 6 * 4,
                _ => 4 * 6 * 4,
            };
            assert_eq!(
                (timed.bytes, timed.collective.root().unwrap_or(GroupRank(0)).0),
                (bytes, 0)
            );
        }
    }

    #[test]
    fn a_slow_rank_takes_longer_and_the_others_do_not() {
        let mut times = CallTimes::new("x");
        times.set_rate(GlobalRank(1), 250);
        assert_eq!([0, 1].map(|rank| times.computing(GlobalRank(rank), 10)), [10, 40]);
        assert_eq!(times.computing(GlobalRank(1), u64::MAX), u64::MAX);
    }
}
