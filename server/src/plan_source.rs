//! The sources of a plan: a program, a file, one of the shipped scenarios, or one collective on its own. The
//! command line and `POST /api/runs` share the same words.

mod cluster;
mod faults;
mod links;
mod names;
mod options;
mod recorded;
mod said;

pub(crate) use cluster::{ClusterOptions, cluster_of, cluster_or_relative};
pub(crate) use faults::FaultOptions;
pub(crate) use links::LinkOptions;
pub(crate) use options::PlanOptions;
pub(crate) use recorded::{JUDGING, Replay, Replayable, times_of_trace};
pub(crate) use said::Said;

use crate::progress::Progress;
use crate::recording::STREAMED_BYTES;
use crate::{files, program_child, terminal};
use anyhow::{Context, Result, bail};
use lockstep_core::plan::Plan;
use lockstep_core::schedule::ProvedTable;
use lockstep_core::trace::{Origin, Trace};
use lockstep_formats::goal;
use lockstep_formats::msccl;
use lockstep_replay::Repair;
use lockstep_scenarios::program::Compiled;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Plan files past this are refused: those of recordings of a thousand ranks have hundreds of megabytes.
const MAX_PLAN_BYTES: u64 = 1 << 30;

/// The number of a file's first bytes that are enough to recognise its kind.
const HEAD_BYTES: u64 = 4 << 10;

/// A plan as the command line names it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArguments {
    /// A program (train.py), a plan file (`-` for standard input), a recording (a Lockstep trace, a folder or archive
    /// of Flight Recorder dumps, a profile, an execution trace), a scenario or a call of
    /// torch.distributed (`lockstep plan --list` names them: all_reduce, all_gather_object, …)
    #[arg(value_name = "PROGRAM|PLAN|RECORDING|SCENARIO|CALL")]
    pub(crate) what: String,
    /// More files of the same recording
    #[arg(value_name = "PATH")]
    pub(crate) more: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: PlanOptions,
    /// An MSCCL XML file that says how a collective is carried out; its world size is the file's
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
    /// Arguments of a program, behind `--`: what its argparse gets
    #[arg(value_name = "ARGUMENT", last = true)]
    pub(crate) arguments: Vec<String>,
}

/// A plan, and the facts beside it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) plan: Plan,
    /// The output of a program's ranks.
    pub(crate) said: Said,
    /// The recording that the plan replays, call by call.
    pub(crate) replay: Option<Replay>,
    /// The trace that the plan is of.
    pub(crate) trace: Option<Box<Trace>>,
    /// The origin of the trace that the plan, or what it repairs, is of.
    pub(crate) origin: Option<Origin>,
}

impl Found {
    fn only(plan: Plan) -> Found {
        Found { plan, said: Said::default(), replay: None, trace: None, origin: None }
    }
}

/// The proved schedule of an MSCCL XML file.
///
/// # Errors
/// When it cannot be read, or does not carry out its collective.
pub(crate) fn proved_schedule(path: &Path) -> Result<ProvedTable> {
    let bytes = files::read(path, msccl::MAX_XML_BYTES as u64)?;
    let text =
        String::from_utf8(bytes).ok().with_context(|| format!("{} is no text", path.display()))?;
    let shown = || format!("cannot use {}", path.display());
    let table = msccl::read(&text).with_context(shown)?;
    ProvedTable::new(table).with_context(shown)
}

impl PlanArguments {
    /// The plan. The lines that a program's ranks print go to standard error.
    ///
    /// # Errors
    /// When there is no such thing, or it is no plan that can be run.
    pub(crate) fn plan(&self, progress: &Progress) -> Result<Plan> {
        let found = self.find(progress)?;
        found.said.tell(None);
        Ok(found.plan)
    }

