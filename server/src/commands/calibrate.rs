//! `lockstep calibrate`: measures a backend, and finds the topology on which the simulator takes as long; or
//! corrects a cluster by other people's measurements (`measured_cluster`).

mod effort;
mod library;
mod table;

use super::elsewhere::ProcessorTime;
use super::measured_cluster::FromArguments;
use super::nccl::NcclArguments;
use super::rank_launcher;
use crate::output_file::{FileKind, Overwrite};
use crate::progress::Progress;
use crate::terminal;
use crate::topology_file::{Calibration, TopologyFile};
use anyhow::{Result, bail};
use library::{Library, LibraryArguments};
use lockstep_core::group::BackendName;
use lockstep_core::trace::{Origin, Outcome};
use lockstep_core::watch::{Reached, Watch};
use lockstep_gpu_exec::{Backend, RunOptions, run_to_trace};
use lockstep_sim::Topology;
use lockstep_sim::calibrate::{Measured, Model, Point, Probe, fit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

/// Sizes that the parameters are fitted to, in bytes: more where a call changes its ways.
const FITTED: [u64; 11] = [
    4,
    1 << 10,
    4 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];

/// Sizes between those, which show the quality of the fit.
const HELD_BACK: [u64; 6] = [256, 16 << 10, 256 << 10, 2 << 20, 8 << 20, 32 << 20];

/// A point is measured by at most so many calls.
const MOST_CALLS: u64 = 400;

/// The largest part of the cores that other processes may use during a measurement without a warning.
const QUIET: f64 = 0.1;

/// A core's own cache and the shared one, where the system does not say.
const USUAL_CACHES: [u64; 2] = [1 << 20, 32 << 20];

/// Measure a backend's latency and bandwidth, and write a topology for `lockstep sim --topology`; or correct a
/// cluster by what nccl-tests measured on it (--from)
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: FromArguments,
    /// The backend that is measured. With --from, gloo and mpi are fitted to tables of all_reduce, broadcast and
    /// all_gather
    #[arg(long, value_enum, default_value = "host")]
    backend: Measurable,
    #[command(flatten)]
    nccl: NcclArguments,
    #[command(flatten)]
    library: LibraryArguments,
    /// Ranks to measure with: the topology is for as many
    #[arg(long, value_name = "N", default_value_t = 2)]
    world_size: u32,
    /// Times that everything is measured, one size after the other; the fastest counts, as what else
    /// the machine does only takes time
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Leave larger buffers out
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max_bytes: u64,
    /// Measure sizes between the fitted ones too, and say how far the simulator is from them
    #[arg(long)]
    check: bool,
    /// Write the topology, or the cluster, to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A backend whose calls can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Measurable {
    /// Processes on this machine, data through shared memory
    Host,
    /// GPUs, through NVIDIA's library
    Nccl,
    /// torch.distributed's gloo over TCP, through a Python that has torch
    Gloo,
    /// MPI over TCP, through its mpirun and a Python that has mpi4py
    Mpi,
}

impl Measurable {
    fn name(self) -> BackendName {
        match self {
            Measurable::Host => BackendName::Host,
            Measurable::Nccl => BackendName::Nccl,
            Measurable::Gloo => BackendName::Gloo,
            Measurable::Mpi => BackendName::Mpi,
        }
    }

    /// The library that carries out its calls, where that is not Lockstep itself.
    fn library(self) -> Option<Library> {
        match self {
            Measurable::Host | Measurable::Nccl => None,
            Measurable::Gloo => Some(Library::Gloo),
            Measurable::Mpi => Some(Library::Mpi),
        }
    }
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Calibrated<'a> {
    schema: &'static str,
    topology: &'a Topology,
    lines: &'a [Line],
    /// The median of how far the simulated times of the fitted sizes are from the measured ones.
    fitted_off: Option<f64>,
    /// The error for sizes that the fit has not seen.
    held_back_off: Option<f64>,
    /// The part of the cores' time that other processes used meanwhile; absent where the system does not
    /// say.
    elsewhere: Option<f64>,
}

/// A measured point beside its simulation.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    measured: Measured,
    simulated_ps: u64,
    fitted: bool,
    /// Simulated over measured, less 1.
    off: f64,
}

