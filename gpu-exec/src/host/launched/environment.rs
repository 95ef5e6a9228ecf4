//! The identity of a process, as launchers give it in the environment: torchrun's variables
//! (PyTorch's `env://` rendezvous, `torch/distributed/rendezvous.py` of 2.7), or Open MPI's,
//! MPICH's and Slurm's own.

use lockstep_core::rank::GlobalRank;
use std::path::PathBuf;

/// PyTorch's default port.
const DEFAULT_PORT: u16 = 29500;

/// The variables that each launcher names differently: rank, world size, rank on the node.
const LAUNCHERS: [(&str, [&str; 3]); 4] = [
    ("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_RANK"]),
    ("Open MPI", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"]),
    ("MPICH", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"]),
    ("Slurm", ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"]),
];

/// One process of a job that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher whose variables were found.
    pub by: &'static str,
    /// The rank of this process.
    pub rank: GlobalRank,
    /// The number of ranks.
    pub world_size: u32,
    /// The rank among those on its node, if the launcher says.
    pub local_rank: Option<u32>,
    /// The host that the store is on, or will be on: a name or an address.
    pub master_addr: String,
    /// Its port.
    pub master_port: u16,
    /// True if another process serves the store: a torchrun agent.
    pub store_is_served: bool,
    /// The file in which ranks find each other, if they do not at an address.
    pub file: Option<PathBuf>,
    /// The number of times the launcher has started the job again.
    pub attempt: u32,
}

/// The reason that the environment does not identify a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// No launcher's variables.
    #[error(
        "this process was started by no launcher: neither RANK and WORLD_SIZE (torchrun, \
         Kubernetes), nor OMPI_COMM_WORLD_RANK (mpirun), PMI_RANK (MPICH) or SLURM_PROCID (srun) \
         is set. Try torchrun --no-python --nproc-per-node=2 lockstep rank --plan FILE, or \
         lockstep run for ranks on this machine"
    )]
    NoLauncher,
    /// A variable that is needed besides.
    #[error("{has} is set, as by {by}, but {lacks} is not set{help}")]
    Lacks {
        /// The launcher.
        by: &'static str,
        /// The variables that are there.
        has: &'static str,
        /// The variables that are missing.
        lacks: &'static str,
        /// The advice.
        help: &'static str,
    },
    /// A variable that is no number, or none that can be.
    #[error("{name} is {value:?}; {expected}")]
    Bad {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The expected value, in words.
        expected: &'static str,
    },
}

impl Launch {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// When no launcher has set the process's rank.
    pub fn from_environment() -> Result<Launch, LaunchError> {
        Launch::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads a launch from any variables.
    ///
    /// # Errors
    /// When no launcher has set the process's rank.
    pub(crate) fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Launch, LaunchError> {
        let found = LAUNCHERS.iter().find(|(_, names)| variable(names[0]).is_some());
        let Some(&(by, [rank_name, size_name, local_name])) = found else {
            return Err(LaunchError::NoLauncher);
        };
        let number = |name: &'static str| -> Result<Option<u32>, LaunchError> {
            let Some(value) = variable(name) else { return Ok(None) };
            let expected = "it should be a whole number";
            let parsed = value.trim().parse();
            parsed.map(Some).map_err(|_| LaunchError::Bad { name, value, expected })
        };
        let lacks = |lacks, help| LaunchError::Lacks { by, has: rank_name, lacks, help };
        let rank = number(rank_name)?.ok_or(LaunchError::NoLauncher)?;
        let world_size = number(size_name)?.ok_or_else(|| lacks(size_name, ""))?;
        if rank >= world_size {
            let (value, expected) = (rank.to_string(), "it should be below the world size");
            return Err(LaunchError::Bad { name: rank_name, value, expected });
        }
        let master_addr = match variable("MASTER_ADDR").filter(|address| !address.is_empty()) {
            Some(address) => address,
            // One process alone needs nobody's address.
            None if world_size == 1 => "127.0.0.1".to_owned(),
            None => {
                let help = "; give the name or address of rank 0's machine: MASTER_ADDR=node0 before \
                            the command, -x MASTER_ADDR=node0 (mpirun), \
                            --export=ALL,MASTER_ADDR=node0 (srun), or --rendezvous tcp://node0:29500";
                return Err(lacks("MASTER_ADDR", help));
            }
        };
        let master_port = match number("MASTER_PORT")? {
            None => DEFAULT_PORT,
            Some(port) => u16::try_from(port).map_err(|_| LaunchError::Bad {
                name: "MASTER_PORT",
                value: port.to_string(),
                expected: "a port is at most 65535",
            })?,
        };
        Ok(Launch {
            by,
            rank: GlobalRank(rank),
            world_size,
            local_rank: number(local_name)?,
            master_addr,
            master_port,
            store_is_served: variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
            file: None,
            attempt: number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Launch, LaunchError> {
        Launch::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_launcher_says_it_in_its_own_words() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "1234"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            // Under Slurm, torchrun's are the ones that count.
            ("SLURM_PROCID", "0"),
        ];
        let launch = read(&torchrun).unwrap();
        assert_eq!((launch.by, launch.rank.0, launch.world_size), ("torchrun", 3, 4));
        assert_eq!((launch.local_rank, launch.attempt), (Some(1), 2));
        assert_eq!((&*launch.master_addr, launch.master_port), ("node0", 1234));
        assert!(launch.store_is_served);
        for (names, by) in [
            (["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], "Open MPI"),
            (["PMI_RANK", "PMI_SIZE"], "MPICH"),
            (["SLURM_PROCID", "SLURM_NTASKS"], "Slurm"),
        ] {
            let launch = read(&[(names[0], "0"), (names[1], "2"), ("MASTER_ADDR", "a")]).unwrap();
            assert_eq!((launch.by, launch.world_size, launch.master_port), (by, 2, 29500));
            assert!(!launch.store_is_served);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let refusal = |variables: &[_]| read(variables).unwrap_err().to_string();
        assert!(refusal(&[]).contains("torchrun --no-python"));
        assert!(refusal(&[("RANK", "0")]).contains("WORLD_SIZE is not set"));
        let alone = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        assert!(refusal(&alone).contains("MASTER_ADDR is not set"));
        assert!(refusal(&[("RANK", "x")]).contains("RANK is \"x\""));
        assert!(refusal(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("below the world size"));
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap().master_addr, "127.0.0.1");
    }
}
