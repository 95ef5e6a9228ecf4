//! A rank's tensor, as a call sees it: a part of a plan's tensor with shape, type and device.

use super::backend::Device;
use crate::autograd::Node;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::TensorId;
use std::sync::Arc;

/// The way in which a tensor keeps its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `torch.strided`.
    Strided,
    /// `torch.sparse_coo`.
    Sparse {
        /// Stored elements.
        nnz: u64,
    },
}

/// A tensor of one rank: the whole of a plan's tensor, or a run of its elements.
///
/// Made by [`Dist::tensor`](super::Dist::tensor); the methods make views that share its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub(super) storage: TensorId,
    /// Elements before it in the storage.
    pub(super) offset: u64,
    /// Elements of the storage.
    pub(super) storage_numel: u64,
    pub(super) shape: Vec<u64>,
    pub(super) dtype: Dtype,
    pub(super) device: Device,
    /// The index of the device among those of its type: 1 for `cuda:1`.
    pub(super) device_index: u32,
    pub(super) layout: Layout,
    pub(super) contiguous: bool,
    /// True if the tensor is a part of another one that is not contiguous there. Its elements are contiguous
    /// copies.
    pub(super) in_parts: bool,
    /// Its part in a backward pass.
    pub(super) grad: Grad,
}

/// The way in which a tensor takes part in a backward pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Grad {
    /// It was made by no operation that a backward pass goes through. It may be a parameter.
    #[default]
    Leaf,
    /// It has left the graph: `x.detach()`, `x.data`.
    Detached,
    /// `grad_fn`: the operation that it comes of.
    Of(Arc<Node>),
}

/// No plan has so many tensors: a higher number is that of a tensor that is not made yet.
const TO_BE_MADE: u32 = 1 << 31;

/// A shape from a number of elements, or from sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<u64>);

impl From<u64> for Shape {
    fn from(numel: u64) -> Shape {
        Shape(vec![numel])
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(sizes: [u64; N]) -> Shape {
        Shape(sizes.to_vec())
    }
}

impl From<&[u64]> for Shape {
    fn from(sizes: &[u64]) -> Shape {
        Shape(sizes.to_vec())
    }
}

impl Shape {
    /// Elements of a tensor of that shape.
    pub fn numel(&self) -> u64 {
        self.0.iter().fold(1, |product, size| product.saturating_mul(*size))
    }
}

impl Tensor {
    /// The plan's tensor that holds it.
    pub fn storage(&self) -> TensorId {
        self.storage
    }

    /// `tensor.numel()`.
    pub fn numel(&self) -> u64 {
        self.shape.iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// `tensor.shape`.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// `tensor.dtype`.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// `tensor.device`.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The index of the tensor's GPU on its machine; 0 on the CPU.
    pub fn device_index(&self) -> u32 {
        self.device_index
    }

    /// A tensor without elements, for its device.
    pub fn nothing(device: Device) -> Tensor {
        Tensor {
            storage: TensorId(TO_BE_MADE),
            offset: 0,
            storage_numel: 0,
            shape: vec![0],
            dtype: Dtype::Float32,
            device,
            device_index: 0,
            layout: Layout::Strided,
            contiguous: true,
            in_parts: false,
            grad: Grad::Leaf,
        }
    }

    /// A tensor that is known before it is made: the `number`th of its rank, on the same device as
    /// this one. [`Dist::stands_for`](super::Dist::stands_for) says which it has become.
    #[must_use]
    pub fn to_be_made(&self, number: u32, dtype: Dtype, shape: &[u64]) -> Tensor {
        let shape = Shape::from(shape);
        Tensor {
            storage: TensorId(number | TO_BE_MADE),
            offset: 0,
            storage_numel: shape.numel(),
            shape: shape.0,
            dtype,
            contiguous: true,
            in_parts: false,
            layout: Layout::Strided,
            ..self.clone()
        }
    }

    /// The same tensor on that one of its machine's GPUs.
    #[must_use]
    pub fn on_device(self, device_index: u32) -> Tensor {
        let device_index = if self.device == Device::Cpu { 0 } else { device_index };
        Tensor { device_index, ..self }
    }

    /// `tensor.view(shape)`; the tensor itself if the number of elements differs.
    #[must_use]
    pub fn view(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        match shape.numel() == self.numel() {
            true => Tensor { shape: shape.0, ..self.clone() },
            false => self.clone(),
        }
    }

    /// `tensor[start:start + length]` along dimension 0, as far as it reaches.
    #[must_use]
    pub fn narrow(&self, start: u64, length: u64) -> Tensor {
        let rows = self.shape.first().copied().unwrap_or(1);
        let row = self.row_numel();
        let start = start.min(rows);
        let mut shape = self.shape.clone();
        let kept = length.min(rows - start);
        match shape.first_mut() {
            Some(first) => *first = kept,
            None => shape.push(kept),
        }
        Tensor { offset: self.offset + start * row, shape, ..self.clone() }
    }

    /// `tensor.chunk(chunks)`: along dimension 0, of `ceil(rows / chunks)` rows each; the last may
    /// be smaller, and there may be fewer.
    pub fn chunk(&self, chunks: u64) -> Vec<Tensor> {
        let rows = self.shape.first().copied().unwrap_or(1);
        let size = rows.div_ceil(chunks.max(1)).max(1);
        let starts = (0..rows.div_ceil(size)).map(|i| i * size);
        starts.map(|start| self.narrow(start, size)).collect()
    }

    /// A view with the rows and columns swapped, whose elements no longer lie in a row.
    #[must_use]
    pub fn non_contiguous(&self) -> Tensor {
        Tensor { contiguous: false, ..self.clone() }
    }

    /// `tensor.t()`: rows and columns swapped, over the same elements. A tensor of fewer dimensions
    /// is itself.
    #[must_use]
    pub fn transposed(&self) -> Tensor {
        let [rows, columns] = self.shape[..] else { return self.clone() };
        // One row, and one column, lie in a row either way.
        let both = rows > 1 && columns > 1;
        let contiguous = if both { !self.contiguous } else { self.contiguous };
        Tensor { shape: vec![columns, rows], contiguous, ..self.clone() }
    }

    /// `tensor.is_contiguous()`.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous && !self.in_parts
    }

