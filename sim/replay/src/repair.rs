//! Repairs that are tried: the plan is changed so that the ranks that a finding blames call as the others do, and
//! simulated.
//!
//! The calls of a blamed rank are aligned with those of a rank that waits for it. What the other made and this one
//! did not is inserted, what it alone made is taken out.

use crate::assumption::Assumption;
use crate::continued::{Outcome, tried};
use crate::given_up::give_up;
use crate::proof::{Repair, Stopped, Unrepaired, prove};
use crate::rank_programs::{
    calls_key, holding, named, named_with_tensor, rewritten, set_program, share_programs,
};
use crate::recover::{Recovered, is_stay};
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Action, Call, Op, Plan, PlanError, Program};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_core::watch::{Unwatched, Watch};
use lockstep_core::words::rank_list;
use lockstep_diagnosis::{Change, Finding, Kind, Report, TriedRepair};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::hash::Hash;
use std::ops::Range;

/// A recording, and the plan that was recovered from it.
pub type Recording<'a> = (&'a Recovered, &'a CallLog);

/// The reason that a finding has no repair that could be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The report has no such finding.
    #[error("There is no finding: nothing is to be mended.")]
    NoFinding,
    /// Other calls would not have prevented it.
    #[error("{} is not mended by other calls: {fix}", kind.title())]
    NotOfCalls {
        /// The finding's kind.
        kind: Kind,
        /// Its fix.
        fix: String,
    },
    /// The recording shows no difference between blamed ranks and others.
    #[error(
        "What is recorded of rank {} and of the others shows no call that could be changed.",
        rank_list(ranks)
    )]
    NoCall {
        /// The blamed ranks.
        ranks: Vec<GlobalRank>,
    },
    /// Its watch ended the trial: whether the job completes with the change is not known.
    #[error("The changed job was not simulated to its end: it was stopped.")]
    Stopped {
        /// The change that was being tried.
        change: Box<Change>,
    },
    /// The changed plan is none.
    #[error("The changed plan cannot be run: {0}")]
    Plan(#[from] PlanError),
}

/// The repair of a report's finding of that index. If other findings of the report are what the changed job then
/// ends in, they are repaired as well.
///
/// A repair is proved if the changed job completes, and the job without the change ends in the finding: else the replay
/// does not depend on the change.
///
/// # Errors
/// When it has none that could be tried.
pub fn repair(recording: Recording<'_>, report: &Report, at: usize) -> Result<Repair, RepairError> {
    repair_watched(recording, report, at, &mut Unwatched)
}

/// The same, watched while the changed job is simulated.
///
/// # Errors
/// As [`repair`], and [`RepairError::Stopped`].
pub fn repair_watched(
    (recovered, log): Recording<'_>,
    report: &Report,
    at: usize,
    watch: &mut dyn Watch,
) -> Result<Repair, RepairError> {
    let mut repair = changed_and_simulated(recovered, report, at, watch)?;
    let finding = report.findings.get(at).ok_or(RepairError::NoFinding)?;
    if repair.completes {
        match Unrepaired::of(recovered, log, watch) {
            Ok(unrepaired) => prove(&mut repair, recovered, (finding, &unrepaired)),
            Err(Stopped) => {
                return Err(RepairError::Stopped { change: Box::new(repair.tried.change) });
            }
        }
    }
    Ok(repair)
}

