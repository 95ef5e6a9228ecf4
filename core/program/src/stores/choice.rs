//! Counters that ranks draw numbers from, and keys that they compete for: the first rank is not determined,
//! and every order can happen. One order is chosen and reported: ranks come by the times that their programs
//! give, then by their number. The same is done for the value of a key if those times are far apart.

use super::log::{At, Log, Op, What};
use super::order::{Order, within};
use super::times::Times;
use crate::stores::found_value::Changes;
use crate::stores::wait_result::Found;
use lockstep_torch::c10d::Clock;
use std::collections::BTreeMap;

/// Answers that are taken so in a job, and changes of a key that they are taken from: each is held
/// against all the others, again and again, which takes some seconds at most.
const MAX_CHOSEN: usize = 512;
const MAX_DRAWN: usize = 128;
/// The most steps along the order that are taken to report it.
const TOLD_BUDGET: u64 = 20_000_000;

/// An order that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Per operation, those that it comes after and whose effects its answer shows.
    pub(super) sees: BTreeMap<At, Vec<At>>,
    /// Per operation, those that it comes after although its answer does not show it.
    pub(super) after: BTreeMap<At, Vec<At>>,
}

impl Chosen {
    /// Forgets the operations that are gone: a rank may do others after another answer.
    pub(super) fn forget(&mut self, gone: impl Fn(&At) -> bool) {
        for table in [&mut self.sees, &mut self.after] {
            table.retain(|later, _| !gone(later));
            for earlier in table.values_mut() {
                earlier.retain(|at| !gone(at));
            }
        }
    }

    /// In each line, which ranks come in which order; `waits` are those that were answered.
    pub(super) fn told(&self, logs: &[Log], waits: &BTreeMap<At, Vec<At>>) -> Vec<(u32, String)> {
        let op_of = |at: &At| logs.get(at.0).and_then(|log| log.ops.get(at.1));
        let mut lines: BTreeMap<(u32, String), Vec<At>> = BTreeMap::new();
        for at in self.sees.keys() {
            let Some(op) = op_of(at) else { continue };
            lines.entry((op.line, op.to_string())).or_default().push(*at);
        }
        let mut order = Order::new(logs, TOLD_BUDGET);
        for (later, earlier) in waits {
            earlier.iter().for_each(|earlier| order.wait(*later, *earlier));
        }
        for (later, earlier) in self.sees.iter().chain(&self.after) {
            earlier.iter().for_each(|earlier| order.follow(*later, *earlier));
        }
        let mut told = Vec::new();
        for ((line, name), mut ranks) in lines {
            let draws = |op: &Op| matches!(op.what, What::Add(_) | What::CompareSet { .. });
            let drawn = ranks.iter().any(|at| op_of(at).is_some_and(draws));
            if drawn {
                // Those too whose answer tells nothing of who was first.
                let all = logs
                    .iter()
                    .enumerate()
                    .flat_map(|(rank, log)| (0..log.ops.len()).map(move |at| (rank, at)));
                let here = |op: &Op| op.line == line && op.to_string() == name;
                ranks = all.filter(|at| op_of(at).is_some_and(here)).collect();
            }
            ranks.sort_by_cached_key(|at| (order.before(*at).iter().sum::<usize>(), *at));
            let names: Vec<String> = ranks.iter().take(8).map(|at| at.0.to_string()).collect();
            let more = if ranks.len() > names.len() { ", …" } else { "" };
            let names = names.join(", ");
            let text = match drawn {
                true => format!(
                    "which rank's {name} comes first is open; here they come in the order \
                     {names}{more}"
                ),
                false => format!(
                    "what {name} finds on rank {names}{more} is taken from what the program sleeps \
                     and computes"
                ),
            };
            told.push((line, text));
        }
        told
    }
}

/// Puts those in order whose answer nothing else decides, of the ones that come first; whether
/// there were any.
pub(super) fn choose(
    chosen: &mut Chosen,
    found: &BTreeMap<At, Found>,
    logs: &[Log],
    times: &Times,
    order: &mut Order<'_>,
) -> bool {
    if chosen.sees.len() >= MAX_CHOSEN {
        return false;
    }
    let changes = Changes::new(logs);
    let scene = Scene { changes: &changes, times };
    let races = found.iter().filter(|(_, found)| matches!(found, Found::Race(_)));
    let mut open: Vec<At> = races
        .map(|(at, _)| *at)
        .filter(|at| !chosen.sees.contains_key(at) && scene.cut(*at, order).is_some())
        .collect();
    open.sort_by_key(|at| (scene.when(*at), *at));
    let Some(first) = open.first().copied() else { return false };
    let of_first = changes.op(first).map(|op| (&op.store, &op.keys));
    open.retain(|at| {
        let same = changes.op(*at).map(|op| (&op.store, &op.keys)) == of_first;
        same && scene.when(*at) == scene.when(first)
    });
    for at in open {
        let (Some(op), Some(Cut { before, after })) = (changes.op(at), scene.cut(at, order)) else {
            continue;
        };
        // Its answer tells of those too that it was put behind before.
        let mut told = chosen.after.remove(&at).unwrap_or_default();
        told.extend(&before);
        told.sort_by_cached_key(|other| (order.before(*other).iter().sum::<usize>(), *other));
        let mut sees: Vec<At> = Vec::new();
        for other in told.iter().rev() {
            if !sees.iter().any(|seen| within(*other, &order.before(*seen))) {
                sees.push(*other);
            }
        }
        for other in &sees {
            order.follow(at, *other);
        }
        for other in &after {
            order.follow(*other, at);
            chosen.after.entry(*other).or_default().push(at);
        }
        // For operations whose answers are not used, the order is fixed by this answer.
        if !matches!(op.what, What::Add(_)) {
            for pair in before.windows(2) {
                let [earlier, later] = pair else { continue };
                if !within(*earlier, &order.before(*later)) {
                    order.follow(*later, *earlier);
                    chosen.after.entry(*later).or_default().push(*earlier);
                }
            }
        }
        sees.sort_unstable();
        chosen.sees.insert(at, sees);
    }
    true
}

