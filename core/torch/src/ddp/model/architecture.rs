//! Writing a model as its architecture: modules register parameters, and the forward pass runs
//! them.

use super::{Buffer, Cost, Layer, Model, Parameter, numel};
use lockstep_core::dtype::Dtype;

/// A model that is being written. A module's method registers its parameters and returns its
/// layer; [`Architecture::run`] puts the layer into the forward pass.
pub(super) struct Architecture {
    model: Model,
    dtype: Dtype,
}

impl Architecture {
    pub(super) fn new(name: &str, dtype: Dtype) -> Architecture {
        let model = Model {
            name: name.into(),
            params: Vec::new(),
            tied: Vec::new(),
            buffers: Vec::new(),
            layers: Vec::new(),
            recorded_ready_order: None,
            reentrant: Vec::new(),
            unused: Vec::new(),
        };
        Architecture { model, dtype }
    }

    pub(super) fn finish(self) -> Model {
        self.model
    }

    /// Runs a layer next.
    pub(super) fn run(&mut self, layer: Layer) {
        self.model.layers.push(layer);
    }

    pub(super) fn param(&mut self, name: String, shape: &[u64]) -> u32 {
        let (shape, dtype) = (shape.to_vec(), self.dtype);
        self.model.params.push(Parameter {
            name,
            shape,
            dtype,
            requires_grad: true,
            sparse: false,
            unexpected: false,
            uninitialized: false,
        });
        self.model.params.len() as u32 - 1
    }

    pub(super) fn buffer(&mut self, name: String, shape: &[u64], dtype: Dtype) {
        self.model.buffers.push(Buffer { name, shape: shape.to_vec(), dtype });
    }

    pub(super) fn tie(&mut self, alias: &str, owner: &str) {
        self.model.tied.push((alias.into(), owner.into()));
    }

    /// Runs a product with these parameters next, which are ready in this order, at that many positions a sample.
    pub(super) fn product(&mut self, name: &str, params: Vec<u32>, positions: u64) {
        let of = |index: &u32| self.model.params.get(*index as usize);
        let weights = params.iter().filter_map(of).map(|own| numel(&own.shape));
        let flops = weights.fold(0_u64, u64::saturating_add).saturating_mul(2 * positions);
        let layer = self.layer(name, params, flops, 2 * positions);
        self.run(layer);
    }

    fn layer(&self, name: &str, params: Vec<u32>, flops: u64, elements: u64) -> Layer {
        let of = |index: &u32| self.model.params.get(*index as usize);
        let weight_bytes = params.iter().filter_map(of).map(Parameter::bytes).sum();
        let activation_bytes = elements.saturating_mul(self.dtype.size_bytes());
        Layer { name: name.into(), params, cost: Cost { flops, activation_bytes, weight_bytes } }
    }

    /// `nn.Linear`, at that many positions a sample. `addmm`: the bias is ready first.
    pub(super) fn linear(
        &mut self,
        name: &str,
        [input, output]: [u64; 2],
        bias: bool,
        positions: u64,
    ) -> Layer {
        let weight = self.param(format!("{name}.weight"), &[output, input]);
        self.linear_of(name, weight, [input, output], bias, positions)
    }

    /// A linear layer on a weight that is registered already.
    pub(super) fn linear_of(
        &mut self,
        name: &str,
        weight: u32,
        [input, output]: [u64; 2],
        bias: bool,
        positions: u64,
    ) -> Layer {
        let mut params = vec![weight];
        if bias {
            params.insert(0, self.param(format!("{name}.bias"), &[output]));
        }
        let flops = 2 * input * output * positions;
        self.layer(name, params, flops, positions * (input + output))
    }

    /// transformers' `Conv1D`: a linear layer whose weight is stored the other way round.
    pub(super) fn conv1d(&mut self, name: &str, sizes: [u64; 2], positions: u64) -> Layer {
        let weight = self.param(format!("{name}.weight"), &sizes);
        self.linear_of(name, weight, sizes, true, positions)
    }

