//! The questions that are being answered, and how answers leave.

use js_sys::Uint8Array;
use lockstep_web_protocol::browser;
use lockstep_web_protocol::{Answer, Response, pack};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use wasm_bindgen::JsValue;
use web_sys::DedicatedWorkerGlobalScope;

/// An answer, with the bytes that it transfers.
pub(super) type Attached = (Response, Option<Vec<u8>>);

/// The questions that are being answered; clones are of the same.
#[derive(Clone, Default)]
pub(super) struct Questions(Rc<RefCell<Open>>);

#[derive(Default)]
struct Open {
    running: BTreeSet<u32>,
    cancelled: BTreeSet<u32>,
}

impl Questions {
    /// A question's task begins.
    pub(super) fn begin(&self, id: u32) {
        self.0.borrow_mut().running.insert(id);
    }

    /// A question's task is over.
    pub(super) fn end(&self, id: u32) {
        let mut open = self.0.borrow_mut();
        open.running.remove(&id);
        open.cancelled.remove(&id);
    }

    /// The page gives up on a question, if it is still being answered.
    pub(super) fn cancel(&self, id: u32) {
        let mut open = self.0.borrow_mut();
        if open.running.contains(&id) {
            open.cancelled.insert(id);
        }
    }

    /// True if the page gave up on a question.
    pub(super) fn is_cancelled(&self, id: u32) -> bool {
        self.0.borrow().cancelled.contains(&id)
    }
}

/// Posts an answer.
pub(super) fn post(to: &DedicatedWorkerGlobalScope, id: u32, reply: Result<Attached, String>) {
    let (reply, bytes) = match reply {
        Ok((response, bytes)) => (Ok(response), bytes),
        Err(why) => (Err(why), None),
    };
    let attached = bytes.map(|bytes| JsValue::from(Uint8Array::from(bytes.as_slice()).buffer()));
    let (packed, transfer) = pack(&Answer { id, reply }, attached.as_slice());
    let _ = to.post_message_with_transfer(&packed, &transfer);
}

/// Milliseconds of work before a task gives way.
pub(super) const SLICE_MS: f64 = 12.0;

/// The clock of [`SLICE_MS`].
pub(super) fn now() -> f64 {
    browser::now_ms()
}
