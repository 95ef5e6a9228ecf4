//! A rank's program: its operations in order, on a thread beside the one that calls MPI.

use super::agreement::disagreements;
use super::engine::{Inbox, Posted, Rank};
use super::lower::lower;
use super::tensors::Tensors;
use crate::host::control::{Report, frame};
use crate::host::rank::clerk::{Clerk, Job};
use crate::host::rank::failure::{RankFailure, cannot};
use crate::host::rank::gate::Gate;
use crate::host::rank::made::{Carried, Made};
use crate::host::rank::operations::{self, CarryOut, Context};
use crate::host::rank::recorder::Recording;
use crate::host::rank::start::Start;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan, SignalKind, TensorCopy, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::TensorValue;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Carries a rank from its orders to its end: it joins, runs its program, reports, and waits until
/// all are done.
pub(super) fn carry_out(
    plan: Arc<Plan>,
    start: &Start<'_>,
    library: String,
    inbox: &Arc<Inbox>,
) -> Result<(), RankFailure> {
    let setup = start.setup;
    let tensors = Tensors::of(&plan, setup.rank);
    let held_back = disagreements(&plan, setup.rank);
    let mut socket = start.socket;
    // A coordinator that is gone is noticed by another thread. One rank speaks for all.
    if setup.rank.0 == 0 {
        let _ = socket.write_all(&frame(&Report::Device(library)));
    }
    let reports = socket.try_clone().map_err(cannot("cannot report"))?;
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
        word_every_ns: setup.word_every_ns,
    };
    let recording = Recording { calls: setup.recorded_calls, at_end: setup.dump_at_end };
    let clerk = Clerk::employ(job, recording, Arc::new(Mutex::new(reports)))?;
    let closed = clerk.clone();
    let _ = start.closing.set(Box::new(move || closed.abort()));
    start.serve(vec![clerk.clone()]);
    let rank = Arc::new(Rank { plan, tensors, works: Arc::default(), clerk: clerk.clone() });
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
    watching.map_err(cannot("cannot start a thread"))?;
    let of = setup.rank;
    let running = std::thread::Builder::new().name("program".to_owned()).spawn(move || {
        let _ = end.send(program.run(of, &gate));
    });
    running.map_err(cannot("cannot start a thread"))?;
    ended.recv().unwrap_or(Err(RankFailure::Unchecked("a program's thread that is gone")))?;
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

impl Program {
    fn run(self, of: GlobalRank, gate: &Gate) -> Result<(), RankFailure> {
        let (rank, timeouts_ns) = (self.rank.clone(), self.timeouts_ns.clone());
        let Rank { plan, works, clerk, .. } = &*rank;
        let timeouts_ns = &timeouts_ns;
        operations::run(self, Context { plan, rank: of, timeouts_ns, works, clerk, gate })
    }
}

impl CarryOut for Program {
    /// Such a plan is refused before its ranks begin.
    fn signal(&mut self, _: Context<'_>, _: SignalKind) -> Result<(), RankFailure> {
        Err(RankFailure::Unchecked("a signal to a rank of MPI"))
    }

    fn call(
        &mut self,
        context: Context<'_>,
        call: &Call,
        made: Made,
    ) -> Result<Carried, RankFailure> {
        let Context { plan, rank, .. } = context;
        let lowered = lower(plan, rank, made.op, call)?;
        made.scheduled(context.clerk);
        let held_back = !call.is_p2p() && self.held_back.contains(&(call.group(), made.seq));
        let rank = self.rank.clone();
        self.inbox.post(Posted { work: made.work, lowered, held_back, rank });
        Ok(Carried::Made)
    }

    fn copy(&mut self, context: Context<'_>, copy: &TensorCopy) -> Result<(), RankFailure> {
        self.rank.tensors.copy(context.plan, copy)
    }

    fn results(&self) -> impl Iterator<Item = (TensorId, TensorValue)> {
        self.rank.tensors.values()
    }
}
