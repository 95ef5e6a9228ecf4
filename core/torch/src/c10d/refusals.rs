//! The refusals of each backend before or while it works: `ProcessGroupGloo.cpp` and
//! `ProcessGroupNCCL.cpp` of PyTorch 2.7, in their order and words.

use super::error::{DistError, ErrorKind, index_error, runtime_error, type_error, value_error};
use super::tensor::{Layout, Tensor, options, sizes};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::reduce::{ReduceOp, Refused, allowed};

/// A backend that is asked to carry out a call among `size` ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) backend: BackendName,
    /// c10d's name of the call: `allgather`.
    pub(super) call: &'static str,
    pub(super) size: u32,
}

impl Asked {
    fn gloo(self, why: &str) -> DistError {
        runtime_error(format!("ProcessGroupGloo::{}: {why}", self.call))
    }

    /// gloo raises `RuntimeError` with its class and call before the reason, NCCL's gather and
    /// scatter `ValueError`; Lockstep's own executor speaks like gloo.
    fn refuse(self, why: &str) -> DistError {
        match self.backend {
            BackendName::Nccl => value_error(format!("ProcessGroupNCCL::{}: {why}", self.call)),
            _ => self.gloo(why),
        }
    }

    /// A refusal of the calls that ProcessGroupMPI of 2.7.1 does not carry out, with its text.
    pub(super) fn not_on_mpi(self, text: &str) -> Result<(), DistError> {
        match self.backend {
            BackendName::Mpi => Err(runtime_error(text)),
            _ => Ok(()),
        }
    }

    /// `assertRootRank`.
    pub(super) fn root(self, root: i64) -> Result<u32, DistError> {
        let inside = u32::try_from(root).ok().filter(|root| *root < self.size);
        inside.ok_or_else(|| {
            let gathers = matches!(self.call, "gather" | "scatter");
            let error = match self.backend {
                // NCCL itself checks the root of the others.
                BackendName::Nccl if !gathers => DistError::new(
                    ErrorKind::DistBackendError,
                    "ncclInvalidArgument: Invalid value for an argument.",
                ),
                _ => self.refuse(&format!("invalid root rank: {root}")),
            };
            error.with_help(format!("The group's ranks are 0 to {}.", self.size - 1))
        })
    }

    /// A check that the backend can work with a tensor at all.
    pub(super) fn tensor(self, tensor: &Tensor) -> Result<(), DistError> {
        self.dense(tensor)?;
        self.nccl_type(tensor.dtype)
    }

    /// Refuses a sparse tensor, whatever its type.
    pub(super) fn dense(self, tensor: &Tensor) -> Result<(), DistError> {
        let dense = tensor.layout == Layout::Strided;
        match self.backend {
            BackendName::Nccl if !dense => Err(value_error("Tensors must be CUDA and dense")),
            BackendName::Nccl if !tensor.is_contiguous() => {
                Err(value_error("Tensors must be contiguous"))
            }
            BackendName::Nccl => Ok(()),
            _ if !dense => Err(self.gloo("only supports dense tensors")),
            _ => Ok(()),
        }
    }

    /// `getNcclDataType` of `ProcessGroupNCCL.cpp`. Calls that are made of sends and receives use
    /// `to_nccl_data_type` of `torch/csrc/cuda/nccl.cpp` instead, which knows the same types and has words of
    /// its own.
    pub(super) fn nccl_type(self, dtype: Dtype) -> Result<(), DistError> {
        let unknown = matches!(dtype, Dtype::Int16 | Dtype::Unknown);
        if self.backend != BackendName::Nccl || !unknown {
            return Ok(());
        }
        let sent = matches!(
            self.call,
            "alltoall_base" | "alltoall" | "gather" | "scatter" | "send" | "recv"
        );
        Err(match sent {
            true => runtime_error(format!("Unconvertible NCCL type {}", dtype.scalar_type())),
            false => type_error(Refused::NcclType { dtype }.to_string()),
        })
    }

    /// Every tensor of a list has the type and size of the first: `assertTypeAndSizesMatch`.
    pub(super) fn all_like(self, list: &[Tensor], first: &Tensor) -> Result<(), DistError> {
        for (index, tensor) in list.iter().enumerate() {
            if tensor.dtype != first.dtype
                || tensor.device != first.device
                || tensor.layout != first.layout
            {
                return Err(self.refuse(&format!(
                    "invalid tensor type at index {index} (expected {}, got {})",
                    options(first),
                    options(tensor)
                )));
            }
            if tensor.shape != first.shape {
                return Err(self.refuse(&format!(
                    "invalid tensor size at index {index} (expected {}, got {})",
                    sizes(&first.shape),
                    sizes(&tensor.shape)
                )));
            }
        }
        Ok(())
    }

