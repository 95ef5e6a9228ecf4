//! Collectives on tensors and on lists of them.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::given::{Truth, root};
use crate::dist::arguments as take;
use crate::dist::values::{GroupValue, ReduceOpValue, WorldValue};
use crate::dist::work::{called, future};
use crate::process::raised::refused;
use crate::process::state::process;
use crate::python::type_error::{class_of, type_error};
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::{Arg, DistError, ErrorKind, FromRank, InGroup, Reduction, ToRank};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};

/// `src=`, `group=`, `async_op=`, `group_src=`, and the parameter that c10d stores the rank in.
pub(super) fn from_rank(
    src: Value<'_>,
    of: Value<'_>,
    Truth(async_op): Truth,
    group_src: Value<'_>,
    sets: &str,
) -> anyhow::Result<FromRank> {
    let group = take::group(of)?;
    Ok(FromRank {
        src: root(src, group, sets)?,
        group_src: root(group_src, group, sets)?,
        group,
        async_op,
    })
}

/// `dst=`, `group=`, `async_op=`, `group_dst=`, and the parameter that c10d stores the rank in.
pub(super) fn to_rank(
    dst: Value<'_>,
    of: Value<'_>,
    Truth(async_op): Truth,
    group_dst: Value<'_>,
    sets: &str,
) -> anyhow::Result<ToRank> {
    let group = take::group(of)?;
    Ok(ToRank {
        dst: root(dst, group, sets)?,
        group_dst: root(group_dst, group, sets)?,
        group,
        async_op,
    })
}

fn gathered_into<'v>(
    [output, input]: [Value<'v>; 2],
    group: Value<'v>,
    Truth(async_op): Truth,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let options = InGroup { group: take::group(group)?, async_op };
    let (output, input) = (take::tensor(output), take::tensor(input));
    called(process(eval)?.dist()?.all_gather_into_tensor(output, input, options), heap)
}

fn scattered_into<'v>(
    [output, input]: [Value<'v>; 2],
    op: Value<'v>,
    group: Value<'v>,
    Truth(async_op): Truth,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let options = Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op };
    let (output, input) = (take::tensor(output), take::tensor(input));
    called(process(eval)?.dist()?.reduce_scatter_tensor(output, input, options), heap)
}

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    fn broadcast<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = from_rank(src, group, async_op, group_src, "BroadcastOptions")?;
        called(process(eval)?.dist()?.broadcast(take::tensor(tensor), options), heap)
    }

    fn all_reduce<'v>(
        tensor: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options =
            Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op: async_op.0 };
        called(process(eval)?.dist()?.all_reduce(take::tensor(tensor), options), heap)
    }

    fn reduce<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = to_rank(dst, group, async_op, group_dst, "ReduceOptions")?;
        let op = take::reduce_op(op);
        called(process(eval)?.dist()?.reduce(take::tensor(tensor), options, op), heap)
    }

    fn all_gather_into_tensor<'v>(
        output_tensor: Value<'v>,
        input_tensor: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        gathered_into([output_tensor, input_tensor], group, async_op, eval)
    }

    /// The old name of `all_gather_into_tensor`.
    fn _all_gather_base<'v>(
        output_tensor: Value<'v>,
        input_tensor: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        gathered_into([output_tensor, input_tensor], group, async_op, eval)
    }

    fn reduce_scatter_tensor<'v>(
        output: Value<'v>,
        input: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        scattered_into([output, input], op, group, async_op, eval)
    }

    /// The old name of `reduce_scatter_tensor`.
    fn _reduce_scatter_base<'v>(
        output: Value<'v>,
        input: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        scattered_into([output, input], op, group, async_op, eval)
    }

    fn all_to_all_single<'v>(
        output: Value<'v>,
        input: Value<'v>,
        #[starlark(default = NoneType)] output_split_sizes: Value<'v>,
        #[starlark(default = NoneType)] input_split_sizes: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        let output_splits = take::counts(output_split_sizes, "output_split_sizes", heap)?;
        let input_splits = take::counts(input_split_sizes, "input_split_sizes", heap)?;
        let (output, input) = (take::tensor(output), take::tensor(input));
        let dist = process(eval)?.dist()?;
        let work = dist.all_to_all_single(
            output,
            input,
            output_splits.as_deref(),
            input_splits.as_deref(),
            options,
        );
        called(work, heap)
    }

    fn barrier<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = NoneType)] device_ids: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let _ = device_ids;
        if group.downcast_ref::<GroupValue>().is_none()
            && group.downcast_ref::<WorldValue>().is_none()
            && !group.is_none()
            // A name is looked up first.
            && group.unpack_str().is_none()
        {
            let text = format!("'{}' object has no attribute 'barrier'", class_of(group));
            return Err(refused(DistError::new(ErrorKind::AttributeError, text)));
        }
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        called(process(eval)?.dist()?.barrier(options), heap)
    }

    fn monitored_barrier<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = Truth(false))] wait_all_ranks: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let (group, timeout) = (take::group(group)?, take::timeout(timeout));
        called(process(eval)?.dist()?.monitored_barrier(group, timeout, wait_all_ranks.0), heap)
    }
}

