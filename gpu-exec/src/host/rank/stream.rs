//! A group's communication stream: its calls one after the other, on a thread of its own once
//! there are asynchronous ones.

use super::call::CollectiveCall;
use super::clerk::Clerk;
use super::collective::GroupLink;
use super::desk::Note;
use super::operations::{Carried, Ended, Made};
use super::works::Works;
use crate::clock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A call that waits for its stream.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) call: Arc<CollectiveCall>,
    pub(super) made: Made,
    /// When it was made, on the shared clock.
    pub(super) made_ns: u64,
}

/// The stream, from the program's side.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Arc<Shared>,
    has_thread: bool,
}

#[derive(Debug)]
struct Shared {
    link: Mutex<GroupLink>,
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<Queued>,
    /// Calls that are queued or being carried out by the thread.
    unfinished: usize,
}

impl Stream {
    pub(super) fn new(link: GroupLink) -> Stream {
        let shared =
            Shared { link: Mutex::new(link), queue: Mutex::default(), ready: Condvar::new() };
        Stream { shared: Arc::new(shared), has_thread: false }
    }

    /// Takes a call. One that the program waits for is carried out here and now if the stream is
    /// empty, which saves two thread switches; others are queued.
    ///
    /// # Errors
    /// What ends the rank.
    pub(super) fn take(
        &mut self,
        queued: Queued,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<Carried, String> {
        let empty = !self.has_thread || self.shared.lock().unfinished == 0;
        if queued.made.alone && empty {
            let time_ns = carry_out(&self.shared, &queued, clerk, works, true)?;
            let Made { work, op, .. } = queued.made;
            return Ok(Carried::Ended(Ended { work, op, time_ns }));
        }
        clerk.scheduled(queued.made, queued.made_ns, false);
        self.queue(queued, clerk, works)?;
        Ok(Carried::Made)
    }

    /// Queues a call and returns at once.
    fn queue(
        &mut self,
        queued: Queued,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<(), String> {
        if !self.has_thread {
            let (shared, clerk, works) = (self.shared.clone(), clerk.clone(), works.clone());
            std::thread::Builder::new()
                .name("communication".to_owned())
                .spawn(move || serve(&shared, &clerk, &works))
                .map_err(super::cannot("cannot start a thread"))?;
            self.has_thread = true;
        }
        let mut queue = self.shared.lock();
        queue.calls.push_back(queued);
        queue.unfinished += 1;
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, clerk: &Clerk, works: &Works) {
    loop {
        let mut queue = shared.lock();
        let queued = loop {
            match queue.calls.pop_front() {
                Some(queued) => break queued,
                None => queue = shared.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        clerk.note(Note::Started { work: queued.made.work });
        if let Err(why) = carry_out(shared, &queued, clerk, works, false) {
            // As a failure on the program's own thread ends the rank.
            clerk.fail(why);
        }
        shared.lock().unfinished -= 1;
    }
}

/// Carries a call out. One that is not `here`, on the thread that made it, is written down as
/// started already, and as completed; of one that is, whose operation ends with it, that is left to
/// the caller. Returns when it completed, on the shared clock.
fn carry_out(
    shared: &Shared,
    queued: &Queued,
    clerk: &Clerk,
    works: &Works,
    here: bool,
) -> Result<u64, String> {
    let mut link = shared.link.lock().unwrap_or_else(PoisonError::into_inner);
    let Made { work, seq, .. } = queued.made;
    let mut started = !here;
    // Written down while the first messages travel: the peers wait for those.
    let mut start = || {
        if !std::mem::replace(&mut started, true) {
            clerk.scheduled(queued.made, queued.made_ns, true);
        }
    };
    // But what is written down of the messages comes after their call.
    if clerk.writes_messages() {
        start();
    }
    link.run(&queued.call, work, seq, clerk, &mut start)?;
    let completed_ns = if here { clock::now_ns() } else { clerk.completed(work) };
    works.complete(work);
    Ok(completed_ns)
}
