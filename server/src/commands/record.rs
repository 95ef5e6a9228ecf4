//! `lockstep record`: the user's own PyTorch runs a training script as every rank of a job, and its calls become a
//! plan. No GPU, no peers and no network are needed.

mod by_roles;
mod hub;
mod launch;

use super::signals;
use crate::output_file::{FileKind, Overwrite, write_plan};
use crate::terminal;
use anyhow::{Context, Result, bail};
use hub::{Cut, Hub, Noted};
use launch::{Launch, Launcher};
use lockstep_clusters::compute_card;
use lockstep_core::rank::MAX_WORLD_SIZE;
use lockstep_core::words::rank_list;
use lockstep_core::{plan::Plan, rank::GlobalRank};
use lockstep_replay::script::{
    Roles, ScriptEvent, ScriptPlan, WorkTime, plan_of_roles, plan_of_script,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The recorder, which the user's Python executes.
const RECORDER: &str = include_str!("record/recorder.py");

/// More ranks are not recorded as processes of their own.
const MAX_PROCESSES: u32 = 256;

/// Files of a script past this are kept by name only.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// More files of a script are kept by name only.
const MAX_TEXTS: usize = 500;

/// Have your own PyTorch run a training script as every rank of a job, without GPUs, and write its plan
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The script and its arguments, behind `--`: `train.py --epochs 1`, `-m package.train`, or the whole
    /// `torchrun … train.py`
    #[arg(value_name = "SCRIPT", last = true, required_unless_present = "print_recorder")]
    script: Vec<String>,
    /// The number of ranks; torchrun's --nnodes and --nproc-per-node say it as well
    #[arg(short = 'n', long, value_name = "RANKS")]
    world_size: Option<u32>,
    /// Ranks a node; all on one node if absent
    #[arg(long, value_name = "RANKS")]
    ranks_per_node: Option<u32>,
    /// The ranks that are recorded: all, or one of each role, which is copied to the others of the role. `roles`
    /// is for large worlds: ranks with the same place in all process groups but the data-parallel ones play a role
    #[arg(long, value_enum, default_value_t = Recorded::All)]
    ranks: Recorded,
    /// End each rank after so many optimizer steps
    #[arg(long, value_name = "STEPS")]
    steps: Option<u32>,
    /// The card on which the work between calls is timed (v100, a100, h100, h200, b200, mi300x, rtx4090, cpu), or
    /// `measured` for the times on this machine
    #[arg(long, value_name = "CARD", default_value = "h100")]
    card: String,
    /// Let `torch.cuda` say what is true here, instead of one GPU a rank
    #[arg(long)]
    no_cuda: bool,
    /// Let large matrix products and convolutions be zeros, so that a model for GPUs is recorded in seconds
    #[arg(long)]
    no_math: bool,
    /// Let large float tensors have shapes and no values, so that a model larger than this machine's memory is
    /// recorded
    #[arg(long)]
    no_memory: bool,
    /// Let torchvision's data sets be random images of the same shape, and pretrained weights the initial ones, so
    /// that nothing is downloaded
    #[arg(long)]
    random_data: bool,
    /// The Python that has torch; LOCKSTEP_PYTHON, else python3
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// End the recording when no rank makes a call for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
    /// Where the plan goes; SCRIPT.plan.json in this folder if absent
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Keep what the recorder noted as well: a line `{"rank", "event"}` an event, rank by rank
    #[arg(long, value_name = "FILE", hide = true)]
    notes: Option<PathBuf>,
    /// Print JSON: the schema lockstep.record/1
    #[arg(long)]
    json: bool,
    /// Print the Python file that records, and do nothing else
    #[arg(long)]
    print_recorder: bool,
}

/// The ranks that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Recorded {
    All,
    Roles,
}

/// The recorder's options; its class `Options` reads them.
#[derive(Serialize)]
struct RecorderOptions<'a> {
    ranks: &'a [u32],
    world_size: u32,
    ranks_per_node: u32,
    steps: Option<u32>,
    cuda: bool,
    card: Option<CardRates>,
    module: bool,
    code: Option<&'a str>,
    launcher: Launcher,
    local_rank_argument: Option<&'static str>,
    starts_ranks: bool,
    random_data: bool,
    no_math: bool,
    no_memory: bool,
    script: &'a str,
    arguments: &'a [String],
    /// By rank, the recorded rank that stands for it.
    plays: Option<&'a [u32]>,
    finds_roles: bool,
    silent: bool,
}

/// Which ranks of a world a run of the recorder records, and how.
#[derive(Clone, Copy)]
struct Pass<'a> {
    world_size: u32,
    ranks_per_node: u32,
    ranks: &'a [u32],
    /// By rank, the recorded rank that stands for it; absent if all are recorded.
    plays: Option<&'a [u32]>,
    steps: Option<u32>,
    /// Whether only the groups are looked for: the script's output is not shown.
    looks: bool,
}

