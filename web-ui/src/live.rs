//! A plan on its way through the server: started, watched while it runs, compared when it ends. And a
//! run that somebody else started, or this page before it was loaded again: watched.

use crate::app::use_shared;
use crate::server::{self, Events, Listeners, RunAsked};
use crate::turns::{Turn, use_turns};
use lockstep_core::plan::Plan;
use lockstep_sim::Comparison;
use lockstep_web_protocol::Client;
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{LiveCount, Opened, Request, Response, SessionId, SessionQuestion};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use yew::prelude::*;

/// The progress of a real run.
#[derive(Clone, PartialEq)]
pub(crate) enum Stage {
    Idle,
    Starting,
    /// `lost` while the connection is being made again.
    Running {
        id: String,
        session: Session,
        count: LiveCount,
        lost: bool,
    },
    Ended {
        id: String,
        /// Held for as long as its trace is shown.
        session: Session,
        opened: Rc<Opened>,
        comparison: Option<Comparison>,
    },
    Failed {
        why: String,
    },
}

/// A real run and what can be done with it.
#[derive(Clone, PartialEq)]
pub(crate) struct RealRunHandle {
    pub(crate) stage: Stage,
    start: Callback<(Rc<Plan>, Option<SessionId>, RunAsked)>,
    watch: Callback<(String, u32)>,
    clear: Callback<()>,
}

impl RealRunHandle {
    /// Runs `plan` with faults; without any it is compared with a simulation of it.
    pub(crate) fn start(&self, plan: Rc<Plan>, simulated: Option<SessionId>, asked: RunAsked) {
        self.start.emit((plan, simulated.filter(|_| asked.faults.is_empty()), asked));
    }

    /// Watches a run of the server's by its id, from its first event on; it has `world_size` ranks.
    pub(crate) fn watch(&self, id: String, world_size: u32) {
        self.watch.emit((id, world_size));
    }

    /// Tells the run on the server something: `pause`, `resume` or `dump`.
    pub(crate) fn tell(&self, what: &'static str) {
        if let Stage::Running { id, .. } = &self.stage {
            let id = id.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let _ = server::tell(&id, what).await;
            });
        }
    }

    /// Ends the run on the server; its events say so.
    pub(crate) fn cancel(&self) {
        if let Stage::Running { id, .. } = &self.stage {
            let id = id.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let _ = server::cancel(&id).await;
            });
        }
    }

    /// Forgets the run here; the server keeps it.
    pub(crate) fn clear(&self) {
        self.clear.emit(());
    }
}

/// One real run at a time.
#[hook]
pub(crate) fn use_real_run() -> RealRunHandle {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Idle);
    let events = use_mut_ref(|| None::<Events>);
    let turns = use_turns();
    {
        let (events, turns) = (events.clone(), turns.clone());
        use_effect_with((), move |()| {
            move || {
                turns.end();
                events.borrow_mut().take();
            }
        });
    }
    let begin = {
        let (stage, events, turns) = (stage.setter(), events.clone(), turns.clone());
        move || {
            let stage = Shown { stage: stage.clone(), turn: turns.next() };
            stage.set(Stage::Starting);
            Watcher { client: client.clone(), stage, events: events.clone() }
        }
    };
    let start = {
        let begin = begin.clone();
        Callback::from(move |(plan, simulated, asked): (Rc<Plan>, Option<SessionId>, RunAsked)| {
            let watcher = begin();
            wasm_bindgen_futures::spawn_local(async move {
                let watched = match server::start(&plan, &asked).await {
                    Ok(run) => watcher.watch(run.id, plan.world_size, simulated).await,
                    Err(why) => Err(why),
                };
                if let Err(why) = watched {
                    watcher.stage.set(Stage::Failed { why });
                }
            });
        })
    };
    let watch = Callback::from(move |(id, world_size): (String, u32)| {
        let watcher = begin();
        wasm_bindgen_futures::spawn_local(async move {
            if let Err(why) = watcher.watch(id, world_size, None).await {
                watcher.stage.set(Stage::Failed { why });
            }
        });
    });
    let clear = {
        let stage = stage.setter();
        Callback::from(move |()| {
            turns.end();
            events.borrow_mut().take();
            stage.set(Stage::Idle);
        })
    };
    RealRunHandle { stage: (*stage).clone(), start, watch, clear }
}

