//! `lockstep run`: a plan for real, one process per rank, compared with the simulator.

use super::{describe_end, dumps, rank_launcher, signals};
use crate::exit_rule::ExitRule;
use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::{FaultOptions, Found, PlanArguments, Said};
use crate::progress::Progress;
use crate::{late_faults, terminal, trace_file};
use anyhow::{Context, Result, bail};
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Call, Fault, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Origin, Outcome, Trace};
use lockstep_core::words::counted;
use lockstep_diagnosis::{Report, diagnose};
use lockstep_gpu_exec::host::KeepDump;
use lockstep_gpu_exec::{RunEvent, RunHandle, RunOptions, SharingStrategy, Transport};
use lockstep_sim::{Comparison, Difference, SimConfig, compare, simulate};
use lockstep_torch::c10d::STORE_TENSOR;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code that a shell reports of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The exit code of a run's command that could not write an output, the same as for wrong arguments.
const UNWRITTEN: u8 = 2;

/// Run a plan for real, one process per rank, and compare it with the simulator
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// What carries it out
    #[arg(long, value_enum, default_value = "host")]
    backend: BackendChoice,
    #[command(flatten)]
    nccl: super::nccl::NcclArguments,
    #[command(flatten)]
    faults: FaultOptions,
    #[command(flatten)]
    results: Results,
    /// What carries messages between ranks
    #[arg(long, value_enum, default_value = "auto")]
    transport: TransportChoice,
    /// host: how ranks get hold of the shared memory, by torch.multiprocessing's names
    #[arg(long, value_enum)]
    sharing: Option<SharingChoice>,
}

/// torch.multiprocessing's sharing strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum SharingChoice {
    /// Memory without a name, whose descriptor each rank is sent over a socket (the default)
    FileDescriptor,
    /// A file in /dev/shm, whose name a process beside the run removes, also after a crash
    FileSystem,
}

/// The strategy by which a run's ranks get hold of the shared memory.
///
/// # Errors
/// When something was asked of a backend that shares no memory of the host.
pub(crate) fn strategy(
    asked: Option<SharingChoice>,
    backend: BackendName,
) -> Result<SharingStrategy> {
    match asked {
        Some(_) if backend == BackendName::Nccl => {
            bail!("sharing is an option of the backend host: ranks on GPUs share no memory of it")
        }
        Some(SharingChoice::FileSystem) => Ok(SharingStrategy::FileSystem),
        Some(SharingChoice::FileDescriptor) | None => Ok(SharingStrategy::FileDescriptor),
    }
}

/// The transport of messages between ranks.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum TransportChoice {
    /// Shared memory where all ranks are on one machine, else TCP
    Auto,
    /// Shared memory
    Shm,
    /// TCP, also between ranks of one machine
    Tcp,
}

impl From<TransportChoice> for Transport {
    fn from(choice: TransportChoice) -> Transport {
        match choice {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::Shm => Transport::SharedMemory,
            TransportChoice::Tcp => Transport::Tcp,
        }
    }
}

/// The outputs of a run.
#[derive(clap::Args)]
pub(crate) struct Results {
    /// Write each rank's Flight Recorder dump into this folder when the run does not complete, or
    /// is sent SIGUSR1: what `lockstep diagnose` and PyTorch's torchfrtrace read. A rank that was killed or stopped leaves
    /// none. Dumps of earlier runs there are removed first
    #[arg(long, value_name = "FOLDER")]
    dump_dir: Option<PathBuf>,
    /// Calls that each rank's flight recorder holds [default: $TORCH_FR_BUFFER_SIZE, or 2000]
    #[arg(long, value_name = "N")]
    recorded_calls: Option<u32>,
    /// Write the trace to a file while it runs, binary; or at its end, as JSON, if the name ends in .json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exit: ExitRule,
}

impl Results {
    /// Refuses outputs that may not be replaced before a run begins. `input` is the source of its plan.
    ///
    /// # Errors
    /// When the trace's file or the dumps' folder holds files that Lockstep has not written.
    pub(crate) fn check(&self, input: &str) -> Result<()> {
        if let Some(path) = &self.output {
            self.overwrite.check(path, FileKind::Trace, &[Path::new(input)])?;
        }
        match &self.dump_dir {
            Some(folder) => dumps::check(folder, |_| true),
            None => Ok(()),
        }
    }

