//! Algorithms and protocols by NCCL's names, and the settings that narrow its choice.

use std::fmt;

/// The algorithm by which NCCL carries out a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Double binary trees over the nodes, chains inside.
    Tree,
    /// Rings over all ranks.
    Ring,
    /// Reduction in the network's switches, every rank sends by its own NIC.
    CollNetDirect,
    /// Reduction in the network's switches, behind a chain inside the node.
    CollNetChain,
    /// Reduction in the NVLink switches.
    Nvls,
    /// Reduction in the NVLink switches, trees over the nodes.
    NvlsTree,
    /// Parallel aggregated trees.
    Pat,
    /// Sends and receives (alltoall and sendrecv are made of them).
    P2p,
}

impl Algorithm {
    /// Those that the tuner chooses among, in the order of its tables.
    pub const TUNED: [Self; 7] = [
        Self::Tree,
        Self::Ring,
        Self::CollNetDirect,
        Self::CollNetChain,
        Self::Nvls,
        Self::NvlsTree,
        Self::Pat,
    ];

    /// NCCL's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "Tree",
            Self::Ring => "Ring",
            Self::CollNetDirect => "CollNetDirect",
            Self::CollNetChain => "CollNetChain",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Pat => "PAT",
            Self::P2p => "P2P",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The protocol by which NCCL signals that data has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A flag with every 4 bytes.
    Ll,
    /// A flag with every 120 bytes.
    Ll128,
    /// A flag with every slice.
    Simple,
}

impl Protocol {
    /// All of them, in the order of the tuner's tables.
    pub const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// NCCL's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
            Self::Simple => "Simple",
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Ll => 0,
            Self::Ll128 => 1,
            Self::Simple => 2,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
