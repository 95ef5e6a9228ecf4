//! `reduce::combine` on a megabyte that a second level cache holds: whether the loops are
//! vectorised. `cargo bench -p lockstep-core --bench reduce`

use divan::Bencher;
use divan::counter::BytesCount;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{ReduceOp, combine, premultiply};

const BYTES: usize = 1 << 20;

fn main() {
    divan::main();
}

/// Small numbers of any type: no NaN, no subnormal that would slow a processor down.
fn operand(dtype: Dtype) -> Vec<u8> {
    let one: &[u8] = match dtype.as_real() {
        Dtype::Float64 => &1.0f64.to_le_bytes(),
        Dtype::Float32 => &1.0f32.to_le_bytes(),
        Dtype::Float16 => &[0, 0x3c],
        Dtype::Bfloat16 => &[0x80, 0x3f],
        Dtype::Float8E4m3fn => &[0x38],
        Dtype::Float8E5m2 => &[0x3c],
        _ => &[1],
    };
    one.iter().copied().cycle().take(BYTES).collect()
}

#[divan::bench(args = Dtype::COMPUTABLE)]
fn sum(bencher: Bencher<'_, '_>, dtype: Dtype) {
    run(bencher, dtype, ReduceOp::Sum);
}

#[divan::bench(args = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Int32])]
fn max(bencher: Bencher<'_, '_>, dtype: Dtype) {
    run(bencher, dtype, ReduceOp::Max);
}

fn run(bencher: Bencher<'_, '_>, dtype: Dtype, op: ReduceOp) {
    let (mut into, incoming) = (operand(dtype), operand(dtype));
    bencher.counter(BytesCount::new(BYTES)).bench_local(|| {
        combine(dtype, op, divan::black_box(&mut into), divan::black_box(&incoming));
    });
}

#[divan::bench(args = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float8E4m3fn])]
fn premultiplied(bencher: Bencher<'_, '_>, dtype: Dtype) {
    let mut elements = operand(dtype);
    bencher.counter(BytesCount::new(BYTES)).bench_local(|| {
        premultiply(dtype, 1.0, divan::black_box(&mut elements));
    });
}
