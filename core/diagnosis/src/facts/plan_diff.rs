//! The calls that one rank's program leaves out, adds or swaps, where the plan is known.
//!
//! The plan of a simulation or a run shows what every rank would have called, so that the place of
//! a skipped call is certain where a recording could only guess.

use crate::model::ddp_frames::DdpPart;
use crate::model::roles::Roles;
use crate::words::{whole_call, within};
use lockstep_core::group::GroupId;
use lockstep_core::plan::remark::BACKWARD;
use lockstep_core::plan::{Action, Call, Op, Plan, SignalKind, TensorId};
use lockstep_core::rank::GlobalRank;
use std::ops::Range;

/// The name, in operations that DDP makes by itself, of the call of the user's that they are a part of.
const DDP: &str = "DistributedDataParallel";

/// The difference between two programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanDiff {
    /// The first leaves out calls of the second.
    Skips(Place),
    /// The first makes calls that the second does not make.
    Adds(Place),
    /// The first makes the same calls in another order.
    Swaps(Place),
}

/// The place of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first of the calls concerned, in PyTorch's name.
    pub(crate) op: String,
    /// The call on objects that it is a part of.
    pub(crate) part_of: Option<String>,
    /// Its number in the group, in the program that makes the call.
    pub(crate) seq: u64,
    /// The number it could have as well, because the calls between are all alike.
    pub(crate) last_seq: u64,
    /// The number of collectives of the group that are concerned.
    pub(crate) count: usize,
    /// Its line, `train.py:88`.
    pub(crate) line: Option<String>,
    /// For swaps, the second call.
    pub(crate) other: Option<(String, Option<String>)>,
    /// True if what is left out are whole rounds of a loop.
    pub(crate) rounds: bool,
    /// The part of DDP that makes the first of them, if DDP makes them all by itself.
    pub(crate) ddp: Option<DdpPart>,
    /// True if nothing is computed between the calls: they alone are left out or added.
    pub(crate) bare: bool,
}

/// The difference between the programs of `rank` and of `peer`, in the collectives of `group`;
/// `None` if there is none, or if they differ in several ways. `roles` says which groups of the two
/// stand for each other.
pub(crate) fn plan_diff(
    plan: &Plan,
    roles: &Roles,
    group: GroupId,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Option<PlanDiff> {
    let tokens = |rank| Some(compared(plan, roles, &plan.program(rank)?.ops));
    let (own, other) = (tokens(rank)?, tokens(peer)?);
    // Lines tell equal calls apart, and so do their callers, unless the ranks make the same calls from different ones.
    let shorter = own.len().min(other.len());
    let found = [ToldApartBy::Callers, ToldApartBy::Line].into_iter().find_map(|by| {
        let (prefix, suffix) = common(&own, &other, |a, b| a.same_from(b, by));
        (prefix + suffix >= shorter).then_some((prefix, suffix, by))
    });
    let lines = found.is_some();
    let (prefix, suffix, by) = found.unwrap_or_else(|| {
        let (prefix, suffix) = common(&own, &other, |a, b| a.same(b));
        (prefix, suffix, ToldApartBy::Line)
    });
    let by_line = |a: &Token<'_>, b: &Token<'_>| a.same_from(b, ToldApartBy::Line);
    let programs = Programs { plan, group, own: &own, other: &other, told_apart_by: by };
    let whole = Hunk { own: prefix..own.len() - suffix, other: prefix..other.len() - suffix };
    programs.one(&whole).or_else(|| {
        let ranges = if lines { whole } else { trimmed(&own, &other, by_line) };
        let (own, other) = (own.get(ranges.own.clone())?, other.get(ranges.other.clone())?);
        let hunks = align(own, other, by_line)?.into_iter().map(|hunk| Hunk {
            own: hunk.own.start + ranges.own.start..hunk.own.end + ranges.own.start,
            other: hunk.other.start + ranges.other.start..hunk.other.end + ranges.other.start,
        });
        programs.several(&hunks.collect::<Vec<_>>())
    })
}

/// An operation, and what it has in common with another rank's.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    op: &'a Op,
    plan: &'a Plan,
    roles: &'a Roles,
}