/// Measured times of calls among so many ranks.
struct Measurements {
    measured: Vec<Measured>,
    world_size: u32,
    /// The machine that they were measured on, in words.
    device: String,
    /// Sizes that show the quality of the fit, and are not fitted.
    held_back: Vec<u64>,
    /// The part of the cores' time that other processes used meanwhile, if that is known.
    elsewhere: Option<f64>,
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    let is_from_files = !arguments.from.from.is_empty();
    let library = arguments.backend.library();
    arguments.library.check_for(library)?;
    if is_from_files && library.is_none() {
        let (output, overwrite) = (arguments.output.as_deref(), arguments.overwrite);
        let text = arguments.from.text(output, overwrite, arguments.json)?;
        terminal::text(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = arguments.backend.name();
    if let Some(path) = &arguments.output {
        arguments.overwrite.check(path, FileKind::Topology, &arguments.from.paths())?;
    }
    arguments.nccl.check_for(name)?;
    let model = match name {
        BackendName::Host => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Model::SharedMemory { cores: cores as u32, caches: caches().unwrap_or(USUAL_CACHES) }
        }
        _ => Model::Link,
    };
    let measurements = match is_from_files {
        true => arguments.read()?,
        false => arguments.measure(model, progress)?,
    };
    let Measurements { measured, world_size, device, held_back, elsewhere } = measurements;
    let (unseen, fitted): (Vec<Measured>, Vec<Measured>) =
        measured.into_iter().partition(|measured| held_back.contains(&measured.point.bytes));
    let topology = fit(model, name, world_size, &fitted)?;
    let lines = beside(topology, (name, world_size), &fitted, &unseen);
    let off = |fitted| median_off(lines.iter().filter(|line| line.fitted == fitted));
    let (fitted_off, held_back_off) = (off(true), off(false));
    let text = match arguments.json {
        true => {
            let schema = "lockstep.calibrate/1";
            let lines = &lines;
            let said = Calibrated {
                schema,
                topology: &topology,
                lines,
                fitted_off,
                held_back_off,
                elsewhere,
            };
            serde_json::to_string_pretty(&said)? + "\n"
        }
        false => as_text(&topology, &device, &lines, fitted_off, held_back_off),
    };
    if let Some(path) = &arguments.output {
        let calibration = Calibration { backend: name, device, world_size, measured: fitted };
        TopologyFile::new(topology, calibration).write(path)?;
    }
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Measured points beside their simulated times, those that were fitted and those that were not.
fn beside(
    topology: Topology,
    (backend, world_size): (BackendName, u32),
    fitted: &[Measured],
    unseen: &[Measured],
) -> Vec<Line> {
    let line = |measured: &Measured, fitted: bool| {
        let simulated_ps = measured.point.simulated_ps(topology, backend, world_size)?;
        let off = simulated_ps as f64 / measured.call_ps.max(1) as f64 - 1.0;
        Some(Line { measured: *measured, simulated_ps, fitted, off })
    };
    let lines = fitted.iter().filter_map(|measured| line(measured, true));
    let mut lines: Vec<Line> =
        lines.chain(unseen.iter().filter_map(|measured| line(measured, false))).collect();
    lines.sort_by_key(|line| line.measured.point);
    lines
}

impl Arguments {
    /// The times of the tables that --from names; with --check every second size is held back.
    fn read(&self) -> Result<Measurements> {
        let table::Measurements { measured, world_size, device } = table::read(&self.from.from)?;
        let sizes: BTreeSet<u64> = measured.iter().map(|measured| measured.point.bytes).collect();
        let held_back = sizes.into_iter().skip(1).step_by(2).filter(|_| self.check).collect();
        Ok(Measurements { measured, world_size, device, held_back, elsewhere: None })
    }

    /// Measures the backend on this machine.
    fn measure(&self, model: Model, progress: &Progress) -> Result<Measurements> {
        let (world_size, rounds) = (self.world_size, self.rounds);
        if rounds == 0 {
            bail!("no round measures nothing; --rounds 1 is the least");
        }
        if world_size < 2 {
            bail!("one rank sends nothing that could be measured; --world-size 2 is the least");
        }
        let least = model.parameters().div_ceil(Probe::ALL.len());
        if let Some(least) = FITTED.get(least - 1).filter(|least| self.max_bytes < **least) {
            bail!(
                "--max-bytes {} leaves too few sizes to tell a backend by; {least} is the least",
                self.max_bytes
            );
        }
        let sizes = |sizes: &[u64]| {
            let sizes = sizes.iter().filter(|bytes| **bytes <= self.max_bytes);
            sizes.copied().collect::<Vec<u64>>()
        };
        let held_back = if self.check { sizes(&HELD_BACK) } else { Vec::new() };
        let all: Vec<u64> = sizes(&FITTED).into_iter().chain(held_back.iter().copied()).collect();
        let points = Probe::ALL.into_iter();
        let points = points.flat_map(|probe| all.iter().map(move |&bytes| Point { probe, bytes }));
        let points: Vec<Point> = points.collect();
        let began = ProcessorTime::now();
        let (measured, device) = match self.backend.library() {
            Some(library) => self.measure_library(library, &points, progress)?,
            None => {
                let backend = self.nccl.backend(self.backend.name(), rank_launcher()?)?;
                measure_all(&points, &*backend, (world_size, rounds), progress)?
            }
        };
        let ended = began.zip(ProcessorTime::now());
        // A library's ranks are other processes than Lockstep's too.
        let is_own = self.backend.library().is_none();
        let elsewhere = ended.filter(|_| is_own).map(|(began, now)| now.elsewhere_since(began));
        if let Some(part) = elsewhere.filter(|part| *part > QUIET) {
            terminal::note(&format!(
                "lockstep: other processes used {:.0}% of this machine's cores meanwhile: the topology is that of \
                 a machine as busy as this; calibrate again when it has nothing else to do",
                part * 100.0
            ));
        }
        Ok(Measurements { measured, world_size, device, held_back, elsewhere })
    }

    /// The shortest time of each point's calls in so many rounds of a library, and what they ran on. If Ctrl-C
    /// ends the rounds, the first has to be over.
    fn measure_library(
        &self,
        library: Library,
        points: &[Point],
        progress: &Progress,
    ) -> Result<(Vec<Measured>, String)> {
        let (mut least, mut device) = (BTreeMap::<Point, u64>::new(), String::new());
        let mut stage = progress.stage("measuring");
        let total = u64::from(self.rounds) * points.len() as u64;
        for round in 0..u64::from(self.rounds) {
            let done = round * points.len() as u64;
            let take = |point: Point, call_ps: u64| {
                least
                    .entry(point)
                    .and_modify(|least| *least = call_ps.min(*least))
                    .or_insert(call_ps);
            };
            let at = (&mut stage, done, total);
            match self.library.round(library, points, self.world_size, at, take)? {
                Some(words) => device = words,
                None => {
                    drop(stage);
                    let so_far = format!("{round} of {} rounds were measured", self.rounds);
                    if round == 0 {
                        progress.check(&so_far)?;
                    }
                    terminal::note(&format!("lockstep: stopped by Ctrl-C; {so_far}"));
                    break;
                }
            }
        }
        let measured = least.into_iter().map(|(point, call_ps)| Measured { point, call_ps });
        Ok((measured.collect(), device))
    }
}

/// The shortest time of each point's calls in so many rounds, and the device they ran on. If Ctrl-C ends the
/// rounds, the first has to be over.
fn measure_all(
    points: &[Point],
    backend: &dyn Backend,
    (world_size, rounds): (u32, u32),
    progress: &Progress,
) -> Result<(Vec<Measured>, String)> {
    let (mut least, mut device) = (BTreeMap::<Point, u64>::new(), String::new());
    let mut stage = progress.stage("measuring");
    let (total, what) = (u64::from(rounds) * points.len() as u64, "sizes measured");
    // One size after the other and again from the start: what else the machine does hits all.
    let all_rounds = (0..rounds).flat_map(|_| points.iter().copied());
    for (point, done) in all_rounds.zip(0..) {
        if stage.reached(Reached { done, total, what }).is_break() {
            drop(stage);
            let so_far = format!("{done} of {total} sizes were measured");
            if least.len() < points.len() {
                progress.check(&so_far)?;
            }
            terminal::note(&format!("lockstep: stopped by Ctrl-C; {so_far}"));
            break;
        }
        let (call_ps, on) = measure(point, backend, world_size)?;
        least.entry(point).and_modify(|least| *least = call_ps.min(*least)).or_insert(call_ps);
        device = on;
    }
    let measured = least.into_iter().map(|(point, call_ps)| Measured { point, call_ps });
    Ok((measured.collect(), device))
}

/// The median time of a point's calls, in picoseconds, and the device that they ran on.
fn measure(point: Point, backend: &dyn Backend, world_size: u32) -> Result<(u64, String)> {
    let calls = effort::calls(point, MOST_CALLS);
    let warm_up = calls / 5 + 3;
    let plan = point.plan(backend.name(), world_size, calls + warm_up)?;
    let options = RunOptions {
        record_messages: false,
        max_duration: effort::LONGEST,
        ..RunOptions::default()
    };
    let trace = run_to_trace(backend, plan, options)?;
    let (what, bytes) = (point.probe.name(), point.bytes);
    match trace.end.as_ref().map(|end| &end.outcome) {
        Some(Outcome::Completed) => {}
        outcome => bail!(
            "{what} of {bytes} bytes {}; if the machine is busy, calibrate again when it has less to do, or \
             leave larger sizes out with --max-bytes",
            super::describe(outcome)
        ),
    }
    let Some(call_ps) = point.call_ps(&trace, warm_up) else {
        bail!("the trace of {what} of {bytes} bytes has no calls; please report it");
    };
    let device = match trace.header.origin {
        Origin::Run { device, .. } => device,
        _ => String::new(),
    };
    Ok((call_ps, device))
}

/// The first core's own cache and the one that it shares, in bytes, if the system says so.
fn caches() -> Option<[u64; 2]> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        kib.checked_mul(1024)
    };
    Some([size(2)?, size(3)?])
}

