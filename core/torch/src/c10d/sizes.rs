//! Sizes that ranks learn from each other while they run: the length of the longest pickle, or the bytes that
//! the source broadcasts. Each rank adds its own size; the sum or the maximum is known when all have run.

use lockstep_core::group::GroupId;
use std::collections::BTreeMap;

/// A size that is settled when the job is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeId(u32);

/// The key of a size: the nth call of this kind in a group, and the two group ranks of a point-to-point call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeKey {
    pub(super) group: GroupId,
    pub(super) call: &'static str,
    /// The sender of a point-to-point call; 0 for a collective.
    pub(super) from: u32,
    /// The receiver of a point-to-point call; 0 for a collective.
    pub(super) to: u32,
    pub(super) nth: u64,
}

/// All such sizes of a job, in elements. Of several that are said, the largest counts.
#[derive(Debug, Default)]
pub(super) struct SizeTable {
    of_key: BTreeMap<SizeKey, SizeId>,
    elements: Vec<u64>,
}

impl SizeTable {
    /// The size by that key.
    pub(super) fn of(&mut self, key: SizeKey) -> SizeId {
        let next = SizeId(self.elements.len() as u32);
        let id = *self.of_key.entry(key).or_insert(next);
        if id == next {
            self.elements.push(0);
        }
        id
    }

    /// A rank adds its own size.
    pub(super) fn at_least(&mut self, id: SizeId, elements: u64) {
        if let Some(most) = self.elements.get_mut(id.0 as usize) {
            *most = elements.max(*most);
        }
    }

    /// The number of elements recorded so far.
    pub(super) fn elements(&self, id: SizeId) -> u64 {
        self.elements.get(id.0 as usize).copied().unwrap_or(0)
    }
}
