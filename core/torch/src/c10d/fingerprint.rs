//! The comparison of `TORCH_DISTRIBUTED_DEBUG=DETAIL`: the calls that ranks are about to make, and the ranks
//! that raise.

use super::error::{DistError, runtime_error};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// c10d's `OpType`s of collectives, by their numbers; the gaps are no collectives.
pub(super) const OP_TYPES: [(i64, &str); 14] = [
    (0, "BROADCAST"),
    (1, "ALLREDUCE"),
    (2, "ALLREDUCE_COALESCED"),
    (3, "REDUCE"),
    (4, "ALLGATHER"),
    (5, "_ALLGATHER_BASE"),
    (6, "ALLGATHER_COALESCED"),
    (7, "GATHER"),
    (8, "SCATTER"),
    (9, "REDUCE_SCATTER"),
    (10, "ALLTOALL_BASE"),
    (11, "ALLTOALL"),
    (15, "BARRIER"),
    (16, "_REDUCE_SCATTER_BASE"),
];

/// The call that a rank is about to make: `CollectiveFingerPrint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FingerPrint {
    pub(super) op_type: i64,
    pub(super) seq: u64,
    pub(super) tensors: Vec<Look>,
}

/// The compared properties of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) dtype: &'static str,
    pub(super) device: String,
    pub(super) shape: Vec<u64>,
}

/// A collective that the wrapper compares before it is made.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) group: GroupId,
    pub(super) print: FingerPrint,
    /// The number of operations that its rank had recorded before it.
    pub(super) before: usize,
}

/// A rank whose call raises: the index of the check, and the error.
pub(super) struct Raised {
    pub(super) rank: GlobalRank,
    pub(super) check: usize,
    pub(super) error: DistError,
}

impl FingerPrint {
    /// The length as a tensor of int64, which is compared first.
    fn len(&self) -> i64 {
        let numbers = self.tensors.iter().map(|look| 3 + look.shape.len()).sum::<usize>();
        3 + numbers as i64
    }

    /// The fingerprint that a rank takes another's length for: PyTorch reads it as if it were one.
    fn misread(&self) -> FingerPrint {
        FingerPrint { op_type: self.len(), seq: 0, tensors: Vec::new() }
    }

    fn op_name(&self) -> &'static str {
        let known = OP_TYPES.iter().find(|(code, _)| *code == self.op_type);
        known.map_or("UNKNOWN", |(_, name)| name)
    }

    fn shape(&self) -> Vec<String> {
        let first = self.tensors.first();
        first.into_iter().flat_map(|look| &look.shape).map(u64::to_string).collect()
    }

    fn dtypes(&self) -> Vec<String> {
        self.tensors.iter().map(|look| look.dtype.to_owned()).collect()
    }

    fn devices(&self) -> Vec<String> {
        self.tensors.iter().map(|look| look.device.clone()).collect()
    }

    /// As PyTorch prints it, without a comma where there are no tensors.
    fn text(&self) -> String {
        let (seq, op) = (self.seq, self.op_name());
        if self.tensors.is_empty() {
            return format!("CollectiveFingerPrint(SequenceNumber={seq}OpType={op})");
        }
        format!(
            "CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{}], \
             TensorDtypes={}, TensorDeviceTypes={})",
            self.shape().join(", "),
            self.dtypes().join(" "),
            self.devices().join(" ")
        )
    }

    /// `compute_collective_diff`.
    fn difference(&self, other: &FingerPrint) -> Option<String> {
        let mut aspects = String::new();
        if self.seq != other.seq {
            aspects.push_str(&format!("\t Sequence number: {}vs {}", self.seq, other.seq));
        }
        if self.op_name() != other.op_name() {
            aspects.push_str(&format!("  Op type: {}vs {}", self.op_name(), other.op_name()));
        }
        for (what, mine, theirs) in [
            ("Tensor shapes", self.shape(), other.shape()),
            ("Tensor dtypes", self.dtypes(), other.dtypes()),
            ("Tensor devices", self.devices(), other.devices()),
        ] {
            if mine != theirs {
                let (mine, theirs) = (mine.join(" "), theirs.join(" "));
                aspects.push_str(&format!("  Tensor {what}: {mine}vs {theirs}"));
            }
        }
        (!aspects.is_empty())
            .then(|| format!("Collectives differ in the following aspects: {aspects}"))
    }
}