/// Rates that operators reach.
#[derive(Serialize)]
struct CardRates {
    /// Floating point operations a second by element type.
    flops: BTreeMap<String, f64>,
    bytes_per_s: f64,
    launch_ns: f64,
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    script: &'a str,
    world_size: u32,
    plan: &'a Path,
    /// The recorder's assumptions, a clause each.
    assumed: &'a [String],
    /// Why the recording stopped before the script's end.
    cut: Option<String>,
    ranks: Vec<RecordedRank>,
    /// The ranks that were not recorded, and whose calls they have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<by_roles::PrintedRole>,
}

/// One rank in numbers.
#[derive(Serialize)]
struct RecordedRank {
    rank: u32,
    calls: u64,
    steps: u64,
    /// The exception's last line, if it ended by one.
    raised: Option<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.print_recorder {
        terminal::print(RECORDER.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let launch = Launch::parse(&arguments.script)?;
    let (world_size, ranks_per_node) = sizes(&arguments, &launch)?;
    if launch.folder().is_some() && !Path::new(&launch.script).is_file() {
        bail!("cannot read {}: there is no such file", launch.script);
    }
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&launch));
    let script = PathBuf::from(&launch.script);
    arguments.overwrite.check(&output, FileKind::Plan, &[&script])?;

    let world = (world_size, ranks_per_node);
    let (noted, roles) = match arguments.ranks {
        Recorded::All => (record_all(&arguments, &launch, world)?, None),
        Recorded::Roles => {
            let (noted, roles) = by_roles::record(&arguments, &launch, world)?;
            (noted, Some(roles))
        }
    };
    let time = match arguments.card.as_str() {
        "measured" => WorkTime::Measured,
        _ => WorkTime::OnCard,
    };
    let name = file_name(&launch.script);
    if let Some(path) = &arguments.notes {
        write_notes(path, &noted)?;
    }
    let events: Vec<Vec<ScriptEvent>> = noted.events.values().cloned().collect();
    if !events.iter().flatten().any(|event| matches!(event, ScriptEvent::Call { .. })) {
        bail!("{}", without_calls(&launch.script, &events));
    }
    let texts = texts_of(&events, &launch);
    let recorded = match &roles {
        Some(roles) => plan_of_roles(&name, ranks_per_node, &noted.events, roles, &texts, time),
        None => plan_of_script(&name, ranks_per_node, &events, &texts, time),
    }
    .context("what was recorded makes no plan")?;
    write_plan(&output, &recorded.plan)?;
    let ranks: Vec<RecordedRank> =
        noted.events.iter().map(|(rank, own)| in_numbers(*rank, own)).collect();
    let raised = ranks.iter().any(|rank| rank.raised.is_some());
    match arguments.json {
        true => {
            let printed = Printed {
                schema: "lockstep.record/1",
                script: &launch.script,
                world_size,
                plan: &output,
                assumed: &recorded.assumed,
                cut: noted.cut.map(|cut| cut.to_string()),
                ranks,
                roles: roles.as_ref().map(by_roles::printed).unwrap_or_default(),
            };
            terminal::text(&(serde_json::to_string_pretty(&printed)? + "\n"))?;
        }
        false => {
            terminal::text(&summary(&launch, &noted, &recorded, (&ranks, roles.as_ref()), &output))?
        }
    }
    Ok(ExitCode::from(match noted.cut {
        Some(Cut::Cancelled) => 130,
        cut => u8::from(raised || cut.is_some()),
    }))
}

