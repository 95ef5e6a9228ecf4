//! Recurrent layers and transformers of `torch.nn`: parameters as PyTorch registers them, and what a pass returns.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::nn::layer_class::LayerClass;
use crate::nn::module_arguments::Rest;
use crate::nn::modules::{LayerValue, Module, layer};
use crate::nn::output_shape::{Heads, Sequence, Shape};
use crate::process::raised::raised;
use crate::process::state::process;
use crate::python::numbers;
use crate::tensor::elementwise::made;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{Device, Tensor};
use lockstep_torch::ddp::model::{
    Attention, Model, Recurrence, Recurrent, TransformerLayer, module, sequence,
};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

/// Layers of one module.
const MOST_LAYERS: u64 = 1000;

/// Parameters of one module.
const MOST_PARAMETERS: usize = 100_000;

/// Positions of a mask.
const MOST_POSITIONS: u64 = 1 << 20;

/// The arguments of recurrent layers.
struct Asked<'v> {
    sizes: [u64; 2],
    layers: u64,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
    projection: u64,
    dtype: Value<'v>,
}

impl<'v> Asked<'v> {
    fn layers(
        &self,
        (name, recurrence): (&str, Recurrence),
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let [input, hidden] = self.sizes;
        if input == 0 || hidden == 0 {
            return Err(raised("ValueError: hidden_size must be greater than zero"));
        }
        if !(1..=MOST_LAYERS).contains(&self.layers) {
            return Err(raised("ValueError: num_layers must be greater than zero"));
        }
        if self.projection >= hidden {
            return Err(raised("ValueError: proj_size has to be smaller than hidden_size"));
        }
        let sizes = Recurrent {
            recurrence,
            input,
            hidden,
            layers: self.layers,
            bias: self.bias,
            bidirectional: self.bidirectional,
            projection: (self.projection > 0).then_some(self.projection),
        };
        let model = sizes.model(name, take::dtype(self.dtype, Dtype::Float32)?);
        let sequence = Sequence { sizes, batch_first: self.batch_first, cell: false };
        Ok(layer(&model, Shape::Sequence(sequence), heap))
    }
}

fn cell<'v>(
    (name, recurrence): (&str, Recurrence),
    [input, hidden]: [u32; 2],
    bias: bool,
    dtype: Value<'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    anyhow::ensure!(input > 0 && hidden > 0, "a cell has features");
    let (input, hidden, layers) = (u64::from(input), u64::from(hidden), 1);
    let (bidirectional, projection) = (false, None);
    let sizes = Recurrent { recurrence, input, hidden, layers, bias, bidirectional, projection };
    let model = sizes.cell(name, take::dtype(dtype, Dtype::Float32)?);
    let sequence = Sequence { sizes, batch_first: false, cell: true };
    Ok(layer(&model, Shape::Sequence(sequence), heap))
}

/// A layer of a transformer.
fn transformer_layer<'v>(
    name: &str,
    [size, heads, feed_forward]: [u32; 3],
    (norm_first, bias, decoder): (bool, bool, bool),
    dtype: Value<'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    divides(heads, size)?;
    let (model, feed_forward) = (u64::from(size), u64::from(feed_forward));
    let own = TransformerLayer { model, feed_forward, norm_first, bias, decoder };
    Ok(layer(&own.module(name, take::dtype(dtype, Dtype::Float32)?), Shape::Same, heap))
}

fn divides(heads: u32, size: u32) -> anyhow::Result<()> {
    if heads == 0 || size == 0 {
        return Err(raised(format!(
            "ValueError: embed_dim and num_heads must be greater than 0, got embed_dim={size} and \
             num_heads={heads} instead"
        )));
    }
    if !size.is_multiple_of(heads) {
        return Err(raised("AssertionError: embed_dim must be divisible by num_heads"));
    }
    Ok(())
}

/// A layer's parameters as a model, of which copies are made.
fn as_model(of: &LayerValue) -> anyhow::Result<Model> {
    let mut model = sequence(&of.kind, &[]);
    model.layers.clone_from(&of.layers);
    let parameters = of.parameters.try_borrow()?;
    model.params = parameters
        .iter()
        .map(|(name, own)| lockstep_torch::ddp::model::Parameter {
            name: name.clone(),
            shape: own.shape().to_vec(),
            dtype: own.dtype(),
            requires_grad: own.is_trained(),
            sparse: false,
            unexpected: false,
            uninitialized: false,
        })
        .collect();
    Ok(model)
}

