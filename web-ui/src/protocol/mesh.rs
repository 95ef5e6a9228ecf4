//! A mesh of ranks, and what a collective along each of its dimensions moves.

use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::{Cost, Topology};
use serde::{Deserialize, Serialize};

/// What is asked of a mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeshQuestion {
    /// Names and sizes, outermost first, as `init_device_mesh` takes them.
    pub(crate) dims: Vec<(String, u32)>,
    pub(crate) collective: Collective,
    pub(crate) algorithm: Algorithm,
    /// Elements a rank, float32.
    pub(crate) count: u64,
    pub(crate) topology: Topology,
}

/// A mesh as `init_device_mesh` lays it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeshAccount {
    /// Per rank, its place along each dimension.
    pub(crate) coordinates: Vec<Vec<u32>>,
    pub(crate) dims: Vec<DimAccount>,
}

/// One dimension: its groups, and the collective in all of them at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DimAccount {
    pub(crate) name: String,
    /// Global ranks of each group.
    pub(crate) groups: Vec<Vec<u32>>,
    pub(crate) inside: Moved,
    pub(crate) across: Moved,
    pub(crate) cost: Cost,
    /// Sender, receiver and bytes of every pair that talks.
    pub(crate) pairs: Vec<(u32, u32, u64)>,
}

impl DimAccount {
    /// A dimension of which nothing is known yet.
    pub(crate) fn new(name: &str) -> DimAccount {
        DimAccount {
            name: name.to_owned(),
            groups: Vec::new(),
            inside: Moved::default(),
            across: Moved::default(),
            cost: Cost::default(),
            pairs: Vec::new(),
        }
    }
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl MeshAccount {
    /// The group of `rank` along a dimension, as an index and its members.
    pub(crate) fn group_of(&self, dim: usize, rank: u32) -> Option<(usize, &[u32])> {
        let groups = &self.dims.get(dim)?.groups;
        let index = groups.iter().position(|group| group.contains(&rank))?;
        Some((index, groups.get(index)?))
    }
}
