//! One run of the recorder: the user's Python executes the script as some ranks of a world.

use super::arguments::Arguments;
use super::hub::{Hub, Noted};
use super::launch::{Launch, Launcher};
use crate::child_group::ChildGroup;
use crate::commands::signals;
use anyhow::{Context, Result};
use lockstep_clusters::compute_card;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The recorder, which the user's Python executes.
pub(super) const RECORDER: &str = include_str!("recorder.py");

/// More ranks are not recorded as processes of their own.
pub(super) const MAX_PROCESSES: u32 = 256;

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

/// The Python that has torch: the one that is named, LOCKSTEP_PYTHON, else python3.
pub(crate) fn python(named: Option<PathBuf>) -> PathBuf {
    let known = named.or_else(|| std::env::var_os("LOCKSTEP_PYTHON").map(PathBuf::from));
    known.unwrap_or_else(|| PathBuf::from("python3"))
}

/// One run of the recorder: the ranks of a world that it records.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub(super) world_size: u32,
    pub(super) ranks_per_node: u32,
    pub(super) ranks: &'a [u32],
    /// By rank, the recorded rank that stands for it; absent if all are recorded.
    pub(super) plays: Option<&'a [u32]>,
    pub(super) steps: Option<u32>,
    /// True if only the groups are looked for: the script's output is not shown.
    pub(super) looks: bool,
}

/// Rates that operators reach.
#[derive(Serialize)]
struct CardRates {
    /// Floating point operations a second by element type.
    flops: BTreeMap<String, f64>,
    bytes_per_s: f64,
    launch_ns: f64,
}

/// The argument with which `torch.distributed.launch` passes the local rank, in PyTorch 1's spelling if the
/// script knows only that one.
fn local_rank_argument(launch: &Launch) -> Option<&'static str> {
    let text = std::fs::read_to_string(&launch.script).unwrap_or_default();
    let old = text.contains("--local_rank") && !text.contains("--local-rank");
    launch.local_rank_argument.then_some(if old { "--local_rank" } else { "--local-rank" })
}

/// Runs the script as some ranks of a world.
pub(super) fn record(arguments: &Arguments, launch: &Launch, pass: Pass<'_>) -> Result<Noted> {
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
    let python = python(arguments.python.clone());
    let stdout = match arguments.json {
        true => Stdio::from(std::io::stderr()),
        false => Stdio::inherit(),
    };
    let mut command = Command::new(&python);
    command
        .arg(&recorder)
        .envs(&launch.environment)
        .env("LOCKSTEP_HUB", &socket)
        .env("LOCKSTEP_RECORD", serde_json::to_string(&options)?)
        .stdin(Stdio::null())
        .stdout(stdout);
    let mut recorder = ChildGroup::spawn(&mut command).with_context(|| {
        format!("cannot start {}: name a Python with torch by --python", python.display())
    })?;
    let patience = Duration::from_secs(arguments.patience.max(1));
    hub.serve(pass.ranks, patience, &cancelled, || Ok(recorder.child.try_wait()?.is_none()))
}
