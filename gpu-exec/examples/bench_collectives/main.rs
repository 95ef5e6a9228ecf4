//! The host backend's collectives against gloo, Open MPI and MPICH on the same machine.
//!
//! ```text
//! cargo run --release -p lockstep-gpu-exec --example bench_collectives -- [--ops A,B] [--ranks 2,4]\
//!     [--algorithm NAME] [--recorded CALLS] [BYTES…]
//! ```
//!
//! Whatever is installed runs in turn with ours, several times over; what is
//! printed are medians of all rounds, and how many times as long the others take. Every call is
//! timed on every rank, and the slowest rank's time counts. float32, sum; BYTES is the whole buffer
//! as nccl-tests counts it. Ours takes its default algorithm unless another is named, and its
//! flight recorder holds 2,000 calls; with `--recorded 0` it is off. gloo needs a Python with
//! PyTorch: `LOCKSTEP_PYTHON`, else `python3`.
//!
//! Beside it what the machine copies, in a thread per rank but not more than there are cores: an
//! all_reduce of two ranks that reads and writes every byte once on each takes as long as two
//! such copies of half the buffer by each of two threads.
#![allow(clippy::float_arithmetic, reason = "reporting")]

mod machine;
mod others;
mod ours;

use others::Other;
use std::error::Error;
use std::process::ExitCode;

const OPS: [&str; 5] = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"];
const BYTES: [u64; 7] = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
const ROUNDS: usize = 3;

/// The measurements that were asked for.
struct Wanted {
    ops: Vec<String>,
    ranks: Vec<u32>,
    bytes: Vec<u64>,
    /// Instead of the default.
    algorithm: Option<String>,
    /// Calls that the flight recorder's ring holds.
    recorded: u32,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == ours::RANK_ARGUMENT) {
        return lockstep_gpu_exec::rank_main();
    }
    match wanted(&arguments).and_then(|wanted| measure_all(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_collectives: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(arguments: &[String]) -> Result<Wanted, Box<dyn Error>> {
    let ops = OPS.iter().map(ToString::to_string).collect();
    let mut wanted =
        Wanted { ops, ranks: vec![2, 4], bytes: Vec::new(), algorithm: None, recorded: 2000 };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut list = || arguments.next().map_or("", String::as_str).split(',');
        match argument.as_str() {
            "--ops" => wanted.ops = list().map(str::to_owned).collect(),
            "--ranks" => wanted.ranks = list().map(str::parse).collect::<Result<_, _>>()?,
            "--algorithm" => wanted.algorithm = arguments.next().cloned(),
            "--recorded" => {
                wanted.recorded = arguments.next().map_or("", String::as_str).parse()?
            }
            bytes => wanted.bytes.push(bytes.parse().map_err(|_| format!("what is {bytes:?}?"))?),
        }
    }
    if let Some(unknown) = wanted.ops.iter().find(|op| !OPS.contains(&op.as_str())) {
        return Err(format!("there is no {unknown:?} here; choose of {}", OPS.join(", ")).into());
    }
    if wanted.bytes.is_empty() {
        wanted.bytes = BYTES.to_vec();
    }
    Ok(wanted)
}

/// Calls of a size: enough for a median, few enough to end.
fn iterations(bytes: u64) -> u64 {
    (500_000_000 / bytes.max(1)).clamp(7, 2000)
}

fn measure_all(wanted: &Wanted) -> Result<(), Box<dyn Error>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (others, absent) = others::installed()?;
    println!("float32, sum; medians of {ROUNDS} rounds in microseconds, on {cores} cores");
    absent.iter().for_each(|why| println!("not measured: {why}"));
    for op in &wanted.ops {
        for &ranks in &wanted.ranks {
            measure(op, ranks, wanted, &others, cores.min(ranks as usize))?;
        }
    }
    Ok(())
}

fn measure(
    op: &str,
    ranks: u32,
    wanted: &Wanted,
    others: &[Other],
    threads: usize,
) -> Result<(), Box<dyn Error>> {
    let sizes = &wanted.bytes;
    print!("\n{op}, {ranks} ranks\n{:>10} {:>11}", "bytes", "lockstep");
    others.iter().for_each(|other| print!(" {:>11} {:>7}", other.name(), "times"));
    println!(" {:>8} {:>10} {:>9}", "of best", "algbw GB/s", "copy GB/s");
    // One after the other and again from the start: what else the machine does hits all. By size,
    // then by library, ours first.
    let mut took = vec![vec![Vec::new(); others.len() + 1]; sizes.len()];
    for _ in 0..ROUNDS {
        for (&bytes, took) in sizes.iter().zip(&mut took) {
            took[0].push(ours::microseconds(op, ranks, bytes, iterations(bytes), wanted)?);
        }
        for (index, other) in others.iter().enumerate() {
            let medians = other.microseconds(op, ranks, sizes)?;
            medians
                .iter()
                .zip(&mut took)
                .for_each(|(median, took)| took[index + 1].extend(*median));
        }
    }
    for (&bytes, took) in sizes.iter().zip(took) {
        let medians: Vec<f64> = took.into_iter().map(machine::median).collect();
        let own = medians[0];
        print!("{bytes:10} {own:11.2}");
        medians[1..].iter().for_each(|other| print!(" {other:11.2} {:7.2}", other / own));
        let best = medians[1..].iter().copied().filter(|t| !t.is_nan()).fold(f64::NAN, f64::min);
        let copied = machine::copy(threads, bytes.max(4096));
        println!(" {:8.2} {:10.3} {copied:9.2}", best / own, bytes as f64 / own / 1e3);
    }
    Ok(())
}
