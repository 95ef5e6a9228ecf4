//! Models as DDP sees them: parameters in registration order, the order in which their gradients become
//! ready, and the cost of their layers.
//!
//! The models that ship are written as their architectures (`zoo`), a user's own comes from a file (`file`).
//! A layer's cost is an estimate from its shapes (`cost`).

mod architecture;
mod cost;
mod file;
mod order;
mod zoo;

pub use cost::{Cost, Device};
pub use file::ModelError;
pub use zoo::{
    Attention, MlpSizesError, Recurrence, Recurrent, TransformerLayer, known_models, linear, mlp,
    mlp_sizes, mlp_with_norms, module, named, sequence,
};

use lockstep_core::dtype::Dtype;
use lockstep_core::words::nearest;
use std::borrow::Cow;

/// A model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name for people: `resnet18`.
    pub name: String,
    /// Its parameters in the order of `named_parameters()`, duplicates removed.
    pub params: Vec<Parameter>,
    /// Names that share a parameter: the alias, and the parameter's own name.
    pub tied: Vec<(String, String)>,
    /// Its buffers in the order of `named_buffers()`.
    pub buffers: Vec<Buffer>,
    /// Its layers in the order in which the forward pass runs them.
    pub layers: Vec<Layer>,
    /// The order in which gradients become ready, as indices among the parameters that require
    /// grad, where it was recorded; it follows from `layers` otherwise. One that comes several
    /// times in a pass is there as often.
    pub recorded_ready_order: Option<Vec<u32>>,
    /// By pass, the parameters that it leaves alone, as sorted indices among those that require
    /// grad; later passes are like the last. Empty where every pass uses all.
    pub unused: Vec<Vec<u32>>,
    /// The parameters whose gradients come from reentrant backward passes, as sorted indices among
    /// those that require grad: no walk of the graph that starts at the outputs meets them.
    pub reentrant: Vec<u32>,
}

/// A parameter of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its qualified name: `layer1.0.conv1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// True if the parameter is trained.
    pub requires_grad: bool,
    /// True if DDP expects a sparse gradient of the parameter.
    pub sparse: bool,
    /// True if the gradient's kind (sparse or dense) is not the one that DDP expects.
    pub unexpected: bool,
    /// True if the parameter is a lazy module's that has seen no batch (`torch.nn.UninitializedParameter`):
    /// it has no shape yet, and DDP refuses it.
    pub uninitialized: bool,
}

/// A buffer of a model: state that is not trained, such as BatchNorm's running mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its qualified name.
    pub name: String,
    /// Its shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
}

/// A step of the forward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its module's name.
    pub name: String,
    /// The parameters it uses, as indices into [`Model::params`], in the order in which their
    /// gradients become ready.
    pub params: Vec<u32>,
    /// The cost of its forward pass.
    pub cost: Cost,
}

/// A name that is no parameter's or module's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is neither a parameter that requires grad nor a module with some{}", meant(.near.as_deref()))]
pub struct UnknownParameter {
    name: String,
    near: Option<String>,
}

