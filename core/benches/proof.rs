//! Time and memory to prove schedules of a thousand ranks: `cargo bench -p lockstep-core --bench proof`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule, prove, prove_chunk, prove_steps};

/// Counts what is allocated.
#[global_allocator]
static ALLOC: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn all_reduce(algorithm: Algorithm, size: u32) -> Schedule {
    let schedule = Schedule::new(Collective::AllReduce { op: ReduceOp::Sum }, algorithm, size);
    match algorithm {
        // A tensor of 4 MiB.
        Algorithm::DoubleBinaryTree => schedule.unwrap().with_segments(4).unwrap(),
        _ => schedule.unwrap(),
    }
}

/// Every rank, step and chunk.
#[divan::bench(args = [Algorithm::Ring, Algorithm::DoubleBinaryTree], sample_count = 5)]
fn prove_1024_ranks(bencher: divan::Bencher<'_, '_>, algorithm: Algorithm) {
    let schedule = all_reduce(algorithm, 1024);
    bencher.bench(|| prove(&schedule).unwrap());
}

/// All steps of one rank, and one chunk of its result.
#[divan::bench(args = [Algorithm::Ring, Algorithm::DoubleBinaryTree], sample_count = 5)]
fn sample_one_of_4096_ranks(bencher: divan::Bencher<'_, '_>, algorithm: Algorithm) {
    let schedule = all_reduce(algorithm, 4096);
    bencher.bench(|| {
        prove_steps(&schedule, GroupRank(1000)).unwrap();
        prove_chunk(&schedule, GroupRank(1000), 1).unwrap();
    });
}