/// `TransformerEncoder(layer, num_layers, norm)`: copies of a layer, and a norm behind them. The layer itself is no
/// part of it.
fn stack<'v>(
    name: &str,
    of: Value<'v>,
    layers: u32,
    norm: Value<'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let own = |value: Value<'v>| match Module::of(value) {
        Some(Module::Layer(layer)) => as_model(layer),
        _ => anyhow::bail!(
            "torch.nn.{name} of a module of the program's own classes is not followed here. \
             `lockstep record` runs the script with your own PyTorch"
        ),
    };
    let part = own(of)?;
    let norm = if norm.is_none() { None } else { Some(own(norm)?) };
    stacked(name, &part, layers.into(), norm.as_ref()).map(|model| {
        let made = layer(&model, Shape::Same, heap);
        keep_frozen(&model, made);
        made
    })
}

/// Copies of a layer that is frozen are frozen.
fn keep_frozen(model: &Model, made: Value<'_>) {
    let Some(Module::Layer(layer)) = Module::of(made) else { return };
    let Ok(parameters) = layer.parameters.try_borrow() else { return };
    for ((_, own), like) in parameters.iter().zip(&model.params) {
        own.train(like.requires_grad);
    }
}

fn stacked(name: &str, part: &Model, layers: u64, norm: Option<&Model>) -> anyhow::Result<Model> {
    anyhow::ensure!(layers <= MOST_LAYERS, "at most {MOST_LAYERS} layers");
    let all = part.params.len().saturating_mul(layers as usize);
    anyhow::ensure!(all <= MOST_PARAMETERS, "a module has at most {MOST_PARAMETERS} parameters");
    let copies = (0..layers).map(|nth| (format!("layers.{nth}"), part));
    let norm = norm.map(|norm| ("norm".to_owned(), norm));
    Ok(sequence(name, &copies.chain(norm).collect::<Vec<_>>()))
}

#[starlark_module]
fn layers(builder: &mut GlobalsBuilder) {
    fn LSTM<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = 1)] num_layers: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = false)] bidirectional: bool,
        #[starlark(default = 0)] proj_size: u32,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dropout, device);
        let sizes = [input_size.into(), hidden_size.into()];
        let (layers, projection) = (num_layers.into(), proj_size.into());
        let asked = Asked { sizes, layers, bias, batch_first, bidirectional, projection, dtype };
        asked.layers(("LSTM", Recurrence::Lstm), heap)
    }

    fn GRU<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = 1)] num_layers: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = false)] bidirectional: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dropout, device);
        let sizes = [input_size.into(), hidden_size.into()];
        let (layers, projection) = (num_layers.into(), 0);
        let asked = Asked { sizes, layers, bias, batch_first, bidirectional, projection, dtype };
        asked.layers(("GRU", Recurrence::Gru), heap)
    }

    fn RNN<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = 1)] num_layers: u32,
        #[starlark(default = NoneType)] nonlinearity: Value<'v>,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = false)] bidirectional: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (nonlinearity, dropout, device);
        let sizes = [input_size.into(), hidden_size.into()];
        let (layers, projection) = (num_layers.into(), 0);
        let asked = Asked { sizes, layers, bias, batch_first, bidirectional, projection, dtype };
        asked.layers(("RNN", Recurrence::Rnn), heap)
    }

    fn LSTMCell<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        cell(("LSTMCell", Recurrence::Lstm), [input_size, hidden_size], bias, dtype, heap)
    }

    fn GRUCell<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        cell(("GRUCell", Recurrence::Gru), [input_size, hidden_size], bias, dtype, heap)
    }

    fn RNNCell<'v>(
        input_size: u32,
        hidden_size: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = NoneType)] nonlinearity: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (nonlinearity, device);
        cell(("RNNCell", Recurrence::Rnn), [input_size, hidden_size], bias, dtype, heap)
    }

    fn MultiheadAttention<'v>(
        embed_dim: u32,
        num_heads: u32,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = false)] add_bias_kv: bool,
        #[starlark(default = false)] add_zero_attn: bool,
        #[starlark(default = NoneType)] kdim: Value<'v>,
        #[starlark(default = NoneType)] vdim: Value<'v>,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dropout, device);
        divides(num_heads, embed_dim)?;
        let embedding = u64::from(embed_dim);
        let features = |of: Value<'v>, name: &str| match of.is_none() {
            true => Ok(embedding),
            false => Ok::<u64, anyhow::Error>(u64::try_from(numbers::whole(of, name)?)?),
        };
        let (key, value) = (features(kdim, "kdim")?, features(vdim, "vdim")?);
        let own = Attention { embedding, key, value, bias, key_value_bias: add_bias_kv };
        let model = own.model("MultiheadAttention", take::dtype(dtype, Dtype::Float32)?);
        let more_keys = u64::from(add_bias_kv) + u64::from(add_zero_attn);
        let heads = Heads { embedding, heads: num_heads.into(), batch_first, more_keys };
        Ok(layer(&model, Shape::Attention(heads), heap))
    }

    fn TransformerEncoderLayer<'v>(
        d_model: u32,
        nhead: u32,
        #[starlark(default = 2048)] dim_feedforward: u32,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = NoneType)] activation: Value<'v>,
        #[starlark(default = NoneType)] layer_norm_eps: Value<'v>,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = false)] norm_first: bool,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dropout, activation, layer_norm_eps, batch_first, device);
        let sizes = [d_model, nhead, dim_feedforward];
        let kind = (norm_first, bias, false);
        transformer_layer("TransformerEncoderLayer", sizes, kind, dtype, heap)
    }

    fn TransformerDecoderLayer<'v>(
        d_model: u32,
        nhead: u32,
        #[starlark(default = 2048)] dim_feedforward: u32,
        #[starlark(default = NoneType)] dropout: Value<'v>,
        #[starlark(default = NoneType)] activation: Value<'v>,
        #[starlark(default = NoneType)] layer_norm_eps: Value<'v>,
        #[starlark(default = false)] batch_first: bool,
        #[starlark(default = false)] norm_first: bool,
        #[starlark(default = true)] bias: bool,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dropout, activation, layer_norm_eps, batch_first, device);
        let sizes = [d_model, nhead, dim_feedforward];
        let kind = (norm_first, bias, true);
        transformer_layer("TransformerDecoderLayer", sizes, kind, dtype, heap)
    }

    fn TransformerEncoder<'v>(
        encoder_layer: Value<'v>,
        num_layers: u32,
        #[starlark(default = NoneType)] norm: Value<'v>,
        #[starlark(default = true)] enable_nested_tensor: bool,
        #[starlark(default = true)] mask_check: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (enable_nested_tensor, mask_check);
        stack("TransformerEncoder", encoder_layer, num_layers, norm, heap)
    }

    fn TransformerDecoder<'v>(
        decoder_layer: Value<'v>,
        num_layers: u32,
        #[starlark(default = NoneType)] norm: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        stack("TransformerDecoder", decoder_layer, num_layers, norm, heap)
    }
}

