//! `lockstep ddp`: what DistributedDataParallel does with a model.

mod answer;
mod arguments;
mod hooks;
mod text;

pub(crate) use arguments::Arguments;

use crate::output_file::{FileKind, write_plan};
use crate::{files, terminal};
use answer::{Answer, MissingParts, RaisedInStep, Simulated};
use anyhow::{Context, Result, bail};
use arguments::Uneven;
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use lockstep_core::words::nearest;
use lockstep_sim::training::{messages, simulate_training};
use lockstep_sim::{Link, SimConfig, Topology};
use lockstep_torch::ddp::join::{JoinedRank, run_join_of};
use lockstep_torch::ddp::lab::{Best, LabRun, Setting, SweepError, SweepPoint, sweep_caps};
use lockstep_torch::ddp::model::{Model, known_models, mlp_sizes, named};
use lockstep_torch::ddp::plan::{Training, training_run_as_far};
use lockstep_torch::ddp::replicas::Replicas;
use lockstep_torch::ddp::{
    AfterSteps, DdpError, DdpOptions, DdpReport, DdpVersion, Links, NamingArgument, RecordedRun,
    TrainingRun, known_trouble, parse_indices, verify_device_ids, verify_sync_batch_norm,
    verify_types, verify_zero_overlap,
};
use std::path::Path;
use std::process::ExitCode;

/// Model files and recorded runs past this are refused.
const MAX_MODEL_BYTES: u64 = 64 << 20;

/// Optimizer steps past this are not listed.
const MAX_STEPS: u32 = 10_000;

/// More messages than this are minutes of simulation.
const MAX_MESSAGES: u64 = 10_000_000_000;

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode> {
    let recorded = arguments.verify_against.as_deref().map(recorded_run).transpose()?;
    let there = recorded.as_ref().and_then(RecordedRun::world_size);
    arguments.world_size = arguments.world_size.or(there).or(arguments.joining());
    let job = Job::of(&arguments, recorded.as_ref())?;
    let mut report = match (job.report(&arguments), &recorded) {
        (Err(error), Some(recorded)) if recorded.error().is_some() => {
            return compare_refusals(recorded, &error, arguments.json);
        }
        (Err(error), _) => {
            if arguments.json {
                let error = format!("{}: {error}", error.class());
                let shown = serde_json::json!({ "schema": "lockstep.ddp/1", "error": error });
                terminal::text(&format!("{shown}\n"))?;
            }
            return Err(raised(error));
        }
        (Ok(report), _) => report,
    };
    let join = arguments.uneven()?.map(|uneven| job.joined(uneven)).transpose()?;
    if let Some(rank0) = join.as_ref().and_then(|ranks| ranks.first()) {
        report.in_join(rank0);
    }
    let replicas = job.replicas(&arguments)?;
    let after_steps = job.after_steps()?;
    let mut missing = MissingParts::of(&report);
    let run = job.planned(&arguments, &mut missing)?;
    let planned_error = run.as_ref().filter(|_| arguments.plan.is_some());
    let planned_error = planned_error.and_then(RaisedInStep::of);
    let simulated = run.as_ref().filter(|_| arguments.simulate);
    let simulated = simulated.map(|run| arguments.simulated(run)).transpose()?;
    let setting = Setting { training: job.training, links: Links::Uniform(arguments.link()) };
    let sweep = arguments.sweep.as_deref();
    let sweep = sweep.map(|caps| swept(caps, &job.model, &setting, &mut missing)).transpose()?;
    let (sweep, best) = sweep.flatten().unzip();
    let log = arguments.log.then(|| {
        let run = LabRun::of_passes(&job.model, &setting, job.iterations.max(1));
        anyhow::Ok(missing.unless(run, "log")?.map(|run| run.log(0, job.iterations)))
    });
    let mut notes = notes(&job.model, &setting, &report, job.steps);
    notes.extend(recorded.as_ref().and_then(|recorded| recorded.ending(&report)));
    let answer = Answer {
        schema: "lockstep.ddp/1",
        differences: recorded.as_ref().map(|recorded| recorded.differences(&report)),
        not_compared: recorded.as_ref().map(|recorded| recorded.not_compared(&report)),
        report,
        sweep,
        best: best.flatten(),
        after_steps,
        join,
        simulated,
        replicas,
        log: log.transpose()?.flatten(),
        missing: missing.parts,
        notes,
        planned_error,
    };
    let text = match arguments.json {
        true => serde_json::to_string(&answer)? + "\n",
        false => text::as_text(&job.model, &job.options, &answer),
    };
    terminal::text(&text)?;
    Ok(ExitCode::from(u8::from(answer.has_failed())))
}

/// The error of a refusal of DDP's.
fn raised(error: DdpError) -> anyhow::Error {
    anyhow::anyhow!("DDP raises {}: {error}", error.class())
}

