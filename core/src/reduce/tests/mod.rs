//! Comparisons with wider arithmetic rounded once, with PyTorch's answers over gloo, and with NCCL's own way
//! to the same number.

use super::*;
use crate::dtype::Dtype;
use crate::dtype::float8::{Float8, Overflow};
use crate::plan::value::initial_bytes;
use crate::plan::{Fill, Tensor};
use crate::rank::GlobalRank;
use half::{bf16, f16};
use proptest::prelude::*;
use serde_json::Value;

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `local op incoming` of one element each.
fn of<const N: usize>(dtype: Dtype, op: ReduceOp, local: [u8; N], incoming: [u8; N]) -> [u8; N] {
    let mut into = local;
    combine(dtype, op, &mut into, &incoming);
    into
}

#[test]
fn integers_wrap_and_booleans_are_logic() {
    assert_eq!(of(Dtype::Uint8, ReduceOp::Sum, [200], [100]), [44]);
    assert_eq!(of(Dtype::Int8, ReduceOp::Product, [100], [3]), [44]);
    assert_eq!(of(Dtype::Bool, ReduceOp::Sum, [0, 1, 1, 0], [0, 0, 1, 1]), [0, 1, 1, 1]);
}

#[test]
fn what_an_operation_does_not_support_changes_nothing() {
    let premul = ReduceOp::PremulSum(Factor::new(3.0).unwrap());
    for dtype in Dtype::COMPUTABLE.into_iter().chain([Dtype::Unknown]) {
        for op in ReduceOp::ALL.into_iter().chain([premul]) {
            if !op.supports(dtype) {
                assert_eq!(of(dtype, op, [1; 16], [2; 16]), [1; 16], "{op} {dtype}");
            }
        }
    }
}

proptest! {
    /// A result with a place of its own is the result in place, NaNs and trailing bytes included.
    #[test]
    fn both_forms_give_the_same_bits(
        dtype in prop::sample::select(Dtype::COMPUTABLE.to_vec()),
        op in prop::sample::select(ReduceOp::ALL.to_vec()),
        mut local in prop::collection::vec(any::<u8>(), 0..9000),
        nan in any::<bool>(),
    ) {
        let incoming: Vec<u8> = local.iter().rev().map(|byte| byte.wrapping_mul(3)).collect();
        if nan && let Some(element) = local.first_chunk_mut::<4>() {
            *element = f32::NAN.to_le_bytes();
        }
        let mut apart = vec![0; local.len()];
        combine_to(dtype, op, &local, &incoming, &mut apart);
        let whole = local.len() - local.len() % dtype.size_bytes() as usize;
        combine(dtype, op, &mut local, &incoming);
        prop_assert_eq!(&apart[..whole], &local[..whole]);
    }
}

#[test]
fn a_nan_has_the_bits_that_x86_gives_it() {
    let sum = |a: u32, b: u32| {
        let into = of(Dtype::Float32, ReduceOp::Sum, a.to_le_bytes(), b.to_le_bytes());
        u32::from_le_bytes(into)
    };
    let (one, inf, minus_inf) = (0x3f80_0000, 0x7f80_0000, 0xff80_0000);
    assert_eq!(sum(inf, minus_inf), 0xffc0_0000);
    assert_eq!(sum(0x7fc0_1234, 0xffc0_5678), 0x7fc0_1234);
    assert_eq!(sum(one, 0xffc0_5678), 0xffc0_5678);
    assert_eq!(sum(0x7f80_0001, one), 0x7fc0_0001);
    assert_eq!(of(Dtype::Float16, ReduceOp::Sum, [0, 0x7c], [0, 0xfc]), [0, 0xfe]);
    assert_eq!(of(Dtype::Bfloat16, ReduceOp::Product, [0x80, 0x7f], [0, 0]), [0xc0, 0xff]);
}

/// AVG: floats times 1/n before, integers divided by n towards zero after.
#[test]
fn a_mean_is_formed_as_nccl_forms_it() {
    let avg = ReduceOp::Avg;
    for dtype in Dtype::COMPUTABLE {
        let before = premultiplier(avg, dtype, 3).is_some();
        let after = divisor(avg, dtype, 3).is_some();
        assert_eq!(before, dtype.is_float() || dtype.is_complex(), "{dtype}");
        assert_eq!(after, !before, "{dtype}");
    }
    assert_eq!(premultiplier(ReduceOp::Sum, Dtype::Float32, 3), None);
    assert_eq!(
        premultiplier(ReduceOp::PremulSum(Factor::new(2.5).unwrap()), Dtype::Float16, 3),
        Some(2.5)
    );
    let mut quotients = [-7i32, 7, 8, i32::MIN].map(i32::to_le_bytes).concat();
    divide(Dtype::Int32, &mut quotients, 3);
    assert_eq!(quotients, [-2, 2, 2, i32::MIN / 3].map(i32::to_le_bytes).concat());
    let mut quotients = [250, 3];
    divide(Dtype::Uint8, &mut quotients, 4);
    assert_eq!(quotients, [62, 0]);
    // 10/3 of float32 by way of 1/3 is not 10/3.
    let mut scaled = f32s(&[10.0]);
    premultiply(Dtype::Float32, 1.0 / 3.0, &mut scaled);
    assert_eq!(scaled, f32s(&[10.0 * (1.0f32 / 3.0)]));
    // Complex numbers are scaled part by part, 8-bit floats saturate.
    let mut scaled = f32s(&[1.5, -2.0]);
    premultiply(Dtype::Complex64, 2.0, &mut scaled);
    assert_eq!(scaled, f32s(&[3.0, -4.0]));
    let mut scaled = [0x7e, 0xfe];
    premultiply(Dtype::Float8E4m3fn, 2.0, &mut scaled);
    assert_eq!(scaled, [0x7e, 0xfe]);
}