/// A part of one program that stands where a part of the other one stands; either may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    own: Range<usize>,
    other: Range<usize>,
}

/// The part of an operation's origin that tells equal calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToldApartBy {
    /// Its line.
    Line,
    /// Its line and the lines that called it.
    Callers,
}

/// Two programs to be compared in the calls of a group.
struct Programs<'a, 't> {
    plan: &'a Plan,
    group: GroupId,
    own: &'t [Token<'a>],
    other: &'t [Token<'a>],
    told_apart_by: ToldApartBy,
}

impl<'a> Programs<'a, '_> {
    /// The difference, if one part of the programs is all that differs.
    fn one(&self, hunk: &Hunk) -> Option<PlanDiff> {
        let own_middle = self.own.get(hunk.own.clone())?;
        let other_middle = self.other.get(hunk.other.clone())?;
        let (own_calls, other_calls) = (self.calls(own_middle), self.calls(other_middle));
        match (own_calls.as_slice(), other_calls.as_slice()) {
            ([], [_, ..]) => {
                let place = self.place(self.other, &hunk.other)?;
                let rounds = place.rounds && !self.goes_round_elsewhere(hunk);
                let alike = own_middle.is_empty() && rounds == place.rounds;
                let seq = if alike { place.seq } else { place.last_seq };
                Some(PlanDiff::Skips(Place { seq, rounds, ..place }))
            }
            ([_, ..], []) => Some(PlanDiff::Adds(self.place(self.own, &hunk.own)?)),
            ([a, .., b], [c, .., d]) if own_calls.len() == 2 && other_calls.len() == 2 => {
                if !(a.same(d) && b.same(c)) {
                    return None;
                }
                let place = self.place(self.other, &hunk.other)?;
                let second = within(whole_call(d.op), d.op.action.name());
                let second = Some((second, self.line(d)));
                Some(PlanDiff::Swaps(Place { seq: place.last_seq, other: second, ..place }))
            }
            _ => None,
        }
    }

    /// True if the rank goes round the loop, of which it lacks rounds here, as often as the other one in another turn
    /// before and after: it left calls out this time, and its loop has the same length.
    fn goes_round_elsewhere(&self, hunk: &Hunk) -> bool {
        let (from, period) = (hunk.other.start, hunk.other.len());
        let slid = slides(self.other, (from, period), self.told_apart_by);
        let Some(rounds) = self.other.get(from - slid..hunk.other.end) else { return false };
        let same = |(a, b): (&Token<'_>, &Token<'_>)| a.same_from(b, self.told_apart_by);
        let is_in = |part: Option<&[Token<'a>]>| {
            let part = part.unwrap_or_default();
            // A turn begins where no round of the same loop is in front.
            let begins = |at: usize| {
                let before = at.checked_sub(1).and_then(|at| part.get(at));
                !before.zip(rounds.get(period - 1)).is_some_and(same)
            };
            (0..part.len().saturating_sub(rounds.len() - 1))
                .any(|at| begins(at) && part.iter().skip(at).zip(rounds).all(same))
        };
        is_in(self.own.get(..hunk.own.start.saturating_sub(slid)))
            && is_in(self.own.get(hunk.own.end..))
    }

    /// The difference, if all parts that differ tell of the same: calls left out again and again,
    /// or added, or one moved.
    fn several(&self, hunks: &[Hunk]) -> Option<PlanDiff> {
        let calls = |tokens: &[Token<'a>], range: &Range<usize>| {
            self.calls(tokens.get(range.clone()).unwrap_or_default())
        };
        let with_calls: Vec<(&Hunk, Vec<Token<'a>>, Vec<Token<'a>>)> = hunks
            .iter()
            .map(|hunk| (hunk, calls(self.own, &hunk.own), calls(self.other, &hunk.other)))
            .filter(|(_, own, other)| !(own.is_empty() && other.is_empty()))
            .collect();
        let added: usize = with_calls.iter().map(|(_, own, _)| own.len()).sum();
        let left_out: usize = with_calls.iter().map(|(_, _, other)| other.len()).sum();
        let (first, own, other) = with_calls.first()?;
        match (added, left_out) {
            (0, count) => {
                let place = self.place(self.other, &first.other)?;
                Some(PlanDiff::Skips(Place { seq: place.last_seq, count, rounds: false, ..place }))
            }
            (count, 0) => {
                let place = self.place(self.own, &first.own)?;
                Some(PlanDiff::Adds(Place { count, ..place }))
            }
            (1, 1) => {
                let (_, last_own, last_other) = with_calls.last()?;
                let (moved, early) = match (own.first(), other.first()) {
                    (Some(moved), None) => (moved, true),
                    (None, Some(moved)) => (moved, false),
                    _ => return None,
                };
                let again = if early { last_other.first()? } else { last_own.first()? };
                if !moved.same(again) {
                    return None;
                }
                // The call that the moved one changed places with.
                let partner = *self.calls(self.other.get(first.other.end..)?).first()?;
                let (one, two) = if early { (partner, *moved) } else { (*moved, partner) };
                let before = self.calls(self.other.get(..first.other.start)?).len() as u64;
                Some(PlanDiff::Swaps(Place {
                    op: one.op.action.name().to_owned(),
                    part_of: whole_call(one.op).map(str::to_owned),
                    seq: before + 1,
                    last_seq: before + 1,
                    count: 1,
                    line: self.line(&one),
                    other: Some((
                        within(whole_call(two.op), two.op.action.name()),
                        self.line(&two),
                    )),
                    rounds: false,
                    ddp: None,
                    bare: false,
                }))
            }
            _ => None,
        }
    }

    /// The place of a part of one of the programs that the other one lacks.
    fn place(&self, tokens: &[Token<'a>], part: &Range<usize>) -> Option<Place> {
        let inside = tokens.get(part.clone())?;
        let calls = self.calls(inside);
        let call = *calls.first()?;
        let before = self.calls(tokens.get(..part.start)?).len() as u64;
        let slides = slides(tokens, (part.start, part.len()), self.told_apart_by);
        let earlier = self.calls(tokens.get(part.start - slides..part.start)?).len() as u64;
        let computes = |token: &Token<'_>| matches!(token.op.action, Action::Compute { .. });
        Some(Place {
            op: call.op.action.name().to_owned(),
            part_of: whole_call(call.op).map(str::to_owned),
            seq: before + 1 - earlier,
            last_seq: before + 1,
            count: calls.len(),
            line: self.line(&call),
            other: None,
            rounds: part.len() > 1 && slides >= part.len(),
            ddp: self.ddp_part(tokens.get(..part.start)?, &calls),
            bare: !inside.iter().any(computes),
        })
    }

    /// The part of DDP that makes the first of `calls`, which follow `before`, if DDP makes them all by itself.
    fn ddp_part(&self, before: &[Token<'a>], calls: &[Token<'a>]) -> Option<DdpPart> {
        let parts: Option<Vec<DdpPart>> = calls.iter().map(|call| ddp_part(call.op)).collect();
        let first = *parts?.first()?;
        let verified = || {
            // The numbers of parameters are gathered, then the shapes are broadcast.
            let is_count = |op: &Op| op.action.name() == "all_gather" && ddp_part(op).is_some();
            let earlier = self.calls(before).last().copied();
            is_count(calls.first()?.op)
                .then_some(())
                .or_else(|| is_count(earlier?.op).then_some(()))
        };
        match first {
            DdpPart::ModuleStates => {
                Some(verified().map_or(DdpPart::ModuleStates, |()| DdpPart::Verify))
            }
            part => Some(part),
        }
    }

    /// The collectives of the group among some operations.
    fn calls(&self, tokens: &[Token<'a>]) -> Vec<Token<'a>> {
        let is_call = |token: &Token<'a>| {
            let calls = token.op.action.calls();
            calls.iter().any(|call| call.collective().is_some() && call.group() == self.group)
        };
        tokens.iter().copied().filter(is_call).collect()
    }

    fn line(&self, token: &Token<'_>) -> Option<String> {
        token.op.at.map(|at| self.plan.describe_line(at))
    }
}

/// The part of DistributedDataParallel that makes an operation by itself; of its constructor, the copy of the
/// first rank's states.
fn ddp_part(op: &Op) -> Option<DdpPart> {
    Some(match op.via.as_deref()?.strip_prefix(DDP)? {
        "" => DdpPart::ModuleStates,
        part if part.ends_with(BACKWARD) => DdpPart::Backward,
        _ => DdpPart::Forward,
    })
}

impl Token<'_> {
    /// True if both ranks do the same, from the same place.
    fn same_from(&self, other: &Token<'_>, by: ToldApartBy) -> bool {
        let callers = by == ToldApartBy::Line || self.op.called_from == other.op.called_from;
        self.same(other) && self.op.at == other.op.at && callers
    }

    /// True if both ranks do the same as far as others see it: not in which of their tensors, and
    /// not how long a slow rank takes for it.
    fn same(&self, other: &Token<'_>) -> bool {
        match (&self.op.action, &other.op.action) {
            (Action::Compute { name: a, .. }, Action::Compute { name: b, .. }) => a == b,
            (a, b) if a.ends_by().is_some() && b.ends_by().is_some() => true,
            (a, b) => {
                let (ours, theirs) = (a.calls(), b.calls());
                ours.len() == theirs.len()
                    && !ours.is_empty()
                    && ours.iter().zip(theirs).all(|(a, b)| alike(self.plan, self.roles, a, b))
            }
        }
    }
}

