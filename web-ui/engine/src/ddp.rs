//! DDP: models, passes, what options change, sweeps.

use super::file;
use super::machine::{call_times, config};
use super::slices::Slices;
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use lockstep_sim::training::{messages, simulate_rank};
use lockstep_torch::ddp::lab::{Axis, Change, LabModel, LabRun, Setting, Summary, changes};
use lockstep_torch::ddp::model::{Model, mlp_sizes, named};
use lockstep_torch::ddp::plan::{Training, TrainingError, training_run_as_far};
use lockstep_web_protocol::{
    ChangeRow, DdpAccount, DdpQuestion, Machine, PlacedSetting, Response, Simulated,
};
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::File;

/// A model's file is refused past this many bytes, as on the command line.
const MAX_BYTES: f64 = (64u64 << 20) as f64;
/// More points than this are no sweep of a page.
const MAX_POINTS: usize = 256;
/// More messages than this take longer than a reader waits.
const MAX_MESSAGES: u64 = 2_000_000_000;

/// Reads a model from the first of `files`.
pub(super) async fn read(files: Vec<JsValue>) -> Result<Model, String> {
    let file = files.into_iter().find_map(|file| file.dyn_into::<File>().ok());
    let file = file.ok_or("There is no file in what you dropped.")?;
    let name = file.name();
    if file.size() > MAX_BYTES {
        return Err(format!(
            "{name} has {:.0} MiB; a model's file lists its parameters, not their values, and has \
             64 MiB at most. docs/ddp.md has the lines that write one.",
            file.size() / f64::from(1 << 20)
        ));
    }
    let bytes = file::read(&file).await?;
    let text = String::from_utf8(bytes).map_err(|_| {
        format!(
            "{name} is no text: a model is JSON or CSV; docs/ddp.md has the lines that write one"
        )
    })?;
    if text.trim().is_empty() {
        return Err(format!("{name} is empty; docs/ddp.md has the lines that write a model"));
    }
    let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
    Model::read(stem, &text).map_err(|error| format!("{name}: {error}"))
}

/// The model of that name.
pub(super) fn known(name: &str) -> Result<Rc<Model>, String> {
    named(name).map(Rc::new).ok_or_else(|| match name.strip_prefix("mlp:") {
        Some(sizes) => mlp_sizes(sizes).err().map(|error| error.to_string()).unwrap_or_default(),
        None => format!("“{name}” is no model that ships"),
    })
}

/// Answers a question about a model.
pub(super) async fn answer(
    model: &Model,
    question: DdpQuestion,
    slices: Slices,
) -> Result<Response, String> {
    match question {
        DdpQuestion::Pass { placed, pass, rank } => account(model, placed, pass, rank),
        DdpQuestion::Changes { a, b } => changed(model, &a, &b, slices).await,
        DdpQuestion::Sweep { placed, across, lines } => {
            sweep(model, &placed, &across, &lines, slices).await
        }
        DdpQuestion::Plan { setting } => Ok(Response::Plan(Box::new(plan(model, &setting)?))),
        DdpQuestion::Simulate { placed } => simulated(model, &placed),
    }
}

/// All of the lab's passes.
fn training(setting: &Setting) -> Training {
    let steps = setting.optimizer_steps().saturating_mul(setting.passes_a_step());
    let ranks_per_node = setting.links.ranks_per_node();
    Training { steps, ranks_per_node, ..setting.training.clone() }
}

/// All of the lab's passes as a plan, which ends where DDP raises.
fn plan(model: &Model, setting: &Setting) -> Result<Plan, String> {
    let run = training_run_as_far(model, &training(setting)).map_err(|error| raised(&error))?;
    Ok(run.plan_with_end())
}

