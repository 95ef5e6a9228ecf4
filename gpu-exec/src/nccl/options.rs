//! The options for running plans on GPUs, and the setup that a rank's process gets of them.

use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Options of the `nccl` backend. The default is that of a job of PyTorch: NCCL's own collectives, a GPU a
/// rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NcclOptions {
    /// Folders in which the libraries are looked for first.
    pub libraries: Vec<PathBuf>,
    /// Looks nowhere else: not in the system's folders and not in those of Python's packages.
    pub only_there: bool,
    /// The code that carries out a collective.
    pub collectives: Collectives,
    /// The sharing of a GPU by ranks without one of their own.
    pub sharing: Sharing,
}

/// The code that carries out a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collectives {
    /// NCCL's own, which choose their algorithm themselves.
    #[default]
    Library,
    /// The plan's schedules: grouped sends and receives, and our own kernels that reduce.
    Schedules,
}

/// The ways in which ranks share GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// Not at all: a machine with fewer GPUs than ranks refuses the plan.
    #[default]
    None,
    /// All ranks are logical: streams and buffers of one process on one GPU, which exchange
    /// messages by copies on the device. Needs no NCCL, and follows the plan's schedules.
    OneProcess,
    /// A process a rank, each of which makes NCCL believe that it is on a host of its own (`NCCL_HOSTID`):
    /// ranks then talk through sockets. From reading NCCL's source; run on one H200 with NCCL 2.28.3.
    HostIds,
    /// A process a rank, with `NCCL_MULTI_RANK_GPU_ENABLE=1` of NCCL 2.30.3 and later. Untested.
    MultiRank,
}

/// The setup of a rank's device, for its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceSetup {
    pub(crate) cuda: PathBuf,
    pub(crate) nvrtc: PathBuf,
    /// Absent where ranks are logical.
    pub(crate) nccl: Option<PathBuf>,
    pub(crate) collectives: Collectives,
    pub(crate) sharing: Sharing,
}

impl DeviceSetup {
    /// True if one process carries all ranks.
    pub(crate) fn one_process(&self) -> bool {
        self.sharing == Sharing::OneProcess
    }

    /// The variables that a rank's process gets in its environment besides the coordinator's.
    pub(crate) fn environment(&self, rank: GlobalRank, world_size: u32) -> Vec<(String, String)> {
        let mut all = vec![
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("WORLD_SIZE", world_size.to_string()),
            // Loading a kernel at its first launch waits for the device, and so for ever behind a
            // collective whose peer has not come.
            ("CUDA_MODULE_LOADING", "EAGER".to_owned()),
        ];
        all.extend(self.sharing.environment(rank.0));
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Sharing {
    /// The variables that a rank's process needs in its environment.
    pub fn environment(self, rank: u32) -> Vec<(&'static str, String)> {
        match self {
            Sharing::None => Vec::new(),
            // Streams that share a connection wait for each other: two of them could never end.
            Sharing::OneProcess => vec![("CUDA_DEVICE_MAX_CONNECTIONS", "32".to_owned())],
            Sharing::HostIds => vec![
                ("NCCL_HOSTID", format!("lockstep-{rank}")),
                ("NCCL_SOCKET_IFNAME", "lo".to_owned()),
                ("NCCL_MNNVL_ENABLE", "0".to_owned()),
                ("NCCL_NET", "Socket".to_owned()),
                ("NCCL_IB_DISABLE", "1".to_owned()),
            ],
            Sharing::MultiRank => vec![
                ("NCCL_MULTI_RANK_GPU_ENABLE", "1".to_owned()),
                ("NCCL_NVLS_ENABLE", "0".to_owned()),
            ],
        }
    }
}

/// Several ranks' devices in few words: `2 × NVIDIA H200, …`; those that differ one by one.
pub(crate) fn describe_devices(devices: &[String], ranks: u32) -> String {
    match devices {
        [] => format!("{ranks} ranks on devices that did not tell their names"),
        [one] if ranks > 1 => format!("{ranks} logical ranks on one {one}"),
        [first, rest @ ..] if rest.iter().all(|device| device == first) => match rest.len() {
            0 => first.clone(),
            more => format!("{} × {first}", more + 1),
        },
        several => several.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::describe_devices;

    #[test]
    fn devices_in_few_words() {
        let h200 = || "NVIDIA H200".to_owned();
        assert_eq!(describe_devices(&[h200()], 1), "NVIDIA H200");
        assert_eq!(describe_devices(&[h200()], 4), "4 logical ranks on one NVIDIA H200");
        assert_eq!(describe_devices(&[h200(), h200()], 2), "2 × NVIDIA H200");
        assert_eq!(describe_devices(&[h200(), "NVIDIA L4".into()], 2), "NVIDIA H200; NVIDIA L4");
    }
}
