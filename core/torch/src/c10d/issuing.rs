//! Issues a call: records its copies and calls, and makes their work.

use super::dist::{Called, Dist};
use super::issue::{Issue, Use};
use super::tensor::Tensor;
use super::work::{Work, WorkState};
use lockstep_core::group::BackendName;
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Action, Call, TensorId};

impl Dist<'_> {
    /// A tensor for the time of one call.
    pub(super) fn borrow(
        &mut self,
        issue: &mut Issue,
        name: &str,
        like: &Tensor,
        numel: u64,
    ) -> Tensor {
        let name = format!("{}.{name}", issue.via);
        let own = &mut self.state.tensors;
        let borrowed = self.shared.tensors.borrow(own, &name, like.dtype, numel);
        issue.temporaries.push(borrowed);
        Tensor {
            storage: borrowed.id,
            offset: 0,
            storage_numel: numel,
            shape: vec![numel],
            ..like.clone()
        }
    }

    /// The tensor as a whole one of the plan: itself, or one that it is copied to and from.
    pub(super) fn whole(
        &mut self,
        issue: &mut Issue,
        tensor: &Tensor,
        usage: Use,
        name: &str,
    ) -> TensorId {
        if tensor.is_whole() {
            issue.uses(std::slice::from_ref(tensor), usage);
            return tensor.storage;
        }
        let list = std::slice::from_ref(tensor);
        self.flat(issue, list, usage, name)
    }

    /// A list of tensors as one of the plan: the one that they cover, or one that they are copied
    /// to and from, one after the other.
    pub(super) fn flat(
        &mut self,
        issue: &mut Issue,
        list: &[Tensor],
        usage: Use,
        name: &str,
    ) -> TensorId {
        issue.uses(list, usage);
        let total = list.iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.numel()));
        if let Some(first) = list.first().filter(|first| first.storage_numel == total) {
            let mut next = 0;
            let covers = list.iter().all(|tensor| {
                let follows = tensor.storage == first.storage && tensor.offset == next;
                next += tensor.numel();
                follows
            });
            if covers {
                return first.storage;
            }
        }
        let Some(first) = list.first() else { return TensorId(0) };
        let flat = self.borrow(issue, name, first, total);
        let mut start = 0;
        for tensor in list {
            let part = flat.slice(start, tensor.numel());
            start += tensor.numel();
            if usage != Use::Write {
                issue.copy_before(tensor, &part, None);
            }
            if usage != Use::Read {
                issue.copy_after(&part, tensor);
            }
        }
        flat.storage
    }

    /// Makes the calls: waits for them, or returns their work.
    pub(super) fn issue(&mut self, issue: Issue, async_op: bool) -> Called {
        for tensor in &issue.writes {
            self.knows(tensor);
        }
        let written: Vec<_> =
            issue.writes.iter().map(|tensor| self.made_for(tensor.storage)).collect();
        for storage in &written {
            self.state.holds.remove(storage);
        }
        self.state.written.extend(written);
        // Others take what is on the CPU as well.
        let of = self.shared.groups.groups.get(issue.group.index());
        if of.is_some_and(|group| group.backend == BackendName::Nccl) {
            self.state.used.extend(issue.reads.iter().chain(&issue.writes).map(Tensor::storage));
        }
        if let Some(batch) = &mut self.state.batch {
            // Made together with the rest of the batch, when it is complete.
            batch.before.extend(issue.before);
            batch.calls.extend(issue.calls);
            batch.after.extend(issue.after);
            batch.temporaries.extend(issue.temporaries);
            batch.fault = batch.fault.take().or(issue.fault);
            return Ok(None);
        }
        let mut issue = issue;
        for call in &mut issue.calls {
            self.shared.as_the_backend_does(call);
        }
        self.note_check(&issue);
        let side = if async_op { None } else { self.side_stream(&issue.calls) };
        let async_op = async_op || side.is_some();
        let Issue { via, batched, before, calls, after, temporaries, fault, reads, writes, .. } =
            issue;
        if let (Some(fault), false) = (&fault, async_op) {
            return Err(fault.clone());
        }
        let on_nccl = calls.iter().any(|call| self.shared.is_on_nccl(call.group()));
        let (ops, waited) = (Vec::new(), false);
        let given = reads.first().map_or(0, Tensor::numel);
        let mut work = WorkState {
            via,
            ops,
            after,
            temporaries,
            fault,
            waited,
            dropped: false,
            on_nccl,
            given,
            writes,
        };
        if work.fault.is_none() {
            for action in before {
                self.record(action, Some(via));
            }
            let action = match <[Call; 1]>::try_from(calls) {
                Ok([call]) if batched => Some(Action::Coalesced { calls: vec![call], async_op }),
                Ok([call]) => Some(Action::call(call, async_op)),
                Err(calls) if calls.is_empty() => None,
                Err(calls) => Some(Action::Coalesced { calls, async_op }),
            };
            work.ops.extend(action.map(|action| self.record(action, Some(via))));
        }
        if async_op {
            let fault = work.fault.as_ref().map(|fault| fault.to_string());
            self.state.works.push(work);
            let work = Work(self.state.works.len() as u32 - 1);
            if let Some(error) = fault {
                self.remark(Remark::Failed { call: via.to_owned(), error }, Some(work));
            } else if let Some(call) = self.held_by_its_work(work) {
                self.remark(Remark::Left { call: call.to_owned() }, Some(work));
            }
            let Some(side) = side else { return Ok(Some(work)) };
            self.waits_on(side, work);
            return Ok(None);
        }
        for action in work.after {
            self.record(action, Some(via));
        }
        self.state.tensors.give_back(&work.temporaries);
        Ok(None)
    }
}