pub(super) fn meant(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// Elements of a tensor of that shape.
fn numel(shape: &[u64]) -> u64 {
    shape.iter().copied().fold(1, u64::saturating_mul)
}

impl Parameter {
    /// Its number of elements.
    pub fn numel(&self) -> u64 {
        numel(&self.shape)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.numel().saturating_mul(self.dtype.size_bytes())
    }
}

impl Buffer {
    /// Its number of elements.
    pub fn numel(&self) -> u64 {
        numel(&self.shape)
    }
}

impl Model {
    /// The parameters that require grad, in order: those of DDP's reducer.
    pub fn trained(&self) -> impl Iterator<Item = &Parameter> {
        self.params.iter().filter(|param| param.requires_grad)
    }

    /// Per parameter, its index among those that require grad.
    pub(crate) fn trained_indices(&self) -> Vec<Option<u32>> {
        let mut next = 0;
        let indices = self.params.iter().map(|param| {
            let index = param.requires_grad.then_some(next);
            next += u32::from(param.requires_grad);
            index
        });
        indices.collect()
    }

    /// Makes two parameters one, as `self.head.weight = self.embedding.weight` does: the one has the
    /// shape of `of`, and the name that comes first, as `named_parameters()` has it. False, and nothing
    /// is changed, where one of them is no parameter.
    pub fn tie(&mut self, alias: &str, of: &str) -> bool {
        let place = |name: &str| self.params.iter().position(|param| param.name == name);
        let (Some(alias), Some(of)) = (place(alias), place(of)) else { return false };
        if alias == of {
            return true;
        }
        let shape = self.params[of].shape.clone();
        let (kept, dropped) = (alias.min(of), alias.max(of));
        self.params[kept].shape = shape;
        let name = self.params.remove(dropped).name;
        self.tied.push((name, self.params[kept].name.clone()));
        for layer in &mut self.layers {
            layer.params.retain(|param| *param as usize != dropped);
            let behind = layer.params.iter_mut().filter(|param| **param as usize > dropped);
            behind.for_each(|param| *param -= 1);
        }
        true
    }

    /// The parameters that a pass, from 0, leaves alone.
    fn unused_in(&self, pass: u32) -> &[u32] {
        let list = self.unused.get(pass as usize).or(self.unused.last());
        list.map_or(&[], Vec::as_slice)
    }

    /// Per layer, whether a pass does not run it, since it uses none of its parameters.
    pub(crate) fn skipped_in(&self, pass: u32) -> Vec<bool> {
        let (unused, trained) = (self.unused_in(pass), self.trained_indices());
        let left_out = |param: &u32| {
            let index = trained.get(*param as usize).copied().flatten();
            index.is_some_and(|index| unused.binary_search(&index).is_ok())
        };
        let skipped = |layer: &Layer| !layer.params.is_empty() && layer.params.iter().all(left_out);
        self.layers.iter().map(skipped).collect()
    }

    /// The model without the parameters that every pass leaves alone; `None` if passes differ.
    pub fn with_equal_passes(&self) -> Option<Cow<'_, Model>> {
        let Some(unused) = self.unused.first() else { return Some(Cow::Borrowed(self)) };
        if self.unused.iter().any(|of| of != unused) {
            return None;
        }
        Some(Cow::Owned(Model { unused: Vec::new(), ..self.without(unused) }))
    }

    /// The parameters that require grad, as indices among them, that have these names or are in
    /// the modules of these names.
    ///
    /// # Errors
    /// When there are none of a name.
    pub fn find(&self, names: &[String]) -> Result<Vec<u32>, UnknownParameter> {
        let mut found = Vec::new();
        for name in names {
            let inside = |param: &str| {
                param.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            let before = found.len();
            let trained = (0u32..).zip(self.trained());
            let matching = trained.filter(|(_, param)| param.name == *name || inside(&param.name));
            found.extend(matching.map(|(index, _)| index));
            if found.len() == before {
                let known = self.trained().flat_map(|param| {
                    let modules =
                        param.name.match_indices('.').filter_map(|(at, _)| param.name.get(..at));
                    modules.chain([param.name.as_str()])
                });
                let near = nearest(name, known, 1).first().map(|near| (*near).to_owned());
                return Err(UnknownParameter { name: name.chars().take(100).collect(), near });
            }
        }
        Ok(found)
    }

    /// The model whose passes leave those parameters alone, given among those that require grad: a
    /// layer that uses nothing else is not run.
    pub fn without(&self, unused: &[u32]) -> Model {
        let trained = self.trained_indices();
        let left_out = |param: u32| {
            let index = trained.get(param as usize).copied().flatten();
            index.is_some_and(|index| unused.contains(&index))
        };
        let layers = self.layers.iter().filter_map(|layer| {
            let params: Vec<u32> =
                layer.params.iter().copied().filter(|param| !left_out(*param)).collect();
            let runs = !params.is_empty() || layer.params.is_empty();
            runs.then(|| Layer { params, ..layer.clone() })
        });
        let order = self.recorded_ready_order.as_ref();
        let order = order
            .map(|order| order.iter().copied().filter(|index| !unused.contains(index)).collect());
        Model { layers: layers.collect(), recorded_ready_order: order, ..self.clone() }
    }

    /// Bytes of all parameters.
    pub(crate) fn param_bytes(&self) -> u64 {
        self.params.iter().map(Parameter::bytes).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
