//! `lockstep record`: the user's own PyTorch runs a training script as every rank of a job, and its calls become a
//! plan. No GPU, no peers and no network are needed.

mod arguments;
mod by_roles;
mod hub;
mod launch;
mod pass;

pub(crate) use arguments::Arguments;
pub(crate) use pass::python;

use crate::output_file::{FileKind, write_plan};
use crate::terminal;
use anyhow::{Context, Result, bail};
use arguments::Recorded;
use hub::{Cut, Noted};
use launch::Launch;
use lockstep_core::rank::MAX_WORLD_SIZE;
use lockstep_core::words::rank_list;
use lockstep_core::{plan::Plan, rank::GlobalRank};
use lockstep_replay::script::{
    Roles, ScriptEvent, ScriptPlan, WorkTime, plan_of_roles, plan_of_script,
};
use pass::{MAX_PROCESSES, Pass, RECORDER, record};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files of a script past this are kept by name only.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// More files of a script are kept by name only.
const MAX_TEXTS: usize = 500;

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    script: &'a str,
    world_size: u32,
    plan: &'a Path,
    /// The recorder's assumptions, a clause each.
    assumed: &'a [String],
    /// Why the recording stopped before the script's end.
    cut: Option<String>,
    ranks: Vec<RecordedRank>,
    /// The ranks that were not recorded, and whose calls they have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<by_roles::PrintedRole>,
}

/// One rank in numbers.
#[derive(Serialize)]
struct RecordedRank {
    rank: u32,
    calls: u64,
    steps: u64,
    /// The exception's last line, if it ended by one.
    raised: Option<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.print_recorder {
        terminal::print(RECORDER.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.with_parent {
        set_parent_process_death_signal(Some(Signal::INT)).context("cannot watch the parent")?;
    }
    let launch = Launch::parse(&arguments.script)?;
    let (world_size, ranks_per_node) = sizes(&arguments, &launch)?;
    if launch.folder().is_some() && !Path::new(&launch.script).is_file() {
        bail!("cannot read {}: there is no such file", launch.script);
    }
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&launch));
    let script = PathBuf::from(&launch.script);
    arguments.overwrite.check(&output, FileKind::Plan, &[&script])?;

    let world = (world_size, ranks_per_node);
    let (noted, roles) = match arguments.ranks {
        Recorded::All => (record_all(&arguments, &launch, world)?, None),
        Recorded::Roles => {
            let (noted, roles) = by_roles::record(&arguments, &launch, world)?;
            (noted, Some(roles))
        }
    };
    let time = match arguments.card.as_str() {
        "measured" => WorkTime::Measured,
        _ => WorkTime::OnCard,
    };
    let name = file_name(&launch.script);
    if let Some(path) = &arguments.notes {
        write_notes(path, &noted)?;
    }
    let events: Vec<Vec<ScriptEvent>> = noted.events.values().cloned().collect();
    if !events.iter().flatten().any(|event| matches!(event, ScriptEvent::Call { .. })) {
        bail!("{}", without_calls(&launch.script, &events));
    }
    let texts = texts_of(&noted);
    let recorded = match &roles {
        Some(roles) => plan_of_roles(&name, ranks_per_node, &noted.events, roles, &texts, time),
        None => plan_of_script(&name, ranks_per_node, &events, &texts, time),
    }
    .context("what was recorded makes no plan")?;
    write_plan(&output, &recorded.plan)?;
    let ranks: Vec<RecordedRank> =
        noted.events.iter().map(|(rank, own)| in_numbers(*rank, own)).collect();
    let raised = ranks.iter().any(|rank| rank.raised.is_some());
    match arguments.json {
        true => {
            let printed = Printed {
                schema: "lockstep.record/1",
                script: &launch.script,
                world_size,
                plan: &output,
                assumed: &recorded.assumed,
                cut: noted.cut.map(|cut| cut.to_string()),
                ranks,
                roles: roles.as_ref().map(by_roles::printed).unwrap_or_default(),
            };
            terminal::text(&(serde_json::to_string_pretty(&printed)? + "\n"))?;
        }
        false => {
            terminal::text(&summary(&launch, &noted, &recorded, (&ranks, roles.as_ref()), &output))?
        }
    }
    Ok(ExitCode::from(match noted.cut {
        Some(Cut::Cancelled) => 130,
        cut => u8::from(raised || cut.is_some()),
    }))
}

