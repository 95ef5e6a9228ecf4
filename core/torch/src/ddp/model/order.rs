//! The order in which the backward pass makes gradients ready.
//!
//! Autograd runs the graph backwards, and a gradient accumulator as soon as it can. Inside a layer the order
//! is that of the function's inputs: `addmm` has the bias before the weight, convolution and the norms the
//! weight before the bias (all in the recorded runs of `buckets.json`).

use super::{Model, Parameter};
use std::collections::BTreeSet;

impl Model {
    /// The order in which gradients become ready, as indices among the parameters that require
    /// grad.
    pub fn grad_ready_order(&self) -> Vec<u32> {
        match &self.recorded_ready_order {
            Some(order) => order.clone(),
            None => self.backward().into_iter().flat_map(|(_, ready)| ready).collect(),
        }
    }

    /// The backward pass: the layers in the order in which it runs them, as indices into `layers`,
    /// with the gradients that are ready after each. A parameter that several layers share is
    /// ready after the last of them. A recorded order is followed gradient by gradient: a layer
    /// runs when the first of its gradients is due, and gradients that no layer has follow the
    /// layer before.
    pub fn backward(&self) -> Vec<(Option<usize>, Vec<u32>)> {
        match &self.recorded_ready_order {
            Some(order) => recorded(self, order),
            None => reversed(self),
        }
    }

    /// [`Model::backward`] of a pass, from 0.
    pub(crate) fn backward_in(&self, pass: u32) -> Vec<(Option<usize>, Vec<u32>)> {
        let unused = self.unused_in(pass);
        let mut backward = self.backward();
        for (_, ready) in &mut backward {
            ready.retain(|index| unused.binary_search(index).is_err());
        }
        backward
    }
}

/// The layers in reverse, with the gradients that are ready after each.
fn reversed(model: &Model) -> Vec<(Option<usize>, Vec<u32>)> {
    let trained = model.trained_indices();
    // The first layer of the forward pass that uses a parameter is the last of the backward pass.
    let mut last_use: Vec<Option<usize>> = vec![None; model.params.len()];
    for (index, layer) in model.layers.iter().enumerate() {
        for &param in &layer.params {
            if let Some(place) = last_use.get_mut(param as usize) {
                place.get_or_insert(index);
            }
        }
    }
    let mut seen = BTreeSet::new();
    let layers = model.layers.iter().enumerate().rev();
    let steps = layers.map(|(index, layer)| {
        let ready = layer.params.iter().filter_map(|&param| {
            let due = last_use.get(param as usize).copied().flatten() == Some(index);
            let trained = trained.get(param as usize).copied().flatten();
            trained.filter(|trained| due && seen.insert(*trained))
        });
        (Some(index), ready.collect())
    });
    steps.collect()
}

/// The layers as a recorded order of gradients asks for them.
fn recorded(model: &Model, order: &[u32]) -> Vec<(Option<usize>, Vec<u32>)> {
    let mut layer_of: Vec<Option<usize>> = Vec::new();
    let trained = model.trained_indices();
    layer_of.resize(model.params.len(), None);
    for (index, layer) in model.layers.iter().enumerate() {
        for &param in &layer.params {
            let of = trained.get(param as usize).copied().flatten();
            if let Some(place) = of.and_then(|of| layer_of.get_mut(of as usize)) {
                place.get_or_insert(index);
            }
        }
    }
    let mut run = vec![false; model.layers.len()];
    let mut steps: Vec<(Option<usize>, Vec<u32>)> = Vec::new();
    // Layers without gradients run before the next one in reverse that has some.
    let mut above = model.layers.len();
    for &gradient in order {
        let layer = layer_of.get(gradient as usize).copied().flatten();
        if let Some(layer) = layer.filter(|layer| !run[*layer]) {
            for index in (layer..above).rev() {
                let idle = model.layers[index].params.is_empty();
                if !run[index] && (index == layer || idle) {
                    run[index] = true;
                    steps.push((Some(index), Vec::new()));
                }
            }
            if !run[layer] {
                run[layer] = true;
                steps.push((Some(layer), Vec::new()));
            }
            above = above.min(layer);
        }
        match steps.last_mut() {
            Some((_, ready)) => ready.push(gradient),
            None => steps.push((None, vec![gradient])),
        }
    }
    let left = (0..model.layers.len()).rev().filter(|index| !run[*index]);
    steps.extend(left.map(|index| (Some(index), Vec::new())));
    steps
}

/// The order inside a layer whose parameters are known by name and shape only: a weight of one
/// dimension (a norm's) or of three and more (a convolution's) comes before its bias, else the
/// later parameter first.
pub(super) fn inside(params: &[Parameter], indices: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = indices.iter().rev().copied().collect();
    if let [bias, weight] = order[..] {
        let of = |index: u32| params.get(index as usize);
        let ends = |index: u32, end: &str| of(index).is_some_and(|param| param.name.ends_with(end));
        let weight_first = of(weight).is_some_and(|param| param.shape.len() != 2);
        if weight_first && ends(weight, "weight") && ends(bias, "bias") {
            order.reverse();
        }
    }
    order
}
