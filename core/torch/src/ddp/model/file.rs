//! A user's own model: JSON as PyTorch writes it in a few lines (`docs/ddp.md`), or a table.
//!
//! JSON: `{"params": [[name, shape, numel, dtype, requires_grad], …], "tied": [[alias, name], …],
//! "buffers": [[name, shape, numel, dtype], …]}`, with an optional `"name"`, `"sparse"` (names of
//! the parameters whose gradients DDP expects to be sparse), `"unexpected"` (of those whose gradients
//! are of the other kind), `"uninitialized"` (names of a lazy module's
//! parameters that have no shape yet), `"grad_ready_order"` (a list of indices among the
//! parameters that require grad, or a text such as `"13-11,4"`) and `"unused"` (by pass, the names of
//! the parameters or modules that it leaves alone; later passes are like the last) and
//! `"reentrant"` (the names of those whose gradients come from reentrant backward passes).
//!
//! CSV: a line per parameter, `name,shape,dtype,requires_grad`, with the shape as `64x3x7x7`; the
//! last two may be left out (`float32`, `true`), and so may a header.

use super::order::inside;
use super::zoo::{known_models, named};
use super::{Buffer, Cost, Layer, Model, Parameter, numel};
use crate::ddp::indices::{IndexListError, parse_indices};
use lockstep_core::dtype::Dtype;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most parameters and buffers of a model: it keeps a stranger's file bounded.
const MAX_TENSORS: usize = 1 << 18;
/// The most dimensions and elements of a tensor, for the same reason.
const MAX_DIMS: usize = 64;
const MAX_NUMEL: u64 = 1 << 40;

/// The reason that a file is no model.
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
        /// The problem, in words.
        why: String,
    },
    /// A parameter or buffer that cannot be.
    #[error("{name:?}: {why}")]
    Tensor {
        /// Its name.
        name: String,
        /// The problem, in words.
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
    unexpected: Vec<String>,
    #[serde(default)]
    uninitialized: Vec<String>,
    #[serde(default)]
    grad_ready_order: Option<Value>,
    #[serde(default)]
    unused: Vec<Vec<String>>,
    #[serde(default)]
    reentrant: Vec<String>,
}

/// A ready order as a file has it: a list of indices, or a text of them.
fn ready_order(order: &Value) -> Result<Vec<u32>, ModelError> {
    let wrong = |what: String| {
        let why = format!("{what}; write a list of indices from 0, or a text such as \"13-11,4\"");
        ModelError::ReadyOrder(why)
    };
    match order {
        Value::String(text) => Ok(parse_indices(text)?),
        Value::Array(list) => {
            let index = |item: &Value| {
                let index = item.as_u64().and_then(|index| u32::try_from(index).ok());
                index.ok_or_else(|| wrong(format!("{item} is no index")))
            };
            list.iter().map(index).collect()
        }
        _ => Err(wrong("it is neither a list nor a text".into())),
    }
}

