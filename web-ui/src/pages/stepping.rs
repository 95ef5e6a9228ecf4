//! Stepping through a plan: its simulation, the moment that is shown, the rank that is looked at.

use super::simulation::{
    Addressed, Base, Simulated, use_addressed_moment, use_ordered_simulation, use_view,
};
use crate::playback::{Playback, seeking, use_playback};
use crate::route::Route;
use lockstep_core::plan::Plan;
use lockstep_sim::{Order, View};
use lockstep_web_protocol::{Machine, Opened, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// A plan that is being stepped through.
pub(super) struct Stepping {
    pub(super) simulated: Simulated,
    pub(super) playback: UseReducerHandle<Playback>,
    /// The state of the simulation at the moment.
    pub(super) view: Option<Rc<View>>,
    pub(super) time_ps: u64,
    /// Goes to the moment of a time.
    pub(super) seek: Callback<u64>,
    /// The rank that is looked at.
    pub(super) rank: u32,
    pub(super) select: Callback<u32>,
}

impl Stepping {
    /// The simulation, once it is there.
    pub(super) fn opened(&self) -> Option<&Rc<Opened>> {
        self.simulated.ready()
    }

    /// Its number.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.opened().map(|opened| opened.session)
    }
}

/// Simulates `plan` and steps through it; `base` is its address without the moment, `begin` the
/// moment of the last one at which an address without a moment begins.
#[hook]
pub(super) fn use_stepping(
    plan: &Result<Rc<Plan>, String>,
    machine: Machine,
    base: Route,
    begin: fn(usize) -> usize,
) -> Stepping {
    use_ordered_stepping(plan, machine, None, base.into(), begin)
}

/// The same in an order of what the plan leaves open; `None` for the simulator's own.
#[hook]
pub(super) fn use_ordered_stepping(
    plan: &Result<Rc<Plan>, String>,
    machine: Machine,
    order: Option<Order>,
    base: Base,
    begin: fn(usize) -> usize,
) -> Stepping {
    let simulated = use_ordered_simulation(plan, machine, order);
    let playback = use_playback();
    let opened = simulated.ready();
    use_addressed_moment(&playback, Addressed::of(opened), base, begin);
    let view = use_view(opened.map(|opened| opened.session), playback.moment);
    let moments = opened.map(|opened| opened.moments.clone()).unwrap_or_default();
    let time_ps = playback.time_ps(&moments);
    let seek = seeking(&playback, moments);
    let selected = use_state(|| 0u32);
    let select = {
        let selected = selected.setter();
        Callback::from(move |rank| selected.set(rank))
    };
    let last = plan.as_ref().map_or(0, |plan| plan.world_size.saturating_sub(1));
    let rank = (*selected).min(last);
    Stepping { simulated, playback, view, time_ps, seek, rank, select }
}
