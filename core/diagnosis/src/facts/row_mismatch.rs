//! Rows whose calls are not the same collective, and who is in the minority.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Reason;
use crate::facts::edit_distance::WINDOW;
use crate::facts::plan_votes::astray;
use crate::facts::program_order::{Odd, odd_ones};
use crate::model::calls::alike;
use crate::model::index::{Job, Made, Row};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, Frame, RankLog};
use lockstep_core::trace::{CallSignature, Difference};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// So many ties are held against what ranks of other groups do.
const LOOKS: u32 = 64;

/// More sides than this are not held against the rounds before.
const SIDES: usize = 8;

/// The first row of a group in which the members' calls differ.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    /// Its index in [`Job::rows`].
    pub(crate) row: usize,
    /// The ranks that made the call that most made; empty if no call has a majority.
    pub(crate) majority: Vec<GlobalRank>,
    /// The others, by what they called; if there is no majority, every side.
    pub(crate) sides: Vec<Side>,
    /// The evidence for which call is the usual one.
    pub(crate) decided: Decided,
    /// A rank of the majority whose later calls are the majority's as well, as far as they go.
    pub(crate) model: Option<GlobalRank>,
}

/// The evidence for which of two calls is the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// Most of the row's ranks made it.
    ByMajority,
    /// Most of those ranks made it of whom something was recorded; the others may be of another
    /// mind.
    ByMajorityOfRecorded,
    /// As many made the one as the other, and all calls of that line before were as the one.
    ByHistory,
    /// Of whom something was recorded some made the one and some the other, too few to tell; all calls
    /// of that line before were as the one.
    ByHistoryOfRecorded,
    /// As many made the one as the other, or may have, and in all rounds before the one came next.
    ByOrder,
    /// As many made the one as the other, and ranks of other groups go on as some of them.
    Elsewhere {
        /// One of those.
        model: GlobalRank,
        /// False if ranks of whom nothing was recorded may go another way.
        sure: bool,
    },
}

impl Decided {
    /// The reason that a rank's call differs, as sure as this can make it: of as many ranks on
    /// either side, or of a majority that missing dumps could undo, nobody is wrong for certain.
    pub(crate) fn doubted(self, why: Reason) -> Reason {
        why.at_most(self.at_most(Alternatives::None))
    }

    /// The greatest certainty of a finding, given its open alternatives.
    pub(crate) fn at_most(self, alternatives: Alternatives) -> Alternatives {
        if self.is_told() { alternatives } else { alternatives.max(Alternatives::LessLikely) }
    }

    /// True if most ranks tell it, of this group or of others.
    fn is_told(self) -> bool {
        matches!(self, Decided::ByMajority | Decided::Elsewhere { sure: true, .. })
    }
}

/// Ranks that made the same call.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// Ascending.
    pub(crate) ranks: Vec<GlobalRank>,
    /// The difference of their call from the majority's (from the first side's in a tie).
    pub(crate) difference: Difference,
}

/// The first mismatch of every group, by group, and behind each those in which other ranks leave the
/// majority later.
pub(crate) fn first_mismatches(job: &Job<'_>) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = Vec::new();
    let mut done: Option<GroupId> = None;
    // Looking elsewhere takes as long as reading many groups.
    let mut looks = LOOKS;
    for (at, row) in job.rows.iter().enumerate() {
        // Later mismatches of a group follow from its first.
        if done == Some(row.group) {
            continue;
        }
        if let Some(mismatch) = mismatch(job, at, row, &mut looks) {
            done = Some(row.group);
            found.extend(with_later(job, mismatch));
        }
    }
    found
}