fn write_notes(path: &Path, noted: &Noted) -> Result<()> {
    let mut text = String::new();
    for (rank, own) in &noted.events {
        for event in own {
            text.push_str(&serde_json::to_string(
                &serde_json::json!({"rank": rank, "event": event}),
            )?);
            text.push('\n');
        }
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// World size and ranks a node.
fn sizes(arguments: &Arguments, launch: &Launch) -> Result<(u32, u32)> {
    let per_node = arguments.ranks_per_node.or(launch.ranks_per_node);
    let launched =
        launch.ranks_per_node.map(|ranks| ranks.saturating_mul(launch.nodes.unwrap_or(1)));
    let Some(world_size) = arguments.world_size.or(launch.world_size).or(launched) else {
        bail!("say how many ranks the job has: lockstep record --world-size 8 -- {}", launch.script)
    };
    if world_size == 0 || world_size > MAX_WORLD_SIZE {
        bail!("{world_size} ranks cannot be recorded: give 1 to {MAX_WORLD_SIZE}");
    }
    if world_size > MAX_PROCESSES && arguments.ranks == Recorded::All {
        bail!(
            "{world_size} ranks cannot be recorded one by one: give 1 to {MAX_PROCESSES}, each is a process, or \
             record one of each role: --ranks roles"
        );
    }
    match per_node {
        Some(0) => bail!("--ranks-per-node 0: a node has at least one rank"),
        Some(ranks) => Ok((world_size, ranks.min(world_size))),
        None => Ok((world_size, world_size.div_ceil(launch.nodes.unwrap_or(1).max(1)))),
    }
}

fn default_output(launch: &Launch) -> PathBuf {
    let name = file_name(&launch.script);
    let stem = match launch.code {
        Some(_) => "program",
        None => name.strip_suffix(".py").unwrap_or(&name),
    };
    PathBuf::from(format!("{stem}.plan.json"))
}

fn file_name(script: &str) -> String {
    script.rsplit('/').next().unwrap_or(script).to_owned()
}

/// The argument with which `torch.distributed.launch` passes the local rank, in PyTorch 1's spelling if the
/// script knows only that one.
fn local_rank_argument(launch: &Launch) -> Option<&'static str> {
    let text = std::fs::read_to_string(&launch.script).unwrap_or_default();
    let old = text.contains("--local_rank") && !text.contains("--local-rank");
    launch.local_rank_argument.then_some(if old { "--local_rank" } else { "--local-rank" })
}

/// Runs the script as all its ranks.
fn record_all(
    arguments: &Arguments,
    launch: &Launch,
    (world_size, ranks_per_node): (u32, u32),
) -> Result<Noted> {
    let ranks: Vec<u32> = (0..world_size).collect();
    let (plays, steps, looks) = (None, arguments.steps, false);
    let pass = Pass { world_size, ranks_per_node, ranks: &ranks, plays, steps, looks };
    record(arguments, launch, pass)
}

/// Runs the script as some ranks of a world.
fn record(arguments: &Arguments, launch: &Launch, pass: Pass<'_>) -> Result<Noted> {
    let card = match arguments.card.as_str() {
        "measured" => None,
        name => Some(compute_card(name)?),
    };
    let options = RecorderOptions {
        ranks: pass.ranks,
        world_size: pass.world_size,
        ranks_per_node: pass.ranks_per_node,
        steps: pass.steps,
        cuda: !arguments.no_cuda,
        card: card.map(|card| CardRates {
            flops: card
                .tflops
                .iter()
                .map(|(dtype, rate)| (dtype.clone(), rate * 1e12 * card.matmul_fraction))
                .collect(),
            bytes_per_s: card.memory_tbps * 1e12 * card.memory_fraction,
            launch_ns: card.launch_us * 1e3,
        }),
        module: launch.module,
        code: launch.code.as_deref(),
        launcher: launch.launcher,
        local_rank_argument: local_rank_argument(launch),
        starts_ranks: launch.is_plain(),
        random_data: arguments.random_data,
        no_math: arguments.no_math,
        no_memory: arguments.no_memory,
        script: &launch.script,
        arguments: &launch.arguments,
        plays: pass.plays,
        finds_roles: pass.plays.is_some(),
        silent: pass.looks,
    };
    let folder = tempfile::tempdir().context("cannot make a folder for the recorder")?;
    let recorder = folder.path().join("lockstep_recorder.py");
    std::fs::write(&recorder, RECORDER).context("cannot write the recorder")?;
    let socket = folder.path().join("hub");
    let cancelled = signals::cancelled()?;
    let hub = Hub::listen(&socket, pass.ranks.len())?;
    let python = arguments
        .python
        .clone()
        .or_else(|| std::env::var_os("LOCKSTEP_PYTHON").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from("python3"));
    let stdout = match arguments.json {
        true => Stdio::from(std::io::stderr()),
        false => Stdio::inherit(),
    };
    let child = Command::new(&python)
        .arg(&recorder)
        .envs(&launch.environment)
        .env("LOCKSTEP_HUB", &socket)
        .env("LOCKSTEP_RECORD", serde_json::to_string(&options)?)
        .stdin(Stdio::null())
        .stdout(stdout)
        .process_group(0)
        .spawn()
        .with_context(|| {
            format!("cannot start {}: name a Python with torch by --python", python.display())
        })?;
    let mut recorder = Recorder { child };
    let patience = Duration::from_secs(arguments.patience.max(1));
    hub.serve(pass.ranks, patience, &cancelled, || Ok(recorder.child.try_wait()?.is_none()))
}

/// The recorder's processes; none of them outlives it.
struct Recorder {
    child: Child,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // An empty group is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The reason that a recording holds no calls.
fn without_calls(script: &str, events: &[Vec<ScriptEvent>]) -> String {
    let ended = events.iter().flatten().find_map(|event| match event {
        ScriptEvent::End { how: Some(how), traceback, .. } => Some((how, traceback)),
        _ => None,
    });
    match ended {
        Some((how, traceback)) if !traceback.is_empty() => {
            format!(
                "{script} raised before its first call of torch.distributed:\n{}",
                traceback.trim_end()
            )
            .replace('\r', "")
                + if how.contains("No module named") {
                    "\nInstall what it imports beside torch."
                } else {
                    ""
                }
        }
        Some((how, _)) => {
            format!("{script} ended before its first call of torch.distributed: {how}")
        }
        None if events.iter().all(Vec::is_empty) => {
            format!("the recorder ended before {script} began: see its message above")
        }
        None => format!("{script} makes no call of torch.distributed"),
    }
}

/// The texts of the script's own files, by the names that places use.
fn texts_of(events: &[Vec<ScriptEvent>], launch: &Launch) -> BTreeMap<String, String> {
    let names: BTreeSet<&str> = events
        .iter()
        .flatten()
        .filter_map(|event| match event {
            ScriptEvent::Call { at: Some((file, _)), .. } => Some(file.as_str()),
            _ => None,
        })
        .collect();
    let roots = [launch.folder().unwrap_or(Path::new("")).to_path_buf(), PathBuf::new()];
    let text = |name: &str| {
        let path = roots.iter().map(|root| root.join(name)).find(|path| path.is_file())?;
        let small = std::fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_TEXT_BYTES);
        small.then(|| std::fs::read_to_string(path).ok()).flatten()
    };
    names
        .into_iter()
        .take(MAX_TEXTS)
        .filter_map(|name| Some((name.to_owned(), text(name)?)))
        .collect()
}

fn in_numbers(rank: u32, events: &[ScriptEvent]) -> RecordedRank {
    let calls = events.iter().filter(|event| matches!(event, ScriptEvent::Call { .. })).count();
    let steps = events.iter().filter(|event| matches!(event, ScriptEvent::Step)).count();
    let raised = events.iter().find_map(|event| match event {
        ScriptEvent::End { how, .. } => how.clone(),
        _ => None,
    });
    RecordedRank { rank, calls: calls as u64, steps: steps as u64, raised }
}

/// The summary for people.
fn summary(
    launch: &Launch,
    noted: &Noted,
    recorded: &ScriptPlan,
    (ranks, roles): (&[RecordedRank], Option<&Roles>),
    output: &Path,
) -> String {
    let copies = roles.map(Roles::copies).unwrap_or_default();
    let stands_for = |rank: &RecordedRank| 1 + copies.get(&rank.rank).map_or(0, Vec::len) as u64;
    let calls: u64 = ranks.iter().map(|rank| rank.calls * stands_for(rank)).sum();
    let steps = ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
    let mut text = format!(
        "recorded  {} on {} ranks: {calls} calls in {} groups, {steps} optimizer steps\n",
        launch.script,
        recorded.plan.world_size,
        recorded.plan.groups.len(),
    );
    for role in roles.map(by_roles::printed).unwrap_or_default() {
        text.push_str(&format!("by roles  {role}\n"));
    }
    text.push_str(&format!("calls     {}\n", kinds_of(&recorded.plan)));
    let mut ends: BTreeMap<&str, Vec<GlobalRank>> = BTreeMap::new();
    for rank in ranks {
        if let Some(raised) = &rank.raised {
            ends.entry(raised).or_default().push(GlobalRank(rank.rank));
        }
    }
    for (raised, who) in &ends {
        text.push_str(&format!("raised    {}: {raised}\n", rank_list(who)));
    }
    let traceback = noted.events.values().flatten().find_map(|event| match event {
        ScriptEvent::End { traceback, .. } if !traceback.is_empty() => Some(traceback),
        _ => None,
    });
    for line in traceback.into_iter().flat_map(|traceback| traceback.lines()) {
        text.push_str(&format!("          {line}\n"));
    }
    for assumed in &recorded.assumed {
        text.push_str(&format!("assumed   {assumed}\n"));
    }
    if let Some(cut) = &noted.cut {
        text.push_str(&format!("cut off   {cut}\n"));
    }
    let shown = output.display();
    text.push_str(&format!("plan      {shown} (next: lockstep sim {shown})\n"));
    text
}

/// The number of times each call is made, all ranks together: `all_reduce 24, broadcast 12`.
fn kinds_of(plan: &Plan) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for program in &plan.program_of {
        let ops = plan.programs.get(*program as usize).map_or(&[][..], |program| &program.ops);
        for call in ops.iter().flat_map(|op| op.action.calls()) {
            *kinds.entry(call.name()).or_default() += 1;
        }
    }
    let mut kinds: Vec<(&str, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    kinds.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}
