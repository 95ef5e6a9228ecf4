//! Repairs of recordings, tried in the simulator.

use super::open::simulate;
use super::replayed::recovered;
use super::session::Held;
use super::slices::Slices;
use lockstep_core::plan::{Op, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;
use lockstep_replay::repair;
use lockstep_sim::Topology;
use lockstep_web_protocol::{Opened, Repaired, Response, SessionId};

/// A repair that was tried: its sentences, and the plan that is to be shown.
pub(super) struct Tried {
    change: String,
    verified: bool,
    why: String,
    assumed: Vec<String>,
    plan: Plan,
    /// The first operation of each changed rank that is another one than was recorded.
    changed: Vec<(GlobalRank, u32)>,
}

/// The first operation of each of some ranks that differs from one plan to the other.
fn first_changes(before: &Plan, after: &Plan, ranks: &[GlobalRank]) -> Vec<(GlobalRank, u32)> {
    fn ops(plan: &Plan, rank: GlobalRank) -> &[Op] {
        plan.program(rank).map_or(&[], |program| &program.ops)
    }
    let changed = |rank: GlobalRank| {
        let (before, after) = (ops(before, rank), ops(after, rank));
        let same = before.iter().zip(after).take_while(|(before, after)| before == after).count();
        (same < before.len().max(after.len())).then_some((rank, same as u32))
    };
    ranks.iter().copied().filter_map(changed).collect()
}

/// The repair of a recording's first finding.
pub(super) fn tried(held: &Held) -> Result<Tried, String> {
    let (recovered, report) = recovered(held)?;
    let log = held.log.as_ref().ok_or("the recording is not complete yet")?;
    let repair = repair((&recovered, log), &report, 0).map_err(|why| why.to_string())?;
    Ok(Tried {
        change: repair.tried.change.words(),
        verified: repair.tried.verified,
        why: repair.tried.why,
        assumed: recovered.assumed.iter().map(ToString::to_string).collect(),
        changed: first_changes(&recovered.plan, &repair.plan, &repair.tried.change.ranks),
        plan: repair.plan,
    })
}

/// The repaired job, simulated and held to be shown; its plan as JSON.
pub(super) async fn shown(
    session: SessionId,
    tried: Tried,
    slices: Slices,
) -> Result<(Held, Response, Vec<u8>), String> {
    let Tried { change, verified, why, assumed, plan, changed } = tried;
    let topology = Topology::of_ranks_per_node(plan.ranks_per_node);
    let (mut held, opened) = simulate(session, &plan, topology.into(), None, slices).await?;
    let Response::Opened(opened) = opened else {
        return Err("the repaired plan was not simulated".to_owned());
    };
    let mut opened: Opened = *opened;
    // Recordings have no other rows, and the two stand one above the other.
    held.lanes.show_calls_only();
    opened.lanes = held.lanes.rows().len() as u32;
    let call_from = |(rank, op): &(GlobalRank, u32)| {
        let from = |call: &&CallRecord| call.plan_op.is_some_and(|own| own >= *op);
        Some(held.mark(rank.0, held.calls_of(rank.0).iter().find(from)?))
    };
    let changed = changed.iter().filter_map(call_from).collect();
    let repaired = Repaired { change, verified, why, assumed, opened, changed };
    Ok((held, Response::Repaired(Box::new(repaired)), plan.to_json().into_bytes()))
}
