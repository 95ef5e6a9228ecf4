//! The refusals of the constructor: models that differ between ranks
//! (`verify_params_across_processes`), types that the backend does not know, and `device_ids` of a
//! module that is on no device.

use super::error::DdpError;
use super::model::Model;
use super::options::{DdpOptions, DdpVersion};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;

/// The verdict of each rank's constructor on the shapes of its parameters: every rank compares the
/// numbers with all others, and the sizes with rank 0's. Types are not compared: a dtype that
/// differs passes silently.
pub fn verify_params(shapes: &[Vec<Vec<u64>>]) -> Vec<Result<(), DdpError>> {
    let verify = |(rank, own): (u32, &Vec<Vec<u64>>)| {
        let count = own.len() as u64;
        let differing = (0..).zip(shapes).find(|(_, others)| others.len() as u64 != count);
        if let Some((other, others)) = differing {
            let others = others.len() as u64;
            return Err(DdpError::ParamCount { rank, own: count, other, others });
        }
        let first = shapes.first().map(Vec::as_slice).unwrap_or_default();
        match own.iter().zip(first).position(|(own, first)| own != first) {
            Some(param) => Err(DdpError::ParamShape { rank, param, sizes: own[param].clone() }),
            None => Ok(()),
        }
    };
    (0..).zip(shapes).map(verify).collect()
}

/// The backend's refusals of a model: gloo knows neither complex numbers nor 8-bit floats nor `int16` (DDP
/// hands tensors over in C++, where nothing views complex ones as real).
///
/// # Errors
/// The error that PyTorch raises in the constructor's broadcasts.
pub fn verify_types(
    model: &Model,
    options: &DdpOptions,
    backend: BackendName,
) -> Result<(), DdpError> {
    if backend != BackendName::Gloo {
        return Ok(());
    }
    let refused = |name: &String, dtype: Dtype| {
        let unknown = dtype.is_complex() || dtype.is_float8() || dtype == Dtype::Int16;
        unknown && !options.ignored.contains(name)
    };
    let params = model.params.iter().any(|param| refused(&param.name, param.dtype));
    let mut buffers = model.buffers.iter();
    let buffers = options.broadcast_buffers && buffers.any(|of| refused(&of.name, of.dtype));
    if params || buffers { Err(DdpError::InvalidScalarType) } else { Ok(()) }
}

/// The error of SyncBatchNorm if the module is on the CPU, as gloo's is here: raised in the constructor,
/// whichever of the model's layers it is.
///
/// # Errors
/// The error that PyTorch's constructor raises.
pub fn verify_sync_batch_norm(model: &Model, backend: BackendName) -> Result<(), DdpError> {
    // The layers that `convert_sync_batchnorm` finds, as far as a model's buffers show them.
    let is_batch_norm = |name: &str| name.rsplit('.').next() == Some("running_mean");
    let any = model.buffers.iter().any(|buffer| is_batch_norm(&buffer.name));
    match backend {
        BackendName::Gloo if any => Err(DdpError::SyncBatchNormOnCpu),
        _ => Ok(()),
    }
}

/// The error of `hook_with_zero_step` for other backends than NCCL, as it is made.
///
/// # Errors
/// The error that PyTorch raises.
pub fn verify_zero_overlap(options: &DdpOptions, backend: BackendName) -> Result<(), DdpError> {
    match options.zero_overlap.is_some() && backend != BackendName::Nccl {
        true => Err(DdpError::ZeroOverlapBackend),
        false => Ok(()),
    }
}

/// The error of `ZeroRedundancyOptimizer`'s constructor for parameters of several types, trained or not.
///
/// # Errors
/// The error that PyTorch raises.
pub(crate) fn verify_zero_types(model: &Model, backend: BackendName) -> Result<(), DdpError> {
    let mut types = model.params.iter().map(|param| param.dtype);
    let Some(first) = types.next() else { return Ok(()) };
    match types.find(|dtype| *dtype != first) {
        Some(other) => Err(DdpError::ZeroTypes { first, other, cpu: backend != BackendName::Nccl }),
        None => Ok(()),
    }
}

/// A note on mixed precision if the module is on the CPU, as gloo's is here; `None` if mixed precision works.
/// The error that PyTorch raises depends on how it was built.
pub(super) fn mixed_precision_note(
    options: &DdpOptions,
    backend: BackendName,
) -> Option<&'static str> {
    (options.mixed_precision.is_some() && backend == BackendName::Gloo).then_some(
        "mixed_precision needs a GPU: DDP's constructor makes a stream, and raises a RuntimeError \
         (a CUDA error, where PyTorch was built for CUDA) on a machine with CPUs alone; this is what \
         it would communicate.",
    )
}

/// The error that `device_ids` with `devices` devices raises: more than one since 1.8, and any at all if the
/// module is on the CPU, as it is here for gloo's and Lockstep's own backend.
///
/// # Errors
/// The error that PyTorch's constructor raises.
pub fn verify_device_ids(
    options: &DdpOptions,
    backend: BackendName,
    devices: u32,
) -> Result<(), DdpError> {
    match options.version {
        DdpVersion::V1 => Ok(()),
        _ if devices > 1 => Err(DdpError::DeviceIds),
        _ if backend != BackendName::Nccl => {
            Err(DdpError::DeviceIdsOnCpu { device_ids: (0..devices).collect() })
        }
        _ => Ok(()),
    }
}
