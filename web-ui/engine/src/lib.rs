//! The page's worker: holds simulations, runs and recordings, and answers the page's questions. A
//! module of its own, started by `assets/engine.js`.
//!
//! Every question is a task of its own; long ones give way every few milliseconds, so that a
//! question about one session is answered while another is still being read, and so that a
//! cancelled one ends.

mod account;
mod analysis;
mod answers;
mod class;
mod cluster;
mod ddp;
mod export;
mod fabric;
mod file;
mod find;
mod lanes;
mod links;
mod log_lines;
mod machine;
mod measure;
mod measured;
mod mesh;
mod open;
mod planned_call;
mod questions;
mod raster;
mod readers;
mod repair;
mod replayed;
mod schedule_file;
mod session;
mod slices;
mod stops;
mod texts;

pub use ddp::ddp_account;
pub use machine::config as machine_config;
pub use mesh::{laid_out, mesh_account};

use lockstep_core::plan::Plan;
use lockstep_torch::ddp::lab::LabModel;
use lockstep_torch::ddp::model::Model;
use lockstep_web_protocol::browser;
use lockstep_web_protocol::{
    Form, Hang, KindExplanation, ModelRef, Question, Request, Response, SessionId, unpack,
};
use questions::{Attached, Questions, post};
use session::Held;
use slices::Slices;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen::prelude::{Closure, wasm_bindgen};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

#[derive(Default)]
pub(crate) struct State {
    sessions: BTreeMap<SessionId, Held>,
    models: BTreeMap<SessionId, Rc<Model>>,
    /// The measured tables of the cluster that was asked about last, as text.
    measured: Option<measured::MeasuredText>,
}

/// The worker's memory, shared by its tasks; borrowed only between two waits.
pub(crate) type Shared = Rc<RefCell<State>>;

/// Answers the page's messages; called once, inside the worker.
#[wasm_bindgen]
pub fn start_engine() {
    browser::report_panics();
    listen();
}

/// Answers messages from now on.
fn listen() {
    let Ok(scope) = js_sys::global().dyn_into::<DedicatedWorkerGlobalScope>() else { return };
    let (state, questions) = (Shared::default(), Questions::default());
    let to = scope.clone();
    let heard = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        let Some((question, attachments)) = unpack::<Question>(&event.data()) else { return };
        let (to, state, questions) = (to.clone(), state.clone(), questions.clone());
        if let Request::Cancel { id } = question.request {
            questions.cancel(id);
            return;
        }
        wasm_bindgen_futures::spawn_local(async move {
            let id = question.id;
            questions.begin(id);
            let slices = Slices::new(id, questions.clone(), to.clone());
            let reply = answer(&state, question.request, attachments, slices).await;
            questions.end(id);
            post(&to, id, reply);
        });
    });
    scope.set_onmessage(Some(heard.as_ref().unchecked_ref()));
    heard.forget();
}

