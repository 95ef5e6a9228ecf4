//! Stacks alone: most ranks are in one call of `torch.distributed`, and a few are in code of their own or in another
//! collective.

use crate::claim::Claim;
use crate::claim::message::{Doubt, Reason};
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::facts::stacks::StackPosition;
use crate::kinds::Kind;
use crate::words;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// Functions of `torch.distributed` that every rank of a group calls.
const COLLECTIVES: [&str; 19] = [
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
];

/// The findings that the stacks of a job without calls make.
pub(crate) fn claim(sources: &OtherSources<'_>) -> Option<Claim> {
    in_own_code(sources).or_else(|| in_another_collective(sources))
}

/// The finding of ranks that are all in collectives, and not all in the same one.
///
/// Stacks do not name the groups of the calls, so the finding is never certain.
fn in_another_collective(sources: &OtherSources<'_>) -> Option<Claim> {
    let mut calls: BTreeMap<&str, Vec<&StackPosition>> = BTreeMap::new();
    for position in &sources.stacks {
        let call = position.call.as_deref().filter(|call| COLLECTIVES.contains(call))?;
        calls.entry(call).or_default().push(position);
    }
    let most = calls.values().map(Vec::len).max()?;
    let mut sides: Vec<(&str, Vec<&StackPosition>)> = calls.into_iter().collect();
    // The side of most ranks comes last; of two alike, that of the lowest rank.
    sides.sort_by_key(|(_, side)| (side.len(), side.first().map(|it| std::cmp::Reverse(it.rank))));
    let (call, others) = sides.pop()?;
    let (op, first) = sides.first()?;
    let is_tie = sides.iter().any(|(_, side)| side.len() == most);
    let ranks = |side: &[&StackPosition]| -> Vec<GlobalRank> {
        side.iter().map(|position| position.rank).collect()
    };
    let place = |call: &str, side: &[&StackPosition]| {
        let line = side.first().map(|it| it.line.clone());
        format!("{} in {call}{}", words::waits(&ranks(side)), words::at_line(line))
    };
    let apart: Vec<String> = sides.iter().map(|(call, side)| place(call, side)).collect();
    let mut claim = Claim {
        kind: Kind::CollectiveMismatch,
        also_victims: ranks(&others),
        group: None,
        seq: None,
        op: Some((*op).to_owned()),
        alternatives: if is_tie { Alternatives::AsLikely } else { Alternatives::LessLikely },
        message: format!(
            "By the stacks, {} while {}. Calls of one group that differ wait for each other; which groups these are of is \
             not seen.",
            apart.join(" and "),
            place(call, &others)
        )
        .into(),
        fix: "Find the branch that sends ranks to different calls, and make every rank of the group call the same \
              collective there."
            .to_owned(),
        evidence: first.iter().chain(&others).take(8).map(|position| position.evidence()).collect(),
        culprits: sides.iter().flat_map(|(_, side)| ranks(side)).collect(),
    };
    claim.culprits.sort_unstable();
    if !sources.stacks.iter().all(|position| position.stayed) {
        claim.doubt(may_be_running("they were"));
    }
    Some(claim)
}

/// The doubt of a single look at a job, in which ranks may be on their way.
fn may_be_running(they: &str) -> Doubt {
    Doubt {
        reason: Reason::StillRunning,
        weight: Alternatives::AsLikely,
        text: format!(
            "If the job was running when the stacks were taken, {they} only on the way: take them again, and \
             compare."
        ),
    }
}

/// The finding of ranks that are in none of `torch.distributed`'s calls, while more ranks are in one line's call.
///
/// One look at a process does not tell whether it is stuck. Two looks do, and so does a timer of the process
/// itself (faulthandler's `dump_traceback_later`).
fn in_own_code(sources: &OtherSources<'_>) -> Option<Claim> {
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
        claim.doubt(may_be_running(they));
    }
    Some(claim)
}
