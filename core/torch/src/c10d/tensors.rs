//! The plan's table of tensors under recording. Ranks that make equal tensors in equal order name
//! the same entry, so that their programs are equal.

use super::sizes::{SizeId, SizeTable};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Tensor, TensorData, TensorId};
use std::collections::BTreeMap;

/// The values that make two tensors of different ranks the same entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    dtype: Dtype,
    numel: Numel,
    /// `Fill` has no order of its own.
    fill: String,
    data: Vec<u8>,
}

/// A tensor's number of elements, which may be settled at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Numel {
    /// Known.
    Known(u64),
    /// `parts` times a size that other ranks decide.
    Sized { size: SizeId, parts: u64 },
}

/// The table that all ranks share.
#[derive(Debug, Default)]
pub(super) struct TensorTable {
    tensors: Vec<(Tensor, Numel)>,
    kinds: BTreeMap<Key, Kind>,
}

#[derive(Debug)]
struct Kind {
    number: u32,
    ids: Vec<TensorId>,
}

/// One rank's place in the table: how many of each kind it has made, and which of its temporary
/// ones are free again.
#[derive(Debug, Default)]
pub(super) struct OwnTensors {
    made: BTreeMap<u32, u32>,
    free: BTreeMap<u32, Vec<TensorId>>,
}

/// A temporary tensor, to be given back when the call that it is for has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Temporary {
    pub(super) id: TensorId,
    kind: u32,
}

impl TensorTable {
    /// A tensor that the rank keeps.
    pub(super) fn make(
        &mut self,
        own: &mut OwnTensors,
        name: &str,
        dtype: Dtype,
        numel: Numel,
        fill: Fill,
        data: &[u8],
    ) -> Temporary {
        let key = Key {
            name: name.to_owned(),
            dtype,
            numel,
            fill: format!("{fill:?}"),
            data: data.to_vec(),
        };
        let number = self.kinds.len() as u32;
        let kind = self.kinds.entry(key).or_insert(Kind { number, ids: Vec::new() });
        let nth = own.made.entry(kind.number).or_insert(0);
        *nth += 1;
        if kind.ids.len() < *nth as usize {
            let known = match numel {
                Numel::Known(numel) => numel,
                Numel::Sized { .. } => 0,
            };
            let tensor = Tensor {
                name: name.to_owned(),
                dtype,
                numel: known,
                fill,
                data: TensorData(data.to_vec()),
            };
            kind.ids.push(TensorId(self.tensors.len() as u32));
            self.tensors.push((tensor, numel));
        }
        Temporary { id: kind.ids[*nth as usize - 1], kind: kind.number }
    }

    /// The contents that a tensor was made with.
    pub(super) fn fill(&self, id: TensorId) -> Option<Fill> {
        self.tensors.get(id.index()).map(|(tensor, _)| tensor.fill)
    }

    /// The plan's tensor as it was made, where its size is known.
    pub(super) fn made_with(&self, id: TensorId) -> Option<&Tensor> {
        let (tensor, numel) = self.tensors.get(id.index())?;
        matches!(numel, Numel::Known(_)).then_some(tensor)
    }

    /// A tensor for the time of one call: one that is free again, or a new one.
    pub(super) fn borrow(
        &mut self,
        own: &mut OwnTensors,
        name: &str,
        dtype: Dtype,
        numel: u64,
    ) -> Temporary {
        let key = Key {
            name: name.to_owned(),
            dtype,
            numel: Numel::Known(numel),
            fill: format!("{:?}", Fill::Zeros),
            data: Vec::new(),
        };
        let kind = self.kinds.get(&key).map(|kind| kind.number);
        if let Some(kind) = kind
            && let Some(id) = own.free.get_mut(&kind).and_then(Vec::pop)
        {
            return Temporary { id, kind };
        }
        self.make(own, name, dtype, Numel::Known(numel), Fill::Zeros, &[])
    }

    /// The plan's table, with the sizes that are known now.
    pub(super) fn finish(&mut self, sizes: &SizeTable) -> Vec<Tensor> {
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        let settled = tensors.map(|(mut tensor, numel)| {
            if let Numel::Sized { size, parts } = numel {
                tensor.numel = sizes.elements(size).saturating_mul(parts);
            }
            tensor
        });
        settled.collect()
    }
}

impl OwnTensors {
    /// The calls that used them have completed.
    pub(super) fn give_back(&mut self, temporaries: &[Temporary]) {
        for temporary in temporaries {
            let free = self.free.entry(temporary.kind).or_default();
            free.push(temporary.id);
            // The lowest first, so that ranks that give back in another order stay alike.
            free.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
}
