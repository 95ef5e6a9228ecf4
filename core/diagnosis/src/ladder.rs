//! The call ladder of a finding: the ranks' calls side by side around their first disagreement.
//!
//! The calls of each side are aligned with those of the first by Myers' difference algorithm, as lines of two
//! texts are.

use crate::facts::program_order::same;
use crate::model::index::{Job, Made};
use crate::report::{Ladder, LadderCall, LadderSide, LadderStep, Rung};
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Frame, TensorShape};
use lockstep_formats::frames::{own_frames, short_frame, stack_parts};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::BTreeMap;

/// So many of a rank's last calls are compared.
const LAST: usize = 512;
/// So many ranks on either side are compared.
const RANKS: usize = 2048;
/// So many sides are shown.
const SIDES: usize = 4;
/// So many rungs before the disagreement are shown, and so many after it.
const SHOWN: usize = 3;
/// A disagreement so many rungs away from a finding's call is another one.
const NEAR: usize = 64;

/// The finding that a ladder illustrates.
pub(crate) struct About<'f> {
    /// The ranks that the finding blames, ascending.
    pub(crate) culprits: &'f [GlobalRank],
    /// The ranks that wait because of them, ascending.
    pub(crate) victims: &'f [GlobalRank],
    /// The finding's call, as the majority counts.
    pub(crate) call: Option<(GroupId, u64)>,
}

/// The ladder of a finding; `None` if fewer than two sides left calls, or if all made the same ones and the finding is
/// about none of them.
pub(crate) fn ladder(job: &Job<'_>, about: &About<'_>) -> Option<Ladder> {
    let sides = sides(job, about);
    let (first, others) = sides.split_first()?;
    if others.is_empty() {
        return None;
    }
    let rungs = rungs(job, first, others);
    let focus = focus(job, about, &rungs)?;
    let (from, to) = (focus.saturating_sub(SHOWN), (focus + SHOWN + 1).min(rungs.len()));
    let shown = rungs.get(from..to)?;
    let all: Vec<Made<'_>> = shown.iter().flatten().flatten().copied().collect();
    let shown = shown.iter().zip(from..);
    Some(Ladder {
        rungs: shown
            .map(|(cells, at)| {
                let after = rungs.get(at + 1..).unwrap_or_default();
                let differs = at == focus || differs(job, cells, after);
                Rung { steps: steps(job, (cells, &all), after, differs), differs }
            })
            .collect(),
        before: from as u64,
        after: (rungs.len() - to) as u64,
        sides: sides.into_iter().map(|side| side.shown).collect(),
    })
}

/// Ranks that made the same calls, with the calls of the one that came furthest.
struct Side<'a> {
    shown: LadderSide,
    calls: Vec<Made<'a>>,
}

impl<'a> Side<'a> {
    /// Takes a rank in that made these calls, if it made the same as the side as far as it came.
    fn takes(&mut self, job: &Job<'_>, calls: &[Made<'a>]) -> bool {
        let Some((own, theirs)) = from_common_call(job, &self.calls, calls) else { return false };
        let same = theirs.len() <= own.len()
            && own.iter().zip(theirs).all(|(a, b)| same_call(job, *a, *b));
        if same {
            self.shown.ranks.extend(calls.first().map(|made| made.rank));
        }
        same
    }
}

