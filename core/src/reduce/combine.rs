//! One step of a reduction: two runs of elements into one.

use super::float::{Bfloat16, Float16, Format, settle};
use super::{ReduceOp, count_pairs, each_pair, each_triple};
use crate::dtype::Dtype;
use crate::dtype::float8::Float8;

/// Bytes that are gone through twice: of both operands they fit a first level cache, and they are a
/// multiple of every element.
const PIECE: usize = 4096;

/// Combines two runs of elements: `into[i] = local[i] op incoming[i]`, where `local` is what
/// `into` holds before. All are little-endian bytes of `dtype`; a trailing part of an element is
/// left alone, and so is what is longer in one run than in the other. A pair that
/// [`ReduceOp::supports`] refuses leaves `into` as it was.
///
/// - Integers wrap, as C++'s do in PyTorch. Booleans are logic: SUM is "any", PRODUCT "all".
/// - Floats round once per operation. A NaN that an operation makes has the bits that x86 gives
///   it, on every target: the first operand's, else the second's, else the default NaN.
/// - MIN and MAX take `incoming` only when it compares smaller or larger, as gloo's `std::min` and
///   `std::max`: a NaN stays where it is `local` and is lost where it is `incoming`. (NCCL's
///   `fminf` loses it from either side; over gloo the recorded results show this order.)
/// - 8-bit floats are combined as halves and saturate, as in NCCL; no other backend reduces them.
/// - Complex numbers are pairs of floats: PyTorch reduces `torch.view_as_real` of them.
/// - AVG and PREMUL_SUM add; what they do besides is [`premultiply`](super::premultiply)'s and
///   [`divide`](super::divide)'s.
pub fn combine(dtype: Dtype, op: ReduceOp, into: &mut [u8], incoming: &[u8]) {
    if !op.supports(dtype) {
        return;
    }
    macro_rules! pairs {
        ($ty:ty, $f:expr) => {
            each_pair::<{ size_of::<$ty>() }>(into, incoming, |a, b| {
                let f: fn($ty, $ty) -> $ty = $f;
                f(<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b)).to_le_bytes()
            })
        };
    }
    macro_rules! integer {
        ($ty:ty) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg => pairs!($ty, |a, b| a.wrapping_add(b)),
                ReduceOp::Product => pairs!($ty, |a, b| a.wrapping_mul(b)),
                ReduceOp::Min => pairs!($ty, |a, b| a.min(b)),
                ReduceOp::Max => pairs!($ty, |a, b| a.max(b)),
                ReduceOp::Band => pairs!($ty, |a, b| a & b),
                ReduceOp::Bor => pairs!($ty, |a, b| a | b),
                ReduceOp::Bxor => pairs!($ty, |a, b| a ^ b),
                ReduceOp::PremulSum(_) => {}
            }
        };
    }
    // Looks for NaNs first, while a piece is in the first level cache: a loop that also had to give
    // them their bits would take three times as long.
    macro_rules! arithmetic {
        ($ty:ty, $f:expr) => {
            for (into, incoming) in into.chunks_mut(PIECE).zip(incoming.chunks(PIECE)) {
                let f: fn($ty, $ty) -> $ty = $f;
                let nans = count_pairs::<{ size_of::<$ty>() }>(into, incoming, |a, b| {
                    f(<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b)).is_nan()
                });
                each_pair::<{ size_of::<$ty>() }>(into, incoming, |a, b| {
                    let (a, b) = (<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b));
                    let result = f(a, b);
                    (if nans > 0 { settle(a, b, result) } else { result }).to_le_bytes()
                });
            }
        };
    }
    macro_rules! float {
        ($format:expr) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => {
                    $format.pairs(into, incoming, |a, b| a + b)
                }
                ReduceOp::Product => $format.pairs(into, incoming, |a, b| a * b),
                ReduceOp::Min => $format.take(into, incoming, |local, other| other < local),
                ReduceOp::Max => $format.take(into, incoming, |local, other| other > local),
                ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {}
            }
        };
    }
    match dtype.as_real() {
        Dtype::Float64 => match op {
            ReduceOp::Min => pairs!(f64, |a, b| if b < a { b } else { a }),
            ReduceOp::Max => pairs!(f64, |a, b| if b > a { b } else { a }),
            ReduceOp::Product => arithmetic!(f64, |a, b| a * b),
            _ => arithmetic!(f64, |a, b| a + b),
        },
        Dtype::Float32 => match op {
            ReduceOp::Min => pairs!(f32, |a, b| if b < a { b } else { a }),
            ReduceOp::Max => pairs!(f32, |a, b| if b > a { b } else { a }),
            ReduceOp::Product => arithmetic!(f32, |a, b| a * b),
            _ => arithmetic!(f32, |a, b| a + b),
        },
        Dtype::Float16 => float!(Float16),
        Dtype::Bfloat16 => float!(Bfloat16),
        // Through halves, as `__nv_fp8_e4m3(__hadd(__half(x), __half(y)))`.
        Dtype::Float8E4m3fn => float!(Float8::E4M3FN),
        Dtype::Float8E5m2 => float!(Float8::E5M2),
        Dtype::Int64 => integer!(i64),
        Dtype::Int32 => integer!(i32),
        Dtype::Int16 => integer!(i16),
        Dtype::Int8 => integer!(i8),
        Dtype::Uint8 => integer!(u8),
        Dtype::Bool => match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor => pairs!(u8, |a, b| a | b),
            ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => pairs!(u8, |a, b| a & b),
            ReduceOp::Bxor => pairs!(u8, |a, b| a ^ b),
            ReduceOp::Avg | ReduceOp::PremulSum(_) => {}
        },
        Dtype::Complex64 | Dtype::Complex128 | Dtype::Unknown => {}
    }
}

/// As [`combine`](fn@combine), with a place of its own for the result: `into[i] = local[i] op incoming[i]`,
/// for the length of the shortest. If memory bandwidth is the limit, this saves the pass that would copy
/// `local` first.
pub fn combine_to(dtype: Dtype, op: ReduceOp, local: &[u8], incoming: &[u8], into: &mut [u8]) {
    // Looks for NaNs while it goes: `local` is still there to begin anew.
    macro_rules! arithmetic {
        ($ty:ty, $f:expr) => {{
            let f: fn($ty, $ty) -> $ty = $f;
            let pieces =
                into.chunks_mut(PIECE).zip(local.chunks(PIECE)).zip(incoming.chunks(PIECE));
            for ((into, local), incoming) in pieces {
                let mut nans = 0u32;
                each_triple::<{ size_of::<$ty>() }>(local, incoming, into, |a, b| {
                    let result = f(<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b));
                    nans += u32::from(result.is_nan());
                    result.to_le_bytes()
                });
                if nans > 0 {
                    each_triple::<{ size_of::<$ty>() }>(local, incoming, into, |a, b| {
                        let (a, b) = (<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b));
                        settle(a, b, f(a, b)).to_le_bytes()
                    });
                }
            }
        }};
    }
    let adds = matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_));
    match dtype.as_real() {
        Dtype::Float32 if adds => arithmetic!(f32, |a, b| a + b),
        Dtype::Float64 if adds => arithmetic!(f64, |a, b| a + b),
        _ => {
            let bytes = into.len().min(local.len()).min(incoming.len());
            into[..bytes].copy_from_slice(&local[..bytes]);
            combine(dtype, op, &mut into[..bytes], &incoming[..bytes]);
        }
    }
}
