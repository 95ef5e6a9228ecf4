//! The page's side of the module that executes programs: a worker of its own, fetched when the
//! first program is opened, ended when a program takes too long.

use crate::app::use_shared;
use crate::dom;
use js_sys::{Array, Uint8Array};
use lockstep_scenarios::program::{Compiled, Options, ProgramError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Event, MessageEvent, Worker, WorkerOptions, WorkerType};
use yew::prelude::*;

/// Time that a program may take, in milliseconds; fetching the module counts, too.
const PATIENCE_MS: i32 = 30_000;

/// A program on its way to a plan.
#[derive(Clone, PartialEq)]
pub(crate) enum Compiling {
    /// It is executed; the first time, what executes it is fetched.
    Running,
    /// It is a plan.
    Done(Rc<Compiled>),
    /// It is none.
    Wrong(Rc<ProgramError>),
    /// It could not be executed here, in a sentence.
    Failed(Rc<str>),
}

/// A worker with what listens to it.
struct Executor {
    worker: Worker,
    /// The question that it works on.
    busy: Rc<Cell<Option<u32>>>,
    _heard: [Closure<dyn FnMut(Event)>; 2],
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.worker.terminate();
    }
}

impl Executor {
    fn start(script: &str, set: UseStateSetter<Compiling>) -> Result<Executor, String> {
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        options.set_name("lockstep-programs");
        let worker =
            Worker::new_with_options(script, &options).map_err(|error| dom::words_of(&error))?;
        let busy = Rc::new(Cell::new(None));
        let (asked, to) = (busy.clone(), set.clone());
        let answered = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            let posted: Array = event.unchecked_ref::<MessageEvent>().data().unchecked_into();
            if posted.get(0).as_f64() == asked.get().map(f64::from) {
                asked.set(None);
                to.set(heard(&posted.get(1)));
            }
        });
        let asked = busy.clone();
        let failed = Closure::<dyn FnMut(Event)>::new(move |_: Event| {
            asked.set(None);
            let why = "program.js, which executes programs, could not be loaded";
            set.set(Compiling::Failed(why.into()));
        });
        worker.set_onmessage(Some(answered.as_ref().unchecked_ref()));
        worker.set_onerror(Some(failed.as_ref().unchecked_ref()));
        Ok(Executor { worker, busy, _heard: [answered, failed] })
    }

    fn ask(&self, id: u32, path: &str, text: &str, options: Options) {
        // postcard fails only on types of unknown length, which these are not.
        let question = postcard::to_stdvec(&(path, text, options)).unwrap_or_default();
        self.busy.set(Some(id));
        let message = Array::of2(&id.into(), &Uint8Array::from(question.as_slice()));
        let _ = self.worker.post_message(&message);
    }
}

/// The worker's answer.
fn heard(said: &JsValue) -> Compiling {
    if let Some(bytes) = said.dyn_ref::<Uint8Array>() {
        return match postcard::from_bytes::<Result<Compiled, ProgramError>>(&bytes.to_vec()) {
            Ok(Ok(compiled)) => Compiling::Done(Rc::new(compiled)),
            Ok(Err(error)) => Compiling::Wrong(Rc::new(error)),
            Err(_) => Compiling::Failed("the page and program.js are of two versions".into()),
        };
    }
    // A trap: the stack is full, or the memory is gone.
    let why = "The program nests its values or calls too deep, or takes more memory than the \
               browser gives a page.";
    Compiling::Failed(why.into())
}

/// The plan of a program, whenever the program changes.
#[hook]
pub(crate) fn use_compiled(path: &'static str, text: Rc<str>, options: Options) -> Compiling {
    let script = use_shared().workers.program;
    let state = use_state(|| Compiling::Running);
    let executor = use_mut_ref(|| None::<Executor>);
    let last = use_mut_ref(|| 0u32);
    let set = state.setter();
    let trapped = matches!(*state, Compiling::Failed(_));
    use_effect_with((text, options), move |(text, options)| {
        let id = *last.borrow() + 1;
        *last.borrow_mut() = id;
        set.set(Compiling::Running);
        let mut held = executor.borrow_mut();
        // One that is still at the program before has nothing to say any more; one that trapped
        // cannot be asked again.
        let idle = held.as_ref().is_some_and(|held| held.busy.get().is_none());
        if !idle || trapped {
            *held = None;
        }
        if held.is_none() {
            match Executor::start(&script, set.clone()) {
                Ok(started) => *held = Some(started),
                Err(why) => set.set(Compiling::Failed(why.into())),
            }
        }
        if let Some(held) = &*held {
            held.ask(id, path, text, options.clone());
        }
        let executor = executor.clone();
        wasm_bindgen_futures::spawn_local(async move {
            dom::sleep_ms(PATIENCE_MS).await;
            give_up(&executor, id, &set);
        });
    });
    (*state).clone()
}

/// Ends a worker that is still at a question.
fn give_up(executor: &RefCell<Option<Executor>>, id: u32, set: &UseStateSetter<Compiling>) {
    let mut held = executor.borrow_mut();
    if held.as_ref().is_some_and(|held| held.busy.get() == Some(id)) {
        *held = None;
        let why = format!(
            "The program takes more than {} s to become a plan: fewer ranks or fewer steps, or \
             `lockstep sim` on the command line, which waits longer.",
            PATIENCE_MS / 1000
        );
        set.set(Compiling::Failed(why.into()));
    }
}