/// The sides of a ladder: first those who are not blamed, then the culprits, who may have gone several ways.
fn sides<'a>(job: &Job<'a>, about: &About<'_>) -> Vec<Side<'a>> {
    let members = about.call.and_then(|(group, _)| Some(job.group(group)?.ranks()));
    let others = members.filter(|members| members.len() > 1).unwrap_or(about.victims);
    let others = others.iter().filter(|rank| !about.culprits.contains(rank)).take(RANKS).copied();
    let culprits = about.culprits.iter().take(RANKS).copied();
    let (mut others, mut culprits) = (longest_first(job, others), longest_first(job, culprits));
    // Messages are of two ranks: beside collectives they are noise, unless somebody waits in one.
    let waits =
        |calls: &Vec<Made<'_>>| calls.iter().any(|made| made.record.call.p2p && made.pending());
    if !others.iter().chain(&culprits).any(waits) {
        for calls in others.iter_mut().chain(&mut culprits) {
            calls.retain(|made| !made.record.call.p2p);
        }
    }
    // Ranks that made the finding's call show the expected calls.
    let came = |calls: &Vec<Made<'_>>| calls.iter().any(|made| is_call(job, *made, about.call));
    others.sort_by_key(|calls| !came(calls));
    let mut sides: Vec<Side<'a>> = Vec::new();
    let blamed = others.iter().map(|_| false).chain(culprits.iter().map(|_| true));
    let all: Vec<(bool, Vec<Made<'a>>)> =
        blamed.zip(others.iter().chain(&culprits).cloned()).collect();
    for (blamed, calls) in all {
        let Some(rank) = calls.first().map(|made| made.rank) else { continue };
        let of_its_own = |side: &&mut Side<'a>| side.shown.culprits == blamed;
        let known = sides.iter_mut().filter(of_its_own).any(|side| side.takes(job, &calls));
        // One side of those who are not blamed says what was expected.
        if !known && sides.len() < SIDES && (blamed || sides.is_empty()) {
            let shown = LadderSide { ranks: vec![rank], culprits: blamed };
            sides.push(Side { shown, calls });
        }
    }
    for side in &mut sides {
        side.shown.ranks.sort_unstable();
    }
    sides
}

/// The last calls of ranks, of those with the most first.
fn longest_first<'a>(job: &Job<'a>, ranks: impl Iterator<Item = GlobalRank>) -> Vec<Vec<Made<'a>>> {
    let calls = |rank: GlobalRank| {
        let calls = job.rank(rank)?.calls.as_slice();
        let last = calls.get(calls.len().saturating_sub(LAST)..)?;
        Some(last.iter().map(|record| Made { rank, record }).collect::<Vec<_>>())
    };
    let mut all: Vec<Vec<Made<'a>>> = ranks.filter_map(calls).collect();
    let far = |calls: &Vec<Made<'_>>| calls.last().map_or(0, |made| made.record.work);
    all.sort_by_key(|calls| std::cmp::Reverse(far(calls)));
    all
}

/// One rung before it is written down: the call of each side, if it made one there.
type Cells<'a> = Vec<Option<Made<'a>>>;

fn rungs<'a>(job: &Job<'a>, first: &Side<'a>, others: &[Side<'a>]) -> Vec<Cells<'a>> {
    let width = others.len() + 1;
    // Recorders may have dropped different numbers of calls: all begin at the first call that all have.
    let begun = |side: &Side<'a>| match from_common_call(job, &first.calls, &side.calls) {
        Some((own, theirs)) => (first.calls.len() - own.len(), theirs.to_vec()),
        None => (0, side.calls.clone()),
    };
    let begun: Vec<(usize, Vec<Made<'a>>)> = others.iter().map(begun).collect();
    let from = begun.iter().map(|(from, _)| *from).max().unwrap_or(0);
    let expected = first.calls.get(from..).unwrap_or_default();
    let mut made: Vec<Cells<'a>> = Vec::with_capacity(expected.len());
    for call in expected {
        let mut cells = vec![None; width];
        if let Some(cell) = cells.first_mut() {
            *cell = Some(*call);
        }
        made.push(cells);
    }
    // Calls that others made between two calls of the first, by the later of the two.
    let mut between: BTreeMap<usize, Vec<Cells<'a>>> = BTreeMap::new();
    for (column, (begins, calls)) in (1..).zip(&begun) {
        let skipped = from.saturating_sub(*begins).min(calls.len());
        let calls = calls.get(skipped..).unwrap_or_default();
        let mut set = |at: usize, call: usize| {
            let cell = made.get_mut(at).and_then(|cells| cells.get_mut(column));
            if let Some(cell) = cell {
                *cell = calls.get(call).copied();
            }
        };
        let mut added: Vec<(usize, usize)> = Vec::new();
        for op in alignment(job, expected, calls) {
            match op {
                DiffOp::Equal { old_index, new_index, len } => {
                    (0..len).for_each(|n| set(old_index + n, new_index + n));
                }
                DiffOp::Delete { .. } => {}
                DiffOp::Insert { old_index, new_index, new_len } => {
                    added.extend((0..new_len).map(|n| (old_index, new_index + n)));
                }
                DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                    let both = old_len.min(new_len);
                    (0..both).for_each(|n| set(old_index + n, new_index + n));
                    let more = (both..new_len).map(|n| (old_index + both, new_index + n));
                    added.extend(more);
                }
            }
        }
        for (at, call) in added {
            let mut cells = vec![None; width];
            if let Some(cell) = cells.get_mut(column) {
                *cell = calls.get(call).copied();
            }
            between.entry(at).or_default().push(cells);
        }
    }
    let mut all = Vec::with_capacity(made.len());
    for (at, cells) in made.into_iter().enumerate() {
        all.extend(between.remove(&at).unwrap_or_default());
        all.push(cells);
    }
    all.extend(between.into_values().flatten());
    all
}

