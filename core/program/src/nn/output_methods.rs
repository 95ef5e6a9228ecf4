//! The output of a forward pass, with its operators and methods.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::{Context, DtypeValue};
use crate::nn::output::OutputValue;
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::type_error::class_of;
use crate::tensor::elementwise::made;
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{self, ForwardPass, Tensor};
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;

/// The first argument of a call of a model.
pub(crate) fn input_of<'v>(
    args: &Arguments<'v, '_>,
    heap: Heap<'v>,
) -> starlark::Result<Option<Value<'v>>> {
    let first = args.positions(heap)?.next();
    let named = args.names_map()?;
    let tensor = |value: &Value<'v>| matches!(value.get_type(), "Tensor" | "Output");
    Ok(first.or_else(|| named.values().copied().find(tensor)))
}

/// The result of a forward pass for an input.
pub(crate) fn returned<'v>(
    pass: ForwardPass,
    input: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let process = process(eval)?;
    let own =
        process.modules.get(pass.model).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
    let (shape_of, model, group) = (own.shape(), own.model(), own.group());
    let nccl =
        process.dist()?.get_backend_config(group).is_ok_and(|config| config.contains("nccl"));
    let input = input.and_then(|input| tensor(input).ok());
    let like = match input {
        Some(input) => Tensor::nothing(input.device()).on_device(input.device_index()),
        None if nccl => Tensor::nothing(c10d::Device::Cuda).on_device(process.cuda_device()),
        None => Tensor::nothing(c10d::Device::Cpu),
    };
    let dtype = model.params.first().map_or(Dtype::Float32, |param| param.dtype);
    let dtype = autocast(&process.contexts).unwrap_or(dtype);
    let like = like.of_pass(Some(pass));
    shaped(&shape_of, input.map(Tensor::shape), &like, dtype, eval)
}

/// The type that `torch.autocast` computes in, where it is on.
fn autocast(contexts: &[Context]) -> Option<Dtype> {
    contexts.iter().rev().find_map(|context| match context {
        Context::Autocast(dtype) => Some(*dtype),
        _ => None,
    })?
}

/// The result of a module for an input of that shape, on the device and of the pass of another tensor.
pub(crate) fn shaped<'v>(
    module: &crate::nn::output_shape::Shape,
    input: Option<&[u64]>,
    like: &Tensor,
    dtype: Dtype,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let process = process(eval)?;
    if let Some(shape) = input.and_then(|input| module.of(input)) {
        return Ok(heap.alloc(made(process, like, dtype, &shape, None)?));
    }
    let values = match module {
        crate::nn::output_shape::Shape::Several(values) => *values,
        _ => 1,
    };
    let like = like.to_be_made(0, dtype, &[0]);
    Ok(heap.alloc(OutputValue { like, values, decided: process.decided.clone() }))
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

methods_static!(OUTPUT_METHODS = output_methods);

/// Values computed from an output depend on the same passes as the output.
#[starlark_value(type = "Output")]
impl<'v> StarlarkValue<'v> for OutputValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OUTPUT_METHODS.methods())
    }

    fn add(&self, _rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn radd(&self, _lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn sub(&self, _other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn mul(&self, _rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn rmul(&self, _lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn div(&self, _other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn minus(&self, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    /// `outputs["logits"]`, `outputs[0]`.
    fn at(&self, _index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(self.own(heap))
    }

    fn slice(
        &self,
        _start: Option<Value<'v>>,
        _stop: Option<Value<'v>>,
        _stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        Ok(self.own(heap))
    }

    /// `logits, loss = model(x, y)`.
    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        match self.values {
            0 | 1 => OutputValue::no_shape(),
            several => Ok((0..several).map(|_| self.own(heap)).collect()),
        }
    }

    fn length(&self) -> starlark::Result<i32> {
        match i32::try_from(self.values) {
            Ok(several) if several > 1 => Ok(several),
            _ => OutputValue::no_shape(),
        }
    }

    fn to_bool(&self) -> bool {
        crate::process::undecided::by_values();
        false
    }

    /// `outputs.loss`: its attributes are as little known.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        Some(match attribute {
            "shape" | "ndim" | "nbytes" => heap.alloc(self.unknown(Unknown::Shape)),
            "dtype" => heap.alloc(DtypeValue(self.like.dtype())),
            "requires_grad" => Value::new_bool(self.like.pass().is_some_and(|pass| pass.grad)),
            _ => self.own(heap),
        })
    }

    fn has_attr(&self, _attribute: &str, _heap: Heap<'v>) -> bool {
        true
    }
}

/// The output that a method is called on.
fn output<'v>(this: Value<'v>) -> anyhow::Result<&'v OutputValue> {
    let output = this.downcast_ref::<OutputValue>();
    output.ok_or_else(|| anyhow::anyhow!("{} is no output", class_of(this)))
}

