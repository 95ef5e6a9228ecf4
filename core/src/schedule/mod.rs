//! Schedules: how one collective is carried out, as chunk-level actions per rank and step.
//!
//! A schedule is a *function* of (rank, step): nothing is materialised for the whole world. It
//! speaks of chunks, never of bytes, so one proof ([`prove`]) holds for every element count. The
//! primitives are NCCL's (`src/device/prims_simple.h`: send, recv, recvReduceCopy, copy).
//!
//! Laws that every schedule keeps, and that [`prove`] checks:
//! - what is sent from rank a to rank b in step s is received by b from a in its own step s; if
//!   there are several such messages, they are received in the order in which they were sent:
//!   the first send that a lists to b is the first receive that b lists from a, and so on;
//! - the actions of one rank's step do not touch each other's memory (no region is written by one
//!   and read or written by another), so they may run in any order or at once.

mod action;
mod algorithm;
mod binomial;
mod bruck;
mod chain;
mod direct;
mod dissemination;
mod double_tree;
mod family;
mod fold;
mod gloo_ring;
mod hierarchical;
mod kary_tree;
mod lanes;
mod layout;
mod nodes;
mod nvls;
mod one_shot;
mod pairwise;
mod pat;
mod proof;
mod recursive_doubling;
mod recursive_halving;
mod ring;
mod scatter_all_gather;
mod sharp;
mod tally;
mod tree;

pub use action::{Action, Buffer, Slice};
pub use algorithm::Algorithm;
pub use layout::{Grid, Layout};
pub use proof::{Proof, ProofError, prove, prove_chunk, prove_steps};
pub use tally::{RankTally, Tally};

use crate::collective::Collective;
use crate::rank::GroupRank;
use family::Family;
use lanes::Lanes;
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
    /// More ranks than the family can number the chunks of.
    #[error("{collective} by {algorithm} takes up to {most} ranks, not {size}")]
    TooManyRanks {
        /// The call.
        collective: Collective,
        /// The family that was asked for.
        algorithm: Algorithm,
        /// The group's size.
        size: u32,
        /// The most ranks.
        most: u32,
    },
    /// No channels or segments, or more than there can be.
    #[error("{collective} cannot have {asked} {of} here; choose 1{}", up_to(*most))]
    Lanes {
        /// The call.
        collective: Collective,
        /// Channels or segments.
        of: &'static str,
        /// What was asked for.
        asked: u32,
        /// The most that it can have.
        most: u32,
    },
}

fn up_to(most: u32) -> String {
    if most > 1 { format!(" to {most}") } else { String::new() }
}

fn names(collective: Collective) -> String {
    Algorithm::of(collective).iter().map(|a| a.name()).collect::<Vec<_>>().join(", ")
}

/// A collective carried out by an algorithm in a group of a given size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    source: Source,
    lanes: Lanes,
}

/// What a schedule's actions come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    /// A function of (rank, step).
    Family(Family),
}

/// The most channels that a schedule may have: NCCL's `MAXCHANNELS`.
pub const MAX_CHANNELS: u32 = 64;

/// The most segments that may follow each other in a channel.
pub const MAX_SEGMENTS: u32 = 1024;

