//! The output of a forward pass, with its operators and methods.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::DtypeValue;
use crate::nn::output::OutputValue;
use crate::nn::results::scalar;
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::type_error::class_of;
use crate::tensor::elementwise::made;
use lockstep_core::dtype::Dtype;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;

methods_static!(OUTPUT_METHODS = output_methods);

/// Values computed from an output depend on the same passes as the output.
#[starlark_value(type = "Output")]
impl<'v> StarlarkValue<'v> for OutputValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OUTPUT_METHODS.methods())
    }

    fn add(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.with(rhs))))
    }

    fn radd(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.with(lhs))))
    }

    fn sub(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.with(other)))
    }

    fn mul(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.with(rhs))))
    }

    fn rmul(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.with(lhs))))
    }

    fn div(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.with(other)))
    }

    fn minus(&self, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    /// `outputs["logits"]`, `outputs[0]`.
    fn at(&self, _index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn slice(
        &self,
        _start: Option<Value<'v>>,
        _stop: Option<Value<'v>>,
        _stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        OutputValue::no_shape()
    }

    fn length(&self) -> starlark::Result<i32> {
        OutputValue::no_shape()
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
            "requires_grad" => Value::new_bool(self.like.grad_fn().is_some()),
            _ => heap.alloc(self.clone()),
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
        let output = output(this)?;
        Ok(OutputValue::new(&output.like, output.like.dtype(), None, &output.decided))
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
        crate::nn::backward::backward(output(this)?.like.grad_fn().cloned(), eval)?;
        Ok(NoneType)
    }
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
