//! The `*_multigpu` calls of PyTorch 1.x, for a process that has several GPUs: a local step over its devices
//! around the group's collective. PyTorch deprecated them in 1.13 and removed them in 2.2; they are here as
//! they were.

use super::args::{FromRank, InGroup, Reduction, TensorListArg, ToRank};
use super::checks::{list, reduce_op, same_dtype};
use super::dist::{Called, Dist};
use super::error::{DistError, runtime_error};
use super::issue::{Issue, Use};
use super::tensor::Tensor;
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;

impl Dist<'_> {
    /// `dist.broadcast_multigpu(tensor_list, src, src_tensor=0)`: entry `src_tensor` of the
    /// source's list to every entry of every rank's.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn broadcast_multigpu(
        &mut self,
        tensor_list: impl Into<TensorListArg>,
        options: FromRank,
        src_tensor: usize,
    ) -> Called {
        let FromRank { src, group_src, group, async_op } = options;
        let tensors = list(tensor_list, "tensor_list")?;
        let group = self.or_default(group)?;
        let root = self.group_rank_of(group, src, group_src)?;
        let Some(pg) = self.member(Some(group), "broadcast_multigpu")? else { return Ok(None) };
        let one = pick(&tensors, src_tensor)?;
        let (asked, id) = self.ask(pg, one.device, "broadcast")?;
        let root = GroupRank(asked.root(root)?);
        asked.all_like(&tensors, &one)?;
        let mut issue = Issue::new("broadcast_multigpu", id);
        issue.fault = asked.while_working(None, one.dtype);
        let buffer = self.whole(&mut issue, &one, Use::ReadWrite, "tensor");
        issue.collective(id, Collective::Broadcast { root }, one.numel(), None, Some(buffer));
        spread(&mut issue, &one, &tensors, src_tensor);
        self.issue(issue, async_op)
    }

    /// `dist.all_reduce_multigpu(tensor_list, op)`: the reduction over all entries of all ranks, to
    /// every entry.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_reduce_multigpu(
        &mut self,
        tensor_list: impl Into<TensorListArg>,
        options: Reduction,
    ) -> Called {
        let Reduction { op, group, async_op } = options;
        let tensors = list(tensor_list, "tensor_list")?;
        let Some(pg) = self.member(group, "all_reduce_multigpu")? else { return Ok(None) };
        let op = reduce_op(&op, "AllreduceOptions")?;
        let one = pick(&tensors, 0)?;
        let (asked, id) = self.ask(pg, one.device, "allreduce")?;
        asked.all_like(&tensors, &one)?;
        let mut issue = Issue::new("all_reduce_multigpu", id);
        issue.fault = asked.while_working(Some(op), one.dtype);
        combine(&mut issue, &tensors, &one, 0, op);
        let buffer = self.whole(&mut issue, &one, Use::ReadWrite, "tensor");
        issue.collective(id, Collective::AllReduce { op }, one.numel(), None, Some(buffer));
        spread(&mut issue, &one, &tensors, 0);
        self.issue(issue, async_op)
    }

    /// `dist.reduce_multigpu(tensor_list, dst, op, dst_tensor=0)`: the reduction over all entries
    /// of all ranks, to entry `dst_tensor` of the destination.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn reduce_multigpu(
        &mut self,
        tensor_list: impl Into<TensorListArg>,
        to: ToRank,
        op: ReduceOp,
        dst_tensor: usize,
    ) -> Called {
        let ToRank { dst, group_dst, group, async_op } = to;
        let tensors = list(tensor_list, "tensor_list")?;
        let group = self.or_default(group)?;
        let root = self.group_rank_of(group, dst, group_dst)?;
        let Some(pg) = self.member(Some(group), "reduce_multigpu")? else { return Ok(None) };
        let one = pick(&tensors, dst_tensor)?;
        let (asked, id) = self.ask(pg, one.device, "reduce")?;
        let root = GroupRank(asked.root(root)?);
        asked.all_like(&tensors, &one)?;
        let mut issue = Issue::new("reduce_multigpu", id);
        issue.fault = asked.while_working(Some(op), one.dtype);
        combine(&mut issue, &tensors, &one, dst_tensor, op);
        let buffer = self.whole(&mut issue, &one, Use::ReadWrite, "tensor");
        issue.collective(id, Collective::Reduce { op, root }, one.numel(), None, Some(buffer));
        self.issue(issue, async_op)
    }

    /// `dist.all_gather_multigpu(output_tensor_lists, input_tensor_list)`: every entry of every
    /// rank's input list, to each of the output lists.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_gather_multigpu(
        &mut self,
        output_tensor_lists: Vec<TensorListArg>,
        input_tensor_list: impl Into<TensorListArg>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let inputs = list(input_tensor_list, "input_tensor_list")?;
        let outputs: Result<Vec<_>, DistError> = output_tensor_lists
            .into_iter()
            .map(|outputs| list(outputs, "output_tensor_lists"))
            .collect();
        let outputs = outputs?;
        same_dtype(inputs.iter().chain(outputs.iter().flatten()))?;
        let Some(pg) = self.member(group, "all_gather_multigpu")? else { return Ok(None) };
        let one = pick(&inputs, 0)?;
        let (asked, id) = self.ask(pg, one.device, "allgather")?;
        asked.all_like(&inputs, &one)?;
        if outputs.len() != inputs.len() {
            return Err(runtime_error(
                "ProcessGroupGloo::allgather: requires input/output tensor lists to have the same \
                 length",
            ));
        }
        let expected = inputs.len() * asked.size as usize;
        for (index, outputs) in outputs.iter().enumerate() {
            if outputs.len() != expected {
                let found = outputs.len();
                let expected = expected as u32;
                return Err(super::collectives::asked_list_length(asked, index, expected, found));
            }
            asked.all_like(outputs, &one)?;
        }
        let mut issue = Issue::new("all_gather_multigpu", id);
        issue.fault = asked.while_working(None, one.dtype);
        let count = one.numel().saturating_mul(inputs.len() as u64);
        let from = self.flat(&mut issue, &inputs, Use::Read, "inputs");
        let into = self.flat(&mut issue, &outputs[0], Use::Write, "outputs");
        issue.collective(id, Collective::AllGather, count, Some(from), Some(into));
        for others in &outputs[1..] {
            for (first, other) in outputs[0].iter().zip(others) {
                issue.copy_after(first, other);
            }
        }
        self.issue(issue, async_op)
    }

    /// `dist.reduce_scatter_multigpu(output_tensor_list, input_tensor_lists, op)`: the reduction
    /// over all lists of all ranks, its entries dealt to all devices of all ranks.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn reduce_scatter_multigpu(
        &mut self,
        output_tensor_list: impl Into<TensorListArg>,
        input_tensor_lists: Vec<TensorListArg>,
        options: Reduction,
    ) -> Called {
        let Reduction { op, group, async_op } = options;
        let outputs = list(output_tensor_list, "output_tensor_list")?;
        let inputs: Result<Vec<_>, DistError> = input_tensor_lists
            .into_iter()
            .map(|inputs| list(inputs, "input_tensor_lists"))
            .collect();
        let inputs = inputs?;
        same_dtype(outputs.iter().chain(inputs.iter().flatten()))?;
        let Some(pg) = self.member(group, "reduce_scatter_multigpu")? else { return Ok(None) };
        let op = reduce_op(&op, "ReduceScatterOptions")?;
        let one = pick(&outputs, 0)?;
        let (asked, id) = self.ask(pg, one.device, "reduce_scatter")?;
        if asked.backend == lockstep_core::group::BackendName::Gloo {
            return Err(runtime_error("ProcessGroupGloo does not support reduce_scatter"));
        }
        let expected = outputs.len() * asked.size as usize;
        if inputs.len() != outputs.len() || inputs.iter().any(|list| list.len() != expected) {
            return Err(runtime_error("invalid input tensor lists").with_help(format!(
                "Pass one list for each of the {} outputs, each of {expected} tensors.",
                outputs.len()
            )));
        }
        let mut issue = Issue::new("reduce_scatter_multigpu", id);
        issue.fault = asked.while_working(Some(op), one.dtype);
        for others in &inputs[1..] {
            for (first, other) in inputs[0].iter().zip(others) {
                issue.copy_before(other, first, Some(op));
            }
        }
        let count = one.numel().saturating_mul(outputs.len() as u64);
        let from = self.flat(&mut issue, &inputs[0], Use::Read, "inputs");
        let into = self.flat(&mut issue, &outputs, Use::Write, "outputs");
        issue.collective(id, Collective::ReduceScatter { op }, count, Some(from), Some(into));
        self.issue(issue, async_op)
    }
}

/// The local reduction before the call: every other entry into one.
fn combine(issue: &mut Issue, tensors: &[Tensor], one: &Tensor, index: usize, op: ReduceOp) {
    for (place, other) in tensors.iter().enumerate() {
        if place != index {
            issue.copy_before(other, one, Some(op));
        }
    }
}

/// The local broadcast after the call: one entry to every other.
fn spread(issue: &mut Issue, one: &Tensor, tensors: &[Tensor], index: usize) {
    for (place, other) in tensors.iter().enumerate() {
        if place != index {
            issue.copy_after(one, other);
        }
    }
}

fn pick(tensors: &[Tensor], index: usize) -> Result<Tensor, DistError> {
    tensors.get(index).cloned().ok_or_else(|| {
        runtime_error(format!("invalid root tensor: {index}"))
            .with_help(format!("The list has {} tensors.", tensors.len()))
    })
}
