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
mod butterfly;
mod error;
mod explained;
mod families;
mod family;
mod fold;
mod lanes;
mod layout;
mod nodes;
mod proof;
mod proved_table;
mod table;
mod tally;

pub use action::{Action, Buffer, Slice};
pub use error::ScheduleError;
pub use explained::{Explained, Formula, Holds};
pub use families::Algorithm;
pub use layout::{Grid, Layout};
pub use proof::{Holding, Loss, Proof, ProofError, Standing, prove, prove_chunk, prove_steps};
pub use proved_table::ProvedTable;
pub use table::{MAX_TABLE_ACTIONS, MAX_TABLE_RANKS, Table, TableBuilder, TableError};
pub use tally::{RankTally, RoundPlace, Rounds, Tally};

use crate::collective::Collective;
use crate::rank::GroupRank;
use family::{Call, Family, Step};
use lanes::Lanes;
use std::fmt;
use std::sync::Arc;

/// A collective carried out by an algorithm in a group of a given size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    source: Source,
    lanes: Lanes,
}

/// The source of a schedule's actions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    /// A function of (rank, step).
    Family {
        /// The call that it carries out.
        call: Call,
        /// The family of the schedule.
        algorithm: Algorithm,
    },
    /// Written out, and proved; the call says by which reduction.
    Table {
        /// The actions.
        table: Arc<Table>,
        /// The call.
        collective: Collective,
    },
}

/// The most channels that a schedule may have: NCCL's `MAXCHANNELS`.
pub(crate) const MAX_CHANNELS: u32 = 64;

/// The most segments that may follow each other in a channel.
pub(crate) const MAX_SEGMENTS: u32 = 1024;

