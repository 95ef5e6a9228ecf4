//! A plan simulated in the worker, and what it looks like at a moment.

use crate::app::use_shared;
use crate::playback::{Act, Playback};
use crate::route::Route;
use crate::turns::use_turns;
use lockstep_core::plan::Plan;
use lockstep_sim::{Order, View};
use lockstep_web_protocol::{
    CANCELLED, Machine, Opened, Progress, Reached, Request, Response, SessionId, SessionQuestion,
};
use std::collections::VecDeque;
use std::rc::Rc;
use yew::prelude::*;

/// A simulation on its way.
#[derive(Clone, PartialEq)]
pub(super) enum Simulated {
    Loading { progress: String },
    Ready(Rc<Opened>),
    Failed { why: String },
}

impl Simulated {
    /// The simulation, once it is there.
    pub(super) fn ready(&self) -> Option<&Rc<Opened>> {
        match self {
            Simulated::Ready(opened) => Some(opened),
            Simulated::Loading { .. } | Simulated::Failed { .. } => None,
        }
    }
}

/// Simulates `plan` whenever it changes. The one before stays until the new one is there.
#[hook]
pub(super) fn use_simulation(plan: &Result<Rc<Plan>, String>, machine: Machine) -> Simulated {
    use_ordered_simulation(plan, machine, None)
}

/// The same in an order of what the plan leaves open; `None` for the simulator's own.
#[hook]
pub(super) fn use_ordered_simulation(
    plan: &Result<Rc<Plan>, String>,
    machine: Machine,
    order: Option<Order>,
) -> Simulated {
    let client = use_shared().client;
    let state = use_state(|| Simulated::Loading { progress: String::new() });
    let set = state.setter();
    let turns = use_turns();
    use_effect_with((plan.clone(), machine, order), move |(plan, machine, order)| {
        // An answer to the plan before may be on its way.
        let turn = turns.next();
        let mut held = None;
        match plan {
            Err(why) => set.set(Simulated::Failed { why: why.clone() }),
            Ok(plan) => {
                let kept = client.new_session();
                let session = kept.id();
                let plan = Box::new((**plan).clone());
                let (machine, order) = (*machine, order.clone());
                let request = Request::Simulate { session, plan, machine, order };
                let progress: Progress = {
                    let (set, turn) = (set.clone(), turn.clone());
                    Rc::new(move |Reached { done, what, .. }| {
                        if turn.counts() {
                            set.set(Simulated::Loading { progress: format!("{done} {what}") });
                        }
                    })
                };
                let (asked, answer) = client.ask_with(request, &[], Some(progress));
                let opening = kept.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    let answered = answer.await.map(|answered| answered.response);
                    drop(opening);
                    match answered {
                        _ if !turn.counts() => {}
                        Ok(Response::Opened(opened)) => set.set(Simulated::Ready(Rc::new(*opened))),
                        Ok(_) => {}
                        Err(why) if why == CANCELLED => {}
                        Err(why) => set.set(Simulated::Failed { why }),
                    }
                });
                held = Some((asked, kept));
            }
        }
        move || {
            turns.end();
            drop(held);
        }
    });
    (*state).clone()
}

/// The state of the simulation at a moment; the last view until the next one has come.
#[hook]
pub(super) fn use_view(session: Option<SessionId>, moment: usize) -> Option<Rc<View>> {
    let client = use_shared().client;
    let view = use_state(|| None::<(SessionId, Rc<View>)>);
    {
        let view = view.setter();
        use_effect_with((session, moment), move |&(session, moment)| {
            let asked = session.map(|session| {
                let (asked, answer) =
                    client.ask_with(SessionQuestion::See { moment }.about(session), &[], None);
                wasm_bindgen_futures::spawn_local(async move {
                    if let Ok(answered) = answer.await
                        && let Response::Seen(seen) = answered.response
                    {
                        view.set(Some((session, Rc::new(*seen))));
                    }
                });
                asked
            });
            move || drop(asked)
        });
    }
    let (of, seen) = (*view).clone()?;
    (Some(of) == session).then_some(seen)
}