/// True if two calls are the same but for which of a rank's tensors they are about, and for
/// the parts of an uneven call. Tensors of one name are the same to whoever wrote the program;
/// only the root of a call may pass one that the others do not.
fn alike(plan: &Plan, roles: &Roles, a: &Call, b: &Call) -> bool {
    // The name of an uneven call's tensor may say its size, which its parts decide.
    let tensor = |call: &Call, id: TensorId| {
        let tensor = plan.tensor(id)?;
        let uneven = matches!(call, Call::Collective { splits: Some(_), .. });
        Some(((!uneven).then_some(tensor.name.as_str()), tensor.dtype))
    };
    let collective = |call: &Call| match call {
        Call::Collective { collective, count, .. } => Some((*collective, *count)),
        _ => None,
    };
    let same_group = roles.same(a.group(), b.group());
    match (a, b) {
        (Call::Collective { .. }, Call::Collective { .. }) => {
            let mut tensors = a.tensors().into_iter().zip(b.tensors());
            same_group
                && collective(a) == collective(b)
                && tensors.all(|pair| match pair {
                    (Some(own), Some(other)) => tensor(a, own) == tensor(b, other),
                    _ => true,
                })
        }
        // Neighbours of different ranks are different ranks.
        _ => a.name() == b.name() && same_group,
    }
}

