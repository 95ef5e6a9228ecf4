//! Calls that have not completed, and when each is late.

use std::collections::VecDeque;

/// See the module. In the order of their numbers, which is the order in which they are made: the next to
/// complete is nearly always the first, and nothing is allocated for it.
#[derive(Debug, Default)]
pub(super) struct Pending(VecDeque<(u32, u64)>);

impl Pending {
    fn find(&self, work: u32) -> Result<usize, usize> {
        match self.0.front() {
            Some((first, _)) if *first == work => Ok(0),
            _ => self.0.binary_search_by_key(&work, |(work, _)| *work),
        }
    }

    /// The call is late from `due_ns` on.
    pub(super) fn insert(&mut self, work: u32, due_ns: u64) {
        match self.find(work) {
            Ok(at) => self.0[at].1 = due_ns,
            Err(at) => self.0.insert(at, (work, due_ns)),
        }
    }

    /// The call is watched no more.
    pub(super) fn remove(&mut self, work: u32) {
        if let Ok(at) = self.find(work) {
            self.0.remove(at);
        }
    }

    /// The call, if it is watched, is late from `due_ns` on at the latest.
    pub(super) fn limit(&mut self, work: u32, due_ns: u64) {
        if let Ok(at) = self.find(work) {
            self.0[at].1 = due_ns.min(self.0[at].1);
        }
    }

    /// All calls get so much longer.
    pub(super) fn postpone(&mut self, by_ns: u64) {
        self.0.iter_mut().for_each(|(_, due)| *due = due.saturating_add(by_ns));
    }

    /// Calls that are late at `now_ns`.
    pub(super) fn late(&self, now_ns: u64) -> Vec<u32> {
        self.0.iter().filter(|(_, due)| *due <= now_ns).map(|(work, _)| *work).collect()
    }

    /// When the next call is late.
    pub(super) fn next_late(&self) -> Option<u64> {
        self.0.iter().map(|(_, due)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// In whatever order calls are made, limited and completed, a map says the same.
        #[test]
        fn it_is_a_map_from_calls_to_times(
            steps in prop::collection::vec((0u8..4, 0u32..12, 0u64..100), 0..60),
        ) {
            let (mut pending, mut map) = (Pending::default(), BTreeMap::new());
            for (what, work, due) in steps {
                match what {
                    0 => {
                        pending.insert(work, due);
                        map.insert(work, due);
                    }
                    1 => {
                        pending.remove(work);
                        map.remove(&work);
                    }
                    2 => {
                        pending.limit(work, due);
                        map.entry(work).and_modify(|known: &mut u64| *known = due.min(*known));
                    }
                    _ => {
                        pending.postpone(due);
                        map.values_mut().for_each(|known| *known += due);
                    }
                }
                let late: Vec<u32> =
                    map.iter().filter(|(_, due)| **due <= 50).map(|(work, _)| *work).collect();
                prop_assert_eq!(pending.late(50), late);
                prop_assert_eq!(pending.next_late(), map.values().copied().min());
            }
        }
    }
}