/// A mismatch, and those behind it in which ranks differ that did not before: their calls are the
/// program's own as long as they were the majority's.
fn with_later(job: &Job<'_>, mut first: Mismatch) -> Vec<Mismatch> {
    let mut agree = first.majority.clone();
    let mut found = Vec::new();
    let group = job.rows.get(first.row).map(|row| row.group);
    let rows = job.rows.iter().enumerate().skip(first.row + 1).take(WINDOW);
    for (at, row) in rows.take_while(|(_, row)| Some(row.group) == group) {
        let made = row.made.iter().filter(|made| agree.binary_search(&made.rank).is_ok());
        let mut sides: BTreeMap<CallSignature<'_>, Vec<GlobalRank>> = BTreeMap::new();
        for made in made {
            sides.entry(CallSignature::of(&made.record.call)).or_default().push(made.rank);
        }
        let Some((usual, most)) = sides.iter().max_by_key(|(_, ranks)| ranks.len()) else { break };
        let (usual, most) = (*usual, most.clone());
        let all: usize = sides.values().map(Vec::len).sum();
        let others: Vec<Side> = sides
            .into_iter()
            .filter_map(|(signature, ranks)| {
                Some(Side { difference: usual.difference(&signature)?, ranks })
            })
            .collect();
        if others.is_empty() {
            continue;
        }
        // Two against one at the least, where the row is one that must agree.
        if most.len() < 2 || most.len() * 3 < all * 2 || !row.open() {
            break;
        }
        agree.retain(|rank| others.iter().all(|side| !side.ranks.contains(rank)));
        let decided = Decided::ByMajority;
        found.push(Mismatch { row: at, majority: most, sides: others, decided, model: None });
    }
    // The rank that got furthest shows most of the calls that follow.
    let far = |rank: &GlobalRank| (group.and_then(|it| job.last_number(it, *rank)), Reverse(*rank));
    first.model = agree.iter().copied().max_by_key(far);
    for later in &mut found {
        later.model = first.model;
        later.majority.retain(|rank| agree.contains(rank));
    }
    found.retain(|later| !later.majority.is_empty());
    found.insert(0, first);
    found
}

fn mismatch(job: &Job<'_>, at: usize, row: &Row<'_>, looks: &mut u32) -> Option<Mismatch> {
    let mut signatures = row.made.iter().map(|made| CallSignature::of(&made.record.call));
    let first = signatures.next()?;
    if signatures.all(|signature| first.difference(&signature).is_none()) {
        return None;
    }
    // Uneven parts of a gather may be meant; they only count where somebody is stuck. Another call
    // is wrong even where the backend lets both pass, as gloo does; and so is another root, which a
    // rank that sends its part may not notice.
    let strict = |op: &str| matches!(op, "all_reduce" | "broadcast" | "reduce" | "scatter");
    let same_op = row.made.iter().all(|made| made.record.call.op == first.op);
    let other_root = |made: &Made<'_>| matches!((made.record.call.root, first.root), (Some(a), Some(b)) if a != b);
    let same_root = !row.made.iter().any(other_root);
    if !row.open() && same_op && same_root && !strict(first.op) {
        return None;
    }
    let mut sides: BTreeMap<CallSignature<'_>, Vec<GlobalRank>> = BTreeMap::new();
    for made in &row.made {
        sides.entry(CallSignature::of(&made.record.call)).or_default().push(made.rank);
    }
    let most = sides.values().map(Vec::len).max()?;
    let mut leaders = sides.iter().filter(|(_, ranks)| ranks.len() == most);
    let mut leader = leaders.next().map(|(signature, ranks)| (*signature, ranks.clone()))?;
    let mut tie = leaders.next().is_some();
    let unseen = unseen(job, row);
    let may_tie = may_tie(&sides, most, unseen);
    let mut usual = sides.iter().filter(|(signature, ranks)| {
        let may_lead = if tie { ranks.len() == most } else { ranks.len() + unseen >= most };
        (tie || may_tie)
            && may_lead
            && is_usual(job, row, signature, ranks)
            && !others_may_be_usual(job, row, &sides, signature, ranks)
    });
    let mut decided = match may_tie {
        true => Decided::ByMajorityOfRecorded,
        false => Decided::ByMajority,
    };
    let next = |from: Place| {
        let open = tie || decided == Decided::ByMajorityOfRecorded;
        let mut sides = sides.iter().filter(|_| open && sides.len() <= SIDES);
        let (signature, ranks) = sides.find(|(_, ranks)| comes_next(job, row, ranks, from))?;
        Some((*signature, ranks.clone()))
    };
    if let Some((signature, ranks)) = next(Place::Before) {
        // The calls had parted long before they differ.
        leader = (signature, ranks);
        tie = false;
        decided = Decided::ByOrder;
    } else if let (Some((signature, ranks)), None) = (usual.next(), usual.next()) {
        leader = (*signature, ranks.clone());
        let tied = std::mem::take(&mut tie);
        decided = if tied { Decided::ByHistory } else { Decided::ByHistoryOfRecorded };
        // Ranks of other groups that go another way say more than what came before.
        if job.log.plan.is_none()
            && tied
            && spend(looks)
            && let Some((signature, ranks, odd)) = elsewhere(job, row, &sides)
            && signature != leader.0
        {
            leader = (signature, ranks);
            decided = Decided::Elsewhere { model: odd.model, sure: false };
        }
    } else if let Some((signature, ranks)) =
        next(Place::Here).filter(|(signature, _)| tie || *signature != leader.0)
    {
        // A majority that missing dumps could undo is none against what always came next.
        leader = (signature, ranks);
        tie = false;
        decided = Decided::ByOrder;
    } else if tie
        && spend(looks)
        && let Some((signature, ranks, odd)) = elsewhere(job, row, &sides)
    {
        leader = (signature, ranks);
        tie = false;
        decided = Decided::Elsewhere { model: odd.model, sure: odd.sure };
    }
    let sides = sides.into_iter().filter(|(signature, _)| tie || *signature != leader.0);
    let mut sides: Vec<Side> = sides
        .map(|(signature, ranks)| Side {
            difference: leader.0.difference(&signature).unwrap_or(Difference::Op),
            ranks,
        })
        .collect();
    if tie && let Some(other) = sides.iter().map(|side| side.difference).next_back() {
        // The leader differs from itself in nothing: it stands on a side like the others.
        sides.iter_mut().for_each(|side| side.difference = other);
    }
    sides.sort_by(|a, b| a.ranks.cmp(&b.ranks));
    let majority = if tie { Vec::new() } else { leader.1 };
    Some(Mismatch { row: at, majority, sides, decided, model: None })
}

