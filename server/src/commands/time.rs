//! `lockstep time`: the time of a collective on a cluster, and NCCL's choice for it; or both beside the
//! measured times of a table, or of a folder of tables.

use crate::plan_source::cluster_or_relative;
use crate::progress::Progress;
use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use lockstep_clusters::choice::{Alternative, alternatives};
use lockstep_clusters::compare::{Class, Compared, Errors, Site, mean_error, median, worst};
use lockstep_clusters::given::Point;
use lockstep_clusters::quantity::{bytes_text, parse_bytes, parse_point, us_text};
use lockstep_clusters::{
    Calibration, Catalog, Cluster, Collective, Prediction, Settings, Table, Understood, fitted_as,
};
use lockstep_core::watch::{Reached, Watch};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say how long a collective takes on a cluster, and which algorithm NCCL picks
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall or sendrecv
    #[arg(value_name = "COLLECTIVE", required_unless_present_any = ["table", "list"])]
    collective: Option<Collective>,
    /// A named system (`--list` shows them), or a TOML file like those of docs/clusters.md
    #[arg(long, default_value = "h100x8", conflicts_with = "table")]
    cluster: String,
    /// Nodes that take part
    #[arg(long, default_value_t = 1, conflicts_with = "table")]
    nodes: u64,
    /// Ranks on each node; without it all GPUs of a node
    #[arg(long, conflicts_with = "table")]
    ranks_per_node: Option<u32>,
    /// Sizes, as nccl-tests counts them: 8,64K,1M,1G
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, conflicts_with = "table",
          default_value = "8,1K,64K,256K,1M,4M,16M,64M,256M,1G,8G")]
    bytes: Vec<u64>,
    /// A time that was measured there; corrects the others: 1M=76us (repeatable)
    #[arg(long, value_name = "SIZE=TIME", value_parser = parse_point)]
    given: Vec<(u64, f64)>,
    /// A variable of NCCL: NCCL_ALGO=Ring (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Show what the other algorithms and protocols would take
    #[arg(long)]
    why: bool,
    /// Tables of measured times to compare with: a file of one or several, or a folder
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["collective", "list"])]
    table: Option<PathBuf>,
    /// List the named clusters
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The largest table or cluster file.
const MOST_BYTES: u64 = 16 << 20;
/// The schema of the JSON.
const SCHEMA: &str = "lockstep.time/1";

