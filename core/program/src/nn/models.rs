//! Models that programs can name or build: `models.resnet50()`, `models.mlp([…])`, `nn.Linear(…)`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::nn::model_values::{ModelValue, number_of};
use crate::nn::module_arguments::Rest;
use crate::nn::module_list::{ModuleListValue, in_a_row};
use crate::nn::output_methods::{returned, shaped};
use crate::nn::output_shape::Shape;
use crate::nn::parameters::ParametersValue;
use crate::process::state::process;
use crate::python::numbers;
use crate::tensor::value::tensor;
use crate::torch::checkpoint::{CheckpointValue, loaded};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::ddp::model::{
    known_models, linear, mlp, mlp_with_norms, module, named, sequence,
};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;

/// The models that ship, each as a function without arguments.
pub(crate) fn zoo(builder: &mut GlobalsBuilder) {
    for name in known_models() {
        if let Some(model) = named(name) {
            let python = name.replace(['-', '.'], "_");
            let of_pictures = ["resnet", "vgg", "vit"].iter().any(|own| name.starts_with(own));
            let classes = model.params.last().and_then(|bias| bias.shape.first());
            let shape = match classes.filter(|_| of_pictures) {
                Some(classes) => Shape::Classes(*classes),
                None => Shape::Unknown,
            };
            builder.set(&python, ModelValue::new(model, shape));
        }
    }
    builders(builder);
}

#[starlark_module]
fn builders(builder: &mut GlobalsBuilder) {
    /// Linear layers with these numbers of features, and norms with buffers between them.
    fn mlp<'v>(
        sizes: Value<'v>,
        #[starlark(default = false)] batch_norm: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ModelValue> {
        let sizes = take::counts(sizes, "sizes", eval.heap())?.unwrap_or_default();
        anyhow::ensure!(
            (2..=1000).contains(&sizes.len()) && sizes.iter().all(|n| (1..=1 << 20).contains(n)),
            "an mlp has 2 to 1000 sizes between 1 and 1048576"
        );
        let model = if batch_norm { mlp_with_norms } else { mlp };
        let layers = sizes.windows(2).map(|pair| Shape::Linear(pair[0], pair[1])).collect();
        Ok(ModelValue::new(model("mlp", &sizes, Dtype::Float32), Shape::Chain(layers)))
    }
}

/// `torch.nn`'s modules, as far as they have parameters or pass their input on.
#[starlark_module]
pub(crate) fn layers(builder: &mut GlobalsBuilder) {
    /// A model of one linear layer.
    fn Linear<'v>(
        in_features: u32,
        out_features: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
    ) -> anyhow::Result<ModelValue> {
        let _ = device;
        anyhow::ensure!(in_features > 0 && out_features > 0, "a layer has features");
        let sizes = [u64::from(in_features), u64::from(out_features)];
        let dtype = take::dtype(dtype, Dtype::Float32)?;
        Ok(ModelValue::new(linear(sizes, bias, dtype), Shape::Linear(sizes[0], sizes[1])))
    }

    fn Conv2d<'v>(
        in_channels: u32,
        out_channels: u32,
        kernel_size: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        convolution("Conv2d", [in_channels, out_channels], kernel_size, 2, &more.items, &named)
    }

    fn Conv1d<'v>(
        in_channels: u32,
        out_channels: u32,
        kernel_size: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        convolution("Conv1d", [in_channels, out_channels], kernel_size, 1, &more.items, &named)
    }

    fn BatchNorm2d<'v>(
        num_features: u32,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        batch_norm("BatchNorm2d", num_features, &more.items, &named)
    }

    fn BatchNorm1d<'v>(
        num_features: u32,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        batch_norm("BatchNorm1d", num_features, &more.items, &named)
    }

    fn LayerNorm<'v>(
        normalized_shape: Value<'v>,
        #[starlark(default = NoneType)] eps: Value<'v>,
        #[starlark(default = true)] elementwise_affine: bool,
        #[starlark(default = true)] bias: bool,
    ) -> anyhow::Result<ModelValue> {
        let _ = eps;
        let shape = crate::tensor::made::sizes(normalized_shape)?;
        let all: [(&str, &[u64]); 2] = [("weight", &shape), ("bias", &shape)];
        let params = match (elementwise_affine, bias) {
            (true, true) => &all[..],
            (true, false) => &all[..1],
            (false, _) => &[],
        };
        Ok(ModelValue::new(module("LayerNorm", params, &[], Dtype::Float32, 1), Shape::Same))
    }

    fn Embedding<'v>(
        num_embeddings: u32,
        embedding_dim: u32,
        #[starlark(default = NoneType)] padding_idx: Value<'v>,
    ) -> anyhow::Result<ModelValue> {
        let _ = padding_idx;
        let shape = [u64::from(num_embeddings), u64::from(embedding_dim)];
        let params: [(&str, &[u64]); 1] = [("weight", &shape)];
        let model = module("Embedding", &params, &[], Dtype::Float32, 0);
        Ok(ModelValue::new(model, Shape::Embedding(shape[1])))
    }

    /// Modules in a list, which are taken to be run one behind the other.
    fn ModuleList<'v>(
        #[starlark(default = NoneType)] modules: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        if modules.is_none() {
            return Ok(heap.alloc_complex_no_freeze(ModuleListValue::default()));
        }
        let modules: Vec<Value<'v>> = modules.iterate(heap)?.collect();
        let made = in_a_row("ModuleList", &modules).map_err(starlark::Error::new_native)?;
        Ok(heap.alloc(made))
    }

    /// Modules one behind the other.
    fn Sequential<'v>(
        #[starlark(args)] modules: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        in_a_row("Sequential", &modules.items)
    }
}

