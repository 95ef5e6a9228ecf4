//! `lockstep whatif`: simulates a job as it is and with a change.

use super::analyze::tell_of_cut;
use super::describe_ps;
use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::{ClusterOptions, PlanArguments, PlanOptions, Replayable};
use crate::progress::Progress;
use crate::recording::Held;
use crate::topology_file::TopologyFile;
use crate::{terminal, trace_file};
use anyhow::{Context, Result, bail};
use lockstep_analysis::{Activity, Analysis, Cause, Share, StepOps, Stretch, knows_ends};
use lockstep_clusters::quantity::parse_us;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::Algorithm;
use lockstep_replay::{
    Compared, Elsewhere, Fitted, Side, Variation, VariationError, fit_links_watched,
    recorded_steps, what_if, with_measured_computations,
};
use lockstep_sim::{SimError, Topology};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say what a job would take if something were otherwise: simulated before and after the change
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A recording, a trace, a plan, a program, a scenario or a call, as for `lockstep sim`
    #[arg(value_name = "RECORDING|PLAN|…")]
    what: String,
    /// More files of the same recording
    #[arg(value_name = "PATH")]
    more: Vec<PathBuf>,
    /// Ranks of a program or a call
    #[arg(long, value_name = "N")]
    world_size: Option<u32>,
    /// Ranks a node, so that links inside nodes and between them differ
    #[arg(long, value_name = "N")]
    ranks_per_node: Option<u32>,
    /// Elements a rank, of a call
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    elsewhere: ClusterOptions,
    /// The links on which the job was recorded or is simulated [default: fitted from the recording]
    #[arg(long, value_name = "FILE")]
    measured_topology: Option<PathBuf>,
    /// Write the trace of the changed job to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON: the schema lockstep.whatif/1
    #[arg(long)]
    json: bool,
}

/// The changes to the job, made in this order.
#[derive(Clone, Debug, clap::Args)]
struct Changes {
    /// A rank computes as fast as the others do between the same calls
    #[arg(long, value_name = "RANK")]
    without_straggler: Vec<u32>,
    /// Computations of a rank take so many times as long: rank=3,compute=0.5; without rank, of all
    #[arg(long, value_name = "rank=R,compute=F")]
    scale: Vec<String>,
    /// Another rate or latency of links between nodes (inter) or inside them (intra): inter=400Gbps,latency=5us
    #[arg(long, value_name = "inter=RATE[,latency=TIME]")]
    link: Vec<String>,
    /// Other links altogether: a file that `lockstep calibrate` writes
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Another algorithm, for all collectives that it can carry out: tree
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// DDP's buckets cut at so many MiB
    #[arg(long, value_name = "MIB")]
    bucket_cap_mb: Option<f64>,
    /// One change with several values, each simulated: bucket-cap-mb=5,25,50, inter=100Gbps,400Gbps, latency=2us,10us,
    /// compute=0.5,1,2 or algorithm=ring,tree
    #[arg(long, value_name = "KEY=VALUE,…", conflicts_with_all = ["output"])]
    sweep: Option<Sweep>,
}

/// Values of one change.
#[derive(Clone, Debug)]
struct Sweep {
    key: String,
    values: Vec<String>,
}

impl std::str::FromStr for Sweep {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Sweep> {
        let (key, values) =
            text.split_once('=').context("say for example bucket-cap-mb=5,25,50")?;
        let sweep =
            Sweep { key: key.to_owned(), values: values.split(',').map(str::to_owned).collect() };
        // All values are looked at before any is simulated.
        sweep.values.iter().try_for_each(|value| sweep.variation(value).map(drop))?;
        Ok(sweep)
    }
}

impl Sweep {
    /// The change to one value.
    fn variation(&self, value: &str) -> Result<Variation> {
        match self.key.as_str() {
            "bucket-cap-mb" => {
                let mib = value.parse::<f64>();
                buckets_of(mib.with_context(|| format!("{value:?} is no number of MiB"))?)
            }
            "inter" | "intra" | "latency" => link_of(&format!("{}={value}", self.key)),
            "compute" => scale_of(&format!("compute={value}")),
            "algorithm" => algorithm_of(value),
            key => bail!(
                "--sweep takes bucket-cap-mb, inter, intra, latency, compute or algorithm; not {key}"
            ),
        }
    }
}

