//! A user's own model: JSON as PyTorch writes it in a few lines (`docs/ddp.md`), or a table.
//!
//! JSON: `{"params": [[name, shape, numel, dtype, requires_grad], …], "tied": [[alias, name], …],
//! "buffers": [[name, shape, numel, dtype], …]}`, with an optional `"name"`, `"sparse"` (names of
//! the parameters whose gradients are sparse) and `"grad_ready_order"` (a list of indices among the
//! parameters that require grad, or a text such as `"13-11,4"`).
//!
//! CSV: a line per parameter, `name,shape,dtype,requires_grad`, with the shape as `64x3x7x7`; the
//! last two may be left out (`float32`, `true`), and so may a header.

use super::order::inside;
use super::zoo::{known_models, named};
use super::{Buffer, Cost, Layer, Model, Parameter, numel};
use crate::ddp::indices::{IndexListError, parse_indices};
use crate::dtype::Dtype;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The most parameters and buffers of a model: it keeps a stranger's file bounded.
const MAX_TENSORS: usize = 1 << 18;
/// The most dimensions and elements of a tensor, for the same reason.
const MAX_DIMS: usize = 64;
const MAX_NUMEL: u64 = 1 << 40;

/// Why a file is no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Text that is no JSON of a model.
    #[error(
        "not a model: {0}; it needs \"params\": [[name, shape, numel, dtype, requires_grad], …]"
    )]
    Json(String),
    /// A line of a table that cannot be read.
    #[error(
        "line {line}: {why}; write name,shape,dtype,requires_grad, as in conv1.weight,64x3x7x7,float32,true"
    )]
    Csv {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A parameter or buffer that cannot be.
    #[error("{name:?}: {why}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Too many of them.
    #[error("the model has more than {MAX_TENSORS} parameters or buffers")]
    TooLarge,
    /// A ready order that is not one.
    #[error("grad_ready_order: {0}")]
    ReadyOrder(String),
}

impl From<IndexListError> for ModelError {
    fn from(error: IndexListError) -> ModelError {
        ModelError::ReadyOrder(error.to_string())
    }
}

#[derive(Deserialize)]
struct File {
    name: Option<String>,
    params: Vec<(String, Vec<u64>, u64, String, bool)>,
    #[serde(default)]
    tied: Vec<(String, String)>,
    #[serde(default)]
    buffers: Vec<(String, Vec<u64>, u64, String)>,
    #[serde(default)]
    sparse: Vec<String>,
    #[serde(default)]
    grad_ready_order: Option<ReadyOrder>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ReadyOrder {
    Indices(Vec<u32>),
    Text(String),
}

impl Model {
    /// Reads a model from JSON or CSV; `name` is what it is called if it does not say itself.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(name: &str, text: &str) -> Result<Model, ModelError> {
        let model = match text.trim_start().as_bytes().first() {
            Some(b'{') => Model::from_json(name, text),
            Some(b'[') => {
                Err(ModelError::Json("it is a list, not an object with the parameters".into()))
            }
            _ => Model::from_csv(name, text),
        }?;
        model.check_names()?;
        Ok(model)
    }

    /// `named_parameters()` gives every name once.
    fn check_names(&self) -> Result<(), ModelError> {
        let params = self.params.iter().map(|param| &param.name);
        let mut seen = BTreeSet::new();
        match params
            .chain(self.buffers.iter().map(|buffer| &buffer.name))
            .find(|n| !seen.insert(*n))
        {
            None => Ok(()),
            Some(name) => Err(ModelError::Tensor {
                name: name.clone(),
                why:
                    "it is there twice; a model has every name once, and one that is shared under \
                      \"tied\""
                        .into(),
            }),
        }
    }

    fn from_json(name: &str, text: &str) -> Result<Model, ModelError> {
        let file: File =
            serde_json::from_str(text).map_err(|error| ModelError::Json(error.to_string()))?;
        if file.params.len().max(file.buffers.len()) > MAX_TENSORS {
            return Err(ModelError::TooLarge);
        }
        let sparse: BTreeSet<_> = file.sparse.iter().collect();
        let params = file.params.into_iter().map(|(name, shape, numel, dtype, requires_grad)| {
            let sparse = sparse.contains(&name);
            let dtype = check(&name, &shape, Some(numel), &dtype)?;
            Ok(Parameter { name, shape, dtype, requires_grad, sparse })
        });
        let params: Vec<_> = params.collect::<Result<_, ModelError>>()?;
        let buffers = file.buffers.into_iter().map(|(name, shape, numel, dtype)| {
            let dtype = check(&name, &shape, Some(numel), &dtype)?;
            Ok(Buffer { name, shape, dtype })
        });
        let buffers = buffers.collect::<Result<_, ModelError>>()?;
        let recorded = match file.grad_ready_order {
            None => None,
            Some(ReadyOrder::Indices(order)) => Some(order),
            Some(ReadyOrder::Text(text)) => Some(parse_indices(&text)?),
        };
        let name = file.name.unwrap_or_else(|| name.to_owned());
        let layers = layers_of(&params);
        let model = Model {
            name,
            params,
            tied: file.tied,
            buffers,
            layers,
            recorded_ready_order: recorded,
        };
        model.check_ready_order()?;
        Ok(model)
    }

