//! Mistakes of a plan's program that no call shows, since the simulation goes on behind it: works
//! that are let go of while their call is under way, and calls that fail unheard.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use crate::words;
use crate::words::{at_line, cap_ranks, s};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Plan, SourceLine};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// At most so many places are told, and ranks are shown.
const SHOWN: usize = 8;

/// A source and its line, and what is said there.
type Place = (Option<(u32, u32)>, String);

/// A rank's remarks, with their lines.
pub(crate) fn of_rank(plan: &Plan, rank: GlobalRank) -> Vec<(Remark, Option<SourceLine>)> {
    let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
    ops.iter().filter_map(|op| Some((Remark::of(op)?, op.at))).collect()
}

/// The findings.
pub(crate) fn claims(facts: &Facts<'_, '_>) -> Vec<Claim> {
    let Some(plan) = facts.job.log.plan.as_deref() else { return Vec::new() };
    let mut places: BTreeMap<Place, (Remark, Vec<GlobalRank>)> = BTreeMap::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        for (remark, at) in of_rank(plan, rank) {
            let key = (at.map(|at| (at.source, at.line)), remark.to_string());
            let (_, ranks) = places.entry(key).or_insert_with(|| (remark, Vec::new()));
            if ranks.last() != Some(&rank) {
                ranks.push(rank);
            }
        }
    }
    let told = places.into_iter().filter_map(|((at, _), (remark, ranks))| {
        let line = at.map(|(source, line)| plan.describe_line(SourceLine { source, line }));
        tell(&remark, &ranks, line)
    });
    told.take(SHOWN).collect()
}

fn tell(remark: &Remark, ranks: &[GlobalRank], line: Option<String>) -> Option<Claim> {
    let (who, place) = (cap_ranks(ranks), at_line(line.clone()));
    let (op, alternatives, message, fix) = match remark {
        Remark::NewGroup { .. }
        | Remark::TagIgnored { .. }
        | Remark::NotReduced { .. }
        | Remark::NotFollowed { .. }
        | Remark::Assumed { .. } => return None,
        Remark::Failed { call, error } => (
            call,
            Alternatives::None,
            format!(
                "{} of {} failed{place}: {}. Nobody waits for its work, so nothing raises that, and \
                 the tensor holds what it held before. Only a barrier that finds the call still \
                 under way raises it, which is a race.",
                words::capital(call),
                words::ranks(ranks),
                error.trim_end_matches('.'),
            ),
            "Wait for the work of every asynchronous call: work.wait() raises what went wrong."
                .to_owned(),
        ),
        Remark::Left { call } => (
            call,
            Alternatives::LessLikely,
            format!(
                "{who} never wait{} for the work of {call}{place}, nor for anything behind it: on \
                 gloo its process may end before the {} is carried out, and its peer then raises \
                 that its connection was closed. That is a race; here it is taken as carried out.",
                s(ranks),
                if call == "isend" { "send" } else { "receive" },
            ),
            format!("Wait for it: work = dist.{call}(…) and work.wait()."),
        ),
        Remark::Unheld { call, name } => (
            call,
            Alternatives::LessLikely,
            format!(
                "The work that {call} returns{place} is held by {name} alone, which on {} gets \
                 another value, or ends with its function, before anything waits for it. {}",
                words::ranks(ranks),
                dropped(call),
            ),
            format!(
                "Wait before {name} is given another value or its function ends: {name}.wait(). Or \
                 keep every work in a list, and wait for all of them."
            ),
        ),
        Remark::Dropped { call } => (
            call,
            Alternatives::LessLikely,
            format!(
                "{who} let{} go of the work that {call} returns{place}, and nothing else holds it. \
                 {}",
                s(ranks),
                dropped(call),
            ),
            format!(
                "Keep the work, and wait for it before the tensor is used again: \
                 work = dist.{call}(…) and work.wait(). Or call dist.{}.",
                if call == "isend" { "send" } else { "recv" }
            ),
        ),
    };
    let shown = ranks.iter().take(SHOWN).map(|rank| Evidence {
        rank: *rank,
        entry: None,
        place: None,
        frame: line.clone(),
        note: remark.to_string(),
    });
    Some(Claim {
        kind: Kind::WorkDropped,
        culprits: ranks.to_vec(),
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: Some(op.clone()),
        alternatives,
        message: message.into(),
        fix,
        evidence: shown.collect(),
    })
}

/// The behaviour of gloo with a call whose work is gone.
fn dropped(call: &str) -> &'static str {
    match call {
        "isend" => {
            "gloo cancels a send whose work is gone, unless the receiver has called recv before: \
             who comes first is a race, and after a cancelled send the receiver waits until its \
             timeout, and so do later calls between the two. Here it is taken as sent."
        }
        _ => {
            "gloo then has nowhere to put what comes: the tensor keeps what it held, and later calls \
             between the two ranks wait until their timeout. Here it is taken as received."
        }
    }
}