/// The error that `me` raises among the fingerprints of its group, by group rank: the lengths are compared
/// first, then the contents.
pub(super) fn mismatch(me: usize, prints: &[&FingerPrint]) -> Option<DistError> {
    let mine = prints[me];
    let other_length = prints.iter().position(|print| print.len() != mine.len());
    let (rank, other) = match other_length {
        Some(rank) => (rank, prints[rank].misread()),
        None => {
            let rank = prints.iter().position(|print| *print != mine)?;
            (rank, prints[rank].clone())
        }
    };
    let difference = mine.difference(&other).unwrap_or_default();
    let text = format!(
        "Detected mismatch between collectives on ranks. Rank {me} is running collective: {}, but \
         Rank {rank} is running collective: {}.{difference}",
        mine.text(),
        other.text()
    );
    let error = runtime_error(text.trim_end());
    Some(match other_length {
        Some(_) => error.with_help(format!(
            "What PyTorch 2.7.1 says of rank {rank} is a length misread as a call: it is about to \
             make {} there.",
            prints[rank].op_name()
        )),
        None => error,
    })
}

/// The error that `me`, a group rank, raises when `missing` do not come: the monitored barrier's words.
pub(super) fn absence(me: usize, missing: &[usize], timeout_ms: u64) -> DistError {
    let ranks: Vec<_> = missing.iter().map(usize::to_string).collect();
    if me == 0 {
        let ranks = ranks.join(", ");
        return runtime_error(format!(
            "[Rank 0]: Ranks {ranks} failed to pass monitoredBarrier in {timeout_ms} ms"
        ));
    }
    // A send waits for its receiver.
    let (line, what) = if missing.contains(&0) { (133, "send") } else { (81, "recv") };
    runtime_error(format!(
        "Rank {me} successfully reached monitoredBarrier, but received errors while waiting for \
         send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n\
         [third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:{line}] Timed out waiting \
         {timeout_ms}ms for {what} operation to complete"
    ))
    .with_help(format!("Group ranks {} never came.", ranks.join(", ")))
}

/// A group as the wrapper knows it.
pub(super) struct Members<'a> {
    pub(super) ranks: &'a [GlobalRank],
    pub(super) timeout_ms: u64,
}

/// Lets every rank go through its checks, in its order, as far as they all agree; returns the ranks that
/// raise.
pub(super) fn compare(checks: &[Vec<Check>], groups: &[Members<'_>]) -> Vec<Raised> {
    let mut next = vec![0usize; checks.len()];
    let mut come: BTreeMap<GroupId, usize> = BTreeMap::new();
    let mut raised = Vec::new();
    let mut moving: Vec<usize> = (0..checks.len()).rev().collect();
    let at = |rank: usize, next: &[usize]| checks.get(rank)?.get(*next.get(rank)?);
    while let Some(rank) = moving.pop() {
        let Some(check) = at(rank, &next) else { continue };
        let Some(group) = groups.get(check.group.index()) else { continue };
        let here = come.entry(check.group).or_default();
        *here += 1;
        if *here < group.ranks.len() {
            continue;
        }
        *here = 0;
        let prints: Option<Vec<&FingerPrint>> =
            group.ranks.iter().map(|rank| Some(&at(rank.index(), &next)?.print)).collect();
        let Some(prints) = prints else { continue };
        let agree = prints.windows(2).all(|pair| pair[0] == pair[1]);
        for (place, rank) in group.ranks.iter().enumerate() {
            let index = rank.index();
            let differs = if agree { None } else { mismatch(place, &prints) };
            match differs {
                Some(error) => raised.push(Raised { rank: *rank, check: next[index], error }),
                None => {
                    next[index] += 1;
                    moving.push(index);
                }
            }
        }
    }
    // Whoever still waits in a group waits for somebody who does not come.
    for (id, here) in come.into_iter().filter(|(_, here)| *here > 0) {
        let Some(group) = groups.get(id.index()) else { continue };
        let waits = |rank: &GlobalRank| {
            let raising = raised.iter().any(|one: &Raised| one.rank == *rank);
            !raising && at(rank.index(), &next).is_some_and(|check| check.group == id)
        };
        debug_assert!(here <= group.ranks.len());
        let places = || group.ranks.iter().enumerate();
        let missing: Vec<usize> =
            places().filter(|(_, rank)| !waits(rank)).map(|(place, _)| place).collect();
        let waiting: Vec<(usize, GlobalRank)> =
            places().filter(|(_, rank)| waits(rank)).map(|(place, rank)| (place, *rank)).collect();
        for (place, rank) in waiting {
            let error = absence(place, &missing, group.timeout_ms);
            raised.push(Raised { rank, check: next[rank.index()], error });
        }
    }
    raised
}

/// The variable that switches the wrapper on.
pub(super) const VARIABLE: &str = "TORCH_DISTRIBUTED_DEBUG";
