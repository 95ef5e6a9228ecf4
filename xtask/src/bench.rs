//! `cargo xtask bench`: the measurements of `docs/benchmarks.md`, made here.
//!
//! One after the other: two at the same time would disturb each other.

use crate::serve::build_server;
use crate::{browser, packages, peers, shell, web};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only what is called so; a part of the name will do
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Tables of nccl-tests for "fidelity": a file or a folder [default: $LOCKSTEP_TABLES, or those that ship]
    #[arg(long, value_name = "FOLDER")]
    tables: Option<PathBuf>,
}

/// A measurement: its name, and the function that measures and prints it.
type Measurement = (&'static str, fn(&Options) -> Result<()>);

const MEASUREMENTS: &[Measurement] = &[
    ("page: size", |_| web::build(web::Options::SHIPPED).map(drop)),
    ("fidelity: predicted against measured times of collectives", fidelity),
    ("page: from the command to the page, warm", |_| command_to_page()),
    ("page: in Chromium", |_| in_chromium()),
    ("simulator: messages per second", |_| {
        shell::run(&mut shell::cargo(["bench", "--package=lockstep-sim", "--bench=engine"]))
    }),
    ("peers: LogGOPSim and ASTRA-sim, where they are named", |_| peers::compare()),
    ("ddp: GPT-2 XL on 1,024 ranks, and a sweep of 40 caps", |_| {
        shell::run(&mut shell::cargo(["bench", "--package=lockstep-sim", "--bench=ddp"]))
    }),
    ("proof: schedules of a thousand ranks", |_| {
        shell::run(&mut shell::cargo(["bench", "--package=lockstep-core", "--bench=proof"]))
    }),
    ("diagnosis: dumps of 1,024 ranks", |_| diagnose_large()),
    ("host: collectives against gloo, Open MPI and MPICH", |_| {
        shell::run(&mut shell::cargo([
            "run",
            "--release",
            "--package=lockstep-gpu-exec",
            "--example=bench_collectives",
        ]))
    }),
];

/// Runs the benchmarks; each prints its own figures below its name.
///
/// # Errors
/// When one does not build or fails.
pub(crate) fn bench(options: &Options) -> Result<()> {
    let wanted = options.only.as_deref().unwrap_or_default();
    for (name, measure) in MEASUREMENTS {
        if name.contains(wanted) {
            println!("\n== {name}");
            measure(options)?;
        }
    }
    Ok(())
}

/// The measured tables that ship, or those of a folder, beside their predictions; and the medians, as
/// `docs/clusters.md` lists them.
fn fidelity(options: &Options) -> Result<()> {
    let named = std::env::var_os("LOCKSTEP_TABLES").map(PathBuf::from);
    let tables = options.tables.clone().or(named);
    let mut time = shell::cargo(["run", "--quiet", "--release", "--package=lockstep-server", "--"]);
    // The page is not needed for this.
    time.args(["time", "--table"]).arg(tables.unwrap_or_else(|| shell::root().join(web::MEASURED)));
    shell::run(&mut time)
}

/// Times `cargo xtask serve` when everything is built: until the service says where the page is.
/// Cargo's own start is in it twice, as for the user.
fn command_to_page() -> Result<()> {
    web::build(web::Options::SHIPPED)?;
    build_server("release", &["--package=lockstep-server"])?;
    let folder = std::env::temp_dir().join(format!("lockstep-bench-{}", std::process::id()));
    let start = Instant::now();
    // xtask itself rather than `cargo xtask`: it becomes the service, and can be ended by its id.
    shell::run(&mut shell::cargo(["build", "--quiet", "--package=xtask"]))?;
    let mut serve = Command::new(std::env::current_exe().context("where is xtask?")?);
    serve.args(["serve", "--no-open", "--port", "0", "--data-dir"]).arg(&folder);
    serve.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut serve = serve.spawn().context("could not start xtask")?;
    let mut line = String::new();
    let said = serve.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let took = start.elapsed();
    // Both fail only when it has ended by itself.
    let _ = serve.kill();
    let _ = serve.wait();
    let _ = std::fs::remove_dir_all(&folder);
    said.context("no pipe")?.context("the service said nothing")?;
    println!("{:.2} s until {:?}", took.as_secs_f32(), line.trim());
    Ok(())
}

/// A thousand ranks with two thousand calls each, from files: how long, and in how much memory.
fn diagnose_large() -> Result<()> {
    packages::install(&browser::missing()?)?;
    web::build(web::Options::SHIPPED)?;
    let binary = build_server("release", &["--package=lockstep-server"])?;
    let folder = std::env::temp_dir().join(format!("lockstep-dumps-{}", std::process::id()));
    let example = ["run", "--release", "--package=lockstep-diagnosis"];
    let mut generate = shell::cargo(example);
    generate.args(["--example=flight_recorder_dumps", "--"]).arg(&folder);
    shell::run(&mut generate)?;
    for round in 1..=3 {
        let start = Instant::now();
        let mut diagnose = Command::new(&binary);
        diagnose.arg("diagnose").arg(&folder).stdout(Stdio::null());
        let mut diagnose = diagnose.spawn().context("could not start lockstep")?;
        let status = format!("/proc/{}/status", diagnose.id());
        let mut peak = String::new();
        while diagnose.try_wait().context("lockstep cannot be waited for")?.is_none() {
            let said = std::fs::read_to_string(&status).unwrap_or_default();
            let now = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            peak = now.map_or(peak, |now| now.trim().to_owned());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        println!("round {round}: {:.2} s, at most {peak} of memory", start.elapsed().as_secs_f32());
    }
    // And in the browser.
    let mut bench = shell::cargo(["bench", "--package=lockstep-tests", "--bench=page"]);
    let measured = shell::run(bench.env("LOCKSTEP_BIN", binary).env("LOCKSTEP_DUMPS", &folder));
    std::fs::remove_dir_all(&folder).context("cannot remove the dumps")?;
    measured
}

/// The page in Chromium: the output of `tests/bench_page.rs`.
fn in_chromium() -> Result<()> {
    packages::install(&browser::missing()?)?;
    web::build(web::Options::SHIPPED)?;
    let binary = build_server("release", &["--package=lockstep-server"])?;
    let mut bench = shell::cargo(["bench", "--package=lockstep-tests", "--bench=page"]);
    shell::run(bench.env("LOCKSTEP_BIN", binary))
}