/// The repair of a finding, as far as the changed job goes: nothing is said of the job without the change.
pub(crate) fn changed_and_simulated(
    recovered: &Recovered,
    report: &Report,
    at: usize,
    watch: &mut dyn Watch,
) -> Result<Repair, RepairError> {
    let finding = report.findings.get(at).ok_or(RepairError::NoFinding)?;
    let mut plan = recovered.plan.clone();
    let mut change = change_for(&mut plan, recovered, finding)?;
    let others = report.findings.iter().enumerate().filter(|(other, _)| *other != at);
    let mut others: Vec<(usize, &Finding)> = others.collect();
    let mut with: Vec<usize> = Vec::new();
    let mut further = 0;
    loop {
        let (verified, mut why, found) = match tried(&mut plan, &mut change.assumed, watch) {
            Outcome::Stopped => return Err(RepairError::Stopped { change: Box::new(change) }),
            Outcome::Completes => (true, completes(&with), None),
            Outcome::Cannot(why) => (false, why, None),
            Outcome::EndsIn(found) => {
                let why = format!("Changed so, it ends in another finding: {}", found.message);
                (false, why, Some(found))
            }
        };
        if let Some(found) = found {
            let same = |(_, other): &(usize, &Finding)| {
                (other.kind, &other.culprits) == (found.kind, &found.culprits)
            };
            if let Some((number, other)) = others.iter().position(same).map(|of| others.remove(of))
            {
                match change_for(&mut plan, recovered, other) {
                    Ok(_) => {
                        with.push(number + 1);
                        continue;
                    }
                    Err(error) => why = format!("{why} {error}"),
                }
            } else if further < FURTHER
                && let Some(more) = change_further(&mut plan, recovered, (finding, &found))
            {
                further += 1;
                add(&mut change, more);
                continue;
            }
        }
        let tried = TriedRepair { change, verified, why };
        return Ok(Repair { tried, plan, completes: verified });
    }
}

/// So many more calls of the same ranks a repair changes: a rank that leaves out a call of one group leaves out what
/// hangs on it in others.
const FURTHER: usize = 16;

/// Changes the calls of the same blamed ranks once more, in the group in which the changed job now ends.
fn change_further(
    plan: &mut Plan,
    recovered: &Recovered,
    (finding, found): (&Finding, &Finding),
) -> Option<Change> {
    let blamed = |rank: &GlobalRank| finding.culprits.contains(rank);
    let is_theirs = found.culprits.iter().any(blamed);
    if !is_theirs || !goes_on_behind(finding.kind) || !mended_by_calls(found.kind) {
        return None;
    }
    let ranks = found.culprits.iter().copied().filter(blamed).collect();
    let of_it = Finding { culprits: ranks, kind: finding.kind, ..found.clone() };
    let before = plan.clone();
    let change = change_for(plan, recovered, &of_it).ok();
    if change.is_none() || *plan == before {
        *plan = before;
        return None;
    }
    change
}

/// Adds a later change of the same repair to an earlier one.
fn add(change: &mut Change, more: Change) {
    change.ranks.extend(more.ranks);
    change.ranks.sort_unstable();
    change.ranks.dedup();
    let lists = [
        (&mut change.inserted, more.inserted),
        (&mut change.removed, more.removed),
        (&mut change.moved, more.moved),
        (&mut change.batched, more.batched),
        (&mut change.assumed, more.assumed),
    ];
    for (known, more) in lists {
        for name in more {
            if !known.contains(&name) {
                known.push(name);
            }
        }
    }
}

/// The sentence for a job that completes, with the repairs of the findings of these numbers.
fn completes(with: &[usize]) -> String {
    let with: Vec<String> = with.iter().map(|number| format!("finding {number}")).collect();
    let with = match with.is_empty() {
        true => String::new(),
        false => format!(" and with what mends {}", with.join(" and ")),
    };
    format!("Simulated with it{with}, all recorded calls complete.")
}

/// Changes a plan so that a finding is mended.
fn change_for(
    plan: &mut Plan,
    recovered: &Recovered,
    finding: &Finding,
) -> Result<Change, RepairError> {
    let change = match finding.kind {
        Kind::P2pDeadlock => batch(plan, &finding.culprits),
        Kind::RankMissing | Kind::RankDied => give_up(plan, &finding.culprits),
        kind if mended_by_calls(kind) => {
            let before = plan.clone();
            let usable = |change: &Change| !change.is_empty() && !contradicts(kind, change);
            revive(plan, recovered, finding);
            follow_others(plan, recovered, finding, Alignment::Shortest).filter(usable).or_else(
                || {
                    // The shortest change is of the other direction: the same calls come later as well.
                    *plan = before;
                    revive(plan, recovered, finding);
                    follow_others(plan, recovered, finding, Alignment::OfTheFinding).filter(usable)
                },
            )
        }
        kind => return Err(RepairError::NotOfCalls { kind, fix: finding.fix.clone() }),
    };
    let change = change.filter(|change| !change.is_empty());
    let change = change.ok_or_else(|| RepairError::NoCall { ranks: finding.culprits.clone() })?;
    for rank in (0..plan.world_size).map(GlobalRank) {
        // A rank that stayed where its recording ends goes on, to the calls that others wait for.
        let stays = plan.program(rank).and_then(|own| own.ops.iter().position(is_stay));
        if let Some((at, mut own)) = stays.zip(plan.program(rank).cloned()) {
            own.ops.truncate(at);
            set_program(plan, rank, own);
        }
    }
    share_programs(plan);
    plan.check()?;
    Ok(change)
}

