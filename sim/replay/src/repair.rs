//! Repairs that are tried: the plan is changed so that the ranks that a finding blames call as the others do, and
//! simulated.
//!
//! The calls of a blamed rank are aligned with those of a rank that waits for it. What the other made and this one
//! did not is inserted, what it alone made is taken out.

use crate::assumption::Assumption;
use crate::continued::{Outcome, tried};
use crate::rank_programs::{holding, named, named_with_tensor, set_program, share_programs};
use crate::recover::{Recovered, is_stay};
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Action, Call, Op, Plan, PlanError, Program};
use lockstep_core::rank::GlobalRank;
use lockstep_core::watch::{Unwatched, Watch};
use lockstep_core::words::rank_list;
use lockstep_diagnosis::{Change, Finding, Kind, Report, TriedRepair};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// A change that would mend a finding, and what came of trying it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// The change and its verdict.
    pub tried: TriedRepair,
    /// The changed plan.
    pub plan: Plan,
}

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
/// # Errors
/// When it has none that could be tried.
pub fn repair(recovered: &Recovered, report: &Report, at: usize) -> Result<Repair, RepairError> {
    repair_watched(recovered, report, at, &mut Unwatched)
}

/// The same, watched while the changed job is simulated.
///
/// # Errors
/// As [`repair`], and [`RepairError::Stopped`].
pub fn repair_watched(
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
    loop {
        let (verified, mut why, next) = match tried(&mut plan, &mut change.assumed, watch) {
            Outcome::Stopped => return Err(RepairError::Stopped { change: Box::new(change) }),
            Outcome::Completes => (true, completes(&with), None),
            Outcome::Cannot(why) => (false, why, None),
            Outcome::EndsIn(found) => {
                let same = |(_, other): &(usize, &Finding)| {
                    (other.kind, &other.culprits) == (found.kind, &found.culprits)
                };
                let next = others.iter().position(same).map(|of| others.remove(of));
                (false, format!("Changed so, it ends in another finding: {}", found.message), next)
            }
        };
        if let Some((number, other)) = next {
            match change_for(&mut plan, recovered, other) {
                Ok(_) => {
                    with.push(number + 1);
                    continue;
                }
                Err(error) => why = format!("{why} {error}"),
            }
        }
        let tried = TriedRepair { change, verified, why };
        return Ok(Repair { tried, plan });
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
        kind if mended_by_calls(kind) => follow_others(plan, recovered, finding),
        kind => return Err(RepairError::NotOfCalls { kind, fix: finding.fix.clone() }),
    };
    let change = change.filter(|change| !change.is_empty());
    let change = change.filter(|change| !contradicts(finding.kind, change));
    let change = change.ok_or_else(|| RepairError::NoCall { ranks: finding.culprits.clone() })?;
    for rank in (0..plan.world_size).map(GlobalRank) {
        // Who stayed where its recording ends goes on, to whatever others wait for.
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

/// True of kinds whose repair is a change of calls.
pub(crate) fn is_tried(kind: Kind) -> bool {
    kind == Kind::P2pDeadlock || mended_by_calls(kind)
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
fn follow_others(plan: &mut Plan, recovered: &Recovered, finding: &Finding) -> Option<Change> {
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
        let (ops, edits) = followed(plan, (rank, &own), (model, &expected), finding.kind);
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
        let same = removed.iter().position(|other| key(plan, other) == key(plan, op));
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
    // Who is not in the finding's group does not make its calls.
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
    // Of a circle in which all are blamed, the others follow one.
    nearest.or_else(|| usable.first().copied())
}

/// The changes to a rank's program.
#[derive(Default)]
struct Edits {
    inserted: Vec<Op>,
    removed: Vec<Op>,
    /// What the rank comes to behind a call of its own that it no longer makes.
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
    kind: Kind,
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
    // What stands behind where the rank stays is not its own: others wait for it.
    let end = own.ops.iter().position(is_stay).unwrap_or(own.ops.len());
    let mine: Vec<usize> = (0..end).filter(|at| own.ops.get(*at).is_some_and(both)).collect();
    let keys = |op: &&Op| key(plan, op);
    let their_keys: Vec<_> = theirs.iter().map(keys).collect();
    // What the rank waits in at the end and the other is no part of comes behind what it had to do before.
    let tail = own.ops.get(..end).unwrap_or_default().iter().rposition(both).map_or(0, |at| at + 1);
    let mut waits = own.ops.get(tail..end).unwrap_or_default().iter();
    let waits = waits.rposition(|op| !op.action.calls().is_empty());
    let at_end_place = waits.map_or(end, |at| tail + at);
    let own_ops: Vec<&Op> = mine.iter().filter_map(|at| own.ops.get(*at)).collect();
    let own_keys: Vec<_> = own_ops.iter().map(keys).collect();
    let mut edits = Edits::default();
    // What is inserted in front of an operation of the rank, by its index, and what is taken out.
    let mut before: Vec<(usize, Op)> = Vec::new();
    let mut out: Vec<usize> = Vec::new();
    for diff in capture_diff_slices(Algorithm::Myers, &their_keys, &own_keys) {
        let (missing, extra) = match diff {
            DiffOp::Equal { .. } => continue,
            DiffOp::Delete { old_index, old_len, new_index } => {
                (old_index..old_index + old_len, new_index..new_index)
            }
            DiffOp::Insert { old_index, new_index, new_len } => {
                (old_index..old_index, new_index..new_index + new_len)
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                (old_index..old_index + old_len, new_index..new_index + new_len)
            }
        };
        let at_end = extra.end == own_keys.len();
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
            let moved = edits.inserted.iter().any(|inserted| key(plan, inserted) == key(plan, op));
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

/// A program with operations inserted and taken out, whose waits name the operations that they named before.
fn rewritten(own: &Program, before: &[(usize, Op)], out: &[usize]) -> Vec<Op> {
    let mut ops = Vec::with_capacity(own.ops.len() + before.len());
    let mut moved: Vec<Option<u32>> = Vec::with_capacity(own.ops.len());
    let end = own.ops.iter().position(is_stay).unwrap_or(own.ops.len());
    for at in 0..=end {
        ops.extend(before.iter().filter(|(place, _)| *place == at).map(|(_, op)| op.clone()));
        // Where a rank stayed it goes on now.
        let Some(op) = own.ops.get(at).filter(|op| !is_stay(op)) else { continue };
        if out.contains(&at) {
            moved.push(None);
            continue;
        }
        let mut op = op.clone();
        if let Action::Wait { op: of, .. } | Action::Query { op: of, .. } = &mut op.action {
            let Some(place) = moved.get(*of as usize).copied().flatten() else {
                moved.push(None);
                continue;
            };
            *of = place;
        }
        moved.push(Some(ops.len() as u32));
        ops.push(op);
    }
    ops
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

/// A key that is equal for operations that make the same collectives.
fn key(plan: &Plan, op: &Op) -> Vec<(u32, String, u64)> {
    let of_call = |call: &Call| {
        let tensor = call.tensors().into_iter().flatten().next().and_then(|id| plan.tensor(id));
        let dtype = tensor.map_or("", |tensor| tensor.dtype.name());
        let name = match call.collective() {
            Some(collective) => format!("{collective:?} {dtype}"),
            None => call.name().to_owned(),
        };
        let count = match call {
            Call::Collective { count, .. } => *count,
            _ => 0,
        };
        (call.group().0, name, count)
    };
    op.action.calls().iter().map(of_call).collect()
}
