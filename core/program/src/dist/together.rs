//! Calls that are made as one under `_coalescing_manager`, and PyTorch 1.x's calls of a process with
//! several GPUs.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::collectives::{from_rank, to_rank};
use super::given::Truth;
use crate::dist::arguments as take;
use crate::dist::reduce_ops::ReduceOpValue;
use crate::dist::state::CoalescingManager;
use crate::dist::values::{Context, ContextValue};
use crate::dist::work::called;
use crate::process::raised::refused;
use crate::process::state::{Process, process};
use crate::python::numbers;
use crate::python::type_error::type_error;
use lockstep_core::reduce::{Factor, ReduceOp};
use lockstep_torch::c10d::{Arg, DistError, ErrorKind, InGroup, Reduction};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneType;
use starlark::values::{StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;

/// `with _coalescing_manager(…)` begins.
pub(crate) fn enter(process: &mut Process<'_>, at: usize) -> anyhow::Result<()> {
    let Some(manager) = process.managers.get(at) else { return Ok(()) };
    let (group, device) = (manager.group, manager.device);
    let open = process.dist()?.start_coalescing(group, device).map_err(refused)?;
    if let Some(manager) = process.managers.get_mut(at) {
        manager.open = open;
    }
    Ok(())
}

/// Leaves the manager: the calls that were held back are made.
pub(crate) fn leave(process: &mut Process<'_>, at: usize) -> anyhow::Result<()> {
    let Some(manager) = process.managers.get_mut(at) else { return Ok(()) };
    let (open, async_ops) = (manager.open.take(), manager.async_ops);
    let Some(open) = open else { return Ok(()) };
    let work = process.dist()?.end_coalescing(open, async_ops).map_err(refused)?;
    if let Some(manager) = process.managers.get_mut(at) {
        manager.works.extend(work);
    }
    Ok(())
}

/// `cm.wait()`.
pub(crate) fn wait(process: &mut Process<'_>, at: usize) -> anyhow::Result<()> {
    let works = process.managers.get(at).map(|manager| manager.works.clone()).unwrap_or_default();
    let dist = process.dist()?;
    works.into_iter().try_for_each(|work| dist.wait(work, None).map(drop)).map_err(refused)
}

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    fn _coalescing_manager<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = Truth(false))] async_ops: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ContextValue> {
        let (group, device) = (take::group(group)?, take::device(device)?);
        let process = process(eval)?;
        anyhow::ensure!(process.managers.len() < 1 << 20, "too many coalescing managers");
        let works = Vec::new();
        process.managers.push(CoalescingManager {
            group,
            device,
            async_ops: async_ops.0,
            open: None,
            works,
        });
        Ok(ContextValue(Context::Coalescing(process.managers.len() - 1)))
    }

    fn _make_nccl_premul_sum<'v>(factor: Value<'v>) -> anyhow::Result<ReduceOpValue> {
        if factor.get_type() == "Tensor" {
            anyhow::bail!(
                "a tensor's values are not known while the program is recorded: hand \
                 _make_nccl_premul_sum a number"
            );
        }
        let factor = numbers::number(factor, "the factor of _make_nccl_premul_sum")?;
        let factor = Factor::new(factor)
            .ok_or_else(|| anyhow::anyhow!("the factor of PREMUL_SUM is not finite"))?;
        Ok(ReduceOpValue(ReduceOp::PremulSum(factor)))
    }
}

/// Passes if the program says that it was written for a PyTorch before 2.2.
///
/// # Errors
/// The `AttributeError` that PyTorch 2.2 and later raise.
fn before_2_2(name: &str, process: &Process<'_>) -> anyhow::Result<()> {
    if process.torch_before((2, 2)) {
        return Ok(());
    }
    let text = format!("module 'torch.distributed' has no attribute '{name}'");
    Err(refused(DistError::new(ErrorKind::AttributeError, text).with_help(
        "PyTorch removed the calls on several GPUs of one process in 2.2. A program that was \
         written for an older one says so: run(main, world_size = …, torch = \"1.13\").",
    )))
}

/// Lists of tensors.
fn lists(value: Value<'_>, what: &str) -> anyhow::Result<Vec<lockstep_torch::c10d::TensorListArg>> {
    let entries = take::items(value);
    let entries = entries.ok_or_else(|| type_error(format!("{what} is no list")))?;
    Ok(entries.into_iter().map(take::sequence_of_tensors).collect())
}

/// The index of a list's entry; a negative one is out of range.
fn entry(value: i32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[starlark_module]
pub(super) fn several_gpus(builder: &mut GlobalsBuilder) {
    fn broadcast_multigpu<'v>(
        tensor_list: Value<'v>,
        src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = 0)] src_tensor: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        before_2_2("broadcast_multigpu", process)?;
        let options = from_rank(src, group, async_op, Value::new_none(), "BroadcastOptions")?;
        let tensors = take::sequence_of_tensors(tensor_list);
        called(process.dist()?.broadcast_multigpu(tensors, options, entry(src_tensor)), heap)
    }

    fn all_reduce_multigpu<'v>(
        tensor_list: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        before_2_2("all_reduce_multigpu", process)?;
        let options =
            Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op: async_op.0 };
        called(
            process.dist()?.all_reduce_multigpu(take::sequence_of_tensors(tensor_list), options),
            heap,
        )
    }

    fn reduce_multigpu<'v>(
        tensor_list: Value<'v>,
        dst: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = 0)] dst_tensor: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        before_2_2("reduce_multigpu", process)?;
        let options = to_rank(dst, group, async_op, Value::new_none(), "ReduceOptions")?;
        let op = match take::reduce_op(op) {
            Arg::Is(op) => op,
            Arg::Not { class, .. } => {
                return Err(type_error(format!("op is a {class}, not a ReduceOp")));
            }
        };
        let tensors = take::sequence_of_tensors(tensor_list);
        called(process.dist()?.reduce_multigpu(tensors, options, op, entry(dst_tensor)), heap)
    }

    fn all_gather_multigpu<'v>(
        output_tensor_lists: Value<'v>,
        input_tensor_list: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        before_2_2("all_gather_multigpu", process)?;
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        let outputs = lists(output_tensor_lists, "output_tensor_lists")?;
        let inputs = take::sequence_of_tensors(input_tensor_list);
        called(process.dist()?.all_gather_multigpu(outputs, inputs, options), heap)
    }

    fn reduce_scatter_multigpu<'v>(
        output_tensor_list: Value<'v>,
        input_tensor_lists: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        before_2_2("reduce_scatter_multigpu", process)?;
        let options =
            Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op: async_op.0 };
        let inputs = lists(input_tensor_lists, "input_tensor_lists")?;
        let outputs = take::sequence_of_tensors(output_tensor_list);
        called(process.dist()?.reduce_scatter_multigpu(outputs, inputs, options), heap)
    }
}

methods_static!(CONTEXT_METHODS = context_methods);

#[starlark_value(type = "context")]
impl<'v> StarlarkValue<'v> for ContextValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(CONTEXT_METHODS.methods())
    }
}

#[starlark_module]
fn context_methods(builder: &mut MethodsBuilder) {
    /// Waits for the works of a coalescing manager.
    fn wait(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        match this.downcast_ref::<ContextValue>().map(|context| &context.0) {
            Some(Context::Coalescing(at)) => crate::dist::wait(process(eval)?, *at)?,
            _ => anyhow::bail!("AttributeError: this context has no wait()"),
        }
        Ok(NoneType)
    }
}
