//! One rank's operations in an order in which a program can do them.
//!
//! A program does one thing after the other, while a graph says only what must wait. The order
//! here starts messages as early as the graph lets it, and counts what has to wait all the same.

use std::collections::{BTreeMap, BTreeSet};

/// Ranks with more operations are counted by an upper bound: exactness costs a bit per pair.
const MAX_COUNTED: usize = 1 << 13;

/// An operation of a rank.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) waits: Waits,
    /// The line in the file, counted from 1.
    pub(super) line: usize,
}

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send { bytes: u64, to: u32, tag: u32 },
    Receive { bytes: u64, from: Option<u32>, tag: u32 },
    Calc { ns: u64 },
}

/// The operations that an operation waits for, as indices of the same rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// The operations that must have ended.
    pub(super) ended: Vec<u32>,
    /// The operations that must have begun.
    pub(super) begun: Vec<u32>,
}

/// The next act of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Starts an operation; a calc ends before the next one starts.
    Start(u32),
    /// Waits until a message has come.
    Await(u32),
}

/// A rank's operations as a program.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) steps: Vec<Next>,
    /// Operations that start later than the graph lets them.
    pub(super) held_back: u64,
}

/// Puts a rank's operations into an order; the index of one that waits for itself if there is no order.
pub(super) fn sequence(operations: &[Operation]) -> Result<Sequence, usize> {
    let count = operations.len();
    let mut left: Vec<u32> = Vec::with_capacity(count);
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (operation, index) in operations.iter().zip(0u32..) {
        let Waits { ended, begun } = &operation.waits;
        left.push((ended.len() + begun.len()) as u32);
        for before in ended.iter().chain(begun) {
            followers[*before as usize].push(index);
        }
    }
    let mut order = Order {
        operations,
        awaited: vec![false; count],
        // Messages that can start at once, calcs, and what has to wait for a message first.
        ready: Default::default(),
        held: vec![0; count],
        held_by: BTreeMap::new(),
        steps: Vec::with_capacity(count),
    };
    // As with eager sends, a message travels whether its receive was reached or not: receives are posted
    // before all else, in their order. Where one takes whatever comes, that could take another's.
    let is_receive = |index: u32| matches!(operations[index as usize].kind, Kind::Receive { .. });
    let any = |of: &Operation| matches!(of.kind, Kind::Receive { from: None, .. });
    let early = !operations.iter().any(any);
    let starts = left.iter().zip(0u32..).filter(|(left, _)| **left == 0);
    starts.for_each(|(_, index)| order.offer(index));
    let mut counted = Counted::of(count);
    let mut started = 0;
    while let Some(index) = order.take() {
        for before in &operations[index as usize].waits.ended {
            order.wait_for(*before, &mut counted);
        }
        let late = !(early && is_receive(index));
        counted.start(index, &operations[index as usize], late);
        order.steps.push(Next::Start(index));
        started += 1;
        if let Kind::Calc { .. } = operations[index as usize].kind {
            counted.event(index);
        }
        for follower in &followers[index as usize] {
            left[*follower as usize] -= 1;
            if left[*follower as usize] == 0 {
                order.offer(*follower);
            }
        }
    }
    if started < count {
        return Err(left.iter().position(|left| *left > 0).unwrap_or(0));
    }
    let mut steps = order.steps;
    if early {
        steps.sort_by_key(|step| !matches!(step, Next::Start(index) if is_receive(*index)));
    }
    Ok(Sequence { steps, held_back: counted.held_back })
}

/// The order as it grows.
struct Order<'a> {
    operations: &'a [Operation],
    awaited: Vec<bool>,
    ready: [BTreeSet<u32>; 3],
    /// Per operation of the third kind, for how many messages it still has to wait.
    held: Vec<u32>,
    /// Per message, the operations of the third kind that have to wait for it.
    held_by: BTreeMap<u32, Vec<u32>>,
    steps: Vec<Next>,
}

impl Order<'_> {
    fn offer(&mut self, index: u32) {
        let operation = &self.operations[index as usize];
        let held = operation.waits.ended.iter().filter(|before| self.must_wait(**before));
        let held: Vec<u32> = held.copied().collect();
        self.held[index as usize] = held.len() as u32;
        for before in &held {
            self.held_by.entry(*before).or_default().push(index);
        }
        let class = match (held.is_empty(), operation.kind) {
            (false, _) => 2,
            (true, Kind::Calc { .. }) => 1,
            (true, _) => 0,
        };
        self.ready[class].insert(index);
    }

    /// True for a message that has to come first. A send has ended for its rank when it is on its
    /// way, as LogGOPSim's eager sends have.
    fn must_wait(&self, before: u32) -> bool {
        matches!(self.operations[before as usize].kind, Kind::Receive { .. })
            && !self.awaited[before as usize]
    }

    fn take(&mut self) -> Option<u32> {
        let class = self.ready.iter().position(|ready| !ready.is_empty())?;
        self.ready[class].pop_first()
    }

    fn wait_for(&mut self, before: u32, counted: &mut Counted) {
        if !self.must_wait(before) {
            return;
        }
        self.awaited[before as usize] = true;
        self.steps.push(Next::Await(before));
        counted.event(before);
        // Others may have waited for the same message only.
        for index in self.held_by.remove(&before).unwrap_or_default() {
            let held = &mut self.held[index as usize];
            *held = held.saturating_sub(1);
            // The one that is about to start has left already.
            if *held == 0 && self.ready[2].remove(&index) {
                self.offer(index);
            }
        }
    }
}

/// The operations that each may rightly start after, against those that the program has done before it.
struct Counted {
    words: usize,
    /// Per operation: what the graph puts before it. Empty when there are too many.
    before: Vec<u64>,
    /// The operations that the program has waited for so far.
    events: Vec<u64>,
    any: bool,
    held_back: u64,
}

impl Counted {
    fn of(count: usize) -> Counted {
        let words = if count <= MAX_COUNTED { count.div_ceil(64) } else { 0 };
        let (before, events) = (vec![0; words * count], vec![0; words]);
        Counted { words, before, events, any: false, held_back: 0 }
    }

    fn event(&mut self, index: u32) {
        self.any = true;
        if self.words > 0 {
            self.events[index as usize / 64] |= 1 << (index % 64);
        }
    }

    /// An operation starts, which counts if it is not one that was started earlier.
    fn start(&mut self, index: u32, operation: &Operation, counts: bool) {
        if self.words == 0 {
            self.held_back += u64::from(self.any && counts);
            return;
        }
        let mut own = vec![0; self.words];
        let Waits { ended, begun } = &operation.waits;
        for before in ended.iter().chain(begun) {
            let from = *before as usize * self.words;
            for (own, before) in own.iter_mut().zip(&self.before[from..from + self.words]) {
                *own |= before;
            }
        }
        for before in ended {
            own[*before as usize / 64] |= 1 << (before % 64);
        }
        let late = own.iter().zip(&self.events).any(|(own, events)| events & !own != 0);
        self.held_back += u64::from(late && counts);
        let from = index as usize * self.words;
        self.before[from..from + self.words].copy_from_slice(&own);
    }
}
