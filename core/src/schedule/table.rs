//! A schedule written out: per rank and step the actions, as a file gives them.
//!
//! The shipped families are functions and never written out; this is for schedules that somebody
//! else made. A table says nothing about being right: [`super::prove`] does.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use xxhash_rust::xxh3::xxh3_128;

/// The most ranks of a table.
pub const MAX_TABLE_RANKS: u32 = 1024;
/// The most actions of a table, all ranks together.
pub const MAX_TABLE_ACTIONS: usize = 1 << 20;
/// The most chunks of one buffer of one rank.
const MAX_CHUNKS: u32 = 1 << 16;
/// The most machine words that a proof keeps, all chunks of all ranks together: one a chunk and 64
/// ranks.
const MAX_WORDS: u64 = 1 << 21;
/// The most words that a proof moves.
const MAX_WORDS_MOVED: u64 = 1 << 27;

/// The reason that actions are no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No ranks, or too many.
    #[error("a schedule from a file is for 1 to {MAX_TABLE_RANKS} ranks, not {0}")]
    Ranks(u32),
    /// The root is no rank of the table.
    #[error("the root {root} of {collective} is outside the schedule's {size} ranks")]
    RootOutside {
        /// The call.
        collective: Collective,
        /// The root.
        root: GroupRank,
        /// The number of ranks.
        size: u32,
    },
    /// A collective that no file can describe.
    #[error("{0} cannot be carried out by a schedule from a file")]
    Collective(Collective),
    /// No chunks, or too many.
    #[error("{what}: {chunks} chunks; a buffer has 1 to {MAX_CHUNKS}")]
    Chunks {
        /// The memory that is cut into the chunks: the tensor or scratch.
        what: &'static str,
        /// The number of chunks.
        chunks: u64,
    },
    /// More than a reader should be made to hold.
    #[error("{what} is {is}, over the limit of {limit}: split the schedule or use fewer chunks")]
    TooLarge {
        /// The quantity that is too large.
        what: &'static str,
        /// Its value.
        is: u64,
        /// Its limit.
        limit: u64,
    },
    /// A slice past the end of its buffer.
    #[error("rank {rank}, step {step}: {slice} is outside the rank's buffer of {chunks} chunks")]
    OutOfBounds {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the slice.
        step: u32,
        /// The slice.
        slice: Slice,
        /// The chunks that the buffer has.
        chunks: u32,
    },
    /// An action of a rank that the table does not have.
    #[error("there are actions of rank {rank}, but the schedule is for {size} ranks")]
    RankOutside {
        /// The rank of the action.
        rank: GroupRank,
        /// The number of ranks.
        size: u32,
    },
}

/// The actions of one rank in one step: they end where the next row's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Row {
    rank: u32,
    step: u32,
    start: u32,
}

/// A schedule written out. Made by [`TableBuilder`]; bounded, but not proved.
///
/// Tables are compared by a digest of their contents: ranks compare at every call that they mean the same
/// table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Table {
    name: String,
    collective: Collective,
    size: u32,
    cut: u32,
    scratch: u32,
    steps: u32,
    granularity: u32,
    /// Sorted by rank, then step.
    rows: Vec<Row>,
    actions: Vec<Action>,
    digest: u128,
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Table {}

impl PartialOrd for Table {
    fn partial_cmp(&self, other: &Table) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Table {
    fn cmp(&self, other: &Table) -> Ordering {
        self.digest.cmp(&other.digest)
    }
}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl Table {
    /// The table's name, from its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hash of the table, to compare it with other tables.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// The collective that it claims to carry out; a reduction may be any.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// True when it claims to carry out `collective`, by whatever reduction.
    pub fn carries_out(&self, collective: Collective) -> bool {
        collective.name() == self.collective.name() && collective.root() == self.collective.root()
    }

    /// Among how many ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of steps, the same for every rank.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The number of chunks in the tensor of an in-place call, or in one rank's part of the larger
    /// tensor of the others.
    pub fn cut(&self) -> u32 {
        self.cut
    }

    /// The number that a call's element count must be a multiple of. MSCCL runs a program only when
    /// all chunks are of one size; a table that never moves a chunk to where another size could be
    /// runs with any count.
    pub fn granularity(&self) -> u32 {
        self.granularity
    }

    /// The number of chunks of `buffer` on `rank`; 0 when the rank has no such buffer.
    pub fn chunks(&self, rank: GroupRank, buffer: Buffer) -> u32 {
        chunks(self.collective, self.size, self.cut, self.scratch, rank, buffer)
    }

    /// Adds the actions of `rank` in `step` to `actions`.
    pub fn actions(&self, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
        actions.extend_from_slice(self.row(rank, step));
    }

    fn row(&self, rank: GroupRank, step: u32) -> &[Action] {
        let Ok(at) = self.rows.binary_search_by_key(&(rank.0, step), |row| (row.rank, row.step))
        else {
            return &[];
        };
        let start = self.rows[at].start as usize;
        let end = self.rows.get(at + 1).map_or(self.actions.len(), |row| row.start as usize);
        &self.actions[start..end]
    }
}

/// A buffer's chunks on a rank, for a part of one chunk a rank's count.
fn chunks(
    collective: Collective,
    size: u32,
    cut: u32,
    scratch: u32,
    rank: GroupRank,
    buffer: Buffer,
) -> u32 {
    let parts = match buffer {
        Buffer::Input => collective.input_elements(size, rank, u64::from(cut)),
        Buffer::Output => collective.output_elements(size, rank, u64::from(cut)),
        Buffer::Scratch => return scratch,
    };
    parts.map_or(0, |chunks| u32::try_from(chunks).unwrap_or(u32::MAX))
}

/// Collects a table's actions, in any order of ranks and steps.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    name: String,
    collective: Collective,
    size: u32,
    cut: u32,
    scratch: u32,
    actions: Vec<(u32, u32, Action)>,
}

