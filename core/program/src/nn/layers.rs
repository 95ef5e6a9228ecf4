//! The modules of `torch.nn`, and the models that ship: `nn.Linear(…)`, `models.resnet50()`, `models.mlp([…])`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::nn::batch_norm::batch_norm;
use crate::nn::layer_class::LayerClass;
use crate::nn::module_arguments::Rest;
use crate::nn::modules::{Container, ModuleClass, container, layer};
use crate::nn::output_shape::Shape;
use crate::nn::parameter::Kind;
use crate::process::raised::raised;
use crate::python::numbers;
use crate::tensor::value::TensorValue;
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::ddp::model::{
    Model, known_models, linear, mlp, mlp_with_norms, module, named, sequence,
};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::{DictRef, UnpackDictEntries};
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{starlark_module, starlark_simple_value};
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
            builder.set(&python, ShippedModel(Arc::new((model, shape))));
        }
    }
    builders(builder);
}

/// `models.resnet50`: a call makes a new one.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ShippedModel(#[allocative(skip)] Arc<(Model, Shape)>);
starlark_simple_value!(ShippedModel);

impl fmt::Display for ShippedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<function {}>", self.0.0.name)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for ShippedModel {
    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(layer(&self.0.0, self.0.1.clone(), eval.heap()))
    }
}