fn buckets_of(mib: f64) -> Result<Variation> {
    if !(mib > 0.0 && mib < 1e6) {
        bail!("DDP's buckets take a number of MiB above 0; {mib} is none");
    }
    Ok(Variation::BucketBytes((mib * f64::from(1 << 20)) as u64))
}

fn algorithm_of(name: &str) -> Result<Variation> {
    let found = Algorithm::ALL.iter().find(|algorithm| algorithm.name() == name);
    let Some(algorithm) = found else {
        let known: Vec<&str> = Algorithm::ALL.iter().map(|it| it.name()).collect();
        bail!("there is no algorithm {name}; those that there are: {}", known.join(", "));
    };
    Ok(Variation::Algorithm(*algorithm))
}

impl Changes {
    /// True of changes whose answer depends on what the links are now.
    fn are_of_links(&self) -> bool {
        let swept = self.sweep.as_ref().is_some_and(|sweep| {
            matches!(sweep.key.as_str(), "inter" | "intra" | "latency" | "algorithm")
        });
        swept || !self.link.is_empty() || self.topology.is_some() || self.algorithm.is_some()
    }

    fn variations(&self) -> Result<Vec<Variation>> {
        let mut variations = Vec::new();
        for rank in &self.without_straggler {
            variations.push(Variation::WithoutStraggler(GlobalRank(*rank)));
        }
        for text in &self.scale {
            variations.push(scale_of(text)?);
        }
        for text in &self.link {
            variations.push(link_of(text)?);
        }
        if let Some(path) = &self.topology {
            variations.push(Variation::Topology(TopologyFile::read(path)?.topology));
        }
        if let Some(name) = &self.algorithm {
            variations.push(algorithm_of(name)?);
        }
        if let Some(mib) = self.bucket_cap_mb {
            variations.push(buckets_of(mib)?);
        }
        Ok(variations)
    }
}

/// The parts of an option's `a=b,c=d`, each key at most once; `example` is a correct one.
fn parts<'a>(text: &'a str, example: &str) -> Result<Vec<(&'a str, &'a str)>> {
    let mut parts: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .with_context(|| format!("{text:?} is not of the form {example}"))?;
        if key != "rank" && parts.iter().any(|(known, _)| *known == key) {
            bail!("{text} says {key} twice");
        }
        parts.push((key, value));
    }
    Ok(parts)
}

fn scale_of(text: &str) -> Result<Variation> {
    let (mut ranks, mut factor) = (Vec::new(), None);
    for (key, value) in parts(text, "rank=3,compute=0.5")? {
        match key {
            "rank" => {
                let rank = value.parse().with_context(|| format!("{value} is no rank"))?;
                ranks.push(GlobalRank(rank));
            }
            "compute" => factor = value.parse::<f64>().ok().filter(|it| (0.0..=1e6).contains(it)),
            _ => bail!("--scale takes rank and compute, as in rank=3,compute=0.5; not {key}"),
        }
    }
    let computing = factor.context("--scale needs a factor from 0 up, as in rank=3,compute=0.5")?;
    Ok(Variation::Scale { ranks, computing })
}

fn link_of(text: &str) -> Result<Variation> {
    let (mut which, mut bytes_per_second, mut latency_ps) = (Side::Across, None, None);
    for (key, value) in parts(text, "inter=400Gbps,latency=5us")? {
        match key {
            "inter" | "intra" => {
                which = if key == "inter" { Side::Across } else { Side::Inside };
                bytes_per_second = Some(rate_of(value)?);
            }
            "latency" => latency_ps = Some((parse_us(value)? * 1e6) as u64),
            _ => bail!("--link takes inter, intra and latency, as in inter=400Gbps; not {key}"),
        }
    }
    Ok(Variation::Links { which, bytes_per_second, latency_ps })
}

/// Bytes a second of `400Gbps` or `50GB/s`.
fn rate_of(text: &str) -> Result<u64> {
    let wrong = || format!("{text} is no rate: say for example 400Gbps or 50GB/s");
    let lower = text.to_lowercase();
    let (number, factor) =
        [("gbps", 1.25e8), ("gb/s", 1e9), ("mbps", 1.25e5), ("mb/s", 1e6), ("tb/s", 1e12)]
            .into_iter()
            .find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, factor)))
            .with_context(wrong)?;
    let rate = number.trim().parse::<f64>().ok().map(|number| number * factor);
    let rate = rate.filter(|rate| (1.0..=1e15).contains(rate)).with_context(wrong)?;
    Ok(rate as u64)
}

