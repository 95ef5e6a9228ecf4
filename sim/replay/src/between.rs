//! The time between two recorded calls, as computations of the plan.
//!
//! A profile has the kernels of the devices. Kernels that follow each other closely become one computation, named
//! after the one that took longest; the time in which the device had none becomes a computation too, named so. Other
//! recordings do not say what was done in that time.

use lockstep_analysis::NO_KERNEL;
use lockstep_core::plan::{Action, Op};
use lockstep_core::trace::RecordedComputation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Shorter times between calls are the recorder's own.
pub(crate) const SHORTEST_PS: u64 = 1_000_000;

/// A shorter pause between two kernels is that of launching the second one.
const LAUNCH_PS: u64 = 10_000_000;

/// Names the computation that stands for the time between two calls.
const BETWEEN: &str = "what was done between the calls";

/// Begin the names of computations that are recorded kernels.
const KERNEL: &str = "kernel ";
const KERNELS: &str = "kernels ";

/// True of a computation that stands for the time between two recorded calls, or for a part of it.
pub(crate) fn is_between(op: &Op) -> bool {
    let Action::Compute { name, .. } = &op.action else { return false };
    [BETWEEN, NO_KERNEL].contains(&&**name) || name.starts_with(KERNEL) || name.starts_with(KERNELS)
}

/// True of a computation that is a recorded kernel, or several.
pub(crate) fn is_kernel(op: &Op) -> bool {
    let Action::Compute { name, .. } = &op.action else { return false };
    name.starts_with(KERNEL) || name.starts_with(KERNELS)
}

/// True of a time between two recorded calls of which the recording does not show what was done in it.
pub(crate) fn is_unseen(op: &Op) -> bool {
    matches!(&op.action, Action::Compute { name, .. } if **name == *BETWEEN)
}

/// An asynchronous operation that nothing has waited for yet: when it ended, if it did, and where it is.
pub(crate) type Open = (Option<u64>, u32);

/// The names of computations, each in memory once: a large recording has millions of computations.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

/// The recorded computations of a rank; none if only its calls were recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between<'a> {
    /// By when they began.
    computations: &'a [RecordedComputation],
    /// True if the device computed nothing else; else nothing is known of the time before the first and behind the last.
    are_all: bool,
    /// The begin of the first and the end of the last.
    ends: Option<(u64, u64)>,
}

/// Kernels that follow each other closely.
struct Stretch<'a> {
    from_ps: u64,
    to_ps: u64,
    kernels: &'a [RecordedComputation],
}

impl<'a> Between<'a> {
    pub(crate) fn of(computations: &'a [RecordedComputation], are_all: bool) -> Between<'a> {
        let last_ps = computations.iter().map(|one| one.to_ps).max();
        let ends = computations.first().map(|first| first.from_ps).zip(last_ps);
        Between { computations, are_all, ends }
    }

    /// The name of a time without computations.
    fn without_any(self, from_ps: u64, to_ps: u64) -> &'static str {
        let unseen = self.ends.is_none_or(|(first_ps, last_ps)| {
            !self.are_all && (to_ps <= first_ps || from_ps >= last_ps)
        });
        if unseen { BETWEEN } else { NO_KERNEL }
    }

    /// The begin of the first computation and the end of the last.
    pub(crate) fn ends(self) -> Option<(u64, u64)> {
        self.ends
    }

    /// True if something was computed in a stretch of time.
    pub(crate) fn computes_in(self, from_ps: u64, to_ps: u64) -> bool {
        let within = |one: &RecordedComputation| {
            one.to_ps.min(to_ps).saturating_sub(one.from_ps.max(from_ps)) >= SHORTEST_PS
        };
        self.around(from_ps, to_ps).iter().any(within)
    }

