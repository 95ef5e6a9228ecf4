//! The errors between a rank and its device.

use std::path::PathBuf;

/// The reason that a rank cannot go on with its device, in one sentence each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error("{library} cannot be loaded from {path}: {why}")]
    Load { library: &'static str, path: PathBuf, why: String },
    #[error(
        "{path} has no function {symbol}, which {library} has had since {since}; install a newer one"
    )]
    Symbol { library: &'static str, path: PathBuf, symbol: &'static str, since: &'static str },
    #[error("{call} failed: {name} ({text})")]
    Cuda { call: &'static str, name: String, text: String },
    #[error("{call} failed: {text}")]
    Nvrtc { call: &'static str, text: String },
    #[error("the kernels do not compile for {architecture}: {log}")]
    Kernels { architecture: String, log: String },
    #[error("{call} failed: {text}{}", last_words(last))]
    Nccl { call: &'static str, text: String, last: String },
    #[error(
        "the GPU has no {asked} bytes in one piece ({free} are free, and others may use it too); \
         use smaller tensors, or fewer ranks on it"
    )]
    OutOfMemory { asked: u64, free: u64 },
    #[error("{call} did not finish within {seconds} s: a rank of the communicator did not come")]
    Late { call: &'static str, seconds: u64 },
    #[error("the communicator was aborted")]
    Aborted,
    #[error("CUDA's driver shows no GPU (cuDeviceGetCount says 0){}", visible(visible_devices))]
    NoDevice { visible_devices: Option<String> },
    #[error(
        "{ranks} ranks need {ranks} GPUs, but CUDA's driver shows {devices}{}; use fewer ranks, or \
         let ranks share a GPU (--share one-process)",
        visible(visible_devices)
    )]
    TooFewDevices { ranks: u32, devices: u32, visible_devices: Option<String> },
    #[error(
        "ranks {first} and {second} would share the GPU {bus_id} of this host, which NCCL refuses \
         as \"Duplicate GPU detected\"; give each rank a GPU of its own (look at \
         CUDA_VISIBLE_DEVICES), or let ranks share one (--share one-process)"
    )]
    DuplicateDevice { first: u32, second: u32, bus_id: String },
}

fn last_words(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!("; NCCL says: {last}") }
}

fn visible(devices: &Option<String>) -> String {
    match devices {
        Some(devices) => format!(" with CUDA_VISIBLE_DEVICES={devices}"),
        None => String::new(),
    }
}
