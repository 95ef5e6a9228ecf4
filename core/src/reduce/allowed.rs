//! The operations that each backend of PyTorch allows on each type, and the texts of its refusals.
//!
//! Sources: `distributed_c10d.py` (`supports_complex`), `ProcessGroupGloo.cpp` (`GENERATE_ALL_TYPES`,
//! `toFunction`), `ProcessGroupNCCL.cpp` (`getNcclReduceOp`, `unpackPreMulSum`, `isUnsupportedFloat8`),
//! `NCCLUtils.cpp` (`ncclDataType`) and `ProcessGroupMPI.cpp` (`mpiOp`, `mpiDatatype`), and for gloo the
//! answers of 2.7.1 (`tests/data/pytorch`). 8-bit floats are NCCL's from 2.24 on, on devices of compute
//! capability 9.0 and above; PyTorch 2.7 itself still refuses them.

use super::ReduceOp;
use crate::dtype::Dtype;
use crate::group::BackendName;

/// The reason that a backend does not reduce so; its text is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Raised in Python, by `all_reduce` and `all_reduce_coalesced`, for every backend
    /// (ValueError).
    #[error("all_reduce does not support RedOpType.{op} on complex tensors")]
    Complex {
        /// The operation.
        op: ReduceOp,
    },
    /// gloo knows no such type (RuntimeError).
    #[error("Invalid scalar type")]
    GlooType,
    /// gloo's bitwise operations are for integers (RuntimeError).
    #[error("Cannot use ReduceOp.{op} with non-integral dtype")]
    GlooNotIntegral {
        /// The operation.
        op: ReduceOp,
    },
    /// gloo has no such operation (RuntimeError).
    #[error("Cannot use ReduceOp.{op} with Gloo")]
    GlooOp {
        /// The operation.
        op: ReduceOp,
    },
    /// NCCL knows no such type (TypeError).
    #[error(
        "Input tensor data type is not supported for NCCL process group: {}",
        dtype.scalar_type()
    )]
    NcclType {
        /// The type.
        dtype: Dtype,
    },
    /// NCCL has no such operation (ValueError).
    #[error("Cannot use ReduceOp.{op} with NCCL")]
    NcclOp {
        /// The operation.
        op: ReduceOp,
    },
    /// A mean of booleans (TypeError).
    #[error("Cannot use ReduceOp.AVG with boolean inputs")]
    NcclAvgOfBooleans,
    /// PREMUL_SUM of anything else than these (TypeError).
    #[error("PreMulSum Data type must be half, float, bfloat16 or double")]
    NcclPremulType,
    /// MPI's tables have no such operation or type: C++'s `std::map::at` says no more.
    #[error("map::at")]
    MpiTable,
    /// Lockstep's own executor.
    #[error("ReduceOp.{op} does not work on {dtype}")]
    Host {
        /// The operation.
        op: ReduceOp,
        /// The type.
        dtype: Dtype,
    },
}

/// Passes if a group of that backend reduces elements of `dtype` with `op`. `host` and an unknown backend
/// allow everything that [`ReduceOp::supports`] does.
///
/// # Errors
/// PyTorch's refusal.
pub fn allowed(backend: BackendName, op: ReduceOp, dtype: Dtype) -> Result<(), Refused> {
    let of_pytorch = matches!(backend, BackendName::Gloo | BackendName::Nccl | BackendName::Mpi);
    if of_pytorch && dtype.is_complex() && !op.supports(dtype) {
        return Err(Refused::Complex { op });
    }
    match backend {
        BackendName::Gloo => gloo(op, dtype.as_real()),
        BackendName::Nccl => nccl(op, dtype.as_real()),
        BackendName::Mpi => mpi(op, dtype),
        BackendName::Host | BackendName::Unknown if op.supports(dtype) => Ok(()),
        BackendName::Host | BackendName::Unknown => Err(Refused::Host { op, dtype }),
    }
}

fn gloo(op: ReduceOp, dtype: Dtype) -> Result<(), Refused> {
    match (dtype, op) {
        (Dtype::Int16 | Dtype::Unknown, _) => Err(Refused::GlooType),
        (dtype, _) if dtype.is_float8() => Err(Refused::GlooType),
        (_, ReduceOp::Avg | ReduceOp::PremulSum(_)) => Err(Refused::GlooOp { op }),
        (dtype, op) if op.is_bitwise() && dtype.is_float() => Err(Refused::GlooNotIntegral { op }),
        _ => Ok(()),
    }
}

