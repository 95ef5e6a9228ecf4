//! Tensors in autograd's graph: the operation that a result comes of.

use crate::nn::parameter::{Kind, Parameter, parameter_of};
use crate::process::grad_mode;
use lockstep_torch::autograd::Node;
use lockstep_torch::c10d::{Grad, Tensor};
use std::sync::Arc;

/// The number of the trained parameter that a tensor is, or is a view of.
fn trained(of: &Tensor) -> Option<u32> {
    let leaf = matches!(of.grad(), Grad::Leaf);
    let parameter = leaf.then(|| parameter_of(of)).flatten()?;
    parameter.is_trained().then(|| parameter.number())
}

/// `tensor.requires_grad`.
pub(crate) fn requires_grad(of: &Tensor) -> bool {
    of.grad_fn().is_some() || trained(of).is_some()
}

/// The operation that a result computed of these tensors comes of; `None` if no backward pass goes through it.
/// An operation of one tensor that is itself a result needs no node of its own.
pub(crate) fn joined<'t>(of: impl IntoIterator<Item = &'t Tensor>) -> Option<Arc<Node>> {
    if !grad_mode::enabled() {
        return None;
    }
    let (mut parameters, mut inputs) = (Vec::new(), Vec::<Arc<Node>>::new());
    for tensor in of {
        match tensor.grad_fn() {
            Some(node) if inputs.iter().any(|known| Arc::ptr_eq(known, node)) => {}
            Some(node) => inputs.push(node.clone()),
            None => parameters.extend(trained(tensor)),
        }
    }
    match (parameters.is_empty(), inputs.len()) {
        (true, 0 | 1) => inputs.pop(),
        _ => Some(Arc::new(Node::new(grad_mode::next_sequence(), parameters, inputs))),
    }
}

/// `tensor.requires_grad_(requires_grad)`: of a parameter, or of a tensor that becomes a leaf of the graph.
pub(crate) fn train(of: &Tensor, requires_grad: bool) {
    if let Some(known) = parameter_of(of).filter(|_| of.grad_fn().is_none()) {
        known.train(requires_grad);
    } else if requires_grad && of.grad_fn().is_none() {
        let leaf = Parameter::new("tensor", Kind::Leaf, of.dtype(), of.shape());
        leaf.move_to(of.device());
        leaf.is(of);
    }
}
