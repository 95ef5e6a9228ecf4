//! Giving way: a long task is cut into slices, between which messages are heard.

use super::questions::{Questions, SLICE_MS, now, post};
use lockstep_web_protocol::browser::yield_now;
use lockstep_web_protocol::{CANCELLED, Reached, Response, Unit};
use std::cell::Cell;
use web_sys::DedicatedWorkerGlobalScope;

/// One question's slices.
pub(super) struct Slices {
    id: u32,
    questions: Questions,
    to: DedicatedWorkerGlobalScope,
    since: Cell<f64>,
}

impl Slices {
    pub(super) fn new(id: u32, questions: Questions, to: DedicatedWorkerGlobalScope) -> Slices {
        Slices { id, questions, to, since: Cell::new(now()) }
    }

    /// Gives way if the slice is over, and says how many of what there are have been gone through.
    ///
    /// # Errors
    /// When the page gave up on the question.
    pub(super) async fn give_way(&self, done: u64, total: u64, what: &str) -> Result<(), String> {
        self.give_way_at(|| Reached { done, total, unit: Unit::Each, what: what.to_owned() }).await
    }

    /// Gives way if the slice is over, and says how many bytes have been read, the last of them of
    /// what.
    ///
    /// # Errors
    /// When the page gave up on the question.
    pub(super) async fn give_way_reading(
        &self,
        done: f64,
        total: f64,
        what: &str,
    ) -> Result<(), String> {
        self.give_way_at(|| read(done, total, what)).await
    }

    /// Says what is done next, and gives way before it: it takes long, and goes in one piece.
    ///
    /// # Errors
    /// When the page gave up on the question.
    pub(super) async fn announce(&self, done: f64, total: f64, what: &str) -> Result<(), String> {
        self.tell(read(done, total, what)).await
    }

    async fn give_way_at(&self, reached: impl FnOnce() -> Reached) -> Result<(), String> {
        match now() - self.since.get() < SLICE_MS {
            true => Ok(()),
            false => self.tell(reached()).await,
        }
    }

    async fn tell(&self, reached: Reached) -> Result<(), String> {
        post(&self.to, self.id, Ok((Response::Progress(reached), None)));
        yield_now().await;
        self.since.set(now());
        match self.questions.is_cancelled(self.id) {
            true => Err(CANCELLED.to_owned()),
            false => Ok(()),
        }
    }
}

/// Bytes of files, as browsers count them.
fn read(done: f64, total: f64, what: &str) -> Reached {
    Reached { done: done as u64, total: total as u64, unit: Unit::Bytes, what: what.to_owned() }
}
