//! Repairs of recordings, tried in the simulator.

use super::open::simulate;
use super::replayed::recovered;
use super::session::Held;
use super::slices::Slices;
use lockstep_core::plan::Plan;
use lockstep_replay::repair;
use lockstep_sim::Topology;
use lockstep_web_protocol::{Opened, Repaired, Response, SessionId};

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
    let (recovered, report) = recovered(held)?;
    let repair = repair(&recovered, &report, 0).map_err(|why| why.to_string())?;
    Ok(Tried {
        change: repair.tried.change.words(),
        verified: repair.tried.verified,
        why: repair.tried.why,
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
    let (held, opened) = simulate(session, &plan, topology.into(), None, slices).await?;
    let Response::Opened(opened) = opened else {
        return Err("the repaired plan was not simulated".to_owned());
    };
    let opened: Opened = *opened;
    let repaired = Repaired { change, verified, why, assumed, opened };
    Ok((held, Response::Repaired(Box::new(repaired)), plan.to_json().into_bytes()))
}