/// Every pair of codes: one rounding of the exact result, saturated.
#[test]
fn float8_results_are_the_exact_ones_rounded_once() {
    for (dtype, format) in
        [(Dtype::Float8E4m3fn, Float8::E4M3FN), (Dtype::Float8E5m2, Float8::E5M2)]
    {
        let rounded = |exact: f64| {
            // A float64 holds every such sum and product exactly, and rounds to odd into a float32,
            // which a second rounding cannot tell from the first.
            let nearest = exact as f32;
            let exact_again = f64::from(nearest) == exact || nearest.is_nan();
            let odd = if exact_again || nearest.to_bits() & 1 == 1 {
                nearest
            } else if (f64::from(nearest) < exact) == (exact > 0.0) {
                f32::from_bits(nearest.to_bits() + 1)
            } else {
                f32::from_bits(nearest.to_bits() - 1)
            };
            format.from_f32(odd, Overflow::Saturate)
        };
        for a in 0..=255 {
            for b in 0..=255 {
                let (x, y) = (f64::from(format.to_f32(a)), f64::from(format.to_f32(b)));
                for (op, exact) in [(ReduceOp::Sum, x + y), (ReduceOp::Product, x * y)] {
                    let [got] = of(dtype, op, [a], [b]);
                    let (got_nan, nan) = (format.to_f32(got).is_nan(), exact.is_nan());
                    assert!(
                        (got_nan && nan) || got == rounded(exact),
                        "{dtype} {x} {op} {y}: {got:#x}"
                    );
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn narrow_floats_round_once(a in any::<u16>(), b in any::<u16>()) {
        let halves = (f16::from_bits(a).to_f64(), f16::from_bits(b).to_f64());
        let brains = (bf16::from_bits(a).to_f64(), bf16::from_bits(b).to_f64());
        for (op, half, brain) in [
            (ReduceOp::Sum, halves.0 + halves.1, brains.0 + brains.1),
            (ReduceOp::Product, halves.0 * halves.1, brains.0 * brains.1),
        ] {
            let got = f16::from_le_bytes(of(Dtype::Float16, op, a.to_le_bytes(), b.to_le_bytes()));
            let wide = f16::from_f64(half);
            prop_assert!(got.to_bits() == wide.to_bits() || (got.is_nan() && wide.is_nan()));
            let got = bf16::from_le_bytes(of(Dtype::Bfloat16, op, a.to_le_bytes(), b.to_le_bytes()));
            let wide = bf16::from_f64(brain);
            prop_assert!(got.to_bits() == wide.to_bits() || (got.is_nan() && wide.is_nan()));
        }
    }

    #[test]
    fn float32_rounds_once(a in any::<f32>(), b in any::<f32>()) {
        for (op, exact) in [
            (ReduceOp::Sum, f64::from(a) + f64::from(b)),
            (ReduceOp::Product, f64::from(a) * f64::from(b)),
        ] {
            let got = f32::from_le_bytes(of(Dtype::Float32, op, a.to_le_bytes(), b.to_le_bytes()));
            let wide = exact as f32;
            prop_assert!(got.to_bits() == wide.to_bits() || (got.is_nan() && wide.is_nan()));
        }
    }

    /// A product with the factor in the type's own precision, rounded once.
    #[test]
    fn a_premultiplied_element_is_rounded_once(bits in any::<u16>(), n in 1u32..4096) {
        let factor = 1.0 / f64::from(n);
        let mut got = bits.to_le_bytes();
        premultiply(Dtype::Float16, factor, &mut got);
        let exact = f16::from_bits(bits).to_f64() * f16::from_f32(factor as f32).to_f64();
        let (got, wide) = (f16::from_le_bytes(got), f16::from_f64(exact));
        prop_assert!(got.to_bits() == wide.to_bits() || (got.is_nan() && wide.is_nan()));
    }

    #[test]
    fn integer_operations_and_sums_are_commutative(
        dtype in prop::sample::select(&Dtype::COMPUTABLE[..]),
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

/// gloo's all_reduce: the chunks of `n` elements of `size` bytes among `p` ranks, as recorded in
/// `reduce_order.json`: chunk c is x[c] op (x[c+1] op (… op x[c+p-1])).
fn gloo_chunks(p: usize, n: usize, size: usize) -> Vec<std::ops::Range<usize>> {
    let up = |value: usize, to: usize| value.div_ceil(to) * to;
    let most = size * (1_048_576 / size).max(1);
    let segments = up((n * size).div_ceil(most).max(2 * p), p);
    let segment = up((n * size).div_ceil(segments), size) / size;
    let start = |chunk: usize| (chunk * (segments / p) * segment).min(n);
    (0..p).map(|chunk| start(chunk)..start(chunk + 1)).collect()
}

/// The result of `combine` on the ranks' tensors in gloo's order.
fn all_reduced(dtype: Dtype, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<u8> {
    let size = dtype.size_bytes() as usize;
    let p = inputs.len();
    let mut result = inputs[0].clone();
    for (chunk, range) in gloo_chunks(p, result.len() / size, size).into_iter().enumerate() {
        let bytes = range.start * size..range.end * size;
        let mut partial = inputs[(chunk + p - 1) % p][bytes.clone()].to_vec();
        for step in (0..p - 1).rev() {
            let mut local = inputs[(chunk + step) % p][bytes.clone()].to_vec();
            combine(dtype, op, &mut local, &partial);
            partial = local;
        }
        result[bytes].copy_from_slice(&partial);
    }
    result
}

fn recorded_bytes(outcome: &Value, dtype: Dtype) -> Option<Vec<u8>> {
    let elements = outcome["all_ranks"]["ok"].as_array()?;
    let size = dtype.as_real().size_bytes() as usize;
    let bytes = elements.iter().flat_map(|element| {
        let bits = match element {
            Value::String(hex) => u64::from_str_radix(hex, 16).unwrap(),
            Value::Bool(bit) => u64::from(*bit),
            number => number.as_i64().map(|n| n as u64).or(number.as_u64()).unwrap(),
        };
        bits.to_le_bytes()[..size].to_vec()
    });
    Some(bytes.collect())
}

/// Every all_reduce that PyTorch 2.7.1 carried out over gloo, every dtype, operation and world
/// size, also floats beyond two ranks, infinities and NaNs: the same bits.
#[test]
fn in_gloos_order_every_recorded_all_reduce_is_the_same_bits() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/collectives.json");
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let specials = [0x7fc0_0000, 0x7f80_0000, 0xff80_0000, 0, 0x8000_0000, 0x3f80_0000u32];
    let mut compared = 0;
    for world in [1, 2, 4, 6, 8u32] {
        let results = &recorded["results"][world.to_string()];
        let mut compare = |name: &str, dtype: Dtype, op, input: &dyn Fn(u32) -> Vec<u8>| {
            let Some(expected) = recorded_bytes(&results[name], dtype) else {
                return;
            };
            let inputs: Vec<_> = (0..world).map(input).collect();
            assert_eq!(all_reduced(dtype, op, &inputs), expected, "{name}, {world} ranks");
            compared += 1;
        };
        for (op, dtype) in ReduceOp::ALL
            .into_iter()
            .flat_map(|op| Dtype::COMPUTABLE.into_iter().map(move |dtype| (op, dtype)))
        {
            let tensor = |fill| Tensor {
                name: String::new(),
                dtype,
                numel: 7,
                fill,
                data: Default::default(),
            };
            let seeded = tensor(Fill::Seeded { seed: 1 });
            compare(&format!("all_reduce/{op}/{dtype}"), dtype, op, &|rank| {
                initial_bytes(&seeded, GlobalRank(rank))
            });
        }
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
            let name = format!("all_reduce/{op}/special_float32");
            compare(&name, Dtype::Float32, op, &|rank| {
                let element = |i: u32| specials[((i + rank) % 6) as usize];
                (0..6).flat_map(|i| element(i).to_le_bytes()).collect()
            });
        }
        let sum = ReduceOp::Sum;
        compare("all_reduce/SUM/all_negative_zero", Dtype::Float32, sum, &|_| f32s(&[-0.0; 3]));
        compare("all_reduce/SUM/overflow_int8", Dtype::Int8, sum, &|_| vec![127, 128]);
        compare("all_reduce/SUM/overflow_int32", Dtype::Int32, sum, &|_| {
            [i32::MAX, i32::MIN].map(i32::to_le_bytes).concat()
        });
        // Rank r's one element is r+1j.
        compare("all_reduce/complex64/SUM", Dtype::Complex64, sum, &|rank| {
            f32s(&[rank as f32, 1.0])
        });
    }
    // Four operations on nine types, three on the five integral ones, and the special cases.
    assert_eq!(compared, 5 * (4 * 9 + 3 * 5 + 8));
}