fn write_notes(path: &Path, noted: &Noted) -> Result<()> {
    let mut text = String::new();
    for (rank, own) in &noted.events {
        for event in own {
            text.push_str(&serde_json::to_string(
                &serde_json::json!({"rank": rank, "event": event}),
            )?);
            text.push('\n');
        }
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// World size and ranks a node.
fn sizes(arguments: &Arguments, launch: &Launch) -> Result<(u32, u32)> {
    let per_node = arguments.ranks_per_node.or(launch.ranks_per_node);
    let launched =
        launch.ranks_per_node.map(|ranks| ranks.saturating_mul(launch.nodes.unwrap_or(1)));
    let Some(world_size) = arguments.world_size.or(launch.world_size).or(launched) else {
        bail!("say how many ranks the job has: lockstep record --world-size 8 -- {}", launch.script)
    };
    if world_size == 0 || world_size > MAX_WORLD_SIZE {
        bail!("{world_size} ranks cannot be recorded: give 1 to {MAX_WORLD_SIZE}");
    }
    if world_size > MAX_PROCESSES && arguments.ranks == Recorded::All {
        bail!(
            "{world_size} ranks cannot be recorded one by one: give 1 to {MAX_PROCESSES}, each is a process, or \
             record one of each role: --ranks roles"
        );
    }
    match per_node {
        Some(0) => bail!("--ranks-per-node 0: a node has at least one rank"),
        Some(ranks) => Ok((world_size, ranks.min(world_size))),
        None => Ok((world_size, world_size.div_ceil(launch.nodes.unwrap_or(1).max(1)))),
    }
}

fn default_output(launch: &Launch) -> PathBuf {
    let name = file_name(&launch.script);
    let stem = match launch.code {
        Some(_) => "program",
        None => name.strip_suffix(".py").unwrap_or(&name),
    };
    PathBuf::from(format!("{stem}.plan.json"))
}

fn file_name(script: &str) -> String {
    script.rsplit('/').next().unwrap_or(script).to_owned()
}

/// Runs the script as all its ranks.
fn record_all(
    arguments: &Arguments,
    launch: &Launch,
    (world_size, ranks_per_node): (u32, u32),
) -> Result<Noted> {
    let ranks: Vec<u32> = (0..world_size).collect();
    let (plays, steps, looks) = (None, arguments.steps, false);
    let pass = Pass { world_size, ranks_per_node, ranks: &ranks, plays, steps, looks };
    record(arguments, launch, pass)
}

/// The reason that a recording holds no calls.
fn without_calls(script: &str, events: &[Vec<ScriptEvent>]) -> String {
    let ended = events.iter().flatten().find_map(|event| match event {
        ScriptEvent::End { how: Some(how), traceback, .. } => Some((how, traceback)),
        _ => None,
    });
    match ended {
        Some((how, traceback)) if !traceback.is_empty() => {
            format!(
                "{script} raised before its first call of torch.distributed:\n{}",
                traceback.trim_end()
            )
            .replace('\r', "")
                + if how.contains("No module named") {
                    "\nInstall what it imports beside torch."
                } else {
                    ""
                }
        }
        Some((how, _)) => {
            format!("{script} ended before its first call of torch.distributed: {how}")
        }
        None if events.iter().all(Vec::is_empty) => {
            format!("the recorder ended before {script} began: see its message above")
        }
        None => format!("{script} makes no call of torch.distributed"),
    }
}

/// The texts of the user's own files in which calls are made, by the names that places use.
fn texts_of(noted: &Noted) -> BTreeMap<String, String> {
    let names: BTreeSet<&String> = noted
        .events
        .values()
        .flatten()
        .filter_map(|event| match event {
            ScriptEvent::Call { at: Some((file, _)), .. }
            | ScriptEvent::End { at: Some((file, _)), .. } => Some(file),
            _ => None,
        })
        .collect();
    let text = |name: &String| {
        let path = noted.sources.get(name)?;
        let small = std::fs::metadata(path).is_ok_and(|file| file.len() <= MAX_TEXT_BYTES);
        small.then(|| std::fs::read_to_string(path).ok()).flatten()
    };
    names.into_iter().take(MAX_TEXTS).filter_map(|name| Some((name.clone(), text(name)?))).collect()
}

fn in_numbers(rank: u32, events: &[ScriptEvent]) -> RecordedRank {
    let calls = events.iter().filter(|event| matches!(event, ScriptEvent::Call { .. })).count();
    let steps = events.iter().filter(|event| matches!(event, ScriptEvent::Step)).count();
    let raised = events.iter().find_map(|event| match event {
        ScriptEvent::End { how, .. } => how.clone(),
        _ => None,
    });
    RecordedRank { rank, calls: calls as u64, steps: steps as u64, raised }
}

/// The summary for people.
fn summary(
    launch: &Launch,
    noted: &Noted,
    recorded: &ScriptPlan,
    (ranks, roles): (&[RecordedRank], Option<&Roles>),
    output: &Path,
) -> String {
    let copies = roles.map(Roles::copies).unwrap_or_default();
    let stands_for = |rank: &RecordedRank| 1 + copies.get(&rank.rank).map_or(0, Vec::len) as u64;
    let calls: u64 = ranks.iter().map(|rank| rank.calls * stands_for(rank)).sum();
    let steps = ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
    let mut text = format!(
        "recorded  {} on {} ranks: {calls} calls in {} groups, {steps} optimizer steps\n",
        launch.script,
        recorded.plan.world_size,
        recorded.plan.groups.len(),
    );
    for role in roles.map(by_roles::printed).unwrap_or_default() {
        text.push_str(&format!("by roles  {role}\n"));
    }
    text.push_str(&format!("calls     {}\n", kinds_of(&recorded.plan)));
    let mut ends: BTreeMap<&str, Vec<GlobalRank>> = BTreeMap::new();
    for rank in ranks {
        if let Some(raised) = &rank.raised {
            ends.entry(raised).or_default().push(GlobalRank(rank.rank));
        }
    }
    for (raised, who) in &ends {
        text.push_str(&format!("raised    {}: {raised}\n", rank_list(who)));
    }
    let traceback = noted.events.values().flatten().find_map(|event| match event {
        ScriptEvent::End { traceback, .. } if !traceback.is_empty() => Some(traceback),
        _ => None,
    });
    for line in traceback.into_iter().flat_map(|traceback| traceback.lines()) {
        text.push_str(&format!("          {line}\n"));
    }
    for assumed in &recorded.assumed {
        text.push_str(&format!("assumed   {assumed}\n"));
    }
    if let Some(cut) = &noted.cut {
        text.push_str(&format!("cut off   {cut}\n"));
    }
    let shown = output.display();
    text.push_str(&format!("plan      {shown} (next: lockstep sim {shown})\n"));
    text
}

/// The number of times each call is made, all ranks together: `all_reduce 24, broadcast 12`.
fn kinds_of(plan: &Plan) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for program in &plan.program_of {
        let ops = plan.programs.get(*program as usize).map_or(&[][..], |program| &program.ops);
        for call in ops.iter().flat_map(|op| op.action.calls()) {
            *kinds.entry(call.name()).or_default() += 1;
        }
    }
    let mut kinds: Vec<(&str, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    kinds.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}
