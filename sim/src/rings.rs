//! Calls as a whole that not all ranks have begun: rings, and schedules whose ranks all do alike;
//! and the plans all of whose calls are such.

use super::call_time::is_mutual;
use super::config::SimConfig;
use super::prepared::Prepared;
use super::topology::Topology;
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::schedule::{Algorithm, Schedule};
use std::collections::BTreeMap;

/// Calls that not all ranks have begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    /// By sequence number and signature: per group rank, when it began.
    pub(crate) begun: BTreeMap<(u64, u32), Begun>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) at: Vec<Option<u64>>,
    pub(crate) ranks: u32,
}

/// True if ranks that begin together stay in lock step, and none is done before all have begun.
pub(crate) fn is_alike(schedule: &Schedule) -> bool {
    is_mutual(schedule.collective())
        && schedule.ranks_are_alike()
        && !schedule.cuts_by_bytes()
        && schedule.size() > 1
}

/// The rings that can be carried out as a whole.
pub(crate) fn is_ring(schedule: &Schedule) -> bool {
    let ring = matches!(
        schedule.collective(),
        Collective::AllReduce { .. } | Collective::AllGather | Collective::ReduceScatter { .. }
    );
    ring && schedule.algorithm() == Some(Algorithm::Ring)
        && schedule.channels() == 1
        && schedule.segments() == 1
        && schedule.size() > 1
}

impl Whole {
    /// `None` where a plan has to be simulated message by message.
    pub(crate) fn new(plan: &Plan, prepared: &Prepared, config: &SimConfig) -> Option<Whole> {
        // A rank that shares cores does not only wait for messages.
        let on_cores = matches!(config.topology, Topology::SharedMemory(_));
        if config.record_messages || prepared.values || on_cores {
            return None;
        }
        // A rank that dies or is stopped in the middle of a ring leaves it half done.
        if prepared.half_done {
            return None;
        }
        let ops = plan.programs.iter().flat_map(|program| &program.ops);
        let mut calls = ops.flat_map(|op| op.action.calls());
        let fits = calls.all(|call| {
            let Call::Collective { group: GroupId::WORLD, splits: None, .. } = call else {
                return false;
            };
            let Some(Ok(schedule)) = plan.schedule(call) else { return false };
            // A rank of a broadcast's tree hears from its parent alone.
            let tree = matches!(schedule.collective(), Collective::Broadcast { .. })
                && schedule.algorithm() == Some(Algorithm::Tree)
                && schedule.channels() == 1;
            tree || is_ring(&schedule) || is_alike(&schedule) || schedule.size() == 1
        });
        fits.then(Whole::default)
    }
}
