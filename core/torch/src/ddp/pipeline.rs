//! Broadcasts one behind the other: the root of the first has sent it long before the last rank has it, and
//! goes on. A sharded optimizer's broadcasts together take less than their sum.
//!
//! A rank's binomial tree is that of `schedule::tree`, its ports those of the simulator's network: it sends
//! one message at a time and receives one at a time.

use super::links::{Links, RingLink};

/// Messages of trees that are followed in a run; behind them every tree takes its time by itself.
const MAX_FOLLOWED: u64 = 1 << 24;

/// The ranks of a group as its trees go by.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Per rank, the time at which its earlier work is done; empty if all are done at one time.
    done_ps: Vec<u64>,
    /// Per rank, when its receiving port is free.
    receives_ps: Vec<u64>,
    followed: u64,
}

impl Pipeline {
    /// A collective that no rank leaves before all have come: the ranks are together again.
    pub(super) fn meet(&mut self) {
        self.done_ps.clear();
    }

    /// The time at which a broadcast of so many bytes, which begins at `ready_ps` at the earliest, is done on
    /// every rank; `None` if too much has been followed.
    pub(super) fn broadcast(
        &mut self,
        links: &Links,
        size: u32,
        root: u32,
        bytes: u64,
        ready_ps: u64,
    ) -> Option<u64> {
        self.followed = self.followed.saturating_add(size.into());
        if self.followed > MAX_FOLLOWED || size == 0 {
            self.done_ps.clear();
            return None;
        }
        if self.done_ps.len() != size as usize {
            self.done_ps = vec![ready_ps; size as usize];
            self.receives_ps = vec![ready_ps; size as usize];
        }
        for done in &mut self.done_ps {
            *done = ready_ps.max(*done);
        }
        let rank_at = |place: u64| ((place + u64::from(root)) % u64::from(size)) as usize;
        let mut span = 1;
        while span < u64::from(size) {
            for place in 0..span.min(u64::from(size) - span) {
                let (from, to) = (rank_at(place), rank_at(place + span));
                let link = links.between(from as u32, to as u32);
                self.message(link, bytes, from, to);
            }
            span *= 2;
        }
        self.done_ps.iter().copied().max()
    }

    fn message(&mut self, link: RingLink, bytes: u64, from: usize, to: usize) {
        let transmit_ps = link.transmit_ps(bytes);
        let Some(departs) = self.done_ps.get_mut(from) else { return };
        let reaches = departs.saturating_add(link.latency_ps);
        *departs = departs.saturating_add(transmit_ps);
        if let (Some(done), Some(port)) = (self.done_ps.get_mut(to), self.receives_ps.get_mut(to)) {
            *port = reaches.max(*port).saturating_add(transmit_ps);
            *done = (*done).max(*port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Links {
        RingLink { latency_ps: 1_000, bytes_per_second: 1_000_000_000_000 }.into()
    }

    #[test]
    fn a_root_goes_on_and_another_has_to_wait() {
        let mut pipeline = Pipeline::default();
        // 100 ps on the way out, 1,000 there.
        assert_eq!(pipeline.broadcast(&link(), 2, 0, 100, 0), Some(1_100));
        assert_eq!(pipeline.broadcast(&link(), 2, 0, 100, 0), Some(1_200));
        // Rank 1 has it all before it sends.
        assert_eq!(pipeline.broadcast(&link(), 2, 1, 100, 0), Some(2_300));
        pipeline.meet();
        assert_eq!(pipeline.broadcast(&link(), 2, 0, 100, 5_000), Some(6_100));
    }

    #[test]
    fn a_tree_by_itself_takes_its_depth() {
        for depth in 0..8u32 {
            let mut pipeline = Pipeline::default();
            let done = pipeline.broadcast(&link(), 1 << depth, 3 % (1 << depth), 100, 7);
            assert_eq!(done, Some(7 + 1_100 * u64::from(depth)));
        }
    }

    #[test]
    fn what_is_too_much_is_not_followed() {
        let mut pipeline = Pipeline::default();
        assert_eq!(pipeline.broadcast(&link(), u32::MAX, 0, 100, 0), None);
    }
}