/// Chooses the rung to show: the disagreement nearest to the finding's call, else that call, else the first rung
/// that a side has not reached.
fn focus(job: &Job<'_>, about: &About<'_>, rungs: &[Cells<'_>]) -> Option<usize> {
    let after = |at: usize| rungs.get(at + 1..).unwrap_or_default();
    let apart: Vec<usize> = (0..rungs.len())
        .filter(|at| rungs.get(*at).is_some_and(|cells| differs(job, cells, after(*at))))
        .collect();
    let is_it =
        |cells: &Cells<'_>| cells.iter().flatten().any(|made| is_call(job, *made, about.call));
    match rungs.iter().position(is_it) {
        Some(call) => {
            let near = apart.into_iter().filter(|at| at.abs_diff(call) <= NEAR);
            Some(near.min_by_key(|at| at.abs_diff(call)).unwrap_or(call))
        }
        None => {
            let ends = || rungs.iter().position(|cells| cells.iter().any(Option::is_none));
            apart.first().copied().or_else(ends)
        }
    }
}

/// True if sides disagree at a rung: one made another call there than the others, or left it out.
fn differs(job: &Job<'_>, cells: &Cells<'_>, after: &[Cells<'_>]) -> bool {
    let mut made = cells.iter().flatten();
    let first = made.next();
    let apart = made.any(|other| first.is_some_and(|first| !same_call(job, *first, *other)));
    let left_out =
        |column: usize| cells.get(column).is_some_and(Option::is_none) && goes_on(column, after);
    apart || (0..cells.len()).any(left_out)
}

/// True if a side makes another call later.
fn goes_on(column: usize, after: &[Cells<'_>]) -> bool {
    after.iter().any(|cells| cells.get(column).is_some_and(Option::is_some))
}

/// The steps of a rung; `all` are the calls of all rungs that are shown.
fn steps(
    job: &Job<'_>,
    (cells, all): (&Cells<'_>, &[Made<'_>]),
    after: &[Cells<'_>],
    with_stack: bool,
) -> Vec<LadderStep> {
    let step = |(column, cell): (usize, &Option<Made<'_>>)| match cell {
        Some(made) => {
            let mut call = shown_call(job, *made, all);
            if with_stack {
                call.stack = stack_parts(&made.record.call.stack);
            }
            LadderStep::Called(call)
        }
        None if goes_on(column, after) => LadderStep::LeftOut,
        None => LadderStep::NotReached,
    };
    cells.iter().enumerate().map(step).collect()
}

fn shown_call(job: &Job<'_>, made: Made<'_>, all: &[Made<'_>]) -> LadderCall {
    let call = &made.record.call;
    let tensors = if call.inputs.is_empty() { &call.outputs } else { &call.inputs };
    let mut what: Vec<String> = tensors_text(tensors).into_iter().collect();
    what.extend(call.reduce_op.map(|op| op.name().to_owned()));
    what.extend(call.root.map(|root| format!("root {root}")));
    if let Some((sender, receiver)) = message(job, made) {
        let (way, peer) = if sender == made.rank { ("to", receiver) } else { ("from", sender) };
        what.push(format!("{way} rank {peer}"));
        if call.tag != 0 {
            what.push(format!("tag {}", call.tag));
        }
    }
    LadderCall {
        op: words::op(job.log, made),
        group: words::group_label(job.log, call.group),
        seq: made.record.seq,
        what: what.join(", "),
        line: caller_apart(made, all).or_else(|| words::place_of(job.log, made.rank, made.record)),
        stack: Vec::new(),
        waits: made.pending(),
    }
}

/// The call's line with the caller in which it differs from others of the same line that are shown.
fn caller_apart(made: Made<'_>, all: &[Made<'_>]) -> Option<String> {
    let own: Vec<&Frame> = own_frames(&made.record.call.stack).collect();
    let (line, callers) = own.split_first()?;
    let differs_at = |other: &Made<'_>| {
        let mut theirs = own_frames(&other.record.call.stack);
        let same_line = theirs.next() == Some(*line);
        callers.iter().zip(theirs).position(|(own, other)| *own != other).filter(|_| same_line)
    };
    let caller = callers.get(all.iter().filter_map(differs_at).min()?)?;
    Some(format!("{}, called from {}", short_frame(line), short_frame(caller)))
}

/// `[1024, 64] float32`, and how many more.
fn tensors_text(tensors: &[TensorShape]) -> Option<String> {
    let first = tensors.first()?;
    let sizes: Vec<String> = first.shape.iter().map(u64::to_string).collect();
    let text = format!("[{}] {}", sizes.join(", "), first.dtype.name());
    Some(match tensors.len() {
        1 => text,
        all => format!("{text} and {} more", all - 1),
    })
}

/// The sender and the receiver of a message.
fn message(job: &Job<'_>, made: Made<'_>) -> Option<(GlobalRank, GlobalRank)> {
    let call = &made.record.call;
    let peer = call.peer.filter(|_| call.p2p)?;
    let peer = *job.group(call.group)?.ranks().get(peer.index())?;
    let sends = call.op.contains("send");
    Some(if sends { (made.rank, peer) } else { (peer, made.rank) })
}

/// True if two ranks made the same call, in groups that stand for each other; a send and its receive are one.
fn same_call(job: &Job<'_>, a: Made<'_>, b: Made<'_>) -> bool {
    let (one, other) = (&a.record.call, &b.record.call);
    match (one.p2p, other.p2p) {
        (true, true) => {
            job.roles().same(one.group, other.group)
                && message(job, a) == message(job, b)
                && one.tag == other.tag
        }
        (false, false) => same(a.record, b.record, job.roles()),
        _ => false,
    }
}

/// True if a call is the one of a group and number, or stands for it.
fn is_call(job: &Job<'_>, made: Made<'_>, call: Option<(GroupId, u64)>) -> bool {
    call.is_some_and(|(group, seq)| {
        made.record.seq == Some(seq)
            && !made.record.call.p2p
            && job.roles().same(made.record.call.group, group)
    })
}

/// Both from the first call on that both have, by its number; all of both if calls have no numbers. `None` if
/// what is left of the two does not overlap.
fn from_common_call<'s, 'a>(
    job: &Job<'_>,
    own: &'s [Made<'a>],
    theirs: &'s [Made<'a>],
) -> Option<(&'s [Made<'a>], &'s [Made<'a>])> {
    let numbered = |calls: &[Made<'_>]| {
        calls.iter().position(|made| made.record.seq.is_some() && !made.record.call.p2p)
    };
    let (Some(first), Some(other)) = (numbered(own), numbered(theirs)) else {
        return Some((own, theirs));
    };
    let of = |made: &Made<'_>| Some((made.record.call.group, made.record.seq?));
    let at = |calls: &[Made<'_>], of_call: Option<(GroupId, u64)>| {
        calls.iter().position(|made| is_call(job, *made, of_call))
    };
    if let Some(found) = at(theirs, of(own.get(first)?)) {
        return Some((own, theirs.get(found.saturating_sub(first)..)?));
    }
    let found = at(own, of(theirs.get(other)?))?;
    Some((own.get(found.saturating_sub(other)..)?, theirs))
}

