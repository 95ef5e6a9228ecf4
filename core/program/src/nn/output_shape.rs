//! The shape of a module's output for that of its input.

use lockstep_torch::ddp::model::{Recurrence, Recurrent};

/// The output shape of a module for the shape that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The input's shape: `nn.ReLU`, norms.
    Same,
    /// `nn.Linear(from, to)`.
    Linear(u64, u64),
    /// `nn.Embedding` of that many features.
    Embedding(u64),
    /// `nn.EmbeddingBag` of that many features: a row of numbers makes one bag. Offsets are not followed.
    Bags(u64),
    /// `nn.Conv2d` and its like: channels, and the window along each dimension after them.
    Window(Option<[u64; 2]>, Vec<Window>),
    /// `nn.AdaptiveAvgPool2d`: those sizes in place of the last ones.
    Last(Vec<u64>),
    /// `nn.Flatten`.
    Flatten,
    /// Classes of a whole sample: the output of models of pictures.
    Classes(u64),
    /// Layers one behind the other: `models.mlp([…])`.
    Chain(Vec<Shape>),
    /// `nn.LSTM` and its like: a tuple of the output and the last states.
    Sequence(Sequence),
    /// `nn.MultiheadAttention`: a tuple of the output and the weights.
    Attention(Heads),
    /// `nn.Transformer`: the shape of its second input, the target.
    Target,
    Unknown,
}

/// A tensor that a module returns, by its shape if that is known, or a tuple of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    Tensor(Option<Vec<u64>>),
    Tuple(Vec<Returned>),
    /// `None` in place of a tensor.
    Nothing,
}

/// Recurrent layers, or a cell, which is one step of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) sizes: Recurrent,
    pub(crate) batch_first: bool,
    pub(crate) cell: bool,
}

impl Sequence {
    /// The outputs for an input of that shape.
    pub(crate) fn returned(&self, input: Option<&[u64]>) -> Returned {
        let [output, hidden, cell] =
            self.shapes(input).map_or([None, None, None], |shapes| shapes.map(Some));
        let lstm = self.sizes.recurrence == Recurrence::Lstm;
        let [output, hidden, cell] = [output, hidden, cell].map(Returned::Tensor);
        match (self.cell, lstm) {
            (true, false) => hidden,
            (true, true) => Returned::Tuple(vec![hidden, cell]),
            (false, false) => Returned::Tuple(vec![output, hidden]),
            (false, true) => Returned::Tuple(vec![output, Returned::Tuple(vec![hidden, cell])]),
        }
    }

    /// The shapes of the output, the hidden state and an LSTM's cell state.
    fn shapes(&self, input: Option<&[u64]>) -> Option<[Vec<u64>; 3]> {
        let (features, before) = input?.split_last()?;
        if *features != self.sizes.input {
            return None;
        }
        let [hidden, cell] = [self.sizes.output(), self.sizes.hidden];
        if self.cell {
            let state = |size: u64| (before.len() <= 1).then(|| [before, &[size]].concat());
            return Some([Vec::new(), state(hidden)?, state(cell)?]);
        }
        let batch: &[u64] = match (before, self.batch_first) {
            ([_], _) => &[],
            ([batch, _], true) | ([_, batch], false) => std::slice::from_ref(batch),
            _ => return None,
        };
        let directions = self.sizes.directions();
        let passes: &[u64] = &[self.sizes.layers * directions];
        let state = |size: u64| [passes, batch, &[size]].concat();
        let output = [before, &[hidden.checked_mul(directions)?]].concat();
        Some([output, state(hidden), state(cell)])
    }
}

/// The heads of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) embedding: u64,
    pub(crate) heads: u64,
    pub(crate) batch_first: bool,
    /// Keys behind those that it is given: `add_bias_kv`, `add_zero_attn`.
    pub(crate) more_keys: u64,
}

/// The weights that an attention returns beside its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    /// `need_weights=False`
    Nothing,
    /// The mean over all heads.
    Averaged,
    /// `average_attn_weights=False`
    OfEachHead,
}

