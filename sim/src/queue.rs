//! The event queue: pending events by time, and in the order of their making at equal times.
//!
//! Ranks in lock step make hundreds of events for the same time, one after the other. They share a
//! bucket, so that most pushes and pops cost no heap operation.
//!
//! An event can keep its place in that order before it is known whether it will be made: it
//! reserves a number ([`EventQueue::reserve`]), and is pushed under it later, or never.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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
    /// Events under reserved numbers, by time.
    reserved: BTreeMap<u64, Numbered<T>>,
    /// Emptied lists of `reserved`, to be used again.
    spare: Vec<Vec<(u64, T)>>,
    /// The number of the event that was popped last.
    current: u64,
}

/// Events of one time under reserved numbers.
#[derive(Clone, Debug)]
struct Numbered<T> {
    /// With their numbers; those from `popped` on are in order where `sorted` says so.
    events: Vec<(u64, T)>,
    popped: usize,
    sorted: bool,
}

impl<T: Copy> Numbered<T> {
    /// The lowest number that is pending.
    fn first(&mut self) -> Option<u64> {
        if !self.sorted {
            self.events[self.popped..].sort_unstable_by_key(|(number, _)| *number);
            self.sorted = true;
        }
        self.events.get(self.popped).map(|(number, _)| *number)
    }
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
            reserved: BTreeMap::new(),
            spare: Vec::new(),
            current: 0,
        }
    }

    /// Takes the number that an event pushed now would have, for [`EventQueue::push_reserved`].
    pub(crate) fn reserve(&mut self) -> u64 {
        // Events that are pushed from now on come after it.
        self.open = None;
        self.made += 1;
        self.made
    }

    /// Pushes an event as if it had been pushed when its number was reserved. It must not lie before an event
    /// that was popped ([`EventQueue::has_passed`]).
    pub(crate) fn push_reserved(&mut self, time_ps: u64, number: u64, what: T) {
        let spare = &mut self.spare;
        let of_time = self.reserved.entry(time_ps).or_insert_with(|| {
            let events = spare.pop().unwrap_or_default();
            Numbered { events, popped: 0, sorted: true }
        });
        let in_order = of_time.events[of_time.popped..].last().is_none_or(|last| last.0 < number);
        of_time.sorted &= in_order;
        of_time.events.push((number, what));
    }

    /// True if an event under a reserved number would have been popped by now.
    pub(crate) fn has_passed(&self, time_ps: u64, number: u64, now: u64) -> bool {
        (time_ps, number) < (now, self.current)
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
        let pushed = self.heap.peek().map(|Reverse((time, ..))| *time);
        match self.reserved.first_key_value() {
            None => pushed,
            Some((&reserved, _)) => Some(pushed.map_or(reserved, |pushed| pushed.min(reserved))),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let pushed = self.heap.peek().map(|Reverse((time, made, _))| (*time, *made));
        if let Some(mut reserved) = self.reserved.first_entry()
            && pushed.is_none_or(|(time, _)| *reserved.key() <= time)
        {
            let time = *reserved.key();
            let number = reserved.get_mut().first();
            let first =
                number.filter(|number| pushed.is_none_or(|pushed| (time, *number) < pushed));
            if let Some(number) = first {
                let of_time = reserved.get_mut();
                let (_, what) = of_time.events[of_time.popped];
                of_time.popped += 1;
                if of_time.popped == of_time.events.len() {
                    let mut events = reserved.remove().events;
                    events.clear();
                    self.spare.push(events);
                }
                self.current = number;
                return Some((time, what));
            }
        }
        let &Reverse((time, made, place)) = self.heap.peek()?;
        self.current = made;
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
        let pushed = self.heap.iter().flat_map(|Reverse((time, _, place))| {
            let bucket = &self.buckets[*place as usize];
            bucket.events[bucket.popped..].iter().map(|what| (*time, what))
        });
        let reserved = self.reserved.iter().flat_map(|(time, of_time)| {
            of_time.events[of_time.popped..].iter().map(|(_, what)| (*time, what))
        });
        pushed.chain(reserved)
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
        /// Events that are pushed later under a number reserved earlier come out as if they had
        /// been pushed then.
        #[test]
        fn reserved_events_keep_their_place(
            steps in prop::collection::vec((0u8..4, 0u64..6, any::<prop::sample::Index>()), 1..200)
        ) {
            let (mut truth, mut queue) = (EventQueue::new(), EventQueue::new());
            let (mut waiting, mut now) = (Vec::new(), 0);
            let push = |queue: &mut EventQueue<usize>, waiting: &mut Vec<(u64, u64, usize)>, now| {
                // Whatever is due next has to be there before something is popped.
                for (time, number, what) in waiting.drain(..) {
                    assert!(!queue.has_passed(time, number, now));
                    queue.push_reserved(time, number, what);
                }
            };
            for (what, (kind, later, pick)) in steps.into_iter().enumerate() {
                let time = now + later;
                match kind {
                    0 => {
                        truth.push(time, what);
                        queue.push(time, what);
                    }
                    1 => {
                        truth.push(time, what);
                        waiting.push((time, queue.reserve(), what));
                    }
                    2 if !waiting.is_empty() => {
                        let (time, number, what) = waiting.remove(pick.index(waiting.len()));
                        queue.push_reserved(time, number, what);
                    }
                    _ => {
                        push(&mut queue, &mut waiting, now);
                        prop_assert_eq!(queue.next_time(), truth.next_time());
                        let next = truth.pop();
                        prop_assert_eq!(queue.pop(), next);
                        now = next.map_or(now, |(time, _)| time);
                        prop_assert_eq!(queue.iter().count(), truth.iter().count());
                    }
                }
            }
        }

        /// Compares the queue with a stable sort of the pending events, with pushes and pops mixed.
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