#[starlark_module]
fn output_methods(builder: &mut MethodsBuilder) {
    fn sum<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let like = &output(this)?.like;
        if !dim.is_none() || keepdim {
            return Ok(this);
        }
        let dtype = if like.dtype().is_float() { like.dtype() } else { Dtype::Int64 };
        scalar(like, dtype, eval)
    }

    fn mean<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let like = &output(this)?.like;
        if dim.is_none() && !keepdim { scalar(like, like.dtype(), eval) } else { Ok(this) }
    }

    /// The value, which is not known: a model's computation is not followed.
    fn item<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<UnknownValue> {
        let output = output(this)?;
        crate::tensor::elementwise::read(process(eval)?, &output.like)?;
        Ok(output.unknown(Unknown::Value(Number::of(output.like.dtype()))))
    }

    fn size<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
    ) -> anyhow::Result<UnknownValue> {
        let _ = dim;
        Ok(output(this)?.unknown(Unknown::Shape))
    }

    fn detach<'v>(this: Value<'v>) -> anyhow::Result<OutputValue> {
        let output = output(this)?.clone();
        Ok(OutputValue { like: output.like.clone().of_pass(None), ..output })
    }

    fn cpu<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<OutputValue> {
        let dtype = args.items.iter().find_map(|arg| Some(arg.downcast_ref::<DtypeValue>()?.0));
        Ok(output(this)?.as_type(dtype))
    }

    fn float<'v>(this: Value<'v>) -> anyhow::Result<OutputValue> {
        Ok(output(this)?.as_type(Some(Dtype::Float32)))
    }

    fn argmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
    ) -> anyhow::Result<OutputValue> {
        let _ = (dim, keepdim);
        Ok(output(this)?.as_type(Some(Dtype::Int64)))
    }

    /// `_, predicted = out.max(1)`.
    fn max<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let (heap, output) = (eval.heap(), output(this)?);
        if dim.is_none() && !keepdim {
            return scalar(&output.like, output.like.dtype(), eval);
        }
        let indices = output.as_type(Some(Dtype::Int64));
        Ok(heap.alloc(AllocTuple([this, heap.alloc(indices)])))
    }

    fn eq<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn ne<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn lt<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn le<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn gt<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn ge<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<OutputValue> {
        let _ = other;
        Ok(output(this)?.as_type(Some(Dtype::Bool)))
    }

    fn clone<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    /// The output in another shape, which is known from here on if the sizes are all given.
    fn view<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        given_shape(this, &sizes.items, eval)
    }

    fn reshape<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        given_shape(this, &sizes.items, eval)
    }

    fn squeeze<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = dim;
        Ok(this)
    }

    fn backward<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = args;
        goes_back(output(this)?.like.pass(), eval)
    }
}

/// `backward()` of a value that depends on a forward pass.
pub(crate) fn goes_back(
    pass: Option<ForwardPass>,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<NoneType> {
    let Some(pass) = pass else {
        anyhow::bail!(
            "backward() is followed here of what a model returns, and this tensor comes of none \
             (detach() and item() leave it behind): call it on the loss of model(batch)"
        );
    };
    crate::nn::ddp_passes::backward(pass, &[], eval)?;
    Ok(NoneType)
}

fn given_shape<'v>(
    this: Value<'v>,
    sizes: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let output = output(this)?;
    let sizes = crate::tensor::shapes::numbers(sizes)?;
    let known: Option<Vec<u64>> = sizes.iter().map(|size| u64::try_from(*size).ok()).collect();
    let Some(shape) = known else { return Ok(this) };
    Ok(heap.alloc(made(process(eval)?, &output.like, output.like.dtype(), &shape, None)?))
}
