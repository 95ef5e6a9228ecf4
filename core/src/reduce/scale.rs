//! The work of AVG and PREMUL_SUM besides adding.
//!
//! NCCL's `hostToDevRedOp` (`src/enqueue.cc`) makes of `ncclAvg` a `ncclDevPreMulSum` with the
//! factor 1/n for floats, rounded to float32 and then to the type, and a `ncclDevSumPostDiv` for
//! integers. PyTorch's `unpackPreMulSum` (`ProcessGroupNCCL.cpp`) passes the factor of PREMUL_SUM
//! in the tensor's type.

use super::float::{Bfloat16, Float16, Float32, Float64, Format};
use super::{ReduceOp, each};
use crate::dtype::Dtype;
use crate::dtype::float8::{Float8, Overflow};
use half::{bf16, f16};

/// The factor that every rank's elements are multiplied with before the first step, if anything:
/// the factor of PREMUL_SUM, and 1/`size` for AVG of floats.
pub fn premultiplier(op: ReduceOp, dtype: Dtype, size: u32) -> Option<f64> {
    match op {
        ReduceOp::PremulSum(factor) => Some(factor.value()),
        ReduceOp::Avg if dtype.is_float() || dtype.is_complex() => {
            Some(1.0 / f64::from(size.max(1)))
        }
        _ => None,
    }
}

/// The number that the result is divided by after the last step, if anything: `size` for AVG of integers.
pub fn divisor(op: ReduceOp, dtype: Dtype, size: u32) -> Option<u32> {
    let integers = !dtype.is_float() && !dtype.is_complex();
    (op == ReduceOp::Avg && integers).then_some(size)
}

/// Multiplies every element with `factor`: the factor is rounded to the elements' type first, by
/// way of float32 unless that is float64, and each product is rounded once. 8-bit floats saturate,
/// as NCCL's. Leaves integers and booleans as they are: no backend has such an operation.
pub fn premultiply(dtype: Dtype, factor: f64, elements: &mut [u8]) {
    let single = factor as f32;
    match dtype.as_real() {
        Dtype::Float64 => Float64.each(elements, factor, |a, factor| a * factor),
        Dtype::Float32 => Float32.each(elements, single, |a, factor| a * factor),
        Dtype::Float16 => {
            Float16.each(elements, f16::from_f32(single).to_f32(), |a, factor| a * factor);
        }
        Dtype::Bfloat16 => {
            Bfloat16.each(elements, bf16::from_f32(single).to_f32(), |a, factor| a * factor);
        }
        Dtype::Float8E4m3fn => float8(Float8::E4M3FN, single, elements),
        Dtype::Float8E5m2 => float8(Float8::E5M2, single, elements),
        _ => {}
    }
}

fn float8(format: Float8, factor: f32, elements: &mut [u8]) {
    let factor = format.to_f32(format.from_f32(factor, Overflow::Saturate));
    format.each(elements, factor, |a, factor| a * factor);
}

/// Divides every integer by `size`, towards zero, which finishes [`ReduceOp::Avg`] of integers.
/// Leaves other elements as they are.
pub fn divide(dtype: Dtype, elements: &mut [u8], size: u32) {
    macro_rules! quotients {
        ($ty:ty) => {
            each(elements, |a| {
                // Wide enough for every divisor; the quotient fits again.
                let quotient = <$ty>::from_le_bytes(a) as i64 / i64::from(size);
                (quotient as $ty).to_le_bytes()
            })
        };
    }
    if size == 0 {
        return;
    }
    match dtype {
        Dtype::Int64 => quotients!(i64),
        Dtype::Int32 => quotients!(i32),
        Dtype::Int16 => quotients!(i16),
        Dtype::Int8 => quotients!(i8),
        Dtype::Uint8 => quotients!(u8),
        _ => {}
    }
}

/// Multiplies every half-precision float with a factor that stays a float32, as PyTorch's `mul_` with
/// a number does; other elements as [`premultiply`].
pub fn multiply(dtype: Dtype, factor: f64, elements: &mut [u8]) {
    match dtype {
        Dtype::Float16 => Float16.each(elements, factor as f32, |a, factor| a * factor),
        Dtype::Bfloat16 => Bfloat16.each(elements, factor as f32, |a, factor| a * factor),
        _ => premultiply(dtype, factor, elements),
    }
}

/// Divides every float by `size`, as PyTorch's `div_` does. Leaves other elements as they are.
pub fn quotient(dtype: Dtype, size: u32, elements: &mut [u8]) {
    match dtype.as_real() {
        Dtype::Float64 => Float64.each(elements, f64::from(size), |a, size| a / size),
        Dtype::Float32 => Float32.each(elements, size as f32, |a, size| a / size),
        Dtype::Float16 => Float16.each(elements, size as f32, |a, size| a / size),
        Dtype::Bfloat16 => Bfloat16.each(elements, size as f32, |a, size| a / size),
        _ => {}
    }
}