    /// Adds the operations of a rank between two times, from the end or the beginning of a call to the next one, and
    /// the waits for those of the `open` operations that had ended meanwhile. True if something took time.
    pub(crate) fn add(
        self,
        (from_ps, to_ps): (u64, u64),
        open: &mut Vec<Open>,
        (names, ops): (&mut Names, &mut Vec<Op>),
    ) -> bool {
        let mut add = |name: &str, span, ops: &mut Vec<Op>| add_computation(name, span, names, ops);
        let mut at_ps = from_ps;
        let mut computed = 0;
        if self.computations.is_empty() {
            add_waits(open, to_ps, ops);
        }
        for stretch in self.stretches(from_ps, to_ps) {
            // The device had nothing to do when they ended: what it did next had waited for them.
            if stretch.from_ps >= at_ps.saturating_add(SHORTEST_PS)
                && let Some(ended_ps) = last_end(open, stretch.from_ps)
            {
                at_ps = at_ps.max(ended_ps);
                add_waits(open, stretch.from_ps, ops);
            }
            computed += usize::from(add(NO_KERNEL, (at_ps, stretch.from_ps), ops));
            let name = name_of(stretch.kernels);
            let from_ps = stretch.from_ps.max(at_ps);
            // The device had no kernel while the next one was launched: that time comes behind them.
            let until_ps = from_ps + busy_ps(stretch.kernels, (from_ps, stretch.to_ps));
            computed += usize::from(add(&name, (from_ps, until_ps), ops));
            at_ps = until_ps.max(at_ps);
        }
        let rest = self.without_any(from_ps, to_ps);
        if let Some(ended_ps) = last_end(open, to_ps) {
            at_ps = at_ps.max(ended_ps);
            add_waits(open, to_ps, ops);
        }
        computed += usize::from(add(rest, (at_ps, to_ps), ops));
        computed > 0
    }

    /// The computations that lie at least in part between two times, and perhaps some before.
    fn around(self, from_ps: u64, to_ps: u64) -> &'a [RecordedComputation] {
        let first = self.computations.partition_point(|one| one.from_ps < from_ps);
        let last = self.computations.partition_point(|one| one.from_ps < to_ps);
        // One that had begun before may go on.
        self.computations.get(first.saturating_sub(1)..last).unwrap_or_default()
    }

    fn stretches(self, from_ps: u64, to_ps: u64) -> Vec<Stretch<'a>> {
        let around = self.around(from_ps, to_ps);
        let mut stretches: Vec<Stretch<'a>> = Vec::new();
        for (at, one) in around.iter().enumerate() {
            let (begins, ends) = (one.from_ps.max(from_ps), one.to_ps.min(to_ps));
            if ends <= begins {
                continue;
            }
            let kernels = around.get(at..=at).unwrap_or_default();
            match stretches.last_mut() {
                Some(last) if begins < last.to_ps.saturating_add(LAUNCH_PS) => {
                    let first = at.saturating_sub(last.kernels.len());
                    last.kernels = around.get(first..=at).unwrap_or(kernels);
                    last.to_ps = last.to_ps.max(ends);
                }
                _ => stretches.push(Stretch { from_ps: begins, to_ps: ends, kernels }),
            }
        }
        stretches
    }
}

/// The time for which the device had a kernel in a stretch of time; `kernels` in the order in which they began.
fn busy_ps(kernels: &[RecordedComputation], (from_ps, to_ps): (u64, u64)) -> u64 {
    let (mut busy_ps, mut until_ps) = (0, from_ps);
    for one in kernels {
        let end_ps = one.to_ps.min(to_ps);
        busy_ps += end_ps.saturating_sub(one.from_ps.max(until_ps));
        until_ps = until_ps.max(end_ps);
    }
    busy_ps
}

/// The end of the last of the operations that had ended by a time.
fn last_end(open: &[Open], time_ps: u64) -> Option<u64> {
    open.iter().filter_map(|(ended_ps, _)| *ended_ps).filter(|ended_ps| *ended_ps <= time_ps).max()
}

/// Adds waits for the operations that had ended by a time.
fn add_waits(open: &mut Vec<Open>, time_ps: u64, ops: &mut Vec<Op>) {
    open.retain(|(ended_ps, op)| {
        let over = ended_ps.is_some_and(|ended_ps| ended_ps <= time_ps);
        if over {
            ops.push(Op::new(Action::Wait { op: *op, timeout_ms: None }, None));
        }
        !over
    });
}

