//! The worker's answers to the lab's questions. The answer before stays until the next is there.

use crate::app::use_shared;
use crate::turns::use_turns;
use lockstep_core::plan::Plan;
use lockstep_torch::ddp::lab::{Setting, Summary};
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{
    CANCELLED, ChangeRow, DdpAccount, DdpQuestion, ModelRef, PlacedSetting, Progress, Reached,
    Request, Response, Simulated,
};
use std::rc::Rc;
use web_sys::File;
use yew::prelude::*;

/// A question: a model, and what of it; or why there is none.
pub(super) type Asking = Result<(ModelRef, DdpQuestion), String>;

/// An answer, as far as it is known.
#[derive(Clone, PartialEq)]
pub(super) struct Known<T> {
    /// The newest answer.
    pub(super) found: Option<Result<Rc<T>, String>>,
    /// True if it answers the current question.
    pub(super) fresh: bool,
    /// The progress of the answer.
    pub(super) progress: Option<(u64, u64)>,
}

impl<T> Known<T> {
    /// The newest answer, if it is one.
    pub(super) fn answer(&self) -> Option<&Rc<T>> {
        self.found.as_ref()?.as_ref().ok()
    }

    /// The problem with the present question.
    pub(super) fn wrong(&self) -> Option<&String> {
        self.found.as_ref()?.as_ref().err().filter(|_| self.fresh)
    }
}

/// Asks whenever the question changes; nothing while it is absent.
#[hook]
fn use_answer<T: 'static>(asking: Option<Asking>, read: fn(Response) -> Option<T>) -> Known<T> {
    let client = use_shared().client;
    let found = use_state(|| None::<(Asking, Result<Rc<T>, String>)>);
    let progress = use_state(|| None::<(u64, u64)>);
    let turns = use_turns();
    {
        let (set, progress) = (found.setter(), progress.setter());
        use_effect_with(asking.clone(), move |asking| {
            // An answer to the question before may be on its way.
            let turn = turns.next();
            let mut held = None;
            match asking {
                None => {}
                Some(asking @ Err(why)) => set.set(Some((asking.clone(), Err(why.clone())))),
                Some(asking @ Ok((model, question))) => {
                    let request =
                        Request::Ddp { model: model.clone(), question: Box::new(question.clone()) };
                    let on_progress: Progress = {
                        let (progress, turn) = (progress.clone(), turn.clone());
                        Rc::new(move |Reached { done, total, .. }| {
                            if turn.counts() {
                                progress.set(Some((done, total)));
                            }
                        })
                    };
                    progress.set(None);
                    let (asked, answer) = client.ask_with(request, &[], Some(on_progress));
                    let asking = asking.clone();
                    wasm_bindgen_futures::spawn_local(async move {
                        let answered = answer.await.map(|answered| read(answered.response));
                        let answered = match answered {
                            _ if !turn.counts() => return,
                            Ok(Some(answered)) => Ok(Rc::new(answered)),
                            Ok(None) => return,
                            Err(why) if why == CANCELLED => return,
                            Err(why) => Err(why),
                        };
                        progress.set(None);
                        set.set(Some((asking, answered)));
                    });
                    held = Some(asked);
                }
            }
            move || {
                turns.end();
                drop(held);
            }
        });
    }
    let fresh = found.as_ref().is_some_and(|(of, _)| asking.as_ref() == Some(of));
    Known { found: found.as_ref().map(|(_, found)| found.clone()), fresh, progress: *progress }
}

/// A pass of a setting, and a rank's log.
#[hook]
pub(super) fn use_pass(
    model: &ModelRef,
    placed: Option<Result<PlacedSetting, String>>,
    pass: Option<u32>,
    rank: u32,
) -> Known<DdpAccount> {
    let asking =
        placed.map(|placed| Ok((model.clone(), DdpQuestion::Pass { placed: placed?, pass, rank })));
    use_answer(asking, |response| match response {
        Response::Ddp(account) => Some(*account),
        _ => None,
    })
}

/// The effect of each option that differs.
#[hook]
pub(super) fn use_changes(
    model: &ModelRef,
    pair: Option<(PlacedSetting, PlacedSetting)>,
) -> Known<Vec<ChangeRow>> {
    let asking = pair
        .map(|(a, b)| Ok((model.clone(), DdpQuestion::Changes { a: Box::new(a), b: Box::new(b) })));
    use_answer(asking, |response| match response {
        Response::DdpChanges(rows) => Some(rows),
        _ => None,
    })
}

/// A sweep.
#[hook]
pub(super) fn use_sweep(
    model: &ModelRef,
    question: Option<DdpQuestion>,
) -> Known<Vec<Vec<Summary>>> {
    let asking = question.map(|question| Ok((model.clone(), question)));
    use_answer(asking, |response| match response {
        Response::DdpSwept(lines) => Some(lines),
        _ => None,
    })
}

/// The training run as a plan.
#[hook]
pub(super) fn use_plan(model: &ModelRef, setting: Result<Setting, String>) -> Known<Plan> {
    let asking = setting.map(|setting| (model.clone(), DdpQuestion::Plan { setting }));
    use_answer(Some(asking), |response| match response {
        Response::Plan(plan) => Some(*plan),
        _ => None,
    })
}

/// The time of a step in the simulator, once it is asked.
#[hook]
pub(super) fn use_simulated(model: &ModelRef, question: Option<DdpQuestion>) -> Known<Simulated> {
    let asking = question.map(|question| Ok((model.clone(), question)));
    use_answer(asking, |response| match response {
        Response::DdpSimulated(simulated) => Some(simulated),
        _ => None,
    })
}

/// A model from a file.
#[derive(Clone, PartialEq)]
pub(super) struct ModelFile {
    pub(super) session: Session,
    pub(super) name: String,
}

thread_local! {
    /// The model that was read last: the worker holds it while the reader visits other views.
    static READ: std::cell::RefCell<Option<ModelFile>> = const { std::cell::RefCell::new(None) };
}

/// The model file that was read last, what is wrong with the newest, and how to read another.
#[hook]
pub(super) fn use_model_file(
    on_read: Callback<()>,
) -> (Option<ModelFile>, Option<String>, Callback<File>) {
    let client = use_shared().client;
    let read = use_state(|| READ.with_borrow(Clone::clone));
    let wrong = use_state(|| None::<String>);
    let open = {
        let (read, wrong) = (read.setter(), wrong.setter());
        Callback::from(move |file: File| {
            let session = client.new_session();
            let (asked, answer) =
                client.ask_with(Request::OpenModel { session: session.id() }, &[file.into()], None);
            let (read, wrong, on_read) = (read.clone(), wrong.clone(), on_read.clone());
            wrong.set(None);
            wasm_bindgen_futures::spawn_local(async move {
                let answered = answer.await.map(|answered| answered.response);
                drop(asked);
                match answered {
                    Ok(Response::ModelOpened(model)) => {
                        let file = ModelFile { session, name: model.name.clone() };
                        READ.set(Some(file.clone()));
                        read.set(Some(file));
                        on_read.emit(());
                    }
                    Ok(_) => {}
                    Err(why) => wrong.set(Some(why)),
                }
            });
        })
    };
    ((*read).clone(), (*wrong).clone(), open)
}
