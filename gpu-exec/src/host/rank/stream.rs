//! A group's communication stream: its calls one after the other, on a thread of its own once
//! there are asynchronous ones.

use super::call::CollectiveCall;
use super::clerk::Clerk;
use super::collective::GroupLink;
use super::failure::{RankFailure, cannot};
use super::made::{Carried, Ended, Made};
use super::note::Note;
use super::works::Works;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A call that waits for its stream.
#[derive(Debug)]
struct Queued {
    call: Arc<CollectiveCall>,
    made: Made,
}

/// The stream, from the program's side.
#[derive(Debug)]
pub(super) enum Stream {
    /// All calls so far were the program's own to carry out.
    Here(GroupLink),
    /// A thread carries out the calls that the program does not wait for.
    Thread(Arc<Shared>),
    /// A thread could not be started: the rank ends.
    Lost,
}

/// A stream that has a thread.
#[derive(Debug)]
pub(super) struct Shared {
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
    /// Takes a call that was made at `made_ns` on the shared clock, or when its operation began. A call that
    /// the program waits for is carried out here and now if the stream is empty, which saves two thread
    /// switches; others are queued.
    ///
    /// # Errors
    /// The error that ends the rank.
    pub(super) fn take(
        &mut self,
        call: &Arc<CollectiveCall>,
        made: Made,
        made_ns: Option<u64>,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<Carried, RankFailure> {
        match self {
            Stream::Here(link) if made.alone => carry_out(link, call, made, made_ns, clerk),
            Stream::Thread(shared) if made.alone && shared.lock().unfinished == 0 => {
                carry_out(&mut shared.link(), call, made, made_ns, clerk)
            }
            _ => {
                clerk.scheduled(&made, made_ns, false);
                self.queue(Queued { call: call.clone(), made }, clerk, works)?;
                Ok(Carried::Made)
            }
        }
    }

    /// Queues a call and returns at once.
    fn queue(
        &mut self,
        queued: Queued,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<(), RankFailure> {
        if matches!(self, Stream::Here(_))
            && let Stream::Here(link) = std::mem::replace(self, Stream::Lost)
        {
            *self = Stream::Thread(Shared::start(link, clerk, works)?);
        }
        let Stream::Thread(shared) = self else {
            return Err(RankFailure::Unchecked("a stream whose thread could not be started"));
        };
        let mut queue = shared.lock();
        queue.calls.push_back(queued);
        queue.unfinished += 1;
        drop(queue);
        shared.ready.notify_one();
        Ok(())
    }
}

impl Shared {
    /// The stream of these channels, with a thread that serves it.
    fn start(
        link: GroupLink,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<Arc<Shared>, RankFailure> {
        let shared = Arc::new(Shared {
            link: Mutex::new(link),
            queue: Mutex::default(),
            ready: Condvar::new(),
        });
        let (serving, clerk, works) = (shared.clone(), clerk.clone(), works.clone());
        std::thread::Builder::new()
            .name("communication".to_owned())
            .spawn(move || serve(&serving, &clerk, &works))
            .map_err(cannot("cannot start a thread"))?;
        Ok(shared)
    }

    fn link(&self) -> MutexGuard<'_, GroupLink> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
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
        let Made { work, seq, .. } = queued.made;
        clerk.note(Note::Started { work });
        if let Err(why) = shared.link().run(&queued.call, work, seq, clerk, None) {
            // As a failure on the program's own thread ends the rank.
            clerk.fail(why.to_string());
        }
        clerk.completed(work);
        works.complete(work);
        shared.lock().unfinished -= 1;
    }
}

/// Carries out a call that the program waits for and that its operation ends with. The call is recorded while
/// its first messages travel, because the peers wait for those.
fn carry_out(
    link: &mut GroupLink,
    call: &CollectiveCall,
    mut made: Made,
    made_ns: Option<u64>,
    clerk: &Clerk,
) -> Result<Carried, RankFailure> {
    if !call.begins_soon {
        made.began.known(clerk);
    }
    let Made { work, op, seq, .. } = made;
    // By reference: a copy of what was only just written waits for it, and with it for the messages
    // that were written in between, which a peer's core has the lines of.
    let mut start = || clerk.scheduled(&made, made_ns, true);
    // But what is written down of the messages comes after their call.
    if clerk.writes_messages() {
        start();
        link.run(call, work, seq, clerk, None)?;
    } else {
        link.run(call, work, seq, clerk, Some(&mut start))?;
    }
    Ok(Carried::Ended(Ended { work, op }))
}