    /// The ring's size: as asked for, as PyTorch's variable says, or PyTorch's default.
    pub(crate) fn recorded_calls(&self) -> Result<u32> {
        if let Some(calls) = self.recorded_calls {
            return Ok(calls);
        }
        let Ok(text) = std::env::var("TORCH_FR_BUFFER_SIZE") else {
            return Ok(RunOptions::default().recorded_calls);
        };
        let parsed = text.trim().parse();
        parsed.with_context(|| format!("TORCH_FR_BUFFER_SIZE is {text:?}; it is a number of calls"))
    }

    /// The act of a rank that ends without rank 0 on its dump; one of an earlier run is removed.
    ///
    /// # Errors
    /// When it cannot be.
    pub(crate) fn own_dump(&self, rank: GlobalRank) -> Result<Option<KeepDump>> {
        let Some(folder) = self.dump_dir.clone() else { return Ok(None) };
        dumps::make_room(&folder, |of| of == rank)?;
        Ok(Some(Box::new(move |dump| {
            if let Err(error) = dumps::write(&folder, dump) {
                terminal::note(&format!("lockstep: {error:#}"));
            }
        })))
    }

    /// Lets signals steer a run whose results these are.
    ///
    /// # Errors
    /// When the kernel takes no handler.
    pub(crate) fn steer(&self, handle: &RunHandle) -> Result<()> {
        signals::steer(handle.control(), self.dump_dir.clone())
    }

    /// True if ranks hand in their recorders' dumps.
    pub(crate) fn wants_dumps(&self) -> bool {
        self.dump_dir.is_some()
    }
}

/// The backends that a run can ask for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum BackendChoice {
    /// Processes on this machine, data through shared memory
    Host,
    /// GPUs, through NVIDIA's library
    Nccl,
    /// Named so that a user who asks for it gets a hint.
    #[value(hide = true)]
    Mpi,
}

impl BackendChoice {
    /// Its name.
    ///
    /// # Errors
    /// For MPI, whose own launcher starts the ranks.
    pub(crate) fn name(self) -> Result<BackendName> {
        Ok(match self {
            BackendChoice::Host => BackendName::Host,
            BackendChoice::Nccl => BackendName::Nccl,
            BackendChoice::Mpi => bail!(
                "MPI starts its ranks itself: mpirun -n 4 lockstep rank --backend mpi --plan PLAN, \
                 with a lockstep that was built with it (--features mpi); host and nccl run from here"
            ),
        })
    }
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Ran<'a> {
    schema: &'static str,
    outcome: Option<&'a Outcome>,
    time_ps: u64,
    events: usize,
    findings: &'a Report,
    /// Against the simulator; none when it could not simulate the plan.
    comparison: Option<&'a Comparison>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let name = arguments.backend.name()?;
    arguments.results.check(&arguments.plan.what)?;
    let Found { plan, said, .. } = arguments.plan.find(&Progress::without_signals())?;
    arguments.nccl.check_for(name)?;
    let sharing = strategy(arguments.sharing, name)?;
    let backend = arguments.nccl.backend(name, rank_launcher()?)?;
    let options = RunOptions {
        faults: arguments.faults.faults.clone(),
        recorded_calls: arguments.results.recorded_calls()?,
        dump_at_end: arguments.results.wants_dumps(),
        transport: arguments.transport.into(),
        sharing,
        ..RunOptions::default()
    };
    let said = said.with_faults(&plan, &options.faults);
    let handle = backend.start(plan, options)?;
    arguments.results.steer(&handle)?;
    let own_order = arguments.nccl.own_order(name).then_some(OwnOrder("NCCL"));
    let faults = &arguments.faults.faults;
    conclude(handle, &Conclusion { results: &arguments.results, faults, said: &said, own_order })
}

/// A library whose collectives add floats in an order that is not the plan's: their last bits are not
/// held against the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnOrder(pub(crate) &'static str);

/// Everything that the report at a run's end needs.
pub(crate) struct Conclusion<'a> {
    pub(crate) results: &'a Results,
    /// The faults that were injected into the run.
    pub(crate) faults: &'a [Fault],
    /// The lines that the program's ranks print and raise.
    pub(crate) said: &'a Said,
    pub(crate) own_order: Option<OwnOrder>,
}