/// Takes the end out of the programs of blamed ranks that left no dump: a rank that never came to a call was there.
fn revive(plan: &mut Plan, recovered: &Recovered, finding: &Finding) {
    let ended = recovered.assumed.iter().flat_map(|assumption| match assumption {
        Assumption::Ended { ranks } => ranks.as_slice(),
        _ => &[],
    });
    for rank in ended.filter(|rank| finding.culprits.contains(rank)) {
        let Some(mut own) = plan.program(*rank).cloned() else { continue };
        own.ops.retain(|op| op.action.ends_by().is_none());
        set_program(plan, *rank, own);
    }
}

/// True of kinds that [`repair()`] has a change for.
pub fn can_be_repaired(kind: Kind) -> bool {
    mended_by_calls(kind) || matches!(kind, Kind::P2pDeadlock | Kind::RankMissing | Kind::RankDied)
}

/// True of kinds that other calls of the blamed ranks would have prevented.
fn mended_by_calls(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::OpSkipped
            | Kind::OpExtra
            | Kind::OpsSwapped
            | Kind::LoopShorter
            | Kind::CollectiveMismatch
            | Kind::SizeMismatch
            | Kind::DtypeMismatch
            | Kind::ReduceOpMismatch
            | Kind::RootMismatch
            | Kind::RankNeverJoined
            | Kind::GroupDeadlock
            | Kind::DdpUnevenInputs
            | Kind::DdpUnusedParameters
    )
}

/// True of kinds in which a rank that leaves calls out goes on with what the others come to later.
fn goes_on_behind(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::OpSkipped
            | Kind::OpsSwapped
            | Kind::LoopShorter
            | Kind::RankNeverJoined
            | Kind::DdpUnevenInputs
            | Kind::DdpUnusedParameters
    )
}

/// True of a change whose direction is not that of its finding: the recorded calls do not show what it says.
fn contradicts(kind: Kind, change: &Change) -> bool {
    match kind {
        Kind::OpSkipped | Kind::LoopShorter | Kind::RankNeverJoined => {
            change.inserted.is_empty() && change.moved.is_empty()
        }
        Kind::OpExtra => change.removed.is_empty() && change.moved.is_empty(),
        _ => false,
    }
}

/// Makes the blamed ranks, and those that were assumed to call as they do, call as a rank does that waits for them.
fn follow_others(
    plan: &mut Plan,
    recovered: &Recovered,
    finding: &Finding,
    alignment: Alignment,
) -> Option<Change> {
    let model = model_of(plan, finding)?;
    let mut expected = plan.program(model)?.clone();
    expected.ops.truncate(expected.ops.iter().position(is_stay).unwrap_or(expected.ops.len()));
    let mut change = Change::default();
    let alike = recovered.assumed.iter().filter_map(|assumption| match assumption {
        Assumption::LikeAnother { ranks, like } if finding.culprits.contains(like) => Some(ranks),
        _ => None,
    });
    let mut ranks: Vec<GlobalRank> =
        alike.flatten().chain(&finding.culprits).copied().filter(|rank| *rank != model).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        let own = plan.program(rank)?.clone();
        let how = (finding.kind, alignment);
        let (ops, edits) = followed(plan, (rank, &own), (model, &expected), how);
        if !edits.is_empty() {
            change.ranks.push(rank);
            tell(plan, edits, &mut change);
        }
        set_program(plan, rank, Program { ops });
    }
    for calls in [&mut change.inserted, &mut change.removed, &mut change.moved, &mut change.assumed]
    {
        calls.dedup();
    }
    Some(change)
}