const MASK: &str = "generate_square_subsequent_mask";

/// `Transformer.generate_square_subsequent_mask(size)`: its values are not followed.
fn mask<'v>(
    _name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let native = starlark::Error::new_native;
    let heap = eval.heap();
    let size = take::first(args, "sz", MASK, heap)?;
    let size = numbers::whole(size, "sz").map_err(native)?;
    let size = u64::try_from(size).ok().filter(|size| *size <= MOST_POSITIONS);
    let size =
        size.ok_or_else(|| native(anyhow::anyhow!("a mask has at most {MOST_POSITIONS} rows")))?;
    let like = Tensor::nothing(Device::Cpu);
    let process = process(eval).map_err(native)?;
    let mask = made(process, &like, Dtype::Float32, &[size, size], None).map_err(native)?;
    Ok(heap.alloc(mask))
}

/// `Transformer(d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, …)`.
fn transformer<'v>(
    name: &'static str,
    args: &Rest<'_, 'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let given = |name: &str, nth: usize| args.get(name, nth).filter(|value| !value.is_none());
    let size = |name: &str, nth: usize, usual: u32| match given(name, nth) {
        Some(value) => Ok::<u32, anyhow::Error>(u32::try_from(numbers::whole(value, name)?)?),
        None => Ok(usual),
    };
    let (width, heads) = (size("d_model", 0, 512)?, size("nhead", 1, 8)?);
    divides(heads, width)?;
    anyhow::ensure!(
        given("custom_encoder", 7).is_none() && given("custom_decoder", 8).is_none(),
        "a Transformer's custom_encoder and custom_decoder are not followed here"
    );
    let own = TransformerLayer {
        model: width.into(),
        feed_forward: size("dim_feedforward", 4, 2048)?.into(),
        norm_first: given("norm_first", 11).is_some_and(Value::to_bool),
        bias: given("bias", 12).is_none_or(Value::to_bool),
        decoder: false,
    };
    let dtype = take::dtype(given("dtype", 14).unwrap_or_else(Value::new_none), Dtype::Float32)?;
    let width = [own.model];
    let params: [(&str, &[u64]); 2] = [("weight", &width), ("bias", &width)];
    let norm = module("norm", &params[..if own.bias { 2 } else { 1 }], &[], dtype, 1);
    let half = |name: &str, nth: usize, decoder: bool| {
        let part = TransformerLayer { decoder, ..own }.module(name, dtype);
        stacked(name, &part, size(name, nth, 6)?.into(), Some(&norm))
    };
    let encoder = half("num_encoder_layers", 2, false)?;
    let decoder = half("num_decoder_layers", 3, true)?;
    let halves = [("encoder".to_owned(), &encoder), ("decoder".to_owned(), &decoder)];
    Ok(layer(&sequence(name, &halves), Shape::Target, heap))
}

/// Adds all of them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    layers(builder);
    let transformer = LayerClass::new("Transformer", transformer).with_method(MASK, mask);
    builder.set("Transformer", transformer);
}
