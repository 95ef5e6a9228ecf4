//! Stacks alone: most ranks are in one call of `torch.distributed`, and a few are in code of their own.

use crate::claim::Claim;
use crate::claim::message::{Doubt, Reason};
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::facts::stacks::StackPosition;
use crate::kinds::Kind;
use crate::words;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// The finding of ranks that are in none of `torch.distributed`'s calls, while more ranks are in one line's call.
///
/// One look at a process does not tell whether it is stuck. Two looks do, and so does a timer of the process
/// itself (faulthandler's `dump_traceback_later`).
pub(crate) fn claim(sources: &OtherSources<'_>) -> Option<Claim> {
    let mut calls: BTreeMap<(&str, &str), Vec<&StackPosition>> = BTreeMap::new();
    let mut elsewhere: Vec<&StackPosition> = Vec::new();
    for position in &sources.stacks {
        match &position.call {
            Some(call) => calls.entry((call, &position.line)).or_default().push(position),
            None => elsewhere.push(position),
        }
    }
    let ((call, line), waiting) = calls.first_key_value()?;
    if calls.len() != 1 || elsewhere.is_empty() || elsewhere.len() >= waiting.len() {
        return None;
    }
    let list = |positions: &[&StackPosition]| -> Vec<GlobalRank> {
        positions.iter().map(|position| position.rank).collect()
    };
    let (culprits, victims) = (list(&elsewhere), list(waiting));
    let stuck = elsewhere.iter().all(|position| position.stayed);
    let mut claim = Claim {
        kind: Kind::RankNeverJoined,
        also_victims: victims.clone(),
        group: None,
        seq: None,
        op: Some((*call).to_owned()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} in {call} at {line}, and {} {} not there.",
            words::capital(&words::waits(&victims)),
            words::ranks(&culprits),
            if culprits.len() == 1 { "is" } else { "are" }
        )
        .into(),
        fix: "Look at the line in which that rank is: a data loader or a checkpoint that blocks, a branch around the \
              call, a device that does not answer."
            .to_owned(),
        evidence: waiting.iter().take(4).map(|position| position.evidence()).collect(),
        culprits,
    };
    claim.add_stacks(sources);
    if !stuck {
        let they = if claim.culprits.len() == 1 { "it was" } else { "they were" };
        claim.doubt(Doubt {
            reason: Reason::StillRunning,
            weight: Alternatives::AsLikely,
            text: format!(
                "If the job was running when the stacks were taken, {they} only on the way: take them again, and \
                 compare."
            ),
        });
    }
    Some(claim)
}
