//! Results of forward passes and losses: tensors of known shapes whose values are not followed.

use crate::dist::values::Context;
use crate::nn::output::OutputValue;
use crate::process::state::process;
use crate::tensor::elementwise::made;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::eval::Evaluator;
use starlark::values::Value;

/// The type that `torch.autocast` computes in, where it is on.
pub(crate) fn autocast(contexts: &[Context]) -> Option<Dtype> {
    contexts.iter().rev().find_map(|context| match context {
        Context::Autocast(dtype) => Some(*dtype),
        _ => None,
    })?
}

/// A result of that shape, if it is known, on the device and of the operation of another tensor.
pub(crate) fn shaped_as<'v>(
    shape: Option<Vec<u64>>,
    like: &Tensor,
    dtype: Dtype,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let process = process(eval)?;
    match shape {
        Some(shape) => Ok(heap.alloc(made(process, like, dtype, &shape, None)?)),
        None => {
            let grad_fn = like.grad_fn().cloned();
            Ok(heap.alloc(OutputValue::new(like, dtype, grad_fn, &process.decided)))
        }
    }
}

/// The result of a loss or a sum: one element.
pub(crate) fn scalar<'v>(
    like: &Tensor,
    dtype: Dtype,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    Ok(heap.alloc(made(process(eval)?, like, dtype, &[], None)?))
}
