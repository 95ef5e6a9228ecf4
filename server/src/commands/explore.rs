//! `lockstep explore`: whether there is a way to run a plan in which it does not complete.

use super::describe;
use crate::exit_rule::ExitRule;
use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::{Found, LinkOptions, PlanArguments};
use crate::progress::Progress;
use crate::{terminal, trace_file};
use anyhow::Result;
use lockstep_core::plan::Plan;
use lockstep_core::plan::remark::STORE_GROUP;
use lockstep_core::words::counted;
use lockstep_diagnosis::{Report, diagnose_trace};
use lockstep_sim::explore::Verdict;
use lockstep_sim::{
    Bounds, Devices, Explored, Order, SimConfig, explore_watched, simulate, simulate_watched,
};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look for an order of what a plan leaves open in which it hangs
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    links: LinkOptions,
    /// What devices do with collectives of several NCCL groups; both are looked at if it is not said
    #[arg(long, value_enum)]
    devices: Option<DevicesArgument>,
    /// Give up after so many states
    #[arg(long, value_name = "N", default_value_t = Bounds::default().states)]
    states: usize,
    /// In which order choices are tried; 0 for the order in which they are listed
    #[arg(long, value_name = "N", default_value_t = 0)]
    search_seed: u64,
    /// Write the trace of a run that does not complete to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exit: ExitRule,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum DevicesArgument {
    /// They carry them out side by side
    SideBySide,
    /// They carry out one at a time, in any order
    OneAtATime,
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    searches: &'a [Explored],
    /// True if Ctrl-C ended the search: then these are the results so far.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a Report>,
    /// Parts of the program that were not followed.
    unseen: &'a [String],
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if let Some(path) = &arguments.output {
        arguments.overwrite.check(path, FileKind::Trace, &arguments.plan.paths())?;
    }
    let Found { plan, said, origin, .. } = arguments.plan.find(progress)?;
    said.tell(None);
    let keeps_nodes = arguments.plan.options.ranks_per_node.is_none();
    let config = arguments.links.config_again(&plan, origin.as_ref(), keeps_nodes)?;
    let devices = match arguments.devices {
        Some(DevicesArgument::SideBySide) => vec![Devices::SideBySide],
        Some(DevicesArgument::OneAtATime) => vec![Devices::OneAtATime],
        None => Devices::worth_exploring(&plan),
    };
    let mut searches = Vec::new();
    for devices in devices {
        let bounds = Bounds { devices, states: arguments.states, seed: arguments.search_seed };
        let mut stage = progress.stage("trying orders");
        let explored = explore_watched(&plan, &config, bounds, &mut stage)?;
        let fails = matches!(explored.verdict, Verdict::Fails { .. });
        searches.push(explored);
        if fails || progress.is_stopped() {
            break;
        }
    }
    let found = searches.iter().find_map(|explored| match &explored.verdict {
        Verdict::Fails { order, .. } => Some(order.clone()),
        Verdict::Completes | Verdict::Unknown => None,
    });
    let report = match found {
        Some(order) => {
            let config = SimConfig { order: Some(order), ..config };
            let trace = simulate(&plan, &config)?;
            if let Some(path) = &arguments.output {
                trace_file::write(path, &trace)?;
            }
            Some(diagnose_trace(&trace))
        }
        // Work that is to end now ends without it.
        None if progress.is_stopped() => None,
        // An order that completes may still have silent mistakes, such as tags that NCCL ignores.
        None => {
            let mut stage = progress.stage("simulating");
            let trace = simulate_watched(&plan, &config, &mut stage)?;
            Some(diagnose_trace(&trace)).filter(|it| !it.findings.is_empty())
        }
    };
    let unfollowed = lockstep_diagnosis::not_followed(&plan);
    let text = match arguments.json {
        true => {
            let schema = "lockstep.explore/1";
            let (findings, unseen) = (report.as_ref(), &unfollowed);
            let stopped = progress.is_stopped();
            let printed = Printed { schema, searches: &searches, stopped, findings, unseen };
            serde_json::to_string_pretty(&printed)? + "\n"
        }
        false => {
            let mut text = as_text(&plan, &searches, report.as_ref());
            if progress.is_stopped() {
                text.push_str(
                    "The search was stopped by Ctrl-C; that is what it found until then.\n",
                );
            }
            for unseen in unfollowed.iter().filter(|_| report.is_none()) {
                text.push_str(&format!("Inconclusive: {unseen}\n"));
            }
            text
        }
    };
    terminal::text(&text)?;
    let unknown = !unfollowed.is_empty()
        || searches.iter().any(|explored| explored.verdict == Verdict::Unknown);
    Ok(ExitCode::from(match (report, unknown) {
        (Some(_), _) => 1,
        (None, true) => arguments.exit.code(lockstep_diagnosis::Verdict::Inconclusive),
        (None, false) => 0,
    }))
}

fn as_text(plan: &Plan, searches: &[Explored], report: Option<&Report>) -> String {
    let mut text = format!("{}\n", plan.name);
    for explored in searches {
        text.push_str(&told(explored, plan));
    }
    if let Some(report) = report {
        text.push_str(&report.to_text());
    }
    text
}

fn told(explored: &Explored, plan: &Plan) -> String {
    let bounds = explored.bounds;
    let within = format!(
        "{} entered of at most {}, seed {}",
        counted(explored.states as u64, "state"),
        bounds.states,
        bounds.seed
    );
    match &explored.verdict {
        Verdict::Completes => {
            // Programs are executed before: what a store has told one stays so.
            let stores = plan.groups.iter().any(|group| group.desc() == STORE_GROUP);
            let what = match stores {
                true => {
                    "completes in every order of its calls; who is first at a store was not varied"
                }
                false => "completes in every order",
            };
            format!("{}: {what} ({within}).\n", bounds.devices.words(plan))
        }
        Verdict::Unknown => format!(
            "{}: no order was found in which it does not complete, but not all were looked at \
             ({within}). --states looks at more, --search-seed at others.\n",
            bounds.devices.words(plan)
        ),
        Verdict::Fails { order, outcome, common } => format!(
            "{}: there is an order in which it does not complete: {} ({within}).\n{}{}",
            bounds.devices.words(plan),
            describe(Some(outcome)),
            chosen(order, plan),
            match order.choices.is_empty() {
                true => String::new(),
                false => format!("{}\n", common.words()),
            }
        ),
    }
}

/// The choices, one a line.
fn chosen(order: &Order, plan: &Plan) -> String {
    const MOST: usize = 40;
    let lines = order.choices.iter().zip(1..);
    let mut text: String = lines
        .take(MOST)
        .map(|(choice, number)| format!("  {number}. {}\n", choice.words(plan)))
        .collect();
    if order.choices.len() > MOST {
        text.push_str(&format!("  and {} more\n", order.choices.len() - MOST));
    }
    if order.choices.is_empty() {
        text.push_str("  nothing is left open: every run of it ends like this\n");
    }
    text
}