fn median_off<'a>(lines: impl Iterator<Item = &'a Line>) -> Option<f64> {
    let mut off: Vec<f64> = lines.map(|line| line.off.abs()).collect();
    off.sort_by(f64::total_cmp);
    off.get(off.len() / 2).copied()
}

fn as_text(
    topology: &Topology,
    device: &str,
    lines: &[Line],
    fitted: Option<f64>,
    held_back: Option<f64>,
) -> String {
    let mut text = format!("{device}\n{topology}\n");
    if let Topology::SharedMemory(machine) = topology {
        let us = |ps: u64| ps as f64 / 1e6;
        let gb = |rates: [u64; 3]| rates.map(|rate| format!("{:.1}", rate as f64 / 1e9)).join(", ");
        let [own, shared] = machine.cached_bytes.map(|bytes| bytes >> 10);
        text.push_str(&format!(
            "a call {:.2} µs, a message {:.2} µs; calls of up to {own} KiB, up to {shared} KiB and more: \
             stores {} GB/s, adds {} GB/s{}\n",
            us(machine.call_ps),
            us(machine.latency_ps),
            gb(machine.store_bytes_per_second),
            gb(machine.reduce_bytes_per_second),
            match machine.store_bytes_per_second {
                [_, cached, far] if cached == far => "; no call was so large that the last ones could be told from those before",
                _ => "",
            },
        ));
    }
    text.push_str(&format!(
        "\n{:12} {:>10} {:>13} {:>13} {:>7}\n",
        "", "bytes", "measured µs", "simulated µs", "off"
    ));
    for line in lines {
        text.push_str(&format!(
            "{:12} {:10} {:13.2} {:13.2} {:+6.1}%{}\n",
            line.measured.point.probe.name(),
            line.measured.point.bytes,
            line.measured.call_ps as f64 / 1e6,
            line.simulated_ps as f64 / 1e6,
            line.off * 100.0,
            if line.fitted { "" } else { "  not fitted" }
        ));
    }
    let kinds = [("fitted sizes", fitted), ("sizes that were not fitted", held_back)];
    for (what, off) in kinds.into_iter().filter_map(|(what, off)| Some((what, off?))) {
        text.push_str(&format!("median of {what}: {:.1}% off\n", off * 100.0));
    }
    text
}
