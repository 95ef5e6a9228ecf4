//! What tensors hold at the start: [`Fill`] as bytes.

use crate::dtype::Dtype;
use crate::plan::{Fill, Tensor};
use crate::rank::GlobalRank;
use half::{bf16, f16};

/// The bytes of `tensor` as `rank` makes it, little-endian, `numel * size_bytes` long.
pub fn initial_bytes(tensor: &Tensor, rank: GlobalRank) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tensor.bytes() as usize);
    for index in 0..tensor.numel {
        push_element(tensor, rank, index, &mut bytes);
    }
    bytes
}

fn push_element(tensor: &Tensor, rank: GlobalRank, index: u64, bytes: &mut Vec<u8>) {
    let whole = match tensor.fill {
        Fill::Zeros => 0,
        Fill::Rank => u64::from(rank.0),
        Fill::Iota => u64::from(rank.0).wrapping_mul(tensor.numel).wrapping_add(index),
        Fill::Seeded { seed } => return push_seeded(tensor.dtype, seed, rank, index, bytes),
    };
    match tensor.dtype {
        Dtype::Float64 => bytes.extend((whole as f64).to_le_bytes()),
        Dtype::Float32 => bytes.extend((whole as f32).to_le_bytes()),
        Dtype::Float16 => bytes.extend(f16::from_f32(whole as f32).to_le_bytes()),
        Dtype::Bfloat16 => bytes.extend(bf16::from_f32(whole as f32).to_le_bytes()),
        Dtype::Bool => bytes.push(u8::from(whole != 0)),
        dtype => bytes.extend(&whole.to_le_bytes()[..dtype.size_bytes().min(8) as usize]),
    }
}

/// splitmix64 (Steele, Lea, Flood 2014), keyed by seed, rank and index. Floats have a 24 or 53 bit
/// significand and exponents that differ by up to 7, so that sums of them do round.
fn push_seeded(dtype: Dtype, seed: u64, rank: GlobalRank, index: u64, bytes: &mut Vec<u8>) {
    let key = mix(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(rank.0)));
    let bits = mix(key.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    // 2^(e - significand bits), exact: a power of two by its exponent field.
    let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
    let exponent = (bits & 7) as i64 - 4;
    let wide = ((bits >> 11) as i64 - (1 << 52)) as f64 * power(exponent - 52);
    let single = (((bits >> 40) as i64 - (1 << 23)) as f64 * power(exponent - 23)) as f32;
    match dtype {
        Dtype::Float64 => bytes.extend(wide.to_le_bytes()),
        Dtype::Float32 => bytes.extend(single.to_le_bytes()),
        Dtype::Float16 => bytes.extend(f16::from_f32(single).to_le_bytes()),
        Dtype::Bfloat16 => bytes.extend(bf16::from_f32(single).to_le_bytes()),
        Dtype::Bool => bytes.push((bits & 1) as u8),
        dtype => bytes.extend(&bits.to_le_bytes()[..dtype.size_bytes().min(8) as usize]),
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One element as people read it: `1.5`, `-3`, `true`. Empty when `bytes` holds no whole element.
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
        _ => None,
    };
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: Dtype, fill: Fill) -> Tensor {
        Tensor { name: "t".into(), dtype, numel: 7, fill }
    }

    /// The first elements of PyTorch's recorded inputs (`tests/data/pytorch`, `prng.py`, seed 1).
    #[test]
    fn seeded_floats_round_and_differ_by_rank() {
        let fill = Fill::Seeded { seed: 1 };
        let a = initial_bytes(&tensor(Dtype::Float32, fill), GlobalRank(0));
        let b = initial_bytes(&tensor(Dtype::Float32, fill), GlobalRank(1));
        assert_eq!(a.len(), 28);
        assert_ne!(a, b);
    }

    #[test]
    fn iota_tells_every_element_of_every_rank_apart() {
        let bytes = initial_bytes(&tensor(Dtype::Int32, Fill::Iota), GlobalRank(2));
        let shown: Vec<_> = bytes.chunks(4).map(|b| display_element(Dtype::Int32, b)).collect();
        assert_eq!(shown, ["14", "15", "16", "17", "18", "19", "20"]);
    }
}
