//! Repairs of recordings, tried in the simulator.

use super::open::simulate;
use super::session::Held;
use super::slices::Slices;
use lockstep_core::plan::Plan;
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::{Report, diagnose};
use lockstep_replay::{RecordingEnd, recover, repair};
use lockstep_sim::Topology;
use lockstep_web_protocol::{Opened, Repaired, Response, SessionId};

/// Recordings with more calls are repaired on the command line: a repair is simulated as a whole.
const MOST_CALLS: usize = 200_000;

/// A repair that was tried: its sentences, and the plan that is to be shown.
pub(super) struct Tried {
    change: String,
    verified: bool,
    why: String,
    assumed: Vec<String>,
    pub(super) plan: Plan,
}

/// The repair of a recording's first finding.
pub(super) fn tried(held: &Held) -> Result<Tried, String> {
    let log: &CallLog = held.log.as_ref().ok_or("the recording is not complete yet")?;
    let calls: usize = log.logs().map(|(_, own)| own.calls.len()).sum();
    if calls > MOST_CALLS {
        return Err(format!(
            "This recording has {calls} calls; the page repairs up to {MOST_CALLS}. `lockstep repair` on the \
             command line takes any."
        ));
    }
    let report: Report = held.report.clone().unwrap_or_else(|| diagnose(log));
    let recovered =
        recover("replay", log, RecordingEnd::of(&report)).map_err(|why| why.to_string())?;
    let repair = repair(&recovered, &report)?;
    Ok(Tried {
        change: repair.change.words(),
        verified: repair.verified,
        why: repair.why,
        assumed: recovered.assumed.iter().map(ToString::to_string).collect(),
        plan: repair.plan,
    })
}

/// The repaired job, simulated and held to be shown; its plan as JSON.
pub(super) async fn shown(
    session: SessionId,
    tried: Tried,
    slices: Slices,
) -> Result<(Held, Response, Vec<u8>), String> {
    let Tried { change, verified, why, assumed, plan } = tried;
    let topology = Topology::of_ranks_per_node(plan.ranks_per_node);
    let (held, opened) = simulate(session, &plan, topology, None, slices).await?;
    let Response::Opened(opened) = opened else {
        return Err("the repaired plan was not simulated".to_owned());
    };
    let opened: Opened = *opened;
    let repaired = Repaired { change, verified, why, assumed, opened };
    Ok((held, Response::Repaired(Box::new(repaired)), plan.to_json().into_bytes()))
}
