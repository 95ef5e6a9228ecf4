//! Tensors whose values a plan cannot give: the output of a model, and results of computations that the plan
//! has no operation for. They have shapes and types, and go into calls like any other; the plan says that
//! they are unknown ([`Fill::Unknown`]), so that a simulation shows no values that no run has.

use super::dist::Dist;
use super::tensor::Tensor;
use lockstep_core::plan::Fill;
use lockstep_core::plan::value::initial_bytes;

/// The most elements of a tensor whose values are kept.
const KEPT: u64 = 4096;
/// The plan's name for the tensor that they are taken from.
const NAME: &str = "not known";

impl Dist<'_> {
    /// The bytes of a tensor, if they are known while the program is recorded: no value that only a run knows
    /// has been written into the whole tensor, which has at most `most` elements.
    pub fn bytes_of(&self, tensor: &Tensor, most: u64) -> Option<Vec<u8>> {
        let size = tensor.dtype.size_bytes();
        let all = self.bytes_of_all(tensor, most).filter(|_| !tensor.is_transposed())?;
        let start = usize::try_from(tensor.offset * size).ok()?;
        let end = usize::try_from((tensor.offset + tensor.numel()) * size).ok()?;
        Some(all.get(start..end)?.to_vec())
    }

    fn bytes_of_all(&self, tensor: &Tensor, most: u64) -> Option<Vec<u8>> {
        let storage = self.made_for(tensor.storage);
        if tensor.storage_numel > most || self.state.unknown.contains(&storage) {
            return None;
        }
        if self.state.written.contains(&storage) {
            return self.state.holds.get(&storage).cloned();
        }
        let made = self.shared.tensors.made_with(storage)?;
        if made.fill == Fill::Unknown {
            return None;
        }
        Some(initial_bytes(made, self.process()))
    }

    /// A tensor's values are not known from here on: the plan copies an unknown value into it.
    pub fn not_followed(&mut self, tensor: &Tensor) {
        let storage = self.made_for(tensor.storage);
        let known = self.is_followed(tensor);
        self.state.written.insert(storage);
        self.state.holds.remove(&storage);
        self.state.unknown.insert(storage);
        if tensor.numel() == 0 || !known {
            return;
        }
        let from = self.tensor_on(tensor.device, NAME, tensor.dtype, tensor.numel(), Fill::Unknown);
        self.record_copy(&from, tensor, None);
    }

    /// True if a tensor's values are followed.
    pub fn is_followed(&self, tensor: &Tensor) -> bool {
        let storage = self.made_for(tensor.storage);
        let begins = || self.shared.tensors.fill(storage) == Some(Fill::Unknown);
        let written = self.state.written.contains(&storage);
        !self.state.unknown.contains(&storage) && (written || !begins())
    }

    /// All of a tensor is written by something that is followed.
    pub(super) fn knows(&mut self, tensor: &Tensor) {
        if tensor.is_whole() {
            let storage = self.made_for(tensor.storage);
            self.state.unknown.remove(&storage);
        }
    }

    /// Notes the effect of a copy on the known values.
    pub(super) fn note_values(&mut self, from: &Tensor, into: &Tensor, combines: bool) {
        let storage = self.made_for(into.storage);
        let whole = !combines && into.is_whole() && from.numel() == into.numel();
        let unknown = !self.is_followed(from) || (!whole && !self.is_followed(into));
        let held = match combines || from.dtype != into.dtype {
            true => None,
            false => self.bytes_of(from, KEPT),
        };
        let before = match (&held, whole) {
            (None, _) => None,
            (Some(held), true) => Some(vec![0; held.len()]),
            (Some(_), false) => self.bytes_of_all(into, KEPT),
        };
        self.state.written.insert(storage);
        self.state.holds.remove(&storage);
        if from.dtype != into.dtype {
            self.not_followed(into);
        } else if unknown {
            self.state.unknown.insert(storage);
        } else if !combines && from.numel() == into.numel() {
            self.knows(into);
        }
        let at = usize::try_from(into.offset * into.dtype.size_bytes()).unwrap_or(usize::MAX);
        if let (Some(held), Some(mut all)) = (held, before)
            && !into.is_transposed()
            && let Some(part) = all.get_mut(at..at.saturating_add(held.len()))
        {
            part.copy_from_slice(&held);
            self.state.holds.insert(storage, all);
        }
    }
}