/// A replay that differs more than this from the recorded time is no base for an answer.
const FAR_OFF: f64 = 0.2;

/// A job, and the links that it is simulated on.
struct Base {
    plan: Plan,
    topology: Topology,
    fitted: Option<Fitted>,
    /// The analysis of the recording.
    recorded: Option<Analysis>,
    /// The steps of the recording.
    steps: Option<StepOps>,
    assumed: Vec<String>,
}

impl Base {
    /// True if the recorded calls do not fit any links: nothing is known of other links then.
    fn has_no_links(&self) -> bool {
        self.fitted.is_some_and(|fitted| fitted.is_far_off())
    }

    fn job(&self) -> (&Plan, Option<&StepOps>) {
        (&self.plan, self.steps.as_ref())
    }

    fn check_links(&self, changes: &Changes) -> Result<()> {
        if !self.has_no_links() || !changes.are_of_links() {
            return Ok(());
        }
        bail!(
            "the recorded calls fit no links, so nothing is known of other links or another algorithm: measure the links \
             with `lockstep calibrate` and give them with --measured-topology"
        )
    }
}

/// The JSON.
#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    changes: Vec<String>,
    before: &'a Analysis,
    after: &'a Analysis,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<Recorded>,
    /// The links that were fitted from the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    fitted: Option<Fitted>,
    assumed: &'a [String],
}

/// The recorded times, and the errors of the replay.
#[derive(Clone, Copy, Serialize)]
struct Recorded {
    time_ps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_ps: Option<u64>,
    /// By how much the replay's step, or its time where one of both has no steps, is off: 0.05 for 5% too long.
    error: f64,
    /// By how much the replay's whole time is off.
    time_error: f64,
    /// By how much the replay's step is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_error: Option<f64>,
    /// True if the replay is near enough for an answer, by its step or by its whole time.
    answers: bool,
}

impl Recorded {
    fn of(recorded: &Analysis, before: &Analysis) -> Recorded {
        let off = |now: u64, then: u64| now as f64 / then.max(1) as f64 - 1.0;
        let time_error = off(before.time_ps, recorded.time_ps);
        let both = before.step_ps.zip(recorded.step_ps);
        let step_error = both.map(|(now, then)| off(now, then));
        let mut of = Recorded {
            time_ps: recorded.time_ps,
            step_ps: recorded.step_ps,
            error: step_error.unwrap_or(time_error),
            time_error,
            step_error,
            answers: false,
        };
        of.answers = of.knows_time() || of.knows_step();
        of
    }

    /// True if the replayed job takes about as long as the recorded one.
    fn knows_time(&self) -> bool {
        self.time_error.abs() <= FAR_OFF
    }

    /// True if a replayed step takes about as long as a recorded one.
    fn knows_step(&self) -> bool {
        self.step_error.is_some_and(|error| error.abs() <= FAR_OFF)
    }

