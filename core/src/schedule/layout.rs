//! From chunks to elements: where a slice of a buffer lies for a given element count.

use super::{Buffer, Schedule, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;
use std::ops::Range;

/// A buffer of `elements` cut into `chunks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Elements in all.
    pub elements: u64,
    /// Chunks in all.
    pub chunks: u32,
    /// Elements of every chunk until there are no more: the last chunks may be short or empty.
    /// `None`: evenly, in sizes that differ by at most one element.
    pub chunk_elements: Option<u64>,
}

impl Grid {
    /// Where chunk `chunk` begins, in elements; the end of the buffer for the chunk past the last.
    pub fn start(self, chunk: u32) -> u64 {
        if self.chunks == 0 {
            return 0;
        }
        let chunk = chunk.min(self.chunks);
        if let Some(each) = self.chunk_elements {
            return each.saturating_mul(u64::from(chunk)).min(self.elements);
        }
        // The simulator asks this for every message, and 128-bit division is slow.
        match self.elements.checked_mul(u64::from(chunk)) {
            Some(product) => product / u64::from(self.chunks),
            None => {
                (u128::from(self.elements) * u128::from(chunk) / u128::from(self.chunks)) as u64
            }
        }
    }

    /// The elements of a run of chunks.
    pub fn range(self, chunk: u32, chunks: u32) -> Range<u64> {
        self.start(chunk)..self.start(chunk.saturating_add(chunks))
    }
}

/// A schedule with its element count: what turns slices into element ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    schedule: Schedule,
    count: u64,
    element_bytes: u64,
}

impl Layout {
    /// The layout for `count` elements a rank: the tensor of an in-place call, or one rank's part
    /// of the larger tensor of the others. An element has `element_bytes`: gloo cuts by bytes.
    pub fn new(schedule: Schedule, count: u64, element_bytes: u64) -> Layout {
        Layout { schedule, count, element_bytes }
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How `buffer` of a participant is cut.
    pub fn grid(&self, rank: GroupRank, buffer: Buffer) -> Grid {
        let chunks = self.schedule.chunks(rank, buffer);
        let collective = self.schedule.collective();
        let size = self.schedule.size();
        let elements = match buffer {
            Buffer::Input | Buffer::Output if rank.0 >= size => None,
            Buffer::Input => collective.input_elements(size, rank, self.count),
            Buffer::Output => collective.output_elements(size, rank, self.count),
            // A barrier's signals hold nothing.
            Buffer::Scratch if collective == Collective::Barrier => None,
            // Scratch holds whole parts, or for in-place calls whole copies of the tensor, cut as
            // the tensor is: then a scratch chunk is as long as the chunk it is a copy of.
            Buffer::Scratch => {
                let parts = chunks.div_ceil(self.schedule.chunks_per_part().max(1));
                Some(self.count.saturating_mul(u64::from(parts)))
            }
        };
        let chunk_elements = self.schedule.chunk_elements(self.count, self.element_bytes);
        Grid { elements: elements.unwrap_or(0), chunks, chunk_elements }
    }

    /// The elements that `slice` names on `rank`.
    pub fn range(&self, rank: GroupRank, slice: Slice) -> Range<u64> {
        self.grid(rank, slice.buffer).range(slice.chunk, slice.chunks)
    }

    /// How many elements `slice` has on `rank`.
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
        #[test]
        fn chunks_tile_the_buffer_evenly(elements in 0u64..1 << 40, chunks in 1u32..5000) {
            let grid = Grid { elements, chunks, chunk_elements: None };
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
    }
}
