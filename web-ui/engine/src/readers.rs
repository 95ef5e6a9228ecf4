//! Other workers that read dumps beside this one, so that a job of a thousand ranks is read on as
//! many cores as there are.
//!
//! Each is this module once more, and is asked as the page asks this worker; it answers
//! with the dump in postcard, which is a fraction of its file. What is no dump is read here, and so
//! is everything where a browser lets no worker start another one, or one of them fails.

use super::file;
use futures_channel::oneshot;
use lockstep_formats::recording::Piece;
use lockstep_web_protocol::Client;
use lockstep_web_protocol::{Request, Response, SessionId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{DedicatedWorkerGlobalScope, File};

/// Fewer bytes than this are read before another worker has started.
const MIN_BYTES: f64 = (32 << 20) as f64;

/// Each has memory of its own, and the files come from one disk.
const MAX_READERS: u32 = 7;

/// Files that one is asked for at a time: it reads one while another is on its way.
const ASKED_AT_ONCE: usize = 2;

/// A file to read, and the name that it is told by.
pub(super) type Named = (File, String);

/// The files of a job, taken by whoever is free.
pub(super) struct Files {
    to_read: RefCell<VecDeque<Named>>,
    /// The files that others could not read: for this worker.
    left: RefCell<Vec<Named>>,
    pieces: RefCell<Vec<Piece>>,
    /// Bytes of the files that have been read.
    done: Cell<f64>,
    /// The number of files that others were asked for and that are not here yet.
    asked: Cell<usize>,
    /// Told when there are none of these any more.
    waiting: RefCell<Option<oneshot::Sender<()>>>,
}

impl Files {
    pub(super) fn new(files: impl IntoIterator<Item = Named>) -> Rc<Files> {
        Rc::new(Files {
            to_read: RefCell::new(files.into_iter().collect()),
            left: RefCell::default(),
            pieces: RefCell::default(),
            done: Cell::new(0.0),
            asked: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// The next file for this worker to read; waits for what may come back from others.
    pub(super) async fn next(&self) -> Option<Named> {
        loop {
            let next = self.take().or_else(|| self.left.borrow_mut().pop());
            if next.is_some() || self.asked.get() == 0 {
                return next;
            }
            let (told, wait) = oneshot::channel();
            self.waiting.replace(Some(told));
            let _ = wait.await;
        }
    }

    /// A function of its own: in a loop's condition what is borrowed stays so for the loop.
    fn take(&self) -> Option<Named> {
        self.to_read.borrow_mut().pop_front()
    }

    /// Bytes of the files that have been read by now.
    pub(super) fn done(&self) -> f64 {
        self.done.get()
    }

    /// Notes that a file has been read.
    pub(super) fn was_read(&self, file: &File) {
        self.done.set(self.done.get() + file.size());
    }

    /// The files that others have read by now.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.pieces.take()
    }

    /// Has a worker read files until there are none left, or it fails.
    async fn read_in(self: Rc<Files>, client: Client) {
        // One that does not start keeps nobody waiting.
        let ready = client.ask(Request::Close { session: SessionId(0) }).await;
        while ready.is_ok()
            && let Some((file, name)) = self.take()
        {
            self.asked.set(self.asked.get() + 1);
            let request = Request::ReadDump { name: name.clone() };
            let attached = [JsValue::from(file.clone())];
            let answered = client.ask_with(request, &attached, None).1.await;
            let piece = answered.as_ref().ok().and_then(|answered| match answered.response {
                Response::DumpRead => Piece::from_bytes(&answered.bytes()),
                _ => None,
            });
            match piece {
                Some(piece) => {
                    self.was_read(&file);
                    self.pieces.borrow_mut().push(piece);
                }
                None => self.left.borrow_mut().push((file, name)),
            }
            self.asked.set(self.asked.get() - 1);
            if let Some(waiting) = self.waiting.take() {
                let _ = waiting.send(());
            }
            if answered.is_err() {
                return;
            }
        }
    }
}

/// Other workers that read; ended when this is dropped.
pub(super) struct Readers(Vec<Client>);

impl Readers {
    /// Starts as many as there are cores besides this worker's, for files of so many bytes together.
    pub(super) fn start(files: &Rc<Files>, bytes: f64) -> Readers {
        let scope = js_sys::global().dyn_into::<DedicatedWorkerGlobalScope>().ok();
        let cores = scope.as_ref().map_or(1.0, |scope| scope.navigator().hardware_concurrency());
        let others = match bytes >= MIN_BYTES && files.to_read.borrow().len() > 1 {
            true => (cores as u32).saturating_sub(1).min(MAX_READERS),
            false => 0,
        };
        let script = scope.map_or_else(String::new, |scope| scope.location().href());
        let start = |_| Client::start(&script, Box::new(|_| ())).ok();
        let clients: Vec<Client> = (0..others).filter_map(start).collect();
        for client in &clients {
            for _ in 0..ASKED_AT_ONCE {
                wasm_bindgen_futures::spawn_local(files.clone().read_in(client.clone()));
            }
        }
        Readers(clients)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for client in &self.0 {
            client.end();
        }
    }
}

/// Reads a file for another worker: its calls as bytes, or nothing if it is no dump.
pub(super) async fn read_dump(attached: Vec<JsValue>, name: &str) -> Option<Vec<u8>> {
    let file: File = attached.into_iter().next()?.dyn_into().ok()?;
    let bytes = file::read(&file).await.ok()?;
    if file::Kind::of(&bytes) != file::Kind::Piece {
        return None;
    }
    Piece::read(name, &bytes).to_bytes()
}
