//! Ranks that differ: by what they do, in a few words.

use super::LabRun;
use super::words::count;
use serde::{Deserialize, Serialize};

/// Ranks that all do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabRole {
    /// The first of them.
    pub rank: u32,
    /// The ranks, in words.
    pub words: String,
}

impl LabRun<'_> {
    /// The kinds of ranks, where they differ; one alone where all do the same.
    pub fn roles(&self) -> Vec<LabRole> {
        let training = &self.setting.training;
        let words = |rank: u32| match &training.uneven {
            _ if training.devices > 1 && rank == 0 => "the first device of a process".to_owned(),
            _ if training.devices > 1 => "another device of a process".to_owned(),
            Some(uneven) => count(uneven.of(rank).into(), "input"),
            None => "all ranks".to_owned(),
        };
        let role = |rank: u32| LabRole { rank, words: words(rank) };
        self.run.roles.iter().map(|of| role(of.rank)).collect()
    }

    /// The kind that a rank is of, as an index into [`LabRun::roles`].
    pub fn role(&self, rank: u32) -> u32 {
        self.run.role(rank) as u32
    }

    /// The rank whose figures are told: rank 0, or the first of those that have inputs longest.
    pub fn principal(&self) -> u32 {
        let training = &self.setting.training;
        let Some(uneven) = &training.uneven else { return 0 };
        let most = uneven.most(training.world_size);
        let longest = self.run.roles.iter().find(|role| uneven.of(role.rank) == most);
        longest.map_or(0, |role| role.rank)
    }
}