    /// All files that are named.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        [Path::new(&self.what)].into_iter().chain(self.more.iter().map(PathBuf::as_path)).collect()
    }

    /// True if a recording is named rather than a plan or a program.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn is_recorded(&self) -> Result<bool> {
        Ok(!self.more.is_empty() || !matches!(kind_of(Path::new(&self.what))?, PathKind::Other))
    }

    /// The plan, and the facts beside it.
    ///
    /// # Errors
    /// When there is no such thing, or it is no plan that can be run.
    pub(crate) fn find(&self, progress: &Progress) -> Result<Found> {
        let path = Path::new(&self.what);
        self.options.check()?;
        if let Some(schedule) = &self.schedule {
            if !names::COLLECTIVES.contains(&self.what.as_str()) {
                bail!("--schedule says how a collective is carried out; {} is none", self.what);
            }
            let plan = self.options.collective_with(&self.what, &proved_schedule(schedule)?)?;
            return Ok(Found::only(self.options.on_nodes(plan)));
        }
        let may_be_program = self.what == "-" || path.extension().is_some();
        if !self.arguments.is_empty() && !may_be_program {
            bail!("the arguments behind -- are for a program, and {} is none", self.what);
        }
        if !self.more.is_empty() {
            return self.recorded(progress);
        }
        if self.what != "-" && !path.exists() {
            if let Some(why) = self.options.backend_unasked(&self.what) {
                terminal::note(&format!("lockstep: {why}"));
            }
            return Ok(Found::only(self.options.named(&self.what)?));
        }
        if path.is_dir() {
            return self.recorded(progress);
        }
        let from_stdin = self.what == "-";
        if !from_stdin && let Some(plan) = self.json_plan(path)? {
            return Ok(Found::only(self.adjusted(plan)));
        }
        let bytes = if from_stdin {
            let mut bytes = Vec::new();
            let mut input = std::io::stdin().lock().take(MAX_PLAN_BYTES + 1);
            input.read_to_end(&mut bytes).context("cannot read standard input")?;
            bytes
        } else {
            let (mut file, length) = files::open(path)?;
            let (head, _) = files::head(&mut file, recorded::JSON_HEAD as u64)
                .with_context(|| format!("cannot read {}", self.what))?;
            // A large profile is read as it comes. A plan of ours, which may hold the same words, was taken before.
            let is_streamed = length >= STREAMED_BYTES && recorded::is_recorded_json(&head);
            if is_streamed || recorded::is_recording(path, &head) {
                return self.recorded(progress);
            }
            if length > MAX_PLAN_BYTES {
                bail!(self.too_large());
            }
            files::read(path, MAX_PLAN_BYTES)?
        };
        if bytes.len() as u64 > MAX_PLAN_BYTES {
            bail!(self.too_large());
        }
        if bytes.trim_ascii().is_empty() {
            let named = if from_stdin { "standard input" } else { &self.what };
            bail!(
                "{named} is empty: it was not written to its end, or not copied; write or copy it again"
            );
        }
        if !from_stdin && recorded::is_recording(path, &bytes) {
            return self.recorded(progress);
        }
        if is_program(path, &bytes) {
            return self.program(&bytes, progress);
        }
        self.options.only_for_names(&self.what)?;
        if let Some(collective) = collective_of_msccl(&bytes) {
            bail!(
                "{0} is an MSCCL program, which says how a collective is carried out: give it as \
                 {collective} --schedule {0}, or check it with lockstep schedule check {0}",
                self.what
            );
        }
        let plan = match self.read(&bytes) {
            Ok(plan) => plan,
            // JSON may be a dump or a profile as well; what it lacks to be a plan is the better word if not.
            Err(error) => match self.recorded(progress) {
                Ok(recorded) if self.what != "-" => return Ok(recorded),
                Err(as_recording) if self.what != "-" && recorded::is_recorded_json(&bytes) => {
                    return Err(as_recording);
                }
                // Text that is not JSON is rather a log than a damaged plan.
                Err(as_log)
                    if self.what != "-" && is_prose(&bytes) && !goal::looks_like_goal(&bytes) =>
                {
                    return Err(as_log);
                }
                _ => return Err(error.context(format!("cannot use {}", self.what))),
            },
        };
        Ok(Found::only(self.adjusted(plan)))
    }

    /// The trace that is named, or that was recorded of the job whose recording is; `None` if it is something else,
    /// or if the repaired plan of a recording is asked for.
    ///
    /// # Errors
    /// When it is a recording that cannot be read.
    pub(crate) fn recorded_trace(&self, progress: &Progress) -> Result<Option<Trace>> {
        match kind_of(Path::new(&self.what))? {
            _ if self.options.repaired => Ok(None),
            PathKind::Recording => recorded::trace_of(&self.paths(), progress).map(Some),
            _ if !self.more.is_empty() => recorded::trace_of(&self.paths(), progress).map(Some),
            // JSON of another kind is refused as a plan.
            PathKind::SomeJson => Ok(recorded::trace_of(&self.paths(), progress).ok()),
            PathKind::Other => Ok(None),
        }
    }

    fn too_large(&self) -> String {
        format!(
            "cannot read {}: it is no recording, and too large for a plan (at most {} MiB)",
            self.what,
            MAX_PLAN_BYTES >> 20
        )
    }

    /// The plan of a file of our JSON, which is never in memory as text; `None` for a file of another kind.
    fn json_plan(&self, path: &Path) -> Result<Option<Plan>> {
        let cannot = || format!("cannot read {}", self.what);
        let (mut file, length) = files::open(path)?;
        let (head, start) = files::head(&mut file, HEAD_BYTES).with_context(cannot)?;
        if length > MAX_PLAN_BYTES || !claims_to_be_a_plan(&head) {
            return Ok(None);
        }
        self.options.only_for_names(&self.what)?;
        file.seek(SeekFrom::Start(start)).with_context(cannot)?;
        let plan = Plan::from_json_stream(BufReader::new(file));
        Ok(Some(plan.with_context(|| format!("cannot use {}", self.what))?))
    }

    /// The plan with the nodes and the timeout that the options ask for.
    fn adjusted(&self, plan: Plan) -> Plan {
        let plan = self.options.on_nodes(plan);
        match self.options.timeout_ms {
            Some(timeout_ms) => with_timeout(plan, timeout_ms),
            None => plan,
        }
    }

    /// The plan of a recorded job; its assumptions go to standard error.
    fn recorded(&self, progress: &Progress) -> Result<Found> {
        let options = PlanOptions { repaired: false, ..self.options.clone() };
        options.only_for_names(&self.what)?;
        let replayable = Replayable::read(&self.paths(), progress)?;
        for assumption in &replayable.recovered.assumed {
            terminal::note(&format!("lockstep: assumed: {assumption}"));
        }
        if self.options.repaired {
            let Repair { tried, plan, .. } = replayable.repair(progress)?;
            terminal::note(&format!("lockstep: repaired: {}", tried.change.words()));
            if !tried.verified {
                terminal::note(&format!("lockstep: this repair is unproved: {}", tried.why));
            }
            let (_, _, trace) = replayable.into_replay();
            let origin = trace.map(|trace| trace.header.origin);
            return Ok(Found { origin, ..Found::only(self.adjusted(plan)) });
        }
        let (plan, replay, trace) = replayable.into_replay();
        let origin = trace.as_ref().map(|trace| trace.header.origin.clone());
        Ok(Found { replay, trace, origin, ..Found::only(self.adjusted(plan)) })
    }

    /// The plan of a program, and the output of its ranks.
    fn program(&self, bytes: &[u8], progress: &Progress) -> Result<Found> {
        let text = std::str::from_utf8(bytes)
            .with_context(|| format!("{} is no text in UTF-8", self.what))?;
        self.options.only_for_a_program(&self.what)?;
        let options = lockstep_scenarios::program::Options {
            world_size: self.options.world_size,
            ranks_per_node: self.options.ranks_per_node,
            timeout_ms: self.options.timeout_ms,
            arguments: self.arguments.clone(),
            steps: self.options.steps,
            files: self.beside(text),
            ..lockstep_scenarios::program::Options::default()
        };
        let name = match Path::new(&self.what).file_name() {
            Some(name) if self.what != "-" => name.to_string_lossy().into_owned(),
            _ => "program.py".to_owned(),
        };
        let _stage = progress.stage("executing the program");
        let compiled = program_child::plan_of(&name, text, &options)?;
        let Compiled { plan, printed, raised, assumed, .. } = compiled;
        let said = Said { name, printed, raised, assumed, all: self.options.all_output };
        Ok(Found { said, ..Found::only(plan) })
    }

    /// The files beside a program that it imports. A program from standard input has none beside it.
    fn beside(&self, text: &str) -> Vec<(String, String)> {
        const MAX_BYTES: u64 = 1 << 20;
        let folder = match Path::new(&self.what).parent() {
            Some(folder) if self.what != "-" => folder,
            _ => return Vec::new(),
        };
        lockstep_program::siblings(text, &mut |path| {
            // One that cannot be read is as one that is not there: its import says so.
            let bytes = files::read(&folder.join(path), MAX_BYTES).ok()?;
            String::from_utf8(bytes).ok()
        })
    }

    /// A plan of ours, or a GOAL file as a plan.
    fn read(&self, bytes: &[u8]) -> Result<Plan> {
        if !goal::looks_like_goal(bytes) {
            return Ok(Plan::read(bytes)?);
        }
        let text = std::str::from_utf8(bytes).context("a GOAL file is text")?;
        let goal = goal::read(&self.what, text)?;
        if goal.held_back > 0 {
            terminal::note(&format!(
                "lockstep: {}: {} operations start later than GOAL lets them, because a rank's \
                 program does one thing after the other",
                self.what, goal.held_back
            ));
        }
        Ok(goal.plan)
    }
}

