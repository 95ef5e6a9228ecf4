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
    /// Events under reserved numbers.
    reserved: Reserved<T>,
    /// The number of the event that was popped last.
    current: u64,
}

/// Events under reserved numbers, by time. The earliest list and the one that grew last are at hand, since
/// ranks in lock step take from the one and add to the other.
#[derive(Clone, Debug)]
struct Reserved<T> {
    /// Per time, its place in `lists`.
    by_time: BTreeMap<u64, u32>,
    lists: Vec<Numbered<T>>,
    free: Vec<u32>,
    /// The earliest time and its list.
    first: Option<(u64, u32)>,
    /// The time of the last push and its list.
    last: Option<(u64, u32)>,
}

impl<T: Copy> Reserved<T> {
    fn new() -> Reserved<T> {
        Reserved {
            by_time: BTreeMap::new(),
            lists: Vec::new(),
            free: Vec::new(),
            first: None,
            last: None,
        }
    }

    #[inline]
    fn push(&mut self, time_ps: u64, number: u64, what: T) {
        let place = match self.last {
            Some((time, place)) if time == time_ps => place,
            _ => self.list_of(time_ps),
        };
        self.lists[place as usize].push(number, what);
    }

    /// The place of a time's list, which is made if there is none.
    #[cold]
    fn list_of(&mut self, time_ps: u64) -> u32 {
        let (lists, free) = (&mut self.lists, &mut self.free);
        let place = *self.by_time.entry(time_ps).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                lists.push(Numbered { events: Vec::new(), popped: 0, sorted: true });
                lists.len() as u32 - 1
            })
        });
        self.last = Some((time_ps, place));
        if self.first.is_none_or(|(first, _)| time_ps < first) {
            self.first = self.last;
        }
        place
    }

    /// Takes the first event of the earliest time, with its number, if that time is `time` and the number is
    /// below `pushed`.
    #[inline]
    fn pop_at(&mut self, time: u64, pushed: Option<u64>) -> Option<(u64, T)> {
        let (_, place) = self.first.filter(|(first, _)| *first == time)?;
        let list = &mut self.lists[place as usize];
        let (number, what) = list.first()?;
        if pushed.is_some_and(|pushed| pushed < number) {
            return None;
        }
        list.popped += 1;
        if list.popped == list.events.len() {
            self.end_first(time, place);
        }
        Some((number, what))
    }

    /// All events of the earliest time have been taken.
    #[cold]
    fn end_first(&mut self, time: u64, place: u32) {
        self.lists[place as usize].clear();
        self.by_time.remove(&time);
        self.free.push(place);
        self.last = self.last.filter(|(_, last)| *last != place);
        self.first = self.by_time.first_key_value().map(|(time, place)| (*time, *place));
    }
}

/// An event that belongs so many places or fewer before the last goes there at once; others are sorted in later.
const MOST_OFF: usize = 4;

/// Events of one time under reserved numbers.
#[derive(Clone, Debug)]
struct Numbered<T> {
    /// With their numbers; those from `popped` on are in order where `sorted` says so.
    events: Vec<(u64, T)>,
    popped: usize,
    sorted: bool,
}

impl<T: Copy> Numbered<T> {
    fn push(&mut self, number: u64, what: T) {
        // Ranks in lock step push in order but for the one that closes the ring, which is one place off.
        match self.events.last() {
            Some((last, _)) if *last > number => self.push_before_last(number, what),
            _ => self.events.push((number, what)),
        }
    }

    #[cold]
    fn push_before_last(&mut self, number: u64, what: T) {
        let behind = |event: &&(u64, T)| event.0 > number;
        let waiting = &self.events[self.popped..];
        let behind = waiting.iter().rev().take(MOST_OFF + 1).take_while(behind).count();
        match behind <= MOST_OFF {
            true => self.events.insert(self.events.len() - behind, (number, what)),
            false => {
                self.sorted = false;
                self.events.push((number, what));
            }
        }
    }

    /// The pending event with the lowest number.
    fn first(&mut self) -> Option<(u64, T)> {
        if !self.sorted {
            self.events[self.popped..].sort_unstable_by_key(|(number, _)| *number);
            self.sorted = true;
        }
        self.events.get(self.popped).copied()
    }

    fn clear(&mut self) {
        self.events.clear();
        (self.popped, self.sorted) = (0, true);
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
            reserved: Reserved::new(),
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
        self.reserved.push(time_ps, number, what);
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
        match self.reserved.first {
            None => pushed,
            Some((reserved, _)) => Some(pushed.map_or(reserved, |pushed| pushed.min(reserved))),
        }
    }

    /// Takes the first event that is due at `time`, before which nothing is due.
    pub(crate) fn pop_at(&mut self, time: u64) -> Option<T> {
        let pushed = self.heap.peek().map(|Reverse(first)| *first);
        let pushed = pushed.filter(|(due, ..)| *due == time);
        let number = pushed.map(|(_, made, _)| made);
        if let Some((number, what)) = self.reserved.pop_at(time, number) {
            self.current = number;
            return Some(what);
        }
        let (_, made, place) = pushed?;
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
        Some(what)
    }

    /// Everything pending, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let pushed = self.heap.iter().flat_map(|Reverse((time, _, place))| {
            let bucket = &self.buckets[*place as usize];
            bucket.events[bucket.popped..].iter().map(|what| (*time, what))
        });
        let reserved = self.reserved.by_time.iter().flat_map(|(time, place)| {
            let list = &self.reserved.lists[*place as usize];
            list.events[list.popped..].iter().map(|(_, what)| (*time, what))
        });
        pushed.chain(reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;
    use proptest::prelude::*;

    /// Takes the next event, with its time.
    fn pop<T: Copy>(queue: &mut EventQueue<T>) -> Option<(u64, T)> {
        let time = queue.next_time()?;
        Some((time, queue.pop_at(time)?))
    }

    #[test]
    fn equal_times_come_out_in_the_order_of_their_making() {
        let mut queue = EventQueue::new();
        for (time, what) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.push(time, what);
        }
        assert_eq!(queue.next_time(), Some(3));
        let order: String = std::iter::from_fn(|| pop(&mut queue).map(|(_, what)| what)).collect();
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
                        let next = pop(&mut truth);
                        prop_assert_eq!(pop(&mut queue), next);
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
                        prop_assert_eq!(pop(&mut queue), next);
                    }
                }
                prop_assert_eq!(queue.next_time(), pending.first().map(|(time, _)| *time));
                prop_assert_eq!(queue.iter().count(), pending.len());
            }
        }
    }
}
