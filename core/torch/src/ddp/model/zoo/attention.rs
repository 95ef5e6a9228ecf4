//! `nn.MultiheadAttention` and the layers of `nn.Transformer` (`torch/nn/modules/activation.py`, `transformer.py`).

use super::super::Model;
use super::super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

/// The sizes of `nn.MultiheadAttention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Features of the queries and of the output.
    pub embedding: u64,
    /// Features of the keys.
    pub key: u64,
    /// Features of the values.
    pub value: u64,
    /// False without biases of the projections.
    pub bias: bool,
    /// `add_bias_kv`: a trained key and value behind the others.
    pub key_value_bias: bool,
}

impl Attention {
    /// The module by itself.
    pub fn model(&self, name: &str, dtype: Dtype) -> Model {
        let mut model = Architecture::new(name, dtype);
        let parameters = self.parameters(&mut model, "");
        parameters.run(&mut model, "");
        model.finish()
    }

    /// Registers the parameters. Those of keys, queries and values have one weight if all have the same features.
    fn parameters(&self, model: &mut Architecture, prefix: &str) -> Parameters {
        let size = self.embedding;
        let mut new = |name: &str, shape: &[u64]| model.param(format!("{prefix}{name}"), shape);
        let projections = match self.key == size && self.value == size {
            true => vec![new("in_proj_weight", &[size.saturating_mul(3), size])],
            false => vec![
                new("q_proj_weight", &[size, size]),
                new("k_proj_weight", &[size, self.key]),
                new("v_proj_weight", &[size, self.value]),
            ],
        };
        let bias = self.bias.then(|| new("in_proj_bias", &[size.saturating_mul(3)]));
        let behind = match self.key_value_bias {
            true => vec![new("bias_k", &[1, 1, size]), new("bias_v", &[1, 1, size])],
            false => Vec::new(),
        };
        let out = linear(model, &format!("{prefix}out_proj"), [size, size], self.bias);
        Parameters { projections, bias, behind, out }
    }
}

/// The parameters of an attention, each list in the order in which the forward pass uses it.
struct Parameters {
    projections: Vec<u32>,
    bias: Option<u32>,
    behind: Vec<u32>,
    out: Vec<u32>,
}

impl Parameters {
    fn run(&self, model: &mut Architecture, name: &str) {
        match self.projections.as_slice() {
            [packed] => model.product(name, self.bias.into_iter().chain([*packed]).collect(), 1),
            several => {
                // The bias is cut into three before them.
                let parts = self.bias.iter().chain(several);
                parts.for_each(|part| model.product(name, vec![*part], 1));
            }
        }
        self.behind.iter().for_each(|own| model.product(name, vec![*own], 1));
        model.product(name, self.out.clone(), 1);
    }
}

/// Registers a linear layer; its bias is ready first.
fn linear(model: &mut Architecture, name: &str, [from, to]: [u64; 2], bias: bool) -> Vec<u32> {
    let weight = model.param(format!("{name}.weight"), &[to, from]);
    let bias = bias.then(|| model.param(format!("{name}.bias"), &[to]));
    bias.into_iter().chain([weight]).collect()
}

/// Registers a norm; its weight is ready first.
fn norm(model: &mut Architecture, name: &str, size: u64, bias: bool) -> Vec<u32> {
    let weight = model.param(format!("{name}.weight"), &[size]);
    let bias = bias.then(|| model.param(format!("{name}.bias"), &[size]));
    [weight].into_iter().chain(bias).collect()
}

/// The sizes of `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformerLayer {
    /// `d_model`
    pub model: u64,
    /// `dim_feedforward`
    pub feed_forward: u64,
    /// `norm_first`: norms stand before the attention and the linear layers, not behind them.
    pub norm_first: bool,
    /// False without biases.
    pub bias: bool,
    /// True of a decoder's layer, which attends to the encoder's output too.
    pub decoder: bool,
}

impl TransformerLayer {
    /// The layer by itself.
    pub fn module(&self, name: &str, dtype: Dtype) -> Model {
        let mut model = Architecture::new(name, dtype);
        let (size, bias) = (self.model, self.bias);
        let attention =
            Attention { embedding: size, key: size, value: size, bias, key_value_bias: false };
        let names: &[&str] =
            if self.decoder { &["self_attn", "multihead_attn"] } else { &["self_attn"] };
        let attentions: Vec<Parameters> = names
            .iter()
            .map(|name| attention.parameters(&mut model, &format!("{name}.")))
            .collect();
        let linears =
            [("linear1", [size, self.feed_forward]), ("linear2", [self.feed_forward, size])];
        let linears = linears.map(|(name, sizes)| linear(&mut model, name, sizes, bias));
        let norms: Vec<Vec<u32>> = (1..=attentions.len() + 1)
            .map(|nth| norm(&mut model, &format!("norm{nth}"), size, bias))
            .collect();
        for (block, norm) in norms.iter().enumerate() {
            if self.norm_first {
                model.product("norm", norm.clone(), 1);
            }
            match attentions.get(block) {
                Some(attention) => attention.run(&mut model, "attention"),
                None => linears.iter().for_each(|own| model.product("linear", own.clone(), 1)),
            }
            if !self.norm_first {
                model.product("norm", norm.clone(), 1);
            }
        }
        model.finish()
    }
}