async fn answer(
    state: &Shared,
    request: Request,
    attachments: Vec<JsValue>,
    slices: Slices,
) -> Result<Attached, String> {
    let plain = |response: Response| Ok((response, None));
    match request {
        Request::Cancel { .. } => plain(Response::Done),
        Request::Simulate { session, plan, machine, order } => {
            let (held, opened) = open::simulate(session, &plan, machine, order, slices).await?;
            keep(state, session, held);
            plain(opened)
        }
        Request::Explore { plan, machine, bounds } => {
            let explored = open::explore(&plan, machine, bounds, slices).await?;
            plain(Response::Explored(Box::new(explored)))
        }
        Request::Account { lab, topology } => plain(account::account(lab, topology, slices).await?),
        Request::Sweep { lab, topology, counts } => {
            plain(account::sweep(lab, topology, &counts, slices).await?)
        }
        Request::ReadPlan { json } => {
            let plan = Plan::from_json(&json).map_err(|error| error.to_string())?;
            plain(Response::Plan(Box::new(plan)))
        }
        Request::PlanCall { call, options, instead } => {
            plain(planned_call::planned(&call, &options, &instead)?)
        }
        Request::Mesh(question) => plain(mesh::mesh(&question, slices).await?),
        Request::Cluster(question) => {
            let known = state.borrow().measured.clone();
            let (response, text) = cluster::cluster(&question, known).await?;
            state.borrow_mut().measured = Some(text);
            plain(response)
        }
        Request::KnownClusters => plain(Response::KnownClusters(machine::known_clusters()?)),
        Request::Hangs => {
            plain(Response::Hangs(lockstep_scenarios::all().iter().map(Hang::from).collect()))
        }
        Request::ExplainKind { kind } => {
            plain(Response::KindExplained(KindExplanation::from(kind)))
        }
        Request::OpenModel { session } => {
            let model = ddp::read(attachments).await?;
            let shown = LabModel::of(&model);
            state.borrow_mut().models.insert(session, Rc::new(model));
            plain(Response::ModelOpened(Box::new(shown)))
        }
        Request::Ddp { model, question } => {
            let model = match model {
                ModelRef::Named(name) => ddp::known(&name)?,
                ModelRef::Read(session) => {
                    let found = state.borrow().models.get(&session).cloned();
                    found.ok_or("the worker no longer holds this model; drop its file again")?
                }
            };
            plain(ddp::answer(&model, *question, slices).await?)
        }
        Request::OpenTrace { session, name } => {
            let (held, opened) =
                open::trace(session, &name, &answers::bytes_of(attachments), slices).await?;
            keep(state, session, held);
            plain(opened)
        }
        Request::OpenFiles { session, paths } => {
            let (held, opened) = open::files(session, attachments, &paths, slices).await?;
            keep(state, session, held);
            plain(opened)
        }
        Request::LogLines { session, place } => {
            let files = with(state, session, |held| held.files.clone())?;
            plain(Response::LogLines(log_lines::around(&files, &place).await?))
        }
        Request::ReadDump { name } => match readers::read_dump(attachments, &name).await {
            Some(dump) => Ok((Response::DumpRead, Some(dump))),
            None => plain(Response::Done),
        },
        Request::CheckSchedule { step } => plain(schedule_file::check(attachments, step).await?),
        Request::OpenLive { session } => {
            keep(state, session, Held::live());
            plain(Response::Done)
        }
        Request::Close { session } => {
            let mut state = state.borrow_mut();
            state.sessions.remove(&session);
            state.models.remove(&session);
            plain(Response::Done)
        }
        Request::About { session, question } => {
            with(state, session, |held| answers::answer(held, session, question, attachments))?
        }
        Request::TraceOf { plan_json, machine } => {
            let trace = open::trace_of(&plan_json, machine, slices).await?;
            Ok((Response::Exported, Some(export::written(&trace, Form::Binary)?)))
        }
        Request::Repair { session, repaired } => {
            let tried = with(state, session, |held| repair::tried(held))??;
            let (held, shown, plan) = repair::shown(repaired, tried, slices).await?;
            keep(state, repaired, held);
            Ok((shown, Some(plan)))
        }
        Request::WhatIf { session, changed, change } => {
            let asked = with(state, session, |held| analysis::asked(held, &change))??;
            let (held, shown) = analysis::shown(changed, asked, slices).await?;
            keep(state, changed, held);
            plain(shown)
        }
        Request::Compare { simulated, run } => {
            let state = state.borrow();
            let find = |id| state.sessions.get(&id).ok_or_else(no_session);
            plain(Response::Compared(find(simulated)?.compare(find(run)?)?))
        }
    }
}

fn keep(state: &Shared, session: SessionId, held: Held) {
    state.borrow_mut().sessions.insert(session, held);
}

fn with<T>(
    state: &Shared,
    session: SessionId,
    use_it: impl FnOnce(&mut Held) -> T,
) -> Result<T, String> {
    state.borrow_mut().sessions.get_mut(&session).map(use_it).ok_or_else(no_session)
}

fn no_session() -> String {
    "the worker no longer holds this trace; open it again".to_owned()
}
