//! `TORCH_DISTRIBUTED_DEBUG=DETAIL`: PyTorch wraps every backend, so that a collective first waits
//! in a monitored barrier for all ranks of its group and compares what they are about to call
//! (`ProcessGroupWrapper.cpp`). Ranks that disagree raise instead of hanging.
//!
//! The ranks of a job are recorded one after the other, so the comparison is made once all have
//! run: each is cut off before the call in which it raises. What the wrapper costs in time, and
//! the wait before a rank counts as missing, are not in the plan.

mod of_plan;

pub use of_plan::{DetailRaise, detail_of};

use super::dist::Dist;
use super::error::{DistError, runtime_error};
use super::issue::Issue;
use super::tensor::{Tensor, options};
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use lockstep_core::plan::Call;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The variable that switches the wrapper on.
pub(super) const VARIABLE: &str = "TORCH_DISTRIBUTED_DEBUG";

/// c10d's `OpType`s of collectives, by their numbers; the gaps are no collectives.
const OP_TYPES: [(i64, &str); 14] = [
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

/// What a rank is about to call: `CollectiveFingerPrint`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FingerPrint {
    op_type: i64,
    seq: u64,
    tensors: Vec<Look>,
}

/// What is compared of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    dtype: &'static str,
    device: String,
    shape: Vec<u64>,
}

/// A collective that the wrapper compares before it is made.
#[derive(Clone, Debug)]
pub(super) struct Check {
    group: GroupId,
    print: FingerPrint,
    /// How many operations its rank had recorded before it.
    pub(super) before: usize,
}

/// A rank whose call raises: which of its checks it was, and with what.
pub(super) struct Raised {
    pub(super) rank: GlobalRank,
    pub(super) check: usize,
    pub(super) error: DistError,
}

impl FingerPrint {
    /// Its length as a tensor of int64, which is what is compared first.
    fn len(&self) -> i64 {
        let numbers = self.tensors.iter().map(|look| 3 + look.shape.len()).sum::<usize>();
        3 + numbers as i64
    }

