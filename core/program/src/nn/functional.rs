//! Functions of `torch.nn.functional` and `torch` of which only the shape of the result is followed, and on which
//! tensors a backward pass through it depends.

use crate::dist::arguments as take;
use crate::nn::calls::tensors_in;
use crate::nn::module_arguments::{Rest, pooling};
use crate::nn::results::shaped_as;
use crate::process::grad_mode;
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::graph;
use crate::tensor::promotion::{broadcast, promote};
use crate::tensor::value::tensor_in;
use crate::torch::callable::add;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::Value;

/// The arguments of a function.
struct Given<'v> {
    positions: Vec<Value<'v>>,
    named: Vec<(&'v str, Value<'v>)>,
}

impl<'v> Given<'v> {
    fn get(&self, name: &str, nth: usize) -> Option<Value<'v>> {
        let named = self.named.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        named.or_else(|| self.positions.get(nth).copied()).filter(|value| !value.is_none())
    }

    fn shape(&self, name: &str, nth: usize) -> Option<Vec<u64>> {
        Some(tensor_in(self.get(name, nth)?)?.shape().to_vec())
    }

    fn whole(&self, name: &str, nth: usize) -> Option<u64> {
        numbers::whole(self.get(name, nth)?, name).ok()?.try_into().ok()
    }

    /// All tensors among the arguments.
    fn tensors(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        let values = self.positions.iter().copied().chain(self.named.iter().map(|(_, own)| *own));
        values.for_each(|value| tensors_in(value, 0, &mut all));
        all
    }
}

/// `torch.nn.functional`'s functions.
const FUNCTIONAL: [&str; 42] = [
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "sigmoid",
    "hardsigmoid",
    "hardswish",
    "logsigmoid",
    "tanh",
    "softplus",
    "softsign",
    "leaky_relu",
    "prelu",
    "softmax",
    "log_softmax",
    "dropout",
    "dropout1d",
    "dropout2d",
    "alpha_dropout",
    "normalize",
    "layer_norm",
    "rms_norm",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "linear",
    "embedding",
    "conv1d",
    "conv2d",
    "one_hot",
    "scaled_dot_product_attention",
    "max_pool1d",
    "max_pool2d",
    "avg_pool2d",
    "adaptive_avg_pool2d",
    "pad",
    "interpolate",
    "cosine_similarity",
];

/// `torch`'s functions.
const OF_TORCH: [&str; 11] = [
    "where",
    "einsum",
    "outer",
    "log_softmax",
    "masked_fill",
    "rsqrt",
    "log1p",
    "erf",
    "cumsum",
    "layer_norm",
    "dropout",
];

/// The shape of the result; `None` if it is not known.
fn shape_of(name: &str, given: &Given<'_>) -> Option<Vec<u64>> {
    let input = || given.shape("input", 0);
    match name {
        "linear" => {
            let (mut shape, weight) = (input()?, given.shape("weight", 1)?);
            *shape.last_mut()? = *weight.first()?;
            Some(shape)
        }
        "embedding" => Some([input()?, vec![*given.shape("weight", 1)?.last()?]].concat()),
        "one_hot" => {
            Some([given.shape("tensor", 0)?, vec![given.whole("num_classes", 1)?]].concat())
        }
        "scaled_dot_product_attention" => {
            let (mut shape, value) = (given.shape("query", 0)?, given.shape("value", 2)?);
            *shape.last_mut()? = *value.last()?;
            Some(shape)
        }
        "max_pool1d" | "max_pool2d" | "avg_pool2d" | "adaptive_avg_pool2d" => {
            let rest = Rest { more: given.positions.get(1..)?, named: &given.named };
            pooling(name, &rest)?.of(&input()?)
        }
        "where" => {
            let of = |name, nth| {
                let value = given.get(name, nth)?;
                tensor_in(value).map_or(Some(Vec::new()), |own| Some(own.shape().to_vec()))
            };
            let both = broadcast(&of("input", 1)?, &of("other", 2)?).ok()?;
            broadcast(&of("condition", 0)?, &both).ok()
        }
        "einsum" => summed(given),
        "outer" => Some(vec![*input()?.first()?, *given.shape("vec2", 1)?.first()?]),
        "conv1d" | "conv2d" | "pad" | "interpolate" | "cosine_similarity" => None,
        _ => input(),
    }
}