impl Schedule {
    /// The schedule of `collective` by `algorithm` among `size` ranks of one node, with one
    /// channel and the family's own number of segments.
    ///
    /// # Errors
    /// When the group is empty or too large, the root is outside it, or the algorithm does not
    /// apply.
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
        let most = Family::most_ranks(algorithm);
        if size > most {
            return Err(ScheduleError::TooManyRanks { collective, algorithm, size, most });
        }
        let family = Family { collective, algorithm, size, ranks_per_node: size };
        let lanes = Lanes { segments: family.default_segments(), ..Lanes::ONE };
        Ok(Schedule { source: Source::Family(family), lanes })
    }

    /// The same with `channels` copies of its steps side by side, each on its slice of every part.
    ///
    /// # Errors
    /// When there are none or more than [`MAX_CHANNELS`], when the chunks could not be numbered,
    /// or when the call carries nothing that could be sliced.
    pub fn with_channels(self, channels: u32) -> Result<Schedule, ScheduleError> {
        let lanes = Lanes { channels, ..self.lanes };
        self.with_lanes(lanes, "channels", channels, MAX_CHANNELS)
    }

    /// The same with each channel's slice in `segments` that follow each other through the steps.
    ///
    /// # Errors
    /// When there are none or more than [`MAX_SEGMENTS`], when the chunks could not be numbered,
    /// or when the call carries nothing that could be sliced.
    pub fn with_segments(self, segments: u32) -> Result<Schedule, ScheduleError> {
        let lanes = Lanes { segments, ..self.lanes };
        self.with_lanes(lanes, "segments", segments, MAX_SEGMENTS)
    }

    fn with_lanes(
        self,
        lanes: Lanes,
        of: &'static str,
        asked: u32,
        most: u32,
    ) -> Result<Schedule, ScheduleError> {
        let collective = self.collective();
        let Source::Family(family) = &self.source;
        let most = if family.can_be_sliced() { most } else { 1 };
        if asked == 0 || asked > most {
            return Err(ScheduleError::Lanes { collective, of, asked, most });
        }
        // The largest memories: every part of the tensors, and scratch, for any size of nodes.
        let parts = 8 * u64::from(family.pieces().max(family.size));
        let scratch = family.most_rank_scratch().max(family.switch_scratch());
        let most_chunks = parts.max(u64::from(scratch));
        if most_chunks * u64::from(lanes.count()) > u64::from(u32::MAX) {
            return Err(ScheduleError::Lanes { collective, of, asked, most: 1 });
        }
        Ok(Schedule { lanes, ..self })
    }

    /// The same among ranks of which each `ranks_per_node` neighbours are one node; the last node
    /// may have fewer. None, or more than there are, means one node. Only families that look at
    /// the nodes change.
    #[must_use]
    pub fn with_ranks_per_node(self, ranks_per_node: u32) -> Schedule {
        let Source::Family(family) = self.source;
        let ranks_per_node = match ranks_per_node {
            0 => family.size,
            ranks => ranks.min(family.size),
        };
        let source = Source::Family(Family { ranks_per_node, ..family });
        Schedule { source, ..self }
    }

    /// What it carries out.
    pub fn collective(&self) -> Collective {
        let Source::Family(family) = &self.source;
        family.collective
    }

    /// By which family; `None` if it was read from a file.
    pub fn algorithm(&self) -> Option<Algorithm> {
        let Source::Family(family) = &self.source;
        Some(family.algorithm)
    }

    /// Among how many ranks.
    pub fn size(&self) -> u32 {
        let Source::Family(family) = &self.source;
        family.size
    }

    /// The ranks, and behind them, as participants `size()` and more, the switches that take part.
    pub fn participants(&self) -> u32 {
        let Source::Family(family) = &self.source;
        family.size.saturating_add(family.switches())
    }

    /// The switches among the participants, which reduce what passes through them.
    pub fn switches(&self) -> u32 {
        self.participants() - self.size()
    }

    /// Copies of the steps that go side by side.
    pub fn channels(&self) -> u32 {
        self.lanes.channels
    }

    /// Pieces of each channel's slice that follow each other.
    pub fn segments(&self) -> u32 {
        self.lanes.segments
    }

    /// Neighbouring ranks that are one node.
    pub fn ranks_per_node(&self) -> u32 {
        let Source::Family(family) = &self.source;
        family.ranks_per_node
    }

    /// The number of steps, the same for every participant; one may have nothing to do in some.
    pub fn steps(&self) -> u32 {
        let Source::Family(family) = &self.source;
        self.lanes.steps(family.steps(), family.stagger())
    }

    /// How many chunks `buffer` is cut into on `participant`; 0 when it has no such buffer.
    pub fn chunks(&self, participant: GroupRank, buffer: Buffer) -> u32 {
        let Source::Family(family) = &self.source;
        family.chunks(participant, buffer).saturating_mul(self.lanes.count())
    }

    /// The most scratch chunks of a rank, with its share of what the switches have.
    fn scratch_a_rank(&self) -> u64 {
        let Source::Family(family) = &self.source;
        let shared = family.switch_scratch().div_ceil(family.size);
        let chunks = u64::from(family.most_rank_scratch()) + u64::from(shared);
        chunks.saturating_mul(u64::from(self.lanes.count()))
    }

    /// How many chunks a part is cut into: one rank's part of a tensor that has a part for each
    /// rank, or the whole tensor of an in-place call.
    pub fn chunks_per_part(&self) -> u32 {
        let Source::Family(family) = &self.source;
        family.pieces().saturating_mul(self.lanes.count())
    }

    /// Elements of every chunk but the last of a tensor of `count` elements, where chunks are not
    /// even; see [`Grid::chunk_elements`].
    fn chunk_elements(&self, count: u64, element_bytes: u64) -> Option<u64> {
        let Source::Family(family) = &self.source;
        family.chunk_elements(count, element_bytes)
    }

    /// Puts what `participant` does in `step` into `actions`, replacing what is there. Empty past
    /// the last step.
    pub fn actions(&self, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        actions.clear();
        if participant.0 >= self.participants() {
            return;
        }
        let Source::Family(family) = &self.source;
        let steps = family.steps();
        if self.lanes == Lanes::ONE {
            if step < steps {
                family.actions(participant, step, actions);
            }
            return;
        }
        for (lane, step) in self.lanes.acting(step, steps, family.stagger()) {
            let begin = actions.len();
            family.actions(participant, step, actions);
            self.lanes.place(lane, family.pieces(), begin, actions);
        }
    }
}

/// How many parts the tensor in `buffer` has on a participant: one for every rank, one, or none.
fn tensor_parts(collective: Collective, size: u32, participant: GroupRank, buffer: Buffer) -> u32 {
    if participant.0 >= size {
        return 0;
    }
    match (buffer, collective) {
        (Buffer::Output, collective) if collective.in_place() => 1,
        (Buffer::Input, collective) if collective.in_place() => 0,
        (Buffer::Input, collective) if collective.is_barrier() => 1,
        (Buffer::Output, collective) if collective.is_barrier() => 0,
        (Buffer::Input, Collective::Scatter { root })
        | (Buffer::Output, Collective::Gather { root }) => {
            if participant == root {
                size
            } else {
                0
            }
        }
        (Buffer::Input, Collective::AllGather | Collective::Gather { .. }) => 1,
        (Buffer::Output, Collective::Scatter { .. } | Collective::ReduceScatter { .. }) => 1,
        (_, _) => size,
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source::Family(Family { algorithm, collective, size, .. }) = &self.source;
        write!(f, "{algorithm} {collective} of {size} ranks")?;
        match self.lanes.channels {
            1 => Ok(()),
            channels => write!(f, " in {channels} channels"),
        }
    }
}
