//! Tensors whose values a plan cannot say: what was computed of them by something that the plan has
//! no operation for. Their shapes are followed. A call that would carry such values is refused, since
//! a simulation would show numbers that no run has.

use super::dist::Dist;
use super::error::{DistError, ErrorKind};
use super::tensor::Tensor;
use crate::plan::SourceLine;
use crate::value::initial_bytes;

/// Of larger tensors only the shape is followed, without a word.
const FOLLOWED: u64 = 1 << 20;
/// Elements of a tensor of which it is known what they are.
const KEPT: u64 = 4096;

/// Why a tensor's values are not followed.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    why: String,
    at: Option<SourceLine>,
}

impl Dist<'_> {
    /// The bytes that a tensor holds, where they are known while the program is recorded: nothing that
    /// a run alone knows has been written into what it is a part of, which has at most so many
    /// elements.
    pub fn bytes_of(&self, tensor: &Tensor, most: u64) -> Option<Vec<u8>> {
        let size = tensor.dtype.size_bytes();
        let all = self.bytes_of_all(tensor, most).filter(|_| !tensor.is_transposed())?;
        let start = usize::try_from(tensor.offset * size).ok()?;
        let end = usize::try_from((tensor.offset + tensor.numel()) * size).ok()?;
        Some(all.get(start..end)?.to_vec())
    }

    fn bytes_of_all(&self, tensor: &Tensor, most: u64) -> Option<Vec<u8>> {
        let storage = self.made_for(tensor.storage);
        if tensor.storage_numel > most || self.state.unknown.contains_key(&storage) {
            return None;
        }
        if self.state.written.contains(&storage) {
            return self.state.holds.get(&storage).cloned();
        }
        let made = self.shared.tensors.made_with(storage)?;
        Some(initial_bytes(made, self.process()))
    }

    /// A tensor's values are not followed from here on, because of that.
    pub fn not_followed(&mut self, tensor: &Tensor, why: impl Into<String>) {
        let storage = self.made_for(tensor.storage);
        self.state.written.insert(storage);
        self.state.holds.remove(&storage);
        if tensor.storage_numel > FOLLOWED {
            return;
        }
        let unknown = Unknown { why: why.into(), at: self.state.at };
        self.state.unknown.entry(storage).or_insert(unknown);
    }

    /// Whether a tensor's values are followed.
    pub fn is_followed(&self, tensor: &Tensor) -> bool {
        !self.state.unknown.contains_key(&self.made_for(tensor.storage))
    }

    /// All of a tensor is written by something that is followed.
    pub(super) fn knows(&mut self, tensor: &Tensor) {
        if tensor.is_whole() {
            let storage = self.made_for(tensor.storage);
            self.state.unknown.remove(&storage);
        }
    }

    /// What a copy makes of what is known.
    pub(super) fn note_values(&mut self, from: &Tensor, into: &Tensor, combines: bool) {
        let storage = self.made_for(into.storage);
        let unknown = self.state.unknown.get(&self.made_for(from.storage)).cloned();
        let held = match combines || from.dtype != into.dtype {
            true => None,
            false => self.bytes_of(from, KEPT),
        };
        let before = match (&held, into.is_whole() && from.numel() == into.numel()) {
            (None, _) => None,
            (Some(held), true) => Some(vec![0; held.len()]),
            (Some(_), false) => self.bytes_of_all(into, KEPT),
        };
        self.state.written.insert(storage);
        self.state.holds.remove(&storage);
        if let Some(unknown) = unknown {
            self.state.unknown.entry(storage).or_insert(unknown);
        } else if from.dtype != into.dtype {
            let why = format!("received {} is turned into {}", from.dtype, into.dtype);
            self.not_followed(into, why);
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

    /// Refuses a call that reads values which are not followed.
    pub(super) fn knows_values(&self, reads: &[Tensor]) -> Result<(), DistError> {
        let unknown = |tensor: &Tensor| self.state.unknown.get(&self.made_for(tensor.storage));
        let Some(Unknown { why, at }) = reads.iter().find_map(unknown) else { return Ok(()) };
        let line = at.map(|at| format!(" (line {})", at.line)).unwrap_or_default();
        let text =
            format!("this call takes a tensor whose values are not followed here: {why}{line}");
        Err(DistError {
            kind: ErrorKind::Unsupported,
            text,
            help: Some(
                "A simulation adds, subtracts and multiplies received tensors of one type, and \
                 divides them by numbers. Compute it so, or pass another tensor of that shape, as \
                 torch.ones_like(x)"
                    .to_owned(),
            ),
        })
    }
}