/// The job that was asked for: a model, DDP's arguments and the training around them.
struct Job {
    model: Model,
    options: DdpOptions,
    training: Training,
    world_size: u32,
    /// The passes that are followed, and how many of them accumulate.
    iterations: u32,
    accumulate: u32,
    /// The optimizer's steps.
    steps: u32,
}

impl Job {
    fn of(arguments: &Arguments, recorded: Option<&RecordedRun>) -> Result<Job> {
        let mut model = model(&arguments.model)?;
        if let Some(order) = &arguments.grad_ready_order {
            let order = parse_indices(order).context("--grad-ready-order")?;
            model = model.in_order(&order).context("--grad-ready-order")?;
        }
        let mut options = arguments.options()?;
        options.debug |= recorded.is_some_and(RecordedRun::debug);
        check_names(&model, &options)?;
        if !arguments.unused().is_empty() {
            model = model.without(&model.find(arguments.unused()).context("--unused")?);
        }
        let world_size = arguments.ranks();
        arguments.check_cluster()?;
        if world_size == 0 {
            bail!("--world-size is 0; a job needs at least one rank");
        }
        let (iterations, accumulate) = match recorded {
            Some(recorded) => (recorded.iterations(), recorded.accumulate()),
            None => arguments.passes(),
        };
        if let Some(path) = &arguments.plan {
            arguments.overwrite.check(path, FileKind::Plan, &[])?;
        }
        let training = arguments.training(options.clone(), recorded)?;
        let steps = iterations.max(training.steps) / training.accumulate.max(1);
        Ok(Job { model, options, training, world_size, iterations, accumulate, steps })
    }

    /// DDP's passes, or its refusal.
    fn report(&self, arguments: &Arguments) -> Result<DdpReport, DdpError> {
        let (model, options, on) = (&self.model, &self.options, self.training.backend);
        if let Some(devices) = arguments.devices() {
            verify_device_ids(options, on, devices)?;
        }
        verify_zero_overlap(options, on)?;
        verify_types(model, options, on)?;
        let (iterations, accumulate) = (self.iterations, self.accumulate);
        let report =
            DdpReport::accumulating(model, options, self.world_size, on, iterations, accumulate)?;
        self.training.check_zero(model)?;
        if self.training.sync_batch_norm {
            verify_sync_batch_norm(model, on)?;
        }
        Ok(report)
    }

    /// The ranks of a job with uneven inputs, inside `join()`.
    fn joined(&self, uneven: Uneven) -> Result<Vec<JoinedRank>> {
        let Uneven { inputs, join, joinables } = uneven;
        self.training.check_join().context("--join")?;
        let model = self.model.with_equal_passes().context(
            "--join follows passes that are all alike, but the model's \"unused\" lists different \
             parameters for different passes",
        )?;
        let (options, on) = (&self.options, self.training.backend);
        run_join_of(&joinables, &model, options, &inputs, join, self.accumulate, on).map_err(raised)
    }

    /// The copies of a process with several devices, which PyTorch 1.x made.
    fn replicas(&self, arguments: &Arguments) -> Result<Option<Replicas>> {
        let devices = arguments.devices().filter(|_| self.options.version == DdpVersion::V1);
        let of = |devices| Replicas::of(&self.model, &self.options, self.world_size, devices);
        devices.map(of).transpose().map_err(raised)
    }

    fn after_steps(&self) -> Result<Option<AfterSteps>> {
        AfterSteps::of(&self.model, &self.training, self.steps.min(MAX_STEPS)).map_err(raised)
    }

    /// The plan of the job, where one is asked for or simulated; written to `--plan`.
    fn planned(
        &self,
        arguments: &Arguments,
        missing: &mut MissingParts,
    ) -> Result<Option<TrainingRun>> {
        if arguments.plan.is_none() && !arguments.simulate {
            return Ok(None);
        }
        let run = training_run_as_far(&self.model, &self.training);
        let run = missing.unless(run, "plan and no simulation")?;
        match (&arguments.plan, &run) {
            (Some(path), Some(run)) => write_plan(path, &run.plan_with_end())?,
            (Some(path), None) if path.exists() => {
                terminal::note(&format!("lockstep: {} stays as it was", path.display()));
            }
            _ => {}
        }
        Ok(run)
    }
}

/// The remarks that a reader of the report needs.
fn notes(model: &Model, setting: &Setting, report: &DdpReport, steps: u32) -> Vec<String> {
    let options = &setting.training.options;
    let buckets = report.rebuilt.as_ref().map_or(0, Vec::len).max(report.initial.len());
    let mut notes = known_trouble(options, setting.training.backend, buckets);
    if let Some(begins) = setting.hook_begins().filter(|begins| *begins >= u64::from(steps)) {
        notes.push(format!(
            "The hook begins in iteration {} (its state's start): the {steps} here come before, and \
             reduce whole buckets among all ranks.",
            begins + 1
        ));
    }
    let left = model.trained().filter(|param| options.leaves_out(&param.name));
    for param in left.filter(|param| options.reduces(model, &param.name)) {
        notes.push(format!(
            "{} is named to be left alone, and no state that is broadcast, but the reducer has it: \
             PyTorch looks for a parameter of the model itself under its name behind a dot, and for \
             one that modules share under each of its names.",
            param.name
        ));
    }
    if model.grad_ready_order().is_empty() {
        notes.push(
            "No parameter gets a gradient: unless the inputs require grad, loss.backward() raises \
             RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn."
                .into(),
        );
    }
    notes
}