/// Adds a rank's edits to the words of a change.
fn tell(plan: &Plan, edits: Edits, change: &mut Change) {
    let Edits { mut inserted, mut removed, behind } = edits;
    let mut moved = Vec::new();
    inserted.retain(|op| {
        let same = removed.iter().position(|other| calls_key(plan, other) == calls_key(plan, op));
        moved.extend(same.map(|at| removed.remove(at)));
        same.is_none()
    });
    let names = |ops: &[Op]| -> Vec<String> { ops.iter().map(|op| named(plan, op)).collect() };
    let (brief_in, brief_out) = (names(&inserted), names(&removed));
    // Calls that differ in their tensors only need these to be told apart.
    let alike = brief_in.iter().any(|name| brief_out.contains(name));
    let told = |ops: &[Op]| match alike {
        true => ops.iter().map(|op| named_with_tensor(plan, op)).collect(),
        false => names(ops),
    };
    change.inserted.extend(told(&inserted));
    change.removed.extend(told(&removed));
    change.moved.extend(names(&moved));
    change.assumed.extend(names(&behind));
}

/// The rank that the blamed ranks are changed to follow: of those that the finding shows beside them, that wait, or
/// that are of the group, the one that shares most groups with a blamed one, and of these the one with most calls.
fn model_of(plan: &Plan, finding: &Finding) -> Option<GlobalRank> {
    let beside = finding.ladder.as_ref().and_then(|ladder| ladder.sides.first());
    let beside = beside.and_then(|side| side.ranks.first()).copied();
    let members = finding.group.iter().flat_map(|group| group.ranks.iter().copied());
    let candidates = beside.into_iter().chain(finding.victims.iter().copied()).chain(members);
    let calls = |rank: &GlobalRank| {
        plan.program(*rank)
            .is_some_and(|own| own.ops.iter().any(|op| !op.action.calls().is_empty()))
    };
    let mut usable: Vec<GlobalRank> = candidates.filter(calls).collect();
    // A rank outside the finding's group does not make its calls.
    if let Some(group) = finding.group.as_ref().filter(|group| !group.ranks.is_empty()) {
        let free =
            |rank: &GlobalRank| group.ranks.contains(rank) && !finding.culprits.contains(rank);
        if usable.iter().any(free) {
            usable.retain(free);
        }
    }
    let blamed = finding.culprits.first().copied();
    let likeness = |rank: &GlobalRank| {
        let both = |group: &&ProcessGroup| {
            group.group_rank(*rank).is_some()
                && blamed.is_some_and(|blamed| group.group_rank(blamed).is_some())
        };
        let calls =
            |own: &Program| own.ops.iter().filter(|op| !op.action.calls().is_empty()).count();
        (plan.groups.iter().filter(both).count(), plan.program(*rank).map_or(0, calls))
    };
    let free = usable.iter().copied().filter(|rank| !finding.culprits.contains(rank));
    // The last of equals is taken, so from the back.
    let free: Vec<GlobalRank> = free.collect();
    let nearest = free.into_iter().rev().max_by_key(likeness);
    // Of a circle in which all are blamed, the others follow one; where one waits for the other, the one that waits.
    nearest.or_else(|| match finding.kind {
        Kind::RankNeverJoined => usable.iter().rev().copied().max_by_key(|rank| {
            let own = plan.program(*rank)?;
            let end = own.ops.iter().position(is_stay).unwrap_or(own.ops.len());
            Some(own.ops.iter().take(end).filter(|op| !op.action.calls().is_empty()).count())
        }),
        _ => usable.first().copied(),
    })
}

/// The changes to a rank's program.
#[derive(Default)]
struct Edits {
    inserted: Vec<Op>,
    removed: Vec<Op>,
    /// The operations that the rank reaches once it no longer makes a call of its own.
    behind: Vec<Op>,
}

impl Edits {
    fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.removed.is_empty() && self.behind.is_empty()
    }
}

