//! `optimizer.step()` on gradients that DDP has not reduced: the replicas drift apart, and nothing raises. Only a
//! plan tells: in a dump such a step looks like one that accumulates.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use crate::words::{at_line, cap_ranks, s};
use lockstep_core::plan::remark::{BACKWARD, Remark};
use lockstep_core::plan::{Action, Op, Plan};
use lockstep_core::rank::GlobalRank;

/// So many ranks are shown.
const SHOWN: usize = 8;

/// One claim of all ranks that step so.
pub(crate) fn claim(facts: &Facts<'_, '_>) -> Option<Claim> {
    let plan = facts.job.log.plan.as_deref().filter(|plan| plan.world_size > 1)?;
    let ranks = (0..plan.world_size).map(GlobalRank);
    let steps = ranks.filter_map(|rank| Some((rank, local_step(plan, rank)?)));
    let steps: Vec<(GlobalRank, LocalStep)> = steps.collect();
    let (_, first) = steps.first()?;
    let ranks: Vec<GlobalRank> = steps.iter().map(|(rank, _)| *rank).collect();
    let (pass, fix) = match first.past {
        false => (
            "ran under no_sync()",
            "Leave no_sync() for the micro-batch before optimizer.step(): enter it only while (step + 1) % \
             accumulate != 0.",
        ),
        true => (
            "went through model.module, past DDP",
            "Call the wrapped model for passes that are trained on; model.module is for passes without gradients.",
        ),
    };
    let evidence = steps.iter().take(SHOWN).map(|(rank, step)| Evidence {
        rank: *rank,
        entry: None,
        place: None,
        frame: step.line.clone(),
        note: "steps on gradients of its own".to_owned(),
    });
    Some(Claim {
        kind: Kind::DdpGradientsNotReduced,
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} step{}{} on gradients that DDP has not reduced: the last backward pass before it{} {pass}. Each \
             rank steps in a direction of its own, so that the replicas drift apart; nothing hangs or raises.",
            cap_ranks(&ranks),
            s(&ranks),
            at_line(first.line.clone()),
            at_line(first.pass_line.clone()),
        ).into(),
        fix: fix.to_owned(),
        evidence: evidence.collect(),
        culprits: ranks,
    })
}

/// A step on gradients that were not reduced.
struct LocalStep {
    past: bool,
    line: Option<String>,
    /// Of the backward pass.
    pass_line: Option<String>,
}

/// The first such step of a rank; none where the program itself communicates between the pass and the step, as
/// one does that averages gradients by hand.
fn local_step(plan: &Plan, rank: GlobalRank) -> Option<LocalStep> {
    let ops = &plan.program(rank)?.ops;
    let step = |(at, op): (usize, &Op)| match Remark::of(op) {
        Some(Remark::NotReduced { past }) => Some((at, past)),
        _ => None,
    };
    let (at, past) = ops.iter().enumerate().find_map(step)?;
    let is_pass =
        |op: &Op| matches!(&op.action, Action::Compute { name, .. } if **name == *BACKWARD);
    let before = ops.get(..at)?;
    let pass = before.iter().rposition(is_pass)?;
    let averages = before.get(pass..)?.iter().any(|op| !op.action.calls().is_empty());
    let line = |op: &Op| op.at.map(|at| plan.describe_line(at));
    (!averages).then(|| LocalStep {
        past,
        line: ops.get(at).and_then(line),
        pass_line: before.get(pass).and_then(line),
    })
}