/// Simulates all ranks. The simulator goes through in one piece: the bound keeps that to seconds.
fn simulated(model: &Model, placed: &PlacedSetting) -> Result<Response, String> {
    let PlacedSetting { setting, machine } = placed;
    let of = training_run_as_far(model, &training(setting)).map_err(|error| raised(&error))?;
    let messages = messages(&of.plan);
    if messages > MAX_MESSAGES && machine.cluster().is_none() {
        return Err(format!(
            "The collectives of {} ranks are some {} million messages; the page simulates {} million \
             at most. `lockstep ddp --plan` and `lockstep sim` go on.",
            of.plan.world_size,
            messages / 1_000_000,
            MAX_MESSAGES / 1_000_000
        ));
    }
    let (run, _) = run_on(model, setting, *machine)?;
    let config = config(&of.plan, *machine)?;
    let (passes, outcome) =
        simulate_rank(&of, run.principal(), &config).map_err(|e| e.to_string())?;
    match outcome {
        Some(Outcome::Completed) => {}
        Some(Outcome::TimedOut) if of.roles.iter().any(|role| role.raised.is_some()) => {
            return Err(
                "DDP raises on some ranks and not on others, which wait for them until their \
                        group's timeout: the simulation ends there."
                    .into(),
            );
        }
        Some(Outcome::TimedOut) => {
            return Err(
                "On these links a collective does not complete within its group's timeout: the \
                 simulation ends there."
                    .into(),
            );
        }
        Some(Outcome::Failed { why }) => return Err(format!("The simulation ends early: {why}.")),
        _ => return Err("The simulation does not come to its end.".into()),
    }
    let steady = run.steady();
    let end_ps = passes.last().map_or(0, |pass| pass.end_ps);
    let begins = |pass: u32| passes.get(pass as usize).map_or(end_ps, |pass| pass.forward_ps);
    let steps = (steady.end - steady.start).div_ceil(setting.passes_a_step()).max(1);
    let each = |ps: u64| ps / u64::from(steps);
    let step_ps = each(begins(steady.end).saturating_sub(begins(steady.start)));
    let closed_ps = each(run.steady_ps());
    Ok(Response::DdpSimulated(Simulated { step_ps, closed_ps, messages }))
}

/// The run of a setting on its machine, and what of its times no measurement backs.
fn run_on<'a>(
    model: &'a Model,
    setting: &'a Setting,
    machine: Machine,
) -> Result<(LabRun<'a>, Vec<String>), String> {
    let run = LabRun::of(model, setting).map_err(|error| raised(&error))?;
    Ok(match call_times(run.plan(), machine)? {
        Some((times, extrapolated)) => (run.with_call_times(times), extrapolated),
        None => (run, Vec::new()),
    })
}

fn raised(error: &TrainingError) -> String {
    match error {
        TrainingError::Ddp(_) => format!("DDP raises: {error}"),
        ours => ours.to_string(),
    }
}

fn account(
    model: &Model,
    placed: PlacedSetting,
    pass: Option<u32>,
    rank: u32,
) -> Result<Response, String> {
    let PlacedSetting { setting, machine } = placed;
    let (run, extrapolated) = run_on(model, &setting, machine)?;
    let rank = rank.min(setting.training.ranks().saturating_sub(1));
    let last = run.passes_of(rank).saturating_sub(1);
    let steady = run.steady();
    // Where DDP raises, how that comes about.
    let elsewhere = run.waits_for(rank).and_then(|of| Some((of, run.raised(of)?)));
    let in_the_end = run.raised(rank).or_else(|| {
        elsewhere.map(|(of, text)| format!("on rank {of}, and the others wait for it: {text}"))
    });
    let usual = if in_the_end.is_some() { last } else { steady.end.saturating_sub(1) };
    let number = pass.unwrap_or(usual).min(last);
    let shown = run.pass_of(rank, number).ok_or("there is no pass to show")?;
    let bytes = |buckets: &[lockstep_torch::ddp::Bucket]| {
        buckets.iter().map(|bucket| bucket.bytes).collect::<Vec<_>>()
    };
    let account = DdpAccount {
        model: LabModel::of(run.model()),
        initial: bytes(run.initial()),
        rebuilt: run.rebuilt().map(bytes),
        passes: run.kinds(rank).collect(),
        steady: (steady.start, steady.end),
        roles: run.roles(),
        role: run.role(rank),
        raised: in_the_end,
        cut_short: run.is_cut_short(),
        pass: shown,
        summary: run.summary(),
        log: run.log(rank, number + 1),
        setting: setting.clone(),
        machine,
        extrapolated,
    };
    Ok(Response::Ddp(Box::new(account)))
}

/// A pass of a model that ships, as the page shows it.
pub fn ddp_account(
    model: &str,
    placed: PlacedSetting,
    pass: Option<u32>,
    rank: u32,
) -> Result<DdpAccount, String> {
    match account(&*known(model)?, placed, pass, rank)? {
        Response::Ddp(account) => Ok(*account),
        _ => Err("a pass was asked for".to_owned()),
    }
}

fn summary(model: &Model, setting: &Setting, machine: Machine) -> Result<Summary, String> {
    Ok(run_on(model, setting, machine)?.0.summary())
}

