//! PyTorch's desync report (`TORCH_NCCL_DESYNC_DEBUG=1`, `retrieveDesyncReport` in `TraceUtils.h`), where it names
//! the ranks behind the others and the call that they never joined.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::words::cap_ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::BTreeSet;

const FIX: &str =
    "Look at what the rank did instead: its own log, its stack, and its Flight Recorder dump.";

/// The finding of the ranks that are furthest behind.
pub(crate) fn found(statements: &[Statement]) -> Option<Claim> {
    let next = |it: &Statement| match it.said {
        Said::Lagging { next } => next,
        _ => None,
    };
    let first = statements.iter().filter_map(next).min()?;
    let about: Vec<&Statement> = statements.iter().filter(|it| next(it) == Some(first)).collect();
    let who: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    let who: Vec<GlobalRank> = who.into_iter().collect();
    let waits = |it: &Statement| match &it.said {
        Said::TimedOut { seq, op, .. } if !who.contains(&it.rank) => {
            Some((*seq, op.clone(), it.rank))
        }
        _ => None,
    };
    let victims: BTreeSet<GlobalRank> =
        statements.iter().filter_map(waits).map(|(_, _, rank)| rank).collect();
    let in_vain = match statements.iter().find_map(waits) {
        Some((seq, op, _)) => format!(
            " {} timed out in {op} #{seq}.",
            cap_ranks(&victims.iter().copied().collect::<Vec<_>>())
        ),
        None => String::new(),
    };
    let message = format!(
        "{} finished #{} and never joined #{first}, as PyTorch's own desync report says.{in_vain}",
        cap_ranks(&who),
        first.saturating_sub(1)
    );
    let mut found = finding(Kind::RankNeverJoined, &about, message, FIX)?;
    (found.seq, found.alternatives) = (Some(first), Alternatives::LessLikely);
    found.also_victims = victims.into_iter().collect();
    Some(found)
}
