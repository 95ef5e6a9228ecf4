//! The models that ship, written as torchvision 0.22 and transformers 4.53 build them.

use super::Model;
use super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

mod attention;
mod llama;
mod recurrent;
mod transformers;
mod vision;

pub use attention::{Attention, TransformerLayer};
pub use recurrent::{Recurrence, Recurrent};

/// The names of the models that ship, besides `mlp:SIZES`.
pub fn known_models() -> [&'static str; 13] {
    [
        "resnet18",
        "resnet50",
        "resnet152",
        "vgg16",
        "vit_b_16",
        "bert-base",
        "bert-large",
        "gpt2-small",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
        "llama3.2-1b",
        "llama3-8b",
    ]
}

/// The model of that name, or `None`. Case and punctuation do not matter (`ResNet-18`), and
/// `mlp:64,128,10` is [`mlp`] of those sizes.
pub fn named(name: &str) -> Option<Model> {
    if let Some(sizes) = name.strip_prefix("mlp:") {
        return Some(mlp(name, &mlp_sizes(sizes).ok()?, Dtype::Float32));
    }
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let model = match plain.to_ascii_lowercase().as_str() {
        "resnet18" => vision::resnet("resnet18", vision::Block::Basic, [2, 2, 2, 2]),
        "resnet50" => vision::resnet("resnet50", vision::Block::Bottleneck, [3, 4, 6, 3]),
        "resnet152" => vision::resnet("resnet152", vision::Block::Bottleneck, [3, 8, 36, 3]),
        "vgg16" => vision::vgg16(),
        "vitb16" => vision::vit_b_16(),
        "bert" | "bertbase" | "bertbaseuncased" => transformers::bert("bert-base", 12, 768),
        "bertlarge" | "bertlargeuncased" => transformers::bert("bert-large", 24, 1024),
        "gpt2" | "gpt2small" => transformers::gpt2("gpt2-small", 12, 768),
        "gpt2medium" => transformers::gpt2("gpt2-medium", 24, 1024),
        "gpt2large" => transformers::gpt2("gpt2-large", 36, 1280),
        "gpt2xl" => transformers::gpt2("gpt2-xl", 48, 1600),
        "llama1b" | "llama321b" | "llama321bbf16" => llama::llama_1b(),
        "llama8b" | "llama38b" | "llama318b" | "llama38bbf16" => llama::llama_8b(),
        _ => return None,
    };
    Some(model)
}

/// The reason that a text is not the sizes of an MLP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MlpSizesError {
    /// A size that is no number, or too large for a tensor.
    #[error("mlp: {0:?} is no size of a layer: from 1 to 1,048,576")]
    Size(String),
    /// A single size.
    #[error("mlp: one size is no layer: write at least two, as in mlp:64,128,10")]
    One,
    /// More layers than a model should have.
    #[error("mlp: more than 1,000 sizes; take fewer")]
    TooMany,
}

/// The sizes of an MLP: `64,128,10`.
///
/// # Errors
/// When a size is not a number, or there are too few or too many.
pub fn mlp_sizes(text: &str) -> Result<Vec<u64>, MlpSizesError> {
    let sizes = text.split(',').map(|size| {
        let size = size.trim();
        // Sizes whose product is no tensor are no model.
        let fits = size.parse().ok().filter(|size| (1..=1 << 20).contains(size));
        fits.ok_or_else(|| MlpSizesError::Size(size.chars().take(40).collect()))
    });
    let sizes: Vec<u64> = sizes.take(1_001).collect::<Result<_, _>>()?;
    match sizes.len() {
        2..=1_000 => Ok(sizes),
        1 => Err(MlpSizesError::One),
        _ => Err(MlpSizesError::TooMany),
    }
}

/// An MLP with a `BatchNorm1d` behind every layer but the last, `norms.0`, `norms.1`, …: a small model with
/// buffers.
pub fn mlp_with_norms(name: &str, sizes: &[u64], dtype: Dtype) -> Model {
    let mut model = Architecture::new(name, dtype);
    for (index, pair) in sizes.windows(2).enumerate() {
        let layer = model.linear(&format!("layers.{index}"), [pair[0], pair[1]], true, 1);
        model.run(layer);
        if index + 2 < sizes.len() {
            let norm = model.batch_norm(&format!("norms.{index}"), pair[1], 1);
            model.run(norm);
        }
    }
    model.finish()
}

/// Linear layers `layers.0`, `layers.1`, … between those sizes, with biases.
pub fn mlp(name: &str, sizes: &[u64], dtype: Dtype) -> Model {
    let mut model = Architecture::new(name, dtype);
    for (index, pair) in sizes.windows(2).enumerate() {
        let layer = model.linear(&format!("layers.{index}"), [pair[0], pair[1]], true, 1);
        model.run(layer);
    }
    model.finish()
}

/// `nn.Linear` by itself: `weight` and `bias`.
pub fn linear(sizes: [u64; 2], bias: bool, dtype: Dtype) -> Model {
    let mut model = Architecture::new("Linear", dtype);
    let layer = model.linear("", sizes, bias, 1);
    model.run(layer);
    let mut model = model.finish();
    for param in &mut model.params {
        param.name = param.name.trim_start_matches('.').to_owned();
    }
    model
}

/// A module of `torch.nn` by itself, with these parameters and buffers, for that many positions a
/// sample: `nn.Conv2d`, `nn.LayerNorm`. Its weights are ready first.
pub fn module(
    name: &str,
    params: &[(&str, &[u64])],
    buffers: &[(&str, &[u64], Dtype)],
    dtype: Dtype,
    positions: u64,
) -> Model {
    let mut model = Architecture::new(name, dtype);
    let layer = model.module(params, positions);
    model.run(layer);
    for (name, shape, dtype) in buffers {
        model.buffer((*name).to_owned(), shape, *dtype);
    }
    model.finish()
}

/// Models that are run one after the other and use all of their parameters once, each under its name:
/// `0.weight`, `0.bias`, `2.weight` of `nn.Sequential`.
pub fn sequence(name: &str, parts: &[(String, &Model)]) -> Model {
    let mut whole = Architecture::new(name, Dtype::Float32).finish();
    for (within, part) in parts {
        let before = whole.params.len() as u32;
        let prefixed = |name: &str| format!("{within}.{name}");
        whole.params.extend(part.params.iter().map(|param| {
            let name = prefixed(&param.name);
            super::Parameter { name, ..param.clone() }
        }));
        whole.buffers.extend(part.buffers.iter().map(|buffer| {
            let name = prefixed(&buffer.name);
            super::Buffer { name, ..buffer.clone() }
        }));
        whole.layers.extend(part.layers.iter().map(|layer| super::Layer {
            name: prefixed(&layer.name).trim_end_matches('.').to_owned(),
            params: layer.params.iter().map(|param| param + before).collect(),
            cost: layer.cost,
        }));
    }
    whole
}
