//! One step of a reduction: two runs of elements into one.

use super::{ReduceOp, each_pair};
use crate::dtype::Dtype;
use crate::dtype::float8::{Float8, Overflow};
use half::{bf16, f16};

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
    // `$wide` and `$narrow` go to the type that the operation is carried out in, and back.
    macro_rules! float {
        ($ty:ty, $wide:expr, $narrow:expr) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => {
                    pairs!($ty, |a, b| $narrow(plus($wide(a), $wide(b))))
                }
                ReduceOp::Product => pairs!($ty, |a, b| $narrow(times($wide(a), $wide(b)))),
                ReduceOp::Min => pairs!($ty, |a, b| if $wide(b) < $wide(a) { b } else { a }),
                ReduceOp::Max => pairs!($ty, |a, b| if $wide(b) > $wide(a) { b } else { a }),
                ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {}
            }
        };
    }
    // Through halves, as `__nv_fp8_e4m3(__hadd(__half(x), __half(y)))`.
    macro_rules! float8 {
        ($format:expr) => {
            float!(u8, |code| $format.to_f32(code), |wide| $format
                .from_f32(f16::from_f32(wide).to_f32(), Overflow::Saturate))
        };
    }
    match dtype.as_real() {
        Dtype::Float64 => float!(f64, |a: f64| a, |a: f64| a),
        Dtype::Float32 => float!(f32, |a: f32| a, |a: f32| a),
        // A float32 holds enough more than twice the bits of these that rounding to it first
        // changes nothing (Figueroa, "When is double rounding innocuous?", 1995).
        Dtype::Float16 => float!(f16, f16::to_f32, f16::from_f32),
        Dtype::Bfloat16 => float!(bf16, bf16::to_f32, bf16::from_f32),
        Dtype::Float8E4m3fn => float8!(Float8::E4M3FN),
        Dtype::Float8E5m2 => float8!(Float8::E5M2),
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

/// The floats that operations are carried out in.
pub(super) trait Wide: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
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
            fn plus(self, other: $ty) -> $ty {
                self + other
            }
            #[inline(always)]
            fn times(self, other: $ty) -> $ty {
                self * other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$ty>::is_nan(self)
            }
            #[inline(always)]
            fn quiet(self) -> $ty {
                <$ty>::from_bits(self.to_bits() | $quiet)
            }
            #[inline(always)]
            fn default_nan() -> $ty {
                <$ty>::from_bits(<$ty>::NEG_INFINITY.to_bits() | $quiet)
            }
        }
    };
}
wide!(f32, 1 << 22);
wide!(f64, 1 << 51);

#[inline(always)]
pub(super) fn plus<T: Wide>(a: T, b: T) -> T {
    settle(a, b, a.plus(b))
}

#[inline(always)]
pub(super) fn times<T: Wide>(a: T, b: T) -> T {
    settle(a, b, a.times(b))
}

/// The bits of a NaN differ between processors, and WebAssembly leaves them open; a trace must not
/// differ.
#[inline(always)]
fn settle<T: Wide>(a: T, b: T, result: T) -> T {
    match (result.is_nan(), a.is_nan(), b.is_nan()) {
        (false, ..) => result,
        (true, true, _) => a.quiet(),
        (true, false, true) => b.quiet(),
        (true, false, false) => T::default_nan(),
    }
}
