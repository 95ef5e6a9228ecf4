//! `lockstep ddp`: what DistributedDataParallel does with a model.

mod answer;
mod arguments;
mod hooks;
mod text;

pub(crate) use arguments::Arguments;

use crate::output_file::{FileKind, write_plan};
use crate::{files, terminal};
use answer::{Missing, RaisedInStep, Shown, Simulated};
use anyhow::{Context, Result, bail};
use arguments::Uneven;
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use lockstep_core::words::nearest;
use lockstep_sim::training::{messages, simulate_training};
use lockstep_sim::{Link, SimConfig, Topology};
use lockstep_torch::ddp::join::run_join_of;
use lockstep_torch::ddp::lab::{Best, LabRun, Setting, SweepError, SweepPoint, sweep_caps};
use lockstep_torch::ddp::model::{Model, known_models, mlp_sizes, named};
use lockstep_torch::ddp::plan::training_run_as_far;
use lockstep_torch::ddp::replicas::Replicas;
use lockstep_torch::ddp::{
    AfterSteps, DdpOptions, DdpReport, DdpVersion, Links, NamingArgument, RecordedRun, TrainingRun,
    known_trouble, parse_indices, verify_device_ids, verify_sync_batch_norm, verify_types,
    verify_zero_overlap,
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
    let mut model = model(&arguments.model)?;
    if let Some(order) = &arguments.grad_ready_order {
        let order = parse_indices(order).context("--grad-ready-order")?;
        model = model.in_order(&order).context("--grad-ready-order")?;
    }
    let recorded = arguments.verify_against.as_deref().map(recorded_run).transpose()?;
    let there = recorded.as_ref().and_then(RecordedRun::world_size);
    arguments.world_size = arguments.world_size.or(there).or(arguments.joining());
    let mut options = arguments.options()?;
    options.debug |= recorded.as_ref().is_some_and(RecordedRun::debug);
    check_names(&model, &options)?;
    if !arguments.unused().is_empty() {
        model = model.without(&model.find(arguments.unused()).context("--unused")?);
    }
    let world_size = arguments.ranks();
    arguments.check_cluster()?;
    if world_size == 0 {
        bail!("--world-size is 0; a job needs at least one rank");
    }
    let (iterations, accumulate) = match &recorded {
        Some(recorded) => (recorded.iterations(), recorded.accumulate()),
        None => arguments.passes(),
    };
    let raised = |error: lockstep_torch::ddp::DdpError| {
        anyhow::anyhow!("DDP raises {}: {error}", error.class())
    };
    if let Some(path) = &arguments.plan {
        arguments.overwrite.check(path, FileKind::Plan, &[])?;
    }
    let training = arguments.training(options.clone(), recorded.as_ref())?;
    let refused = || -> Result<(), lockstep_torch::ddp::DdpError> {
        if let Some(devices) = arguments.devices() {
            verify_device_ids(&options, training.backend, devices)?;
        }
        verify_zero_overlap(&options, training.backend)?;
        verify_types(&model, &options, training.backend)
    };
    let ran = || {
        let on = training.backend;
        DdpReport::accumulating(&model, &options, world_size, on, iterations, accumulate)
    };
    let report = refused().and_then(|()| ran()).and_then(|report| {
        training.check_zero(&model)?;
        if training.sync_batch_norm {
            verify_sync_batch_norm(&model, training.backend)?;
        }
        Ok(report)
    });
    let mut report = match (report, &recorded) {
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
    let uneven = arguments.uneven()?;
    let joined = uneven.map(|uneven| {
        let Uneven { inputs, join, joinables } = uneven;
        training.check_join().context("--join")?;
        let model = model.with_equal_passes().context(
            "--join follows passes that are all alike, but the model's \"unused\" lists different \
             parameters for different passes",
        )?;
        let on = training.backend;
        run_join_of(&joinables, &model, &options, &inputs, join, accumulate, on).map_err(raised)
    });
    let joined = joined.transpose()?;
    if let Some(rank0) = joined.as_ref().and_then(|ranks| ranks.first()) {
        report.in_join(rank0);
    }
    let of_1x = options.version == DdpVersion::V1;
    let replicas = arguments.devices().filter(|_| of_1x);
    let replicas = replicas.map(|n| Replicas::of(&model, &options, world_size, n));
    let replicas = replicas.transpose().map_err(raised)?;
    let steps = iterations.max(training.steps) / training.accumulate.max(1);
    let after_steps = AfterSteps::of(&model, &training, steps.min(MAX_STEPS)).map_err(raised)?;
    let (in_a_step, mut missing) = (report.error.is_some(), Vec::new());
    let (mut simulated, mut planned_error) = (None, None);
    if arguments.plan.is_some() || arguments.simulate {
        let run = training_run_as_far(&model, &training);
        let run = Missing::unless(run, in_a_step, "plan and no simulation", &mut missing)?;
        if let (Some(path), None) = (&arguments.plan, &run)
            && path.exists()
        {
            terminal::note(&format!("lockstep: {} stays as it was", path.display()));
        }
        if let (Some(path), Some(run)) = (&arguments.plan, &run) {
            write_plan(path, &run.plan_with_end())?;
            planned_error = RaisedInStep::of(run);
        }
        if let (true, Some(run)) = (arguments.simulate, &run) {
            simulated = Some(arguments.simulated(run)?);
        }
    }
    let links = Links::Uniform(arguments.link());
    let setting = Setting { training, links };
    let sweep = arguments.sweep.as_ref();
    let sweep = match sweep.map(|caps| swept(caps, &model, &setting)).transpose()? {
        None => None,
        Some(Err(SweepError::Training(error))) => {
            Missing::unless(Err(error), in_a_step, "sweep", &mut missing)?
        }
        Some(Err(SweepError::Raises(error))) => {
            Missing::unless(Err(error.into()), true, "sweep", &mut missing)?
        }
        Some(swept) => Some(swept?),
    };
    let (sweep, best) = sweep.map_or((None, None), |(points, best)| (Some(points), best));
    let log = arguments.log.then(|| {
        let run = LabRun::of_passes(&model, &setting, iterations.max(1));
        let run = Missing::unless(run, in_a_step, "log", &mut missing)?;
        anyhow::Ok(run.map(|run| run.log(0, iterations)))
    });
    let log = log.transpose()?.flatten();
    let buckets = report.rebuilt.as_ref().map_or(0, Vec::len).max(report.initial.len());
    let mut notes = known_trouble(&options, setting.training.backend, buckets);
    if let Some(begins) = setting.hook_begins().filter(|begins| *begins >= u64::from(steps)) {
        notes.push(format!(
            "The hook begins in iteration {} (its state's start): the {steps} here come before, and \
             reduce whole buckets among all ranks.",
            begins + 1
        ));
    }
    let left = model.trained().filter(|param| options.leaves_out(&param.name));
    for param in left.filter(|param| options.reduces(&model, &param.name)) {
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
    notes.extend(recorded.as_ref().and_then(|recorded| recorded.ending(&report)));
    let not_compared = recorded.as_ref().map(|recorded| recorded.not_compared(&report));
    let differences = recorded.map(|recorded| recorded.differences(&report));
    let text = match arguments.json {
        true => {
            let shown = Shown {
                schema: "lockstep.ddp/1",
                report: &report,
                differences: differences.as_deref(),
                not_compared: not_compared.as_deref(),
                sweep: sweep.as_deref(),
                best: best.as_ref(),
                after_steps: after_steps.as_ref(),
                join: joined.as_deref(),
                simulated: simulated.as_ref().map(|run| run.steps.as_slice()),
                simulated_error: simulated.as_ref().and_then(|run| run.raised.as_ref()),
                simulated_outcome: simulated.as_ref().and_then(|run| run.ended.as_ref()),
                replicas: replicas.as_ref(),
                log: log.as_ref(),
                missing: &missing,
                notes: &notes,
            };
            serde_json::to_string(&shown)? + "\n"
        }
        false => {
            let parts = [
                Some(text::as_text(&model, &options, &report)),
                Some(text::as_notes(&notes)),
                differences.as_deref().map(|differences| {
                    text::as_differences(differences, &not_compared.unwrap_or_default())
                }),
                replicas.as_ref().map(text::as_replicas),
                joined.as_deref().map(text::as_join),
                planned_error.as_ref().map(text::as_planned),
                simulated.as_ref().map(text::as_steps),
                after_steps.as_ref().map(text::as_after_steps),
                sweep.as_deref().map(|points| text::as_sweep(points, best.as_ref())),
                log.map(|log| format!("\nDDP's log\n{log}\n")),
                Some(text::as_missing(&missing)),
            ];
            parts.into_iter().flatten().collect()
        }
    };
    terminal::text(&text)?;
    // What was raised there as well is as it should be.
    let cut_short = |run: Simulated| run.raised.is_some() || run.ended.is_some();
    let in_join = joined.iter().flatten().any(|rank| rank.error.is_some());
    let in_plan = in_join || planned_error.is_some();
    let raised = report.error.is_some() || in_plan || simulated.is_some_and(cut_short);
    let failed = differences.map_or(raised, |differences| !differences.is_empty());
    Ok(ExitCode::from(u8::from(failed)))
}

/// The comparison of DDP's refusals here and there; the exit code is 1 where it differs.
fn compare_refusals(
    recorded: &RecordedRun,
    error: &lockstep_torch::ddp::DdpError,
    as_json: bool,
) -> Result<ExitCode> {
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
fn swept(caps: &[String], model: &Model, setting: &Setting) -> Result<Result<Sweep, SweepError>> {
    let caps = caps.iter().map(|cap| match cap.as_str() {
        "default" => Ok(None),
        cap => cap.parse().map(Some).with_context(|| format!("--sweep {cap:?} is no number")),
    });
    let caps: Vec<Option<f64>> = caps.collect::<Result<_>>()?;
    Ok(sweep_caps(model, setting, &caps))
}