impl Heads {
    /// The outputs for queries and keys of these shapes.
    pub(crate) fn returned(
        &self,
        query: Option<&[u64]>,
        key: Option<&[u64]>,
        weights: Weights,
    ) -> Returned {
        let query = query.filter(|query| query.last() == Some(&self.embedding));
        let known = query.zip(key).and_then(|(query, key)| self.weights(query, key, weights));
        let weights = match weights {
            Weights::Nothing => Returned::Nothing,
            _ => Returned::Tensor(known),
        };
        Returned::Tuple(vec![Returned::Tensor(query.map(<[u64]>::to_vec)), weights])
    }

    fn weights(&self, query: &[u64], key: &[u64], weights: Weights) -> Option<Vec<u64>> {
        let (batch, query, key): (&[u64], u64, u64) = match (query, key, self.batch_first) {
            ([query, _], [key, _], _) => (&[], *query, *key),
            ([batch, query, _], [_, key, _], true) | ([query, batch, _], [key, _, _], false) => {
                (std::slice::from_ref(batch), *query, *key)
            }
            _ => return None,
        };
        let heads: &[u64] = match weights {
            Weights::OfEachHead => &[self.heads],
            _ => &[],
        };
        Some([batch, heads, &[query, key.checked_add(self.more_keys)?]].concat())
    }
}

/// A window that is moved along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) kernel: u64,
    pub(crate) stride: u64,
    pub(crate) padding: u64,
    pub(crate) dilation: u64,
}

impl Window {
    fn of(self, size: u64) -> Option<u64> {
        let reach = self.dilation.checked_mul(self.kernel.checked_sub(1)?)?.checked_add(1)?;
        let free = size.checked_add(self.padding.checked_mul(2)?)?.checked_sub(reach)?;
        free.checked_div(self.stride)?.checked_add(1)
    }
}

