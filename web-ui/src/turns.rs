//! Turns: of several questions that one place asks, only the newest one's answer counts.
//!
//! An answer can be on its way when the question is no longer asked. Whoever hears it must look
//! whether it still counts, or it is written over what has come since.

use std::cell::Cell;
use std::rc::Rc;
use yew::prelude::*;

/// Hands out turns of one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Rc<Cell<u64>>);

impl Turns {
    /// The next turn; none before it counts any more.
    pub(crate) fn next(&self) -> Turn {
        self.end();
        Turn { of: self.clone(), number: self.0.get() }
    }

    /// From now on no turn counts, until the next one.
    pub(crate) fn end(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    of: Turns,
    number: u64,
}

impl Turn {
    /// True if what belongs to it may still be shown.
    pub(crate) fn counts(&self) -> bool {
        self.of.0.get() == self.number
    }
}

/// The turns of a component.
#[hook]
pub(crate) fn use_turns() -> Turns {
    (*use_memo((), |()| Turns::default())).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_turn_counts_and_none_after_the_end() {
        let turns = Turns::default();
        let first = turns.next();
        assert!(first.counts());
        let second = turns.clone().next();
        assert!(!first.counts() && second.clone().counts());
        turns.end();
        assert!(!first.counts() && !second.counts());
        assert!(turns.next().counts() && !second.counts());
    }
}
