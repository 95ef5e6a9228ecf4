//! The processes of ranks that others start, from their meeting to the end of the run.

use super::carrier::Carrier;
use super::launched::{self, Farewell, Launch, Meeting, rendezvous};
use super::launcher::RankLauncher;
use super::rank::{Alone, KeepDump, serve_joined};
use super::start::{injected, start_with};
use crate::{RunError, RunHandle, RunOptions};
use lockstep_core::plan::Plan;
use std::process::ExitCode;

/// Rank 0's process: gathers the other ranks and starts the run. Returns once all have joined. Until
/// `farewell` is dropped, ranks that fail do not end: their launcher would end this process with them.
///
/// # Errors
/// When the store cannot be used, ranks do not come, or the plan cannot be run.
pub fn lead(
    launch: &Launch,
    launcher: RankLauncher,
    plan: Plan,
    options: RunOptions,
    farewell: &Farewell,
) -> Result<RunHandle, RunError> {
    if plan.world_size != launch.world_size {
        return Err(wrong_world(launch, &plan));
    }
    let timeout = options.join_timeout;
    let injected = injected(&plan, &options, &Carrier::Host, true)?;
    let meeting = match &launch.file {
        None => Meeting::open(launch, &injected.plan, timeout)?,
        Some(path) => rendezvous::open(path, launch, &injected.plan, timeout)?,
    };
    let meeting = meeting.with_farewell(farewell.clone());
    start_with(launcher, injected, options, Carrier::Host, Some(meeting))
}

/// Any other rank's process: joins rank 0's and carries its program out. Returns when the run has ended. A
/// rank that gets the order to end early ends the process, and so does one that loses rank 0, after `keep`,
/// if given, got the flight recorder's dump: rank 0 has it in all other cases.
///
/// # Errors
/// When the run cannot be joined. Rank 0 reports later failures, which end in a failing exit code here.
pub fn join(
    launch: &Launch,
    plan: &Plan,
    options: &RunOptions,
    keep: Option<KeepDump>,
) -> Result<ExitCode, RunError> {
    if plan.world_size != launch.world_size {
        return Err(wrong_world(launch, plan));
    }
    // Plans that rank 0 will refuse are refused here, which saves a long wait. With its faults the plan is
    // another one: ranks that were not all given them do not meet.
    let plan = &injected(plan, options, &Carrier::Host, true)?.plan;
    let timeout = options.join_timeout;
    let (line, take_away) = match &launch.file {
        None => (launched::attend(launch, plan, timeout)?, None),
        Some(path) => {
            let (line, take_away) = rendezvous::attend(path, launch, plan, timeout)?;
            (line, Some(take_away))
        }
    };
    Ok(serve_joined(line, Alone::new(launch.rank, keep, take_away)))
}

fn wrong_world(launch: &Launch, plan: &Plan) -> RunError {
    RunError::WrongWorld { launched: launch.world_size, planned: plan.world_size }
}
