//! NCCL's element types and operations, and the plan's that they correspond to.

use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, Tensor};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{self, Factor, ReduceOp, Refused};

/// NCCL's element types that correspond to PyTorch's (`ncclDataType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Element {
    Int8,
    Uint8,
    Int32,
    Int64,
    Float16,
    Bfloat16,
    Float32,
    Float64,
    Float8E4m3,
    Float8E5m2,
}

/// NCCL's operations (`ncclRedOp_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Reduction {
    Sum,
    Product,
    Min,
    Max,
    Avg,
    PremulSum(Factor),
}

/// NCCL's collectives, roots as ranks of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Operation {
    AllReduce(Reduction),
    Reduce(Reduction, u32),
    ReduceScatter(Reduction),
    Broadcast(u32),
    AllGather,
}

impl Operation {
    /// Its function of NCCL's.
    pub(in crate::nccl) fn call(self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "ncclAllReduce",
            Operation::Reduce(..) => "ncclReduce",
            Operation::ReduceScatter(_) => "ncclReduceScatter",
            Operation::Broadcast(_) => "ncclBroadcast",
            Operation::AllGather => "ncclAllGather",
        }
    }
}

impl Element {
    /// The type in which elements of `dtype` are reduced, and the number of them that make one of
    /// `dtype`; complex numbers are two floats, as `torch.view_as_real` shows them.
    pub(super) fn reduced(dtype: Dtype) -> Option<(Element, u64)> {
        let each = if dtype.is_complex() { 2 } else { 1 };
        let element = match dtype.as_real() {
            Dtype::Int8 => Element::Int8,
            Dtype::Uint8 | Dtype::Bool => Element::Uint8,
            Dtype::Int32 => Element::Int32,
            Dtype::Int64 => Element::Int64,
            Dtype::Float16 => Element::Float16,
            Dtype::Bfloat16 => Element::Bfloat16,
            Dtype::Float32 => Element::Float32,
            Dtype::Float64 => Element::Float64,
            Dtype::Float8E4m3fn => Element::Float8E4m3,
            Dtype::Float8E5m2 => Element::Float8E5m2,
            Dtype::Int16 | Dtype::Complex64 | Dtype::Complex128 | Dtype::Unknown => return None,
        };
        Some((element, each))
    }

    /// A number in this type, as `reduce::premultiply` rounds it.
    pub(in crate::nccl) fn factor(self, factor: f64) -> Vec<u8> {
        let dtype = match self {
            Element::Float16 => Dtype::Float16,
            Element::Bfloat16 => Dtype::Bfloat16,
            Element::Float64 => Dtype::Float64,
            Element::Float8E4m3 => Dtype::Float8E4m3fn,
            Element::Float8E5m2 => Dtype::Float8E5m2,
            Element::Float32 | Element::Int8 | Element::Uint8 | Element::Int32 | Element::Int64 => {
                Dtype::Float32
            }
        };
        let (name, fill) = (String::new(), Fill::Full { value: 1 });
        let one = Tensor { name, dtype, numel: 1, fill, data: Default::default() };
        let mut bytes = initial_bytes(&one, GlobalRank(0));
        reduce::premultiply(dtype, factor, &mut bytes);
        bytes
    }
}

impl Reduction {
    /// NCCL's reduction for `op` on `dtype`, as c10d translates it (`getNcclReduceOp`): booleans
    /// are bytes, their sum a maximum and their product a minimum.
    ///
    /// # Errors
    /// In PyTorch's words, where NCCL has no such thing.
    pub(super) fn of(op: ReduceOp, dtype: Dtype) -> Result<Reduction, Refused> {
        reduce::allowed(BackendName::Nccl, op, dtype)?;
        Ok(match (op, dtype) {
            (ReduceOp::Sum, Dtype::Bool) => Reduction::Max,
            (ReduceOp::Product, Dtype::Bool) => Reduction::Min,
            (ReduceOp::Sum, _) => Reduction::Sum,
            (ReduceOp::Product, _) => Reduction::Product,
            (ReduceOp::Min, _) => Reduction::Min,
            (ReduceOp::Max, _) => Reduction::Max,
            (ReduceOp::Avg, _) => Reduction::Avg,
            (ReduceOp::PremulSum(factor), _) => Reduction::PremulSum(factor),
            (ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor, _) => {
                return Err(Refused::NcclOp { op });
            }
        })
    }
}
