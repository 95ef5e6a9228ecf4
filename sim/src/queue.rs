//! The event queue: pending events by time, and in the order of their making at equal times.
//!
//! Ranks in lock step make hundreds of events for the same time, one after the other. They share a
//! bucket, so that most pushes and pops cost no heap operation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of `T` by time (picoseconds), first in first out among equal times.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue<T> {
    /// (time, order of making, place in `buckets`), earliest first.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    buckets: Vec<Bucket<T>>,
    free: Vec<u32>,
    /// The time and bucket of the last push: the only bucket that may still grow, since a later
    /// one of the same time must come after everything that was pushed in between.
    open: Option<(u64, u32)>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Bucket<T> {
    events: Vec<T>,
    /// The number of events that have been popped.
    popped: usize,
}

impl<T: Copy> EventQueue<T> {
    pub(crate) fn new() -> EventQueue<T> {
        EventQueue {
            heap: BinaryHeap::new(),
            buckets: Vec::new(),
            free: Vec::new(),
            open: None,
            made: 0,
        }
    }

    pub(crate) fn push(&mut self, time_ps: u64, what: T) {
        if let Some((time, bucket)) = self.open
            && time == time_ps
        {
            self.buckets[bucket as usize].events.push(what);
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.buckets.push(Bucket { events: Vec::new(), popped: 0 });
            self.buckets.len() as u32 - 1
        });
        self.buckets[place as usize].events.push(what);
        self.made += 1;
        self.heap.push(Reverse((time_ps, self.made, place)));
        self.open = Some((time_ps, place));
    }

    /// When the next event is due.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, ..))| *time)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let &Reverse((time, _, place)) = self.heap.peek()?;
        let bucket = &mut self.buckets[place as usize];
        let what = bucket.events[bucket.popped];
        bucket.popped += 1;
        if bucket.popped == bucket.events.len() {
            bucket.events.clear();
            bucket.popped = 0;
            self.heap.pop();
            self.free.push(place);
            if self.open.is_some_and(|(_, open)| open == place) {
                self.open = None;
            }
        }
        Some((time, what))
    }

    /// Everything pending, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.heap.iter().flat_map(|Reverse((time, _, place))| {
            let bucket = &self.buckets[*place as usize];
            bucket.events[bucket.popped..].iter().map(|what| (*time, what))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;
    use proptest::prelude::*;

    #[test]
    fn equal_times_come_out_in_the_order_of_their_making() {
        let mut queue = EventQueue::new();
        for (time, what) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.push(time, what);
        }
        assert_eq!(queue.next_time(), Some(3));
        let order: String = std::iter::from_fn(|| queue.pop().map(|(_, what)| what)).collect();
        assert_eq!(order, "bdac");
    }

    proptest! {
        /// Against a stable sort of what is pending, with pushes and pops mixed.
        #[test]
        fn it_is_a_stable_priority_queue(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0u64..6), 1..300)
        ) {
            let (mut queue, mut pending) = (EventQueue::new(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(time) => {
                        queue.push(time, number);
                        pending.push((time, number));
                        pending.sort_by_key(|(time, _)| *time);
                    }
                    None => {
                        let next = (!pending.is_empty()).then(|| pending.remove(0));
                        prop_assert_eq!(queue.pop(), next);
                    }
                }
                prop_assert_eq!(queue.next_time(), pending.first().map(|(time, _)| *time));
                prop_assert_eq!(queue.iter().count(), pending.len());
            }
        }
    }
}
