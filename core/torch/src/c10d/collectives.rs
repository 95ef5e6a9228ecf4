//! Collectives on single tensors.

use super::args::{FromRank, InGroup, Reduction, TensorArg, ToRank};
use super::backend::Device;
use super::checks::{reduce_op, same_dtype, single};
use super::dist::{Called, Dist};
use super::error::{DistError, ErrorKind, runtime_error, type_error, value_error};
use super::held_calls::{Held, HeldKind};
use super::issue::{Issue, Use};
use super::process_group::{Group, GroupHandle};
use super::refusals::{Asked, splits};
use super::tensor::{Layout, Tensor};
use lockstep_core::collective::{Collective, Splits};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;

impl Dist<'_> {
    /// `dist.broadcast(tensor, src)`: the source's tensor to every rank, in place.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn broadcast(&mut self, tensor: impl Into<TensorArg>, options: FromRank) -> Called {
        let FromRank { src, group_src, group, async_op } = options;
        let group = self.or_default(group)?;
        let root = self.logged_rank_of(group, src, group_src)?;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(Some(group), "broadcast")? else { return Ok(None) };
        let (asked, id) = self.ask(pg, tensor.device, "broadcast")?;
        let root = GroupRank(asked.root(root)?);
        asked.tensor(&tensor)?;
        let mut issue = Issue::new("broadcast", id);
        let complex = asked.complex_as_it_is(tensor.dtype);
        issue.fault = complex.or_else(|| asked.while_working(None, tensor.dtype));
        let buffer = self.whole(&mut issue, &tensor, Use::ReadWrite, "tensor");
        let broadcast = Collective::Broadcast { root };
        issue.collective(id, broadcast, tensor.numel(), None, Some(buffer));
        self.issue(issue, async_op)
    }

    /// `dist.all_reduce(tensor, op)`: the reduction of all tensors to every rank, in place.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_reduce(&mut self, tensor: impl Into<TensorArg>, options: Reduction) -> Called {
        let Reduction { op, group, async_op } = options;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.not_in_group(group, "all_reduce")? else { return Ok(None) };
        self.complex_reduces(&tensor, &op)?;
        let op = reduce_op(&op, "AllreduceOptions")?;
        let pg = self.given_or_default(pg)?;
        let held = || Held { kind: HeldKind::AllReduce, op, input: tensor.clone(), output: None };
        if self.hold(pg, held) {
            return Ok(None);
        }
        let (asked, id) = self.ask(pg, tensor.device, "allreduce")?;
        if let Layout::Sparse { nnz } = tensor.layout {
            return self.all_reduce_sparse(asked, id, &tensor, nnz, op, async_op);
        }
        asked.tensor(&tensor)?;
        asked.reduces(tensor.dtype)?;
        let mut issue = Issue::new("all_reduce", id);
        issue.fault = asked.while_working(Some(op), tensor.dtype);
        let buffer = self.whole(&mut issue, &tensor, Use::ReadWrite, "tensor");
        issue.collective(id, Collective::AllReduce { op }, tensor.numel(), None, Some(buffer));
        self.issue(issue, async_op)
    }

    /// gloo sums sparse tensors by three gathers: of their sizes, their indices and their values
    /// (`AsyncSparseAllreduceWork`). Ranks are taken to store as many elements as this one; the
    /// plan shows the traffic, not the sum.
    fn all_reduce_sparse(
        &mut self,
        asked: Asked,
        id: GroupId,
        tensor: &Tensor,
        nnz: u64,
        op: ReduceOp,
        async_op: bool,
    ) -> Called {
        if asked.backend == BackendName::Nccl {
            return Err(runtime_error(
                "NCCL does not support all_reduce with sparse tensors. Please use dense tensors \
                 instead.",
            ));
        }
        if op != ReduceOp::Sum {
            return Err(runtime_error(
                "ProcessGroupGloo::allreduce: unsupported reduction operation (allreduce of sparse \
                 tensors only works with ReduceOp.SUM)",
            ));
        }
        let mut issue = Issue::new("all_reduce", id);
        issue.fault = asked.while_working(Some(op), tensor.dtype);
        let long = Tensor { dtype: Dtype::Int64, layout: Layout::Strided, ..tensor.clone() };
        let values = Tensor { layout: Layout::Strided, ..tensor.clone() };
        let dims = tensor.shape.len() as u64;
        for (name, like, count) in [
            ("sizes", &long, 9),
            ("indices", &long, dims.saturating_mul(nnz)),
            ("values", &values, nnz),
        ] {
            let size = u64::from(asked.size);
            let own = self.borrow(&mut issue, &format!("own_{name}"), like, count);
            let all = self.borrow(&mut issue, name, like, count.saturating_mul(size));
            let (own, all) = (Some(own.storage), Some(all.storage));
            issue.collective(id, Collective::AllGather, count, own, all);
        }
        self.issue(issue, async_op)
    }

    /// `dist.reduce(tensor, dst, op)`: the reduction of all tensors to the destination. The others'
    /// tensors are left with partial results.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn reduce(
        &mut self,
        tensor: impl Into<TensorArg>,
        to: ToRank,
        op: impl Into<super::args::Arg<ReduceOp>>,
    ) -> Called {
        let ToRank { dst, group_dst, group, async_op } = to;
        let group = self.or_default(group)?;
        let root = self.logged_rank_of(group, dst, group_dst)?;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(Some(group), "reduce")? else { return Ok(None) };
        let op = reduce_op(&op.into(), "ReduceOptions")?;
        let (asked, id) = self.ask(pg, tensor.device, "reduce")?;
        let root = GroupRank(asked.root(root)?);
        asked.tensor(&tensor)?;
        asked.reduces(tensor.dtype)?;
        let mut issue = Issue::new("reduce", id);
        let complex = asked.complex_as_it_is(tensor.dtype);
        issue.fault = complex.or_else(|| asked.while_working(Some(op), tensor.dtype));
        let buffer = self.whole(&mut issue, &tensor, Use::ReadWrite, "tensor");
        issue.collective(id, Collective::Reduce { op, root }, tensor.numel(), None, Some(buffer));
        self.issue(issue, async_op)
    }

    /// `dist.all_gather_into_tensor(output, input)`: every rank's tensor, one after the other.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_gather_into_tensor(
        &mut self,
        output: impl Into<TensorArg>,
        input: impl Into<TensorArg>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let input = single(input, "input_tensor")?;
        let output = single(output, "output_tensor")?;
        let Some(pg) = self.member(group, "all_gather_into_tensor")? else { return Ok(None) };
        let held = || Held {
            kind: HeldKind::AllGather,
            op: ReduceOp::Sum,
            input: input.clone(),
            output: Some(output.clone()),
        };
        if self.hold(pg, held) {
            return Ok(None);
        }
        let mut issue = Issue::new("all_gather_into_tensor", GroupId::WORLD);
        self.lower_all_gather(pg, &mut issue, &output, &input)?;
        self.issue(issue, async_op)
    }

    pub(super) fn lower_all_gather(
        &mut self,
        pg: GroupHandle,
        issue: &mut Issue,
        output: &Tensor,
        input: &Tensor,
    ) -> Result<(), DistError> {
        let (asked, id) = self.ask(pg, input.device, "allgather")?;
        asked.not_on_mpi("no support for _allgather_base in MPI process group")?;
        issue.group = id;
        asked.tensor(input)?;
        let size = u64::from(asked.size);
        if asked.backend == BackendName::Nccl {
            asked.tensor(output)?;
            if input.dtype != output.dtype {
                return Err(type_error("output tensor must have the same type as input tensor"));
            }
            if input.numel().saturating_mul(size) != output.numel() {
                return Err(value_error(
                    "output tensor size must be equal to world_size times input tensor size",
                ));
            }
        } else {
            // gloo cuts the output along dimension 0 and goes on as the list form.
            let parts = output.chunk(size);
            if parts.len() as u64 != size {
                return Err(asked_list_length(asked, 0, asked.size, parts.len()));
            }
            asked.all_like(&parts, input)?;
        }
        issue.fault = asked.while_working(None, input.dtype);
        let from = self.whole(issue, input, Use::Read, "input");
        let into = self.whole(issue, output, Use::Write, "output");
        issue.collective(id, Collective::AllGather, input.numel(), Some(from), Some(into));
        Ok(())
    }

    /// `dist.reduce_scatter_tensor(output, input, op)`: part i of the reduction to rank i. gloo of
    /// 2.7.1 makes it an `all_reduce` of a copy, and always sums, whatever `op` says.
    ///
    /// # Errors
    /// PyTorch's refusals; [`ErrorKind::Aborted`] where gloo's check ends the process.
    pub fn reduce_scatter_tensor(
        &mut self,
        output: impl Into<TensorArg>,
        input: impl Into<TensorArg>,
        options: Reduction,
    ) -> Called {
        let Reduction { op, group, async_op } = options;
        let output = single(output, "output")?;
        let input = single(input, "input")?;
        let Some(pg) = self.not_in_group(group, "reduce_scatter_tensor")? else {
            return Ok(None);
        };
        let op = reduce_op(&op, "ReduceScatterOptions")?;
        let pg = self.given_or_default(pg)?;
        let held = || Held {
            kind: HeldKind::ReduceScatter,
            op,
            input: input.clone(),
            output: Some(output.clone()),
        };
        if self.hold(pg, held) {
            return Ok(None);
        }
        let mut issue = Issue::new("reduce_scatter_tensor", GroupId::WORLD);
        self.lower_reduce_scatter(pg, &mut issue, &output, &input, op)?;
        self.issue(issue, async_op)
    }

    pub(super) fn lower_reduce_scatter(
        &mut self,
        pg: GroupHandle,
        issue: &mut Issue,
        output: &Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<(), DistError> {
        let (asked, id) = self.ask(pg, input.device, "reduce_scatter")?;
        issue.group = id;
        let size = u64::from(asked.size);
        if asked.backend == BackendName::Gloo {
            return self.gloo_reduce_scatter(asked, id, issue, output, input);
        }
        asked.not_on_mpi("Backend mpi does not support _reduce_scatter_base")?;
        if input.dtype != output.dtype {
            return Err(type_error("input tensor must be the same type as the output tensor."));
        }
        if input.numel() != output.numel().saturating_mul(size) {
            return Err(value_error(
                "input tensor must be the same size as output size times world size",
            ));
        }
        asked.reduces(output.dtype)?;
        asked.tensor(input)?;
        asked.tensor(output)?;
        if let Some(fault) = asked.while_working(Some(op), input.dtype) {
            issue.fault = Some(fault);
        }
        let from = self.whole(issue, input, Use::Read, "input");
        let into = self.whole(issue, output, Use::Write, "output");
        let call = Collective::ReduceScatter { op };
        issue.collective(id, call, output.numel(), Some(from), Some(into));
        Ok(())
    }

    /// `reduce_scatter_tensor_coalesced` of ProcessGroupGloo: clone, `all_reduce` with the default
    /// options, copy this rank's part.
    fn gloo_reduce_scatter(
        &mut self,
        asked: Asked,
        id: GroupId,
        issue: &mut Issue,
        output: &Tensor,
        input: &Tensor,
    ) -> Result<(), DistError> {
        let rows = |tensor: &Tensor| tensor.shape.first().copied().unwrap_or(0);
        let same_rest = output.shape.iter().skip(1).eq(input.shape.iter().skip(1));
        let fits = rows(output).saturating_mul(u64::from(asked.size)) == rows(input);
        if output.dtype != input.dtype || !fits || !same_rest {
            return Err(DistError::new(ErrorKind::Aborted, "").with_help(format!(
                "A check of ProcessGroupGloo ends the process: the input's first dimension ({}) \
                 must be the output's ({}) times the group's {} ranks, and the rest and the type \
                 equal.",
                rows(input),
                rows(output),
                asked.size
            )));
        }
        let complex = asked.complex_as_it_is(input.dtype);
        issue.fault = complex.or_else(|| asked.while_working(Some(ReduceOp::Sum), input.dtype));
        let clone = self.borrow(issue, "clone", input, input.numel());
        issue.copy_before(input, &clone, None);
        let all_reduce = Collective::AllReduce { op: ReduceOp::Sum };
        issue.collective(id, all_reduce, input.numel(), None, Some(clone.storage));
        let Some(me) = self.shared.group_rank(id, self.rank) else { return Ok(()) };
        let part = clone.slice(u64::from(me.0).saturating_mul(output.numel()), output.numel());
        issue.copy_after(&part, output);
        Ok(())
    }

    /// `dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes)`: part i of every rank's
    /// tensor to rank i. Without split sizes the parts are equal, and a remainder is left alone.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_to_all_single(
        &mut self,
        output: impl Into<TensorArg>,
        input: impl Into<TensorArg>,
        output_split_sizes: Option<&[u64]>,
        input_split_sizes: Option<&[u64]>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let Some(pg) = self.not_in_group(group, "all_to_all_single")? else { return Ok(None) };
        let output = single(output, "output")?;
        let input = single(input, "input")?;
        same_dtype([&output, &input])?;
        let pg = self.given_or_default(pg)?;
        let (asked, id) = self.ask(pg, input.device, "alltoall_base")?;
        if output.device != input.device {
            return Err(runtime_error(
                "output tensor and input tensor must be on the same type of device",
            ));
        }
        if asked.backend == BackendName::Nccl {
            asked.dense(&output)?;
            asked.dense(&input)?;
        }
        // gloo takes the output as it lies, also where it does not lie in a row.
        if asked.backend == BackendName::Gloo && !input.is_contiguous() {
            return Err(
                value_error("Tensors must be contiguous").with_help("Pass input.contiguous().")
            );
        }
        let to = output_split_sizes.unwrap_or_default();
        let from = input_split_sizes.unwrap_or_default();
        let mut issue = Issue::new("all_to_all_single", id);
        issue.fault = asked.while_working(None, input.dtype);
        if to.is_empty() && from.is_empty() {
            asked.nccl_type(input.dtype)?;
            if asked.backend == BackendName::Gloo && input.numel() != output.numel() {
                let text = "[enforce fail at third_party/gloo/gloo/alltoall.cc:30] in->size == \
                            out->size.";
                let refused = runtime_error(text).with_help(format!(
                    "Without split sizes both tensors have the same size; the input has {} \
                     elements, the output {}.",
                    input.numel(),
                    output.numel()
                ));
                issue.fault = issue.fault.or(Some(refused));
            }
            let count = input.numel().min(output.numel()) / u64::from(asked.size);
            let used = count * u64::from(asked.size);
            let from = self.whole(&mut issue, &input.slice(0, used), Use::Read, "input");
            let into = self.whole(&mut issue, &output.slice(0, used), Use::Write, "output");
            issue.collective(id, Collective::AllToAll, count, Some(from), Some(into));
            return self.issue(issue, async_op);
        }
        let checked = self.checked_splits(asked, id, (to, &output), (from, &input));
        match checked {
            Ok(parts) => {
                asked.nccl_type(input.dtype)?;
                let from = self.whole(&mut issue, &input, Use::Read, "input");
                let into = self.whole(&mut issue, &output, Use::Write, "output");
                issue.all_to_allv(id, parts, from, into);
            }
            // gloo checks on its thread, NCCL's backend at once.
            Err(refusal) if asked.backend == BackendName::Nccl => return Err(refusal),
            Err(refusal) => issue.fault = issue.fault.or(Some(refusal)),
        }
        self.issue(issue, async_op)
    }

    fn checked_splits(
        &self,
        asked: Asked,
        id: GroupId,
        to: (&[u64], &Tensor),
        from: (&[u64], &Tensor),
    ) -> Result<Splits, DistError> {
        let input = splits(from.0, from.1, asked.size)?;
        let output = splits(to.0, to.1, asked.size)?;
        let me = self.shared.group_rank(id, self.rank).map_or(0, GroupRank::index);
        if input.get(me) != output.get(me) && asked.backend == BackendName::Nccl {
            return Err(super::error::unsupported(format!(
                "this rank (group rank {me}) sends itself another number of elements than it \
                 expects from itself: gloo refuses that, and what NCCL does is not known here"
            )));
        }
        if input.get(me) != output.get(me) {
            let text = "[enforce fail at third_party/gloo/gloo/alltoallv.cc:138] \
                        inLengthPerRank[myRank] == outLengthPerRank[myRank].";
            return Err(runtime_error(text).with_help(format!(
                "What this rank (group rank {me}) sends to itself is not what it expects from \
                 itself."
            )));
        }
        Ok(Splits { input, output })
    }

    /// The group of a call that checks membership before it looks for the default group.
    pub(super) fn not_in_group(
        &mut self,
        group: Option<Group>,
        call: &str,
    ) -> Result<Option<Option<GroupHandle>>, DistError> {
        match group {
            None => Ok(Some(None)),
            Some(_) => Ok(self.member(group, call)?.map(Some)),
        }
    }

    pub(super) fn given_or_default(
        &self,
        group: Option<GroupHandle>,
    ) -> Result<GroupHandle, DistError> {
        group.map_or_else(|| self.default_group(), Ok)
    }

    /// The backend that serves the device in a group, and its group in the plan.
    pub(super) fn ask(
        &mut self,
        pg: GroupHandle,
        device: Device,
        call: &'static str,
    ) -> Result<(Asked, GroupId), DistError> {
        let backend = self.pg(pg).config.for_device(device)?;
        let size = self.pg(pg).size();
        Ok((Asked { backend, call, size }, self.plan_group(pg, backend)))
    }

    /// `all_reduce does not support … on complex tensors`, which Python raises.
    pub(super) fn complex_reduces(
        &self,
        tensor: &Tensor,
        op: &super::args::Arg<ReduceOp>,
    ) -> Result<(), DistError> {
        match op {
            super::args::Arg::Is(op) if tensor.dtype.is_complex() && !op.supports(tensor.dtype) => {
                let refused = lockstep_core::reduce::Refused::Complex { op: *op };
                Err(value_error(refused.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// `invalid output tensor list at index …` of allgather.
pub(super) fn asked_list_length(
    asked: Asked,
    index: usize,
    expected: u32,
    found: usize,
) -> DistError {
    let refusal = format!(
        "invalid output tensor list at index {index} (expected length {expected}, got {found})"
    );
    match asked.backend {
        BackendName::Nccl => value_error("Invalid output tensor list"),
        _ => runtime_error(format!("ProcessGroupGloo::allgather: {refusal}")),
    }
}