/// The comparison of DDP's refusals here and there; the exit code is 1 where it differs.
fn compare_refusals(recorded: &RecordedRun, error: &DdpError, as_json: bool) -> Result<ExitCode> {
    let here = format!("{}: {error}", error.class());
    let difference = recorded.error_difference(Some(&here));
    let text = match &difference {
        _ if as_json => {
            let differences: Vec<&String> = difference.iter().collect();
            let shown = serde_json::json!({
                "schema": "lockstep.ddp/1", "error": here, "differences": differences,
            });
            format!("{shown}\n")
        }
        None => format!("DDP raises {here}\n\nno difference from the recorded run\n"),
        Some(line) => {
            format!("DDP raises {here}\n\n1 difference from the recorded run\n  {line}\n")
        }
    };
    terminal::text(&text)?;
    Ok(ExitCode::from(u8::from(difference.is_some())))
}

fn model(name: &str) -> Result<Model> {
    let path = Path::new(name);
    if !path.exists()
        && let Some(model) = named(name)
    {
        return Ok(model);
    }
    if !path.exists() {
        if let Some(sizes) = name.strip_prefix("mlp:") {
            mlp_sizes(sizes)?;
        }
        let known = known_models();
        let meant = match nearest(name, known.iter().copied(), 1).first() {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        let known = known.join(", ");
        bail!("{name:?} is neither a file nor a model that ships ({known}, mlp:SIZES){meant}");
    }
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    Model::read(&stem, &read_text(path)?).with_context(|| format!("cannot use {name}"))
}

fn recorded_run(path: &Path) -> Result<RecordedRun> {
    let text = read_text(path)?;
    RecordedRun::read(&text).with_context(|| format!("cannot use {}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = files::read(path, MAX_MODEL_BYTES)?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
}

impl Arguments {
    fn simulation(&self, plan: &Plan) -> Result<SimConfig> {
        if let Some(config) = self.cluster().config(plan)? {
            return Ok(config);
        }
        let link = self.link();
        let link = Link { latency_ps: link.latency_ps, bytes_per_second: link.bytes_per_second };
        Ok(SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() })
    }

    /// All ranks of a run, message by message.
    fn simulated(&self, run: &TrainingRun) -> Result<Simulated> {
        let (messages, world_size) = (messages(&run.plan), run.plan.world_size);
        let config = self.simulation(&run.plan)?;
        if messages > MAX_MESSAGES && config.call_times.is_none() {
            bail!(
                "--simulate would send {} million messages between {world_size} ranks, and takes {} \
                 million at most: take fewer --steps or ranks, or a --cluster, whose calls are timed as a whole; --sweep and --log use the closed form, \
                 which takes any world size",
                messages / 1_000_000,
                MAX_MESSAGES / 1_000_000
            );
        }
        let (steps, outcome) = simulate_training(run, &config)?;
        let ended = outcome.filter(|outcome| *outcome != Outcome::Completed);
        Ok(Simulated { world_size, steps, raised: RaisedInStep::of(run), ended })
    }
}

/// Every parameter and buffer that is named is one of the model's; what is wrong is told by its flag.
fn check_names(model: &Model, options: &DdpOptions) -> Result<()> {
    options.check_names(model).map_err(|unknown| {
        let flag = match unknown.argument {
            NamingArgument::Ignored => "--ignore",
            NamingArgument::Delayed => "--delay-all-reduce-named-params",
            NamingArgument::Hooked => "--param-to-hook-all-reduce",
        };
        anyhow::anyhow!(unknown.told(flag))
    })
}

/// The step times with each cap, and the best one.
type Sweep = (Vec<SweepPoint>, Option<Best>);

/// A sweep over caps, by the closed form of equal ranks on equal links.
fn swept(
    caps: &[String],
    model: &Model,
    setting: &Setting,
    missing: &mut MissingParts,
) -> Result<Option<Sweep>> {
    let caps = caps.iter().map(|cap| match cap.as_str() {
        "default" => Ok(None),
        cap => cap.parse().map(Some).with_context(|| format!("--sweep {cap:?} is no number")),
    });
    let caps: Vec<Option<f64>> = caps.collect::<Result<_>>()?;
    match sweep_caps(model, setting, &caps) {
        Err(SweepError::Training(error)) => missing.unless(Err(error), "sweep"),
        Err(SweepError::Raises(error)) => {
            missing.raised("sweep", &error);
            Ok(None)
        }
        swept => Ok(Some(swept?)),
    }
}
