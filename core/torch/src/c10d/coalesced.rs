//! Calls that are made as one: `all_reduce_coalesced`, `all_gather_coalesced`, and the coalescing
//! manager. gloo flattens them into one call; NCCL makes them together.

use super::args::{InGroup, Reduction, TensorListArg};
use super::backend::Device;
use super::checks::{list, reduce_op, same_dtype};
use super::dist::{Called, Dist};
use super::error::{DistError, ErrorKind, not_implemented, runtime_error, type_error, value_error};
use super::held_calls::{Coalescing, Held, HeldKind};
use super::issue::{Issue, Use};
use super::process_group::{Group, GroupHandle, REPR};
use super::refusals::Asked;
use super::tensor::{Tensor, sizes};
use lockstep_core::collective::Collective;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::reduce::ReduceOp;

/// A coalescing manager that a rank is in.
#[derive(Debug)]
pub struct Coalescer {
    pg: GroupHandle,
    /// With a device all calls are made together: the batch that was open before.
    batches: Option<Option<Issue>>,
}

/// The dispatcher's error for an empty list: there is no tensor to dispatch on.
const NO_TENSORS: &str = "There were no tensor arguments to this function (e.g., you passed an \
    empty list of Tensors), but no fallback function is registered for schema \
    c10d::allreduce_coalesced_.  This usually means that this function requires a non-empty list \
    of Tensors, or that you (the operator writer) forgot to register a fallback function.  \
    Available functions are [CPU, CUDA, PrivateUse1, Meta, BackendSelect, Python, \
    FuncTorchDynamicLayerBackMode, Functionalize, Named, Conjugate, Negative, ZeroTensor, \
    ADInplaceOrView, AutogradOther, AutogradCPU, AutogradCUDA, AutogradXLA, AutogradMPS, \
    AutogradXPU, AutogradHPU, AutogradLazy, AutogradMTIA, AutogradMeta, Tracer, AutocastCPU, \
    AutocastMTIA, AutocastXPU, AutocastMPS, AutocastCUDA, FuncTorchBatched, BatchedNestedTensor, \
    FuncTorchVmapMode, Batched, VmapMode, FuncTorchGradWrapper, PythonTLSSnapshot, \
    FuncTorchDynamicLayerFrontMode, PreDispatch, PythonDispatcher].\n\n<dispatch table omitted>";

