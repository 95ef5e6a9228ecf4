//! Reductions, element by element, to the bit.
//!
//! Both the simulator and the host executor reduce with [`combine`], which is what makes their
//! floats the same bits for the same schedule.

use crate::dtype::Dtype;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How elements of different ranks combine: `torch.distributed.ReduceOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the variants are PyTorch's names")]
pub enum ReduceOp {
    Sum,
    /// The sum divided by the group's size after the last addition (as NCCL divides integers;
    /// for floats NCCL scales each input first, which can round differently).
    Avg,
    Product,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
}

impl ReduceOp {
    /// Every operation, in PyTorch's order.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];

    /// PyTorch's name: `SUM`, `AVG`, …
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "SUM",
            ReduceOp::Avg => "AVG",
            ReduceOp::Product => "PRODUCT",
            ReduceOp::Min => "MIN",
            ReduceOp::Max => "MAX",
            ReduceOp::Band => "BAND",
            ReduceOp::Bor => "BOR",
            ReduceOp::Bxor => "BXOR",
        }
    }

    /// Whether elements of `dtype` can be combined so. Bitwise operations need integers, and a
    /// mean of booleans means nothing.
    pub fn supports(self, dtype: Dtype) -> bool {
        if !Dtype::COMPUTABLE.contains(&dtype) {
            return false;
        }
        match self {
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => !dtype.is_float(),
            ReduceOp::Avg => dtype != Dtype::Bool,
            _ => true,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Combines two runs of elements: `into[i] = local[i] op incoming[i]`, where `local` is what
/// `into` holds before. All are little-endian bytes of `dtype`; a trailing part of an element is
/// left alone. Integers wrap, as C++'s do in PyTorch; a pair that [`ReduceOp::supports`] refuses
/// leaves `into` as it was.
pub fn combine(dtype: Dtype, op: ReduceOp, into: &mut [u8], incoming: &[u8]) {
    macro_rules! each {
        ($ty:ty, $f:expr) => {
            each_element::<{ size_of::<$ty>() }>(into, incoming, |a, b| {
                let f: fn($ty, $ty) -> $ty = $f;
                f(<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b)).to_le_bytes()
            })
        };
    }
    macro_rules! integer {
        ($ty:ty) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg => each!($ty, |a, b| a.wrapping_add(b)),
                ReduceOp::Product => each!($ty, |a, b| a.wrapping_mul(b)),
                ReduceOp::Min => each!($ty, |a, b| a.min(b)),
                ReduceOp::Max => each!($ty, |a, b| a.max(b)),
                ReduceOp::Band => each!($ty, |a, b| a & b),
                ReduceOp::Bor => each!($ty, |a, b| a | b),
                ReduceOp::Bxor => each!($ty, |a, b| a ^ b),
            }
        };
    }
    macro_rules! float {
        ($ty:ty) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg => each!($ty, |a, b| a + b),
                ReduceOp::Product => each!($ty, |a, b| a * b),
                ReduceOp::Min => each!($ty, |a, b| if b < a || b.is_nan() { b } else { a }),
                ReduceOp::Max => each!($ty, |a, b| if b > a || b.is_nan() { b } else { a }),
                ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {}
            }
        };
    }
    match dtype {
        Dtype::Float64 => float!(f64),
        Dtype::Float32 => float!(f32),
        Dtype::Float16 => float!(f16),
        Dtype::Bfloat16 => float!(bf16),
        Dtype::Int64 => integer!(i64),
        Dtype::Int32 => integer!(i32),
        Dtype::Int16 => integer!(i16),
        Dtype::Int8 => integer!(i8),
        Dtype::Uint8 => integer!(u8),
        // A sum of booleans is "any", a product "all": c10 adds them as bool.
        Dtype::Bool => match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor => each!(u8, |a, b| a | b),
            ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => each!(u8, |a, b| a & b),
            ReduceOp::Bxor => each!(u8, |a, b| a ^ b),
            ReduceOp::Avg => {}
        },
        _ => {}
    }
}

/// Divides every element by `size`, which finishes [`ReduceOp::Avg`]: floats in their own
/// precision, integers towards zero.
pub fn divide(dtype: Dtype, elements: &mut [u8], size: u32) {
    macro_rules! each {
        ($ty:ty, $f:expr) => {
            each_element::<{ size_of::<$ty>() }>(elements, &[], |a, _| {
                let f: &dyn Fn($ty) -> $ty = &$f;
                f(<$ty>::from_le_bytes(a)).to_le_bytes()
            })
        };
    }
    if size == 0 {
        return;
    }
    match dtype {
        Dtype::Float64 => each!(f64, |a| a / f64::from(size)),
        Dtype::Float32 => each!(f32, |a| a / size as f32),
        Dtype::Float16 => each!(f16, |a| f16::from_f32(a.to_f32() / size as f32)),
        Dtype::Bfloat16 => each!(bf16, |a| bf16::from_f32(a.to_f32() / size as f32)),
        Dtype::Int64 => each!(i64, |a| a / i64::from(size)),
        Dtype::Int32 => each!(i32, |a| (i64::from(a) / i64::from(size)) as i32),
        Dtype::Int16 => each!(i16, |a| (i64::from(a) / i64::from(size)) as i16),
        Dtype::Int8 => each!(i8, |a| (i64::from(a) / i64::from(size)) as i8),
        Dtype::Uint8 => each!(u8, |a| (i64::from(a) / i64::from(size)) as u8),
        _ => {}
    }
}

/// Walks whole elements of `N` bytes; an absent `incoming` element reads as zero.
#[inline(always)]
fn each_element<const N: usize>(
    into: &mut [u8],
    incoming: &[u8],
    f: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (into, _) = into.as_chunks_mut::<N>();
    if incoming.is_empty() {
        for a in into {
            *a = f(*a, [0; N]);
        }
    } else {
        for (a, b) in into.iter_mut().zip(incoming.as_chunks::<N>().0) {
            *a = f(*a, *b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn sums_floats_in_their_own_precision() {
        let mut into = f32s(&[1.0, 16_777_216.0]);
        combine(Dtype::Float32, ReduceOp::Sum, &mut into, &f32s(&[2.5, 1.0]));
        assert_eq!(into, f32s(&[3.5, 16_777_216.0]));
        divide(Dtype::Float32, &mut into, 2);
        assert_eq!(into, f32s(&[1.75, 8_388_608.0]));
    }

    #[test]
    fn a_nan_survives_min_and_max_from_either_side() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let mut into = f32s(&[a]);
                combine(Dtype::Float32, op, &mut into, &f32s(&[b]));
                assert!(f32::from_le_bytes(into.try_into().unwrap()).is_nan(), "{op} {a} {b}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_booleans_are_logic() {
        let mut into = vec![200u8];
        combine(Dtype::Uint8, ReduceOp::Sum, &mut into, &[100]);
        assert_eq!(into, [44]);
        let mut into = vec![0, 1, 1, 0];
        combine(Dtype::Bool, ReduceOp::Sum, &mut into, &[0, 0, 1, 1]);
        assert_eq!(into, [0, 1, 1, 1]);
    }

    proptest! {
        /// Against arithmetic in a wider type, rounded once: what IEEE 754 and PyTorch promise.
        #[test]
        fn half_sums_round_once(a in any::<u16>(), b in any::<u16>()) {
            let (x, y) = (f16::from_bits(a), f16::from_bits(b));
            let wide = f16::from_f64(x.to_f64() + y.to_f64());
            let mut into = a.to_le_bytes();
            combine(Dtype::Float16, ReduceOp::Sum, &mut into, &b.to_le_bytes());
            let got = f16::from_le_bytes(into);
            prop_assert!(got.to_bits() == wide.to_bits() || (got.is_nan() && wide.is_nan()));
        }

        #[test]
        fn every_supported_pair_is_commutative(
            dtype in prop::sample::select(&Dtype::COMPUTABLE[4..]),
            op in prop::sample::select(&ReduceOp::ALL[..]),
            a in prop::collection::vec(0u8..2, 16), b in prop::collection::vec(0u8..2, 16),
        ) {
            prop_assume!(op.supports(dtype));
            let (mut x, mut y) = (a.clone(), b.clone());
            combine(dtype, op, &mut x, &b);
            combine(dtype, op, &mut y, &a);
            prop_assert_eq!(x, y);
        }
    }
}
