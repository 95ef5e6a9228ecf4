//! Backends by name, and which backend serves which device: `Backend` and `BackendConfig` of
//! `distributed_c10d.py`.

use super::error::{DistError, assertion_error, runtime_error, value_error};
use lockstep_core::group::BackendName;
use std::fmt;

/// The kinds of device that a tensor can be on, as far as the shipped backends serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// The host's memory.
    Cpu,
    /// An NVIDIA GPU: the rank's own.
    Cuda,
    /// An Intel GPU.
    Xpu,
}

impl Device {
    /// The name as `torch.device` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
            Device::Xpu => "xpu",
        }
    }

    fn parse(name: &str) -> Result<Device, DistError> {
        match name {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda),
            "xpu" => Ok(Device::Xpu),
            _ => Err(runtime_error(format!(
                "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, \
                 fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, privateuseone device type at \
                 start of device string: {name}"
            ))
            .with_help("Lockstep knows cpu, cuda and xpu.")),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A backend string as `init_process_group(backend=…)` takes it, in lower case: `gloo`, `nccl`,
/// `undefined` (chosen by the machine), `cpu:gloo,cuda:nccl`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend(String);

impl Backend {
    /// `Backend(name)`: any string, in lower case.
    pub fn new(name: &str) -> Backend {
        Backend(name.to_lowercase())
    }

    /// The backend of `init_process_group()` without one.
    pub fn undefined() -> Backend {
        Backend("undefined".into())
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `_get_default_timeout`: 10 minutes for exactly `nccl`, 30 for every other string, also for
    /// `cpu:gloo,cuda:nccl`. In milliseconds.
    pub fn default_timeout_ms(&self) -> u64 {
        match self.as_str() {
            "nccl" => BackendName::Nccl.default_timeout_ms(),
            _ => BackendName::Gloo.default_timeout_ms(),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The build and devices of a PyTorch, as far as they decide which backends are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CUDA devices that a rank sees: `torch.cuda.device_count()`.
    pub cuda_devices: u32,
    /// True if PyTorch was built with MPI; the wheels are not.
    pub mpi: bool,
}

/// Names that `Backend.backend_list` holds, with the devices each is made for; `host` is
/// Lockstep's own, as if a plugin had registered it.
const KNOWN: [(&str, &[Device]); 6] = [
    ("gloo", &[Device::Cpu, Device::Cuda]),
    ("nccl", &[Device::Cuda]),
    ("xccl", &[Device::Xpu]),
    ("ucc", &[Device::Cpu, Device::Cuda]),
    ("mpi", &[Device::Cpu, Device::Cuda]),
    ("host", &[Device::Cpu]),
];

/// `BackendConfig`: which backend serves which device of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    of_device: Vec<(Device, BackendName)>,
    text: String,
}

impl BackendConfig {
    /// The backends under another config's text: `get_backend_config` of a group that was split off.
    pub(super) fn called(self, like: &BackendConfig) -> BackendConfig {
        BackendConfig { text: like.text.clone(), ..self }
    }

    /// Reads a backend string, and checks that this machine has the backends that it names, in the order of
    /// `_new_process_group_helper`. Python's warnings are added to `warnings`.
    ///
    /// # Errors
    /// A string of the wrong form (`ValueError`), an unknown backend (`AssertionError`), or one that is
    /// missing (`RuntimeError`; `ValueError` for NCCL without a GPU).
    pub fn new(
        backend: &Backend,
        machine: &Machine,
        warnings: &mut Vec<String>,
    ) -> Result<BackendConfig, DistError> {
        let pairs = pairs(backend, machine, warnings)?;
        if !backend.as_str().contains([',', ':']) && backend.as_str() != "undefined" {
            let known = KNOWN.iter().any(|(name, _)| *name == backend.as_str());
            if !known {
                let help = match backend.as_str() {
                    "tcp" => "tcp was a backend up to PyTorch 0.4; today's on the CPU is gloo.",
                    _ => "The backends are gloo, nccl, mpi, and Lockstep's own host.",
                };
                return Err(
                    assertion_error(format!("Unknown backend type {backend}")).with_help(help)
                );
            }
        }
        let text: Vec<_> = pairs.iter().map(|(device, name)| format!("{device}:{name}")).collect();
        let mut of_device = Vec::new();
        for (device, name) in &pairs {
            let name = available(name, machine)?;
            of_device.push((Device::parse(device)?, name));
        }
        Ok(BackendConfig { of_device, text: text.join(",") })
    }

    /// The backend for tensors on `device`.
    ///
    /// # Errors
    /// `RuntimeError` when the group has none for it.
    pub(crate) fn for_device(&self, device: Device) -> Result<BackendName, DistError> {
        let found = self.of_device.iter().find(|(one, _)| *one == device);
        found.map(|(_, name)| *name).ok_or_else(|| {
            runtime_error(format!("No backend type associated with device type {device}"))
                .with_help(format!("The group has {}; move the tensor to a device it serves, or name a backend for {device}.", self.text))
        })
    }

    /// The backend of calls without a tensor: NCCL if the group has it, else the first.
    pub(crate) fn default_backend(&self) -> BackendName {
        let names = || self.of_device.iter().map(|(_, name)| *name);
        names()
            .find(|name| *name == BackendName::Nccl)
            .or(names().next())
            .unwrap_or(BackendName::Unknown)
    }

    /// The devices that the group serves, in order.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.of_device.iter().map(|(device, _)| *device)
    }

    /// `_get_object_coll_device`: where the tensors of object calls are made.
    pub(crate) fn object_device(&self) -> Device {
        match &self.of_device[..] {
            [] => Device::Cpu,
            [(device, _)] => *device,
            many if many.iter().any(|(device, _)| *device == Device::Cpu) => Device::Cpu,
            [(device, _), ..] => *device,
        }
    }
}

impl fmt::Display for BackendConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// (device, backend) as the string gives them.
fn pairs(
    backend: &Backend,
    machine: &Machine,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, String)>, DistError> {
    let text = backend.as_str();
    let owned = |device: &str, name: &str| (device.to_owned(), name.to_owned());
    if text == "undefined" {
        return Ok(vec![match machine.cuda_devices {
            0 => owned("cpu", "gloo"),
            _ => owned("cuda", "nccl"),
        }]);
    }
    if let Some((name, devices)) = KNOWN.iter().find(|(name, _)| *name == text) {
        return Ok(devices.iter().map(|device| owned(device.name(), name)).collect());
    }
    if !text.contains(':') {
        warnings.push(format!(
            "Device capability of {text} unknown, assuming `cpu` and `cuda`. You can specify it in \
             `device:backend` format in `init_process_group` call."
        ));
        return Ok(["cpu", "cuda", "xpu"].iter().map(|device| owned(device, text)).collect());
    }
    // PyTorch's literals carry the indentation of their source lines.
    let form = |backend: &str| {
        format!(
            "The custom backend string argument is invalid: {backend}.\n                \
             Custom backend string is an experimental feature where the backend string must be in \
             the format:\n                \
             \"<device_type1>:<backend1>,<device_type2>:<backend2>...\". e.g. 'cpu:gloo,cuda:nccl'"
        )
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split(',') {
        let Some((device, name)) = pair.split_once(':').filter(|(_, name)| !name.contains(':'))
        else {
            return Err(value_error(format!(
                "Invalid device:backend pairing:{:38}{pair}. {}",
                "",
                form(text)
            )));
        };
        if pairs.iter().any(|(seen, _)| seen == device) {
            return Err(value_error(format!(
                "Duplicate device type {device}{:38}in backend string: {name}. {}",
                "",
                form(text)
            )));
        }
        pairs.push(owned(device, name));
    }
    Ok(pairs)
}

/// The backend by its name, if this machine has it.
fn available(name: &str, machine: &Machine) -> Result<BackendName, DistError> {
    match name {
        "gloo" => Ok(BackendName::Gloo),
        "host" => Ok(BackendName::Host),
        "nccl" if machine.cuda_devices == 0 => {
            Err(value_error("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
                .with_help("Use gloo, or give the job's ranks a CUDA device."))
        }
        "nccl" => Ok(BackendName::Nccl),
        "mpi" if machine.mpi => Ok(BackendName::Mpi),
        "mpi" => Err(runtime_error(
            "Distributed package doesn't have MPI built in. MPI is only included if you build \
             PyTorch from source on a host that has MPI installed.",
        )),
        "xccl" => Err(runtime_error("Distributed package doesn't have XCCL built in")),
        other => {
            Err(assertion_error(format!("Unknown c10d backend type {}", other.to_uppercase())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Machine = Machine { cuda_devices: 0, mpi: false };
    const GPU: Machine = Machine { cuda_devices: 1, mpi: false };

    fn config(name: &str, machine: &Machine) -> Result<BackendConfig, String> {
        BackendConfig::new(&Backend::new(name), machine, &mut Vec::new())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn strings_name_a_backend_per_device() {
        let both = config("CPU:gloo,cuda:NCCL", &GPU).unwrap();
        assert_eq!(both.to_string(), "cpu:gloo,cuda:nccl");
        assert_eq!(both.for_device(Device::Cpu), Ok(BackendName::Gloo));
        assert_eq!(both.for_device(Device::Cuda), Ok(BackendName::Nccl));
        assert_eq!(
            (both.default_backend(), both.object_device()),
            (BackendName::Nccl, Device::Cpu)
        );
        let nccl = config("nccl", &GPU).unwrap();
        assert_eq!(nccl.object_device(), Device::Cuda);
        let error = nccl.for_device(Device::Cpu).unwrap_err();
        assert_eq!(error.text, "No backend type associated with device type cpu");
        assert_eq!(config("undefined", &CPU).unwrap().to_string(), "cpu:gloo");
        assert_eq!(config("undefined", &GPU).unwrap().to_string(), "cuda:nccl");
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert!(
            config("cpu:gloo,cpu:nccl", &GPU).unwrap_err().contains("Duplicate device type cpu")
        );
        assert!(config("cpu:gloo:x", &GPU).unwrap_err().contains("Invalid device:backend pairing"));
        assert!(config("ucc", &CPU).unwrap_err().contains("Unknown c10d backend type UCC"));
        assert!(config("cpu:foo", &CPU).unwrap_err().contains("Unknown c10d backend type FOO"));
        assert!(config("toaster:gloo", &CPU).unwrap_err().contains("device string: toaster"));
        assert!(config("mpi", &Machine { mpi: true, ..CPU }).is_ok());
    }

    #[test]
    fn only_the_string_nccl_itself_has_ten_minutes() {
        assert_eq!(Backend::new("NCCL").default_timeout_ms(), 600_000);
        assert_eq!(Backend::new("cpu:gloo,cuda:nccl").default_timeout_ms(), 1_800_000);
        assert_eq!(Backend::undefined().default_timeout_ms(), 1_800_000);
    }
}
