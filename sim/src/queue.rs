//! What happens next: pending events by time, and in the order of their making at equal times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A queue of `T` by time (picoseconds), first in first out among equal times.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    time_ps: u64,
    order: u64,
    what: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest: the earliest must be that.
        (other.time_ps, other.order).cmp(&(self.time_ps, self.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Entry<T> {}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> EventQueue<T> {
        EventQueue {
            heap: BinaryHeap::new(),
            made: 0,
        }
    }

    pub(crate) fn push(&mut self, time_ps: u64, what: T) {
        self.made += 1;
        self.heap.push(Entry {
            time_ps,
            order: self.made,
            what,
        });
    }

    /// When the next event is due.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.time_ps)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|entry| (entry.time_ps, entry.what))
    }

    /// Everything pending, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.heap.iter().map(|entry| (entry.time_ps, &entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;

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
}
