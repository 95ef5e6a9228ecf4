//! Schedules: how one collective is carried out, as chunk-level actions per rank and step.
//!
//! A schedule is a *function* of (rank, step): nothing is materialised for the whole world. It
//! speaks of chunks, never of bytes, so one proof ([`prove`]) holds for every element count. The
//! primitives are NCCL's (`src/device/prims_simple.h`: send, recv, recvReduceCopy, copy).
//!
//! Laws that every schedule keeps, and that [`prove`] checks:
//! - what is sent from rank a to rank b in step s is received by b from a in its own step s, and
//!   there is at most one such message;
//! - the actions of one rank's step do not touch each other's memory (no region is written by one
//!   and read or written by another), so they may run in any order or at once.

mod action;
mod algorithm;
mod bruck;
mod chain;
mod direct;
mod dissemination;
mod double_tree;
mod fold;
mod kary_tree;
mod layout;
mod one_shot;
mod pairwise;
mod proof;
mod recursive_doubling;
mod recursive_halving;
mod ring;
mod scatter_all_gather;
mod tally;
mod tree;

pub use action::{Action, Buffer, Slice};
pub use algorithm::Algorithm;
pub use layout::{Grid, Layout};
pub use proof::{Proof, ProofError, prove};
pub use tally::{RankTally, Tally};

use crate::collective::Collective;
use crate::rank::GroupRank;
use std::fmt;

/// Why there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A group of no ranks.
    #[error("{collective} needs a group of at least one rank")]
    EmptyGroup {
        /// The call.
        collective: Collective,
    },
    /// The root is no member.
    #[error("{collective}: root {root} is outside the group of {size} ranks (0 to {})", size - 1)]
    RootOutside {
        /// The call.
        collective: Collective,
        /// The root that was asked for.
        root: GroupRank,
        /// The group's size.
        size: u32,
    },
    /// The family has no schedule for the call.
    #[error("{collective} has no {algorithm} schedule; choose one of: {}", names(*collective))]
    NotCarriedOutBy {
        /// The call.
        collective: Collective,
        /// The family that was asked for.
        algorithm: Algorithm,
    },
}

fn names(collective: Collective) -> String {
    Algorithm::of(collective).iter().map(|a| a.name()).collect::<Vec<_>>().join(", ")
}

/// A collective carried out by an algorithm in a group of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    collective: Collective,
    algorithm: Algorithm,
    size: u32,
}

impl Schedule {
    /// The schedule of `collective` by `algorithm` among `size` ranks.
    ///
    /// # Errors
    /// When the group is empty, the root is outside it, or the algorithm does not apply.
    pub fn new(
        collective: Collective,
        algorithm: Algorithm,
        size: u32,
    ) -> Result<Schedule, ScheduleError> {
        if size == 0 {
            return Err(ScheduleError::EmptyGroup { collective });
        }
        if let Some(root) = collective.root().filter(|root| root.0 >= size) {
            return Err(ScheduleError::RootOutside { collective, root, size });
        }
        if !Algorithm::of(collective).contains(&algorithm) {
            return Err(ScheduleError::NotCarriedOutBy { collective, algorithm });
        }
        Ok(Schedule { collective, algorithm, size })
    }

    /// What it carries out.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// By which family.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Among how many ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of steps, the same for every rank; a rank may have nothing to do in some.
    pub fn steps(&self) -> u32 {
        let n = self.size;
        match (self.algorithm, self.collective) {
            (Algorithm::Ring, Collective::AllReduce { .. }) => 2 * (n - 1),
            (Algorithm::BidirectionalRing, _) => 2 * (n - 1),
            (Algorithm::Ring, _) => (n - 1).max(1),
            (Algorithm::Tree, Collective::AllReduce { .. }) => 2 * tree::depth(n),
            (Algorithm::Tree, Collective::Barrier) => tree::barrier_steps(n),
            (Algorithm::Tree, _) => tree::depth(n),
            (Algorithm::Dissemination, _) => dissemination::rounds(n),
            (Algorithm::Direct, collective) => direct::steps(collective, n),
            (Algorithm::RecursiveDoubling, collective) => recursive_doubling::steps(collective, n),
            (Algorithm::RecursiveHalving | Algorithm::HalvingDoubling, collective) => {
                recursive_halving::steps(collective, n)
            }
            (Algorithm::TwoShot, _) => direct::two_shot_steps(n),
            (Algorithm::OneShot, _) => one_shot::steps(n),
            (Algorithm::DoubleBinaryTree, _) => double_tree::steps(n),
            (Algorithm::Bruck, collective) => bruck::steps(collective, n),
            (Algorithm::Pairwise, _) => pairwise::steps(n),
            (Algorithm::Chain, _) => chain::steps(n),
            (Algorithm::KaryTree, collective) => kary_tree::steps(collective, n),
            (Algorithm::ScatterAllGather, _) => scatter_all_gather::steps(n),
        }
    }