    /// The replayed times beside the recorded ones.
    fn to_text(self, before: &Analysis) -> String {
        let line = |what: &str, now_ps: u64, then_ps: u64, error: f64| {
            let (now, then) = (describe_ps(now_ps), describe_ps(then_ps));
            format!("replayed    {now} for {what}; recorded {then} ({:+.1}%)\n", error * 100.0)
        };
        let mut text = String::new();
        if let (Some(now), Some(then), Some(error)) =
            (before.step_ps, self.step_ps, self.step_error)
        {
            text.push_str(&line("a step", now, then, error));
        }
        text.push_str(&line("the job", before.time_ps, self.time_ps, self.time_error));
        text.push_str(match (self.knows_step(), self.knows_time(), self.step_error.is_some()) {
            (true, true, _) | (_, true, false) => "",
            (true, false, _) => {
                "            The whole replay is far from what was recorded, so only the step is told.\n"
            }
            (false, true, true) => {
                "            A replayed step is far from a recorded one, so only the whole job is told.\n"
            }
            (false, false, _) => {
                "no answer   The replay is far from what was recorded: the recording does not show what the ranks did \
                 between their calls, or how long their calls take.\n"
            }
        });
        text
    }
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if let Some(path) = &arguments.output {
        let inputs = [Path::new(&arguments.what)].into_iter();
        let inputs: Vec<&Path> =
            inputs.chain(arguments.more.iter().map(PathBuf::as_path)).collect();
        arguments.overwrite.check(path, FileKind::Trace, &inputs)?;
    }
    let variations = arguments.changes.variations()?;
    let mut base = base(&arguments, progress)?;
    base.check_links(&arguments.changes)?;
    let named = arguments.elsewhere.cluster.as_deref();
    if named.is_none() {
        // Options of a cluster without one are refused.
        arguments.elsewhere.config(&base.plan)?;
    }
    let sweep = arguments.changes.sweep.as_ref();
    if variations.is_empty() && named.is_none() && sweep.is_none() {
        bail!(
            "say what is otherwise: --without-straggler, --scale, --link, --topology, --cluster, --algorithm, \
             --bucket-cap-mb or --sweep"
        );
    }
    let given_links = !arguments.changes.link.is_empty() || arguments.changes.topology.is_some();
    let swept =
        sweep.is_some_and(|sweep| !matches!(sweep.key.as_str(), "bucket-cap-mb" | "compute"));
    if named.is_some() && (given_links || swept || arguments.changes.algorithm.is_some()) {
        bail!(
            "a cluster has links of its own, and NCCL picks the algorithms there: leave --cluster, or --link, --topology \
             and --algorithm out"
        );
    }
    // The machine in words, with its nodes and faults.
    let machine = RefCell::new(None);
    let elsewhere = |plan: &Plan| match arguments.elsewhere.config(plan) {
        Ok(Some(config)) => {
            machine.replace(config.call_times.as_ref().map(|times| times.machine.clone()));
            Ok(config)
        }
        Ok(None) => Err("no cluster is named".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    };
    let elsewhere: Option<&Elsewhere<'_>> = if named.is_some() { Some(&elsewhere) } else { None };
    if let Some(sweep) = sweep {
        let (before, points) = swept_points(sweep, &base, &variations, elsewhere, progress)?;
        let recorded = base.recorded.as_ref().zip(before.as_ref());
        let recorded = recorded.map(|(recorded, before)| Recorded::of(recorded, before));
        let assumed: BTreeSet<&String> = points.iter().flat_map(|point| &point.assumed).collect();
        base.assumed.extend(assumed.into_iter().cloned());
        let text = match arguments.json {
            true => {
                let (schema, key) = ("lockstep.whatif-sweep/1", &sweep.key);
                let printed = PrintedSweep { schema, key, recorded, points: &points };
                serde_json::to_string_pretty(&printed)? + "\n"
            }
            false => sweep_as_text(sweep, &points, (before.as_ref(), recorded), &base),
        };
        terminal::text(&text)?;
        return Ok(exit_code(recorded));
    }
    let mut stage = progress.stage("simulating before and after");
    let (before, after, assumed) =
        what_if(base.job(), base.topology, &variations, elsewhere, &mut stage)?;
    drop(stage);
    base.assumed.extend(assumed);
    if let Some(path) = &arguments.output {
        trace_file::write(path, &after.trace)?;
    }
    let recorded = base.recorded.as_ref();
    let recorded = recorded.map(|recorded| Recorded::of(recorded, &before.analysis));
    let there = machine.into_inner().map(|machine| format!("the job runs on {machine}"));
    let changes: Vec<String> = variations.iter().map(Variation::words).chain(there).collect();
    let (before, after) = (&before.analysis, &after.analysis);
    let text = match arguments.json {
        true => {
            let schema = "lockstep.whatif/1";
            let (fitted, assumed) = (base.fitted, &base.assumed);
            let printed = Printed { schema, changes, before, after, recorded, fitted, assumed };
            serde_json::to_string_pretty(&printed)? + "\n"
        }
        false => as_text(&changes, (before, after), recorded, &base),
    };
    terminal::text(&text)?;
    Ok(exit_code(recorded))
}

/// 3, for inconclusive, where the replay is too far from the recording for an answer.
fn exit_code(recorded: Option<Recorded>) -> ExitCode {
    match recorded {
        Some(Recorded { answers: false, .. }) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    }
}

/// A value of a sweep, and the job's time with it.
#[derive(Serialize)]
struct Point<'a> {
    value: &'a str,
    analysis: Analysis,
    assumed: Vec<String>,
}

/// The JSON of a sweep.
#[derive(Serialize)]
struct PrintedSweep<'a> {
    schema: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<Recorded>,
    points: &'a [Point<'a>],
}