/// A rank's operations as they would be had it called as `model` did.
fn followed(
    plan: &Plan,
    (rank, own): (GlobalRank, &Program),
    (model, expected): (GlobalRank, &Program),
    (kind, alignment): (Kind, Alignment),
) -> (Vec<Op>, Edits) {
    let both = |op: &Op| {
        let calls = op.action.calls();
        !calls.is_empty()
            && calls.iter().all(|call| {
                let group = plan.group(call.group());
                !call.is_p2p()
                    && group.is_some_and(|group| {
                        group.group_rank(rank).is_some() && group.group_rank(model).is_some()
                    })
            })
    };
    let theirs: Vec<&Op> = expected.ops.iter().filter(|op| both(op)).collect();
    // Operations after the rank's last recorded one were assumed, because others wait for them.
    let end = own.ops.iter().position(is_stay).unwrap_or(own.ops.len());
    let mine: Vec<usize> = (0..end).filter(|at| own.ops.get(*at).is_some_and(both)).collect();
    // What the rank waits in at the end and the other is no part of comes behind what it had to do before.
    let tail = own.ops.get(..end).unwrap_or_default().iter().rposition(both).map_or(0, |at| at + 1);
    let mut waits = own.ops.get(tail..end).unwrap_or_default().iter();
    let waits = waits.rposition(|op| !op.action.calls().is_empty());
    let at_end_place = waits.map_or(end, |at| tail + at);
    let own_ops: Vec<&Op> = mine.iter().filter_map(|at| own.ops.get(*at)).collect();
    let mut edits = Edits::default();
    // The operations inserted before one of the rank's, by its index, and those taken out.
    let mut before: Vec<(usize, Op)> = Vec::new();
    let mut out: Vec<usize> = Vec::new();
    for (missing, extra) in differences(plan, (&theirs, &own_ops), (kind, alignment)) {
        let at_end = extra.end == own_ops.len();
        let place = mine.get(extra.start).copied().unwrap_or(at_end_place);
        for op in theirs.get(missing).unwrap_or_default() {
            let op = holding(op);
            match at_end && kind == Kind::OpExtra {
                true => edits.behind.push(op.clone()),
                false => edits.inserted.push(op.clone()),
            }
            before.push((place, op));
        }
        for at in extra {
            let Some((index, op)) = mine.get(at).copied().zip(own_ops.get(at)) else { continue };
            let moved = edits
                .inserted
                .iter()
                .any(|inserted| calls_key(plan, inserted) == calls_key(plan, op));
            if at_end && goes_on_behind(kind) && !moved {
                continue;
            }
            out.push(index);
            edits.removed.push((*op).clone());
        }
    }
    if edits.is_empty() {
        return (own.ops.clone(), edits);
    }
    (rewritten(own, &before, &out), edits)
}

/// A way to lay two ranks' calls beside each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alignment {
    /// The one with the fewest differences.
    Shortest,
    /// The one whose first difference is what the finding says: a call left out, or one too many.
    OfTheFinding,
}

/// A stretch of one rank's calls in place of a stretch of another's, each by its indices.
type Difference = (Range<usize>, Range<usize>);

/// The stretches in which a rank's calls differ from the expected ones: what is missing, and what is extra.
fn differences(
    plan: &Plan,
    (expected, own): (&[&Op], &[&Op]),
    (kind, alignment): (Kind, Alignment),
) -> Vec<Difference> {
    let keys = |ops: &[&Op]| ops.iter().map(|op| calls_key(plan, op)).collect::<Vec<_>>();
    let (their_keys, own_keys) = (keys(expected), keys(own));
    if alignment == Alignment::OfTheFinding {
        return differences_of_finding(&their_keys, &own_keys, kind);
    }
    let shortest = unequal_stretches(&their_keys, &own_keys);
    // Calls of several lines can be alike: where lines and their callers make no further difference, they say which
    // one it is.
    let with_lines =
        |ops: &[&Op]| ops.iter().map(|op| (calls_key(plan, op), op.at)).collect::<Vec<_>>();
    let with_callers = |ops: &[&Op]| {
        let key = |op: &&Op| (calls_key(plan, op), op.at, op.called_from);
        ops.iter().map(key).collect::<Vec<_>>()
    };
    let size = |found: &[Difference]| -> usize {
        found.iter().map(|(missing, extra)| missing.len() + extra.len()).sum()
    };
    let by_callers = unequal_stretches(&with_callers(expected), &with_callers(own));
    if size(&by_callers) == size(&shortest) {
        return by_callers;
    }
    let by_line = unequal_stretches(&with_lines(expected), &with_lines(own));
    if size(&by_line) == size(&shortest) { by_line } else { shortest }
}

