//! The page's side of the worker: questions out, answers back.

use crate::browser::{sleep_ms, words_of};
use crate::{
    Answer, CANCELLED, Question, Reached, Request, Response, Session, SessionId, pack, unpack,
};
use futures_channel::oneshot;
use js_sys::{ArrayBuffer, Uint8Array};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Event, MessageEvent, Worker, WorkerOptions, WorkerType};

/// An answer with its attachments.
pub struct Answered {
    /// The answer.
    pub response: Response,
    attachment: Option<JsValue>,
}

impl Answered {
    /// The attached bytes; empty if there are none.
    pub fn bytes(&self) -> Vec<u8> {
        let buffer = self.attachment.as_ref().and_then(|value| value.dyn_ref::<ArrayBuffer>());
        buffer.map(|buffer| Uint8Array::new(buffer).to_vec()).unwrap_or_default()
    }
}

/// Hears how far a long answer has come.
pub type Progress = Rc<dyn Fn(Reached)>;

type Heard = Closure<dyn FnMut(Event)>;

struct Pending {
    answer: oneshot::Sender<Result<Answered, String>>,
    progress: Option<Progress>,
}

struct Inner {
    script: String,
    worker: RefCell<Worker>,
    ready: Cell<bool>,
    /// Posted once the worker is ready.
    held_back: RefCell<Vec<(js_sys::Array, js_sys::Array)>>,
    pending: RefCell<BTreeMap<u32, Pending>>,
    next: Cell<u32>,
    /// The question that was last given up on for good.
    given_up: Cell<Option<u32>>,
    broken: RefCell<Option<String>>,
    on_broken: Box<dyn Fn(String)>,
    heard: RefCell<Vec<Heard>>,
}

/// Asks the worker. Cheap to clone; there is one worker.
#[derive(Clone)]
pub struct Client(Rc<Inner>);

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// A question that is given up on when this is dropped.
#[derive(Default)]
pub struct Asked(Option<(Client, u32)>);

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some((client, id)) = self.0.take()
            && client.0.pending.borrow().contains_key(&id)
        {
            client.post(Request::Cancel { id }, &[]);
        }
    }
}

/// Time that a worker may take to hear that a question was given up on, in milliseconds.
const PATIENCE_MS: i32 = 1500;

/// Between two looks at whether it has.
const HEARD_MS: i32 = 30;

fn new_worker(script: &str) -> Result<Worker, String> {
    let options = WorkerOptions::new();
    // A page that was saved brings the script as a blob, and from file:// browsers start a blob as a
    // classic script only.
    if !script.starts_with("blob:") {
        options.set_type(WorkerType::Module);
    }
    options.set_name("lockstep");
    Worker::new_with_options(script, &options).map_err(|error| words_of(&error))
}

impl Client {
    /// Starts the worker whose script is at an address. `on_broken` hears why, should it not start or
    /// come to an end.
    ///
    /// # Errors
    /// When the browser has no module workers or refuses this one.
    pub fn start(script: &str, on_broken: Box<dyn Fn(String)>) -> Result<Client, String> {
        let worker = new_worker(script)?;
        let client = Client(Rc::new(Inner {
            script: script.to_owned(),
            worker: RefCell::new(worker),
            ready: Cell::new(false),
            held_back: RefCell::default(),
            pending: RefCell::default(),
            next: Cell::new(1),
            given_up: Cell::new(None),
            broken: RefCell::default(),
            on_broken,
            heard: RefCell::default(),
        }));
        client.listen();
        Ok(client)
    }

