//! Reductions between memories that several processes see.
//!
//! A block at a time is combined into private memory, and copied from there to everywhere the result belongs.
//! Every operand is passed through memory once, however many there are: the block stays in the first level
//! cache.

use super::super::arena::Memory;
use crate::shm::{INLINE, Payload, Segment};
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{self, ReduceOp};

/// Bytes a block: it leaves room for its operands in a first level cache, and every element's size
/// divides it.
const BLOCK: usize = 8 << 10;

/// The reduction that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub(super) dtype: Dtype,
    pub(super) op: ReduceOp,
}

/// The place of an operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// At this offset of the segment.
    At(usize),
    /// Here.
    Inline([u64; INLINE / 8]),
}

impl Operand {
    /// The operand that a message brings; `None` if it was delivered already.
    pub(super) fn of(payload: Payload) -> Option<Operand> {
        match payload {
            Payload::Inline(words) => Some(Operand::Inline(words)),
            Payload::At(offset) | Payload::Lent(offset) => Some(Operand::At(offset)),
            Payload::Delivered => None,
        }
    }

    /// Calls `look` with `bytes` of it from `start` on.
    fn look<T>(
        self,
        segment: &Segment,
        start: usize,
        bytes: usize,
        look: impl FnOnce(&[u8]) -> T,
    ) -> T {
        match self {
            Operand::At(offset) => segment.look(offset + start, bytes, look),
            Operand::Inline(words) => {
                let mut here = [0; INLINE];
                for (place, word) in here.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *place = word.to_ne_bytes();
                }
                look(here.get(start..start + bytes).unwrap_or_default())
            }
        }
    }

    /// Copies all of it to where it belongs.
    pub(super) fn copy(self, segment: &Segment, into: Memory) {
        match self {
            Operand::At(offset) => segment.copy(offset, into.offset, into.bytes),
            Operand::Inline(_) => {
                self.look(segment, 0, into.bytes, |bytes| segment.store(into.offset, bytes));
            }
        }
    }
}

/// The buffers that reductions are carried out in.
#[derive(Debug)]
pub(super) struct Blocks {
    sum: Box<[u8; BLOCK]>,
}

impl Blocks {
    pub(super) fn new() -> Blocks {
        Blocks { sum: Box::new([0; BLOCK]) }
    }

    /// `into = local op incoming[0] op incoming[1] …`, from left to right, for all of `local`, and
    /// the result at each of the offsets.
    pub(super) fn reduce(
        &mut self,
        segment: &Segment,
        how: Reduction,
        local: Memory,
        incoming: &[Operand],
        into: &[usize],
    ) {
        let Some((first, others)) = incoming.split_first() else { return };
        let mut start = 0;
        while start < local.bytes {
            let bytes = BLOCK.min(local.bytes - start);
            let sum = &mut self.sum[..bytes];
            segment.look(local.offset + start, bytes, |local| {
                first.look(segment, start, bytes, |incoming| {
                    reduce::combine_to(how.dtype, how.op, local, incoming, sum);
                });
            });
            for operand in others {
                operand.look(segment, start, bytes, |incoming| {
                    reduce::combine(how.dtype, how.op, sum, incoming);
                });
            }
            for offset in into {
                segment.store(offset + start, sum);
            }
            start += bytes;
        }
    }

    /// Premultiplies the values in `from` and puts them at `into`, which may be the same place.
    pub(super) fn premultiply(
        &mut self,
        segment: &Segment,
        dtype: Dtype,
        factor: f64,
        from: Memory,
        into: usize,
    ) {
        self.each(segment, from, into, |block| reduce::premultiply(dtype, factor, block));
    }

    /// Divides every element by `size`.
    pub(super) fn divide(&mut self, segment: &Segment, dtype: Dtype, size: u32, what: Memory) {
        self.each(segment, what, what.offset, |block| reduce::divide(dtype, block, size));
    }

    fn each(
        &mut self,
        segment: &Segment,
        from: Memory,
        into: usize,
        mut change: impl FnMut(&mut [u8]),
    ) {
        let mut start = 0;
        while start < from.bytes {
            let block = &mut self.sum[..BLOCK.min(from.bytes - start)];
            segment.load(from.offset + start, block);
            change(block);
            segment.store(into + start, block);
            start += block.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operands_go_into_all_places() {
        let bytes = 3 * BLOCK + 7;
        let memory = Segment::create(4 * bytes).unwrap();
        let segment = Segment::map(&memory, 4 * bytes).unwrap();
        for (index, value) in [1, 20, 100, 0].into_iter().enumerate() {
            segment.store(index * bytes, &vec![value; bytes]);
        }
        let how = Reduction { dtype: Dtype::Uint8, op: ReduceOp::Sum };
        let incoming = [Operand::At(bytes), Operand::At(2 * bytes)];
        let local = Memory { offset: 0, bytes };
        let mut blocks = Blocks::new();
        blocks.reduce(&segment, how, local, &incoming, &[bytes, 3 * bytes]);
        let held = |at: usize| segment.look(at * bytes, bytes, <[u8]>::to_vec);
        assert_eq!(held(0), vec![1; bytes], "what is only read stays");
        assert_eq!(held(1), vec![121; bytes]);
        assert_eq!(held(2), vec![100; bytes]);
        assert_eq!(held(3), vec![121; bytes]);
        blocks.divide(&segment, Dtype::Uint8, 11, Memory { offset: bytes, bytes });
        assert_eq!(held(1), vec![11; bytes]);
    }

    #[test]
    fn what_comes_in_the_message_is_an_operand_too() {
        let memory = Segment::create(4096).unwrap();
        let segment = Segment::map(&memory, 4096).unwrap();
        segment.store(0, &[1, 2, 3, 4, 5]);
        let words = [u64::from_ne_bytes([10; 8]), 0, 0];
        let local = Memory { offset: 0, bytes: 5 };
        let how = Reduction { dtype: Dtype::Uint8, op: ReduceOp::Sum };
        Blocks::new().reduce(&segment, how, local, &[Operand::Inline(words)], &[0]);
        assert_eq!(segment.look(0, 6, <[u8]>::to_vec), [11, 12, 13, 14, 15, 0]);
        Operand::Inline(words).copy(&segment, Memory { offset: 1, bytes: 3 });
        assert_eq!(segment.look(0, 6, <[u8]>::to_vec), [11, 10, 10, 10, 15, 0]);
    }
}
