//! Arithmetic on runs of floats of any format: widened to a format that processors add, a block at a time, so
//! that the loops are vectorised, and narrowed with one rounding.

use crate::dtype::float8::{Float8, Overflow};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements a block: enough for any vector unit, few enough for the first level cache.
const BLOCK: usize = 64;

/// A float that operations are carried out in.
pub(super) trait Wide: Copy + Default + PartialOrd {
    fn is_nan(self) -> bool;
    /// The NaN itself, with the bit set that says it is quiet.
    fn quiet(self) -> Self;
    /// The NaN that x86 makes of operands that are none: negative, quiet, no payload.
    fn default_nan() -> Self;
}

macro_rules! wide {
    ($ty:ty, $quiet:expr) => {
        impl Wide for $ty {
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$ty>::is_nan(self)
            }
            fn quiet(self) -> $ty {
                <$ty>::from_bits(self.to_bits() | $quiet)
            }
            fn default_nan() -> $ty {
                <$ty>::from_bits(<$ty>::NEG_INFINITY.to_bits() | $quiet)
            }
        }
    };
}
wide!(f32, 1 << 22);
wide!(f64, 1 << 51);

/// The bits of a NaN differ between processors, and WebAssembly leaves them open; a trace must not
/// differ.
pub(super) fn settle<T: Wide>(a: T, b: T, result: T) -> T {
    match (result.is_nan(), a.is_nan(), b.is_nan()) {
        (false, ..) => result,
        (true, true, _) => a.quiet(),
        (true, false, true) => b.quiet(),
        (true, false, false) => T::default_nan(),
    }
}

/// A format of floats in memory, little-endian.
pub(super) trait Format<const BYTES: usize> {
    /// The type that operations are carried out in. It holds every value of the format, and enough
    /// more than twice its bits that rounding to it first changes nothing (Figueroa, "When is
    /// double rounding innocuous?", 1995).
    type Wide: Wide;

    /// The values of a block; exact.
    fn widen(&self, elements: &[[u8; BYTES]; BLOCK]) -> [Self::Wide; BLOCK];

    /// Values as a block, each rounded to the nearest.
    fn narrow(&self, values: &[Self::Wide; BLOCK]) -> [[u8; BYTES]; BLOCK];

    /// `into[i] = f(into[i], incoming[i])`, rounded once.
    #[inline(always)]
    fn pairs(
        &self,
        into: &mut [u8],
        incoming: &[u8],
        f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide,
    ) {
        blocks(into, incoming, |into, incoming| {
            *into = self.narrow(&all(&self.widen(into), &self.widen(incoming), &f));
        });
    }

