//! Repairs that are tried: the plan is changed so that the ranks that a finding blames call as the others do, and
//! simulated.
//!
//! The calls of a blamed rank are aligned with those of a rank that waits for it. What the other made and this one
//! did not is inserted, what it alone made is taken out. Where ranks then wait for others whose recordings are over,
//! these are assumed to come to the call as well.

use crate::rank_programs::set_program;
use crate::recover::{Recovered, is_stay};
use lockstep_core::plan::{Action, Call, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome, RankState};
use lockstep_core::words::rank_list;
use lockstep_diagnosis::{Finding, Kind, Report, diagnose, who_waits};
use lockstep_sim::{SimConfig, simulate};
use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// So many calls of a change are named.
const NAMED: usize = 4;

/// So many times the recordings of ranks are continued by calls that others wait for.
const CONTINUED: usize = 64;

/// The change that a repair makes to a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The ranks whose programs are changed, ascending.
    pub ranks: Vec<GlobalRank>,
    /// Calls that they make now, in order: `all_reduce of dp (train.py:88)`.
    pub inserted: Vec<String>,
    /// Calls that they no longer make, in order.
    pub removed: Vec<String>,
    /// Calls that are made together now.
    pub batched: Vec<String>,
    /// Calls that other ranks make now behind the change, which the recording does not show of them.
    pub assumed: Vec<String>,
}

impl Change {
    /// It as a sentence.
    pub fn words(&self) -> String {
        let noun = if self.ranks.len() == 1 { "Rank" } else { "Ranks" };
        let s = if self.ranks.len() == 1 { "s" } else { "" };
        let list = |calls: &[String]| {
            let named = calls.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            match calls.len().checked_sub(NAMED) {
                Some(more) if more > 0 => format!("{named} and {more} more"),
                _ => named,
            }
        };
        let mut parts = Vec::new();
        if !self.inserted.is_empty() {
            parts.push(format!("make{s} {}", list(&self.inserted)));
        }
        if !self.removed.is_empty() {
            parts.push(format!("leave{s} out {}", list(&self.removed)));
        }
        if !self.batched.is_empty() {
            parts.push(format!("make{s} {} together", list(&self.batched)));
        }
        let behind = match self.assumed.is_empty() {
            true => String::new(),
            false => format!(" The others are assumed to go on with {}.", list(&self.assumed)),
        };
        format!("{noun} {} {}.{behind}", rank_list(&self.ranks), parts.join(" and "))
    }

    fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.removed.is_empty() && self.batched.is_empty()
    }
}

/// A change that would mend a finding, and what came of trying it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// What is changed.
    pub change: Change,
    /// The changed plan.
    pub plan: Plan,
    /// True if the changed plan, simulated, completes without a finding.
    pub verified: bool,
    /// What the simulation came to, in a sentence.
    pub why: String,
}

/// The repair of the first finding of a report that a change of calls can mend; `Err` says why there is none.
///
/// # Errors
/// A sentence for people: there is no finding, or none of them is one of calls.
pub fn repair(recovered: &Recovered, report: &Report) -> Result<Repair, String> {
    let Some(finding) = report.findings.first() else {
        return Err("There is no finding: nothing is to be mended.".to_owned());
    };
    let mut plan = recovered.plan.clone();
    let change = match finding.kind {
        Kind::P2pDeadlock => batch(&mut plan, &finding.culprits),
        kind if mended_by_calls(kind) => follow_others(&mut plan, finding),
        kind => {
            return Err(format!("{} is not mended by other calls: {}", kind.title(), finding.fix));
        }
    };
    let Some(change) = change.filter(|change| !change.is_empty()) else {
        return Err(format!(
            "What is recorded of rank {} and of the others shows no call that could be changed.",
            rank_list(&finding.culprits)
        ));
    };
    let mut change = change;
    for rank in (0..plan.world_size).map(GlobalRank) {
        // Who stayed where its recording ends goes on, to whatever others wait for.
        let stays = plan.program(rank).and_then(|own| own.ops.iter().position(is_stay));
        if let Some((at, mut own)) = stays.zip(plan.program(rank).cloned()) {
            own.ops.truncate(at);
            set_program(&mut plan, rank, own);
        }
    }
    let mut plan = shared(plan);
    if let Err(error) = plan.check() {
        return Err(format!("The changed plan cannot be run: {error}"));
    }
    let (verified, why) = tried(&mut plan, &mut change);
    Ok(Repair { change, plan, verified, why })
}

/// Simulates a changed plan. Where ranks wait for others whose recordings are over, these are assumed to come to the
/// calls as well: the recording ended at different calls of different ranks.
fn tried(plan: &mut Plan, change: &mut Change) -> (bool, String) {
    let config = SimConfig { record_messages: false, ..SimConfig::default() };
    for _ in 0..CONTINUED {
        let trace = match simulate(plan, &config) {
            Ok(trace) => trace,
            Err(error) => {
                return (false, format!("The changed plan cannot be simulated: {error}."));
            }
        };
        if trace.end.as_ref().is_some_and(|end| end.outcome == Outcome::Completed) {
            return (true, "Simulated with it, all recorded calls complete.".to_owned());
        }
        let log = CallLog::of(&trace);
        let added = continued(plan, &log);
        if added.is_empty() {
            let found = diagnose(&log);
            let why = found.findings.first().map_or_else(
                || "it does not complete.".to_owned(),
                |finding| format!("it ends in another finding: {}", finding.message),
            );
            return (false, format!("Changed so, {why}"));
        }
        for name in added {
            if !change.assumed.contains(&name) {
                change.assumed.push(name);
            }
        }
        *plan = shared(plan.clone());
    }
    (false, format!("Changed so, it does not complete after {CONTINUED} continuations."))
}