impl TableBuilder {
    /// A table of no actions for `size` ranks, with `cut` chunks to a rank's elements and `scratch`
    /// scratch chunks on every rank.
    ///
    /// # Errors
    /// When the buffers would be more than a reader should hold.
    pub fn new(
        name: impl Into<String>,
        collective: Collective,
        size: u32,
        cut: u32,
        scratch: u32,
    ) -> Result<TableBuilder, TableError> {
        if !(1..=MAX_TABLE_RANKS).contains(&size) {
            return Err(TableError::Ranks(size));
        }
        if collective == Collective::Barrier {
            return Err(TableError::Collective(collective));
        }
        if let Some(root) = collective.root().filter(|root| root.0 >= size) {
            return Err(TableError::RootOutside { collective, root, size });
        }
        // Whole tensors of scratch: then a scratch chunk is as long as any other.
        let scratch = u64::from(scratch).next_multiple_of(u64::from(cut.max(1)));
        let largest = u64::from(cut) * u64::from(size);
        for (what, chunks) in [("the tensor", largest.max(1)), ("scratch", scratch.max(1))] {
            if chunks > u64::from(MAX_CHUNKS) || cut == 0 {
                return Err(TableError::Chunks { what, chunks });
            }
        }
        let scratch = scratch as u32;
        let of = |rank, buffer| u64::from(chunks(collective, size, cut, scratch, rank, buffer));
        let words: u64 = (0..size)
            .map(GroupRank)
            .map(|r| of(r, Buffer::Input) + of(r, Buffer::Output) + of(r, Buffer::Scratch))
            .sum::<u64>()
            * u64::from(size.div_ceil(64));
        if words > MAX_WORDS {
            let what = "chunks times ranks / 64";
            return Err(TableError::TooLarge { what, is: words, limit: MAX_WORDS });
        }
        Ok(TableBuilder { name: name.into(), collective, size, cut, scratch, actions: Vec::new() })
    }

    /// Adds an action to those of `rank` in `step`.
    pub fn push(&mut self, rank: GroupRank, step: u32, action: Action) {
        self.actions.push((rank.0, step, action));
    }

