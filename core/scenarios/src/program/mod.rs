//! The options of a program, and its results: the words that a page and the module that executes
//! programs for it have in common.

mod error;

pub use error::ProgramError;

use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};

/// The resources that a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of text.
    pub text_bytes: usize,
    /// Function calls, comparisons and turns of loops of one rank.
    pub ticks: u64,
    /// Bytes of values of one rank. Kept to as well as the interpreter can.
    pub heap_bytes: usize,
    /// Ranks.
    pub world_size: u32,
    /// Operations of all ranks together.
    pub ops: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            text_bytes: 1 << 20,
            ticks: 6_000_000,
            heap_bytes: 256 << 20,
            world_size: 4096,
            ops: 20_000_000,
        }
    }
}

/// The facts about a program that are given from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Overrides the world size of `run`.
    pub world_size: Option<u32>,
    /// Overrides the ranks per node of `run`.
    pub ranks_per_node: Option<u32>,
    /// The timeout of every group, in milliseconds; overrides the program's.
    pub timeout_ms: Option<u64>,
    /// The arguments of the script, as `argparse` gets them: `--epochs`, `1`.
    pub arguments: Vec<String>,
    /// The number of optimizer steps after which each rank ends.
    #[serde(default)]
    pub steps: Option<u32>,
    /// The files beside the program that it may import, by their paths from its folder: `utils.py`,
    /// `models/net.py`.
    #[serde(default)]
    pub files: Vec<(String, String)>,
    /// The resources that the program may use.
    pub limits: Limits,
}

/// A program as a plan, and the other results of its execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// The topology that `run` names, if it does.
    pub topology: Option<String>,
    /// The output of the ranks as far as nothing keeps them waiting.
    pub printed: Vec<Printed>,
    /// Ranks that raised, and their error. Ranks with the same error are grouped.
    pub raised: Vec<(Vec<GlobalRank>, ProgramError)>,
    /// The open choices of the program, and how they were taken, by line: which rank is first in a store.
    pub assumed: Vec<(u32, String)>,
}

/// An output of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// The rank that prints.
    pub rank: GlobalRank,
    /// The line of the program.
    pub line: u32,
    /// The text.
    pub text: String,
    /// The number of operations of its plan's program that come before it: it prints once it goes
    /// on from the last of them.
    pub after: u32,
}

impl Printed {
    /// True if the rank reaches the output, given the number of operations that each rank has ended: a rank
    /// does not print anything behind a call that never completes.
    pub fn is_reached(&self, ended_ops: &[u32]) -> bool {
        ended_ops.get(self.rank.index()).is_some_and(|ended| self.after <= *ended)
    }
}
