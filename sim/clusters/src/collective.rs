//! The operations whose time is predicted, as nccl-tests names and measures them.

use std::fmt;
use std::str::FromStr;

/// An operation of NCCL or of nccl-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank ends with the sum over all ranks.
    AllReduce,
    /// Every rank ends with the pieces of all ranks.
    AllGather,
    /// Every rank ends with its piece of the sum.
    ReduceScatter,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the sum.
    Reduce,
    /// Every rank sends a piece of its buffer to every rank.
    AllToAll,
    /// Every rank sends its buffer to the next rank and receives from the one before.
    SendRecv,
}

/// A name that no collective has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no collective is called {name}: known are all_reduce, all_gather, reduce_scatter, broadcast, \
     reduce, alltoall, sendrecv"
)]
pub struct UnknownCollective {
    /// The name as it was given.
    pub name: String,
}

impl Collective {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::SendRecv,
    ];

    /// Its name in tables and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::SendRecv => "sendrecv",
        }
    }

    /// Bus bandwidth divided by algorithm bandwidth for `ranks` ranks (nccl-tests, PERFORMANCE.md).
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            Self::Broadcast | Self::Reduce | Self::SendRecv => 1.0,
        }
    }

    /// Steps of a ring of `ranks` ranks (NCCL, `src/graph/tuning.cc`).
    #[must_use]
    pub fn ring_steps(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (n - 1.0),
            Self::AllGather | Self::ReduceScatter => n - 1.0,
            Self::Broadcast | Self::Reduce => n,
            Self::AllToAll | Self::SendRecv => 1.0,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = UnknownCollective;

    /// The collective of this name, as nccl-tests call their programs (`all_reduce_perf`) and NCCL its functions
    /// (`ncclAllReduce`) too.
    fn from_str(name: &str) -> Result<Self, UnknownCollective> {
        let program = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let plain: String =
            program.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect();
        let plain = plain.strip_prefix("nccl").unwrap_or(&plain);
        let plain = plain.strip_suffix("mpi").unwrap_or(plain);
        let plain = plain.strip_suffix("perf").unwrap_or(plain);
        Ok(match plain {
            "allreduce" => Self::AllReduce,
            "allgather" => Self::AllGather,
            "reducescatter" => Self::ReduceScatter,
            "broadcast" => Self::Broadcast,
            "reduce" => Self::Reduce,
            "alltoall" => Self::AllToAll,
            "sendrecv" => Self::SendRecv,
            _ => return Err(UnknownCollective { name: name.to_owned() }),
        })
    }
}