    /// `elements[i] = f(elements[i], operand)`, rounded once.
    #[inline(always)]
    fn each(
        &self,
        elements: &mut [u8],
        operand: Self::Wide,
        f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide,
    ) {
        let operand = [operand; BLOCK];
        let (elements, _) = elements.as_chunks_mut::<BYTES>();
        let (whole, rest) = elements.as_chunks_mut::<BLOCK>();
        for block in whole {
            *block = self.narrow(&all(&self.widen(block), &operand, &f));
        }
        let mut block = [[0; BYTES]; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        block = self.narrow(&all(&self.widen(&block), &operand, &f));
        rest.copy_from_slice(&block[..rest.len()]);
    }

    /// Takes `incoming[i]`, bit for bit, where `better` of `into[i]` and it.
    #[inline(always)]
    fn take(
        &self,
        into: &mut [u8],
        incoming: &[u8],
        better: impl Fn(Self::Wide, Self::Wide) -> bool,
    ) {
        blocks(into, incoming, |into, incoming| {
            let (local, other) = (self.widen(into), self.widen(incoming));
            for (index, (into, incoming)) in into.iter_mut().zip(incoming).enumerate() {
                *into = if better(local[index], other[index]) { *incoming } else { *into };
            }
        });
    }
}

/// Calls `f` with one block after the other of both runs, as far as both go; the last is filled up
/// with zeros.
#[inline(always)]
fn blocks<const BYTES: usize>(
    into: &mut [u8],
    incoming: &[u8],
    f: impl Fn(&mut [[u8; BYTES]; BLOCK], &[[u8; BYTES]; BLOCK]),
) {
    let (into, _) = into.as_chunks_mut::<BYTES>();
    let (incoming, _) = incoming.as_chunks::<BYTES>();
    let count = into.len().min(incoming.len());
    let (into, rest) = into[..count].as_chunks_mut::<BLOCK>();
    let (incoming, incoming_rest) = incoming[..count].as_chunks::<BLOCK>();
    for (into, incoming) in into.iter_mut().zip(incoming) {
        f(into, incoming);
    }
    if !rest.is_empty() {
        let mut filled = [[[0; BYTES]; BLOCK]; 2];
        filled[0][..rest.len()].copy_from_slice(rest);
        filled[1][..rest.len()].copy_from_slice(incoming_rest);
        let [into, incoming] = &mut filled;
        f(into, incoming);
        rest.copy_from_slice(&into[..rest.len()]);
    }
}

/// `f` of every pair of a block. Whether there is a NaN is asked of the block, so that only those
/// which have one pay for its bits.
#[inline(always)]
fn all<T: Wide>(a: &[T; BLOCK], b: &[T; BLOCK], f: impl Fn(T, T) -> T) -> [T; BLOCK] {
    let mut results: [T; BLOCK] = std::array::from_fn(|index| f(a[index], b[index]));
    // Counted and not asked for the first: that is a loop without a way out.
    let nans: u32 = results.iter().map(|result| u32::from(result.is_nan())).sum();
    if nans > 0 {
        for (index, result) in results.iter_mut().enumerate() {
            *result = settle(a[index], b[index], *result);
        }
    }
    results
}

/// IEEE 754 binary64.
pub(super) struct Float64;
/// IEEE 754 binary32.
pub(super) struct Float32;
/// IEEE 754 binary16.
pub(super) struct Float16;
/// The upper half of a binary32.
pub(super) struct Bfloat16;

macro_rules! as_it_is {
    ($format:ty, $wide:ty, $bytes:literal) => {
        impl Format<$bytes> for $format {
            type Wide = $wide;

            #[inline(always)]
            fn widen(&self, elements: &[[u8; $bytes]; BLOCK]) -> [$wide; BLOCK] {
                elements.map(<$wide>::from_le_bytes)
            }

            #[inline(always)]
            fn narrow(&self, values: &[$wide; BLOCK]) -> [[u8; $bytes]; BLOCK] {
                values.map(<$wide>::to_le_bytes)
            }
        }
    };
}
as_it_is!(Float64, f64, 8);
as_it_is!(Float32, f32, 4);

impl Format<2> for Float16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(&self, elements: &[[u8; 2]; BLOCK]) -> [f32; BLOCK] {
        let mut values = [0.0; BLOCK];
        elements.map(f16::from_le_bytes).convert_to_f32_slice(&mut values);
        values
    }

    #[inline(always)]
    fn narrow(&self, values: &[f32; BLOCK]) -> [[u8; 2]; BLOCK] {
        halves(values).map(f16::to_le_bytes)
    }
}

/// The nearest halves, by the processor where it can.
#[inline(always)]
fn halves(values: &[f32; BLOCK]) -> [f16; BLOCK] {
    let mut halves = [f16::ZERO; BLOCK];
    halves.convert_from_f32_slice(values);
    halves
}

impl Format<2> for Bfloat16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(&self, elements: &[[u8; 2]; BLOCK]) -> [f32; BLOCK] {
        // A signalling NaN stays one here; the operation makes it quiet.
        elements.map(|element| f32::from_bits(u32::from(u16::from_le_bytes(element)) << 16))
    }

    #[inline(always)]
    fn narrow(&self, values: &[f32; BLOCK]) -> [[u8; 2]; BLOCK] {
        values.map(|value| bf16::from_f32(value).to_le_bytes())
    }
}

impl Format<1> for Float8 {
    type Wide = f32;

    #[inline(always)]
    fn widen(&self, elements: &[[u8; 1]; BLOCK]) -> [f32; BLOCK] {
        let values = self.values();
        elements.map(|[code]| values[usize::from(code)])
    }

    #[inline(always)]
    fn narrow(&self, values: &[f32; BLOCK]) -> [[u8; 1]; BLOCK] {
        let mut rounded = [0.0; BLOCK];
        halves(values).convert_to_f32_slice(&mut rounded);
        rounded.map(|value| [self.from_f32(value, Overflow::Saturate)])
    }
}