/// The job as it is, and with every value of a sweep beside the other changes; with those that were simulated, if that was stopped.
fn swept_points<'a>(
    sweep: &'a Sweep,
    base: &Base,
    variations: &[Variation],
    elsewhere: Option<&Elsewhere<'_>>,
    progress: &Progress,
) -> Result<(Option<Analysis>, Vec<Point<'a>>)> {
    let mut points = Vec::new();
    let mut as_it_is = None;
    for (value, number) in sweep.values.iter().zip(1..) {
        let mut all = variations.to_vec();
        all.push(sweep.variation(value)?);
        let doing = format!("value {number} of {}", sweep.values.len());
        let mut stage = progress.stage(doing);
        match what_if(base.job(), base.topology, &all, elsewhere, &mut stage) {
            Ok((before, Compared { analysis, .. }, assumed)) => {
                as_it_is = Some(before.analysis);
                points.push(Point { value, analysis, assumed });
            }
            Err(VariationError::Sim(SimError::Stopped(_))) if !points.is_empty() => {
                drop(stage);
                terminal::note(&format!(
                    "lockstep: stopped by Ctrl-C; {} of {} values were simulated",
                    points.len(),
                    sweep.values.len()
                ));
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((as_it_is, points))
}

/// A row for each value, with a bar for its time.
fn sweep_as_text(
    sweep: &Sweep,
    points: &[Point<'_>],
    (before, recorded): (Option<&Analysis>, Option<Recorded>),
    base: &Base,
) -> String {
    let check = before.zip(recorded).map(|(before, recorded)| recorded.to_text(before));
    let check = check.unwrap_or_default();
    if recorded.is_some_and(|recorded| !recorded.answers) {
        return check + &links_as_text(base);
    }
    let has_steps = points.iter().all(|point| point.analysis.step_ps.is_some())
        && recorded.is_none_or(|recorded| recorded.knows_step());
    let stretch = if has_steps { Stretch::Step } else { Stretch::Whole };
    let time = |point: &Point<'_>| match stretch {
        Stretch::Step => point.analysis.step_ps.unwrap_or(point.analysis.time_ps),
        Stretch::Whole => point.analysis.time_ps,
    };
    let longest = points.iter().map(time).max().unwrap_or(1).max(1);
    let width =
        points.iter().map(|point| point.value.len()).max().unwrap_or(0).max(sweep.key.len());
    let what = if has_steps { "step (median)" } else { "whole job" };
    let mut text = format!("{:<width$}{what:>16}{:>12}{:>12}\n", sweep.key, "exposed", "waiting");
    for point in points {
        let mean = |of: fn(Share) -> u64| describe_ps(point.analysis.mean_ps(stretch, of));
        let (exposed, waiting) =
            (mean(|share| share.communicating_ps), mean(|share| share.waiting_ps));
        let bar = "▇".repeat((time(point) as f64 / longest as f64 * 30.0).round() as usize);
        text.push_str(&format!(
            "{:<width$}{:>16}{exposed:>12}{waiting:>12}  {bar}\n",
            point.value,
            describe_ps(time(point))
        ));
    }
    text.push('\n');
    text.push_str(&check);
    text.push_str(&links_as_text(base));
    text
}

/// The job as it is: a recording's plan on links that were fitted from it, or a plan on its own.
fn base(arguments: &Arguments, progress: &Progress) -> Result<Base> {
    let given = arguments.measured_topology.as_deref().map(TopologyFile::read).transpose()?;
    let given = given.map(|file| file.topology);
    let options = PlanOptions {
        world_size: arguments.world_size,
        ranks_per_node: arguments.ranks_per_node,
        count: arguments.count,
        ..PlanOptions::default()
    };
    let (what, more) = (arguments.what.clone(), arguments.more.clone());
    let plan_arguments =
        PlanArguments { what, more, options, schedule: None, arguments: Vec::new() };
    if !plan_arguments.is_recorded()? {
        let plan = plan_arguments.plan(progress)?;
        let topology = given.unwrap_or_else(|| Topology::of_ranks_per_node(plan.ranks_per_node));
        let (fitted, recorded, steps, assumed) = (None, None, None, Vec::new());
        return Ok(Base { plan, topology, fitted, recorded, steps, assumed });
    }
    let replayable = Replayable::read(&plan_arguments.paths(), progress)?;
    let activity = match &replayable.read.held {
        Held::Trace(trace) => {
            tell_of_cut(trace);
            Activity::of_trace(trace)
        }
        Held::Merged(merged) => Activity::of_calls(&merged.log),
        Held::Log => bail!("a log alone tells of no times: add the job's dumps or profiles"),
    };
    if !knows_ends(&activity) {
        bail!(
            "the recorder of this job tells when calls were issued and not when they ended, as gloo's does: profile the \
             job with torch.profiler instead"
        );
    }
    let assumed = replayable.recovered.assumed.iter().map(ToString::to_string).collect();
    let mut recovered = replayable.recovered;
    recovered.plan = plan_arguments.options.on_nodes(recovered.plan);
    let fitted = match given {
        Some(_) => None,
        None => fit_links_watched(&recovered, &activity, &mut progress.stage("fitting the links")),
    };
    progress.check("nothing was simulated")?;
    let usual = Topology::of_ranks_per_node(recovered.plan.ranks_per_node);
    let near = fitted.filter(|fitted| !fitted.is_far_off());
    let topology = given.or(near.map(|fitted| fitted.topology)).unwrap_or(usual);
    let steps = Some(recorded_steps(&recovered, &activity));
    let plan = match &replayable.read.held {
        Held::Trace(_) => with_measured_computations(&recovered.plan, &activity),
        Held::Merged(_) | Held::Log => recovered.plan,
    };
    let recorded = Some(Analysis::of(&activity));
    Ok(Base { plan, topology, fitted, recorded, steps, assumed })
}

fn as_text(
    changes: &[String],
    (before, after): (&Analysis, &Analysis),
    recorded: Option<Recorded>,
    base: &Base,
) -> String {
    let mut text = format!("what if     {}\n\n", changes.join(", and "));
    if recorded.is_none_or(|recorded| recorded.answers) {
        text.push_str(&table(before, after, recorded));
    }
    if let Some(recorded) = recorded {
        text.push_str(&recorded.to_text(before));
    }
    text.push_str(&links_as_text(base));
    text
}

/// The times before and after, of the step and the whole job where the replay takes as long as the recording.
fn table(before: &Analysis, after: &Analysis, recorded: Option<Recorded>) -> String {
    let mut text = format!("{:<26}{:>12}{:>12}{:>9}\n", "", "before", "after", "change");
    let mut row = |name: &str, of: &dyn Fn(&Analysis) -> Option<u64>| {
        let (Some(before), Some(after)) = (of(before), of(after)) else { return };
        let change = match before {
            0 => "–".to_owned(),
            before => format!("{:+.1}%", (after as f64 / before as f64 - 1.0) * 100.0),
        };
        let (before, after) = (describe_ps(before), describe_ps(after));
        text.push_str(&format!("{name:<26}{before:>12}{after:>12}{change:>9}\n"));
    };
    let knows_step = recorded.is_none_or(|recorded| recorded.knows_step());
    let knows_time = recorded.is_none_or(|recorded| recorded.knows_time());
    let stretch = if knows_step { Stretch::of_both(before, after) } else { Stretch::Whole };
    row("step (median)", &|it| it.step_ps.filter(|_| knows_step));
    row("whole job", &|it| Some(it.time_ps).filter(|_| knows_time));
    row("exposed, mean of ranks", &|it| Some(it.mean_ps(stretch, |share| share.communicating_ps)));
    row("waiting, mean of ranks", &|it| Some(it.mean_ps(stretch, |share| share.waiting_ps)));
    if knows_time {
        row("critical path: computing", &|it| Some(it.critical_path.time_of(Cause::Computing)));
        row("  communicating", &|it| Some(it.critical_path.time_of(Cause::Communicating)));
        row("  pauses and idle", &|it| {
            Some(it.critical_path.time_of(Cause::Pause) + it.critical_path.time_of(Cause::Idle))
        });
    }
    text.push('\n');
    text
}

/// The links that the job is simulated on, and the assumptions.
fn links_as_text(base: &Base) -> String {
    let links = match &base.fitted {
        Some(fitted) if fitted.is_far_off() => format!(
            "{}, as usual: the recorded calls fit no links (the nearest are {:.0}% off in the mean), so nothing is known \
             of other links or another algorithm",
            base.topology,
            fitted.error * 100.0
        ),
        Some(fitted) => format!(
            "{}, fitted from the recording: its calls are {:.0}% off in the mean{}",
            fitted.topology,
            fitted.error * 100.0,
            if fitted.is_underdetermined {
                ", with too few sizes to tell latency from rate"
            } else {
                ""
            }
        ),
        None => base.topology.to_string(),
    };
    let mut text = format!("links       {links}\n");
    for assumed in &base.assumed {
        text.push_str(&format!("assumed     {assumed}\n"));
    }
    text
}