    /// What a rank takes another's length for: PyTorch reads it as if it were a fingerprint.
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

/// What `me` raises among the fingerprints of its group, by group rank: the lengths are compared
/// first, then what they are of.
fn mismatch(me: usize, prints: &[&FingerPrint]) -> Option<DistError> {
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

/// What `me`, a group rank, raises when `missing` do not come: the monitored barrier's words.
fn absence(me: usize, missing: &[usize], timeout_ms: u64) -> DistError {
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

/// Lets every rank go through its checks, in its order, as far as they all agree; says who raises.
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

impl Dist<'_> {
    /// Notes what a call is about to do, if the wrapper is there to compare it.
    pub(super) fn note_check(&mut self, issue: &Issue) {
        if !self.shared.debug_detail() {
            return;
        }
        let Some(call) = issue.calls.first() else { return };
        let Call::Collective { collective, .. } = call else { return };
        // It is a barrier of its own kind, which the wrapper passes on.
        if collective.is_barrier() && *collective != Collective::Barrier {
            return;
        }
        let (op_type, compared) = compared(issue, *collective);
        let tensors = compared.iter().map(look).collect();
        self.check(issue.group, op_type, tensors);
    }

    /// The same of a collective inside an object call, whose tensors are the library's own.
    pub(super) fn note_call(&mut self, group: GroupId, collective: Collective) {
        if self.shared.debug_detail() {
            self.check(group, op_type(collective), Vec::new());
        }
    }

    fn check(&mut self, group: GroupId, op_type: i64, tensors: Vec<Look>) {
        let made = self.state.checks.iter().filter(|check| check.group == group).count();
        let print = FingerPrint { op_type, seq: made as u64, tensors };
        let before = self.state.recorded.len();
        self.state.checks.push(Check { group, print, before });
    }
}

fn look(tensor: &Tensor) -> Look {
    let dtype = tensor.dtype.scalar_type();
    // c10d prints the options of a device alone: the type in them is the default.
    let device = options(&Tensor { dtype: lockstep_core::dtype::Dtype::Float32, ..tensor.clone() });
    let device = device.replace("dtype=float,", "dtype=float (default),");
    let device = device.replace("layout=Strided,", "layout=Strided (default),");
    Look { dtype, device: device.replace("cuda:0", "cuda"), shape: tensor.shape.clone() }
}

/// A call's `OpType`, and the tensors that the wrapper compares.
fn compared(issue: &Issue, collective: Collective) -> (i64, &[Tensor]) {
    let (reads, writes) = (&issue.reads[..], &issue.writes[..]);
    match issue.via {
        "broadcast" => (0, reads),
        "all_reduce" => (1, reads),
        "all_reduce_coalesced" => (2, &[]),
        "reduce" => (3, reads),
        "all_gather" => (4, reads),
        "all_gather_into_tensor" => (5, reads),
        "all_gather_coalesced" => (6, &[]),
        "gather" => (7, reads),
        "scatter" => (8, writes),
        "reduce_scatter" => (9, writes),
        "all_to_all_single" => (10, &[]),
        "all_to_all" => (11, &[]),
        "reduce_scatter_tensor" => (16, reads),
        _ => (op_type(collective), &[]),
    }
}

/// The `OpType` of a collective by itself.
fn op_type(collective: Collective) -> i64 {
    match collective {
        Collective::Broadcast { .. } => 0,
        Collective::AllReduce { .. } => 1,
        Collective::Reduce { .. } => 3,
        Collective::AllGather => 4,
        Collective::Gather { .. } => 7,
        Collective::Scatter { .. } => 8,
        Collective::ReduceScatter { .. } => 9,
        Collective::AllToAll => 11,
        Collective::Barrier | Collective::MonitoredBarrier { .. } => 15,
    }
}

#[cfg(test)]
mod tests {
    use crate::c10d::{Dist, DistError, FromRank, InGroup, Job, Reduction};
    use lockstep_core::dtype::Dtype;
    use lockstep_core::plan::Fill;
    use lockstep_core::rank::GlobalRank;

    /// What each of two ranks raises under DETAIL.
    fn raised(script: fn(&mut Dist<'_>, u32) -> Result<(), DistError>) -> [String; 2] {
        let mut job = Job::new("detail", 2).unwrap();
        job.debug_detail();
        job.run(|dist| {
            dist.init_process_group("gloo")?;
            let rank = dist.process().0;
            script(dist, rank)
        });
        let said = [0, 1].map(|rank| job.raised(GlobalRank(rank)).map(|error| error.text.clone()));
        // Nobody waits for anybody in what is left.
        let plan = job.finish().unwrap();
        let calls: Vec<usize> = plan.programs.iter().map(|program| program.ops.len()).collect();
        assert!(calls.windows(2).all(|pair| pair[0] == pair[1]), "{calls:?}");
        said.map(Option::unwrap_or_default)
    }

    const LIKE: &str = "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), \
                        device=cpu, layout=Strided (default), requires_grad=false (default), \
                        pinned_memory=false (default), memory_format=(nullopt)))";

    fn print(seq: u32, op: &str, shape: &str) -> String {
        format!(
            "CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape={shape}, {LIKE}"
        )
    }

    /// As real PyTorch answered (gloo on CPU, two ranks).
    #[test]
    fn ranks_that_disagree_raise_what_pytorch_raises() {
        let said = raised(|dist, rank| {
            let columns = if rank == 0 { 3 } else { 4 };
            let x = dist.tensor("x", Dtype::Float32, [2, columns], Fill::Rank);
            dist.all_reduce(&x, Reduction::default()).map(drop)
        });
        let two_by = |columns| print(0, "ALLREDUCE", &format!("[2, {columns}]"));
        assert_eq!(
            said[1],
            format!(
                "Detected mismatch between collectives on ranks. Rank 1 is running collective: {}, \
                 but Rank 0 is running collective: {}.Collectives differ in the following aspects:   \
                 Tensor Tensor shapes: 2 4vs 2 3",
                two_by(4),
                two_by(3)
            )
        );
        let said = raised(|dist, rank| {
            let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
            if rank == 1 {
                return dist.broadcast(&x, FromRank::src(0)).map(drop);
            }
            let outputs =
                [0, 1].map(|i| dist.tensor(&format!("y{i}"), Dtype::Float32, 4, Fill::Zeros));
            dist.all_gather(&outputs[..], &x, InGroup::default()).map(drop)
        });
        assert!(said[0].ends_with("Op type: ALLGATHERvs BROADCAST"), "{}", said[0]);
    }

    /// Fingerprints of different lengths are compared by their lengths first, and each is read as
    /// if it were a call: 8 numbers are SCATTER.
    #[test]
    fn lengths_are_misread_as_pytorch_misreads_them() {
        let said = raised(|dist, rank| {
            let warm = dist.tensor("warm", Dtype::Float32, 3, Fill::Rank);
            dist.all_reduce(&warm, Reduction::default())?;
            dist.barrier(InGroup::default())?;
            let x = match rank {
                0 => dist.tensor("x", Dtype::Float32, [2, 3], Fill::Rank),
                _ => dist.tensor("y", Dtype::Float32, 6, Fill::Rank),
            };
            dist.all_reduce(&x, Reduction::default()).map(drop)
        });
        let begin = format!(
            "Detected mismatch between collectives on ranks. Rank 1 is running collective: {}, but \
             Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=SCATTER).\
             Collectives differ in the following aspects: \t Sequence number: 2vs 0  Op type: \
             ALLREDUCEvs SCATTER  Tensor Tensor shapes: 6vs",
            print(2, "ALLREDUCE", "[6]")
        );
        assert!(said[1].starts_with(&begin), "{}\n{begin}", said[1]);
    }

    #[test]
    fn ranks_that_agree_and_ranks_without_the_wrapper_raise_nothing() {
        let agree = |dist: &mut Dist<'_>, _: u32| {
            let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
            dist.all_reduce(&x, Reduction::default())?;
            dist.barrier(InGroup::default()).map(drop)
        };
        assert_eq!(raised(agree), [String::new(), String::new()]);
        let mut job = Job::new("plain", 2).unwrap();
        job.run(|dist| {
            dist.init_process_group("gloo")?;
            let x = dist.tensor("x", Dtype::Float32, 4 + u64::from(dist.process().0), Fill::Rank);
            dist.all_reduce(&x, Reduction::default()).map(drop)
        });
        assert!((0..2).all(|rank| job.raised(GlobalRank(rank)).is_none()));
    }

    #[test]
    fn who_never_comes_is_named() {
        let mut job = Job::new("missing", 3).unwrap();
        job.debug_detail();
        job.run(|dist| {
            dist.init_process_group("gloo")?;
            let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
            match dist.process().0 {
                1 => Ok(()),
                _ => dist.all_reduce(&x, Reduction::default()).map(drop),
            }
        });
        let said = |rank| job.raised(GlobalRank(rank)).map(|error| error.text.clone());
        let first = said(0).unwrap();
        assert_eq!(first, "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1800000 ms");
        assert_eq!(said(1), None);
        assert!(said(2).unwrap().contains("Please check rank 0 logs for faulty rank."));
    }
}
