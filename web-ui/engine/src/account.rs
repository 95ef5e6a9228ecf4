//! Accounts: what an algorithm does and costs, counted and simulated a slice at a time.

use super::slices::Slices;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Algorithm, Layout, Rounds, Schedule, Tally};
use lockstep_sim::{Cost, Topology, cost};
use lockstep_web_protocol::{Account, Explanation, Response, Stroke, Weave};

/// More ranks than this are not asked for by the page; one rank's walk and one simulation are
/// each done without giving way.
const MAX_WORLD_SIZE: u32 = 256;

/// The cost of `lab` on `topology`.
pub(super) async fn account(
    lab: CollectiveLab,
    topology: Topology,
    slices: Slices,
) -> Result<Response, String> {
    let plan = plan_of(&lab, topology)?;
    let size = lab.world_size;
    let schedule = lab.schedule(plan.ranks_per_node).map_err(|error| error.to_string())?;
    let layout = Layout::new(schedule.clone(), lab.count, lab.dtype.size_bytes());
    let (mut tally, mut rounds) = (Tally::default(), Rounds::default());
    let participants = || (0..schedule.participants()).map(GroupRank);
    for rank in participants() {
        tally.add(&layout.tally_of(rank), rank.0 >= size);
        rounds.add(&schedule, rank);
        slices.give_way(u64::from(rank.0), u64::from(size), "ranks counted").await?;
    }
    let mut across_elements = 0u64;
    let steps = rounds.count();
    let ranks = schedule.participants();
    let switches = ranks.saturating_sub(size);
    let mut weave = Weave { ranks, switches, steps, ..Weave::default() };
    weave.shown = shown(steps);
    let mut actions = Vec::new();
    for rank in participants() {
        for (round, step) in (0..).zip(rounds.steps()) {
            let column = weave.shown.binary_search(&round).ok();
            schedule.actions(rank, step, &mut actions);
            for action in &actions {
                let (peer, into, reduces) = match *action {
                    Action::Receive { peer, into } => (peer, into, false),
                    Action::ReceiveReduce { peer, into, .. } => (peer, into, true),
                    _ => continue,
                };
                let across = is_across(&schedule, topology, peer, rank);
                if across {
                    across_elements = across_elements.saturating_add(layout.elements(rank, into));
                }
                if let Some(column) = column {
                    let (column, from, to) = (column as u8, peer.0, rank.0);
                    weave.strokes.push(Stroke { column, from, to, reduces, across });
                }
            }
        }
        slices.give_way(u64::from(rank.0), u64::from(size), "ranks drawn").await?;
    }
    let cost = Cost::of(&plan, topology).map_err(|error| error.to_string())?;
    let (steps_inside, segments) = (rounds.inside(), schedule.segments());
    let explanation = Explanation::new(&lab.algorithm.explained(lab.collective), size);
    let account =
        Account { steps, steps_inside, segments, tally, across_elements, cost, weave, explanation };
    Ok(Response::Accounted(Box::new(account)))
}

/// The time of `lab` on `topology` for each of `counts`.
pub(super) async fn sweep(
    lab: CollectiveLab,
    topology: Topology,
    counts: &[u64],
    slices: Slices,
) -> Result<Response, String> {
    let mut times = Vec::with_capacity(counts.len());
    for (done, count) in counts.iter().enumerate() {
        let plan = plan_of(&CollectiveLab { count: *count, ..lab }, topology)?;
        times.push(cost::time_ps(&plan, topology).map_err(|error| error.to_string())?);
        slices.give_way(done as u64, counts.len() as u64, "sizes simulated").await?;
    }
    Ok(Response::Swept(times))
}

fn plan_of(lab: &CollectiveLab, topology: Topology) -> Result<Plan, String> {
    if lab.world_size > MAX_WORLD_SIZE {
        return Err(format!(
            "the page accounts for up to {MAX_WORLD_SIZE} ranks, not {}",
            lab.world_size
        ));
    }
    let plan = lab.plan().map_err(|error| error.to_string())?;
    Ok(Plan { ranks_per_node: topology.ranks_per_node(), ..plan })
}

/// The first and the last of many steps; all of few.
fn shown(steps: u32) -> Vec<u32> {
    let half = Weave::MAX_COLUMNS / 2;
    match steps <= Weave::MAX_COLUMNS {
        true => (0..steps).collect(),
        false => (0..half).chain(steps - half..steps).collect(),
    }
}

/// True if a message goes through the network between nodes. A switch is part of that network unless
/// it is inside a node, as NVLink's is.
fn is_across(schedule: &Schedule, topology: Topology, from: GroupRank, to: GroupRank) -> bool {
    let node = |rank: GroupRank| rank.0.checked_div(topology.ranks_per_node());
    match from.0.max(to.0) >= schedule.size() {
        true => {
            let inside = schedule.algorithm().is_some_and(Algorithm::has_switches_inside_nodes);
            topology.ranks_per_node() > 0 && !inside
        }
        false => node(from) != node(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_steps_are_shown_by_their_ends() {
        assert_eq!(shown(3), [0, 1, 2]);
        let ends = shown(126);
        assert_eq!(ends.len() as u32, Weave::MAX_COLUMNS);
        assert_eq!((ends[0], ends[6], ends[7], ends[13]), (0, 6, 119, 125));
    }
}