#[starlark_module]
pub(super) fn lists(builder: &mut GlobalsBuilder) {
    fn all_gather<'v>(
        tensor_list: Value<'v>,
        tensor: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        let (list, tensor) = (take::tensors(tensor_list), take::tensor(tensor));
        called(process(eval)?.dist()?.all_gather(list, tensor, options), heap)
    }

    fn gather<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] gather_list: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = to_rank(dst, group, async_op, group_dst, "GatherOptions")?;
        let (tensor, list) = (take::tensor(tensor), take::tensors_or_none(gather_list)?);
        called(process(eval)?.dist()?.gather(tensor, list, options), heap)
    }

    fn scatter<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] scatter_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = from_rank(src, group, async_op, group_src, "ScatterOptions")?;
        let (tensor, list) = (take::tensor(tensor), take::tensors_or_none(scatter_list)?);
        called(process(eval)?.dist()?.scatter(tensor, list, options), heap)
    }

    fn reduce_scatter<'v>(
        output: Value<'v>,
        input_list: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options =
            Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op: async_op.0 };
        let (output, list) = (take::tensor(output), take::tensors(input_list));
        called(process(eval)?.dist()?.reduce_scatter(output, list, options), heap)
    }

    fn all_to_all<'v>(
        output_tensor_list: Value<'v>,
        input_tensor_list: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        let (outputs, inputs) =
            (take::tensors(output_tensor_list), take::tensors(input_tensor_list));
        called(process(eval)?.dist()?.all_to_all(outputs, inputs, options), heap)
    }

    fn all_reduce_coalesced<'v>(
        tensors: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options =
            Reduction { op: take::reduce_op(op), group: take::group(group)?, async_op: async_op.0 };
        let list = match tensors.get_type() {
            "Tensor" => Arg::Is(vec![take::tensor(tensors)]),
            _ => take::tensors(tensors),
        };
        future(process(eval)?.dist()?.all_reduce_coalesced(list, options), heap)
    }

    fn all_gather_coalesced<'v>(
        output_tensor_lists: Value<'v>,
        input_tensor_list: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = Truth(false))] async_op: Truth,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let options = InGroup { group: take::group(group)?, async_op: async_op.0 };
        let lists = take::entries(output_tensor_lists).ok_or_else(|| {
            let text = "Invalid function argument: output_tensor_lists should be a list";
            type_error(text)
        })?;
        let (lists, inputs) =
            (lists.into_iter().map(take::tensors).collect(), take::tensors(input_tensor_list));
        future(process(eval)?.dist()?.all_gather_coalesced(lists, inputs, options), heap)
    }
}