    /// A list of one tensor a rank, as gather's root and scatter's take it.
    pub(super) fn one_each(self, list: &[Tensor], which: &str) -> Result<(), DistError> {
        if list.len() == self.size as usize {
            return Ok(());
        }
        let capital = format!("{}{}", which[..1].to_uppercase(), &which[1..]);
        Err(self.refuse(&format!(
            "Incorrect {which} list size {}. {capital} list size should be {}, same as size of the \
             process group.",
            list.len(),
            self.size
        )))
    }

    /// The error that the backend finds only while it works: gloo on its own thread, so that an
    /// asynchronous call raises when it is waited for. `op` is `None` for calls that only move
    /// elements.
    pub(super) fn while_working(self, op: Option<ReduceOp>, dtype: Dtype) -> Option<DistError> {
        let refused = match op {
            Some(op) => allowed(self.backend, op, dtype).err(),
            None if self.backend == BackendName::Gloo => {
                // A sum knows every type that gloo knows.
                allowed(self.backend, ReduceOp::Sum, dtype).err()
            }
            None => None,
        }?;
        let kind = match refused {
            Refused::Complex { .. } | Refused::NcclOp { .. } => ErrorKind::ValueError,
            Refused::NcclType { .. } | Refused::NcclAvgOfBooleans | Refused::NcclPremulType => {
                ErrorKind::TypeError
            }
            Refused::MpiTable => ErrorKind::IndexError,
            Refused::GlooType
            | Refused::GlooNotIntegral { .. }
            | Refused::GlooOp { .. }
            | Refused::Host { .. } => ErrorKind::RuntimeError,
        };
        Some(DistError::new(kind, refused.to_string()))
    }

    /// Complex tensors in the calls of gloo whose tensors PyTorch does not view as real numbers first,
    /// as it does in `all_reduce`: reductions, `broadcast` and `gather`. Those that only copy bytes
    /// (`all_gather`, `scatter`, `all_to_all_single`, `send`) do not look at the type.
    pub(super) fn complex_as_it_is(self, dtype: Dtype) -> Option<DistError> {
        let refused = self.backend == BackendName::Gloo && dtype.is_complex();
        refused.then(|| runtime_error(Refused::GlooType.to_string()))
    }

    /// `reduce` on 8-bit floats, which NCCL's backend of 2.7 refuses first.
    pub(super) fn reduces(self, dtype: Dtype) -> Result<(), DistError> {
        match self.backend {
            BackendName::Nccl if dtype.is_float8() => {
                Err(runtime_error("Float8 dtypes are not currenlty supported for NCCL reductions"))
            }
            _ => Ok(()),
        }
    }

    /// gloo's contexts look a peer up in a vector.
    pub(super) fn peer(self, peer: i64, me: u32) -> Result<u32, DistError> {
        let inside = u32::try_from(peer).ok().filter(|peer| *peer < self.size);
        match inside {
            Some(peer) if peer != me => Ok(peer),
            Some(_) if self.backend == BackendName::Gloo => Err(runtime_error(
                "[third_party/gloo/gloo/transport/tcp/pair.cc:331] writev [none]: Bad file \
                 descriptor",
            )
            .with_help("A rank cannot send to or receive from itself.")),
            Some(_) => Err(DistError::new(
                ErrorKind::Unsupported,
                "a rank that sends to itself is not followed here",
            )
            .with_help("NCCL allows it inside a batch_isend_irecv that does both.")),
            None if self.backend == BackendName::Nccl => Err(DistError::new(
                ErrorKind::DistBackendError,
                "ncclInvalidArgument: Invalid value for an argument.",
            )
            .with_help(format!("The group's ranks are 0 to {}.", self.size - 1))),
            None => Err(index_error(format!(
                "vector::_M_range_check: __n (which is {}) >= this->size() (which is {})",
                peer as u64, self.size
            ))
            .with_help(format!("The group's ranks are 0 to {}.", self.size - 1))),
        }
    }
}

/// `checkSplitSizes` for an uneven `all_to_all_single`: rows by rank.
pub(super) fn splits(given: &[u64], tensor: &Tensor, size: u32) -> Result<Vec<u64>, DistError> {
    let rows = tensor.shape.first().copied().unwrap_or(1);
    let row = tensor.row_numel();
    if given.is_empty() {
        if rows % u64::from(size) != 0 {
            return Err(runtime_error("Tensor's dim 0 does not divide equally across group size"));
        }
        return Ok(vec![rows / u64::from(size) * row; size as usize]);
    }
    if given.len() != size as usize {
        return Err(runtime_error("Number of tensor splits not equal to group size"));
    }
    if given.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows)) != rows {
        return Err(runtime_error("Split sizes doesn't match total dim 0 size"));
    }
    Ok(given.iter().map(|rows| rows.saturating_mul(row)).collect())
}