/// The machine as an option by itself, where one of the two is a cluster.
fn machine_change(a: &PlacedSetting, b: &PlacedSetting) -> Option<Change> {
    let named = a.machine.cluster().is_some() || b.machine.cluster().is_some();
    (named && a.machine != b.machine).then(|| Change {
        option: "cluster",
        from: a.machine.to_string(),
        to: b.machine.to_string(),
        setting: Setting { links: b.setting.links, ..a.setting.clone() },
    })
}

async fn changed(
    model: &Model,
    a: &PlacedSetting,
    b: &PlacedSetting,
    slices: Slices,
) -> Result<Response, String> {
    let before = summary(model, &a.setting, a.machine)?;
    let gradient_bytes = LabModel::of(model).gradient_bytes();
    let mut rows = Vec::new();
    let mut changes = changes(&a.setting, &b.setting);
    if let Some(change) = machine_change(a, b) {
        // The links are those of the machine.
        changes.retain(|change| change.option != "links");
        changes.insert(0, change);
    }
    let total = changes.len() as u64;
    for change in changes {
        let machine = if change.option == "cluster" { b.machine } else { a.machine };
        let after = summary(model, &change.setting, machine);
        let why = after
            .as_ref()
            .map_or_else(Clone::clone, |after| change.why(&before, after, gradient_bytes));
        rows.push(ChangeRow {
            option: change.option.to_owned(),
            from: change.from,
            to: change.to,
            summary: after,
            why,
        });
        slices.give_way(rows.len() as u64, total, "options").await?;
    }
    Ok(Response::DdpChanges(rows))
}

async fn sweep(
    model: &Model,
    placed: &PlacedSetting,
    across: &Axis,
    lines: &Axis,
    slices: Slices,
) -> Result<Response, String> {
    let (columns, rows) = (across.len(), lines.len().max(1));
    let points = columns.saturating_mul(rows);
    if points > MAX_POINTS {
        return Err(format!("{points} points are more than the {MAX_POINTS} of a sweep"));
    }
    let mut swept = Vec::new();
    for row in 0..rows {
        let of = lines.apply(&placed.setting, row);
        let mut line = Vec::new();
        for column in 0..columns {
            line.push(summary(model, &across.apply(&of, column), placed.machine)?);
            let done = row * columns + column + 1;
            slices.give_way(done as u64, points as u64, "points").await?;
        }
        swept.push(line);
    }
    Ok(Response::DdpSwept(swept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_torch::ddp::DdpOptions;
    use lockstep_torch::ddp::model::Device;
    use lockstep_torch::ddp::{Links, RingLink};
    use lockstep_web_protocol::ClusterName;

    fn placed(world: u32, cluster: Option<&str>) -> PlacedSetting {
        let device = Device::named("H100").unwrap();
        let options = DdpOptions::default();
        let training = Training { options, batch: 32, ..Training::new(world, device) };
        let link = RingLink { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };
        let setting = Setting { training, links: Links::Uniform(link) };
        let machine = cluster.map_or_else(Machine::default, |name| {
            Machine::on_cluster(ClusterName::from(name).unwrap(), 8)
        });
        PlacedSetting { setting, machine }
    }

    /// The lab's closed form on a cluster is what the simulator says of the same run there.
    #[test]
    fn the_closed_form_on_a_cluster_is_the_simulators() {
        for (model, world, cluster) in
            [("resnet18", 16, "h100x8"), ("gpt2-small", 8, "dgx-a100"), ("resnet18", 64, "p4d")]
        {
            let model = known(model).unwrap();
            let Response::DdpSimulated(said) =
                simulated(&model, &placed(world, Some(cluster))).unwrap()
            else {
                panic!("a step was asked for")
            };
            assert_eq!(said.step_ps, said.closed_ps, "{world} ranks on {cluster}");
        }
    }

    /// A cluster is an option of its own, in place of the links.
    #[test]
    fn another_cluster_is_a_change() {
        let (a, b) = (placed(16, None), placed(16, Some("h100x8")));
        let change = machine_change(&a, &b).unwrap();
        assert_eq!(
            (change.option, change.to.as_str()),
            ("cluster", "h100x8, 8 ranks on each node")
        );
        assert_eq!(machine_change(&b, &b), None);
        assert_eq!(machine_change(&a, &a), None);
        let model = known("resnet18").unwrap();
        let on = |placed: &PlacedSetting| summary(&model, &placed.setting, placed.machine).unwrap();
        let (links, cluster) = (on(&a), on(&b));
        assert!(cluster.communication_ps < links.communication_ps);
        // A reduction of no bytes still takes a call's latency.
        assert!(cluster.latency_ps > 0 && cluster.latency_ps < cluster.communication_ps);
    }
}