impl Dist<'_> {
    /// `dist.all_reduce_coalesced(tensors, op)`: all tensors as if they were one. PyTorch returns
    /// the work's future.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn all_reduce_coalesced(
        &mut self,
        tensors: impl Into<TensorListArg>,
        options: Reduction,
    ) -> Called {
        let Reduction { op, group, async_op } = options;
        let tensors = list(tensors, "tensor")?;
        same_dtype(&tensors)?;
        let Some(pg) = self.not_in_group(group, "all_reduce_coalesced")? else {
            return Ok(None);
        };
        for tensor in &tensors {
            self.complex_reduces(tensor, &op)?;
        }
        let op = reduce_op(&op, "AllreduceCoalescedOptions")?;
        let pg = self.given_or_default(pg)?;
        let mut issue = Issue::new("all_reduce_coalesced", GroupId::WORLD);
        self.lower_all_reduces(pg, &mut issue, &tensors, op)?;
        self.issue(issue, async_op)
    }

    fn lower_all_reduces(
        &mut self,
        pg: GroupHandle,
        issue: &mut Issue,
        tensors: &[Tensor],
        op: ReduceOp,
    ) -> Result<(), DistError> {
        let Some(first) = tensors.first() else {
            return Err(not_implemented(NO_TENSORS).with_help("Pass at least one tensor."));
        };
        let (asked, id) = self.ask(pg, first.device, "allreduce_coalesced")?;
        asked.not_on_mpi("allreduce_coalesced is currently not supported with MPI")?;
        issue.group = id;
        if asked.backend == BackendName::Nccl {
            for tensor in tensors {
                asked.tensor(tensor)?;
                asked.reduces(tensor.dtype)?;
                let all_reduce = Collective::AllReduce { op };
                let buffer = self.whole(issue, tensor, Use::ReadWrite, "tensor");
                issue.collective(id, all_reduce, tensor.numel(), None, Some(buffer));
            }
        } else {
            self.gloo_flattens(asked, tensors, first)?;
            let total = tensors.iter().fold(0, |sum: u64, one| sum.saturating_add(one.numel()));
            let buffer = self.flat(issue, tensors, Use::ReadWrite, "tensors");
            issue.collective(id, Collective::AllReduce { op }, total, None, Some(buffer));
        }
        issue.fault = asked.while_working(Some(op), first.dtype);
        Ok(())
    }

    fn gloo_flattens(
        &self,
        asked: Asked,
        tensors: &[Tensor],
        first: &Tensor,
    ) -> Result<(), DistError> {
        let refuse =
            |why: &str| Err(runtime_error(format!("ProcessGroupGloo::{}: {why}", asked.call)));
        if let Some(index) = tensors.iter().position(|tensor| tensor.layout != first.layout) {
            return refuse(&format!("invalid tensor layout at index {index}"));
        }
        if tensors.iter().any(|tensor| tensor.dtype != first.dtype) {
            return refuse("tensors must all have the same type");
        }
        if tensors.iter().any(|tensor| tensor.device != first.device) {
            return refuse("tensors must all be on the same device");
        }
        if asked.backend == BackendName::Gloo && first.device != Device::Cpu {
            return refuse(&format!("unsupported device type {}", first.device));
        }
        if first.layout != super::tensor::Layout::Strided {
            return refuse("unsupported layout");
        }
        Ok(())
    }

    /// `dist.all_gather_coalesced(output_tensor_lists, input_tensor_list)`: every rank's list, the
    /// list of rank i in `output_tensor_lists[i]`. NCCL has no such call.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn all_gather_coalesced(
        &mut self,
        output_tensor_lists: Vec<TensorListArg>,
        input_tensor_list: impl Into<TensorListArg>,
        options: InGroup,
    ) -> Called {
        let InGroup { group, async_op } = options;
        let Some(pg) = self.not_in_group(group, "all_gather_coalesced")? else {
            return Ok(None);
        };
        let inputs = list(input_tensor_list, "input_tensor_list")?;
        same_dtype(&inputs)?;
        let mut outputs = Vec::new();
        for output_list in output_tensor_lists {
            let output_list = list(output_list, "output_tensor_lists")?;
            same_dtype(&output_list)?;
            outputs.push(output_list);
        }
        let pg = self.given_or_default(pg)?;
        let device = inputs.first().map_or(Device::Cpu, |input| input.device);
        let (asked, id) = self.ask(pg, device, "allgather_coalesced")?;
        let mut issue = Issue::new("all_gather_coalesced", id);
        self.lower_all_gathers(asked, id, &mut issue, &outputs, &inputs)?;
        self.issue(issue, async_op)
    }

    /// gloo's `allgather_coalesced`: one gather of everything, flat.
    fn lower_all_gathers(
        &mut self,
        asked: Asked,
        id: GroupId,
        issue: &mut Issue,
        outputs: &[Vec<Tensor>],
        inputs: &[Tensor],
    ) -> Result<(), DistError> {
        if asked.backend == BackendName::Nccl {
            return Err(not_implemented("ProcessGroupNCCL does not support allgather_coalesced"));
        }
        asked.not_on_mpi("ProcessGroupMPI does not support allgather_coalesced")?;
        let refuse = |why: String| {
            Err(runtime_error(format!("ProcessGroupGloo::allgather_coalesced: {why}")))
        };
        let Some(first) = inputs.first() else {
            return refuse("requires non-empty input tensor list".into());
        };
        if outputs.len() != asked.size as usize {
            return refuse("output lists should be equal to world size".into());
        }
        if inputs.iter().any(|input| input.device != first.device) {
            return refuse("tensors should be on the same device".into());
        }
        for output_list in outputs {
            if output_list.len() != inputs.len() {
                return refuse(format!(
                    "invalid output size: (expected length {}, got {})",
                    inputs.len(),
                    output_list.len()
                ));
            }
            for (index, (output, input)) in output_list.iter().zip(inputs).enumerate() {
                if output.shape != input.shape {
                    return refuse(format!(
                        "invalid size of output tensor at index {index} (expected length {}, got {})",
                        sizes(&input.shape),
                        sizes(&output.shape)
                    ));
                }
                if output.dtype != input.dtype {
                    return refuse(format!(
                        "invalid tensor type at index {index} (expected CPU{}Type, got CPU{}Type)",
                        input.dtype.scalar_type(),
                        output.dtype.scalar_type()
                    ));
                }
            }
        }
        asked.tensor(first)?;
        issue.group = id;
        issue.fault = asked.while_working(None, first.dtype);
        let count = inputs.iter().fold(0, |sum: u64, input| sum.saturating_add(input.numel()));
        let all: Vec<Tensor> = outputs.iter().flatten().cloned().collect();
        let from = self.flat(issue, inputs, Use::Read, "inputs");
        let into = self.flat(issue, &all, Use::Write, "outputs");
        issue.collective(id, Collective::AllGather, count, Some(from), Some(into));
        Ok(())
    }

    /// `with dist._coalescing_manager(group, device, async_ops): …`. The `all_reduce`,
    /// `all_gather_into_tensor` and `reduce_scatter_tensor` calls of `body` are held back and made
    /// as one, of the kind of the first. With a `device`, NCCL makes everything that `body`
    /// calls together, and gloo refuses.
    ///
    /// # Errors
    /// PyTorch's refusals, and those of `body`.
    pub fn coalescing_manager(
        &mut self,
        group: Option<Group>,
        device: Option<Device>,
        async_ops: bool,
        body: impl FnOnce(&mut Self) -> Result<(), DistError>,
    ) -> Called {
        let Some(coalescer) = self.start_coalescing(group, device)? else { return Ok(None) };
        if let Err(error) = body(self) {
            self.drop_coalescing(coalescer);
            return Err(error);
        }
        self.end_coalescing(coalescer, async_ops)
    }

    /// Enters a coalescing manager: [`Dist::end_coalescing`] leaves it. `None` if this rank is not
    /// in the group.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn start_coalescing(
        &mut self,
        group: Option<Group>,
        device: Option<Device>,
    ) -> Result<Option<Coalescer>, DistError> {
        let Some(pg) = self.member(group, "_coalescing_manager")? else { return Ok(None) };
        let state = &mut self.pg_mut(pg).coalescing;
        if state.as_ref().is_some_and(|coalescing| !coalescing.held.is_empty()) {
            return Err(value_error(
                "ProcessGroup has non-empty op list at the start of coalescing",
            ));
        }
        *state = Some(Coalescing::default());
        let Some(device) = device else { return Ok(Some(Coalescer { pg, batches: None })) };
        let (asked, _) = self.ask(pg, device, "startCoalescing")?;
        if asked.backend != BackendName::Nccl {
            let name = asked.backend;
            return Err(runtime_error(format!(
                "Backend {name} does not implement startCoalescing"
            )));
        }
        let outer = self.state.batch.replace(Issue::new("_coalescing_manager", GroupId::WORLD));
        Ok(Some(Coalescer { pg, batches: Some(outer) }))
    }

    /// Leaves a coalescing manager: the calls that it held back are made now.
    ///
    /// # Errors
    /// PyTorch's refusals; also, without a device, that nothing was held back: its `work` is `None` then, and
    /// Python raises.
    pub fn end_coalescing(&mut self, coalescer: Coalescer, async_ops: bool) -> Called {
        let with_device = coalescer.batches.is_some();
        if self.pg(coalescer.pg).coalescing.is_none() {
            self.drop_coalescing(coalescer);
            return Err(DistError::new(ErrorKind::KeyError, REPR).with_help(
                "Another coalescing manager of the group was entered within this one, and has \
                 taken what PyTorch keeps of both.",
            ));
        }
        let (pg, held, batch) = self.drop_coalescing(coalescer);
        if held.is_empty() && !with_device {
            let text =
                "cannot access local variable 'work' where it is not associated with a value";
            return Err(DistError::new(ErrorKind::UnboundLocalError, text).with_help(
                "Without a device a coalescing manager makes one call of all_reduce, \
                 all_gather_into_tensor or reduce_scatter_tensor calls, and there was none; other \
                 calls are made at once. PyTorch has no more to say than this.",
            ));
        }
        let mut issue = batch.unwrap_or_else(|| Issue::new("_coalescing_manager", GroupId::WORLD));
        if !held.is_empty() {
            self.lower_held(pg, &mut issue, &held)?;
        }
        self.issue(issue, async_ops)
    }

    /// Restores the state before, and returns the calls that were held back and the batch.
    fn drop_coalescing(&mut self, coalescer: Coalescer) -> (GroupHandle, Vec<Held>, Option<Issue>) {
        let Coalescer { pg, batches } = coalescer;
        let batch = batches.and_then(|outer| std::mem::replace(&mut self.state.batch, outer));
        let held = self.pg_mut(pg).coalescing.take().unwrap_or_default().held;
        (pg, held, batch)
    }

    fn lower_held(
        &mut self,
        pg: GroupHandle,
        issue: &mut Issue,
        held: &[Held],
    ) -> Result<(), DistError> {
        let Some(Held { kind, op, .. }) = held.first() else { return Ok(()) };
        let mut pairs: Vec<(&Tensor, &Tensor)> = Vec::with_capacity(held.len());
        for one in held {
            match (kind, &one.output) {
                (HeldKind::AllReduce, _) => pairs.push((&one.input, &one.input)),
                (_, Some(output)) => pairs.push((output, &one.input)),
                (_, None) => {
                    let text = "Invariant encountered: value was None when it should not be";
                    return Err(type_error(text).with_help(
                        "Under one coalescing manager PyTorch makes all calls what the first one \
                         is: this all_reduce has no output. Make one kind of call a manager.",
                    ));
                }
            }
        }
        match kind {
            HeldKind::AllReduce => {
                let tensors: Vec<Tensor> = held.iter().map(|one| one.input.clone()).collect();
                self.lower_all_reduces(pg, issue, &tensors, *op)
            }
            HeldKind::AllGather => {
                let (asked, id) = self.ask(pg, pairs[0].1.device, "allgather")?;
                if asked.backend == BackendName::Nccl {
                    return pairs.iter().try_for_each(|(output, input)| {
                        self.lower_all_gather(pg, issue, output, input)
                    });
                }
                let chunks: Vec<Vec<Tensor>> =
                    pairs.iter().map(|(output, _)| output.chunk(u64::from(asked.size))).collect();
                let outputs: Vec<Vec<Tensor>> = (0..asked.size as usize)
                    .map(|rank| chunks.iter().filter_map(|list| list.get(rank)).cloned().collect())
                    .collect();
                let inputs: Vec<Tensor> = pairs.iter().map(|(_, input)| (*input).clone()).collect();
                self.lower_all_gathers(asked, id, issue, &outputs, &inputs)
            }
            HeldKind::ReduceScatter => pairs.iter().try_for_each(|(output, input)| {
                self.lower_reduce_scatter(pg, issue, output, input, *op)
            }),
        }
    }

    /// Returns true if a coalescing manager of the group holds the call back.
    pub(super) fn hold(&mut self, pg: GroupHandle, call: impl FnOnce() -> Held) -> bool {
        match &mut self.pg_mut(pg).coalescing {
            Some(coalescing) => {
                coalescing.held.push(call());
                true
            }
            None => false,
        }
    }
}