/// When each step of a simulation's only call begins, and when all is over.
#[hook]
pub(super) fn use_step_times(session: Option<SessionId>) -> Option<Rc<Vec<u64>>> {
    let client = use_shared().client;
    let times = use_state(|| None::<(SessionId, Rc<Vec<u64>>)>);
    {
        let times = times.setter();
        use_effect_with(session, move |&session| {
            let asked = session.map(|session| {
                let (asked, answer) =
                    client.ask_with(SessionQuestion::StepTimes.about(session), &[], None);
                wasm_bindgen_futures::spawn_local(async move {
                    if let Ok(answered) = answer.await
                        && let Response::StepTimes(found) = answered.response
                    {
                        times.set(Some((session, Rc::new(found))));
                    }
                });
                asked
            });
            move || drop(asked)
        });
    }
    let (of, found) = (*times).clone()?;
    (Some(of) == session).then_some(found)
}

/// Moments that can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addressed {
    /// A number that changes with what is played.
    pub(super) of: u64,
    pub(super) last: usize,
}

impl Addressed {
    /// The moments of a simulation.
    pub(super) fn of(opened: Option<&Rc<Opened>>) -> Option<Addressed> {
        opened.map(|opened| Addressed {
            of: opened.session.0.into(),
            last: opened.moments.len().saturating_sub(1),
        })
    }
}

/// The address of what is shown, without its moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Base {
    pub(super) of: Route,
    /// Other parameters, which keep their values from the current address.
    pub(super) kept: &'static [&'static str],
}

impl From<Route> for Base {
    fn from(of: Route) -> Base {
        Base { of, kept: &[] }
    }
}

impl Base {
    /// The base with the kept parameters of the current address.
    fn in_address(&self, now: &Route) -> Route {
        self.kept.iter().fold(self.of.clone(), |base, name| match now.get(name) {
            Some(value) => base.with(name, value),
            None => base,
        })
    }
}

/// Keeps the moment and the address in step: new moments begin where the address says (else at
/// `begin` of the last one), an address that was changed is followed, and a moment that was
/// reached is written into `base`, the address of what is shown.
#[hook]
pub(super) fn use_addressed_moment(
    playback: &UseReducerHandle<Playback>,
    moments: Option<Addressed>,
    base: Base,
    begin: fn(usize) -> usize,
) {
    let nav = use_shared().nav;
    let wanted = nav.route.number::<usize>("moment");
    {
        let dispatch = playback.dispatcher();
        use_effect_with(moments, move |moments| {
            if let Some(Addressed { of, last }) = *moments {
                let moment = wanted.unwrap_or(begin(last));
                dispatch.dispatch(Act::Load { of: Some(of), moment, last });
            }
        });
    }
    // Moments that were written into the address and have not been read back from it yet: an
    // address that only echoes them must not move the simulation, which may be further by then.
    let written = use_mut_ref(VecDeque::<usize>::new);
    {
        let (dispatch, moment, moving) =
            (playback.dispatcher(), playback.moment, playback.moving());
        let written = written.clone();
        use_effect_with(wanted, move |wanted| {
            let Some(wanted) = *wanted else { return };
            let mut written = written.borrow_mut();
            if let Some(echo) = written.iter().position(|moment| *moment == wanted) {
                written.drain(..=echo);
            } else if wanted != moment && !moving {
                dispatch.dispatch(Act::To(wanted));
            }
        });
    }
    // Not every frame: browsers limit how often an address may change. And only once the moment is
    // one of this simulation's: the one before left its own.
    let ready = moments.is_some() && playback.of == moments.map(|moments| moments.of);
    use_effect_with((playback.moment, playback.moving(), ready), move |(moment, moving, ready)| {
        let now = nav.now();
        let route = base.in_address(&now).with("moment", moment);
        // An address that has been changed since and not been read yet is not written over.
        if *ready && !moving && nav.is_here() && route != now {
            if wanted != Some(*moment) {
                written.borrow_mut().push_back(*moment);
            }
            nav.replace(route);
        }
    });
}