impl Model {
    /// Reads a model from JSON or CSV; `name` is used if the file does not name the model.
    ///
    /// # Errors
    /// The error says what is wrong with the file, and where.
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
        if file.tied.len() > MAX_TENSORS {
            return Err(ModelError::TooLarge);
        }
        let own: BTreeSet<&str> = file.params.iter().map(|param| param.0.as_str()).collect();
        let buffers: BTreeSet<&str> = file.buffers.iter().map(|buffer| buffer.0.as_str()).collect();
        let bad = |name: &str, why: &str| {
            let why = why.to_owned();
            Err(ModelError::Tensor { name: name.chars().take(100).collect(), why })
        };
        for (key, names) in [
            ("sparse", &file.sparse),
            ("unexpected", &file.unexpected),
            ("uninitialized", &file.uninitialized),
        ] {
            if let Some(name) = names.iter().find(|name| !own.contains(name.as_str())) {
                let why = format!("it is listed under {key:?}, but is no parameter of \"params\"");
                return bad(name, &why);
            }
        }
        let mut aliases = BTreeSet::new();
        for (alias, of) in &file.tied {
            if buffers.contains(alias.as_str()) {
                return bad(
                    alias,
                    "it is an alias under \"tied\" and a buffer as well; PyTorch registers a name \
                     once (\"attribute already exists\")",
                );
            }
            if !aliases.insert(alias.as_str()) {
                return bad(
                    alias,
                    "it stands under \"tied\" twice; a name stands for one parameter",
                );
            }
            if own.contains(alias.as_str()) {
                return bad(
                    alias,
                    "it is an alias under \"tied\" and a parameter of \"params\" as well; a shared \
                     parameter stands there once, under its first name",
                );
            }
            if !own.contains(of.as_str()) {
                return bad(
                    of,
                    "\"tied\" names it as what is shared, but it is no parameter of \"params\"",
                );
            }
        }
        let sparse: BTreeSet<_> = file.sparse.iter().collect();
        let unexpected: BTreeSet<_> = file.unexpected.iter().collect();
        let lazy: BTreeSet<_> = file.uninitialized.iter().collect();
        let shaped =
            |param: &&(String, Vec<u64>, u64, String, bool)| lazy.contains(&param.0) && param.2 > 0;
        if let Some(param) = file.params.iter().find(shaped) {
            return bad(
                &param.0,
                "it is listed under \"uninitialized\", but has a shape; a lazy module's parameter has \
                 none yet: write [0] and 0",
            );
        }
        let params = file.params.into_iter().map(|(name, shape, numel, dtype, requires_grad)| {
            let (sparse, uninitialized) = (sparse.contains(&name), lazy.contains(&name));
            let unexpected = unexpected.contains(&name);
            let dtype = check(&name, &shape, Some(numel), &dtype)?;
            check_trains(&name, dtype, requires_grad)?;
            Ok(Parameter { name, shape, dtype, requires_grad, sparse, unexpected, uninitialized })
        });
        let params: Vec<_> = params.collect::<Result<_, ModelError>>()?;
        let buffers = file.buffers.into_iter().map(|(name, shape, numel, dtype)| {
            let dtype = check(&name, &shape, Some(numel), &dtype)?;
            Ok(Buffer { name, shape, dtype })
        });
        let buffers = buffers.collect::<Result<_, ModelError>>()?;
        let recorded = file.grad_ready_order.as_ref().map(ready_order).transpose()?;
        let name = file.name.unwrap_or_else(|| name.to_owned());
        let layers = layers_of(&params);
        let mut model = Model {
            name,
            params,
            tied: file.tied,
            buffers,
            layers,
            recorded_ready_order: recorded,
            unused: Vec::new(),
            reentrant: Vec::new(),
        };
        model.check_ready_order()?;
        model.unused = model.listed("unused", &file.unused)?;
        model.reentrant = model.listed("reentrant", &[file.reentrant])?.concat();
        Ok(model)
    }

    fn from_csv(name: &str, text: &str) -> Result<Model, ModelError> {
        let mut params = Vec::new();
        for (line, row) in (1..).zip(text.lines()) {
            let bad = |why: String| ModelError::Csv { line, why };
            let cells = cells(row).ok_or_else(|| bad("a quoted cell does not end".into()))?;
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            if row.trim().is_empty() || (line == 1 && cells.get(1) == Some(&"shape")) {
                continue;
            }
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
            check_trains(name, dtype, requires_grad).map_err(|error| bad(error.to_string()))?;
            let name = (*name).to_owned();
            params.push(Parameter {
                name,
                shape,
                dtype,
                requires_grad,
                sparse: false,
                unexpected: false,
                uninitialized: false,
            });
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
            unused: Vec::new(),
            reentrant: Vec::new(),
        })
    }

    /// The model with a ready order of the user's, as indices among the parameters that require grad; a
    /// parameter that it leaves out never becomes ready, and one that it has twice comes twice.
    ///
    /// # Errors
    /// An index is out of range.
    pub fn in_order(&self, order: &[u32]) -> Result<Model, ModelError> {
        let model = Model { recorded_ready_order: Some(order.to_vec()), ..self.clone() };
        model.check_ready_order()?;
        Ok(model)
    }

    /// The parameters of the lists under a key, from the names of parameters and modules.
    fn listed(&self, key: &str, lists: &[Vec<String>]) -> Result<Vec<Vec<u32>>, ModelError> {
        let by_name: BTreeMap<&str, u32> =
            self.trained().map(|param| param.name.as_str()).zip(0..).collect();
        let mut listed = lists.len();
        let indices = |names: &Vec<String>| {
            let mut indices = BTreeSet::new();
            for name in names {
                let module = format!("{name}.");
                let inside = by_name.range(module.as_str()..);
                let inside = inside.take_while(|(inside, _)| inside.starts_with(&module));
                let before = listed;
                for index in by_name.get(name.as_str()).into_iter().chain(inside.map(|(_, i)| i)) {
                    indices.insert(*index);
                    listed += 1;
                }
                if listed == before {
                    let why = format!(
                        "it is listed under {key:?}, but is neither a parameter that requires grad \
                         nor a module with some"
                    );
                    let name = name.chars().take(100).collect();
                    return Err(ModelError::Tensor { name, why });
                }
                if listed > MAX_TENSORS {
                    return Err(ModelError::TooLarge);
                }
            }
            Ok(indices.into_iter().collect())
        };
        lists.iter().map(indices).collect()
    }

    /// Gradients that a ready order leaves out never become ready; those of a layer that several
    /// reentrant backward passes go through come several times.
    fn check_ready_order(&self) -> Result<(), ModelError> {
        let trained = self.trained().count();
        let mut order = self.recorded_ready_order.iter().flatten();
        if let Some(index) = order.find(|index| **index as usize >= trained) {
            return Err(ModelError::ReadyOrder(format!(
                "index {index} is past the last of the {trained} parameters that require grad; count \
                 those alone, from 0"
            )));
        }
        let length = self.recorded_ready_order.as_ref().map_or(0, Vec::len);
        if length > MAX_TENSORS {
            let why = format!("it has {length} indices, more than {MAX_TENSORS}");
            return Err(ModelError::ReadyOrder(why));
        }
        Ok(())
    }
}