    /// The table.
    ///
    /// # Errors
    /// When it has more than a reader should hold, or actions of ranks that there are not.
    pub fn finish(mut self) -> Result<Table, TableError> {
        let too_large =
            |what, is: usize, limit: u64| Err(TableError::TooLarge { what, is: is as u64, limit });
        if self.actions.len() > MAX_TABLE_ACTIONS {
            return too_large(
                "the number of actions",
                self.actions.len(),
                MAX_TABLE_ACTIONS as u64,
            );
        }
        if let Some((rank, ..)) = self.actions.iter().find(|(rank, ..)| *rank >= self.size) {
            return Err(TableError::RankOutside { rank: GroupRank(*rank), size: self.size });
        }
        let mut moved = 0u64;
        let mut granularity = 1;
        for (rank, step, action) in &self.actions {
            for slice in action.slices() {
                self.check_bounds(GroupRank(*rank), *step, slice)?;
                moved += u64::from(slice.chunks);
            }
            granularity = granularity.max(self.needs(action));
        }
        let moved = moved.saturating_mul(u64::from(self.size.div_ceil(64)));
        if moved > MAX_WORDS_MOVED {
            return too_large("the number of chunks moved", moved as usize, MAX_WORDS_MOVED);
        }
        if !self.messages_keep_sizes() {
            granularity = self.cut;
        }
        // Stable: actions of one step stay as they were listed.
        self.actions.sort_by_key(|(rank, step, _)| (*rank, *step));
        let mut rows: Vec<Row> = Vec::new();
        for (at, (rank, step, _)) in self.actions.iter().enumerate() {
            let (rank, step) = (*rank, *step);
            if rows.last().is_none_or(|row| (row.rank, row.step) != (rank, step)) {
                rows.push(Row { rank, step, start: at as u32 });
            }
        }
        let steps = rows.iter().map(|row| row.step.saturating_add(1)).max().unwrap_or(0);
        // Every step is somebody's: else a file of a few bytes could make a reader count for ever.
        if u64::from(steps) > self.actions.len() as u64 {
            return too_large("the number of steps", steps as usize, self.actions.len() as u64);
        }
        let actions: Vec<Action> = self.actions.into_iter().map(|(_, _, action)| action).collect();
        let sizes = (self.size, self.cut, self.scratch);
        let held = (&self.name, self.collective, sizes, &rows, &actions);
        // Writing to memory cannot fail.
        let digest = xxh3_128(&postcard::to_stdvec(&held).unwrap_or_default());
        Ok(Table {
            name: self.name,
            collective: self.collective,
            size: self.size,
            cut: self.cut,
            scratch: self.scratch,
            steps,
            granularity,
            rows,
            actions,
            digest,
        })
    }

    fn check_bounds(&self, rank: GroupRank, step: u32, slice: Slice) -> Result<(), TableError> {
        let Self { collective, size, cut, scratch, .. } = *self;
        let chunks = chunks(collective, size, cut, scratch, rank, slice.buffer);
        let end = slice.chunk.checked_add(slice.chunks);
        match end.is_some_and(|end| end <= chunks) && slice.chunks > 0 {
            true => Ok(()),
            false => Err(TableError::OutOfBounds { rank, step, slice, chunks }),
        }
    }

    /// The number that an element count must be a multiple of for the slices of one action to be of
    /// one length: chunk i is as long as chunk i + cut, but not as chunk i + 1.
    fn needs(&self, action: &Action) -> u32 {
        let mut slices = action.slices();
        let Some(first) = slices.next() else { return 1 };
        match slices.all(|slice| slice.chunk % self.cut == first.chunk % self.cut) {
            true => 1,
            false => self.cut,
        }
    }

    /// True when every message starts on both sides at a chunk of the same size. Messages of a pair
    /// in one step are matched in the order they are listed.
    fn messages_keep_sizes(&self) -> bool {
        let mut ends: [Vec<(u32, u32, u32, u32)>; 2] = Default::default();
        for (rank, step, action) in &self.actions {
            let (side, from, to, slice) = match *action {
                Action::Send { peer, from } => (0, *rank, peer.0, from),
                Action::Receive { peer, into } => (1, peer.0, *rank, into),
                Action::ReceiveReduce { peer, into, .. } => (1, peer.0, *rank, into),
                Action::Copy { .. } | Action::Reduce { .. } => continue,
            };
            ends[side].push((*step, from, to, slice.chunk % self.cut));
        }
        for side in &mut ends {
            side.sort_by_key(|(step, from, to, _)| (*step, *from, *to));
        }
        ends[0] == ends[1]
    }
}

/// A table in a file.
#[derive(Serialize, Deserialize)]
struct Written {
    name: String,
    collective: Collective,
    size: u32,
    cut: u32,
    scratch: u32,
    rows: Vec<WrittenRow>,
}

/// The actions of one rank in one step, in a file.
#[derive(Serialize, Deserialize)]
struct WrittenRow {
    rank: u32,
    step: u32,
    actions: Vec<Action>,
}

impl From<Table> for Written {
    fn from(table: Table) -> Written {
        let rows = table.rows.iter().map(|row| WrittenRow {
            rank: row.rank,
            step: row.step,
            actions: table.row(GroupRank(row.rank), row.step).to_vec(),
        });
        let rows = rows.collect();
        let Table { name, collective, size, cut, scratch, .. } = table;
        Written { name, collective, size, cut, scratch, rows }
    }
}

impl TryFrom<Written> for Table {
    type Error = TableError;

    fn try_from(written: Written) -> Result<Table, TableError> {
        let Written { name, collective, size, cut, scratch, rows } = written;
        let mut builder = TableBuilder::new(name, collective, size, cut, scratch)?;
        for row in rows {
            for action in row.actions {
                builder.push(GroupRank(row.rank), row.step, action);
            }
        }
        builder.finish()
    }
}
