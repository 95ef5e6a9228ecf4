//! A rank process and nothing else, for this crate's tests and benchmarks. `lockstep` itself
//! starts its ranks through a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockstep_gpu_exec::rank_main()
}