/// The number of operations that are the same at the start, and of the rest at the end.
fn common<'a>(
    own: &[Token<'a>],
    other: &[Token<'a>],
    same: impl Fn(&Token<'a>, &Token<'a>) -> bool,
) -> (usize, usize) {
    let prefix = own.iter().zip(other).take_while(|(a, b)| same(a, b)).count();
    let (own, other) = (own.iter().skip(prefix).rev(), other.iter().skip(prefix).rev());
    (prefix, own.zip(other).take_while(|(a, b)| same(a, b)).count())
}

/// The part between the common start and end.
fn trimmed<'a>(
    own: &[Token<'a>],
    other: &[Token<'a>],
    same: impl Fn(&Token<'a>, &Token<'a>) -> bool,
) -> Hunk {
    let (prefix, suffix) = common(own, other, same);
    Hunk { own: prefix..own.len() - suffix, other: prefix..other.len() - suffix }
}

/// More differences than these are not told in a sentence.
const MAX_EDITS: usize = 400;

/// The parts in which two lists differ, by the fewest insertions and deletions (Myers, "An O(ND)
/// difference algorithm", 1986); `None` if there are too many.
fn align<'a>(
    own: &[Token<'a>],
    other: &[Token<'a>],
    same: impl Fn(&Token<'a>, &Token<'a>) -> bool,
) -> Option<Vec<Hunk>> {
    // reached[d][k]: how far into `own` d edits come on diagonal k, where k + d / 2 counts from 0.
    let mut reached: Vec<Vec<usize>> = Vec::new();
    let at = |row: &[usize], d: usize, k: isize| -> Option<usize> {
        let index = usize::try_from(k + d as isize).ok()?;
        (index % 2 == 0).then(|| row.get(index / 2).copied())?
    };
    let step = |before: Option<&Vec<usize>>, d: usize, k: isize| -> (usize, bool) {
        let Some(row) = before else { return (0, false) };
        let deleted = at(row, d - 1, k - 1).map(|x| x + 1);
        let inserted = at(row, d - 1, k + 1);
        match (deleted, inserted) {
            (Some(deleted), Some(inserted)) if deleted > inserted => (deleted, true),
            (Some(deleted), None) => (deleted, true),
            (_, inserted) => (inserted.unwrap_or(0), false),
        }
    };
    let mut found = None;
    'search: for d in 0..=MAX_EDITS.min(own.len() + other.len()) {
        let mut row = Vec::with_capacity(d + 1);
        for k in (-(d as isize)..=d as isize).step_by(2) {
            let (mut x, _) = step(reached.last(), d, k);
            let mut y = usize::try_from(x as isize - k).unwrap_or(usize::MAX);
            while let (Some(a), Some(b)) = (own.get(x), other.get(y)) {
                if !same(a, b) {
                    break;
                }
                (x, y) = (x + 1, y + 1);
            }
            row.push(x);
            if x >= own.len() && y >= other.len() {
                reached.push(row);
                found = Some((d, k));
                break 'search;
            }
        }
        reached.push(row);
    }
    let (mut d, mut k) = found?;
    let mut hunks: Vec<Hunk> = Vec::new();
    while d > 0 {
        let (start, deleted) = step(reached.get(d - 1), d, k);
        let (after_x, after_y) = (start, usize::try_from(start as isize - k).unwrap_or(0));
        let (from_x, from_y) = match deleted {
            true => (after_x.saturating_sub(1), after_y),
            false => (after_x, after_y.saturating_sub(1)),
        };
        match hunks.last_mut() {
            // Nothing common lies between: the edits are one part.
            Some(last) if (last.own.start, last.other.start) == (after_x, after_y) => {
                (last.own.start, last.other.start) = (from_x, from_y);
            }
            _ => hunks.push(Hunk { own: from_x..after_x, other: from_y..after_y }),
        }
        k += if deleted { -1 } else { 1 };
        d -= 1;
    }
    hunks.reverse();
    Some(hunks)
}

/// By how many operations the `middle` operations from `at` on could have been taken out further
/// to the front, with the same program left.
fn slides(tokens: &[Token<'_>], (at, middle): (usize, usize), by: ToldApartBy) -> usize {
    (0..at)
        .take_while(|slid| {
            let (before, after) = (tokens.get(at - slid - 1), tokens.get(at - slid - 1 + middle));
            // Other lines tell which one is gone.
            matches!((before, after), (Some(a), Some(b)) if a.same_from(b, by))
        })
        .count()
}

/// The operations that tell programs apart: idle time does not, and a wait only repeats its call.
fn compared<'a>(plan: &'a Plan, roles: &'a Roles, ops: &'a [Op]) -> Vec<Token<'a>> {
    let counts = |op: &&Op| match op.action {
        Action::Call { .. }
        | Action::Coalesced { .. }
        | Action::Compute { .. }
        | Action::Die { .. }
        | Action::Signal(SignalKind::Kill | SignalKind::End(_)) => true,
        Action::Sleep { .. }
        | Action::Signal(SignalKind::Stop { .. })
        | Action::Wait { .. }
        | Action::Query { .. }
        | Action::Copy(_)
        | Action::Synchronize => false,
    };
    ops.iter().filter(counts).map(|op| Token { op, plan, roles }).collect()
}