/// The place where a run is shown, for as long as it is the one that is.
#[derive(Clone)]
struct Shown {
    stage: UseStateSetter<Stage>,
    turn: Turn,
}

impl Shown {
    fn set(&self, stage: Stage) {
        if self.turn.counts() {
            self.stage.set(stage);
        }
    }
}

/// The watcher of one run.
struct Watcher {
    client: Client,
    stage: Shown,
    events: Rc<RefCell<Option<Events>>>,
}

impl Watcher {
    /// Shows a run as it goes on, and how it ended.
    ///
    /// # Errors
    /// When its events cannot be asked for.
    async fn watch(
        &self,
        id: String,
        world_size: u32,
        simulated: Option<SessionId>,
    ) -> Result<(), String> {
        let Watcher { client, stage, events } = self;
        let session = client.new_session();
        client.ask(Request::OpenLive { session: session.id() }).await?;
        let count = LiveCount { world_size, ..LiveCount::default() };
        let counted = Rc::new(Cell::new(count));
        stage.set(Stage::Running { id: id.clone(), session: session.clone(), count, lost: false });
        let bytes = {
            let (client, stage, id, counted) =
                (client.clone(), stage.clone(), id.clone(), counted.clone());
            let session = session.clone();
            move |buffer: js_sys::ArrayBuffer| {
                let request = SessionQuestion::Live.about(session.id());
                let (asked, answer) = client.ask_with(request, &[buffer.into()], None);
                let (stage, id, counted) = (stage.clone(), id.clone(), counted.clone());
                let session = session.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    let _asked = asked;
                    match answer.await.map(|answered| answered.response) {
                        Ok(Response::Live(count)) => {
                            counted.set(count);
                            stage.set(Stage::Running { id, session, count, lost: false });
                        }
                        Ok(_) => {}
                        Err(why) => stage.set(Stage::Failed { why }),
                    }
                });
            }
        };
        let lost = {
            let (stage, id, session) = (stage.clone(), id.clone(), session.clone());
            move || {
                let (id, count, session) = (id.clone(), counted.get(), session.clone());
                stage.set(Stage::Running { id, session, count, lost: true });
            }
        };
        let closed = {
            let (client, stage, id) = (client.clone(), stage.clone(), id.clone());
            move || {
                let (client, stage, id) = (client.clone(), stage.clone(), id.clone());
                let session = session.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    stage.set(match settle(&client, session.id(), simulated).await {
                        Ok((opened, comparison)) => {
                            Stage::Ended { id, session, opened, comparison }
                        }
                        Err(why) => Stage::Failed { why },
                    });
                });
            }
        };
        let listeners =
            Listeners { bytes: Box::new(bytes), lost: Box::new(lost), closed: Box::new(closed) };
        if stage.turn.counts() {
            *events.borrow_mut() = Some(Events::of(&id, listeners)?);
        }
        Ok(())
    }
}

/// The account of a run whose events have all come, and how its values compare.
pub(crate) async fn settle(
    client: &Client,
    session: SessionId,
    simulated: Option<SessionId>,
) -> Result<(Rc<Opened>, Option<Comparison>), String> {
    let Response::Opened(opened) =
        client.ask(SessionQuestion::Settle.about(session)).await?.response
    else {
        return Err("the worker answered something else".to_owned());
    };
    let mut comparison = None;
    if let Some(simulated) = simulated {
        // Another plan may have been chosen meanwhile: then there is nothing to compare with.
        let compared = client.ask(Request::Compare { simulated, run: session }).await;
        if let Ok(Response::Compared(found)) = compared.map(|answered| answered.response) {
            comparison = Some(found);
        }
    }
    Ok((Rc::new(*opened), comparison))
}