/// The members whose calls are not known, for want of a dump or since the ring has dropped them.
fn unseen(job: &Job<'_>, row: &Row<'_>) -> usize {
    let members = job.group(row.group).map(|group| group.ranks()).unwrap_or_default();
    let unknown = |rank: &&GlobalRank| {
        job.rank(**rank).is_none()
            || (row.of(**rank).is_none() && job.has_made(row.group, **rank, row.seq))
    };
    members.iter().filter(unknown).count()
}

/// True if so many whose calls are not known could make another side as large as the largest.
fn may_tie(
    sides: &BTreeMap<CallSignature<'_>, Vec<GlobalRank>>,
    most: usize,
    unseen: usize,
) -> bool {
    let mut sizes: Vec<usize> = sides.values().map(Vec::len).collect();
    sizes.sort_unstable();
    let next = sizes.iter().rev().nth(1);
    unseen > 0 && next.is_some_and(|next| next + unseen >= most)
}

/// True if there was one left to spend.
fn spend(looks: &mut u32) -> bool {
    let left = looks.checked_sub(1);
    *looks = left.unwrap_or(0);
    left.is_some()
}

/// The side of a tie whose ranks go through the program as most ranks of the job do, if all others
/// go another way; and what tells it.
fn elsewhere<'a>(
    job: &Job<'a>,
    row: &Row<'a>,
    sides: &BTreeMap<CallSignature<'a>, Vec<GlobalRank>>,
) -> Option<(CallSignature<'a>, Vec<GlobalRank>, Odd)> {
    let among: Vec<GlobalRank> = row.made.iter().map(|made| made.rank).collect();
    let odd = match job.log.plan.is_some() {
        true => {
            let astray = astray(job, row.group)?;
            Odd { ranks: astray.ranks, model: astray.model, sure: true }
        }
        false => odd_ones(job, &among)?,
    };
    let is_odd = |rank: &GlobalRank| odd.ranks.binary_search(rank).is_ok();
    let mut usual = sides.iter().filter(|(_, ranks)| !ranks.iter().any(is_odd));
    let (signature, ranks) = usual.next()?;
    let alone = usual.next().is_none() && odd.ranks.len() + ranks.len() == among.len();
    alone.then(|| (*signature, ranks.clone(), odd.clone()))
}

/// The place at which calls are held against those that came next in the rounds before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the row in which they differ.
    Here,
    /// In an earlier one, in which they are alike and come from different lines.
    Before,
}

