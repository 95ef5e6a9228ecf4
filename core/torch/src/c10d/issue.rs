//! From a call to operations of the plan: the buffers that the backend copies into and out of, the calls that
//! it makes, and their work.
//!
//! A plan's call takes whole tensors. If PyTorch passes a view, or a list that the backend flattens, the
//! elements are copied into one tensor before and out of it afterwards, as the backends do it.

use super::error::DistError;
use super::tensor::Tensor;
use super::tensors::Temporary;
use lockstep_core::collective::{Collective, Splits};
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Call, TensorCopy, TensorId};
use lockstep_core::reduce::ReduceOp;

/// The operations of one call of the user's.
#[derive(Debug)]
pub(super) struct Issue {
    /// The user's call.
    pub(super) via: &'static str,
    /// The group whose backend copies.
    pub(super) group: GroupId,
    /// True for sends and receives on the group's own communicator and stream: batched ones, and those of
    /// processes that are bound to devices. In the plan even a single one is a batch.
    pub(super) batched: bool,
    /// Copies before the calls.
    pub(super) before: Vec<Action>,
    /// The calls; several of them are made together.
    pub(super) calls: Vec<Call>,
    /// Copies once the calls have completed.
    pub(super) after: Vec<Action>,
    /// Tensors that are free again then.
    pub(super) temporaries: Vec<Temporary>,
    /// The user's tensors that the call reads, as they were passed.
    pub(super) reads: Vec<Tensor>,
    /// Those that it writes.
    pub(super) writes: Vec<Tensor>,
    /// The error that the work ends with instead, if the backend finds out only while it works.
    pub(super) fault: Option<DistError>,
}

/// The use that a call makes of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    ReadWrite,
}

impl Issue {
    pub(super) fn new(via: &'static str, group: GroupId) -> Issue {
        Issue {
            via,
            group,
            batched: false,
            before: Vec::new(),
            calls: Vec::new(),
            after: Vec::new(),
            temporaries: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            fault: None,
        }
    }

    /// Notes which of the user's tensors the call reads and writes.
    pub(super) fn uses(&mut self, list: &[Tensor], usage: Use) {
        if usage != Use::Write {
            self.reads.extend_from_slice(list);
        }
        if usage != Use::Read {
            self.writes.extend_from_slice(list);
        }
    }

    /// Adds a copy before the calls.
    pub(super) fn copy_before(&mut self, from: &Tensor, into: &Tensor, reduce: Option<ReduceOp>) {
        self.before.push(copy(self.group, from, into, reduce));
    }

    /// Adds a copy after the calls.
    pub(super) fn copy_after(&mut self, from: &Tensor, into: &Tensor) {
        self.after.push(copy(self.group, from, into, None));
    }

    /// Adds a collective of `count` elements a rank.
    pub(super) fn collective(
        &mut self,
        group: GroupId,
        collective: Collective,
        count: u64,
        input: Option<TensorId>,
        output: Option<TensorId>,
    ) {
        self.calls.push(collective_call(group, collective, count, input, output, None));
    }

    /// Adds an `all_to_all` with uneven parts.
    pub(super) fn all_to_allv(
        &mut self,
        group: GroupId,
        splits: Splits,
        input: TensorId,
        output: TensorId,
    ) {
        let all_to_all = Collective::AllToAll;
        let splits = Some(Box::new(splits));
        self.calls.push(collective_call(group, all_to_all, 0, Some(input), Some(output), splits));
    }
}

/// A collective by its default algorithm.
pub(super) fn collective_call(
    group: GroupId,
    collective: Collective,
    count: u64,
    input: Option<TensorId>,
    output: Option<TensorId>,
    splits: Option<Box<Splits>>,
) -> Call {
    let mut call = Call::collective_of(group, collective, count, input, output);
    if let Call::Collective { splits: parts, .. } = &mut call {
        *parts = splits;
    }
    call
}

/// `into[..] = from[..]`, or `into[..] = into[..] op from[..]`; tensors of the same number of
/// elements.
pub(super) fn copy(
    group: GroupId,
    from: &Tensor,
    into: &Tensor,
    reduce: Option<ReduceOp>,
) -> Action {
    Action::Copy(Box::new(TensorCopy {
        group,
        from: from.storage,
        from_offset: from.offset,
        into: into.storage,
        into_offset: into.offset,
        count: into.numel().min(from.numel()),
        reduce,
    }))
}