    /// `nn.MultiheadAttention`'s packed projection: the weight and bias have no module of their
    /// own.
    pub(super) fn packed_linear(&mut self, name: &str, sizes: [u64; 2], positions: u64) -> Layer {
        let [input, output] = sizes;
        let weight = self.param(format!("{name}_weight"), &[output, input]);
        let bias = self.param(format!("{name}_bias"), &[output]);
        let flops = 2 * input * output * positions;
        self.layer(name, vec![bias, weight], flops, positions * (input + output))
    }

    /// `nn.Conv2d` with a square kernel and a square output of `side` x `side`. The weight is
    /// ready first.
    pub(super) fn conv(
        &mut self,
        name: &str,
        [input, output, kernel]: [u64; 3],
        side: u64,
        stride: u64,
        bias: bool,
    ) -> Layer {
        let shape = [output, input, kernel, kernel];
        let mut params = vec![self.param(format!("{name}.weight"), &shape)];
        if bias {
            params.push(self.param(format!("{name}.bias"), &[output]));
        }
        let (into, out) = ((side * stride) * (side * stride) * input, side * side * output);
        self.layer(name, params, 2 * numel(&shape) * side * side, into + out)
    }

    /// A norm with weight and bias over `elements` a sample: the weight is ready first. A handful
    /// of operations an element.
    pub(super) fn norm(&mut self, name: &str, size: u64, elements: u64) -> Layer {
        let weight = self.param(format!("{name}.weight"), &[size]);
        let bias = self.param(format!("{name}.bias"), &[size]);
        self.layer(name, vec![weight, bias], 8 * elements, 2 * elements)
    }

    /// `nn.BatchNorm2d`: a norm with running statistics.
    pub(super) fn batch_norm(&mut self, name: &str, channels: u64, side: u64) -> Layer {
        let layer = self.norm(name, channels, channels * side * side);
        for statistic in ["running_mean", "running_var"] {
            self.buffer(format!("{name}.{statistic}"), &[channels], Dtype::Float32);
        }
        self.buffer(format!("{name}.num_batches_tracked"), &[], Dtype::Int64);
        layer
    }

    /// A norm without bias: Llama's RMSNorm.
    pub(super) fn rms_norm(&mut self, name: &str, size: u64, positions: u64) -> Layer {
        let weight = self.param(format!("{name}.weight"), &[size]);
        let elements = size * positions;
        self.layer(name, vec![weight], 5 * elements, 2 * elements)
    }

    /// `nn.Embedding` for that many positions a sample. Its table is not read whole.
    pub(super) fn embedding(&mut self, name: &str, shape: [u64; 2], positions: u64) -> Layer {
        let weight = self.param(format!("{name}.weight"), &shape);
        self.free(name, weight, 2 * positions * shape[1])
    }

    /// A module with parameters of its own, its weight first, for that many positions a sample.
    pub(super) fn module(&mut self, params: &[(&str, &[u64])], positions: u64) -> Layer {
        let shapes = params.iter().map(|(_, shape)| numel(shape));
        let flops = shapes.fold(0_u64, |all, numel| all.saturating_add(numel.saturating_mul(2)));
        let of = |(name, shape): &(&str, &[u64])| self.param((*name).to_owned(), shape);
        let params = params.iter().map(of).collect();
        let elements = positions.saturating_mul(2);
        self.layer("", params, flops.saturating_mul(positions), elements)
    }

    /// A parameter that is added or gathered: it costs memory traffic alone.
    pub(super) fn free(&mut self, name: &str, param: u32, elements: u64) -> Layer {
        let mut layer = self.layer(name, vec![param], 0, elements);
        layer.cost.weight_bytes = 0;
        layer
    }

    /// Scaled dot-product attention of `tokens` among each other over `width` channels, fused: two
    /// products, and queries, keys, values and the result through memory.
    pub(super) fn attention(&mut self, name: &str, tokens: u64, width: u64) -> Layer {
        self.layer(name, Vec::new(), 4 * tokens * tokens * width, 4 * tokens * width)
    }
}
