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

mod direct;
mod dissemination;
mod layout;
mod proof;
mod ring;
mod tree;

pub use layout::{Grid, Layout};
pub use proof::{Proof, ProofError, prove};

use crate::collective::Collective;
use crate::rank::GroupRank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A family of schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Every rank sends to the next and receives from the previous; bandwidth-optimal.
    Ring,
    /// A binomial tree: half of the ranks drop out in each step; latency-optimal.
    Tree,
    /// Every rank talks to its partner in one step, without relays.
    Direct,
    /// Rank r signals rank r + 2^s in step s (Hensgen, Finkel, Manber 1988).
    Dissemination,
}

impl Algorithm {
    /// Every family.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Ring, Algorithm::Tree, Algorithm::Direct, Algorithm::Dissemination];

    /// The name in files and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Direct => "direct",
            Algorithm::Dissemination => "dissemination",
        }
    }

    /// The families that can carry out `collective`; the first is the default.
    pub fn of(collective: Collective) -> &'static [Algorithm] {
        match collective {
            Collective::AllReduce { .. } => &[Algorithm::Ring, Algorithm::Tree],
            Collective::AllGather | Collective::ReduceScatter { .. } => {
                &[Algorithm::Ring, Algorithm::Direct]
            }
            Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                &[Algorithm::Tree, Algorithm::Direct]
            }
            Collective::Gather { .. } | Collective::Scatter { .. } | Collective::AllToAll => {
                &[Algorithm::Direct]
            }
            Collective::Barrier => &[Algorithm::Dissemination],
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One of the memories that a rank's schedule works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// The tensor passed in; never written. Absent for in-place collectives.
    Input,
    /// The tensor the result is in; for in-place collectives also the tensor passed in.
    Output,
    /// The schedule's own memory, empty at the start.
    Scratch,
}

/// A run of neighbouring chunks of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// Which memory.
    pub buffer: Buffer,
    /// The first chunk.
    pub chunk: u32,
    /// How many.
    pub chunks: u32,
}

impl Slice {
    /// One chunk of a buffer.
    pub fn one(buffer: Buffer, chunk: u32) -> Slice {
        Slice { buffer, chunk, chunks: 1 }
    }

    /// True when both name a common chunk.
    pub fn overlaps(self, other: Slice) -> bool {
        self.buffer == other.buffer
            && self.chunk < other.chunk + other.chunks
            && other.chunk < self.chunk + self.chunks
    }
}

/// One action of a rank in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Copies inside the rank.
    Copy {
        /// What is read.
        from: Slice,
        /// What is written.
        into: Slice,
    },
    /// Sends chunks to a peer.
    Send {
        /// Who gets them.
        peer: GroupRank,
        /// What is read.
        from: Slice,
    },
    /// Receives chunks from a peer.
    Receive {
        /// Who sends them.
        peer: GroupRank,
        /// What is written.
        into: Slice,
    },
    /// Receives chunks and combines them with the rank's own: `into = local op incoming`.
    ReceiveReduce {
        /// Who sends them.
        peer: GroupRank,
        /// The rank's own operand; may be `into` itself.
        local: Slice,
        /// What is written.
        into: Slice,
    },
}

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
            (Algorithm::Ring, _) => (n - 1).max(1),
            (Algorithm::Tree, Collective::AllReduce { .. }) => 2 * tree::depth(n),
            (Algorithm::Tree, _) => tree::depth(n),
            (Algorithm::Dissemination, _) => dissemination::rounds(n),
            (Algorithm::Direct, collective) => direct::steps(collective, n),
        }
    }

    /// How many chunks `buffer` is cut into on `rank`; 0 when the rank has no such buffer.
    pub fn chunks(&self, rank: GroupRank, buffer: Buffer) -> u32 {
        let n = self.size;
        match (buffer, self.collective) {
            (Buffer::Output, Collective::AllReduce { .. }) if self.algorithm == Algorithm::Ring => {
                n
            }
            (Buffer::Output, collective) if collective.in_place() => 1,
            (Buffer::Input, collective) if collective.in_place() => 0,
            (Buffer::Scratch, Collective::ReduceScatter { .. })
                if self.algorithm == Algorithm::Ring =>
            {
                2
            }
            (Buffer::Scratch, Collective::Barrier) => self.steps(),
            (Buffer::Scratch, _) => 0,
            (Buffer::Input, Collective::Barrier) => 1,
            (Buffer::Output, Collective::Barrier) => 0,
            (Buffer::Input, Collective::Scatter { root }) => {
                if rank == root {
                    n
                } else {
                    0
                }
            }
            (Buffer::Output, Collective::Gather { root }) => {
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

    /// Puts what `rank` does in `step` into `actions`, replacing what is there. Empty past the
    /// last step.
    pub fn actions(&self, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
        actions.clear();
        if rank.0 >= self.size || step >= self.steps() {
            return;
        }
        match self.algorithm {
            Algorithm::Ring => ring::actions(self.collective, self.size, rank, step, actions),
            Algorithm::Tree => tree::actions(self.collective, self.size, rank, step, actions),
            Algorithm::Direct => direct::actions(self.collective, self.size, rank, step, actions),
            Algorithm::Dissemination => dissemination::actions(self.size, rank, step, actions),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {} ranks", self.algorithm, self.collective, self.size)
    }
}
