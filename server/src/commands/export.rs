//! `lockstep export`: a plan or its run in the formats of other tools.

use crate::output_file::{FileKind, Overwrite, write_whole};
use crate::plan_source::{LinkOptions, PlanArguments};
use crate::progress::Progress;
use crate::rank_files::RankFiles;
use crate::terminal;
use anyhow::{Context, Result, anyhow, bail};
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Trace};
use lockstep_formats::chakra::ChakraWriter;
use lockstep_formats::flight_recorder::dumps_of;
use lockstep_formats::goal;
use lockstep_formats::kineto::KinetoWriter;
use lockstep_formats::msccl;
use lockstep_formats::perfetto;
use lockstep_sim::{SimConfig, SimError, simulate_watched};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a plan, a run or a recording for other tools: Perfetto, PyTorch's analysers, other simulators
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    links: LinkOptions,
    /// Write to a file instead of standard output; a folder for forms with a file a rank
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// The tool whose format is written.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// GOAL, as LogGOPSim and its kin read it: every rank's messages and what they require
    #[arg(long)]
    goal: bool,
    /// MSCCL XML: the schedule of the plan's one collective
    #[arg(long)]
    msccl: bool,
    /// PyTorch Flight Recorder dumps of a simulation of the plan, or of a recording as it was made: a folder of
    /// pickles, with JSON below it
    #[arg(long, requires = "output")]
    flight_recorder: bool,
    /// A trace for ui.perfetto.dev: a process for each rank, a track for each stream. A recording is written as
    /// recorded, a plan is simulated
    #[arg(long)]
    perfetto: bool,
    /// Profiles as PyTorch's profiler writes them on CUDA, which HolisticTraceAnalysis reads: a folder
    #[arg(long, requires = "output")]
    kineto: bool,
    /// Execution traces of MLCommons Chakra, which ASTRA-sim runs: a folder
    #[arg(long, requires = "output")]
    chakra: bool,
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if let (true, Some(folder)) = (arguments.form.flight_recorder, &arguments.output) {
        return dumps(&arguments, folder, progress);
    }
    if arguments.form.perfetto {
        return perfetto_trace(&arguments, progress);
    }
    if let (Form { kineto: true, .. } | Form { chakra: true, .. }, Some(folder)) =
        (&arguments.form, &arguments.output)
    {
        return files_of_ranks(&arguments, folder, progress);
    }
    let plan = arguments.plan.plan(progress)?;
    let Some(path) = &arguments.output else {
        let mut text = Vec::new();
        write(&plan, &arguments.form, &mut text)?;
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let kind = if arguments.form.msccl { FileKind::Msccl } else { FileKind::Goal };
    arguments.overwrite.check(path, kind, &arguments.plan.paths())?;
    write_whole(path, |mut file| write(&plan, &arguments.form, &mut file))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the dumps of every rank: `nccl_trace_rank_N`, and `json/rank_N.json`.
fn dumps(arguments: &Arguments, folder: &Path, progress: &Progress) -> Result<ExitCode> {
    // A recording is written as it is: simulated, a job that hung may end in another finding.
    let trace = match arguments.plan.recorded_trace(progress)? {
        Some(trace) => trace,
        None => {
            let config = SimConfig { record_messages: false, ..SimConfig::default() };
            let plan = arguments.plan.plan(progress)?;
            simulate_watched(&plan, &config, &mut progress.stage("simulating"))?
        }
    };
    super::dumps::check(folder, |_| true)?;
    let json = folder.join("json");
    fs::create_dir_all(&json).with_context(|| format!("cannot create {}", json.display()))?;
    let save = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    for dump in dumps_of(&CallLog::of(&trace), trace.header.epoch_ns) {
        save(folder.join(&dump.file_name), &dump.to_pickle())?;
        save(json.join(format!("rank_{}.json", dump.rank)), dump.to_json().as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a trace for Perfetto.
fn perfetto_trace(arguments: &Arguments, progress: &Progress) -> Result<ExitCode> {
    let Some(path) = &arguments.output else {
        let mut bytes = Vec::new();
        perfetto::write(&trace(arguments, progress)?, &mut bytes)?;
        terminal::print(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    };
    arguments.overwrite.check(path, FileKind::Perfetto, &arguments.plan.paths())?;
    let trace = trace(arguments, progress)?;
    write_whole(path, |mut out| Ok(perfetto::write(&trace, &mut out)?))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a profile or an execution trace for each rank.
fn files_of_ranks(arguments: &Arguments, folder: &Path, progress: &Progress) -> Result<ExitCode> {
    let trace = trace(arguments, progress)?;
    let inputs = arguments.plan.paths();
    let rules = (arguments.overwrite, &inputs[..]);
    if arguments.form.kineto {
        let writer = KinetoWriter::new(&trace);
        let ranks: BTreeSet<GlobalRank> = writer.ranks().collect();
        let (kind, name) = (FileKind::Kineto, KinetoWriter::file_name);
        let files = RankFiles::new(folder, kind, name, &ranks, rules)?;
        for rank in ranks {
            files.write(rank, |mut out| writer.write(rank, &mut out))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let writer = ChakraWriter::new(&trace);
    let ranks: BTreeSet<GlobalRank> = writer.ranks().collect();
    let beside = folder.join("astra-sim");
    let groups = beside.join("comm_group.json");
    arguments.overwrite.check(&groups, FileKind::CommGroups, &inputs)?;
    let (kind, name) = (FileKind::Chakra, ChakraWriter::file_name);
    let files = RankFiles::new(folder, kind, name, &ranks, rules)?;
    for rank in ranks {
        files.write(rank, |mut out| writer.write(rank, &mut out))?;
    }
    // Apart from the traces: whoever reads the folder reads what is in it.
    fs::create_dir_all(&beside).with_context(|| format!("cannot create {}", beside.display()))?;
    write_whole(&groups, |out| Ok(out.write_all(writer.comm_groups().as_bytes())?))?;
    Ok(ExitCode::SUCCESS)
}

/// The trace to be written: a recording as it is, else a simulation of the plan.
fn trace(arguments: &Arguments, progress: &Progress) -> Result<Trace> {
    if let Some(recorded) = arguments.plan.recorded_trace(progress)? {
        super::analyze::tell_of_cut(&recorded);
        return Ok(recorded);
    }
    let plan = arguments.plan.plan(progress)?;
    let config = arguments.links.config(&plan)?;
    let simulated =
        |config: &SimConfig| simulate_watched(&plan, config, &mut progress.stage("simulating"));
    match simulated(&config) {
        Err(SimError::TooManyEvents { .. }) => {
            terminal::note("lockstep: the simulation has too many messages to write each of them");
            let config = SimConfig { record_messages: false, ..config };
            Ok(simulated(&config)?)
        }
        simulated => Ok(simulated?),
    }
}

fn write(plan: &Plan, form: &Form, out: &mut impl Write) -> Result<()> {
    if form.msccl {
        return Ok(out.write_all(schedule_of(plan)?.as_bytes())?);
    }
    let writer = goal::GoalWriter::new(plan);
    out.write_all(writer.header().as_bytes())?;
    // Rank by rank: a large world's messages need not be in memory at once.
    for rank in (0..plan.world_size).map(GlobalRank) {
        out.write_all(writer.rank(rank)?.as_bytes())?;
    }
    Ok(())
}

/// The XML of the schedule that the plan's collectives have.
fn schedule_of(plan: &Plan) -> Result<String> {
    let mut found = None;
    for program in &plan.programs {
        let mut calls = program.ops.iter().flat_map(|op| op.action.calls());
        let (first, second) = (calls.next(), calls.next());
        let Some(call) = first else { continue };
        if second.is_some() {
            bail!("an MSCCL file holds one call of one collective; {} makes several", plan.name);
        }
        if let Call::Collective { splits: Some(_), .. } = call {
            bail!("an MSCCL file has equal parts; {} has uneven splits", plan.name);
        }
        let Some(schedule) = plan.schedule(call) else {
            bail!("{} is no collective, and MSCCL has only those", Call::name(call));
        };
        let schedule = schedule?;
        if found.as_ref().is_some_and(|other| *other != schedule) {
            bail!("an MSCCL file holds one collective; the ranks of {} call several", plan.name);
        }
        found = Some(schedule);
    }
    match found {
        Some(schedule) => Ok(msccl::write(&schedule).map_err(|error| match error {
            msccl::WriteError::Switches(what) => anyhow!(
                "{what} cannot be an MSCCL program: switches reduce in it, and MSCCL has only \
                 GPUs; choose another --algorithm, such as ring or tree"
            ),
            error => error.into(),
        })?),
        None => bail!("{} calls no collective", plan.name),
    }
}