/// The cells of a line: between commas, or in quotes, where a doubled quote is one. None when a quote
/// does not end.
fn cells(row: &str) -> Option<Vec<String>> {
    let mut cells = vec![String::new()];
    let (mut quoted, mut was_quoted) = (false, false);
    let mut chars = row.chars().peekable();
    while let Some(char) = chars.next() {
        let cell = cells.last_mut()?;
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if cell.trim().is_empty() => {
                cell.clear();
                (quoted, was_quoted) = (true, true);
            }
            ',' if !quoted => {
                if !was_quoted {
                    *cell = cell.trim().to_owned();
                }
                was_quoted = false;
                cells.push(String::new());
            }
            // Only space may come between a closing quote and the comma.
            _ if was_quoted && !quoted => {}
            char => cell.push(char),
        }
    }
    let last = cells.last_mut()?;
    if !was_quoted {
        *last = last.trim().to_owned();
    }
    (!quoted).then_some(cells)
}

/// `requires_grad` is for floating-point and complex tensors.
fn check_trains(name: &str, dtype: Dtype, requires_grad: bool) -> Result<(), ModelError> {
    if !requires_grad || dtype.is_float() || dtype.is_complex() {
        return Ok(());
    }
    let why = format!(
        "it is {dtype} and requires grad, but only tensors of floating point and complex dtype can \
         require gradients; write false"
    );
    Err(ModelError::Tensor { name: name.to_owned(), why })
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

/// The layers of the shipped model with the same parameters, if there is one: it knows the order of its
/// layers, and their costs.
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

/// The layers of a model that is known by its parameters alone: a module a layer, in registration order, at
/// one position a sample. The cost of a convolution is then far too low, and so is the estimate of time.
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
