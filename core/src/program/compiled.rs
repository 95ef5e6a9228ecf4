//! What is asked of a program, and what comes of it: the words that a page and the module that
//! executes programs for it have in common.

use super::ProgramError;
use crate::plan::Plan;
use crate::rank::GlobalRank;
use serde::{Deserialize, Serialize};

/// What a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of text.
    pub text_bytes: usize,
    /// Function calls and turns of loops of one rank.
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
            ticks: 2_000_000,
            heap_bytes: 256 << 20,
            world_size: 4096,
            ops: 20_000_000,
        }
    }
}

/// What is said about a program from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Instead of what `run` says.
    pub world_size: Option<u32>,
    /// Instead of what `run` says.
    pub ranks_per_node: Option<u32>,
    /// The timeout of every group, instead of what the program says.
    pub timeout_ms: Option<u64>,
    /// What a program may use.
    pub limits: Limits,
}

/// A program as a plan, and what else came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// The topology that `run` names, if it does.
    pub topology: Option<String>,
    /// What the ranks printed: rank, line of the program, text.
    pub printed: Vec<(GlobalRank, u32, String)>,
    /// Ranks that raised, and what. Ranks that raised the same stand together.
    pub raised: Vec<(Vec<GlobalRank>, ProgramError)>,
    /// What is open in the program, and how it was taken, by line: which rank is first in a store.
    pub assumed: Vec<(u32, String)>,
}