    /// True if the elements are in column-major order.
    pub fn is_transposed(&self) -> bool {
        !self.contiguous
    }

    /// The same tensor, marked as a copy of elements that are not contiguous in their origin.
    #[must_use]
    pub fn in_parts(self) -> Tensor {
        Tensor { in_parts: true, ..self }
    }

    /// True if the tensor is a copy of elements that are not contiguous in the tensor that they are from.
    pub fn is_in_parts(&self) -> bool {
        self.in_parts
    }

    /// The tensor as a contiguous one.
    #[must_use]
    pub fn in_a_row(self) -> Tensor {
        Tensor { in_parts: false, ..self }
    }

    /// Its part in a backward pass.
    pub fn grad(&self) -> &Grad {
        &self.grad
    }

    /// `tensor.grad_fn`: the operation that it comes of.
    pub fn grad_fn(&self) -> Option<&Arc<Node>> {
        match &self.grad {
            Grad::Of(node) => Some(node),
            Grad::Leaf | Grad::Detached => None,
        }
    }

    /// The same tensor as the result of that operation; without one, as a leaf.
    #[must_use]
    pub fn with_grad_fn(self, grad_fn: Option<Arc<Node>>) -> Tensor {
        Tensor { grad: grad_fn.map_or(Grad::Leaf, Grad::Of), ..self }
    }

    /// `tensor.detach()`.
    #[must_use]
    pub fn detached(self) -> Tensor {
        Tensor { grad: Grad::Detached, ..self }
    }

    /// The same tensor with its elements laid out as another's of that shape, as with
    /// `torch.preserve_format`.
    #[must_use]
    pub fn laid_out_as(self, other: &Tensor) -> Tensor {
        Tensor { contiguous: other.contiguous, ..self }
    }

    /// The same tensor as `torch.sparse_coo` with `nnz` stored elements.
    #[must_use]
    pub fn to_sparse(&self, nnz: u64) -> Tensor {
        Tensor { layout: Layout::Sparse { nnz }, ..self.clone() }
    }

    /// Elements of one index of dimension 0.
    pub(super) fn row_numel(&self) -> u64 {
        self.shape.iter().skip(1).fold(1, |product, size| product.saturating_mul(*size))
    }

    /// True if the tensor is the whole of its storage, so that a call can take the storage itself.
    pub(super) fn is_whole(&self) -> bool {
        self.offset == 0 && self.numel() == self.storage_numel
    }

    /// Flat: dimension 0 counts elements.
    pub(super) fn flat(&self) -> Tensor {
        Tensor { shape: vec![self.numel()], ..self.clone() }
    }

    /// The elements from `start` on, counted flat.
    pub(super) fn slice(&self, start: u64, numel: u64) -> Tensor {
        self.flat().narrow(start, numel)
    }
}

/// `(3, 4)`, as c10d's `toString` prints sizes.
pub(super) fn sizes(shape: &[u64]) -> String {
    let sizes: Vec<_> = shape.iter().map(u64::to_string).collect();
    format!("({})", sizes.join(", "))
}

/// A tensor's `TensorOptions`, as c10d prints them in refusals.
pub(super) fn options(tensor: &Tensor) -> String {
    let layout = match tensor.layout {
        Layout::Strided => "Strided",
        Layout::Sparse { .. } => "Sparse",
    };
    let device = match tensor.device {
        Device::Cpu => "cpu".to_owned(),
        other => format!("{other}:{}", tensor.device_index),
    };
    format!(
        "TensorOptions(dtype={}, device={device}, layout={layout}, requires_grad=false (default), \
         pinned_memory=false (default), memory_format=(nullopt))",
        cpp_name(tensor.dtype)
    )
}

/// A type's name as `caffe2::TypeMeta` prints it.
fn cpp_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float64 => "double",
        Dtype::Float32 => "float",
        Dtype::Float16 => "c10::Half",
        Dtype::Bfloat16 => "c10::BFloat16",
        Dtype::Float8E4m3fn => "c10::Float8_e4m3fn",
        Dtype::Float8E5m2 => "c10::Float8_e5m2",
        Dtype::Int64 => "long int",
        Dtype::Int32 => "int",
        Dtype::Int16 => "short int",
        Dtype::Int8 => "signed char",
        Dtype::Uint8 => "unsigned char",
        Dtype::Bool => "bool",
        Dtype::Complex128 => "c10::complex<double>",
        Dtype::Complex64 => "c10::complex<float>",
        Dtype::Unknown => "unknown",
    }
}
