//! The type and shape that PyTorch computes in where operands differ (`torch.result_type`, broadcasting).

use crate::process::raised::refused;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{DistError, ErrorKind};

/// `torch.promote_types(a, b)`.
pub(crate) fn promote(a: Dtype, b: Dtype) -> Dtype {
    use Dtype::{
        Bfloat16, Bool, Complex64, Complex128, Float16, Float32, Float64, Int8, Int16, Int32,
        Int64, Uint8,
    };
    let wide = |dtype: Dtype| matches!(dtype, Float64 | Complex128);
    match (a, b) {
        (a, b) if a == b => a,
        (Bool, other) | (other, Bool) => other,
        (a, b) if a.is_complex() || b.is_complex() => match wide(a) || wide(b) {
            true => Complex128,
            false => Complex64,
        },
        (a, b) if a.is_float() && b.is_float() => match (a, b) {
            (Float64, _) | (_, Float64) => Float64,
            (Float16 | Bfloat16, other) | (other, Float16 | Bfloat16) if other.is_float8() => other,
            // A half and a bfloat16 are both in float32 only.
            _ => Float32,
        },
        (float, _) | (_, float) if float.is_float() => float,
        (Int64, _) | (_, Int64) => Int64,
        (Int32, _) | (_, Int32) => Int32,
        (Uint8, Int8) | (Int8, Uint8) | (Int16, _) | (_, Int16) => Int16,
        (a, _) => a,
    }
}

/// The category of a type: booleans, whole numbers, floats, complex numbers. A tensor that has no
/// dimensions, or is a number of Python's, decides the type only where it holds more than the
/// others.
pub(crate) fn category(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::Bool => 0,
        dtype if dtype.is_complex() => 3,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The shape of an operation's result, from the shapes of its two operands.
pub(crate) fn broadcast(a: &[u64], b: &[u64]) -> anyhow::Result<Vec<u64>> {
    let dims = a.len().max(b.len());
    let size = |of: &[u64], dim: usize| match (dim + of.len()).checked_sub(dims) {
        Some(at) => of.get(at).copied().unwrap_or(1),
        None => 1,
    };
    let sizes = (0..dims).map(|dim| match (size(a, dim), size(b, dim)) {
        (a, b) if a == b || b == 1 => Ok(a),
        (1, b) => Ok(b),
        (a, b) => Err(refused(DistError::new(
            ErrorKind::RuntimeError,
            format!(
                "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton \
                 dimension {dim}"
            ),
        ))),
    });
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of `torch.promote_types` of 2.7.1.
    #[test]
    fn types_are_promoted_as_in_pytorch() {
        for (a, b, expected) in [
            ("half", "bfloat16", "float32"),
            ("bfloat16", "float32", "float32"),
            ("half", "float64", "float64"),
            ("int64", "half", "float16"),
            ("uint8", "int8", "int16"),
            ("uint8", "int16", "int16"),
            ("bool", "uint8", "uint8"),
            ("int32", "int64", "int64"),
            ("float64", "complex64", "complex128"),
            ("int64", "complex64", "complex64"),
        ] {
            let of = Dtype::from_torch_name;
            assert_eq!(promote(of(a), of(b)), of(expected), "{a} {b}");
            assert_eq!(promote(of(b), of(a)), of(expected), "{b} {a}");
        }
    }

    #[test]
    fn shapes_are_broadcast() {
        assert_eq!(broadcast(&[2, 3], &[3]).unwrap(), [2, 3]);
        assert_eq!(broadcast(&[2, 1], &[3]).unwrap(), [2, 3]);
        assert_eq!(broadcast(&[], &[3]).unwrap(), [3]);
        assert_eq!(
            broadcast(&[3], &[4]).unwrap_err().to_string(),
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at \
             non-singleton dimension 0"
        );
    }
}
