//! `lockstep ddp`: what DistributedDataParallel does with a model.

mod arguments;
mod hooks;
mod text;

pub(crate) use arguments::Arguments;

use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use arguments::Uneven;
use lockstep_core::ddp::join::{JoinedRank, run_join_of};
use lockstep_core::ddp::lab::{Best, DdpLog, LabRun, Setting, SweepPoint, sweep_caps};
use lockstep_core::ddp::model::{Model, known_models, named};
use lockstep_core::ddp::plan::training_run;
use lockstep_core::ddp::replicas::Replicas;
use lockstep_core::ddp::{AfterSteps, DdpReport, Links, RecordedRun, parse_indices};
use lockstep_core::plan::Plan;
use lockstep_core::scenario::nearest;
use lockstep_sim::training::{SimulatedStep, messages, simulate_training};
use lockstep_sim::{Link, SimConfig, Topology};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Model files and recorded runs past this are refused.
const MAX_MODEL_BYTES: u64 = 64 << 20;

/// Optimizer steps past this are not listed.
const MAX_STEPS: u32 = 10_000;

/// More messages than this are minutes of simulation.
const MAX_MESSAGES: u64 = 10_000_000_000;

/// What `--json` prints: the report, and what else was asked for.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a DdpReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<&'a [SweepPoint]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<&'a Best>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_steps: Option<&'a AfterSteps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<&'a [JoinedRank]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<&'a [SimulatedStep]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<&'a Replicas>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<&'a DdpLog>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut model = model(&arguments.model)?;
    if let Some(order) = &arguments.grad_ready_order {
        model.recorded_ready_order = Some(ready_order(order, &model)?);
    }
    let options = arguments.options()?;
    arguments.check_names(&model)?;
    if !arguments.unused().is_empty() {
        model = model.without(&model.find(arguments.unused()).context("--unused")?);
    }
    let world_size = arguments.world_size;
    if world_size == 0 {
        bail!("--world-size is 0; a job needs at least one rank");
    }
    let recorded = arguments.verify_against.as_deref().map(recorded_run).transpose()?;
    let (iterations, accumulate) = match &recorded {
        Some(recorded) => (recorded.iterations(), recorded.accumulate()),
        None => arguments.passes(),
    };
    let raised = |error: lockstep_core::ddp::DdpError| {
        anyhow::anyhow!("DDP raises {}: {error}", error.class())
    };
    let report = DdpReport::accumulating(&model, &options, world_size, iterations, accumulate)
        .map_err(raised)?;
    let joined = arguments.uneven()?.map(|uneven| {
        let Uneven { inputs, join, joinables } = uneven;
        run_join_of(&joinables, &model, &options, &inputs, join)
    });
    let joined = joined.transpose().map_err(raised)?;
    let replicas = arguments.devices().map(|n| Replicas::of(&model, &options, world_size, n));
    let replicas = replicas.transpose().map_err(raised)?;
    let training = arguments.training(options.clone())?;
    let steps = iterations.max(training.steps) / training.accumulate.max(1);
    let after_steps = AfterSteps::of(&model, &training, steps.min(MAX_STEPS)).map_err(raised)?;
    let mut simulated = None;
    if arguments.plan.is_some() || arguments.simulate {
        let run = training_run(&model, &training)?;
        if let Some(path) = &arguments.plan {
            write_plan(path, &run.plan)?;
        }
        if arguments.simulate {
            let messages = messages(&run.plan);
            if messages > MAX_MESSAGES {
                bail!(
                    "--simulate would send {} million messages between {} ranks, and takes \
                     {} million at most: take fewer --steps or ranks; --sweep and --log use the closed \
                     form, which takes any world size",
                    messages / 1_000_000,
                    run.plan.world_size,
                    MAX_MESSAGES / 1_000_000
                );
            }
            let (steps, _) = simulate_training(&run, &arguments.simulation())?;
            simulated = Some((run.plan.world_size, steps));
        }
    }
    let links = Links::Uniform(arguments.link());
    let setting = Setting { training, links };
    let sweep = arguments.sweep.as_ref();
    let sweep = sweep.map(|caps| swept(caps, &model, &setting)).transpose()?;
    let (sweep, best) = sweep.map_or((None, None), |(points, best)| (Some(points), best));
    let log = if arguments.log { Some(log(&model, &setting)?) } else { None };
    let differences = recorded.map(|recorded| recorded.differences(&report));
    let text = match arguments.json {
        true => {
            let shown = Shown {
                schema: "lockstep.ddp/1",
                report: &report,
                differences: differences.as_deref(),
                sweep: sweep.as_deref(),
                best: best.as_ref(),
                after_steps: after_steps.as_ref(),
                join: joined.as_deref(),
                simulated: simulated.as_ref().map(|(_, steps)| steps.as_slice()),
                replicas: replicas.as_ref(),
                log: log.as_ref(),
            };
            serde_json::to_string(&shown)? + "\n"
        }
        false => {
            let parts = [
                Some(text::as_text(&model, &report, differences.as_deref())),
                replicas.as_ref().map(text::as_replicas),
                joined.as_deref().map(text::as_join),
                simulated.as_ref().map(|(ranks, steps)| text::as_steps(*ranks, steps)),
                after_steps.as_ref().map(text::as_after_steps),
                sweep.as_deref().map(|points| text::as_sweep(points, best.as_ref())),
                log.map(|log| format!("\nDDP's log\n{log}\n")),
            ];
            parts.into_iter().flatten().collect()
        }
    };
    terminal::print(text.as_bytes())?;
    let differs = differences.is_some_and(|differences| !differences.is_empty());
    Ok(ExitCode::from(u8::from(differs || report.error.is_some())))
}

