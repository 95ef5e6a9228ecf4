//! `lockstep ddp`: what DistributedDataParallel does with a model.

mod arguments;
mod hooks;
mod text;

pub(crate) use arguments::Arguments;

use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use arguments::Uneven;
use lockstep_core::ddp::join::{JoinedRank, run_join_of};
use lockstep_core::ddp::lab::{DdpLog, LabRun, Setting};
use lockstep_core::ddp::model::{Model, known_models, named};
use lockstep_core::ddp::plan::{Training, training_run};
use lockstep_core::ddp::replicas::Replicas;
use lockstep_core::ddp::timeline::{SweepPoint, sweep_caps};
use lockstep_core::ddp::{DdpOptions, DdpReport, Links, RecordedRun, parse_indices};
use lockstep_core::plan::Plan;
use lockstep_sim::training::{SimulatedStep, simulate_training};
use lockstep_sim::{Link, SimConfig, Topology};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Model files and recorded runs past this are refused.
const MAX_MODEL_BYTES: u64 = 64 << 20;

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
    let mut simulated = None;
    if arguments.plan.is_some() || arguments.simulate {
        let run = training_run(&model, &training)?;
        if let Some(path) = &arguments.plan {
            write_plan(path, &run.plan)?;
        }
        if arguments.simulate {
            let (steps, _) = simulate_training(&run, &arguments.simulation())?;
            simulated = Some(steps);
        }
    }
    let log = if arguments.log { Some(log(&arguments, &model, training)?) } else { None };
    let sweep = arguments.sweep.as_ref();
    let sweep = sweep.map(|caps| arguments.swept(caps, &model, options)).transpose()?;
    let differences = recorded.map(|recorded| recorded.differences(&report));
    let text = match arguments.json {
        true => {
            let shown = Shown {
                schema: "lockstep.ddp/1",
                report: &report,
                differences: differences.as_deref(),
                sweep: sweep.as_deref(),
                join: joined.as_deref(),
                simulated: simulated.as_deref(),
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
                simulated.as_deref().map(|steps| text::as_steps(world_size, steps)),
                sweep.as_deref().map(text::as_sweep),
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
        let known = known_models().join(", ");
        bail!("{name:?} is neither a file nor a model that ships ({known}, mlp:SIZES)");
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
fn log(arguments: &Arguments, model: &Model, training: Training) -> Result<DdpLog> {
    let links = Links::Uniform(arguments.link());
    let setting = Setting { training, links };
    let run = LabRun::of(model, &setting)?;
    Ok(run.log(0, run.passes()))
}

impl Arguments {
    fn simulation(&self) -> SimConfig {
        let link = self.link();
        let link = Link { latency_ps: link.latency_ps, bytes_per_second: link.bytes_per_second };
        SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() }
    }

    /// What each cap costs, by the closed form of equal ranks on equal links.
    fn swept(
        &self,
        caps: &[String],
        model: &Model,
        options: DdpOptions,
    ) -> Result<Vec<SweepPoint>> {
        let caps = caps.iter().map(|cap| match cap.as_str() {
            "default" => Ok(None),
            cap => cap.parse().map(Some).with_context(|| format!("--sweep {cap:?} is no number")),
        });
        let caps: Vec<Option<f64>> = caps.collect::<Result<_>>()?;
        let training = self.training(options)?;
        // The third step is the first that is like all others.
        let training = Training { steps: training.steps.max(3), ..training };
        Ok(sweep_caps(model, &training, self.link(), &caps)?)
    }
}

fn write_plan(path: &Path, plan: &Plan) -> Result<()> {
    let bytes = match path.extension().is_some_and(|end| end == "json") {
        true => plan.to_json().into_bytes(),
        false => plan.to_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