fn add_computation(
    name: &str,
    (from_ps, to_ps): (u64, u64),
    names: &mut Names,
    ops: &mut Vec<Op>,
) -> bool {
    let took_ps = to_ps.saturating_sub(from_ps);
    if took_ps < SHORTEST_PS {
        return false;
    }
    let (name, duration_ns) = (names.shared(name), took_ps / 1000);
    ops.push(Op::new(Action::Compute { name, duration_ns }, None));
    true
}

/// `kernels gemm and 3 more`: the one that took longest in all, and how many others there were.
fn name_of(kernels: &[RecordedComputation]) -> String {
    let mut took: BTreeMap<&str, u64> = BTreeMap::new();
    for one in kernels {
        *took.entry(&one.name).or_default() += one.to_ps.saturating_sub(one.from_ps);
    }
    let longest = took.iter().max_by_key(|(name, ps)| (**ps, std::cmp::Reverse(**name)));
    let longest = longest.map_or("", |(name, _)| *name);
    match kernels.len() {
        0 | 1 => format!("{KERNEL}{longest}"),
        all => format!("{KERNELS}{longest} and {} more", all - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000_000;

    fn kernel(name: &str, from_us: u64, to_us: u64) -> RecordedComputation {
        RecordedComputation { from_ps: from_us * US, to_ps: to_us * US, name: name.into() }
    }

    fn filled(
        kernels: &[RecordedComputation],
        (from_us, to_us): (u64, u64),
        open: &mut Vec<Open>,
    ) -> Vec<(String, u64)> {
        let mut ops = Vec::new();
        let names = &mut Names::default();
        Between::of(kernels, true).add((from_us * US, to_us * US), open, (names, &mut ops));
        let told = |op: &Op| match &op.action {
            Action::Compute { name, duration_ns } => (name.to_string(), duration_ns / 1000),
            Action::Wait { op, .. } => ("wait".to_owned(), u64::from(*op)),
            other => panic!("{other:?}"),
        };
        ops.iter().map(told).collect()
    }

    fn told(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect()
    }

    #[test]
    fn kernels_that_follow_each_other_are_one_computation() {
        let kernels = [kernel("gemm", 90, 130), kernel("relu", 132, 140), kernel("copy", 200, 300)];
        assert_eq!(
            filled(&kernels, (100, 250), &mut Vec::new()),
            told(&[("kernels gemm and 1 more", 38), (NO_KERNEL, 62), ("kernel copy", 50),])
        );
        assert_eq!(filled(&[], (100, 250), &mut Vec::new()), told(&[(BETWEEN, 150)]));
        // Behind what a profile beside the dumps saw, it is unknown what was computed.
        let name = |are_all| Between::of(&kernels, are_all).without_any(400 * US, 500 * US);
        assert_eq!([true, false].map(name), [NO_KERNEL, BETWEEN]);
    }

    #[test]
    fn what_a_kernel_waited_for_is_waited_for_before_it() {
        let kernels = [kernel("backward", 0, 50), kernel("optimizer", 83, 90)];
        // The first ended while the device was busy, the second while it had nothing to do.
        let mut open = vec![(Some(40 * US), 3), (Some(80 * US), 4), (None, 5), (Some(400 * US), 6)];
        assert_eq!(
            filled(&kernels, (10, 100), &mut open),
            told(&[
                ("kernel backward", 40),
                ("wait", 3),
                ("wait", 4),
                (NO_KERNEL, 3),
                ("kernel optimizer", 7),
                (NO_KERNEL, 10),
            ])
        );
        assert_eq!(open, [(None, 5), (Some(400 * US), 6)]);
        // A call that ended under a kernel is waited for at the end.
        let mut open = vec![(Some(40 * US), 3)];
        let ops = filled(&kernels, (10, 45), &mut open);
        assert_eq!(ops, told(&[("kernel backward", 35), ("wait", 3)]));
    }
}