/// Puts newly known operations after those that were ordered before; true if there were any.
pub(super) fn keep(chosen: &mut Chosen, logs: &[Log], order: &mut Order<'_>) -> bool {
    let changes = Changes::new(logs);
    let mut any = false;
    for at in chosen.sees.keys() {
        let Some((op, key)) = changes.op(*at).and_then(|op| Some((op, op.keys.first()?))) else {
            continue;
        };
        for other in changes.split(*at, &op.store, key, order).beside {
            order.follow(other, *at);
            chosen.after.entry(other).or_default().push(*at);
            any = true;
        }
    }
    any
}

/// The nanoseconds between two operations from which on their order counts as certain, though only the ranks'
/// sleep and compute times give it.
const APART_NS: u64 = 1_000_000;

/// The facts that an order is taken from.
struct Scene<'s, 'l> {
    changes: &'s Changes<'l>,
    times: &'s Times,
}

/// The changes of a key before an operation, in order, and those after it.
struct Cut {
    before: Vec<At>,
    after: Vec<At>,
}

impl Scene<'_, '_> {
    fn when(&self, at: At) -> (u32, u64) {
        let begins = self.times.begins(at).unwrap_or_default();
        (begins.meetings, begins.ns)
    }

    /// The changes that an operation comes after, and before, where that may be said.
    fn cut(&self, at: At, order: &Order<'_>) -> Option<Cut> {
        let op = self.changes.op(at)?;
        let [key] = &op.keys[..] else { return None };
        if self.changes.of_key(&op.store, key).len() > MAX_DRAWN {
            return None;
        }
        let split = self.changes.split(at, &op.store, key, order);
        let beside = split.beside;
        // Operations that come before another one in the order come before it in this sort as well. So do
        // numbers that are drawn already.
        let drawn = is_drawn(op, self.changes);
        let open = |at: At| drawn && self.changes.op(at).is_some_and(|op| op.told.is_none());
        let place = |at: At| {
            let before: usize = order.before(at).iter().sum();
            (open(at), self.when(at), before, at)
        };
        let mut sorted: Vec<_> = beside.iter().map(|other| place(*other)).collect();
        sorted.sort_unstable();
        let own = place(at);
        let from = sorted.partition_point(|other| *other < own);
        let sorted: Vec<At> = sorted.into_iter().map(|(.., other)| other).collect();
        let cut = |from: usize| {
            let (before, after) = sorted.split_at_checked(from)?;
            Some(Cut { before: before.to_vec(), after: after.to_vec() })
        };
        if drawn {
            return cut(from);
        }
        let mut begins = self.times.begins(at).filter(|_| !op.polls)?;
        let clock = |other: &At| {
            let clock = self.times.begins(*other)?;
            (clock.meetings == begins.meetings && !clock.loose && !begins.loose).then_some(clock)
        };
        let clocks: Vec<Clock> = sorted.iter().map(clock).collect::<Option<_>>()?;
        let waits = matches!(op.what, What::Get | What::Wait);
        let from = if waits {
            // It goes on with what makes the key be there.
            let earlier = clocks.partition_point(|clock| clock.ns < begins.ns);
            let held = self.changes.held(&op.store, key, &split.before, order).value.ok()?;
            let there = |count: &usize| {
                let done = sorted.get(..*count).unwrap_or_default();
                self.changes.applied(&op.store, key, held.as_deref(), done).is_some()
            };
            // Or it waits in vain, for what is gone for long.
            let gone = |clock: &Clock| clock.ns.saturating_add(APART_NS) <= begins.ns;
            let in_vain = || clocks.iter().all(gone).then_some(sorted.len());
            let from = (earlier..=sorted.len()).find(there).or_else(in_vain)?;
            if let Some(last) = from.checked_sub(1).and_then(|last| clocks.get(last)) {
                begins.ns = begins.ns.max(last.ns);
            }
            from
        } else {
            let apart = |clock: &Clock| clock.ns.abs_diff(begins.ns) >= APART_NS;
            clocks.iter().all(apart).then_some(from)?
        };
        let later = clocks.get(from..)?.iter();
        let apart = later.clone().all(|clock| clock.ns >= begins.ns.saturating_add(APART_NS));
        apart.then(|| cut(from)).flatten()
    }
}

/// True if ranks draw from a key: they only add to it, or only compete for it, so that another order gives
/// other ranks the same answers.
fn is_drawn(op: &Op, changes: &Changes<'_>) -> bool {
    let [key] = &op.keys[..] else { return false };
    let of_key = changes.of_key(&op.store, key);
    let all = |kind: fn(&What) -> bool| {
        of_key.iter().all(|at| changes.op(*at).is_some_and(|op| kind(&op.what)))
    };
    match op.what {
        What::Add(_) => all(|what| matches!(what, What::Add(_))),
        What::CompareSet { .. } => all(|what| matches!(what, What::CompareSet { .. })),
        _ => false,
    }
}