pub(crate) fn run(arguments: &Arguments, progress: &Progress) -> Result<ExitCode> {
    let mut catalog = Catalog::shipped()?;
    let text = match (&arguments.table, arguments.collective) {
        _ if arguments.list => list(&catalog, arguments.json)?,
        (Some(path), _) => measured(&catalog, path, arguments, progress)?,
        (None, Some(collective)) => asked(&mut catalog, collective, arguments)?,
        (None, None) => bail!("say which collective: lockstep time all_reduce"),
    };
    terminal::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The answer for a cluster by name or file.
fn asked(catalog: &mut Catalog, collective: Collective, arguments: &Arguments) -> Result<String> {
    let (cluster, taken_for) = cluster_or_relative(catalog, &arguments.cluster)?;
    let per_node = arguments.ranks_per_node.unwrap_or(cluster.gpus_per_node);
    let placement = catalog.place(&cluster, arguments.nodes, per_node)?;
    let mut site = Site {
        cluster,
        placement,
        settings: Settings::default(),
        collective,
        understood: Understood { taken_for, ..Understood::default() },
    };
    set_environment(&mut site.settings, &arguments.env)?;
    let measured = catalog.given_points(&site.cluster)?;
    let asked = site.given(&arguments.given).context("--given")?;
    let all: Vec<Point> = measured.into_iter().chain(asked).collect();
    let calibration = Calibration::of_points(&site.settings, &all)?;
    let mut points = Vec::new();
    for bytes in &arguments.bytes {
        points.push(site.predict(*bytes, &calibration)?);
    }
    if arguments.json {
        let mut answer = head(&site, arguments.nodes, per_node);
        answer["points"] = points
            .iter()
            .map(|point| point_json(&site, point, None, arguments.why, &all))
            .collect();
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    let mut text = title(&site, arguments.nodes, per_node);
    text += &rows(&site, &points, arguments.why, &all);
    let sizes = points.iter().map(|point| point.bytes);
    Ok(text + &remarks(&site, sizes, &all))
}

/// The table of a file point by point, or a line for each of several.
fn measured(
    catalog: &Catalog,
    path: &Path,
    arguments: &Arguments,
    progress: &Progress,
) -> Result<String> {
    if path.is_dir() {
        return comparison(catalog, path, arguments, progress);
    }
    let name = || path.display().to_string();
    match <[Table; 1]>::try_from(Table::parse_all(&read(path)?).with_context(name)?) {
        Ok([table]) => one_table(catalog, &table, arguments).with_context(name),
        Err(_) => comparison(catalog, path, arguments, progress),
    }
}

/// A table's points beside their predictions.
fn one_table(catalog: &Catalog, table: &Table, arguments: &Arguments) -> Result<String> {
    let mut site = Site::of_table(catalog, table)?;
    set_environment(&mut site.settings, &arguments.env)?;
    let given = site.given(&arguments.given).context("--given")?;
    let calibration = site.calibrate(&arguments.given)?;
    let points = site.compare(table, &calibration)?;
    // Sizes with given times are not judged.
    let judged = |bytes: u64| arguments.given.iter().all(|(size, _)| *size != bytes);
    let mean = mean_error(&points, judged);
    let per_node = table.ranks_per_node();
    if arguments.json {
        let mut answer = head(&site, u64::from(table.nodes), per_node);
        answer["kind"] = json!(table.kind);
        answer["fitted"] = json!(fitted_as(table).is_some());
        answer["points"] = points
            .iter()
            .map(|one| point_json(&site, &one.prediction, Some(one), arguments.why, &given))
            .collect();
        answer["mean_error"] = json!(mean);
        answer["worst_error"] = json!(worst(&points).map(Compared::error));
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    let mut text = title(&site, u64::from(table.nodes), per_node);
    let _ = writeln!(
        text,
        "{:>8} {:>12} {:>12} {:>8}  {:<14}{:<9}channels",
        "size", "measured", "predicted", "error", "algorithm", "protocol"
    );
    for one in &points {
        let it = &one.prediction;
        let _ = writeln!(
            text,
            "{:>8} {:>12} {:>12} {:>+7.1}%  {:<14}{:<9}{}{}",
            bytes_text(it.bytes),
            us_text(one.measured_us),
            us_text(it.time_us),
            one.error() * 100.0,
            it.algorithm.name(),
            it.protocol.name(),
            it.channels,
            mark(&site, it.bytes, &given)
        );
        if arguments.why {
            text += &others(&site, it);
        }
    }
    if let (Some(mean), Some(worst)) = (mean, worst(&points)) {
        let _ = writeln!(
            text,
            "mean error {:.1}%, worst {:+.1}% at {}",
            mean * 100.0,
            worst.error() * 100.0,
            bytes_text(worst.prediction.bytes)
        );
    }
    if let Some(name) = fitted_as(table) {
        let _ =
            writeln!(text, "fitted: parameters of the model were fitted on this table ({name})");
    }
    let sizes = points.iter().map(|point| point.prediction.bytes);
    Ok(text + &remarks(&site, sizes, &given))
}

/// The mark behind a size: its time was given for this very call, or nothing of that size was measured where other
/// sizes were.
fn mark(site: &Site, bytes: u64, given: &[Point]) -> &'static str {
    if is_given(site, bytes, given) {
        "  given"
    } else if is_extrapolated(site, bytes, given) && !site.extrapolated() {
        "  extrapolated"
    } else {
        ""
    }
}

fn is_extrapolated(site: &Site, bytes: u64, given: &[Point]) -> bool {
    let is_near = |point: &&Point| {
        bytes.saturating_mul(2) >= point.bytes && bytes <= point.bytes.saturating_mul(2)
    };
    let given: Vec<&Point> = given.iter().filter(|point| is_of(site, point)).collect();
    let is_within = given.iter().any(|point| point.bytes <= bytes)
        && given.iter().any(|point| point.bytes >= bytes);
    site.extrapolated_at(bytes) && !is_within && !given.iter().any(is_near)
}

fn is_given(site: &Site, bytes: u64, given: &[Point]) -> bool {
    given.iter().any(|point| point.bytes == bytes && is_of(site, point))
}

/// True if a time was given for the call that is asked for, of any size.
fn is_of(site: &Site, point: &Point) -> bool {
    point.collective == site.collective
        && (point.placement.domains, point.placement.ranks)
            == (site.placement.domains, site.placement.ranks)
}

/// A line for each table of a file or a folder, and the medians.
fn comparison(
    catalog: &Catalog,
    path: &Path,
    arguments: &Arguments,
    progress: &Progress,
) -> Result<String> {
    let (mut lines, mut refused) = (Vec::new(), Vec::new());
    let mut tables = files::below(&[path.to_owned()])?;
    tables.retain(|it| it.extension().is_some_and(|it| it == "csv") && !it.ends_with("index.csv"));
    let mut stage = progress.stage("comparing");
    for (file, done) in tables.iter().zip(0..) {
        let reached = Reached { done, total: tables.len() as u64, what: "tables" };
        if stage.reached(reached).is_break() {
            refused.push(format!("the other {} tables: stopped by Ctrl-C", reached.total - done));
            break;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let tables = read(file).and_then(|text| Ok(Table::parse_all(&text)?));
        let Ok(tables) = tables.inspect_err(|error| refused.push(format!("{stem}: {error:#}")))
        else {
            continue;
        };
        let several = tables.len() > 1;
        for table in tables {
            let name = match several {
                true => format!(
                    "{stem} {}x{} {}",
                    table.nodes,
                    table.ranks_per_node(),
                    table.collective
                ),
                false => stem.clone(),
            };
            let line = Site::of_table(catalog, &table)
                .and_then(|site| Ok((Errors::of_table(&site, &table)?, site)));
            match line {
                Ok((errors, site)) => {
                    let is_fitted = fitted_as(&table).is_some();
                    lines.push(Line { name, errors, site, is_fitted });
                }
                Err(error) => refused.push(format!("{name}: {error:#}")),
            }
        }
    }
    drop(stage);
    if lines.is_empty() {
        let why = refused.first().map(|first| format!(" ({first})")).unwrap_or_default();
        bail!("{} holds no table that can be read{why}", path.display());
    }
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    let groups = medians(&lines);
    if arguments.json {
        let tables: Vec<Value> = lines.iter().map(Line::as_json).collect();
        let medians: Vec<Value> = groups.iter().map(Median::as_json).collect();
        let answer =
            json!({ "schema": SCHEMA, "tables": tables, "medians": medians, "refused": refused });
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    Ok(folder_text(&lines, &groups, &refused))
}

/// A table with its errors and its machine.
struct Line {
    name: String,
    errors: Errors,
    site: Site,
    /// Parameters of the model were fitted on it.
    is_fitted: bool,
}

impl Line {
    fn as_json(&self) -> Value {
        let Self { name, errors, site, is_fitted } = self;
        let mut value = json!({
            "table": name, "cluster": site.cluster.name, "fitted": is_fitted,
            "below_16M": errors.small, "from_16M": errors.large,
            "calibrated": errors.calibrated, "extrapolated": site.extrapolated(),
        });
        add_understood(&mut value, site);
        value
    }

    fn use_text(&self) -> &'static str {
        if self.is_fitted { "fitted" } else { "predicted" }
    }
}

/// A row of the summary: the quantity, its target, and the number of tables with their median error: of all,
/// and of those that were not fitted.
struct Median {
    name: &'static str,
    goal: Option<f64>,
    all: (usize, Option<f64>),
    predicted: (usize, Option<f64>),
}

impl Median {
    fn of(
        lines: &[Line],
        (name, goal): (&'static str, Option<f64>),
        error: impl Fn(&Line) -> Option<f64>,
    ) -> Self {
        let of = |only_predicted: bool| {
            let lines = lines.iter().filter(|line| !(only_predicted && line.is_fitted));
            let errors: Vec<f64> = lines.filter_map(&error).collect();
            (errors.len(), median(errors))
        };
        Self { name, goal, all: of(false), predicted: of(true) }
    }

    fn as_json(&self) -> Value {
        let Self { name, goal, all, predicted } = self;
        json!({
            "what": name, "goal": goal, "tables": all.0, "median_error": all.1,
            "predicted_tables": predicted.0, "median_error_predicted": predicted.1,
        })
    }
}

fn medians(lines: &[Line]) -> Vec<Median> {
    let of_class = |class: Class| {
        Median::of(lines, class.goal(), move |line| {
            line.errors.large.filter(|_| Class::of(&line.site) == class)
        })
    };
    let mut groups: Vec<Median> = Class::ALL.into_iter().map(of_class).collect();
    let small = ("all tables, below 16 MiB", Some(0.25));
    groups.push(Median::of(lines, small, |line| line.errors.small));
    let given = ("all tables, any size, two points given", Some(0.10));
    groups.push(Median::of(lines, given, |line| line.errors.calibrated));
    groups.retain(|group| group.all.0 > 0);
    groups
}

fn folder_text(lines: &[Line], groups: &[Median], refused: &[String]) -> String {
    let percent =
        |error: Option<f64>| error.map_or("-".into(), |error| format!("{:.1}%", error * 100.0));
    let mut text = format!(
        "{:<44}{:<16}{:<10}{:>8}{:>8}{:>12}\n",
        "table", "cluster", "", "< 16M", "≥ 16M", "two given"
    );
    for line in lines {
        let Line { name, errors, site, .. } = line;
        let _ = writeln!(
            text,
            "{name:<44}{:<16}{:<10}{:>8}{:>8}{:>12}{}",
            site.cluster.name,
            line.use_text(),
            percent(errors.small),
            percent(errors.large),
            percent(errors.calibrated),
            if site.extrapolated() { "  extrapolated" } else { "" }
        );
    }
    text += "\nmedian error over tables (mean over a table's sizes): of all, and of those that were predicted\n";
    for group in groups {
        let goal = group.goal.map_or(String::new(), |goal| format!("  aim {:.0}%", goal * 100.0));
        let _ = writeln!(
            text,
            "{:<66}{:>4} tables {:>6}{:>5} predicted {:>6}{goal}",
            group.name,
            group.all.0,
            percent(group.all.1),
            group.predicted.0,
            percent(group.predicted.1)
        );
    }
    let told = |line: &Line| {
        let Understood { taken_for, notes, .. } = &line.site.understood;
        let notes = taken_for.iter().chain(notes);
        notes.map(|note| format!("{}: {note}\n", line.name)).collect::<String>()
    };
    text.extend(lines.iter().map(told));
    for why in refused {
        let _ = writeln!(text, "not compared: {why}");
    }
    text
}

/// Adds how a table's header was understood.
fn add_understood(value: &mut Value, site: &Site) {
    let Understood { links, taken_for, notes } = &site.understood;
    if let Some(links) = links {
        value["links"] = json!(links);
    }
    if let Some(taken_for) = taken_for {
        value["taken_for"] = json!(taken_for);
    }
    if !notes.is_empty() {
        value["notes"] = json!(notes);
    }
}

fn read(path: &Path) -> Result<String> {
    let bytes = files::read(path, MOST_BYTES)?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text in UTF-8", path.display()))
}

fn set_environment(settings: &mut Settings, variables: &[String]) -> Result<()> {
    for variable in variables {
        let (name, value) = variable
            .split_once('=')
            .with_context(|| format!("--env {variable}: say it as NAME=VALUE"))?;
        settings.set(name, value)?;
    }
    Ok(())
}

/// The fields that all points have in common.
fn head(site: &Site, nodes: u64, per_node: u32) -> Value {
    let mut value = json!({
        "schema": SCHEMA,
        "collective": site.collective.name(),
        "cluster": site.cluster.name,
        "nodes": nodes,
        "ranks_per_node": per_node,
        "extrapolated": site.extrapolated(),
    });
    add_understood(&mut value, site);
    value
}

/// Algorithm and bus bandwidth of a time, GB/s.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53 bytes")]
fn bandwidths(site: &Site, bytes: u64, us: f64) -> (f64, f64) {
    let algorithm = bytes as f64 / (us * 1000.0);
    (algorithm, algorithm * site.collective.bus_factor(site.placement.ranks))
}

fn point_json(
    site: &Site,
    point: &Prediction,
    measured: Option<&Compared>,
    why: bool,
    given: &[Point],
) -> Value {
    let (algbw, busbw) = bandwidths(site, point.bytes, point.time_us);
    let mut value = json!({
        "bytes": point.bytes,
        "predicted_us": point.time_us,
        "algorithm": point.algorithm.name(),
        "protocol": point.protocol.name(),
        "channels": point.channels,
        "algbw_GBps": algbw,
        "busbw_GBps": busbw,
    });
    if is_given(site, point.bytes, given) {
        value["given"] = json!(true);
    } else if is_extrapolated(site, point.bytes, given) {
        value["extrapolated"] = json!(true);
    }
    if let Some(one) = measured {
        value["measured_us"] = json!(one.measured_us);
        value["error"] = json!(one.error());
    }
    if why {
        let all = alternatives(&site.placement, &site.settings, site.collective, point.bytes);
        value["alternatives"] = all
            .iter()
            .map(|it| {
                json!({
                    "algorithm": it.algorithm.name(), "protocol": it.protocol.name(),
                    "tuner_us": it.believed_us, "predicted_us": it.time_us,
                })
            })
            .collect();
    }
    value
}

fn title(site: &Site, nodes: u64, per_node: u32) -> String {
    let plural = if nodes == 1 { "" } else { "s" };
    let Understood { links, taken_for, notes } = &site.understood;
    let links = links.as_ref().map_or(String::new(), |links| format!(", {links}"));
    let mut text = format!(
        "{} of {} ranks on {}: {nodes} node{plural} of {per_node} ({}){links}\n",
        site.collective, site.placement.ranks, site.cluster.name, site.cluster.title
    );
    for note in taken_for.iter().chain(notes) {
        text += note;
        text.push('\n');
    }
    text
}

fn rows(site: &Site, points: &[Prediction], why: bool, given: &[Point]) -> String {
    let mut text = format!(
        "{:>8} {:>12} {:>10} {:>10}  {:<14}{:<9}channels\n",
        "size", "time", "algbw", "busbw", "algorithm", "protocol"
    );
    for point in points {
        let (algbw, busbw) = bandwidths(site, point.bytes, point.time_us);
        let _ = writeln!(
            text,
            "{:>8} {:>12} {algbw:>10.2} {busbw:>10.2}  {:<14}{:<9}{}{}",
            bytes_text(point.bytes),
            us_text(point.time_us),
            point.algorithm.name(),
            point.protocol.name(),
            point.channels,
            mark(site, point.bytes, given)
        );
        if why {
            text += &others(site, point);
        }
    }
    text + "bandwidths in GB/s, as nccl-tests defines them\n"
}

/// The choices that the tuner weighed, the cheapest by its belief first.
fn others(site: &Site, point: &Prediction) -> String {
    let mut all = alternatives(&site.placement, &site.settings, site.collective, point.bytes);
    if all.is_empty() {
        return "         made of sends and receives: NCCL has no choice\n".into();
    }
    let believed = |it: &Alternative| it.believed_us;
    all.sort_by(|one, other| believed(one).total_cmp(&believed(other)));
    all.iter().fold(String::new(), |mut text, it| {
        let _ = writeln!(
            text,
            "         {:<14}{:<8} NCCL's tuner expects {:>11}, predicted {:>11}",
            it.algorithm.name(),
            it.protocol.name(),
            us_text(it.believed_us),
            us_text(it.time_us)
        );
        text
    })
}

fn remarks(site: &Site, mut sizes: impl Iterator<Item = u64>, given: &[Point]) -> String {
    let corrected = if given.is_empty() { "" } else { "corrected by the given times\n" };
    match site.extrapolated() {
        true if given.is_empty() => {
            "extrapolated: no measured table of such a machine backs this\n".into()
        }
        true => {
            "extrapolated from the given times: no measured table of such a machine backs this\n"
                .into()
        }
        false if sizes.any(|bytes| mark(site, bytes, given).ends_with("extrapolated")) => format!(
            "{corrected}extrapolated: the measured tables of such a machine have no size within twice of those\n"
        ),
        false => corrected.into(),
    }
}

fn list(catalog: &Catalog, as_json: bool) -> Result<String> {
    let mut clusters: Vec<&Cluster> = catalog.clusters.iter().collect();
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    if as_json {
        let all: Vec<Value> = clusters
            .iter()
            .map(|it| json!({ "name": it.name, "title": it.title, "measured": !it.measured.is_empty() }))
            .collect();
        return Ok(serde_json::to_string_pretty(&json!({ "clusters": all }))? + "\n");
    }
    Ok(clusters.iter().fold(String::new(), |mut text, it| {
        let backed = if it.measured.is_empty() { " (extrapolated)" } else { "" };
        let _ = writeln!(text, "{:<16}{}{backed}", it.name, it.title);
        text
    }))
}
