//! Giving way: a long task is cut into slices, between which messages are heard.

use super::{SLICE_MS, Shared, now, post};
use crate::dom::sleep_ms;
use crate::protocol::{CANCELLED, Response};
use std::cell::Cell;
use web_sys::DedicatedWorkerGlobalScope;

/// One question's slices.
pub(super) struct Slices {
    id: u32,
    state: Shared,
    to: DedicatedWorkerGlobalScope,
    since: Cell<f64>,
}

impl Slices {
    pub(super) fn new(id: u32, state: Shared, to: DedicatedWorkerGlobalScope) -> Slices {
        Slices { id, state, to, since: Cell::new(now()) }
    }

    /// Gives way if the slice is over, and says how far the task has come.
    ///
    /// # Errors
    /// When the page gave up on the question.
    pub(super) async fn give_way(&self, done: u64, total: u64, what: &str) -> Result<(), String> {
        if now() - self.since.get() < SLICE_MS {
            return Ok(());
        }
        let progress = Response::Progress { done, total, what: what.to_owned() };
        post(&self.to, self.id, Ok((progress, None)));
        sleep_ms(0).await;
        self.since.set(now());
        match self.state.borrow().cancelled.contains(&self.id) {
            true => Err(CANCELLED.to_owned()),
            false => Ok(()),
        }
    }
}
