//! Bandwidth and latency of the host backend's all_reduce, as nccl-tests reports them.
//!
//! ```text
//! cargo run --release -p lockstep-gpu-exec --example bench_all_reduce [BYTES…]
//! ```
//!
//! One run a line: float32, sum, ring, many calls one after the other, messages not recorded. The
//! time of a call is the median of what lies between one completion and the next on rank 0, after
//! a warm-up. `algbw` is bytes over time; `busbw` is `algbw * 2(n-1)/n`, what each rank sends.
//! Beside it what the machine copies: `copy_from_slice` over as many bytes, in a thread per rank
//! but not more than there are cores. Small sizes are copied within a cache.
#![allow(clippy::float_arithmetic, reason = "reporting")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, What};
use lockstep_gpu_exec::{HostBackend, RankLauncher, RunOptions, rank_main, run_to_trace};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

const RANKS: [u32; 2] = [2, 4];
const BYTES: [u64; 3] = [4, 64 << 10, 64 << 20];
const RANK_ARGUMENT: &str = "--rank";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == RANK_ARGUMENT) {
        return rank_main();
    }
    let sizes: Result<Vec<u64>, _> = arguments.iter().map(|bytes| bytes.parse()).collect();
    let sizes = match sizes {
        Ok(sizes) if sizes.is_empty() => BYTES.to_vec(),
        Ok(sizes) => sizes,
        Err(error) => {
            eprintln!("bench_all_reduce [BYTES…]: {error}");
            return ExitCode::from(2);
        }
    };
    match measure_all(&sizes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_all_reduce: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(sizes: &[u64]) -> Result<(), Box<dyn Error>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("host all_reduce, float32 sum, ring, on {cores} cores; medians");
    println!("ranks      bytes  calls     time µs  algbw GB/s  busbw GB/s  copy GB/s");
    for ranks in RANKS {
        for &bytes in sizes {
            let calls = calls_for(bytes);
            let seconds = all_reduce(ranks, bytes, calls)?;
            let algbw = bytes as f64 / seconds / 1e9;
            let busbw = algbw * 2.0 * f64::from(ranks - 1) / f64::from(ranks);
            let copied = copy(cores.min(ranks as usize), bytes.max(4096), calls.min(50));
            println!(
                "{ranks:5} {bytes:10} {calls:6} {:11.2} {algbw:11.3} {busbw:11.3} {copied:10.3}",
                seconds * 1e6
            );
        }
    }
    Ok(())
}

/// Enough for a median, and few enough to stay under the recorder's first delivery at small sizes.
fn calls_for(bytes: u64) -> u64 {
    (2_000_000_000 / bytes.max(1)).clamp(20, 3000)
}

/// The median time of a call, in seconds.
fn all_reduce(ranks: u32, bytes: u64, calls: u64) -> Result<f64, Box<dyn Error>> {
    let numel = bytes / 4;
    let warm_up = (calls / 5).max(3) as usize;
    let mut plan = PlanBuilder::new("bench all_reduce", ranks, BackendName::Host)?;
    // Zeros: sums of them do not overflow, however many calls.
    let tensor = plan.tensor("t", Dtype::Float32, numel, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..calls as usize + warm_up {
            program.collective(GroupId::WORLD, sum, numel, None, Some(tensor));
        }
    })?;
    let launcher =
        RankLauncher { program: std::env::current_exe()?, args: vec![RANK_ARGUMENT.into()] };
    let options = RunOptions { record_messages: false, ..RunOptions::default() };
    let trace = run_to_trace(&HostBackend::new(launcher), plan, options)?;
    match trace.end {
        Some(end) if end.outcome == Outcome::Completed => {}
        end => return Err(format!("the run ended as {end:?}").into()),
    }
    let ended: Vec<u64> = trace
        .events
        .iter()
        .filter(|event| event.rank == GlobalRank(0) && matches!(event.what, What::OpEnded { .. }))
        .map(|event| event.time_ps)
        .collect();
    let took = ended.windows(2).skip(warm_up - 1).map(|pair| (pair[1] - pair[0]) as f64 / 1e12);
    Ok(median(took.collect()))
}

/// What `threads` threads copy together, in GB/s: bytes copied, not read plus written.
fn copy(threads: usize, bytes: u64, rounds: u64) -> f64 {
    let copying = |_| {
        std::thread::spawn(move || {
            let from = vec![1u8; bytes as usize];
            let mut into = vec![0u8; bytes as usize];
            let repeats = (1 << 20) / bytes.min(1 << 20);
            let took = (0..rounds).map(|_| {
                let started = Instant::now();
                for _ in 0..repeats {
                    std::hint::black_box(&mut into).copy_from_slice(std::hint::black_box(&from));
                }
                started.elapsed().as_secs_f64() / repeats as f64
            });
            bytes as f64 / median(took.collect()) / 1e9
        })
    };
    let threads: Vec<_> = (0..threads).map(copying).collect();
    threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