/// Reads a run to its end and says how it went.
pub(crate) fn conclude(handle: RunHandle, conclusion: &Conclusion<'_>) -> Result<ExitCode> {
    concluded(handle, conclusion).map(ExitCode::from)
}

/// The conclusion, with the exit code as a number.
pub(crate) fn concluded(handle: RunHandle, conclusion: &Conclusion<'_>) -> Result<u8> {
    let Conclusion { results, faults, said, own_order } = *conclusion;
    // Dumps of the run are read from here on.
    if let Some(folder) = &results.dump_dir {
        dumps::make_room(folder, |_| true)?;
    }
    // With its faults.
    let plan = handle.header().plan.clone().context("the run's trace has no plan")?;
    let Followed { trace, unwritten } = follow(handle, results)?;
    let log = CallLog::of(&trace);
    said.tell(Some(&log));
    let mut report = diagnose(&log);
    drop(log);
    report.notes.extend(late_faults::notes(faults, &trace));
    let comparison = against_simulation(&plan, &trace);
    let text = match results.json {
        true => as_json(&trace, &report, comparison.as_ref())?,
        false => {
            let mut text = as_text(&plan, &trace, &report, comparison.as_ref());
            if let Some(OwnOrder(library)) = own_order
                && comparison.as_ref().is_some_and(|compared| !compared.differences.is_empty())
            {
                text.push_str(&format!(
                    "    {library}'s own collectives add floats in an order of their own: their last \
                     bits may differ, and are not held against the run\n",
                ));
            }
            text
        }
    };
    terminal::text(&text)?;
    if unwritten {
        return Ok(UNWRITTEN);
    }
    let outcome = trace.end.map(|end| end.outcome);
    if outcome == Some(Outcome::Cancelled) {
        return Ok(INTERRUPTED);
    }
    let counts = |difference: &Difference| {
        let open = is_float(&plan, &difference.name) || is_left_over(&plan, difference);
        own_order.is_none() || !open
    };
    let differs = comparison.is_some_and(|comparison| comparison.differences.iter().any(counts));
    let completed = outcome == Some(Outcome::Completed) && !differs;
    Ok(results.exit.code_of_run(report.verdict, completed))
}

/// True if the tensor of this name holds floats.
fn is_float(plan: &Plan, name: &str) -> bool {
    let named = plan.tensors.iter().find(|tensor| tensor.name == name);
    named.is_some_and(|tensor| tensor.dtype.as_real().is_float())
}

/// True if a reduction to another rank may have left anything in the tensor: partial sums of a schedule, or
/// its earlier values.
fn is_left_over(plan: &Plan, difference: &Difference) -> bool {
    let ops = plan.program(difference.rank).map_or(&[][..], |program| &program.ops);
    ops.iter().flat_map(|op| op.action.calls()).any(|call| {
        let Call::Collective { group, collective, output, .. } = call else { return false };
        let me = plan.group(*group).and_then(|group| group.group_rank(difference.rank));
        let promised = me.is_none_or(|me| collective.promises(me));
        *output == Some(difference.tensor) && collective.in_place() && !promised
    })
}

/// A run that was read to its end.
struct Followed {
    trace: Trace,
    /// True if an output could not be written, which was reported already.
    unwritten: bool,
}

/// Reads a run to its end, and writes its trace and its dumps as they come. A failure to write during the run
/// (a full disk) does not lose the findings.
///
/// # Errors
/// When the trace's file cannot be begun.
fn follow(handle: RunHandle, results: &Results) -> Result<Followed> {
    let header = handle.header().clone();
    let mut file = results
        .output
        .as_deref()
        .map(|path| trace_file::Growing::begin(path, &header))
        .transpose()?;
    let (mut all, mut unwritten) = (Vec::new(), false);
    let mut say = |written: Result<()>| {
        let failed = written.is_err();
        // Once: what comes after it fails alike.
        if let Err(error) = written
            && !std::mem::replace(&mut unwritten, true)
        {
            terminal::note(&format!("lockstep: {error:#}"));
        }
        failed
    };
    // The channel hangs up when the run has ended and all is read.
    while let Ok(event) = handle.events().recv() {
        match event {
            RunEvent::Events(mut events) => {
                if let Some(growing) = &mut file
                    && say(growing.events(&events))
                {
                    file = None;
                }
                all.append(&mut events);
            }
            RunEvent::Dumped(dump) => {
                // At once: who asks for one of a run that hangs will not wait for its end.
                if let Some(folder) = &results.dump_dir {
                    say(dumps::write(folder, &dump));
                }
            }
            RunEvent::Ended(_) => break,
        }
    }
    let trace = Trace { header, events: all, end: Some(handle.join()) };
    if let Some(file) = file {
        say(file.end(&trace));
    }
    Ok(Followed { trace, unwritten })
}

