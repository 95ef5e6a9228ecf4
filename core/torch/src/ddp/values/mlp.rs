//! A multi-layer perceptron that computes: linear layers with a ReLU between, and the mean of half
//! the squared errors as its loss. Every sum is taken in the order of its indices, so that the bits
//! are the same everywhere.

use crate::ddp::model::{self, Model};
use lockstep_core::dtype::Dtype;

/// A perceptron's sizes, input first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    sizes: Vec<usize>,
}

/// A batch: inputs and targets, sample by sample.
type Batch<'a> = (&'a [f32], &'a [f32]);

impl Mlp {
    /// Layers between those sizes; none with fewer than two, or with one that is 0 or past 4,096.
    pub fn new(sizes: &[usize]) -> Option<Mlp> {
        let fits = sizes.len() >= 2 && sizes.iter().all(|size| (1..=4096).contains(size));
        fits.then(|| Mlp { sizes: sizes.to_vec() })
    }

    /// The model that DDP wraps: `layers.0.weight`, `layers.0.bias`, and so on.
    pub fn model(&self) -> Model {
        let sizes: Vec<u64> = self.sizes.iter().map(|size| *size as u64).collect();
        model::mlp("mlp", &sizes, Dtype::Float32)
    }

    /// The loss of a batch, and the gradients in the order in which they become ready, with their
    /// indices: layer by layer from the last, the bias first. `params` are the model's.
    pub fn backward(
        &self,
        params: &[Vec<f32>],
        (inputs, targets): Batch<'_>,
    ) -> (f32, Vec<(u32, Vec<f32>)>) {
        let layers = self.sizes.len() - 1;
        let batch = inputs.len() / self.sizes[0];
        let mut activations = vec![inputs.to_vec()];
        for layer in 0..layers {
            let last = layer + 1 == layers;
            let output = self.forward(params, layer, batch, &activations[layer], last);
            activations.push(output);
        }
        let outputs = &activations[layers];
        let scale = 1.0 / batch.max(1) as f32;
        let (mut loss, mut delta) = (0.0, Vec::with_capacity(outputs.len()));
        for (output, target) in outputs.iter().zip(targets) {
            let error = output - target;
            loss += 0.5 * error * error * scale;
            delta.push(error * scale);
        }
        let mut gradients = Vec::new();
        for layer in (0..layers).rev() {
            let [into, out] = [self.sizes[layer], self.sizes[layer + 1]];
            let (mut bias, mut weight) = (vec![0.0; out], vec![0.0; out * into]);
            for (sample, delta) in delta.chunks(out).enumerate() {
                let input = &activations[layer][sample * into..][..into];
                for (o, delta) in delta.iter().enumerate() {
                    bias[o] += delta;
                    let row = weight[o * into..][..into].iter_mut().zip(input);
                    row.for_each(|(weight, input)| *weight += delta * input);
                }
            }
            if layer > 0 {
                delta = self.through(params, layer, &delta, &activations[layer]);
            }
            gradients.push((2 * layer as u32 + 1, bias));
            gradients.push((2 * layer as u32, weight));
        }
        (loss, gradients)
    }

    fn forward(
        &self,
        params: &[Vec<f32>],
        layer: usize,
        batch: usize,
        inputs: &[f32],
        last: bool,
    ) -> Vec<f32> {
        let [into, out] = [self.sizes[layer], self.sizes[layer + 1]];
        let mut outputs = Vec::with_capacity(batch * out);
        let (Some(weight), Some(bias)) = (params.get(2 * layer), params.get(2 * layer + 1)) else {
            return outputs;
        };
        for input in inputs.chunks(into) {
            for (row, bias) in weight.chunks(into).zip(bias) {
                let products = row.iter().zip(input).map(|(weight, input)| weight * input);
                let sum = products.fold(0.0, |sum, product| sum + product) + bias;
                outputs.push(if last || sum > 0.0 { sum } else { 0.0 });
            }
        }
        outputs
    }

    /// The contribution of a layer's inputs to the error, through the ReLU before it.
    fn through(
        &self,
        params: &[Vec<f32>],
        layer: usize,
        delta: &[f32],
        inputs: &[f32],
    ) -> Vec<f32> {
        let [into, out] = [self.sizes[layer], self.sizes[layer + 1]];
        let mut before = vec![0.0; inputs.len()];
        let Some(weight) = params.get(2 * layer) else { return before };
        for (delta, before) in delta.chunks(out).zip(before.chunks_mut(into)) {
            for (delta, row) in delta.iter().zip(weight.chunks(into)) {
                let pairs = before.iter_mut().zip(row);
                pairs.for_each(|(before, weight)| *before += delta * weight);
            }
        }
        let closed = before.iter_mut().zip(inputs).filter(|(_, input)| **input <= 0.0);
        closed.for_each(|(before, _)| *before = 0.0);
        before
    }
}
