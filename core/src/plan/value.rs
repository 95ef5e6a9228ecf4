//! The contents of tensors at the start: [`Fill`] as bytes.

use super::{Fill, Tensor};
use crate::dtype::Dtype;
use crate::dtype::float8::{Float8, Overflow};
use crate::rank::GlobalRank;
use half::{bf16, f16};

/// The bytes of `tensor` as `rank` makes it, little-endian, `numel * size_bytes` long. Values are
/// cast as `tensor.to(dtype)` casts them.
pub fn initial_bytes(tensor: &Tensor, rank: GlobalRank) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tensor.bytes() as usize);
    if tensor.fill == Fill::Data {
        bytes.extend_from_slice(&tensor.data.0);
        bytes.resize(tensor.bytes() as usize, 0);
        return bytes;
    }
    for index in 0..tensor.numel {
        push_element(tensor, rank, index, &mut bytes);
    }
    bytes
}

fn push_element(tensor: &Tensor, rank: GlobalRank, index: u64, bytes: &mut Vec<u8>) {
    let whole = match tensor.fill {
        Fill::Zeros | Fill::Data | Fill::Unknown => 0,
        Fill::Full { value } => value as u64,
        Fill::Rank => u64::from(rank.0),
        Fill::Iota => u64::from(rank.0).wrapping_mul(tensor.numel).wrapping_add(index),
        // A complex tensor's parts are the elements of the float tensor twice as long that
        // `torch.view_as_real` shows.
        Fill::Seeded { seed } if tensor.dtype.is_complex() => {
            for part in 0..2 {
                let index = index.wrapping_mul(2).wrapping_add(part);
                push_seeded(tensor.dtype.as_real(), seed, rank, index, bytes);
            }
            return;
        }
        Fill::Seeded { seed } => return push_seeded(tensor.dtype, seed, rank, index, bytes),
        Fill::Arange { start, step } => {
            let value = start.get() + index as f64 * step.get();
            bytes.extend(number_bytes(tensor.dtype, value));
            return;
        }
    };
    push_whole(tensor.dtype, whole as i64, bytes);
}

/// One element of a type, little-endian.
pub fn number_bytes(dtype: Dtype, value: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    match dtype {
        dtype if dtype.is_float() => push_float(dtype, value, value as f32, &mut bytes),
        dtype if dtype.is_complex() => {
            push_float(dtype.as_real(), value, value as f32, &mut bytes);
            push_float(dtype.as_real(), 0.0, 0.0, &mut bytes);
        }
        dtype => push_whole(dtype, value as i64, &mut bytes),
    }
    bytes
}

/// The value of one element of a type; `None` if it is not a real number, or not an exact float64.
pub fn number(dtype: Dtype, bytes: &[u8]) -> Option<f64> {
    if dtype == Dtype::Bool {
        return Some(f64::from(u8::from(*bytes.first()? != 0)));
    }
    let value: f64 = match dtype.is_complex() {
        true => return None,
        // The shortest decimal of a number that is shorter than a float64 is another one.
        false if dtype == Dtype::Float32 => f64::from(f32::from_le_bytes(*bytes.first_chunk()?)),
        false if dtype == Dtype::Float16 => {
            half::f16::from_le_bytes(*bytes.first_chunk()?).to_f64()
        }
        false if dtype == Dtype::Bfloat16 => {
            half::bf16::from_le_bytes(*bytes.first_chunk()?).to_f64()
        }
        false => display_element(dtype, bytes).parse().ok()?,
    };
    (dtype.is_float() || value.abs() <= EXACT).then_some(value)
}

/// Whole numbers up to here are exact in a float64.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number, cast.
fn push_whole(dtype: Dtype, value: i64, bytes: &mut Vec<u8>) {
    match dtype {
        dtype if dtype.is_float() => push_float(dtype, value as f64, value as f32, bytes),
        dtype if dtype.is_complex() => {
            push_float(dtype.as_real(), value as f64, value as f32, bytes);
            push_float(dtype.as_real(), 0.0, 0.0, bytes);
        }
        Dtype::Bool => bytes.push(u8::from(value != 0)),
        dtype => bytes.extend(&value.to_le_bytes()[..dtype.size_bytes().min(8) as usize]),
    }
}

/// splitmix64 (Steele, Lea, Flood 2014), keyed by seed, rank and index. Floats have a 24 or 53 bit
/// significand and exponents that differ by up to 7, so that sums of them do round.
fn push_seeded(dtype: Dtype, seed: u64, rank: GlobalRank, index: u64, bytes: &mut Vec<u8>) {
    let key = mix(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(rank.0)));
    let bits = mix(key.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    // 2^(e - significand bits), exact: a power of two by its exponent field.
    let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
    let exponent = (bits & 7) as i64 - 4;
    let wide = ((bits >> 11) as i64 - (1 << 52)) as f64 * power(exponent - 52);
    let single = (((bits >> 40) as i64 - (1 << 23)) as f64 * power(exponent - 23)) as f32;
    match dtype {
        dtype if dtype.is_float() => push_float(dtype, wide, single, bytes),
        Dtype::Bool => bytes.push((bits & 1) as u8),
        dtype => bytes.extend(&bits.to_le_bytes()[..dtype.size_bytes().min(8) as usize]),
    }
}

