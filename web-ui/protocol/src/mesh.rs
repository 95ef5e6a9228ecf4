//! A mesh of ranks, and the data that a collective along each of its dimensions moves.

use super::fabric::FabricAccount;
use super::machine::Machine;
use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;
use serde::{Deserialize, Serialize};

/// A question about a mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeshQuestion {
    /// Names and sizes, outermost first, as `init_device_mesh` takes them.
    pub dims: Vec<(String, u32)>,
    /// The collective.
    pub collective: Collective,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Elements a rank, float32.
    pub count: u64,
    /// The machine.
    pub machine: Machine,
}

/// A mesh as `init_device_mesh` lays it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshAccount {
    /// Per rank, its place along each dimension.
    pub coordinates: Vec<Vec<u32>>,
    /// The dimensions, outermost first.
    pub dims: Vec<DimAccount>,
    /// The fabric under it, on a named cluster.
    pub fabric: Option<FabricAccount>,
}

/// One dimension: its groups, and the collective in all of them at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimAccount {
    /// Its name.
    pub name: String,
    /// Global ranks of each group.
    pub groups: Vec<Vec<u32>>,
    /// Messages that stay on a node.
    pub inside: Moved,
    /// Messages from one node to another.
    pub across: Moved,
    /// The time of the collective in all groups at once, in picoseconds.
    pub time_ps: u64,
    /// Sender, receiver and bytes of every pair that talks.
    pub pairs: Vec<(u32, u32, u64)>,
}

impl DimAccount {
    /// A dimension of which nothing is known yet.
    pub fn new(name: &str) -> DimAccount {
        DimAccount {
            name: name.to_owned(),
            groups: Vec::new(),
            inside: Moved::default(),
            across: Moved::default(),
            time_ps: 0,
            pairs: Vec::new(),
        }
    }
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The number of messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl MeshAccount {
    /// The group of `rank` along a dimension, as an index and its members.
    pub fn group_of(&self, dim: usize, rank: u32) -> Option<(usize, &[u32])> {
        let groups = &self.dims.get(dim)?.groups;
        let index = groups.iter().position(|group| group.contains(&rank))?;
        Some((index, groups.get(index)?))
    }
}
