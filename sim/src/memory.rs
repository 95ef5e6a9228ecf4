//! The ranks' tensors, for plans small enough to carry their values.

use lockstep_core::plan::value;
use lockstep_core::plan::{Plan, TensorCopy, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::combine;
use std::sync::Arc;

/// One rank's tensors. Checkpoints share those that were not written since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// By tensor id; absent when the plan is too large to carry values, or the rank's program
    /// does not use the tensor.
    tensors: Box<[Option<Arc<Vec<u8>>>]>,
}

impl Memory {
    /// The tensors `used` by the rank's program, as it makes them.
    pub(crate) fn new(plan: &Plan, rank: GlobalRank, used: &[TensorId]) -> Memory {
        if used.is_empty() {
            return Memory::default();
        }
        let mut tensors = vec![None; plan.tensors.len()];
        for id in used {
            if let Some(tensor) = plan.tensor(*id) {
                tensors[id.index()] = Some(Arc::new(value::initial_bytes(tensor, rank)));
            }
        }
        Memory { tensors: tensors.into() }
    }

    pub(crate) fn get(&self, id: TensorId) -> Option<&[u8]> {
        self.tensors.get(id.index())?.as_ref().map(|bytes| bytes.as_slice())
    }

    pub(crate) fn get_mut(&mut self, id: TensorId) -> Option<&mut [u8]> {
        let bytes = self.tensors.get_mut(id.index())?.as_mut()?;
        Some(Arc::make_mut(bytes).as_mut_slice())
    }

    /// Carries out a step among the rank's own tensors.
    pub(crate) fn copy(&mut self, plan: &Plan, copy: &TensorCopy) {
        let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } = copy;
        let Some(tensor) = plan.tensor(*from) else { return };
        let (dtype, size) = (tensor.dtype, tensor.dtype.size_bytes());
        let part = |offset: u64| {
            let start = offset.saturating_mul(size) as usize;
            start..start.saturating_add(count.saturating_mul(size) as usize)
        };
        let Some(read) = self.get(*from).and_then(|bytes| bytes.get(part(*from_offset))) else {
            return;
        };
        let read = read.to_vec();
        let written = self.get_mut(*into).and_then(|bytes| bytes.get_mut(part(*into_offset)));
        match (written, reduce) {
            (Some(into), Some(op)) => combine(dtype, *op, into, &read),
            (Some(into), None) => into.copy_from_slice(&read),
            (None, _) => {}
        }
    }
}
