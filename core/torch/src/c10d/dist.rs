//! A process's view of the job, and the recording of its calls.

use super::backend::Device;
use super::error::DistError;
use super::recorded::Recorded;
use super::state::{RankState, Shared};
use super::tensor::{Grad, Layout, Shape, Tensor};
use super::tensors::Numel;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Fill, Op, SignalKind, SourceLine, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use std::sync::Arc;

/// One process of a [`Job`](super::Job): torch.distributed's functions are its methods, with
/// PyTorch's names.
#[derive(Debug)]
pub struct Dist<'j> {
    pub(super) rank: GlobalRank,
    pub(super) shared: &'j mut Shared,
    pub(super) state: &'j mut RankState,
}

impl Dist<'_> {
    /// The process's number in the job: the `RANK` that torchrun sets.
    pub fn process(&self) -> GlobalRank {
        self.rank
    }

    /// An environment variable of the process.
    pub fn environ(&self, name: &str) -> Option<String> {
        self.shared.environment(self.rank).remove(name)
    }

    /// The names of all that it is set to.
    pub fn environ_names(&self) -> Vec<String> {
        self.shared.environment(self.rank).into_keys().collect()
    }

    /// The calls that follow come from this line of a source made by
    /// [`Job::source`](super::Job::source).
    pub fn at(&mut self, source: u32, line: u32) -> &mut Self {
        self.state.at = Some(SourceLine { source, line });
        self
    }

    /// A tensor of this rank, on the CPU. Every rank that makes one of the same name, type and size
    /// has its own of it.
    pub fn tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: impl Into<Shape>,
        fill: Fill,
    ) -> Tensor {
        self.tensor_on(Device::Cpu, name, dtype, shape, fill)
    }

    /// A tensor of this rank on a device.
    pub fn tensor_on(
        &mut self,
        device: Device,
        name: &str,
        dtype: Dtype,
        shape: impl Into<Shape>,
        fill: Fill,
    ) -> Tensor {
        self.make_tensor(device, name, dtype, shape.into(), fill, &[])
    }

    /// A tensor of this rank, on the CPU, that begins with these little-endian bytes and goes on
    /// with zeros: `torch.tensor([…])`. Bytes past its end do not count.
    pub fn tensor_of(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: impl Into<Shape>,
        data: &[u8],
    ) -> Tensor {
        self.tensor_of_on(Device::Cpu, name, dtype, shape, data)
    }

    /// A tensor on a device.
    pub fn tensor_of_on(
        &mut self,
        device: Device,
        name: &str,
        dtype: Dtype,
        shape: impl Into<Shape>,
        data: &[u8],
    ) -> Tensor {
        let shape = shape.into();
        let bytes = shape.numel().saturating_mul(dtype.size_bytes());
        let data = &data[..data.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        self.make_tensor(device, name, dtype, shape, Fill::Data, data)
    }

    /// The initial values that a tensor still has, if it is a whole tensor as it was made, and nothing has
    /// written into it since.
    pub fn fill_of(&self, tensor: &Tensor) -> Option<Fill> {
        let storage = self.made_for(tensor.storage);
        let made = self.shared.tensors.fill(storage)?;
        let untouched = !self.state.written.contains(&storage);
        (tensor.is_whole() && untouched && made != Fill::Data).then_some(made)
    }

    /// True if the process has passed the tensor to an NCCL call.
    pub fn has_used(&self, storage: TensorId) -> bool {
        self.state.used.contains(&storage)
    }

    /// `into.copy_(from)`, as far as their elements go; of tensors of different types the values are not
    /// followed. Before there is a default group it waits for one: until then no call looks at either.
    pub fn copy_tensor(&mut self, from: &Tensor, into: &Tensor) {
        self.copy_or_combine(from, into, None);
    }

    /// `into = into op from`, element by element.
    pub fn combine_into(&mut self, from: &Tensor, into: &Tensor, op: ReduceOp) {
        self.copy_or_combine(from, into, Some(op));
    }

    fn copy_or_combine(&mut self, from: &Tensor, into: &Tensor, reduce: Option<ReduceOp>) {
        self.note_values(from, into, reduce.is_some());
        if from.dtype != into.dtype {
            return;
        }
        self.record_copy(from, into, reduce);
    }

    pub(super) fn record_copy(&mut self, from: &Tensor, into: &Tensor, reduce: Option<ReduceOp>) {
        match self.state.world.default.is_some() {
            true => {
                let action = super::issue::copy(GroupId::WORLD, from, into, reduce);
                let via = if reduce.is_none() { Some("copy_") } else { None };
                self.record(action, via);
            }
            false => self.state.early.push((from.clone(), into.clone(), reduce)),
        }
    }

    /// A tensor that was to be made ([`Tensor::to_be_made`]) is this one.
    pub fn stands_for(&mut self, to_be_made: &Tensor, made: TensorId) {
        self.state.made.insert(to_be_made.storage, made);
    }

    /// The plan's tensor of an id, which may have been a pending one.
    pub(super) fn made_for(&self, id: TensorId) -> TensorId {
        self.state.made.get(&id).copied().unwrap_or(id)
    }

    /// Makes the copies that waited for a default group.
    pub(super) fn copy_early(&mut self) {
        for (from, into, reduce) in std::mem::take(&mut self.state.early) {
            self.record_copy(&from, &into, reduce);
        }
    }

    fn make_tensor(
        &mut self,
        device: Device,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        fill: Fill,
        data: &[u8],
    ) -> Tensor {
        let numel = shape.numel();
        let own = &mut self.state.tensors;
        let made = self.shared.tensors.make(own, name, dtype, Numel::Known(numel), fill, data);
        Tensor {
            storage: made.id,
            offset: 0,
            storage_numel: numel,
            shape: shape.0,
            dtype,
            device,
            device_index: 0,
            layout: Layout::Strided,
            contiguous: true,
            in_parts: false,
            grad: Grad::Leaf,
        }
    }

    /// Work that keeps the rank busy, in nanoseconds: forward, backward.
    pub fn compute(&mut self, name: impl Into<Arc<str>>, duration_ns: u64) {
        self.record(Action::Compute { name: name.into(), duration_ns }, None);
    }

    /// The computation that the rank recorded last takes so many nanoseconds longer. False, and nothing
    /// happens, if it recorded something else last.
    pub fn compute_longer(&mut self, more_ns: u64) -> bool {
        let Some(Recorded::Op(op)) = self.state.recorded.last_mut() else { return false };
        let Action::Compute { name, duration_ns } = &mut op.action else { return false };
        *duration_ns = duration_ns.saturating_add(more_ns);
        let action = Action::Compute { name: name.clone(), duration_ns: more_ns };
        let more = Recorded::Op(Op { action, ..op.clone() });
        self.state.clock.goes_on(&more);
        true
    }

    /// Idle time, in nanoseconds: a data loader that stalls.
    pub fn sleep(&mut self, name: impl Into<Arc<str>>, duration_ns: u64) {
        self.record(Action::Sleep { name: name.into(), duration_ns }, None);
    }

    /// The process ends here: `sys.exit()`, an exception, a kill. `how` is the last line of its log.
    pub fn die(&mut self, how: impl Into<String>) {
        self.record(Action::Die { how: how.into() }, None);
    }

    /// The process is sent a signal here, on purpose: `os.kill(os.getpid(), signal.SIGSTOP)`.
    pub fn signal(&mut self, signal: SignalKind) {
        self.record(Action::Signal(signal), None);
    }

    /// The calls that follow are a part of this one of the user's, until `None` says otherwise.
    pub fn part_of(&mut self, call: Option<&'static str>) -> &mut Self {
        self.state.part_of = call;
        self
    }

    /// `torch.cuda.synchronize()`.
    pub fn synchronize(&mut self) {
        self.record(Action::Synchronize, None);
    }

    /// The number of operations that have been recorded.
    pub fn ops(&self) -> usize {
        self.state.recorded.len()
    }

    /// True if a call of torch.distributed's is among the operations from this number on.
    pub fn calls_since(&self, op: usize) -> bool {
        self.state.recorded.iter().skip(op).any(|one| match one {
            Recorded::Op(op) => !op.action.calls().is_empty(),
            Recorded::Sized(..) | Recorded::Connect { .. } | Recorded::Pair { .. } => true,
            Recorded::Tag(_) | Recorded::Remark(_) => false,
        })
    }

    /// Python's warnings so far.
    pub fn warnings(&self) -> &[String] {
        &self.state.warnings
    }

    /// Writes an operation down, as a part of the user's call `via` unless it is that call.
    pub(super) fn record(&mut self, action: Action, via: Option<&str>) -> u32 {
        let op = self.op(action, via);
        self.write(Recorded::Op(op))
    }

    pub(super) fn op(&self, mut action: Action, via: Option<&str>) -> Op {
        if !self.state.made.is_empty() {
            action.each_tensor(|id| *id = self.made_for(*id));
        }
        let via = self.state.part_of.or(via);
        let via = via.filter(|via| *via != action.name()).map(Arc::from);
        Op { via, ..Op::new(action, self.state.at) }
    }

    pub(super) fn write(&mut self, recorded: Recorded) -> u32 {
        if let Recorded::Op(Op { action, .. }) = &recorded
            && let Action::Call { call, async_op: false } = action
            && call.collective() == Some(Collective::Barrier)
            && self.shared.is_of_all(call.group())
        {
            self.state.barriers += 1;
            self.state.clock.all_meet();
        } else {
            self.state.clock.goes_on(&recorded);
        }
        self.state.recorded.push(recorded);
        self.state.recorded.len() as u32 - 1
    }

    pub(super) fn warn(&mut self, warning: impl Into<String>) {
        self.state.warnings.push(warning.into());
    }
}

/// The result of a call: its work if it was asynchronous; `None` if it has completed, or if this rank is not
/// a member of the group.
pub type Called = Result<Option<super::work::Work>, DistError>;
