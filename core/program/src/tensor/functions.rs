//! Functions of `torch`'s that are methods of their first argument: `torch.sum(x, dim = 0)`.

use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::made::{On, WRITTEN_DOWN, on, written_down};
use crate::tensor::value::like;
use lockstep_core::dtype::Dtype;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

/// Those that are.
const METHODS: [&str; 48] = [
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "argmax",
    "argmin",
    "all",
    "any",
    "abs",
    "neg",
    "sqrt",
    "square",
    "relu",
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "softmax",
    "clamp",
    "pow",
    "eq",
    "ne",
    "gt",
    "lt",
    "equal",
    "allclose",
    "transpose",
    "permute",
    "t",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
    "add",
    "sub",
    "mul",
    "div",
    "numel",
    "matmul",
    "mm",
    "bmm",
    "mv",
    "dot",
    "tril",
    "triu",
];

/// The method of that name, of the first argument.
fn of_tensor<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let mut positions = args.positions(heap)?;
    let named = args.names_map()?;
    let own = |name: &str| matches!(name, "input" | "self");
    let input = named.iter().find(|(name, _)| own(name.as_str())).map(|(_, value)| *value);
    let first = match input {
        Some(input) => Some(input),
        None => positions.next(),
    };
    let first = first.ok_or_else(|| {
        let text = format!("{name}() missing 1 required positional arguments: \"input\"");
        starlark::Error::new_native(type_error(text))
    })?;
    if !matches!(first.get_type(), "Tensor" | "Output") {
        let class = class_of(first);
        let text = format!("{name}(): argument 'input' (position 1) must be Tensor, not {class}");
        return Err(starlark::Error::new_native(type_error(text)));
    }
    let rest: Vec<Value<'v>> = positions.collect();
    let named: Vec<(&str, Value<'v>)> = named
        .iter()
        .filter(|(name, _)| !own(name.as_str()))
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let method = first.get_attr_error(name, heap)?;
    eval.eval_function(method, &rest, &named)
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    crate::torch::callable::add(builder, &METHODS, of_tensor);
    functions(builder);
}

/// Tensors joined along a dimension that depends on how many they have.
fn stacked<'v>(
    tensors: Value<'v>,
    along: impl Fn(usize) -> i32,
    least: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<TensorValue> {
    let entries = take::items(tensors).unwrap_or_default();
    let heap = eval.heap();
    let mut dims = 0;
    let mut made = Vec::new();
    for entry in entries {
        let mut tensor = like(entry)?;
        // Lines are rows, and numbers lines.
        while tensor.shape().len() < least {
            crate::tensor::transposed::in_a_row(&tensor)?;
            let shape = [&[1], tensor.shape()].concat();
            tensor = tensor.view(&shape[..]);
        }
        dims = tensor.shape().len();
        made.push(heap.alloc(TensorValue(tensor)));
    }
    let list = heap.alloc(made);
    crate::torch::joining::cat(eval, list, along(dims))
}

/// A comparison by a tensor's method. Nothing is known of an output whose shape is not.
fn asked_of<'v>(
    of: Value<'v>,
    method: &str,
    other: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if of.get_type() == "Output" {
        return Ok(of);
    }
    let method = of.get_attr_error(method, eval.heap())?;
    eval.eval_function(method, &[other], &[])
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `input != input`, which is true of NaN alone.
    fn isnan<'v>(
        input: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        asked_of(input, "ne", input, eval)
    }

    fn isinf<'v>(
        input: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let method = input.get_attr_error("abs", heap)?;
        let size = eval.eval_function(method, &[], &[])?;
        asked_of(size, "eq", heap.alloc(f64::INFINITY), eval)
    }

    /// `input - input == 0`: of infinity and NaN it is NaN.
    fn isfinite<'v>(
        input: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        asked_of(input.sub(input, heap)?, "eq", heap.alloc(0), eval)
    }

    fn hstack<'v>(
        tensors: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        stacked(tensors, |dims| i32::from(dims > 1), 1, eval)
    }

    fn vstack<'v>(
        tensors: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        stacked(tensors, |_| 0, 2, eval)
    }

    fn eye<'v>(
        n: i32,
        #[starlark(default = NoneType)] m: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let columns = numbers::whole_or_none(m, "m")?.unwrap_or(i64::from(n));
        let (Ok(n), Ok(m)) = (u64::try_from(n), u64::try_from(columns)) else {
            return Err(runtime_error(format!("n must be greater or equal to 0, got {n}")));
        };
        let dtype = take::dtype(dtype, Dtype::Float32)?;
        let on = on(device, On::Torch)?;
        let numel = n.saturating_mul(m).min(WRITTEN_DOWN);
        let one = |index: u64| f64::from(u8::from(m > 0 && index / m == index % m));
        let values: Vec<f64> = (0..numel).map(one).collect();
        let made = written_down(eval, &[n, m], dtype, &values, on)?;
        if n.saturating_mul(m) > WRITTEN_DOWN {
            let dist = process(eval)?.dist()?;
            dist.not_followed(&made.0);
        }
        Ok(made)
    }

    fn is_tensor<'v>(obj: Value<'v>) -> anyhow::Result<bool> {
        Ok(obj.get_type() == "Tensor")
    }
}