/// The same, where the first difference is a call that is left out or, of an extra call, one too many.
fn differences_of_finding<T: PartialEq + Ord + Hash>(
    theirs: &[T],
    own: &[T],
    kind: Kind,
) -> Vec<Difference> {
    let first = theirs.iter().zip(own).take_while(|(one, other)| one == other).count();
    let is_extra = kind == Kind::OpExtra;
    let (missing, extra) = match is_extra {
        true => (0, usize::from(first < own.len())),
        false => {
            let left = theirs.get(first..).unwrap_or_default();
            let again = left.iter().position(|key| Some(key) == own.get(first));
            (again.unwrap_or(left.len()), 0)
        }
    };
    let (their_rest, own_rest) = (first + missing, first + extra);
    let rest = unequal_stretches(
        theirs.get(their_rest..).unwrap_or_default(),
        own.get(own_rest..).unwrap_or_default(),
    );
    let shifted = rest.into_iter().map(|(missing, extra)| {
        let moved = |range: Range<usize>, by: usize| range.start + by..range.end + by;
        (moved(missing, their_rest), moved(extra, own_rest))
    });
    let forced = (first..their_rest, first..own_rest);
    std::iter::once(forced).chain(shifted).collect()
}

/// The stretches in which two sequences differ, by the shortest edit.
fn unequal_stretches<T: PartialEq + Ord + Hash>(theirs: &[T], own: &[T]) -> Vec<Difference> {
    let unequal = |diff: &DiffOp| !matches!(diff, DiffOp::Equal { .. });
    let found = capture_diff_slices(Algorithm::Myers, theirs, own);
    found.into_iter().filter(unequal).map(|diff| (diff.old_range(), diff.new_range())).collect()
}

/// Puts the sends and receives that stand side by side at the end of the ranks' programs into one batch each.
fn batch(plan: &mut Plan, ranks: &[GlobalRank]) -> Option<Change> {
    let mut change = Change::default();
    for rank in ranks.iter().copied() {
        let own = plan.program(rank)?.clone();
        let is_p2p = |op: &Op| {
            let calls = op.action.calls();
            !calls.is_empty() && calls.iter().all(Call::is_p2p)
        };
        let passes = |op: &Op| matches!(op.action, Action::Wait { .. } | Action::Compute { .. });
        let last = own.ops.iter().rposition(is_p2p)?;
        let run = own.ops.get(..=last)?.iter().rev().take_while(|op| is_p2p(op) || passes(op));
        let from = last + 1 - run.count();
        let together: Vec<Call> = own
            .ops
            .get(from..=last)?
            .iter()
            .flat_map(|op| op.action.calls().iter().cloned())
            .collect();
        if together.len() < 2 {
            continue;
        }
        change.ranks.push(rank);
        let first = own.ops.get(from..=last)?.iter().find(|op| is_p2p(op))?.clone();
        for op in own.ops.get(from..=last)?.iter().filter(|op| is_p2p(op)) {
            let name = named(plan, op);
            if !change.batched.contains(&name) {
                change.batched.push(name);
            }
        }
        let mut ops: Vec<Op> = own.ops.get(..from)?.to_vec();
        let action = Action::Coalesced { calls: together, async_op: false };
        ops.push(Op { action, ..first });
        // Later waits are for these calls, which hold by themselves now.
        ops.extend(
            own.ops
                .get(last + 1..)?
                .iter()
                .filter(|op| !matches!(op.action, Action::Wait { .. }))
                .cloned(),
        );
        set_program(plan, rank, Program { ops });
    }
    Some(change)
}