fn model(name: &str) -> Result<Model> {
    let path = Path::new(name);
    if !path.exists()
        && let Some(model) = named(name)
    {
        return Ok(model);
    }
    if !path.exists() {
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

/// A user's own order: every parameter that requires grad at most once.
fn ready_order(text: &str, model: &Model) -> Result<Vec<u32>> {
    let order = parse_indices(text).context("--grad-ready-order")?;
    let params = model.trained().count();
    let mut seen = vec![false; params];
    for &index in &order {
        match seen.get_mut(index as usize) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => bail!("--grad-ready-order has {index} twice"),
            None => bail!("--grad-ready-order has {index}, but {params} parameters require grad"),
        }
    }
    Ok(order)
}

/// DDP's log after the last pass that is like all others.
fn log(model: &Model, setting: &Setting) -> Result<DdpLog> {
    let run = LabRun::of(model, setting)?;
    Ok(run.log(0, run.passes()))
}

impl Arguments {
    fn simulation(&self) -> SimConfig {
        let link = self.link();
        let link = Link { latency_ps: link.latency_ps, bytes_per_second: link.bytes_per_second };
        SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() }
    }

    /// Every parameter and buffer that is named is one of the model's. DDP itself would pass over
    /// the others without a word.
    fn check_names(&self, model: &Model) -> Result<()> {
        let known = || {
            let params = model.params.iter().map(|param| param.name.as_str());
            params.chain(model.buffers.iter().map(|buffer| buffer.name.as_str()))
        };
        for (flag, name) in self.names() {
            if !known().any(|known| known == name) {
                let meant = match nearest(name, known(), 1).first() {
                    Some(near) => format!("; did you mean {near}?"),
                    None => String::new(),
                };
                bail!("{flag} has {name:?}, which is no parameter or buffer of the model{meant}");
            }
        }
        Ok(())
    }
}

/// What each cap costs, by the closed form of equal ranks on equal links, and which is best.
fn swept(
    caps: &[String],
    model: &Model,
    setting: &Setting,
) -> Result<(Vec<SweepPoint>, Option<Best>)> {
    let caps = caps.iter().map(|cap| match cap.as_str() {
        "default" => Ok(None),
        cap => cap.parse().map(Some).with_context(|| format!("--sweep {cap:?} is no number")),
    });
    let caps: Vec<Option<f64>> = caps.collect::<Result<_>>()?;
    Ok(sweep_caps(model, setting, &caps)?)
}

fn write_plan(path: &Path, plan: &Plan) -> Result<()> {
    let bytes = match path.extension().is_some_and(|end| end == "json") {
        true => plan.to_json().into_bytes(),
        false => plan.to_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
