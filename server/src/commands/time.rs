//! `lockstep time`: the time of a collective on a cluster, and NCCL's choice for it; or both beside the
//! measured times of a table, or of a folder of tables.

use crate::plan_source::cluster_of;
use crate::progress::Progress;
use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use lockstep_clusters::choice::{Alternative, alternatives};
use lockstep_clusters::compare::{Class, Compared, Errors, Site, mean_error, median, worst};
use lockstep_clusters::given::Point;
use lockstep_clusters::quantity::{bytes_text, parse_bytes, parse_point, us_text};
use lockstep_clusters::{Calibration, Catalog, Cluster, Collective, Prediction, Settings, Table};
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
    let cluster = cluster_of(catalog, &arguments.cluster)?;
    let per_node = arguments.ranks_per_node.unwrap_or(cluster.gpus_per_node);
    let placement = catalog.place(&cluster, arguments.nodes, per_node)?;
    let mut site = Site { cluster, placement, settings: Settings::default(), collective };
    set_environment(&mut site.settings, &arguments.env)?;
    let measured = catalog.given_points(&site.cluster)?;
    let asked = arguments.given.iter().map(|&(bytes, us)| {
        let (placement, collective) = (site.placement.clone(), collective);
        Point { placement, collective, bytes, us }
    });
    let all: Vec<Point> = measured.into_iter().chain(asked).collect();
    let calibration = Calibration::of_points(&site.settings, &all)?;
    let mut points = Vec::new();
    for bytes in &arguments.bytes {
        points.push(site.predict(*bytes, &calibration)?);
    }
    if arguments.json {
        let mut answer = head(&site, arguments.nodes, per_node);
        answer["points"] =
            points.iter().map(|point| point_json(&site, point, None, arguments.why)).collect();
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    let mut text = title(&site, arguments.nodes, per_node);
    text += &rows(&site, &points, arguments.why);
    Ok(text + &remarks(&site, !all.is_empty()))
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
    let calibration = site.calibrate(&arguments.given)?;
    let points = site.compare(table, &calibration)?;
    // Sizes with given times are not judged.
    let judged = |bytes: u64| arguments.given.iter().all(|(size, _)| *size != bytes);
    let mean = mean_error(&points, judged);
    let per_node = table.gpus.div_ceil(table.nodes);
    if arguments.json {
        let mut answer = head(&site, u64::from(table.nodes), per_node);
        answer["kind"] = json!(table.kind);
        answer["points"] = points
            .iter()
            .map(|one| point_json(&site, &one.prediction, Some(one), arguments.why))
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
            "{:>8} {:>12} {:>12} {:>+7.1}%  {:<14}{:<9}{}",
            bytes_text(it.bytes),
            us_text(one.measured_us),
            us_text(it.time_us),
            one.error() * 100.0,
            it.algorithm.name(),
            it.protocol.name(),
            it.channels
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
    Ok(text + &remarks(&site, !arguments.given.is_empty()))
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
                    table.gpus.div_ceil(table.nodes),
                    table.collective
                ),
                false => stem.clone(),
            };
            let line = Site::of_table(catalog, &table)
                .and_then(|site| Ok((Errors::of_table(&site, &table)?, site)));
            match line {
                Ok((errors, site)) => lines.push((name, errors, site)),
                Err(error) => refused.push(format!("{name}: {error:#}")),
            }
        }
    }
    drop(stage);
    if lines.is_empty() {
        let why = refused.first().map(|first| format!(" ({first})")).unwrap_or_default();
        bail!("{} holds no table that can be read{why}", path.display());
    }
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    let groups = medians(&lines);
    if arguments.json {
        let tables: Vec<Value> = lines
            .iter()
            .map(|(name, errors, site)| {
                json!({
                    "table": name, "cluster": site.cluster.name,
                    "below_16M": errors.small, "from_16M": errors.large,
                    "calibrated": errors.calibrated, "extrapolated": site.extrapolated(),
                })
            })
            .collect();
        let medians: Vec<Value> = groups
            .iter()
            .map(|(name, goal, count, median)| {
                json!({ "what": name, "goal": goal, "tables": count, "median_error": median })
            })
            .collect();
        let answer =
            json!({ "schema": SCHEMA, "tables": tables, "medians": medians, "refused": refused });
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    Ok(folder_text(&lines, &groups, &refused))
}