    fn listen(&self) {
        let weak = Rc::downgrade(&self.0);
        let message = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            let Some(inner) = weak.upgrade() else { return };
            Client(inner).take(event.unchecked_ref::<MessageEvent>().data());
        });
        let weak = Rc::downgrade(&self.0);
        let error = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            let Some(inner) = weak.upgrade() else { return };
            let why = event.dyn_ref::<web_sys::ErrorEvent>().map(web_sys::ErrorEvent::message);
            Client(inner).fail(&why.unwrap_or_else(|| "its script could not be loaded".into()));
        });
        let worker = self.0.worker.borrow();
        worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
        worker.set_onerror(Some(error.as_ref().unchecked_ref()));
        *self.0.heard.borrow_mut() = vec![message, error];
    }

    fn take(&self, data: JsValue) {
        if let Some(word) = data.as_string() {
            match word.strip_prefix("failed: ") {
                Some(why) => self.fail(why),
                None => self.ready(),
            }
            return;
        }
        let Some((Answer { id, reply }, mut attachments)) = unpack::<Answer>(&data) else { return };
        if let Ok(Response::Progress(reached)) = reply {
            let progress = self.0.pending.borrow().get(&id).and_then(|p| p.progress.clone());
            if let Some(progress) = progress {
                progress(reached);
            }
            return;
        }
        let Some(pending) = self.0.pending.borrow_mut().remove(&id) else { return };
        let attachment = attachments.pop();
        // Nobody listens any more when the component is gone: that is fine.
        let _ = pending.answer.send(reply.map(|response| Answered { response, attachment }));
    }

    fn ready(&self) {
        self.0.ready.set(true);
        for (packed, transfer) in self.0.held_back.take() {
            self.send(&packed, &transfer);
        }
    }

    fn fail(&self, why: &str) {
        *self.0.broken.borrow_mut() = Some(why.to_owned());
        for (_, pending) in std::mem::take(&mut *self.0.pending.borrow_mut()) {
            let _ = pending.answer.send(Err(format!("the worker stopped: {why}")));
        }
        (self.0.on_broken)(why.to_owned());
    }

    fn send(&self, packed: &js_sys::Array, transfer: &js_sys::Array) {
        if let Err(error) = self.0.worker.borrow().post_message_with_transfer(packed, transfer) {
            self.fail(&words_of(&error));
        }
    }

    fn post(&self, request: Request, attachments: &[JsValue]) -> u32 {
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        let (packed, transfer) = pack(&Question { id, request }, attachments);
        if self.0.ready.get() {
            self.send(&packed, &transfer);
        } else {
            self.0.held_back.borrow_mut().push((packed, transfer));
        }
        id
    }

    /// Gives up on a question for good: a worker that is too deep in it to hear so is ended, with
    /// everything it held, and another one takes its place.
    pub fn give_up(&self, mut asked: Asked) {
        let Some((_, id)) = asked.0.take() else { return };
        self.post(Request::Cancel { id }, &[]);
        self.0.given_up.set(Some(id));
        let client = self.clone();
        wasm_bindgen_futures::spawn_local(async move {
            sleep_ms(PATIENCE_MS).await;
            if client.0.pending.borrow().contains_key(&id) {
                client.restart(id);
            }
        });
    }

    /// Waits until the worker has heard of the requests that were given up, or another one has taken its
    /// place: requests before that go with it.
    pub async fn has_heard(&self) {
        while let Some(id) = self.0.given_up.get()
            && self.0.pending.borrow().contains_key(&id)
        {
            sleep_ms(HEARD_MS).await;
        }
    }

    fn restart(&self, given_up: u32) {
        self.0.worker.borrow().terminate();
        for (id, pending) in std::mem::take(&mut *self.0.pending.borrow_mut()) {
            let why = match id == given_up {
                true => CANCELLED,
                false => {
                    "this was still waiting when what was cancelled had to be ended: try again"
                }
            };
            let _ = pending.answer.send(Err(why.to_owned()));
        }
        match new_worker(&self.0.script) {
            Ok(worker) => {
                self.0.ready.set(false);
                *self.0.worker.borrow_mut() = worker;
                self.listen();
            }
            Err(why) => self.fail(&why),
        }
    }

    /// Ends the worker, with everything that it holds; open requests are answered with that.
    pub fn end(&self) {
        self.0.worker.borrow().terminate();
        self.fail("it was ended");
    }

    /// A session that is still to be opened.
    pub fn new_session(&self) -> Session {
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        let client = self.clone();
        let close = move |session| client.tell(Request::Close { session });
        Session::new(SessionId(id), Rc::new(close))
    }

    /// Posts a request that needs no answer.
    fn tell(&self, request: Request) {
        self.post(request, &[]);
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// The worker's error, as a sentence.
    pub async fn ask(&self, request: Request) -> Result<Answered, String> {
        self.ask_with(request, &[], None).1.await
    }

    /// Asks with attachments; dropping the first of the pair gives up on the question.
    pub fn ask_with(
        &self,
        request: Request,
        attachments: &[JsValue],
        progress: Option<Progress>,
    ) -> (Asked, impl Future<Output = Result<Answered, String>> + use<>) {
        let (answer, answered) = oneshot::channel();
        let broken = self.0.broken.borrow().clone();
        let asked = match &broken {
            None => {
                let id = self.post(request, attachments);
                self.0.pending.borrow_mut().insert(id, Pending { answer, progress });
                Asked(Some((self.clone(), id)))
            }
            Some(_) => Asked::default(),
        };
        let future = async move {
            match broken {
                Some(why) => Err(format!("the worker is not running: {why}")),
                None => answered.await.unwrap_or_else(|_| Err("the question was dropped".into())),
            }
        };
        (asked, future)
    }
}