/// The kind of a file or folder, by its name and its first bytes.
enum PathKind {
    /// A folder, an archive, a trace, a dump, an execution trace.
    Recording,
    /// JSON that does not say that it is a plan: a profile or a dump, or a plan after all.
    SomeJson,
    /// A plan, a program, or nothing.
    Other,
}

fn kind_of(path: &Path) -> Result<PathKind> {
    if !path.exists() {
        return Ok(PathKind::Other);
    }
    if path.is_dir() {
        return Ok(PathKind::Recording);
    }
    let (mut file, _) = files::open(path)?;
    let (head, _) = files::head(&mut file, HEAD_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if recorded::is_recording(path, &head) {
        return Ok(PathKind::Recording);
    }
    let is_json = head.trim_ascii_start().first() == Some(&b'{');
    match is_json && !claims_to_be_a_plan(&head) && !is_program(path, &head) {
        true => Ok(PathKind::SomeJson),
        false => Ok(PathKind::Other),
    }
}

/// True if a file begins like a JSON plan that a tool wrote: an object with the schema in front. A plan with
/// the schema elsewhere is recognized only when it is read whole.
fn claims_to_be_a_plan(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&head[..head.len().min(200)]);
    let without_spaces: String = text.split_ascii_whitespace().collect();
    without_spaces.starts_with("{\"schema\":\"lockstep.plan/")
}