/// A float of the type `dtype`: `wide` where it is float64, else `single`, rounded to the nearest.
fn push_float(dtype: Dtype, wide: f64, single: f32, bytes: &mut Vec<u8>) {
    match dtype {
        Dtype::Float64 => bytes.extend(wide.to_le_bytes()),
        Dtype::Float32 => bytes.extend(single.to_le_bytes()),
        Dtype::Float16 => bytes.extend(f16::from_f32(single).to_le_bytes()),
        Dtype::Bfloat16 => bytes.extend(bf16::from_f32(single).to_le_bytes()),
        Dtype::Float8E4m3fn => bytes.push(Float8::E4M3FN.from_f32(single, Overflow::Torch)),
        Dtype::Float8E5m2 => bytes.push(Float8::E5M2.from_f32(single, Overflow::Torch)),
        _ => {}
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One element as people read it: `1.5`, `-3`, `true`, `1-2j`. Empty when `bytes` holds no whole
/// element.
pub fn display_element(dtype: Dtype, bytes: &[u8]) -> String {
    macro_rules! read {
        ($ty:ty) => {
            bytes.first_chunk().map(|bytes| <$ty>::from_le_bytes(*bytes).to_string())
        };
    }
    let text = match dtype {
        Dtype::Float64 => read!(f64),
        Dtype::Float32 => read!(f32),
        Dtype::Float16 => read!(f16),
        Dtype::Bfloat16 => read!(bf16),
        Dtype::Int64 => read!(i64),
        Dtype::Int32 => read!(i32),
        Dtype::Int16 => read!(i16),
        Dtype::Int8 => read!(i8),
        Dtype::Uint8 => read!(u8),
        Dtype::Bool => bytes.first().map(|byte| (*byte != 0).to_string()),
        Dtype::Float8E4m3fn => bytes.first().map(|code| Float8::E4M3FN.to_f32(*code).to_string()),
        Dtype::Float8E5m2 => bytes.first().map(|code| Float8::E5M2.to_f32(*code).to_string()),
        Dtype::Complex64 | Dtype::Complex128 => {
            let part = dtype.as_real();
            bytes.split_at_checked(part.size_bytes() as usize).and_then(|(re, im)| {
                let (re, im) = (display_element(part, re), display_element(part, im));
                let sign = if im.starts_with('-') { "" } else { "+" };
                (!im.is_empty()).then(|| format!("{re}{sign}{im}j"))
            })
        }
        Dtype::Unknown => None,
    };
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::TensorData;

    fn tensor(dtype: Dtype, fill: Fill) -> Tensor {
        Tensor { name: "t".into(), dtype, numel: 7, fill, data: TensorData::default() }
    }

    /// That the values are those of `prng.py`, the collectives' recorded results hold.
    #[test]
    fn seeded_floats_fill_the_tensor_and_differ_by_rank() {
        let fill = Fill::Seeded { seed: 1 };
        let a = initial_bytes(&tensor(Dtype::Float32, fill), GlobalRank(0));
        let b = initial_bytes(&tensor(Dtype::Float32, fill), GlobalRank(1));
        assert_eq!(a.len(), 28);
        assert_ne!(a, b);
    }

    #[test]
    fn a_complex_tensor_is_its_view_as_real() {
        let fill = Fill::Seeded { seed: 3 };
        let complex = initial_bytes(&tensor(Dtype::Complex64, fill), GlobalRank(1));
        let real = Tensor { numel: 14, ..tensor(Dtype::Float32, fill) };
        assert_eq!(complex, initial_bytes(&real, GlobalRank(1)));
        let parts = [1.5f64.to_le_bytes(), (-2.0f64).to_le_bytes()].concat();
        assert_eq!(display_element(Dtype::Complex128, &parts), "1.5-2j");
        assert_eq!(display_element(Dtype::Complex128, &parts[..15]), "");
    }

    #[test]
    fn every_type_is_filled_to_its_length_and_shown() {
        for dtype in Dtype::COMPUTABLE {
            for fill in [Fill::Zeros, Fill::Rank, Fill::Iota, Fill::Seeded { seed: 5 }] {
                let tensor = tensor(dtype, fill);
                let bytes = initial_bytes(&tensor, GlobalRank(3));
                assert_eq!(bytes.len() as u64, tensor.bytes(), "{dtype}");
                assert_ne!(display_element(dtype, &bytes), "", "{dtype}");
            }
        }
        let bytes = initial_bytes(&tensor(Dtype::Float8E4m3fn, Fill::Iota), GlobalRank(70));
        // 490 and above are no number in float8_e4m3fn, as `torch.arange` cast to it.
        assert_eq!(display_element(Dtype::Float8E4m3fn, &bytes), "NaN");
    }

    #[test]
    fn iota_tells_every_element_of_every_rank_apart() {
        let bytes = initial_bytes(&tensor(Dtype::Int32, Fill::Iota), GlobalRank(2));
        let shown: Vec<_> = bytes.chunks(4).map(|b| display_element(Dtype::Int32, b)).collect();
        assert_eq!(shown, ["14", "15", "16", "17", "18", "19", "20"]);
    }
}
