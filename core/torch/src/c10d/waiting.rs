//! Works: the result of an asynchronous call, and its methods (`torch.distributed.Work`).

use super::dist::Dist;
use super::error::{DistError, ErrorKind, value_error};
use super::recorded::Recorded;
use super::tensor::Tensor;
use super::work::{Work, WorkState};
use lockstep_core::group::BackendName;
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Action, Call, WorkQuery};
use lockstep_core::rank::GroupRank;

impl Dist<'_> {
    /// `work.wait(timeout)`, the timeout in milliseconds: `true` once the work has completed. May be called
    /// again. On NCCL the rank's stream waits, not its process, unless a timeout is given.
    ///
    /// # Errors
    /// The error that the backend found while it carried out the call.
    pub fn wait(&mut self, work: Work, timeout_ms: Option<u64>) -> Result<bool, DistError> {
        let side = match timeout_ms {
            None => self.work(work).map(|state| self.calls_of(state))?,
            Some(_) => Vec::new(),
        };
        if let Some(stream) = self.side_stream(&side) {
            self.waits_on(stream, work);
            return Ok(true);
        }
        self.wait_here(work, timeout_ms)
    }

    /// The calls of a work.
    fn calls_of(&self, state: &WorkState) -> Vec<Call> {
        let recorded = state.ops.iter().filter_map(|op| self.state.recorded.get(*op as usize));
        let calls = recorded.filter_map(|recorded| match recorded {
            Recorded::Op(op) | Recorded::Sized(op, _) => Some(op.action.calls()),
            _ => None,
        });
        calls.flatten().cloned().collect()
    }

    /// The compute stream waits, or the process.
    pub(super) fn wait_here(
        &mut self,
        work: Work,
        timeout_ms: Option<u64>,
    ) -> Result<bool, DistError> {
        let state = self.work(work)?;
        if let Some(fault) = state.fault.clone() {
            self.state.works[work.0 as usize].waited = true;
            return Err(fault);
        }
        let (ops, via) = (state.ops.clone(), state.via);
        // `kNoTimeout`: waited for without one.
        let timeout_ms = timeout_ms.filter(|timeout_ms| *timeout_ms > 0);
        for op in ops {
            self.record(Action::Wait { op, timeout_ms }, None);
        }
        let state = &mut self.state.works[work.0 as usize];
        if !std::mem::replace(&mut state.waited, true) {
            let after = std::mem::take(&mut state.after);
            let temporaries = std::mem::take(&mut state.temporaries);
            for action in after {
                self.record(action, Some(via));
            }
            self.state.tensors.give_back(&temporaries);
        }
        Ok(true)
    }

    /// `work.is_completed()`, `is_success()`, `exception()`, `result()`, `work.get_future().done()`: the
    /// answer is decided when the plan runs, and is recorded in the trace.
    ///
    /// # Errors
    /// The work is not this rank's, or NCCL's works raise when they are asked for their success
    /// (`ProcessGroupNCCL.cpp`, `WorkNCCL::isSuccess`).
    pub fn query(&mut self, work: Work, what: WorkQuery) -> Result<(), DistError> {
        if what == WorkQuery::IsSuccess && self.work(work)?.on_nccl {
            let text = "WorkNCCL::isSuccess() is deprecated";
            return Err(DistError::new(ErrorKind::NotImplementedError, text).with_help(
                "On NCCL a work's wait() raises what went wrong; is_completed() answers.",
            ));
        }
        for op in self.work(work)?.ops.clone() {
            self.record(Action::Query { op, what }, None);
        }
        Ok(())
    }

    /// `work.result()`: the tensors that the call has written, as PyTorch 2.7's gloo answers; `None` if it is
    /// not known that the call has completed; gloo refuses before it has.
    ///
    /// # Errors
    /// Gloo has no result for the call, or the work is not this rank's.
    pub fn result(&mut self, work: Work) -> Result<Option<Vec<Tensor>>, DistError> {
        self.query(work, WorkQuery::Result)?;
        if !self.has_result(work)? {
            return Err(super::error::runtime_error("result() not implemented."));
        }
        self.written(work)
    }

    /// True if a work returns the tensors that its call has written. Those of gloo's sends, receives and
    /// `reduce_scatter_tensor` do not.
    fn has_result(&self, work: Work) -> Result<bool, DistError> {
        let state = self.work(work)?;
        let bare = matches!(state.via, "isend" | "irecv" | "reduce_scatter_tensor");
        Ok(state.on_nccl || !bare)
    }

    /// `work.get_future()`, whose `wait` is [`Dist::wait`].
    ///
    /// # Errors
    /// The error that a work without a future raises.
    pub fn get_future(&self, work: Work) -> Result<Work, DistError> {
        match self.has_result(work)? {
            true => Ok(work),
            false => Err(super::error::runtime_error("Work::getFuture not implemented.")),
        }
    }

    /// `work.synchronize()`: on NCCL the stream waits, and elsewhere nothing does.
    ///
    /// # Errors
    /// When the work is not this rank's.
    pub fn synchronize_work(&mut self, work: Work) -> Result<(), DistError> {
        if self.work(work)?.on_nccl {
            self.wait(work, None)?;
        }
        Ok(())
    }

    /// The tensors that a call has written, as `work.get_future().value()` has them.
    ///
    /// # Errors
    /// When the work is not this rank's.
    pub fn written(&self, work: Work) -> Result<Option<Vec<Tensor>>, DistError> {
        let state = self.work(work)?;
        if !state.on_nccl && !state.waited {
            return Ok(None);
        }
        // gloo gathers into parts of the one tensor.
        if let ("all_gather_into_tensor", [all], false) =
            (state.via, &state.writes[..], state.on_nccl)
        {
            let parts = all.numel().checked_div(state.given).unwrap_or(0);
            return Ok(Some(all.view(all.numel()).chunk(parts.max(1))));
        }
        Ok(Some(state.writes.clone()))
    }

    /// `work.source_rank()`: the group rank that a receive on gloo is from; `None` for a receive from any
    /// source.
    ///
    /// # Errors
    /// `RuntimeError` for a work that is not a receive, and for NCCL's works (`Work::sourceRank` of
    /// `Work.cpp`).
    pub fn source_rank(&self, work: Work) -> Result<Option<GroupRank>, DistError> {
        let state = self.work(work)?;
        let calls = self.calls_of(state);
        match calls[..] {
            [Call::Recv { peer, .. }] if !state.on_nccl => Ok(peer),
            _ => Err(super::error::runtime_error(
                "sourceRank() may only be called on work objects that correspond to a recv or \
                 recv-from-any call.",
            )),
        }
    }

    /// True if the rank knows that the call has completed, because it waited for it. On NCCL waiting blocks a
    /// stream, and not the process.
    pub fn has_completed(&self, work: Work) -> bool {
        self.work(work).is_ok_and(|state| state.waited && !state.on_nccl)
    }

    /// The rank drops a work as soon as it has it. gloo's sends and receives go on only while something holds
    /// theirs; other calls are held by their backend.
    pub fn let_go(&mut self, work: Work) {
        let Some(call) = self.held_by_its_work(work) else { return };
        if let Some(state) = self.state.works.get_mut(work.0 as usize) {
            state.dropped = true;
        }
        self.remark(Remark::Dropped { call: call.to_owned() }, Some(work));
    }

    /// The only name that held a work has another value now, or has ended with its function. The program may
    /// know from something between the call and this moment that the call has completed. Only if nothing in
    /// between took time, it certainly had not.
    pub fn let_go_of_name(&mut self, work: Work, name: &str) {
        let Some(call) = self.held_by_its_work(work) else { return };
        let Ok(state) = self.work(work) else { return };
        let (waited, issued) = (state.waited, state.ops.iter().min().copied());
        let Some(issued) = issued.filter(|_| !waited).map(|op| op as usize) else { return };
        let mut since = self.state.recorded.iter().skip(issued);
        let at = match since.next() {
            Some(Recorded::Op(op)) => op.at,
            _ => return,
        };
        let at_once = |recorded: &Recorded| match recorded {
            Recorded::Remark(_) | Recorded::Tag(_) => true,
            Recorded::Op(op) => match &op.action {
                Action::Copy(_) => true,
                Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } => {
                    *duration_ns == 0
                }
                action => !action.calls().is_empty() && action.is_async(),
            },
            _ => false,
        };
        if since.all(at_once) {
            let remark = Remark::Unheld { call: call.to_owned(), name: name.to_owned() };
            self.remark_at(remark, Some(work), at);
        }
    }

    /// A send's or receive's name, where gloo carries it out.
    pub(super) fn held_by_its_work(&self, work: Work) -> Option<&'static str> {
        let state = self.work(work).ok()?;
        let calls = self.calls_of(state);
        let gloo = |call: &Call| self.shared.backend(call.group()) == BackendName::Gloo;
        let call = state.via;
        let held = matches!(call, "isend" | "irecv") && state.fault.is_none();
        (held && calls.iter().all(gloo)).then_some(call)
    }

    fn work(&self, work: Work) -> Result<&WorkState, DistError> {
        self.state.works.get(work.0 as usize).ok_or_else(|| {
            value_error("this rank has no such work")
                .with_help("Wait for a work on the rank whose call returned it.")
        })
    }
}