fn nccl(op: ReduceOp, dtype: Dtype) -> Result<(), Refused> {
    match (dtype, op) {
        (Dtype::Int16 | Dtype::Unknown, _) => Err(Refused::NcclType { dtype }),
        (Dtype::Bool, ReduceOp::Avg) => Err(Refused::NcclAvgOfBooleans),
        (_, op) if op.is_bitwise() => Err(Refused::NcclOp { op }),
        (dtype, ReduceOp::PremulSum(_)) if !dtype.is_float() || dtype.is_float8() => {
            Err(Refused::NcclPremulType)
        }
        _ => Ok(()),
    }
}

fn mpi(op: ReduceOp, dtype: Dtype) -> Result<(), Refused> {
    let known_op = matches!(op, ReduceOp::Sum | ReduceOp::Product | ReduceOp::Min | ReduceOp::Max);
    let known_type = matches!(
        dtype,
        Dtype::Uint8
            | Dtype::Int8
            | Dtype::Int16
            | Dtype::Int32
            | Dtype::Int64
            | Dtype::Float32
            | Dtype::Float64
    );
    if known_op && known_type { Ok(()) } else { Err(Refused::MpiTable) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::Factor;

    fn every_op() -> impl Iterator<Item = ReduceOp> {
        let premul = Factor::new(0.5).map(ReduceOp::PremulSum);
        ReduceOp::ALL.into_iter().chain(premul)
    }

    /// Every all_reduce that PyTorch 2.7.1 was asked for over gloo: the same text or none.
    #[test]
    fn gloo_refuses_what_pytorch_was_recorded_to_refuse() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/collectives.json");
        let recorded: serde_json::Value =
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut compared = 0;
        for dtype in Dtype::COMPUTABLE {
            for op in every_op() {
                let outcome =
                    &recorded["results"]["2"][format!("all_reduce/{op}/{dtype}")]["all_ranks"];
                if outcome.is_null() {
                    continue;
                }
                let refused = allowed(BackendName::Gloo, op, dtype)
                    .err()
                    .map(|refused| format!("RuntimeError: {refused}"));
                assert_eq!(outcome["error"].as_str(), refused.as_deref(), "{op} on {dtype}");
                compared += 1;
            }
        }
        assert_eq!(compared, 90);
    }

    #[test]
    fn what_a_backend_allows_can_be_computed() {
        let backends = [BackendName::Host, BackendName::Gloo, BackendName::Nccl, BackendName::Mpi];
        for (backend, dtype) in backends
            .into_iter()
            .flat_map(|backend| Dtype::COMPUTABLE.into_iter().map(move |dtype| (backend, dtype)))
        {
            for op in every_op() {
                if allowed(backend, op, dtype).is_ok() {
                    assert!(op.supports(dtype), "{backend:?} {op} {dtype}");
                }
            }
        }
    }

    #[test]
    fn each_backend_refuses_in_pytorchs_words() {
        let premul = ReduceOp::PremulSum(Factor::new(2.0).unwrap());
        let cases = [
            (BackendName::Gloo, ReduceOp::Product, Dtype::Complex64),
            (BackendName::Gloo, ReduceOp::Sum, Dtype::Float8E5m2),
            (BackendName::Nccl, ReduceOp::Sum, Dtype::Int16),
            (BackendName::Nccl, ReduceOp::Bor, Dtype::Int32),
            (BackendName::Nccl, ReduceOp::Avg, Dtype::Bool),
            (BackendName::Nccl, premul, Dtype::Int32),
            (BackendName::Mpi, ReduceOp::Sum, Dtype::Float16),
            (BackendName::Mpi, ReduceOp::Max, Dtype::Complex128),
            (BackendName::Host, ReduceOp::Band, Dtype::Float32),
        ];
        let texts = cases.map(|(backend, op, dtype)| {
            allowed(backend, op, dtype).err().map(|refused| refused.to_string()).unwrap_or_default()
        });
        insta::assert_snapshot!(texts.join("\n"), @r"
    all_reduce does not support RedOpType.PRODUCT on complex tensors
    Invalid scalar type
    Input tensor data type is not supported for NCCL process group: Short
    Cannot use ReduceOp.BOR with NCCL
    Cannot use ReduceOp.AVG with boolean inputs
    PreMulSum Data type must be half, float, bfloat16 or double
    map::at
    all_reduce does not support RedOpType.MAX on complex tensors
    ReduceOp.BAND does not work on float32
    ");
    }
}