/// True if what these ranks called has come next in every round before, and what the others called
/// has been made before as well: they left out what comes between, or made it too early. (A call that
/// nobody has made before may be one behind a loop, which either side has made too often.)
fn comes_next(job: &Job<'_>, row: &Row<'_>, ranks: &[GlobalRank], from: Place) -> bool {
    const ROUNDS: usize = 2;
    if job.log.plan.is_some() {
        return false;
    }
    let rows = job.rows_of(row.group);
    let to = rows.partition_point(|before| before.seq < row.seq);
    let mut before = rows.get(to.saturating_sub(WINDOW)..to).unwrap_or_default();
    // From there on, calls that only seem to be the same shift the ranks against each other.
    let together = |row: &Row<'_>| {
        let mut stacks = row.made.iter().map(|made| &made.record.call.stack);
        let first = stacks.next();
        first.is_some_and(|first| stacks.all(|stack| stack == first))
    };
    let mut here = row;
    match (before.iter().position(|row| !together(row)), from) {
        (None, Place::Here) => {}
        (Some(at), Place::Before) => {
            let Some(parting) = before.get(at) else { return false };
            (here, before) = (parting, before.get(..at).unwrap_or_default());
        }
        _ => return false,
    }
    let same = |a: &CallRecord, b: &CallRecord| alike(a, b) && a.call.stack == b.call.stack;
    fn made<'a>(row: &Row<'a>) -> Option<&'a CallRecord> {
        row.made.first().map(|made| made.record)
    }
    let Some(own) = ranks.first().and_then(|rank| here.of(*rank)) else { return false };
    let Some(last) = before.last().and_then(|row| row.made.first()) else { return false };
    let next = before.windows(2).filter_map(|pair| match pair {
        [a, b] if made(a).is_some_and(|a| same(a, last.record)) => made(b),
        _ => None,
    });
    let next: Vec<&CallRecord> = next.collect();
    let (with, others): (Vec<&Made<'_>>, Vec<&Made<'_>>) =
        here.made.iter().partition(|made| ranks.binary_search(&made.rank).is_ok());
    next.len() >= ROUNDS
        && next.iter().all(|next| same(next, own.record))
        && with.iter().all(|made| same(made.record, own.record))
        && !others.is_empty()
        && others.iter().map(|made| made.record).all(|other| {
            !same(other, own.record)
                && before.iter().filter_map(made).any(|known| same(known, other))
        })
}

/// True if the calls of another side come from a line of their own that was called from before, or may have
/// been, where its rings have dropped what would tell: they may be as that line's always are.
fn others_may_be_usual(
    job: &Job<'_>,
    row: &Row<'_>,
    sides: &BTreeMap<CallSignature<'_>, Vec<GlobalRank>>,
    signature: &CallSignature<'_>,
    ranks: &[GlobalRank],
) -> bool {
    let stack = |ranks: &[GlobalRank]| Some(&row.of(*ranks.first()?)?.record.call.stack);
    let own = stack(ranks);
    let called_before = |place: &std::sync::Arc<[Frame]>| {
        let before = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
        before.flat_map(|row| &row.made).any(|made| made.record.call.stack == *place)
    };
    let cut = |rank: &GlobalRank| job.rank(*rank).is_some_and(RankLog::is_cut);
    let mut others = sides.iter().filter(|(other, _)| *other != signature);
    others.any(|(_, ranks)| {
        let known = |it| called_before(it) || ranks.iter().any(cut);
        stack(ranks).is_some_and(|it| Some(it) != own && known(it))
    })
}

/// True if every call that was made from this line before, by anybody, had this signature, and there
/// were a few.
fn is_usual(
    job: &Job<'_>,
    row: &Row<'_>,
    signature: &CallSignature<'_>,
    ranks: &[GlobalRank],
) -> bool {
    const FEW: usize = 2;
    let Some(made) = ranks.first().and_then(|rank| row.of(*rank)) else { return false };
    let stack = &made.record.call.stack;
    let before = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let mut rounds = 0;
    for before in before {
        let from_there = before.made.iter().filter(|made| made.record.call.stack == *stack);
        let mut from_there = from_there.map(|made| CallSignature::of(&made.record.call)).peekable();
        rounds += usize::from(from_there.peek().is_some());
        if from_there.any(|other| other != *signature) {
            return false;
        }
    }
    !stack.is_empty() && rounds >= FEW
}

/// More different minorities than this become one finding.
pub(crate) const MAX_SIDES: usize = 8;