/// True if a file is a program: by its name, or, on standard input, by lines that only a program has.
fn is_program(path: &Path, bytes: &[u8]) -> bool {
    let named = path.extension().is_some_and(|extension| {
        ["py", "star", "bzl"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    named
        || std::str::from_utf8(bytes).is_ok_and(|text| {
            text.lines().any(|line| line.trim_start().starts_with("run("))
                && text.lines().any(|line| line.starts_with("def "))
        })
}

/// True of text that is no JSON.
fn is_prose(bytes: &[u8]) -> bool {
    let first = bytes.trim_ascii_start().first();
    std::str::from_utf8(bytes).is_ok() && !matches!(first, None | Some(b'{' | b'['))
}

/// The call that an MSCCL program carries out, if the bytes look like one; `all_reduce` for one that cannot
/// be read.
fn collective_of_msccl(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes.trim_ascii_start();
    if !start.starts_with(b"<") {
        return None;
    }
    let table = std::str::from_utf8(bytes).ok().and_then(|text| msccl::read(text).ok());
    Some(table.map_or("all_reduce", |table| table.collective().name()))
}

/// The plan with another timeout for every group.
pub(crate) fn with_timeout(mut plan: Plan, timeout_ms: u64) -> Plan {
    for group in &mut plan.groups {
        *group = group.clone().with_timeout_ms(timeout_ms);
    }
    plan
}
