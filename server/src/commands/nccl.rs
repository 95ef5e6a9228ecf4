//! The options of a command line for the nccl backend.

use anyhow::{Result, bail};
use lockstep_core::group::BackendName;
use lockstep_gpu_exec::{
    Backend, Collectives, NcclBackend, NcclOptions, RankLauncher, RunError, Sharing,
};
use serde::Deserialize;
use std::path::PathBuf;

/// The options of the nccl backend.
#[derive(Debug, Default, clap::Args, Deserialize)]
pub(crate) struct NcclArguments {
    /// nccl: what carries out a collective
    #[arg(long, value_enum)]
    collectives: Option<CollectivesChoice>,
    /// nccl: how ranks share a GPU
    #[arg(long, value_enum)]
    share: Option<ShareChoice>,
    /// nccl: look for CUDA, NVRTC and NCCL here first; may be given more than once
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    libraries: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CollectivesChoice {
    /// NCCL's own, which choose their algorithm themselves (the default)
    Library,
    /// The plan's schedules: grouped sends and receives, and kernels that reduce
    Schedules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShareChoice {
    /// Not at all: a GPU a rank (the default)
    None,
    /// All ranks in one process on one GPU, by the plan's schedules and without NCCL
    OneProcess,
    /// A process a rank, each a host of its own for NCCL (NCCL_HOSTID)
    HostIds,
    /// A process a rank, with NCCL_MULTI_RANK_GPU_ENABLE of NCCL 2.30.3; untested
    MultiRank,
}

impl ShareChoice {
    /// The library's own word for it.
    pub(crate) fn sharing(self) -> Sharing {
        match self {
            ShareChoice::None => Sharing::None,
            ShareChoice::OneProcess => Sharing::OneProcess,
            ShareChoice::HostIds => Sharing::HostIds,
            ShareChoice::MultiRank => Sharing::MultiRank,
        }
    }
}

impl NcclArguments {
    /// The options that a request to the service may give: no folder that code is loaded from.
    pub(crate) const IN_A_REQUEST: [&str; 2] = ["collectives", "share"];

    /// The backend of that name, set up so.
    pub(crate) fn backend(
        &self,
        name: BackendName,
        launcher: RankLauncher,
    ) -> Result<Box<dyn Backend>, RunError> {
        match name {
            BackendName::Nccl => Ok(Box::new(NcclBackend::new(launcher, &self.options())?)),
            other => lockstep_gpu_exec::backend(other, launcher),
        }
    }

    /// Checks that options of nccl are given only for the nccl backend.
    ///
    /// # Errors
    /// An option of nccl is given for another backend.
    pub(crate) fn check_for(&self, name: BackendName) -> Result<()> {
        if name == BackendName::Nccl {
            return Ok(());
        }
        if self.collectives.is_some() || self.share.is_some() || !self.libraries.is_empty() {
            bail!("collectives, share and libraries are options of the backend nccl, not {name}");
        }
        Ok(())
    }

    /// True if floats are added in an order that none of Lockstep's schedules has.
    pub(crate) fn own_order(&self, name: BackendName) -> bool {
        let options = self.options();
        name == BackendName::Nccl
            && options.collectives == Collectives::Library
            && options.sharing != Sharing::OneProcess
    }

    fn options(&self) -> NcclOptions {
        NcclOptions {
            libraries: self.libraries.clone(),
            collectives: match self.collectives {
                None | Some(CollectivesChoice::Library) => Collectives::Library,
                Some(CollectivesChoice::Schedules) => Collectives::Schedules,
            },
            sharing: self.share.map_or(Sharing::None, ShareChoice::sharing),
            ..NcclOptions::default()
        }
    }
}
