//! From chunks to elements: where a slice of a buffer lies for a given element count.

use super::{Buffer, Schedule, Slice};
use crate::collective::Splits;
use crate::rank::GroupRank;
use std::ops::Range;
use std::sync::Arc;

/// A buffer of `elements` cut into `chunks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Elements in all.
    pub elements: u64,
    /// Chunks in all.
    pub chunks: u32,
    cut: Cut,
}

/// The cut of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// In sizes that differ by at most one element: `each` a chunk, and `rest` elements over, spread evenly.
    Even { each: u64, rest: u32 },
    /// In chunks of so many elements until there are no more.
    Each(u64),
    /// The end of every chunk, in elements.
    Ends(Arc<[u64]>),
}

impl Grid {
    /// A cut into chunks whose sizes differ by at most one element.
    pub fn even(elements: u64, chunks: u32) -> Grid {
        let many = u64::from(chunks.max(1));
        let cut = Cut::Even { each: elements / many, rest: (elements % many) as u32 };
        Grid { elements, chunks, cut }
    }

    /// A cut into chunks of `each` elements until there are no more: the last chunks may be short
    /// or empty.
    pub fn of_each(elements: u64, chunks: u32, each: u64) -> Grid {
        Grid { elements, chunks, cut: Cut::Each(each) }
    }

    /// A cut into chunks of these lengths.
    pub(crate) fn of_parts(parts: impl IntoIterator<Item = u64>) -> Grid {
        let ends: Arc<[u64]> = parts
            .into_iter()
            .scan(0u64, |end, part| {
                *end = end.saturating_add(part);
                Some(*end)
            })
            .collect();
        let elements = ends.last().copied().unwrap_or(0);
        Grid { elements, chunks: ends.len() as u32, cut: Cut::Ends(ends) }
    }

    /// True if every chunk has as many elements.
    pub fn has_equal_chunks(&self) -> bool {
        matches!(self.cut, Cut::Even { rest: 0, .. })
    }

    /// The first element of chunk `chunk`; the end of the buffer for the chunk past the last.
    pub fn start(&self, chunk: u32) -> u64 {
        if self.chunks == 0 {
            return 0;
        }
        let chunk = chunk.min(self.chunks);
        let place = u64::from(chunk);
        match &self.cut {
            // The simulator asks this for every message: no division where the chunks are equal.
            Cut::Even { each, rest: 0 } => each * place,
            Cut::Even { each, rest } => {
                each * place + u64::from(*rest) * place / u64::from(self.chunks)
            }
            Cut::Each(each) => each.saturating_mul(place).min(self.elements),
            Cut::Ends(ends) => {
                let last = (chunk as usize).checked_sub(1);
                last.and_then(|last| ends.get(last)).copied().unwrap_or(0)
            }
        }
    }

    /// The elements of a run of chunks.
    pub fn range(&self, chunk: u32, chunks: u32) -> Range<u64> {
        self.start(chunk)..self.start(chunk.saturating_add(chunks))
    }
}

/// A schedule with its element count, which turns slices into element ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    schedule: Schedule,
    count: u64,
    element_bytes: u64,
    splits: Option<Box<Splits>>,
}

impl Layout {
    /// The layout for `count` elements a rank: the tensor of an in-place call, or one rank's part
    /// of the larger tensor of the others. An element has `element_bytes`: gloo cuts by bytes.
    pub fn new(schedule: Schedule, count: u64, element_bytes: u64) -> Layout {
        Layout { schedule, count, element_bytes, splits: None }
    }

    /// The layout for an `all_to_all` whose parts are uneven: that of the rank that passes these splits.
    pub fn with_splits(mut self, splits: Option<Box<Splits>>) -> Layout {
        self.splits = splits;
        self
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The bytes of an element.
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    /// The cut of a participant's `buffer`.
    pub fn grid(&self, rank: GroupRank, buffer: Buffer) -> Grid {
        let chunks = self.schedule.chunks(rank, buffer);
        let collective = self.schedule.collective();
        let size = self.schedule.size();
        match (&self.splits, buffer) {
            (Some(splits), Buffer::Input) => return Grid::of_parts(splits.input.iter().copied()),
            (Some(splits), Buffer::Output) => return Grid::of_parts(splits.output.iter().copied()),
            _ => {}
        }
        let elements = match buffer {
            Buffer::Input | Buffer::Output if rank.0 >= size => None,
            Buffer::Input => collective.input_elements(size, rank, self.count),
            Buffer::Output => collective.output_elements(size, rank, self.count),
            // A barrier's signals hold nothing.
            Buffer::Scratch if collective.is_barrier() => None,
            // Scratch holds whole parts, or for in-place calls whole copies of the tensor, cut as
            // the tensor is: then a scratch chunk is as long as the chunk it is a copy of.
            Buffer::Scratch => Some(self.scratch_elements(u64::from(chunks))),
        };
        let elements = elements.unwrap_or(0);
        match self.schedule.chunk_elements(self.count, self.element_bytes) {
            Some(each) => Grid::of_each(elements, chunks, each),
            None => Grid::even(elements, chunks),
        }
    }

    fn scratch_elements(&self, chunks: u64) -> u64 {
        let parts = chunks.div_ceil(u64::from(self.schedule.chunks_per_part().max(1)));
        self.count.saturating_mul(parts)
    }

    /// The most elements of scratch that a rank has, with its share of the switches' scratch.
    pub(crate) fn scratch_a_rank(&self) -> u64 {
        match self.schedule.collective().is_barrier() {
            true => 0,
            false => self.scratch_elements(self.schedule.scratch_a_rank()),
        }
    }

    /// The elements that `slice` names on `rank`.
    pub fn range(&self, rank: GroupRank, slice: Slice) -> Range<u64> {
        self.grid(rank, slice.buffer).range(slice.chunk, slice.chunks)
    }

    /// The number of elements of `slice` on `rank`.
    pub fn elements(&self, rank: GroupRank, slice: Slice) -> u64 {
        let range = self.range(rank, slice);
        range.end - range.start
    }
}

#[cfg(test)]
mod tests {
    use super::Grid;
    use proptest::prelude::*;

    proptest! {
        /// Chunk c begins at ⌊elements · c / chunks⌋, also where the product needs 128 bits.
        #[test]
        fn chunks_begin_at_their_part_of_the_buffer(elements: u64, chunks in 1u32.., at: u32) {
            let chunk = at % chunks;
            let exact = u128::from(elements) * u128::from(chunk) / u128::from(chunks);
            prop_assert_eq!(u128::from(Grid::even(elements, chunks).start(chunk)), exact);
        }

        #[test]
        fn chunks_tile_the_buffer_evenly(elements in 0u64..1 << 40, chunks in 1u32..5000) {
            let grid = Grid::even(elements, chunks);
            let mut end = 0;
            for chunk in 0..chunks {
                let range = grid.range(chunk, 1);
                prop_assert_eq!(range.start, end);
                let length = range.end - range.start;
                prop_assert!(length == elements / u64::from(chunks)
                    || length == elements / u64::from(chunks) + 1);
                end = range.end;
            }
            prop_assert_eq!(end, elements);
        }

        #[test]
        fn parts_lie_one_after_the_other(parts in prop::collection::vec(0u64..1 << 30, 1..40)) {
            let grid = Grid::of_parts(parts.iter().copied());
            let mut end = 0;
            for (chunk, part) in (0..).zip(&parts) {
                prop_assert_eq!(grid.range(chunk, 1), end..end + part);
                end += part;
            }
            prop_assert_eq!((grid.elements, grid.chunks), (end, parts.len() as u32));
        }
    }
}
