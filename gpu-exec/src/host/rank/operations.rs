//! A program's operations, one after the other: the part that is the same for every way of carrying out
//! calls.

use super::clerk::Clerk;
use super::failure::RankFailure;
use super::gate::Gate;
use super::made::{Began, Carried, Ended, Made};
use super::note::Note;
use super::works::Works;
use crate::clock;
use lockstep_core::group::SequenceNumbers;
use lockstep_core::plan::{Action, Call, Plan, SignalKind, TensorCopy, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::TensorValue;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The context that a rank's program runs with.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) rank: GlobalRank,
    /// Per group, in nanoseconds.
    pub(crate) timeouts_ns: &'a [u64],
    pub(crate) works: &'a Arc<Works>,
    pub(crate) clerk: &'a Arc<Clerk>,
    pub(crate) gate: &'a Gate,
}

/// The operations that differ between the ways to carry a program out.
pub(crate) trait CarryOut {
    /// Sends the process a signal, as a fault of the run.
    ///
    /// # Errors
    /// By those that send none.
    fn signal(&mut self, context: Context<'_>, signal: SignalKind) -> Result<(), RankFailure>;

    /// Makes a call, which says that it is [`Made::scheduled`] and completes its work, now or on another
    /// thread.
    ///
    /// # Errors
    /// An error that prevents the call, and ends the rank.
    fn call(
        &mut self,
        context: Context<'_>,
        call: &Call,
        made: Made,
    ) -> Result<Carried, RankFailure>;

    /// Carries out a step among the rank's own tensors.
    ///
    /// # Errors
    /// An error that prevents the copy.
    fn copy(&mut self, context: Context<'_>, copy: &TensorCopy) -> Result<(), RankFailure>;

    /// The values of the rank's tensors, in id order.
    fn results(&self) -> impl Iterator<Item = (TensorId, TensorValue)>;
}

/// Runs all operations of a rank's program, and reports its tensors' values at the end.
///
/// # Errors
/// The error that ended the rank early.
pub(crate) fn run(mut by: impl CarryOut, context: Context<'_>) -> Result<(), RankFailure> {
    let Context { plan, works, clerk, .. } = context;
    let ops = plan.program(context.rank).map_or(&[][..], |program| &program.ops);
    let mut numbers = Numbers::default();
    // The works of each operation: neighbours, since works are numbered in call order.
    let mut works_of: Vec<Range<u32>> = Vec::with_capacity(ops.len());
    // The last operation, if the next begins with its end.
    let mut before: Option<Ended> = None;
    // Works that ended with their operation and are not marked yet: who waits for any is here.
    let mut unmarked: Vec<u32> = Vec::with_capacity(ops.len());
    for (op, operation) in (0..).zip(ops) {
        context.gate.pass(|| {
            if let Some(before) = before.take() {
                clerk.ended(before);
            }
        });
        let mut began = before.take().map_or_else(|| Began::At(clock::now_ns()), Began::With);
        let alone = matches!(operation.action, Action::Call { async_op: false, .. });
        // A call's beginning is written down together with the call.
        if !alone {
            let began_ns = began.known(clerk);
            works.complete_all(unmarked.drain(..));
            clerk.began(op, began_ns);
            began = Began::At(began_ns);
        }
        let first = numbers.works;
        let works_at = |op: u32| works_of.get(op as usize).cloned().unwrap_or_default();
        match &operation.action {
            action @ (Action::Call { .. } | Action::Coalesced { .. }) => {
                // All are on their way before one is waited for.
                let mut carried = Carried::Made;
                for (part, call) in (0..).zip(action.calls()) {
                    let (work, seq) = numbers.next(call);
                    let timeout_ns = context.timeouts_ns.get(call.group().index()).copied();
                    let timeout_ns = timeout_ns
                        .ok_or(RankFailure::Unchecked("a group that the plan has not"))?;
                    let made = Made { work, op, began, part, seq, timeout_ns, alone };
                    let called = by.call(context, call, made);
                    carried = called.inspect_err(|_| clerk.began(op, began.known(clerk)))?;
                }
                if let Carried::Ended(ended) = carried {
                    before = Some(ended);
                    unmarked.push(ended.work);
                    works_of.push(first..numbers.works);
                    continue;
                }
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
            Action::Copy(copy) => by.copy(context, copy)?,
            // There is no device: the streams that are left are those of communication.
            Action::Synchronize => (0..first).for_each(|work| works.wait(work)),
            Action::Compute { duration_ns, .. } => compute(*duration_ns),
            Action::Sleep { duration_ns, .. } => {
                std::thread::sleep(Duration::from_nanos(*duration_ns));
            }
            Action::Die { how } => return Err(RankFailure::Died { how: how.clone() }),
            Action::Signal(signal) => by.signal(context, *signal)?,
        }
        works_of.push(first..numbers.works);
        clerk.note(Note::OpEnded { op });
    }
    if let Some(before) = before {
        clerk.ended(before);
    }
    works.complete_all(unmarked);
    // A program that does not wait for its calls still has them completed before it ends.
    (0..numbers.works).for_each(|work| works.wait(work));
    for (tensor, value) in by.results() {
        clerk.note(Note::Result { tensor, value });
    }
    clerk.note(Note::Finished);
    Ok(())
}

/// The numbers of a program's calls.
#[derive(Debug, Default)]
struct Numbers {
    /// Calls made so far.
    works: u32,
    collectives: SequenceNumbers,
    p2p: SequenceNumbers,
}

impl Numbers {
    /// The work of the next call, and its number in its group.
    fn next(&mut self, call: &Call) -> (u32, u64) {
        let work = self.works;
        self.works += 1;
        let of_kind = if call.is_p2p() { &mut self.p2p } else { &mut self.collectives };
        (work, of_kind.next(call.group()))
    }
}

/// Keeps the core busy with arithmetic until the time has passed.
fn compute(duration_ns: u64) {
    let started = clock::now_ns();
    let mut x = 1.0f64;
    while clock::now_ns().saturating_sub(started) < duration_ns {
        for _ in 0..512 {
            x = std::hint::black_box(x) * 0.999_999 + 0.000_001;
        }
    }
}
