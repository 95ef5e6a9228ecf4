//! Tensors of a plan: their shapes, types and initial values on each rank.

use super::{Real, TensorData};
use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// The index of a tensor in [`Plan::tensors`](super::Plan::tensors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

impl TensorId {
    /// The tensor as an index into the plan's table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A one-dimensional tensor, as each rank makes its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// The tensor's name for people: `grad`.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its number of elements.
    pub numel: u64,
    /// The contents at the start.
    pub fill: Fill,
    /// The bytes that [`Fill::Data`] begins with.
    #[serde(default)]
    pub data: TensorData,
}

impl Tensor {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.numel.saturating_mul(self.dtype.size_bytes())
    }
}

/// The contents of a tensor at the start, as a function of rank and element index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Zeros, as `torch.zeros`.
    Zeros,
    /// The rank in every element, as `torch.full((n,), rank)`.
    Rank,
    /// `rank * numel + i`: every element of every rank is different.
    Iota,
    /// The bytes of [`Tensor::data`], on every rank, then zeros: a pickled object, a list of sizes.
    Data,
    /// Seeded, different on every rank, and such that float sums round (the generator of
    /// [`value`](super::value)).
    Seeded {
        /// The seed.
        seed: u64,
    },
    /// The same number in every element, as `torch.full((n,), value)`.
    Full {
        /// The number.
        value: i64,
    },
    /// `start + i * step`, alike on every rank: `torch.arange(start, end, step)`.
    Arange {
        /// The first element.
        start: Real,
        /// The difference from one element to the next.
        step: Real,
    },
    /// Values that a plan does not know: the output of a model, or of computations beyond a plan's
    /// operations. A simulation carries no values of it, nor of tensors that it is copied into
    /// ([`Plan::unknown`](super::Plan::unknown)); a run has zeros in its place.
    Unknown,
}