#[starlark_module]
fn builders(builder: &mut GlobalsBuilder) {
    /// Linear layers with these numbers of features, and norms with buffers between them.
    fn mlp<'v>(
        sizes: Value<'v>,
        #[starlark(default = false)] batch_norm: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let sizes = take::counts(sizes, "sizes", heap)?.unwrap_or_default();
        anyhow::ensure!(
            (2..=1000).contains(&sizes.len()) && sizes.iter().all(|n| (1..=1 << 20).contains(n)),
            "an mlp has 2 to 1000 sizes between 1 and 1048576"
        );
        let model = if batch_norm { mlp_with_norms } else { mlp };
        let layers = sizes.windows(2).map(|pair| Shape::Linear(pair[0], pair[1])).collect();
        Ok(layer(&model("mlp", &sizes, Dtype::Float32), Shape::Chain(layers), heap))
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
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        anyhow::ensure!(in_features > 0 && out_features > 0, "a layer has features");
        let sizes = [u64::from(in_features), u64::from(out_features)];
        let dtype = take::dtype(dtype, Dtype::Float32)?;
        Ok(layer(&linear(sizes, bias, dtype), Shape::Linear(sizes[0], sizes[1]), heap))
    }

    fn Conv2d<'v>(
        in_channels: u32,
        out_channels: u32,
        kernel_size: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        convolution(
            "Conv2d",
            [in_channels, out_channels],
            kernel_size,
            2,
            (&more.items, &named),
            heap,
        )
    }

    fn Conv1d<'v>(
        in_channels: u32,
        out_channels: u32,
        kernel_size: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        convolution(
            "Conv1d",
            [in_channels, out_channels],
            kernel_size,
            1,
            (&more.items, &named),
            heap,
        )
    }

    fn BatchNorm2d<'v>(
        num_features: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let more: Vec<Value<'v>> = std::iter::once(num_features).chain(more.items).collect();
        batch_norm("BatchNorm2d", &Rest::of(&more, &named), heap)
    }

    fn BatchNorm1d<'v>(
        num_features: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let more: Vec<Value<'v>> = std::iter::once(num_features).chain(more.items).collect();
        batch_norm("BatchNorm1d", &Rest::of(&more, &named), heap)
    }

    fn LayerNorm<'v>(
        normalized_shape: Value<'v>,
        #[starlark(default = NoneType)] eps: Value<'v>,
        #[starlark(default = true)] elementwise_affine: bool,
        #[starlark(default = true)] bias: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = eps;
        let shape = crate::tensor::made::sizes(normalized_shape)?;
        let all: [(&str, &[u64]); 2] = [("weight", &shape), ("bias", &shape)];
        let params = match (elementwise_affine, bias) {
            (true, true) => &all[..],
            (true, false) => &all[..1],
            (false, _) => &[],
        };
        Ok(layer(&module("LayerNorm", params, &[], Dtype::Float32, 1), Shape::Same, heap))
    }

    fn Embedding<'v>(
        num_embeddings: u32,
        embedding_dim: u32,
        #[starlark(default = NoneType)] padding_idx: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = padding_idx;
        let shape = [u64::from(num_embeddings), u64::from(embedding_dim)];
        let params: [(&str, &[u64]); 1] = [("weight", &shape)];
        let model = module("Embedding", &params, &[], Dtype::Float32, 0);
        Ok(layer(&model, Shape::Embedding(shape[1]), heap))
    }

    fn GroupNorm<'v>(
        num_groups: u32,
        num_channels: u32,
        #[starlark(default = NoneType)] eps: Value<'v>,
        #[starlark(default = true)] affine: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = eps;
        if num_groups == 0 || !num_channels.is_multiple_of(num_groups) {
            return Err(raised("ValueError: num_channels must be divisible by num_groups"));
        }
        let size = [u64::from(num_channels)];
        let all: [(&str, &[u64]); 2] = [("weight", &size), ("bias", &size)];
        let params = if affine { &all[..] } else { &[] };
        Ok(layer(&module("GroupNorm", params, &[], Dtype::Float32, 1), Shape::Same, heap))
    }

    fn EmbeddingBag<'v>(
        num_embeddings: u32,
        embedding_dim: u32,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (more, named);
        let shape = [u64::from(num_embeddings), u64::from(embedding_dim)];
        let params: [(&str, &[u64]); 1] = [("weight", &shape)];
        let model = module("EmbeddingBag", &params, &[], Dtype::Float32, 0);
        Ok(layer(&model, Shape::Bags(shape[1]), heap))
    }

    /// Modules by their numbers.
    fn ModuleList<'v>(
        #[starlark(default = NoneType)] modules: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let modules: Vec<Value<'v>> = match modules.is_none() {
            true => Vec::new(),
            false => modules.iterate(heap)?.collect(),
        };
        let parts = modules.into_iter().enumerate().map(|(nth, part)| (nth.to_string(), part));
        container(Container::List, parts, heap).map_err(starlark::Error::new_native)
    }

    /// Modules one behind the other.
    fn Sequential<'v>(
        #[starlark(args)] modules: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let all = modules.items;
        if let Some(named) = all.first().copied().and_then(DictRef::from_value) {
            let parts = named.iter().map(|(name, part)| (name.to_str(), part));
            return container(Container::Sequential, parts.collect::<Vec<_>>(), heap);
        }
        let parts = all.into_iter().enumerate().map(|(nth, part)| (nth.to_string(), part));
        container(Container::Sequential, parts, heap)
    }

    /// Modules by their names.
    fn ModuleDict<'v>(
        #[starlark(default = NoneType)] modules: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let named = DictRef::from_value(modules);
        let parts = named.iter().flat_map(|named| named.iter());
        let parts = parts.map(|(name, part)| (name.to_str(), part));
        container(Container::Dict, parts.collect::<Vec<_>>(), heap)
    }

    /// A tensor that is one: it has the same elements.
    fn Parameter<'v>(
        data: Value<'v>,
        #[starlark(default = true)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        crate::nn::parameters::own(data, Kind::Parameter, requires_grad, eval)
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
    (more, named): (&[Value<'v>], &UnpackDictEntries<&'v str, Value<'v>>),
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
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
    Ok(layer(&module(name, params, &[], Dtype::Float32, positions), shape, heap))
}

/// A module without parameters: `nn.ReLU()`.
fn without_parameters<'v>(
    name: &'static str,
    args: &Rest<'_, 'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    Ok(layer(&sequence(name, &[]), Shape::bare(name, args), heap))
}

/// Adds modules without parameters, and those that are refused by their names.
pub(crate) fn bare(builder: &mut GlobalsBuilder) {
    crate::nn::unfollowed_names::of_nn(builder);
    crate::nn::sequence_layers::add(builder);
    crate::nn::sync_batch_norm::add(builder);
    builder.set("Module", ModuleClass);
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
        "AdaptiveAvgPool1d",
        "AdaptiveMaxPool1d",
        "AvgPool1d",
        "AlphaDropout",
        "CELU",
        "Dropout3d",
        "Hardsigmoid",
        "Hardtanh",
        "LogSigmoid",
        "Mish",
        "SELU",
        "Softsign",
        "Upsample",
        "Unflatten",
    ] {
        builder.set(name, LayerClass::new(name, without_parameters));
    }
}
