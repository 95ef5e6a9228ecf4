//! A queue that mostly holds one value, of which there are tens of thousands.

use std::collections::VecDeque;

/// First in, first out. One value needs no memory of its own.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    first: Option<T>,
    /// Those behind the first.
    #[expect(clippy::box_collection, reason = "one pointer where there is no other")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Fifo<T> {
    pub(crate) fn new() -> Fifo<T> {
        Fifo { first: None, rest: None }
    }

    pub(crate) fn push(&mut self, value: T) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.rest.get_or_insert_default().push_back(value),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        std::mem::replace(&mut self.first, next)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec(prop::option::of(0u32..9), 1..50)) {
            let (mut truth, mut queue) = (VecDeque::new(), Fifo::new());
            for step in steps {
                match step {
                    Some(value) => {
                        truth.push_back(value);
                        queue.push(value);
                    }
                    None => prop_assert_eq!(queue.pop(), truth.pop_front()),
                }
                prop_assert_eq!(queue.len(), truth.len());
            }
        }
    }
}