/// The differences of two sides' calls. Lines tell calls of one kind apart; so do the callers of these lines, where
/// that leaves as many calls equal: sides may have come to the same line in different ways.
fn alignment(job: &Job<'_>, expected: &[Made<'_>], calls: &[Made<'_>]) -> Vec<DiffOp> {
    let by = |told_apart_by: ToldApartBy| {
        let mut ids = Ids { job, told_apart_by, known: Vec::new() };
        capture_diff_slices(Algorithm::Myers, &ids.of(expected), &ids.of(calls))
    };
    let equal = |ops: &[DiffOp]| -> usize {
        let lengths = ops.iter().map(|op| match op {
            DiffOp::Equal { len, .. } => *len,
            _ => 0,
        });
        lengths.sum()
    };
    let (by_line, by_stack) = (by(ToldApartBy::Line), by(ToldApartBy::Stack));
    if equal(&by_stack) == equal(&by_line) { by_stack } else { by_line }
}

/// The part of a call's stack that tells calls of one kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToldApartBy {
    /// The user's line that calls.
    Line,
    /// All of the user's lines that led to the call.
    Stack,
}

/// Numbers for calls: equal ones for the same call from the same place.
struct Ids<'j, 'a> {
    job: &'j Job<'a>,
    told_apart_by: ToldApartBy,
    known: Vec<(Made<'a>, Option<String>)>,
}

impl<'a> Ids<'_, 'a> {
    fn of(&mut self, calls: &[Made<'a>]) -> Vec<usize> {
        calls.iter().map(|made| self.of_call(*made)).collect()
    }

    fn of_call(&mut self, made: Made<'a>) -> usize {
        let place = match self.told_apart_by {
            ToldApartBy::Line => words::line_of(self.job.log, made.rank, made.record),
            ToldApartBy::Stack => words::lines_of(self.job.log, made.rank, made.record),
        };
        let same = |(known, at): &(Made<'_>, Option<String>)| {
            let places = !known.record.call.p2p && at.is_some() && place.is_some();
            (!places || *at == place) && same_call(self.job, *known, made)
        };
        match self.known.iter().position(same) {
            Some(id) => id,
            None => {
                self.known.push((made, place));
                self.known.len() - 1
            }
        }
    }
}