impl Shape {
    /// The shape of the output for an input of that shape; `None` if it is not known, or does not follow from one
    /// input.
    pub(crate) fn of(&self, input: &[u64]) -> Option<Vec<u64>> {
        let mut shape = input.to_vec();
        match self {
            Shape::Same => {}
            Shape::Linear(from, to) => {
                *shape.last_mut().filter(|last| **last == *from)? = *to;
            }
            Shape::Embedding(features) => shape.push(*features),
            Shape::Bags(features) => {
                *shape.last_mut().filter(|_| input.len() == 2)? = *features;
            }
            Shape::Window(channels, windows) => {
                let first = shape.len().checked_sub(windows.len())?;
                let own = first.checked_sub(1)?;
                if let Some([from, to]) = channels {
                    *shape.get_mut(own).filter(|own| **own == *from)? = *to;
                }
                for (size, window) in shape.iter_mut().skip(first).zip(windows) {
                    *size = window.of(*size)?;
                }
            }
            Shape::Last(sizes) => {
                let first = shape.len().checked_sub(sizes.len())?;
                shape.truncate(first);
                shape.extend(sizes);
            }
            Shape::Flatten => {
                let all = shape.iter().skip(1).try_fold(1_u64, |all, size| all.checked_mul(*size));
                shape = vec![*shape.first()?, all?];
            }
            Shape::Classes(classes) => {
                shape = vec![*shape.first().filter(|_| input.len() > 1)?, *classes];
            }
            Shape::Chain(parts) => {
                for part in parts {
                    shape = part.of(&shape)?;
                }
            }
            Shape::Sequence(_) | Shape::Attention(_) | Shape::Target | Shape::Unknown => {
                return None;
            }
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::output_shape::{Heads, Returned, Sequence, Shape, Weights, Window};
    use lockstep_torch::ddp::model::{Recurrence, Recurrent};

    #[test]
    fn modules_say_what_they_return() {
        let window = |kernel, stride, padding| Window { kernel, stride, padding, dilation: 1 };
        let conv = |from, to| Shape::Window(Some([from, to]), vec![window(3, 1, 0); 2]);
        let pool = Shape::Window(None, vec![window(2, 2, 0); 2]);
        let (flat, head) = (Shape::Flatten, Shape::Linear(9216, 10));
        let parts = vec![conv(1, 32), Shape::Same, conv(32, 64), pool, flat, head];
        assert_eq!(Shape::Chain(parts).of(&[4, 1, 28, 28]), Some(vec![4, 10]));
        assert_eq!(Shape::Linear(10, 5).of(&[20, 10]), Some(vec![20, 5]));
        assert_eq!(Shape::Linear(10, 5).of(&[20, 7]), None);
        assert_eq!(Shape::Classes(1000).of(&[2, 3, 224, 224]), Some(vec![2, 1000]));
        assert_eq!(Shape::Bags(8).of(&[4, 3]), Some(vec![4, 8]));
        assert_eq!(Shape::Bags(8).of(&[12]), None);
        assert_eq!(Shape::Embedding(8).of(&[2, 5]), Some(vec![2, 5, 8]));
    }

    /// The shapes that torch 2.15 returns.
    #[test]
    fn sequences_return_their_last_states() {
        let sizes = Recurrent {
            recurrence: Recurrence::Lstm,
            input: 8,
            hidden: 16,
            layers: 2,
            bias: true,
            bidirectional: true,
            projection: None,
        };
        let known = |shape: &[u64]| Returned::Tensor(Some(shape.to_vec()));
        let of = |sequence: Sequence, input: &[u64]| sequence.returned(Some(input));
        let lstm = Sequence { sizes, batch_first: false, cell: false };
        let states = Returned::Tuple(vec![known(&[4, 3, 16]), known(&[4, 3, 16])]);
        assert_eq!(of(lstm, &[5, 3, 8]), Returned::Tuple(vec![known(&[5, 3, 32]), states]));
        let first = Sequence { batch_first: true, ..lstm };
        let projected = Recurrent { projection: Some(4), layers: 1, ..sizes };
        let states = Returned::Tuple(vec![known(&[2, 5, 4]), known(&[2, 5, 16])]);
        assert_eq!(
            of(Sequence { sizes: projected, ..first }, &[5, 3, 8]),
            Returned::Tuple(vec![known(&[5, 3, 8]), states])
        );
        let gru =
            Recurrent { recurrence: Recurrence::Gru, layers: 1, bidirectional: false, ..sizes };
        let gru = Sequence { sizes: gru, ..lstm };
        assert_eq!(of(gru, &[3, 8]), Returned::Tuple(vec![known(&[3, 16]), known(&[1, 16])]));
        assert_eq!(of(Sequence { cell: true, ..gru }, &[3, 8]), known(&[3, 16]));
        let unknown = Returned::Tensor(None);
        assert_eq!(of(gru, &[3, 7]), Returned::Tuple(vec![unknown.clone(), unknown]));
    }

    /// The shapes that torch 2.15 returns.
    #[test]
    fn attention_returns_its_weights() {
        let heads = Heads { embedding: 8, heads: 2, batch_first: false, more_keys: 0 };
        let shapes = |heads: Heads, query: &[u64], key: &[u64], weights| {
            heads.returned(Some(query), Some(key), weights)
        };
        let pair = |output: &[u64], weights: Option<&[u64]>| {
            let weights = weights.map(|shape| Returned::Tensor(Some(shape.to_vec())));
            let weights = weights.unwrap_or(Returned::Nothing);
            Returned::Tuple(vec![Returned::Tensor(Some(output.to_vec())), weights])
        };
        let (query, key) = ([5, 3, 8], [7, 3, 8]);
        let averaged = shapes(heads, &query, &key, Weights::Averaged);
        assert_eq!(averaged, pair(&query, Some(&[3, 5, 7])));
        let of_each = shapes(heads, &query, &key, Weights::OfEachHead);
        assert_eq!(of_each, pair(&query, Some(&[3, 2, 5, 7])));
        assert_eq!(shapes(heads, &query, &key, Weights::Nothing), pair(&query, None));
        let first = Heads { batch_first: true, more_keys: 1, ..heads };
        let averaged = shapes(first, &query, &[5, 7, 8], Weights::Averaged);
        assert_eq!(averaged, pair(&query, Some(&[5, 3, 8])));
        let one = shapes(heads, &[3, 8], &[3, 8], Weights::OfEachHead);
        assert_eq!(one, pair(&[3, 8], Some(&[2, 3, 3])));
    }
}