/// The value of a module's option: the positional argument `nth`, or the keyword.
fn option<'v>(
    name: &str,
    nth: usize,
    more: &[Value<'v>],
    named: &UnpackDictEntries<&'v str, Value<'v>>,
) -> Option<Value<'v>> {
    let keyword = named.entries.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    keyword.or_else(|| more.get(nth).copied())
}

/// `nn.Conv1d` and `nn.Conv2d`, for as many positions as the smallest pictures have.
fn convolution<'v>(
    name: &str,
    [input, output]: [u32; 2],
    kernel: Value<'v>,
    dims: usize,
    more: &[Value<'v>],
    named: &UnpackDictEntries<&'v str, Value<'v>>,
) -> anyhow::Result<ModelValue> {
    let kernel = match take::items(kernel) {
        Some(_) => crate::tensor::made::sizes(kernel)?,
        None => crate::tensor::made::sizes(kernel)?.repeat(dims),
    };
    let groups = option("groups", 3, more, named).map(|groups| numbers::whole(groups, "groups"));
    let groups = u32::try_from(groups.transpose()?.unwrap_or(1)).unwrap_or(0);
    let divides = |of: u32| groups > 0 && of > 0 && of.is_multiple_of(groups);
    anyhow::ensure!(divides(input) && divides(output), "channels are divisible by groups");
    anyhow::ensure!(kernel.len() == dims, "a kernel of {name} has {dims} sizes");
    let weight = [&[u64::from(output), u64::from(input / groups)], &kernel[..]].concat();
    let bias = [u64::from(output)];
    let all: [(&str, &[u64]); 2] = [("weight", &weight), ("bias", &bias)];
    let biased = option("bias", 4, more, named).is_none_or(|bias| bias.to_bool());
    let params = all.get(..if biased { 2 } else { 1 }).unwrap_or_default();
    let positions = 28_u64.pow(dims as u32);
    let channels = [u64::from(input), u64::from(output)];
    let shape = Shape::convolution(channels, &kernel, &Rest::of(more, named));
    Ok(ModelValue::new(module(name, params, &[], Dtype::Float32, positions), shape))
}

/// `nn.BatchNorm1d` and `nn.BatchNorm2d`, with the statistics that DDP broadcasts.
fn batch_norm<'v>(
    name: &str,
    features: u32,
    more: &[Value<'v>],
    named: &UnpackDictEntries<&'v str, Value<'v>>,
) -> anyhow::Result<ModelValue> {
    let has = |option: Option<Value<'v>>| option.is_none_or(|option| option.to_bool());
    let (affine, tracks) =
        (has(option("affine", 2, more, named)), has(option("track_running_stats", 3, more, named)));
    let size = [u64::from(features)];
    let params: [(&str, &[u64]); 2] = [("weight", &size), ("bias", &size)];
    let buffers: [(&str, &[u64], Dtype); 3] = [
        ("running_mean", &size, Dtype::Float32),
        ("running_var", &size, Dtype::Float32),
        ("num_batches_tracked", &[], Dtype::Int64),
    ];
    let params = if affine { &params[..] } else { &[] };
    let buffers = if tracks { &buffers[..] } else { &[] };
    Ok(ModelValue::new(module(name, params, buffers, Dtype::Float32, 1), Shape::Same))
}