    fn from_csv(name: &str, text: &str) -> Result<Model, ModelError> {
        let mut params = Vec::new();
        for (line, row) in (1..).zip(text.lines()) {
            let cells: Vec<_> = row.split(',').map(str::trim).collect();
            if row.trim().is_empty() || (line == 1 && cells.get(1) == Some(&"shape")) {
                continue;
            }
            let bad = |why: String| ModelError::Csv { line, why };
            let [name, shape, rest @ ..] = &cells[..] else {
                return Err(bad("it has fewer than two columns".into()));
            };
            let sizes = shape.split('x').filter(|size| !size.is_empty());
            let sizes = sizes.map(|size| {
                let size = size.trim().parse();
                size.map_err(|_| bad(format!("{shape:?} is no shape")))
            });
            let shape: Vec<u64> = sizes.collect::<Result<_, _>>()?;
            let requires_grad = match rest.get(1).map(|cell| cell.to_ascii_lowercase()).as_deref() {
                None | Some("true" | "1" | "") => true,
                Some("false" | "0") => false,
                Some(other) => return Err(bad(format!("requires_grad is {other:?}"))),
            };
            let dtype = rest.first().filter(|cell| !cell.is_empty()).copied().unwrap_or("float32");
            let dtype = check(name, &shape, None, dtype).map_err(|error| bad(error.to_string()))?;
            let name = (*name).to_owned();
            params.push(Parameter { name, shape, dtype, requires_grad, sparse: false });
            if params.len() > MAX_TENSORS {
                return Err(ModelError::TooLarge);
            }
        }
        if params.is_empty() {
            return Err(ModelError::Csv { line: 1, why: "it lists no parameter".into() });
        }
        let layers = layers_of(&params);
        Ok(Model {
            name: name.to_owned(),
            params,
            tied: Vec::new(),
            buffers: Vec::new(),
            layers,
            recorded_ready_order: None,
        })
    }

    /// Gradients that a ready order leaves out never become ready.
    fn check_ready_order(&self) -> Result<(), ModelError> {
        let trained = self.trained().count();
        let mut seen = vec![false; trained];
        for &index in self.recorded_ready_order.iter().flatten() {
            match seen.get_mut(index as usize) {
                None => {
                    let why = format!(
                        "index {index} is past the last of the {trained} parameters that require \
                         grad; count those alone, from 0"
                    );
                    return Err(ModelError::ReadyOrder(why));
                }
                Some(seen) if *seen => {
                    return Err(ModelError::ReadyOrder(format!("index {index} is there twice")));
                }
                Some(seen) => *seen = true,
            }
        }
        Ok(())
    }
}

fn check(name: &str, shape: &[u64], of: Option<u64>, dtype: &str) -> Result<Dtype, ModelError> {
    let bad = |why: String| Err(ModelError::Tensor { name: name.to_owned(), why });
    let elements = numel(shape);
    if of.is_some_and(|of| of != elements) {
        return bad(format!(
            "its shape {shape:?} has {elements} elements, not {}",
            of.unwrap_or(0)
        ));
    }
    if elements > MAX_NUMEL || shape.len() > MAX_DIMS {
        return bad("it has more than 2^40 elements or 64 dimensions".into());
    }
    match Dtype::from_torch_name(dtype) {
        Dtype::Unknown => bad(format!("dtype {dtype:?} is not known; write float32, bfloat16, …")),
        dtype => Ok(dtype),
    }
}

/// The layers of the model that ships with the same parameters, if there is one: it knows what runs
/// when, and what that costs.
fn shipped_layers(params: &[Parameter]) -> Option<Vec<Layer>> {
    let first = &params.first()?.name;
    let same = |model: &Model| {
        let pairs = model.params.iter().zip(params);
        model.params.len() == params.len()
            && pairs.into_iter().all(|(a, b)| (&a.name, &a.shape) == (&b.name, &b.shape))
    };
    let ships = known_models().into_iter().filter_map(named);
    let begins = |model: &Model| model.params.first().is_some_and(|param| param.name == *first);
    Some(ships.filter(begins).find(same)?.layers)
}

/// The layers of a model that is known by its parameters alone: a module a layer, in registration
/// order, at one position a sample. What a convolution costs is then far too little, and the
/// estimate of time with it.
fn layers_of(params: &[Parameter]) -> Vec<Layer> {
    if let Some(layers) = shipped_layers(params) {
        return layers;
    }
    let module =
        |param: &Parameter| param.name.rsplit_once('.').map_or("", |(module, _)| module).to_owned();
    let mut layers: Vec<Layer> = Vec::new();
    let mut indices: Vec<u32> = Vec::new();
    for (index, param) in (0u32..).zip(params) {
        indices.push(index);
        let name = module(param);
        let next = params.get(index as usize + 1);
        if !name.is_empty() && next.is_some_and(|next| module(next) == name) {
            continue;
        }
        let own = indices.iter().filter_map(|index| params.get(*index as usize));
        let (bytes, elements) = own.fold((0u64, 0u64), |(bytes, elements), param| {
            (bytes.saturating_add(param.bytes()), elements.saturating_add(param.numel()))
        });
        let (flops, weight_bytes) = (elements.saturating_mul(2), bytes);
        let name = if name.is_empty() { param.name.clone() } else { name };
        layers.push(Layer {
            name,
            params: inside(params, &indices),
            cost: Cost { flops, activation_bytes: 0, weight_bytes },
        });
        indices.clear();
    }
    layers
}