/// A table with its errors and its machine.
type Line = (String, Errors, Site);
/// A row of the summary: the quantity, its target, the number of tables, and their median error.
type Median = (&'static str, Option<f64>, usize, f64);

fn medians(lines: &[Line]) -> Vec<Median> {
    let mut groups = Vec::new();
    let mut group = |name, goal, values: Vec<f64>| {
        let count = values.len();
        if let Some(median) = median(values) {
            groups.push((name, goal, count, median));
        }
    };
    for class in Class::ALL {
        let of = lines.iter().filter(|(_, _, site)| Class::of(site) == class);
        let (name, goal) = class.goal();
        group(name, goal, of.filter_map(|(_, errors, _)| errors.large).collect());
    }
    let small = lines.iter().filter_map(|(_, errors, _)| errors.small).collect();
    group("all tables, below 16 MiB", Some(0.25), small);
    let calibrated = lines.iter().filter_map(|(_, errors, _)| errors.calibrated).collect();
    group("all tables, any size, two points given", Some(0.10), calibrated);
    groups
}

fn folder_text(lines: &[Line], groups: &[Median], refused: &[String]) -> String {
    let percent =
        |error: Option<f64>| error.map_or("-".into(), |error| format!("{:.1}%", error * 100.0));
    let mut text = format!(
        "{:<44}{:<16}{:>8}{:>8}{:>12}\n",
        "table", "cluster", "< 16M", "≥ 16M", "two given"
    );
    for (name, errors, site) in lines {
        let _ = writeln!(
            text,
            "{name:<44}{:<16}{:>8}{:>8}{:>12}{}",
            site.cluster.name,
            percent(errors.small),
            percent(errors.large),
            percent(errors.calibrated),
            if site.extrapolated() { "  extrapolated" } else { "" }
        );
    }
    text += "\nmedian error over tables (mean over a table's sizes)\n";
    for (name, goal, count, median) in groups {
        let goal = goal.map_or(String::new(), |goal| format!("  aim {:.0}%", goal * 100.0));
        let _ = writeln!(text, "{name:<66}{count:>4} tables {:>6.1}%{goal}", median * 100.0);
    }
    for why in refused {
        let _ = writeln!(text, "not compared: {why}");
    }
    text
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
    json!({
        "schema": SCHEMA,
        "collective": site.collective.name(),
        "cluster": site.cluster.name,
        "nodes": nodes,
        "ranks_per_node": per_node,
        "extrapolated": site.extrapolated(),
    })
}

/// Algorithm and bus bandwidth of a time, GB/s.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53 bytes")]
fn bandwidths(site: &Site, bytes: u64, us: f64) -> (f64, f64) {
    let algorithm = bytes as f64 / (us * 1000.0);
    (algorithm, algorithm * site.collective.bus_factor(site.placement.ranks))
}

fn point_json(site: &Site, point: &Prediction, measured: Option<&Compared>, why: bool) -> Value {
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
    format!(
        "{} of {} ranks on {}: {nodes} node{plural} of {per_node} ({})\n",
        site.collective, site.placement.ranks, site.cluster.name, site.cluster.title
    )
}

fn rows(site: &Site, points: &[Prediction], why: bool) -> String {
    let mut text = format!(
        "{:>8} {:>12} {:>10} {:>10}  {:<14}{:<9}channels\n",
        "size", "time", "algbw", "busbw", "algorithm", "protocol"
    );
    for point in points {
        let (algbw, busbw) = bandwidths(site, point.bytes, point.time_us);
        let _ = writeln!(
            text,
            "{:>8} {:>12} {algbw:>10.2} {busbw:>10.2}  {:<14}{:<9}{}",
            bytes_text(point.bytes),
            us_text(point.time_us),
            point.algorithm.name(),
            point.protocol.name(),
            point.channels
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

fn remarks(site: &Site, given: bool) -> String {
    match (site.extrapolated(), given) {
        (true, false) => "extrapolated: no measured table of such a machine backs this\n".into(),
        (true, true) => "extrapolated from the given times: no measured table of such a machine \
                         backs this\n"
            .into(),
        (false, true) => "corrected by the given times\n".into(),
        (false, false) => String::new(),
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