/// Modules without parameters: `nn.ReLU()`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct BareClass(&'static str);
starlark_simple_value!(BareClass);

impl fmt::Display for BareClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class 'torch.nn.{}'>", self.0)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for BareClass {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let more: Vec<Value<'v>> = args.positions(heap)?.collect();
        let named = args.names_map()?;
        let named: Vec<(&str, Value<'v>)> =
            named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let shape = Shape::bare(self.0, &Rest { more: &more, named: &named });
        Ok(heap.alloc(ModelValue::new(sequence(self.0, &[]), shape)))
    }
}

/// Adds modules without parameters.
pub(crate) fn bare(builder: &mut GlobalsBuilder) {
    for name in [
        "ReLU",
        "GELU",
        "Sigmoid",
        "Tanh",
        "SiLU",
        "LeakyReLU",
        "Dropout",
        "Flatten",
        "Identity",
        "Softmax",
        "LogSoftmax",
        "ELU",
        "ReLU6",
        "Hardswish",
        "Softplus",
        "Dropout1d",
        "Dropout2d",
        "MaxPool1d",
        "MaxPool2d",
        "AvgPool2d",
        "AdaptiveAvgPool2d",
        "AdaptiveMaxPool2d",
        "Upsample",
        "Unflatten",
    ] {
        builder.set(name, BareClass(name));
    }
}

methods_static!(MODEL_METHODS = model_methods);

#[starlark_value(type = "Model")]
impl<'v> StarlarkValue<'v> for ModelValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(MODEL_METHODS.methods())
    }

    /// `models.resnet50()`: a model of its own; `model(batch)`: its forward pass.
    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let first = args.positions(heap)?.next();
        let given = |value: &Value<'v>| matches!(value.get_type(), "Tensor" | "Output");
        let Some(input) = first.filter(given) else {
            return Ok(heap.alloc(ModelValue(Arc::new((*self.0).clone()), self.1.clone())));
        };
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let Ok(given) = tensor(input) else { return Ok(input) };
        // A module without parameters, or with another model's output as input, adds nothing to the pass.
        if self.0.params.is_empty() || given.pass().is_some() {
            let (shape, dtype) = (Some(given.shape()), given.dtype());
            return shaped(&self.1, shape, given, dtype, eval).map_err(native);
        }
        let at = process(eval).and_then(|process| number_of(me, process)).map_err(native)?;
        let pass = crate::nn::ddp_passes::forward(at, false, &[], eval).map_err(native)?;
        returned(pass, Some(input), eval).map_err(native)
    }
}

/// The methods of a model that change nothing here.
pub(crate) fn methods() -> &'static Methods {
    MODEL_METHODS.methods()
}

#[starlark_module]
pub(crate) fn model_methods(builder: &mut MethodsBuilder) {
    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn cuda<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn parameters<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        crate::nn::parameters::parameters(this, false, eval)
    }

    fn buffers<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        Ok(crate::nn::parameters::parameters(this, false, eval)?.buffers())
    }

    fn named_buffers<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        Ok(crate::nn::parameters::parameters(this, true, eval)?.buffers())
    }

    fn named_parameters<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        crate::nn::parameters::parameters(this, true, eval)
    }

    fn train<'v>(
        this: Value<'v>,
        #[starlark(default = true)] mode: bool,
    ) -> anyhow::Result<Value<'v>> {
        let _ = mode;
        Ok(this)
    }

    fn eval<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn requires_grad_<'v>(
        this: Value<'v>,
        #[starlark(default = true)] requires_grad: bool,
    ) -> anyhow::Result<Value<'v>> {
        anyhow::ensure!(requires_grad, "parameters that are not trained cannot be said here");
        Ok(this)
    }

    /// The parameters by their names; the model's buffers are not among them here.
    fn state_dict<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<CheckpointValue> {
        let _ = (this, process(eval)?);
        Ok(CheckpointValue)
    }

    /// The parameters' values are not followed, so that they may become anything.
    fn load_state_dict<'v>(
        this: Value<'v>,
        state_dict: Value<'v>,
        #[starlark(default = true)] strict: bool,
        #[starlark(default = false)] assign: bool,
    ) -> anyhow::Result<NoneType> {
        let _ = (this, strict, assign);
        loaded(state_dict)
    }

    fn cpu<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn zero_grad<'v>(
        this: Value<'v>,
        #[starlark(default = true)] set_to_none: bool,
    ) -> anyhow::Result<Value<'v>> {
        let _ = set_to_none;
        Ok(this)
    }
}
