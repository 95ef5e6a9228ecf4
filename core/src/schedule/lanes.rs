//! Lanes: copies of a family's steps, each on its own slice of every part of the tensors.
//!
//! - *Channels* go through the steps side by side, as NCCL's do (`ncclChannel`, `src/include/device.h`;
//!   at most `MAXCHANNELS`, 64).
//! - *Segments* of a channel follow each other through the steps, one behind the other, as the
//!   loops of NCCL's trees do (`src/device/all_reduce.h`, `runTreeUpDown`): a pipeline.
//!
//! A part that the family cuts into p pieces is cut into lanes first and each lane's slice into p
//! pieces, so that what a lane moves lies together.

use super::{Action, Slice};

/// The number of lanes, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lanes {
    pub(super) channels: u32,
    pub(super) segments: u32,
}

impl Lanes {
    /// A single lane.
    pub(super) const ONE: Lanes = Lanes { channels: 1, segments: 1 };

    /// Lanes in all. At most 2^16.
    pub(super) fn count(self) -> u32 {
        self.channels * self.segments
    }

    /// Steps of all lanes, for a family of `steps` whose segments are `stagger` steps apart.
    pub(super) fn steps(self, steps: u32, stagger: u32) -> u32 {
        match steps {
            0 => 0,
            _ => steps.saturating_add((self.segments - 1).saturating_mul(stagger)),
        }
    }

    /// The lanes that act in `step`, in order, each with the family's step that it is in.
    pub(super) fn acting(
        self,
        step: u32,
        steps: u32,
        stagger: u32,
    ) -> impl Iterator<Item = (u32, u32)> {
        // Segment i is in step `step - i * stagger`, if the family has it.
        let stagger = stagger.max(1);
        let last = (step / stagger).min(self.segments - 1);
        let first = match (step + 1).checked_sub(steps) {
            None => 0,
            Some(over) => over.div_ceil(stagger),
        };
        (0..self.channels).flat_map(move |channel| {
            (first..=last)
                .filter(move |_| steps > 0)
                .map(move |segment| (channel * self.segments + segment, step - segment * stagger))
        })
    }

    /// Makes the family's actions from `begin` on those of `lane`: their slices moved to the
    /// lane's, and cut where they go from one part to the next. What is cut off goes to the end;
    /// since both sides of a message cut it alike, the order between two participants holds.
    pub(super) fn place(self, lane: u32, pieces: u32, begin: usize, actions: &mut Vec<Action>) {
        let place = Place { pieces, lanes: self.count(), lane };
        for index in begin..actions.len() {
            let action = actions[index];
            let length = action.into_or_from().chunks;
            let (mut done, mut at) = (0, Some(index));
            loop {
                let rest = action.map(|slice| {
                    let chunks = slice.chunks.saturating_sub(done);
                    Slice { chunk: slice.chunk + done, chunks, ..slice }
                });
                let mut run = u32::MAX;
                let first = rest.map(|slice| {
                    run = run.min(place.in_part(slice));
                    place.moved(slice)
                });
                let first = first.map(|slice| Slice { chunks: run, ..slice });
                match at.take() {
                    Some(index) => actions[index] = first,
                    None => actions.push(first),
                }
                done += run.max(1);
                if done >= length {
                    break;
                }
            }
        }
    }
}

/// The place of one lane's chunks among all chunks.
#[derive(Clone, Copy)]
struct Place {
    pieces: u32,
    lanes: u32,
    lane: u32,
}

impl Place {
    /// Chunks of the slice that are in the part that it begins in.
    fn in_part(self, slice: Slice) -> u32 {
        slice.chunks.min(self.pieces - slice.chunk % self.pieces)
    }

    fn moved(self, slice: Slice) -> Slice {
        let (part, piece) = (slice.chunk / self.pieces, slice.chunk % self.pieces);
        let chunk = (part * self.lanes + self.lane) * self.pieces + piece;
        Slice { chunk, ..slice }
    }
}
