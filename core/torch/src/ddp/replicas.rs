//! One process on several devices, as the 1.x source has it (`device_ids` of more than one; taken
//! out in 1.8): a replica of the module on every device.
//!
//! - Before a forward pass that follows one that synchronized, the parameters are copied from the
//!   first device to the others (`torch.cuda.comm.broadcast_coalesced`); so are the buffers, behind
//!   their broadcast between processes (`DistributedDataParallel._sync_params`). Copies are flat
//!   buffers that are full when they reach 250 MiB, a type at a time.
//! - A bucket is ready when the gradients of *all* replicas are. It is one `all_reduce` of as many
//!   tensors (`Reducer::mark_bucket_ready`): NCCL's ring has processes x devices members, and adds
//!   all of them. The sum is divided by the number of processes alone, since the loss is that of
//!   the outputs of all replicas, gathered on one device.
//! - Before there was a reducer (1.0), `reduce_add_coalesced` added up the replicas' gradients of a
//!   bucket on the first device, that sum alone was reduced between processes, and copied back to
//!   the others.

use super::buckets::{ItemOrder, SizedTensor, assign_by_size};
use super::error::DdpError;
use super::model::Model;
use super::options::{DdpOptions, DdpVersion};
use super::wrapper::BROADCAST_BUCKET_BYTES;
use lockstep_core::dtype::Dtype;
use serde::Serialize;

/// The extra work of a process with several devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replicas {
    /// Devices of a process.
    pub devices: u32,
    /// Copies of parameters before a forward pass, each from the first device to all others.
    pub params: Vec<DeviceCopy>,
    /// The copies of buffers.
    pub buffers: Vec<DeviceCopy>,
    /// Members of the ring that reduces a bucket.
    pub members: u64,
    /// The divisor of a bucket's sum.
    pub divisor: u32,
}

/// Tensors that are copied between devices of a process as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceCopy {
    /// Their type.
    pub dtype: Dtype,
    /// Their elements.
    pub numel: u64,
}

impl Replicas {
    /// The work of processes with so many devices each.
    ///
    /// # Errors
    /// When the PyTorch that is followed is not 1.x.
    pub fn of(
        model: &Model,
        options: &DdpOptions,
        world_size: u32,
        devices: u32,
    ) -> Result<Replicas, DdpError> {
        if options.version != DdpVersion::V1 && devices > 1 {
            return Err(DdpError::DeviceIds);
        }
        let kept = |name: &String| !options.ignored.contains(name);
        let params = model.params.iter().filter(|param| kept(&param.name));
        let params = params.map(|param| (param.dtype, param.numel()));
        let buffers = model.buffers.iter().filter(|buffer| kept(&buffer.name));
        let buffers = buffers.map(|buffer| (buffer.dtype, buffer.numel()));
        Ok(Replicas {
            devices,
            params: copies(params, devices),
            buffers: match options.broadcast_buffers {
                true => copies(buffers, devices),
                false => Vec::new(),
            },
            members: u64::from(world_size) * u64::from(devices.max(1)),
            divisor: world_size,
        })
    }
}

/// `take_tensors` (`tensor_flatten.cpp`): the rule of DDP's own broadcasts.
fn copies(tensors: impl Iterator<Item = (Dtype, u64)>, devices: u32) -> Vec<DeviceCopy> {
    if devices <= 1 {
        return Vec::new();
    }
    let tensors: Vec<_> = (0..)
        .zip(tensors)
        .map(|(index, (dtype, numel))| {
            let bytes = numel.saturating_mul(dtype.size_bytes());
            SizedTensor { index, dtype, bytes, sparse: false }
        })
        .collect();
    let chunks = assign_by_size(&tensors, &[BROADCAST_BUCKET_BYTES], ItemOrder::Registration);
    let copies = chunks.iter().filter_map(|chunk| {
        let first = tensors.get(*chunk.indices.first()? as usize)?;
        Some(DeviceCopy {
            dtype: first.dtype,
            numel: chunk.bytes / first.dtype.size_bytes().max(1),
        })
    });
    copies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::model::named;

    #[test]
    fn replicas_are_copied_in_buffers_and_reduced_as_one_ring() {
        let options = DdpOptions { version: DdpVersion::V1, ..DdpOptions::default() };
        let of = |name: &str, devices| {
            Replicas::of(&named(name).unwrap(), &options, 3, devices).unwrap()
        };
        let four = of("resnet18", 4);
        assert_eq!(four.params, [DeviceCopy { dtype: Dtype::Float32, numel: 11_689_512 }]);
        let buffers: Vec<_> = four.buffers.iter().map(|copy| (copy.dtype, copy.numel)).collect();
        assert_eq!(buffers, [(Dtype::Float32, 9_600), (Dtype::Int64, 20)]);
        assert_eq!((four.members, four.divisor), (12, 3));
        // As DDP's own broadcasts of the same tensors: GPT-2 small's 498 MB are two.
        let gpt2: Vec<_> = of("gpt2", 2).params.iter().map(|copy| 4 * copy.numel).collect();
        assert_eq!(gpt2.len(), 2);
        assert!(gpt2[0] >= 250 << 20 && gpt2[0] + gpt2[1] == 4 * 124_439_808);
        assert_eq!(of("resnet18", 1).params, []);
        let new = DdpOptions::default();
        let error = Replicas::of(&named("resnet18").unwrap(), &new, 2, 2).unwrap_err();
        assert!(error.to_string().contains("device_ids"), "{error}");
    }
}