/// Adds to the programs of ranks that have finished the calls in which others wait for them; their names.
fn continued(plan: &mut Plan, log: &CallLog) -> Vec<String> {
    let mut added = Vec::new();
    let mut given: Vec<GlobalRank> = Vec::new();
    for wait in who_waits(log) {
        let waiting = log.ranks.get(wait.rank.index()).and_then(Option::as_ref);
        let record = waiting.and_then(|own| own.calls.iter().find(|it| it.work == wait.work));
        let Some(op) = record.and_then(|record| record.plan_op) else { continue };
        let Some(op) = plan.program(wait.rank).and_then(|own| own.ops.get(op as usize)) else {
            continue;
        };
        if op.action.calls().iter().any(Call::is_p2p) {
            continue;
        }
        let op = holding(op);
        for rank in wait.waits_for {
            let over = log.ranks.get(rank.index()).and_then(Option::as_ref);
            let over = over.is_some_and(|own| own.state == RankState::Finished);
            // One call at a time: what it unblocks may come first.
            if !over || given.contains(&rank) {
                continue;
            }
            let Some(mut own) = plan.program(rank).cloned() else { continue };
            own.ops.push(op.clone());
            set_program(plan, rank, own);
            given.push(rank);
            let name = named(plan, &op);
            if !added.contains(&name) {
                added.push(name);
            }
        }
    }
    added
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
            | Kind::LoopShorter
            | Kind::RankNeverJoined
            | Kind::DdpUnevenInputs
            | Kind::DdpUnusedParameters
    )
}

/// Makes the blamed ranks call as a rank does that waits for them.
fn follow_others(plan: &mut Plan, finding: &Finding) -> Option<Change> {
    let model = model_of(plan, finding)?;
    let mut expected = plan.program(model)?.clone();
    expected.ops.truncate(expected.ops.iter().position(is_stay).unwrap_or(expected.ops.len()));
    let mut change = Change::default();
    for rank in finding.culprits.iter().copied().filter(|rank| *rank != model) {
        let own = plan.program(rank)?.clone();
        let (ops, edits) = followed(plan, (rank, &own), (model, &expected), finding.kind);
        if !edits.is_empty() {
            change.ranks.push(rank);
            for (all, new) in
                [(&mut change.inserted, &edits.inserted), (&mut change.removed, &edits.removed)]
            {
                all.extend(new.iter().map(|op| named(plan, op)).filter(|it| !it.is_empty()));
            }
        }
        set_program(plan, rank, Program { ops });
    }
    change.inserted.dedup();
    change.removed.dedup();
    Some(change)
}

/// The rank that the blamed ranks are changed to follow: one that the finding shows beside them, or one that
/// waits.
fn model_of(plan: &Plan, finding: &Finding) -> Option<GlobalRank> {
    let beside = finding.ladder.as_ref().and_then(|ladder| ladder.sides.first());
    let beside = beside.and_then(|side| side.ranks.first()).copied();
    let members = finding.group.iter().flat_map(|group| group.ranks.iter().copied());
    let candidates = beside.into_iter().chain(finding.victims.iter().copied()).chain(members);
    let calls = |rank: &GlobalRank| {
        plan.program(*rank)
            .is_some_and(|own| own.ops.iter().any(|op| !op.action.calls().is_empty()))
    };
    let mut usable = candidates.filter(calls);
    let free = usable.clone().find(|rank| !finding.culprits.contains(rank));
    // Of a circle in which all are blamed, the others follow one.
    free.or_else(|| usable.next())
}

/// The changes to a rank's program.
#[derive(Default)]
struct Edits {
    inserted: Vec<Op>,
    removed: Vec<Op>,
}

impl Edits {
    fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.removed.is_empty()
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
        let place = mine.get(extra.start).copied().unwrap_or(end);
        for op in theirs.get(missing).unwrap_or_default() {
            let op = holding(op);
            edits.inserted.push(op.clone());
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

/// An operation that the program waits for at once: what is inserted has no later wait.
fn holding(op: &Op) -> Op {
    let mut op = op.clone();
    if let Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } = &mut op.action {
        *async_op = false;
    }
    op
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

/// `all_reduce of dp (train.py:88)`.
fn named(plan: &Plan, op: &Op) -> String {
    let calls = op.action.calls();
    let Some(first) = calls.first() else { return String::new() };
    let group = plan.group(first.group()).map_or("?", |group| group.label());
    let line = op.at.map(|at| format!(" ({})", plan.describe_line(at))).unwrap_or_default();
    format!("{} of {group}{line}", first.name())
}

/// The plan with equal programs stored once, and none that no rank has.
fn shared(mut plan: Plan) -> Plan {
    let old = std::mem::take(&mut plan.programs);
    let mut programs: Vec<Program> = Vec::new();
    for of in &mut plan.program_of {
        let own = old.get(*of as usize).cloned().unwrap_or_default();
        let known = programs.iter().rposition(|known| *known == own);
        *of = known.unwrap_or_else(|| {
            programs.push(own);
            programs.len() - 1
        }) as u32;
    }
    plan.programs = programs;
    plan
}
