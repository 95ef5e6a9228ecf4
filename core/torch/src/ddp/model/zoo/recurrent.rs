//! `nn.LSTM`, `nn.GRU` and `nn.RNN`, and their cells (`torch/nn/modules/rnn.py`).

use super::super::Model;
use super::super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

/// The recurrence of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// `nn.LSTM`
    Lstm,
    /// `nn.GRU`
    Gru,
    /// `nn.RNN`
    Rnn,
}

/// The sizes of recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// The recurrence of all layers.
    pub recurrence: Recurrence,
    /// Features of the input.
    pub input: u64,
    /// Features of the hidden state.
    pub hidden: u64,
    /// Layers on each other.
    pub layers: u64,
    /// False without biases.
    pub bias: bool,
    /// True if a second pass goes through the sequence from its end.
    pub bidirectional: bool,
    /// `proj_size`: features that an LSTM's hidden state is projected to.
    pub projection: Option<u64>,
}

impl Recurrence {
    fn gates(self) -> u64 {
        match self {
            Recurrence::Lstm => 4,
            Recurrence::Gru => 3,
            Recurrence::Rnn => 1,
        }
    }
}

impl Recurrent {
    /// Directions of each layer: 1 or 2.
    pub fn directions(&self) -> u64 {
        1 + u64::from(self.bidirectional)
    }

    /// Features of the hidden state as it is returned.
    pub fn output(&self) -> u64 {
        self.projection.unwrap_or(self.hidden)
    }

    /// The module of that name, as the CPU runs it: oneDNN's LSTM is one operation a layer and direction. The other
    /// recurrences, and an LSTM with a projection, are products, of which that with the hidden state comes last.
    pub fn model(&self, name: &str, dtype: Dtype) -> Model {
        let mut model = Architecture::new(name, dtype);
        let fused = self.recurrence == Recurrence::Lstm && self.projection.is_none();
        for layer in 0..self.layers {
            let input = match layer {
                0 => self.input,
                _ => self.output().saturating_mul(self.directions()),
            };
            for end in ["", "_reverse"].into_iter().take(self.directions() as usize) {
                let of = format!("_l{layer}{end}");
                let params = self.parameters(&mut model, &of, input);
                match fused {
                    true => model.product(&of, params.registered(), 1),
                    false => params.run(&mut model, &of, [true, false]),
                }
            }
        }
        model.finish()
    }

    /// The cell of that name: one step of a layer. A GRU's multiplies with the hidden state last, the others first.
    pub fn cell(&self, name: &str, dtype: Dtype) -> Model {
        let mut model = Architecture::new(name, dtype);
        let params = self.parameters(&mut model, "", self.input);
        let input_first = self.recurrence == Recurrence::Gru;
        params.run(&mut model, "", [input_first, !input_first]);
        model.finish()
    }

    /// Registers the parameters of a layer and direction.
    fn parameters(&self, model: &mut Architecture, of: &str, input: u64) -> Parameters {
        let gates = self.hidden.saturating_mul(self.recurrence.gates());
        let mut weight = |name: &str, shape: &[u64]| model.param(format!("{name}{of}"), shape);
        let weights =
            [weight("weight_ih", &[gates, input]), weight("weight_hh", &[gates, self.output()])];
        let biases = self.bias.then(|| [weight("bias_ih", &[gates]), weight("bias_hh", &[gates])]);
        let projection = self.projection.map(|size| weight("weight_hr", &[size, self.hidden]));
        Parameters { weights, biases, projection }
    }
}

/// The parameters of a layer and direction: those for the input, then those for the hidden state.
struct Parameters {
    weights: [u32; 2],
    biases: Option<[u32; 2]>,
    projection: Option<u32>,
}

impl Parameters {
    /// All of one operation.
    fn registered(&self) -> Vec<u32> {
        self.weights.into_iter().chain(self.biases.into_iter().flatten()).collect()
    }

    /// Runs the product with the input (true) and that with the hidden state in this order, then the projection. The
    /// bias of a product is ready first.
    fn run(&self, model: &mut Architecture, name: &str, order: [bool; 2]) {
        for of_input in order {
            let at = usize::from(!of_input);
            let bias = self.biases.and_then(|biases| biases.get(at).copied());
            let weight = self.weights.get(at).copied();
            model.product(name, bias.into_iter().chain(weight).collect(), 1);
        }
        if let Some(projection) = self.projection {
            model.product(name, vec![projection], 1);
        }
    }
}
