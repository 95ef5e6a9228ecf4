//! `TORCH_DISTRIBUTED_DEBUG=DETAIL`: PyTorch wraps every backend, so that a collective first waits in a
//! monitored barrier for all ranks of its group and compares their calls (`ProcessGroupWrapper.cpp`). Ranks
//! that disagree raise instead of hanging.
//!
//! The ranks of a job are recorded one after the other, so the comparison is made once all have run: each is
//! cut off before the call in which it raises. The time that the wrapper costs, and the wait before a rank
//! counts as missing, are not in the plan.

mod of_plan;

pub use of_plan::{DetailRaise, detail_of};

use super::dist::Dist;
use super::fingerprint::{Check, FingerPrint, Look};
use super::issue::Issue;
use super::tensor::{Tensor, options};
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use lockstep_core::plan::Call;

impl Dist<'_> {
    /// Notes a call that is about to be made, if the wrapper is there to compare it.
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

    /// Notes a collective inside an object call, whose tensors are the library's own.
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

    /// The errors that each of two ranks raises under DETAIL.
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