impl Schedule {
    /// The schedule of `collective` by `algorithm` among `size` ranks of one node, with one
    /// channel and one segment.
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
        if !algorithm.carries_out(collective) {
            return Err(ScheduleError::NotCarriedOutBy { collective, algorithm });
        }
        let most = algorithm.family().most_ranks();
        if size > most {
            return Err(ScheduleError::TooManyRanks { collective, algorithm, size, most });
        }
        let call = Call { collective, size, ranks_per_node: size };
        Ok(Schedule { source: Source::Family { call, algorithm }, lanes: Lanes::ONE })
    }

    /// A schedule of a table, right or wrong, as `collective`.
    fn unproved(table: Arc<Table>, collective: Collective) -> Schedule {
        Schedule { source: Source::Table { table, collective }, lanes: Lanes::ONE }
    }

    /// The table that the schedule comes from; `None` for the shipped families.
    pub fn table(&self) -> Option<&Table> {
        match &self.source {
            Source::Family { .. } => None,
            Source::Table { table, .. } => Some(table),
        }
    }

    /// The family and the call that it carries out; `None` if the schedule was read from a file.
    fn family(&self) -> Option<(&'static dyn Family, Call)> {
        match &self.source {
            Source::Family { call, algorithm } => Some((algorithm.family(), *call)),
            Source::Table { .. } => None,
        }
    }

    /// The number that a call's element count must be a multiple of: 1 for the shipped families,
    /// whose chunks may differ by an element; see [`Table::granularity`].
    pub fn granularity(&self) -> u32 {
        self.table().map_or(1, Table::granularity)
    }

    /// The schedule with `channels` copies of its steps side by side, each on its slice of every part.
    ///
    /// # Errors
    /// When there are none or more than [`MAX_CHANNELS`], when the chunks could not be numbered, or when the
    /// call carries nothing that could be sliced.
    pub fn with_channels(self, channels: u32) -> Result<Schedule, ScheduleError> {
        let lanes = Lanes { channels, ..self.lanes };
        self.with_lanes(lanes, "channels", channels, MAX_CHANNELS)
    }

    /// The schedule with each channel's slice in `segments` that follow each other through the steps.
    ///
    /// # Errors
    /// When there are none or more than [`MAX_SEGMENTS`], when the chunks could not be numbered, or when the
    /// call carries nothing that could be sliced.
    pub fn with_segments(self, segments: u32) -> Result<Schedule, ScheduleError> {
        let lanes = Lanes { segments, ..self.lanes };
        self.with_lanes(lanes, "segments", segments, MAX_SEGMENTS)
    }

    /// The schedule with as many segments as the family cuts a call of `bytes` a rank into: pipelines (chain,
    /// double binary tree) move chunks of 512 KiB, as NCCL does; others stay whole.
    #[must_use]
    pub fn sized(self, bytes: u64) -> Schedule {
        let Some((family, _)) = self.family() else { return self };
        let segments = family.segments_for(bytes / u64::from(self.lanes.channels));
        // Worlds whose chunks could not be numbered do without.
        self.clone().with_segments(segments).unwrap_or(self)
    }

    fn with_lanes(
        self,
        lanes: Lanes,
        of: &'static str,
        asked: u32,
        most: u32,
    ) -> Result<Schedule, ScheduleError> {
        let collective = self.collective();
        let Some((family, call)) = self.family() else {
            // A file's channels are its own.
            return match asked {
                1 => Ok(self),
                _ => Err(ScheduleError::Lanes { collective, of, asked, most: 1 }),
            };
        };
        let can_be_sliced = !collective.is_barrier() && family.can_be_sliced();
        let most = if can_be_sliced { most } else { 1 };
        if asked == 0 || asked > most {
            return Err(ScheduleError::Lanes { collective, of, asked, most });
        }
        // The largest memories: every part of the tensors, and scratch, for any size of nodes.
        let parts = 8 * u64::from(family.chunks_per_part(call).max(call.size));
        let scratch = family.most_rank_scratch(call).max(family.switch_scratch(call));
        let most_chunks = parts.max(u64::from(scratch));
        if most_chunks * u64::from(lanes.count()) > u64::from(u32::MAX) {
            return Err(ScheduleError::Lanes { collective, of, asked, most: 1 });
        }
        Ok(Schedule { lanes, ..self })
    }

    /// The schedule among ranks of which each `ranks_per_node` neighbours are one node; the last node may
    /// have fewer. None, or more than there are, means one node. Only families that look at the nodes change.
    ///
    /// # Errors
    /// When the family's switch would have to reach across the nodes.
    pub fn with_ranks_per_node(self, ranks_per_node: u32) -> Result<Schedule, ScheduleError> {
        let Source::Family { call, algorithm } = self.source else { return Ok(self) };
        let ranks_per_node = match ranks_per_node {
            0 => call.size,
            ranks => ranks.min(call.size),
        };
        let call = Call { ranks_per_node, ..call };
        if !algorithm.family().takes_nodes(call) {
            let Call { collective, size, .. } = call;
            return Err(ScheduleError::OneNode { collective, algorithm, size, ranks_per_node });
        }
        Ok(Schedule { source: Source::Family { call, algorithm }, ..self })
    }

    /// The collective that it carries out.
    pub fn collective(&self) -> Collective {
        match &self.source {
            Source::Family { call, .. } => call.collective,
            Source::Table { collective, .. } => *collective,
        }
    }

    /// The family of the schedule; `None` if it was read from a file.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match &self.source {
            Source::Family { algorithm, .. } => Some(*algorithm),
            Source::Table { .. } => None,
        }
    }

    /// Among how many ranks.
    pub fn size(&self) -> u32 {
        match &self.source {
            Source::Family { call, .. } => call.size,
            Source::Table { table, .. } => table.size(),
        }
    }

    /// The ranks, and behind them, as participants `size()` and more, the switches that take part.
    pub fn participants(&self) -> u32 {
        match &self.source {
            Source::Family { call, algorithm } => {
                call.size.saturating_add(algorithm.family().switches(*call))
            }
            Source::Table { table, .. } => table.size(),
        }
    }

    /// The switches among the participants, which reduce the messages that pass through them.
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

    /// The channel that an action belongs to, from 0; a file's are all one.
    pub fn channel_of(&self, action: Action) -> u32 {
        match &self.source {
            Source::Family { call, algorithm } => {
                let pieces = algorithm.family().chunks_per_part(*call);
                let lane = action.into_or_from().chunk / pieces % self.lanes.count();
                lane / self.lanes.segments
            }
            Source::Table { .. } => 0,
        }
    }

    /// True if the lengths of chunks depend on the bytes of the call, as gloo's do.
    pub fn cuts_by_bytes(&self) -> bool {
        self.chunk_elements(1, 1).is_some()
    }

    /// Neighbouring ranks that are one node.
    pub fn ranks_per_node(&self) -> u32 {
        match &self.source {
            Source::Family { call, .. } => call.ranks_per_node,
            Source::Table { table, .. } => table.size(),
        }
    }

    /// The number of steps, the same for every participant; one may have nothing to do in some.
    pub fn steps(&self) -> u32 {
        match &self.source {
            Source::Family { call, algorithm } => {
                let family = algorithm.family();
                self.lanes.steps(family.steps(*call), family.stagger(*call))
            }
            Source::Table { table, .. } => table.steps(),
        }
    }

    /// The number of chunks that `buffer` is cut into on `participant`; 0 when it has no such buffer.
    pub fn chunks(&self, participant: GroupRank, buffer: Buffer) -> u32 {
        match &self.source {
            Source::Family { call, algorithm } => {
                let chunks = algorithm.family().chunks(*call, participant, buffer);
                chunks.saturating_mul(self.lanes.count())
            }
            Source::Table { table, .. } => table.chunks(participant, buffer),
        }
    }

    /// The most scratch chunks of a rank, with its share of the switches' scratch.
    fn scratch_a_rank(&self) -> u64 {
        let (family, call) = match &self.source {
            Source::Family { call, algorithm } => (algorithm.family(), *call),
            Source::Table { table, .. } => {
                return u64::from(table.chunks(GroupRank(0), Buffer::Scratch));
            }
        };
        let shared = family.switch_scratch(call).div_ceil(call.size);
        let chunks = u64::from(family.most_rank_scratch(call)) + u64::from(shared);
        chunks.saturating_mul(u64::from(self.lanes.count()))
    }

    /// The number of chunks that a part is cut into: one rank's part of a tensor that has a part
    /// for each rank, or the whole tensor of an in-place call.
    pub fn chunks_per_part(&self) -> u32 {
        match &self.source {
            Source::Family { call, algorithm } => {
                algorithm.family().chunks_per_part(*call).saturating_mul(self.lanes.count())
            }
            Source::Table { table, .. } => table.cut(),
        }
    }

    /// Elements of every chunk but the last of a tensor of `count` elements, where chunks are not
    /// even; see [`Grid::of_each`].
    fn chunk_elements(&self, count: u64, element_bytes: u64) -> Option<u64> {
        let (family, call) = self.family()?;
        family.chunk_elements(call, count, element_bytes)
    }

    /// Puts the actions of `participant` in `step` into `actions`, replacing its contents. Empty past the
    /// last step.
    pub fn actions(&self, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        actions.clear();
        let (family, call) = match &self.source {
            Source::Family { call, algorithm } => (algorithm.family(), *call),
            Source::Table { table, .. } if participant.0 < table.size() => {
                return table.actions(participant, step, actions);
            }
            Source::Table { .. } => return,
        };
        // Asked for every rank and step: only of what is no rank is it asked whether it is a switch.
        if participant.0 >= call.size
            && participant.0 >= call.size.saturating_add(family.switches(call))
        {
            return;
        }
        let steps = family.steps(call);
        if self.lanes == Lanes::ONE {
            if step < steps {
                family.actions(call, participant, step, actions);
            }
            return;
        }
        for (lane, step) in self.lanes.acting(step, steps, family.stagger(call)) {
            let begin = actions.len();
            family.actions(call, participant, step, actions);
            self.lanes.place(lane, family.chunks_per_part(call), begin, actions);
        }
    }

    /// A sentence about the ranks' actions in `step`, one of [`Schedule::steps`].
    pub fn step_text(&self, step: u32) -> String {
        match self.family() {
            Some((family, call)) => family.step_text(call, Step { at: step, of: self.steps() }),
            None => "chunks move as the schedule's file says.".to_owned(),
        }
    }

    /// The name of the phase of `step`, to go after "Step 3 of 6": ", all-gather phase", or
    /// nothing.
    pub fn phase(&self, step: u32) -> &'static str {
        let step = Step { at: step, of: self.steps() };
        self.family().map_or("", |(family, call)| family.phase(call, step))
    }

    /// True if all ranks act alike in every step: each sends one message and receives one, all of as many
    /// chunks, or none does.
    pub fn ranks_are_alike(&self) -> bool {
        let alike = self.family().is_some_and(|(family, call)| family.ranks_are_alike(call));
        alike && self.lanes == Lanes::ONE
    }

    /// True for a rotation: in each step rank r sends the messages of rank 0, each to a rank r places further on,
    /// with as many chunks of the same buffer, in the same order. It receives as many messages.
    pub fn is_rotation(&self) -> bool {
        let rotation = self.family().is_some_and(|(family, call)| family.is_rotation(call));
        rotation && self.lanes == Lanes::ONE
    }

    /// True if every rank is busy in every step; the number of ranks that are ahead of the slowest is then
    /// worth showing.
    pub fn keeps_all_ranks_busy(&self) -> bool {
        self.family().is_some_and(|(family, _)| family.keeps_all_ranks_busy())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (collective, size) = (self.collective(), self.size());
        match &self.source {
            Source::Family { algorithm, .. } => write!(f, "{algorithm} ")?,
            Source::Table { table, .. } => write!(f, "{} ", table.name())?,
        }
        write!(f, "{collective} of {size} ranks")?;
        match self.lanes.channels {
            1 => Ok(()),
            channels => write!(f, " in {channels} channels"),
        }
    }
}
