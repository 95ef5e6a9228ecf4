//! A rank's tensors, in its own memory: read when a call starts, written when it has completed.

use crate::host::rank::failure::RankFailure;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Plan, TensorCopy, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::combine;
use lockstep_core::trace::TensorValue;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(super) struct Tensors {
    of: BTreeMap<TensorId, Mutex<Vec<u8>>>,
}

impl Tensors {
    /// The tensors that the rank's program uses, filled.
    pub(super) fn of(plan: &Plan, rank: GlobalRank) -> Tensors {
        let used = plan.program(rank).map(|program| program.tensors()).unwrap_or_default();
        let filled = used.into_iter().filter_map(|id| {
            let tensor = plan.tensor(id)?;
            Some((id, Mutex::new(initial_bytes(tensor, rank))))
        });
        Tensors { of: filled.collect() }
    }

    fn whole(&self, id: TensorId) -> Result<MutexGuard<'_, Vec<u8>>, RankFailure> {
        let tensor =
            self.of.get(&id).ok_or(RankFailure::Unchecked("a tensor that was not made"))?;
        Ok(tensor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Some of a tensor's bytes.
    pub(super) fn read(&self, id: TensorId, bytes: Range<usize>) -> Result<Vec<u8>, RankFailure> {
        let whole = self.whole(id)?;
        let part = whole.get(bytes).ok_or(RankFailure::Unchecked("bytes outside of a tensor"))?;
        Ok(part.to_vec())
    }

    /// Replaces bytes of a tensor from `start` on.
    pub(super) fn write(
        &self,
        id: TensorId,
        start: usize,
        bytes: &[u8],
    ) -> Result<(), RankFailure> {
        let mut whole = self.whole(id)?;
        let part = start.checked_add(bytes.len()).and_then(|end| whole.get_mut(start..end));
        part.ok_or(RankFailure::Unchecked("bytes outside of a tensor"))?.copy_from_slice(bytes);
        Ok(())
    }

    /// A step among the rank's own tensors.
    pub(super) fn copy(&self, plan: &Plan, copy: &TensorCopy) -> Result<(), RankFailure> {
        let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } = copy;
        let dtype = plan.tensor(*from).map_or(Dtype::Unknown, |tensor| tensor.dtype);
        let size = dtype.size_bytes() as usize;
        let (count, start) = (*count as usize * size, *into_offset as usize * size);
        let first = *from_offset as usize * size;
        let mut moved = self.read(*from, first..first.saturating_add(count))?;
        if let Some(op) = reduce {
            let mut sum = self.read(*into, start..start.saturating_add(count))?;
            combine(dtype, *op, &mut sum, &moved);
            moved = sum;
        }
        self.write(*into, start, &moved)
    }

    /// The values of all, in id order.
    pub(super) fn values(&self) -> impl Iterator<Item = (TensorId, TensorValue)> {
        self.of.iter().map(|(id, tensor)| {
            let held = tensor.lock().unwrap_or_else(PoisonError::into_inner);
            (*id, TensorValue::of(&held))
        })
    }
}