/// The shape of `torch.einsum("bhqd,bhkd->bhqk", q, k)`.
fn summed(given: &Given<'_>) -> Option<Vec<u64>> {
    let equation = given.get("equation", 0)?.unpack_str()?.replace(' ', "");
    let (inputs, output) = equation.split_once("->")?;
    let operands = given.positions.get(1..)?;
    let operands = match operands {
        [list] => take::items(*list).unwrap_or_else(|| vec![*list]),
        several => several.to_vec(),
    };
    let mut sizes = std::collections::BTreeMap::new();
    for (letters, operand) in inputs.split(',').zip(operands) {
        let shape = tensor_in(operand)?.shape();
        if letters.len() != shape.len() {
            return None;
        }
        sizes.extend(letters.chars().zip(shape.iter().copied()));
    }
    output.chars().map(|letter| sizes.get(&letter).copied()).collect()
}

/// A function whose result depends on all tensors that it is given.
fn known<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let native = starlark::Error::new_native;
    let heap = eval.heap();
    let positions: Vec<Value<'v>> = args.positions(heap)?.collect();
    let all = args.names_map()?;
    let named: Vec<(&'v str, Value<'v>)> = all
        .iter()
        .map(|(name, value)| (heap.alloc_str(name.as_str()).to_value(), *value))
        .filter_map(|(name, value)| Some((name.unpack_str()?, value)))
        .collect();
    let given = Given { positions, named };
    let tensors = given.tensors();
    let Some(first) = tensors.first() else {
        let class = given.positions.first().map_or("NoneType", |value| class_of(*value));
        let text = format!("{name}(): argument 'input' (position 1) must be Tensor, not {class}");
        return Err(native(type_error(text)));
    };
    if name == "relu"
        && let Some(of) = given.get("input", 0)
        && tensor_in(of).is_some()
    {
        // Its values are followed.
        let method = of.get_attr_error("relu", heap)?;
        return eval.eval_function(method, &[], &[]);
    }
    let floats = tensors.iter().filter(|own| own.dtype().is_float()).map(Tensor::dtype);
    let dtype = match name {
        "one_hot" => Dtype::Int64,
        "where" | "einsum" => floats.reduce(promote).unwrap_or(first.dtype()),
        _ => floats.clone().next().unwrap_or(first.dtype()),
    };
    let like = Tensor::nothing(first.device()).on_device(first.device_index());
    let like = like.with_grad_fn(graph::joined(&tensors));
    if like.grad_fn().is_some() {
        grad_mode::saves().map_err(|stopped| native(stopped.into()))?;
    }
    shaped_as(shape_of(name, &given), &like, dtype, eval).map_err(native)
}

/// Adds those of `torch.nn.functional`.
pub(crate) fn functional(builder: &mut GlobalsBuilder) {
    add(builder, &FUNCTIONAL, known);
}

/// Adds those of `torch`.
pub(crate) fn of_torch(builder: &mut GlobalsBuilder) {
    add(builder, &OF_TORCH, known);
}

/// `torch.nn.init`: the values of parameters are not followed.
pub(crate) fn init(builder: &mut GlobalsBuilder) {
    let names = [
        "normal_",
        "zeros_",
        "ones_",
        "constant_",
        "eye_",
        "dirac_",
        "uniform_",
        "trunc_normal_",
        "orthogonal_",
        "xavier_uniform_",
        "xavier_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
    ];
    add(builder, &names, |name, args, eval| take::first(args, "tensor", name, eval.heap()));
}
