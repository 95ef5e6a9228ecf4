//! Collectives on lists of tensors: one for each rank.

use super::args::{FromRank, InGroup, Reduction, TensorArg, TensorListArg, ToRank};
use super::checks::{list, reduce_op, same_dtype, single};
use super::collectives::asked_list_length;
use super::dist::{Called, Dist};
use super::error::{DistError, runtime_error, value_error};
use super::issue::{Issue, Use};
use super::refusals::Asked;
use super::tensor::Tensor;
use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GroupRank;

impl Dist<'_> {
    /// `dist.all_gather(tensor_list, tensor)`. NCCL makes lists of different sizes one broadcast a
    /// rank, all made together; gloo refuses them.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn all_gather(
        &mut self,
        tensor_list: impl Into<TensorListArg>,
        tensor: impl Into<TensorArg>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let outputs = list(tensor_list, "tensor_list")?;
        let tensor = single(tensor, "tensor")?;
        same_dtype(outputs.iter().chain([&tensor]))?;
        let Some(pg) = self.member(group, "all_gather")? else { return Ok(None) };
        let (asked, id) = self.ask(pg, tensor.device, "allgather")?;
        let size = asked.size;
        let mut issue = Issue::new("all_gather", id);
        if outputs.len() != size as usize {
            return Err(asked_list_length(asked, 0, size, outputs.len()));
        }
        asked.tensor(&tensor)?;
        let uneven = outputs.iter().any(|output| output.shape != outputs[0].shape);
        if asked.backend == BackendName::Nccl && uneven {
            self.broadcasts(id, &mut issue, &outputs, &tensor)?;
            return self.issue(issue, async_op);
        }
        asked.all_like(&outputs, &tensor)?;
        issue.fault = asked.while_working(None, tensor.dtype);
        let from = self.whole(&mut issue, &tensor, Use::Read, "tensor");
        let into = self.flat(&mut issue, &outputs, Use::Write, "output");
        issue.collective(id, Collective::AllGather, tensor.numel(), Some(from), Some(into));
        self.issue(issue, async_op)
    }

    /// An `all_gather` of uneven parts as NCCL's backend makes it: rank i broadcasts into output i.
    fn broadcasts(
        &mut self,
        id: GroupId,
        issue: &mut Issue,
        outputs: &[Tensor],
        tensor: &Tensor,
    ) -> Result<(), DistError> {
        for (root, output) in (0..).map(GroupRank).zip(outputs) {
            let own = self.shared.group_rank(id, self.rank) == Some(root);
            if own && output.numel() != tensor.numel() {
                return Err(value_error(
                    "Tensor input and output of _broadcast_oop must have the same number of \
                     elements ",
                ));
            }
            if own {
                issue.copy_before(tensor, output, None);
            }
            let buffer = self.whole(issue, output, Use::ReadWrite, "output");
            let broadcast = Collective::Broadcast { root };
            issue.collective(id, broadcast, output.numel(), None, Some(buffer));
        }
        Ok(())
    }

    /// `dist.gather(tensor, gather_list, dst)`: every rank's tensor to the destination's list.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn gather(
        &mut self,
        tensor: impl Into<TensorArg>,
        gather_list: Option<TensorListArg>,
        options: ToRank,
    ) -> Called {
        let ToRank { dst, group_dst, group, async_op } = options;
        let tensor = single(tensor, "tensor")?;
        let outputs = optional_list(gather_list, "gather_list")?;
        same_dtype([&tensor].into_iter().chain(&outputs))?;
        let group = self.or_default(group)?;
        let Some(pg) = self.member(Some(group), "gather")? else { return Ok(None) };
        let dst = dst.or(group_dst.is_none().then_some(0));
        let root = self.group_rank_of(group, dst, group_dst)?;
        let on_root = i64::from(self.pg(pg).me.0) == root;
        gather_list_for_rank(on_root, outputs.is_empty())?;
        let (asked, id) = self.ask(pg, tensor.device, "gather")?;
        let root = GroupRank(asked.root(root)?);
        asked.tensor(&tensor)?;
        if on_root {
            asked.one_each(&outputs, "output")?;
            asked.all_like(&outputs, &tensor)?;
        }
        let mut issue = Issue::new("gather", id);
        let complex = asked.complex_as_it_is(tensor.dtype);
        issue.fault = complex.or_else(|| asked.while_working(None, tensor.dtype));
        let from = self.whole(&mut issue, &tensor, Use::Read, "tensor");
        let into = on_root.then(|| self.flat(&mut issue, &outputs, Use::Write, "output"));
        issue.collective(id, Collective::Gather { root }, tensor.numel(), Some(from), into);
        self.issue(issue, async_op)
    }

    /// `dist.scatter(tensor, scatter_list, src)`: entry i of the source's list to rank i.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn scatter(
        &mut self,
        tensor: impl Into<TensorArg>,
        scatter_list: Option<TensorListArg>,
        options: FromRank,
    ) -> Called {
        let FromRank { src, group_src, group, async_op } = options;
        let tensor = single(tensor, "tensor")?;
        let inputs = optional_list(scatter_list, "scatter_list")?;
        same_dtype([&tensor].into_iter().chain(&inputs))?;
        let (group, root) = self.rooted(group, src, group_src)?;
        let Some(pg) = self.member(Some(group), "scatter")? else { return Ok(None) };
        let on_root = i64::from(self.pg(pg).me.0) == root;
        match (on_root, inputs.is_empty()) {
            (true, true) => {
                return Err(value_error(
                    "Argument ``scatter_list`` must be specified on source rank.",
                ));
            }
            (false, false) => {
                return Err(value_error(
                    "Argument ``scatter_list`` must NOT be specified on non-source ranks.",
                ));
            }
            _ => {}
        }
        let (asked, id) = self.ask(pg, tensor.device, "scatter")?;
        let root = GroupRank(asked.root(root)?);
        asked.tensor(&tensor)?;
        if on_root {
            asked.one_each(&inputs, "input")?;
            asked.all_like(&inputs, &tensor)?;
        }
        let mut issue = Issue::new("scatter", id);
        issue.fault = asked.while_working(None, tensor.dtype);
        let from = on_root.then(|| self.flat(&mut issue, &inputs, Use::Read, "input"));
        let into = self.whole(&mut issue, &tensor, Use::Write, "tensor");
        issue.collective(id, Collective::Scatter { root }, tensor.numel(), from, Some(into));
        self.issue(issue, async_op)
    }

    /// `dist.reduce_scatter(output, input_list, op)`: entry i of the reduction of the lists to
    /// rank i. NCCL makes lists of different sizes one reduce a rank, all made together; gloo has
    /// no such call.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn reduce_scatter(
        &mut self,
        output: impl Into<TensorArg>,
        input_list: impl Into<TensorListArg>,
        options: Reduction,
    ) -> Called {
        let Reduction { op, group, async_op } = options;
        let output = single(output, "output")?;
        let inputs = list(input_list, "input_list")?;
        same_dtype([&output].into_iter().chain(&inputs))?;
        let Some(pg) = self.not_in_group(group, "reduce_scatter")? else { return Ok(None) };
        let op = reduce_op(&op, "ReduceScatterOptions")?;
        let pg = self.given_or_default(pg)?;
        let (asked, id) = self.ask(pg, output.device, "reduce_scatter")?;
        if asked.backend == BackendName::Gloo {
            return Err(runtime_error("ProcessGroupGloo does not support reduce_scatter")
                .with_help("reduce_scatter_tensor works on gloo."));
        }
        asked.not_on_mpi("ProcessGroupMPI does not support reduce_scatter")?;
        if inputs.len() != asked.size as usize {
            return Err(list_length(asked, inputs.len()));
        }
        asked.reduces(output.dtype)?;
        asked.tensor(&output)?;
        let mut issue = Issue::new("reduce_scatter", id);
        issue.fault = asked.while_working(Some(op), output.dtype);
        let me = self.pg(pg).me;
        let own = &inputs[me.index()];
        if own.numel() != output.numel() {
            return Err(value_error(
                "Tensor input and output of _reduce_oop must have the same number of elements ",
            ));
        }
        if inputs.iter().any(|input| input.shape != inputs[0].shape) {
            for (root, input) in (0..).map(GroupRank).zip(&inputs) {
                // NCCL's reduce leaves the inputs alone; a plan's works in place.
                let buffer = self.borrow(&mut issue, "input", input, input.numel());
                issue.copy_before(input, &buffer, None);
                if root == me {
                    issue.copy_after(&buffer, &output);
                }
                let reduce = Collective::Reduce { op, root };
                issue.collective(id, reduce, input.numel(), None, Some(buffer.storage));
            }
            return self.issue(issue, async_op);
        }
        let from = self.flat(&mut issue, &inputs, Use::Read, "input");
        let into = self.whole(&mut issue, &output, Use::Write, "output");
        let call = Collective::ReduceScatter { op };
        issue.collective(id, call, output.numel(), Some(from), Some(into));
        self.issue(issue, async_op)
    }

    /// `dist.all_to_all(output_tensor_list, input_tensor_list)`: entry i to rank i, from every
    /// rank. gloo has no such call.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_to_all(
        &mut self,
        output_tensor_list: impl Into<TensorListArg>,
        input_tensor_list: impl Into<TensorListArg>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let Some(pg) = self.not_in_group(group, "all_to_all")? else { return Ok(None) };
        let outputs = list(output_tensor_list, "output_tensor_list")?;
        let inputs = list(input_tensor_list, "input_tensor_list")?;
        same_dtype(outputs.iter().chain(&inputs))?;
        let pg = self.given_or_default(pg)?;
        let device = match outputs.first().or(inputs.first()) {
            Some(tensor) => tensor.device,
            None => self.pg(pg).config.object_device(),
        };
        let (asked, id) = self.ask(pg, device, "alltoall")?;
        if asked.backend == BackendName::Gloo {
            return Err(runtime_error("Backend gloo does not support alltoall")
                .with_help("all_to_all_single works on gloo."));
        }
        for list in [&outputs, &inputs] {
            if list.len() != asked.size as usize {
                return Err(list_length(asked, list.len()));
            }
        }
        if asked.backend == BackendName::Nccl {
            for (output, input) in outputs.iter().zip(&inputs) {
                asked.dense(output)?;
                asked.dense(input)?;
                asked.nccl_type(input.dtype)?;
            }
        }
        let numels = |list: &[Tensor]| list.iter().map(Tensor::numel).collect::<Vec<u64>>();
        let parts = Splits { input: numels(&inputs), output: numels(&outputs) };
        let mut issue = Issue::new("all_to_all", id);
        let from = self.flat(&mut issue, &inputs, Use::Read, "input");
        let into = self.flat(&mut issue, &outputs, Use::Write, "output");
        // Also where this rank's parts are equal: it cannot know the others'.
        issue.all_to_allv(id, parts, from, into);
        self.issue(issue, async_op)
    }
}

/// A list that may be left out; an empty one counts as left out.
fn optional_list(tensors: Option<TensorListArg>, name: &str) -> Result<Vec<Tensor>, DistError> {
    match tensors {
        None => Ok(Vec::new()),
        Some(super::args::Arg::Is(tensors)) if tensors.is_empty() => Ok(Vec::new()),
        Some(tensors) => list(tensors, name),
    }
}

/// `_validate_output_list_for_rank`.
pub(super) fn gather_list_for_rank(on_root: bool, empty: bool) -> Result<(), DistError> {
    match (on_root, empty) {
        (true, true) => {
            Err(value_error("Argument ``gather_list`` must be specified on destination rank."))
        }
        (false, false) => Err(value_error(
            "Argument ``gather_list`` must NOT be specified on non-destination ranks.",
        )),
        _ => Ok(()),
    }
}

fn list_length(asked: Asked, found: usize) -> DistError {
    runtime_error(format!(
        "{}: a list of {found} tensors for a group of {} ranks",
        asked.call, asked.size
    ))
    .with_help("PyTorch 2.7.1 does not check it; pass one tensor for each rank.")
}