    /// How many chunks `buffer` is cut into on `rank`; 0 when the rank has no such buffer.
    pub fn chunks(&self, rank: GroupRank, buffer: Buffer) -> u32 {
        let n = self.size;
        match (buffer, self.collective) {
            (Buffer::Scratch, _) => self.scratch(),
            (Buffer::Output, collective) if collective.in_place() => self.cut(),
            (Buffer::Input, collective) if collective.in_place() => 0,
            (Buffer::Input, Collective::Barrier) => 1,
            (Buffer::Output, Collective::Barrier) => 0,
            (Buffer::Input, Collective::Scatter { root })
            | (Buffer::Output, Collective::Gather { root }) => {
                if rank == root {
                    n
                } else {
                    0
                }
            }
            (Buffer::Input, Collective::AllGather | Collective::Gather { .. }) => 1,
            (Buffer::Output, Collective::Scatter { .. } | Collective::ReduceScatter { .. }) => 1,
            (_, _) => n,
        }
    }

    /// How many chunks the one tensor of an in-place call is cut into.
    fn cut(&self) -> u32 {
        match self.algorithm {
            Algorithm::Ring | Algorithm::TwoShot | Algorithm::ScatterAllGather => self.size,
            Algorithm::BidirectionalRing => self.size.saturating_mul(2),
            Algorithm::Chain => chain::SEGMENTS,
            Algorithm::DoubleBinaryTree => double_tree::CHUNKS,
            Algorithm::HalvingDoubling => fold::Fold::new(self.size).places,
            _ => 1,
        }
    }

    /// Scratch chunks on every rank.
    fn scratch(&self) -> u32 {
        let n = self.size;
        match (self.algorithm, self.collective) {
            (Algorithm::Ring, Collective::ReduceScatter { .. }) => 2,
            (Algorithm::Dissemination, _) => self.steps(),
            (Algorithm::Tree, Collective::Barrier) => tree::BARRIER_SIGNALS,
            (Algorithm::OneShot, _) => one_shot::scratch(n),
            (Algorithm::Bruck, collective) => bruck::scratch(collective, n),
            (Algorithm::RecursiveDoubling, collective) => {
                recursive_doubling::scratch(collective, n)
            }
            (Algorithm::RecursiveHalving | Algorithm::HalvingDoubling, collective) => {
                recursive_halving::scratch(collective, n)
            }
            _ => 0,
        }
    }

    /// Puts what `rank` does in `step` into `actions`, replacing what is there. Empty past the
    /// last step.
    pub fn actions(&self, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
        actions.clear();
        if rank.0 >= self.size || step >= self.steps() {
            return;
        }
        let (collective, n) = (self.collective, self.size);
        match self.algorithm {
            Algorithm::Ring => ring::actions(collective, n, rank, step, actions),
            Algorithm::Tree => tree::actions(collective, n, rank, step, actions),
            Algorithm::Direct => direct::actions(collective, n, rank, step, actions),
            Algorithm::Dissemination => dissemination::actions(n, rank, step, actions),
            Algorithm::RecursiveDoubling => {
                recursive_doubling::actions(collective, n, rank, step, actions);
            }
            Algorithm::RecursiveHalving | Algorithm::HalvingDoubling => {
                recursive_halving::actions(collective, n, rank, step, actions);
            }
            Algorithm::BidirectionalRing => ring::bidirectional(n, rank, step, actions),
            Algorithm::TwoShot => direct::two_shot(n, rank, step, actions),
            Algorithm::OneShot => one_shot::actions(n, rank, step, actions),
            Algorithm::DoubleBinaryTree => double_tree::actions(n, rank, step, actions),
            Algorithm::Bruck => bruck::actions(collective, n, rank, step, actions),
            Algorithm::Pairwise => pairwise::actions(collective, n, rank, step, actions),
            Algorithm::Chain => chain::actions(collective, n, rank, step, actions),
            Algorithm::KaryTree => kary_tree::actions(collective, n, rank, step, actions),
            Algorithm::ScatterAllGather => {
                scatter_all_gather::actions(collective, n, rank, step, actions);
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {} ranks", self.algorithm, self.collective, self.size)
    }
}