/// Compares a run's results with the simulator's; `None` if it cannot simulate the plan.
pub(crate) fn against_simulation(plan: &Plan, ran: &Trace) -> Option<Comparison> {
    let config = SimConfig { record_messages: false, ..SimConfig::default() };
    let simulated = simulate(plan, &config).ok()?;
    Some(compare(plan, &simulated, ran))
}

fn as_json(trace: &Trace, report: &Report, comparison: Option<&Comparison>) -> Result<String> {
    let ran = Ran {
        schema: "lockstep.run/1",
        outcome: trace.end.as_ref().map(|end| &end.outcome),
        time_ps: trace.end.as_ref().map_or(0, |end| end.time_ps),
        events: trace.events.len(),
        findings: report,
        comparison,
    };
    Ok(serde_json::to_string_pretty(&ran)? + "\n")
}

fn as_text(plan: &Plan, trace: &Trace, report: &Report, comparison: Option<&Comparison>) -> String {
    let on = match &trace.header.origin {
        Origin::Run { backend, device } => format!("{backend}, {device}"),
        _ => "unknown device".into(),
    };
    let mut text = format!(
        "{}\nrun on {} ({on}): {}\n{}{}",
        plan.name,
        counted(plan.world_size, "rank"),
        describe_end(trace.end.as_ref()),
        trace.header.stand_in().map(|words| words + "\n").unwrap_or_default(),
        report.to_text()
    );
    match comparison {
        None => {
            text.push_str("values: the simulator cannot simulate this plan, nothing was compared\n")
        }
        Some(_) if plan.tensors.iter().all(|tensor| tensor.name == STORE_TENSOR) => {
            text.push_str("values: the plan has no tensors, so there are none to compare\n");
        }
        Some(compared) => text.push_str(&describe_comparison(compared)),
    }
    text
}

fn describe_comparison(compared: &Comparison) -> String {
    if let Some(why) = &compared.not_compared {
        let calls = &compared.calls;
        let mut text = format!(
            "values: not compared: {why}\n\
             calls: {} of {} equal the simulator's, in order and in size\n",
            calls.equal,
            counted(calls.calls, "call")
        );
        if let Some(difference) = &calls.first_difference {
            text.push_str(&format!("    {}\n", difference.words(["simulated", "run"])));
        }
        return text;
    }
    if compared.tensors == 0 {
        return "values: no rank of both the run and the simulation finished with a tensor\n"
            .into();
    }
    let mut text = format!(
        "values: {} of {} ({}) equal the simulator's to the bit\n",
        compared.equal,
        counted(compared.tensors, "tensor"),
        counted(compared.elements, "element")
    );
    for difference in &compared.differences {
        let element = difference.element.map(|element| format!("[{element}]")).unwrap_or_default();
        text.push_str(&format!(
            "    rank {}, {}{element}: simulated {}, ran {}\n",
            difference.rank, difference.name, difference.left, difference.right
        ));
    }
    if compared.only_in_one > 0 {
        let is = if compared.only_in_one == 1 { "is" } else { "are" };
        let tensors = counted(compared.only_in_one, "tensor");
        text.push_str(&format!("    {tensors} {is} only in one of them\n"));
    }
    if compared.left_open > 0 {
        let differ = if compared.left_open == 1 { "differs" } else { "differ" };
        text.push_str(&format!(
            "    {} {differ}, where the plan leaves open what a receive from any source takes first: \
             that is not held against the run\n",
            counted(compared.left_open, "tensor")
        ));
    }
    text
}
