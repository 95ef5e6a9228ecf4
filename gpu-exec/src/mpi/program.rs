//! A rank's program: its operations in order, on a thread beside the one that calls MPI.

use super::agreement::disagreements;
use super::engine::{Inbox, Posted, Rank};
use super::lower::lower;
use super::tensors::Tensors;
use crate::host::control::{Report, frame};
use crate::host::rank::clerk::{Clerk, Job, Note};
use crate::host::rank::gate::Gate;
use crate::host::rank::recorder::Recording;
use crate::host::rank::works::Works;
use crate::host::rank::{Start, compute};
use lockstep_core::group::{GroupId, SequenceNumbers};
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a rank does from its orders to its end: joins, runs its program, reports, and waits until
/// all are done.
pub(super) fn carry_out(
    plan: Arc<Plan>,
    start: &Start<'_>,
    library: String,
    inbox: &Arc<Inbox>,
) -> Result<(), String> {
    let setup = start.setup;
    let tensors = Tensors::of(&plan, setup.rank);
    let held_back = disagreements(&plan, setup.rank);
    let mut socket = start.socket;
    // A coordinator that is gone is noticed by another thread. One rank speaks for all.
    if setup.rank.0 == 0 {
        let _ = socket.write_all(&frame(&Report::Device(library)));
    }
    let reports = socket.try_clone().map_err(|error| format!("cannot report: {error}"))?;
    let start_ns = start.join()?;
    let timeout = |ms: u64| setup.timeout_ns.unwrap_or(ms.saturating_mul(1_000_000));
    let timeouts_ns: Vec<u64> =
        plan.groups.iter().map(|group| timeout(group.timeout_ms())).collect();
    let job = Job {
        plan: plan.clone(),
        rank: setup.rank,
        start_ns,
        messages: setup.record_messages,
        shortest_timeout_ns: timeouts_ns.iter().copied().min().unwrap_or(u64::MAX),
    };
    let recording = Recording { calls: setup.recorded_calls, at_end: setup.dump_at_end };
    let clerk = Clerk::employ(job, recording, Arc::new(Mutex::new(reports)))?;
    let closed = clerk.clone();
    let _ = start.closing.set(Box::new(move || closed.abort()));
    start.serve(vec![clerk.clone()]);
    let rank = Arc::new(Rank { plan, tensors, works: Works::default(), clerk: clerk.clone() });
    let program = Program { rank, timeouts_ns, held_back, inbox: inbox.clone() };
    // The program may wait for a call that has failed.
    let (gate, ends) = (start.gate(), inbox.clone());
    let (end, ended) = std::sync::mpsc::channel();
    let failed = end.clone();
    let watching = std::thread::Builder::new().name("failures".to_owned()).spawn(move || {
        if let Some(why) = ends.failure() {
            let _ = failed.send(Err(why));
        }
    });
    watching.map_err(|error| format!("cannot start a thread: {error}"))?;
    let of = setup.rank;
    let running = std::thread::Builder::new().name("program".to_owned()).spawn(move || {
        let _ = end.send(program.run(of, &gate));
    });
    running.map_err(|error| format!("cannot start a thread: {error}"))?;
    ended.recv().unwrap_or_else(|_| Err("the program's thread is gone".to_owned()))?;
    clerk.finish();
    start.leave()
}

/// See the module.
struct Program {
    rank: Arc<Rank>,
    /// Per group, in nanoseconds.
    timeouts_ns: Vec<u64>,
    /// Collectives that MPI is not given.
    held_back: BTreeSet<(GroupId, u64)>,
    inbox: Arc<Inbox>,
}

/// What a program's calls are numbered with.
#[derive(Debug, Default)]
struct Numbers {
    /// Calls made so far.
    works: u32,
    collectives: SequenceNumbers,
    p2p: SequenceNumbers,
}

impl Program {
    fn run(&self, of: GlobalRank, gate: &Gate) -> Result<(), String> {
        let Rank { plan, tensors, works, clerk } = &*self.rank;
        let ops = plan.program(of).map_or(&[][..], |program| &program.ops);
        let mut numbers = Numbers::default();
        let mut works_of: Vec<Range<u32>> = Vec::with_capacity(ops.len());
        for (op, operation) in (0..).zip(ops) {
            gate.pass();
            clerk.note(Note::OpBegan { op });
            let first = numbers.works;
            let works_at = |op: u32| works_of.get(op as usize).cloned().unwrap_or_default();
            match &operation.action {
                action @ (Action::Call { .. } | Action::Coalesced { .. }) => {
                    self.make_calls(of, op, action, &mut numbers)?;
                    if !action.is_async() {
                        (first..numbers.works).for_each(|work| works.wait(work));
                    }
                }
                Action::Wait { op, timeout_ms } => {
                    if let Some(timeout_ms) = timeout_ms {
                        let timeout_ns = timeout_ms.saturating_mul(1_000_000);
                        works_at(*op).for_each(|work| clerk.limit(work, timeout_ns));
                    }
                    works_at(*op).for_each(|work| works.wait(work));
                }
                Action::Query { op: asked, what } => {
                    let completed = works_at(*asked).all(|work| works.is_completed(work));
                    clerk.note(Note::Answered { op, answer: what.answer(completed) });
                }
                action @ Action::Copy { .. } => tensors.copy(plan, action)?,
                Action::Synchronize => (0..first).for_each(|work| works.wait(work)),
                Action::Compute { duration_ns, .. } => compute(*duration_ns),
                Action::Sleep { duration_ns, .. } => {
                    std::thread::sleep(Duration::from_nanos(*duration_ns));
                }
                Action::Die { how } => return Err(how.clone()),
            }
            works_of.push(first..numbers.works);
            clerk.note(Note::OpEnded { op });
        }
        // A program that does not wait for its calls still has them completed before it ends.
        (0..numbers.works).for_each(|work| works.wait(work));
        for (tensor, value) in tensors.values() {
            clerk.note(Note::Result { tensor, value });
        }
        clerk.note(Note::Finished);
        Ok(())
    }

    /// Makes an operation's calls: all are on their way before one is waited for.
    fn make_calls(
        &self,
        of: GlobalRank,
        op: u32,
        action: &Action,
        numbers: &mut Numbers,
    ) -> Result<(), String> {
        let rank = &self.rank;
        for (part, call) in (0..).zip(action.calls()) {
            let (work, group) = (numbers.works, call.group());
            numbers.works += 1;
            let of_kind = if call.is_p2p() { &mut numbers.p2p } else { &mut numbers.collectives };
            let seq = of_kind.next(group);
            let lowered = lower(&rank.plan, of, op, call).map_err(|error| error.to_string())?;
            let timeout_ns = self.timeouts_ns.get(group.index()).copied().unwrap_or(u64::MAX);
            rank.clerk.note(Note::Scheduled { work, op, part, seq });
            rank.clerk.watch(work, timeout_ns);
            let held_back = !call.is_p2p() && self.held_back.contains(&(group, seq));
            self.inbox.post(Posted { work, lowered, held_back, rank: rank.clone() });
        }
        Ok(())
    }
}
