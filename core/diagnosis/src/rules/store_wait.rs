//! Findings of ranks that wait in a store for what does not come: a key that comes too late, keys
//! that wait for each other, stores that do not meet, a counter that stops short. A plan says why
//! ([`LostWait`]).

use crate::claim::{Claim, no_call};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Job, Made};
use crate::model::messages::PendingP2p;
use crate::report::Evidence;
use crate::words;
use crate::words::{cap_ranks, duration};
use lockstep_core::plan::remark::{Lost, LostWait};
use lockstep_core::plan::{Action, Op, Plan, SourceLine};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// A rank's wait, where it stands, and what it raised, if it did.
struct Lose {
    wait: LostWait,
    at: Option<SourceLine>,
    raised: Option<String>,
}

/// The wait in vain at the end of a rank's program.
fn of_rank(plan: &Plan, rank: GlobalRank) -> Option<Lose> {
    match plan.program(rank)?.ops.as_slice() {
        [before @ .., Op { action: Action::Die { how }, .. }] => {
            // A server that gives up tells those that wait for it.
            let tells = |op: &&Op| matches!(op.action, Action::Call { async_op: true, .. });
            let last = before.iter().rev().find(|op| !tells(op))?;
            let Action::Sleep { name, .. } = &last.action else { return None };
            let wait = LostWait::parse(name)?;
            Some(Lose { wait, at: last.at, raised: Some(how.clone()) })
        }
        [
            ..,
            Op { action: Action::Call { .. }, at, via: Some(via), .. },
            Op { action: Action::Wait { .. }, .. },
        ] => Some(Lose { wait: LostWait::parse(via)?, at: *at, raised: None }),
        _ => None,
    }
}

fn of_plan(plan: &Plan) -> BTreeMap<GlobalRank, Lose> {
    let ranks = (0..plan.world_size).map(GlobalRank);
    ranks.filter_map(|rank| Some((rank, of_rank(plan, rank)?))).collect()
}

/// Ranks that wait for ever, in a loop that asks a store: their pending messages stand for that, and
/// nobody owes them one.
pub(crate) fn endless(job: &Job<'_>, p2p: &[PendingP2p<'_>]) -> Vec<GlobalRank> {
    let Some(plan) = job.log.plan.as_deref() else { return Vec::new() };
    let is_lost = |pending: &&PendingP2p<'_>| {
        let op = pending.made.record.plan_op.map(|op| op as usize);
        let ops = plan.program(pending.made.rank).map(|program| program.ops.as_slice());
        let op = op.and_then(|op| ops?.get(op));
        op.and_then(|op| LostWait::parse(op.via.as_deref()?)).is_some()
    };
    let mut ranks: Vec<GlobalRank> =
        p2p.iter().filter(is_lost).map(|pending| pending.made.rank).collect();
    ranks.dedup();
    ranks
}

/// A rank that had nothing left but to raise, when a timeout of another one ended the job: the
/// store's is as long as the group's.
pub(crate) fn standing(job: &Job<'_>) -> Option<GlobalRank> {
    let plan = job.log.plan.as_deref()?;
    job.log.logs().find_map(|(rank, log)| {
        let raises = of_rank(plan, rank)?.raised.is_some();
        let ops = &plan.program(rank)?.ops;
        let planned = ops.iter().flat_map(|op| op.action.calls()).count();
        let pending = log.calls.iter().any(|record| Made { rank, record }.pending());
        (raises && log.calls.len() == planned && !pending).then_some(rank)
    })
}

/// The error that a rank's plan has it raise.
pub(crate) fn raised(job: &Job<'_>, rank: GlobalRank) -> Option<String> {
    of_rank(job.log.plan.as_deref()?, rank)?.raised
}

/// The finding of ranks that wait for ever.
pub(crate) fn endless_loop(job: &Job<'_>, ranks: &[GlobalRank]) -> Option<Claim> {
    let plan = job.log.plan.as_deref()?;
    let lost = of_rank(plan, *ranks.first()?)?;
    let at = place(plan, lost.at);
    let LostWait { awaited, why, .. } = &lost.wait;
    let (message, fix) = match why {
        Lost::Counts { reaches, number } => (
            format!(
                "{} ask{} the counter {awaited} in a loop until it has come to {number}{at}, and \
                 it comes to {reaches}: the loop never ends.",
                cap_ranks(ranks),
                words::s(ranks)
            ),
            "Count as many additions as the ranks make: look for a rank that skips its addition, \
             and for a number that is not theirs.",
        ),
        why => (
            format!(
                "{} ask{} for {awaited} in a loop{at}, which {why}: the loop never ends.",
                cap_ranks(ranks),
                words::s(ranks)
            ),
            "Set the key on one rank, under the same name and prefix, and before it waits for \
             these ranks.",
        ),
    };
    Some(claim(ranks.to_vec(), Vec::new(), message, fix, seen(plan, ranks, "asks in a loop")))
}

/// The finding of a rank that died of what it waited for, where more is known than that nobody
/// made it.
pub(crate) fn of_death(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<Claim> {
    let plan = facts.job.log.plan.as_deref()?;
    let losers = of_plan(plan);
    let lost = losers.get(&rank)?;
    let raised = lost.raised.as_deref()?.trim_end_matches('.').to_owned();
    match &lost.wait.why {
        Lost::Nobody | Lost::Counts { .. } => None,
        Lost::Late { rank: sets, line, by_ms } => {
            let same = |(_, other): &(&GlobalRank, &Lose)| other.wait == lost.wait;
            let readers: Vec<GlobalRank> =
                losers.iter().filter(same).map(|(rank, _)| *rank).collect();
            let late = duration(by_ms.saturating_mul(1_000_000_000));
            let clients = lost.wait.awaited == LostWait::CLIENTS;
            let (makes, what) = match clients {
                true => ("makes", "its TCPStore"),
                false => ("sets", lost.wait.awaited.as_str()),
            };
            let message = format!(
                "{} {makes} {what} only {late} after the timeout of {}, which waited for {} in {}{} \
                 and raised {raised}.",
                at_line(plan, "Rank", *sets, lost.at, *line),
                words::ranks(&readers),
                if clients { "its clients" } else { "it" },
                lost.wait.call,
                place(plan, lost.at),
            );
            let fix = if clients {
                "Let all ranks make their store together, or give it a longer timeout: \
                 TCPStore(…, timeout = timedelta(minutes = 10))."
            } else {
                "Set the key earlier, or let who reads it wait for longer: by the store's \
                       timeout, or store.wait(keys, timeout) before."
            };
            let victims = readers.clone();
            Some(claim(vec![*sets], victims, message, fix, seen(plan, &readers, "waited")))
        }
        Lost::Behind { .. } => Some(behind(plan, &losers, rank, &raised)),
        Lost::Elsewhere { .. } => Some(elsewhere(plan, &losers, &raised)),
    }
}

/// A key that is set behind another wait: perhaps in a circle.
fn behind(
    plan: &Plan,
    losers: &BTreeMap<GlobalRank, Lose>,
    rank: GlobalRank,
    raised: &str,
) -> Claim {
    let mut chain = vec![rank];
    let next = |rank: GlobalRank| match losers.get(&rank).map(|lost| &lost.wait.why) {
        Some(Lost::Behind { rank, .. }) => Some(*rank),
        _ => None,
    };
    let circle = loop {
        let Some(to) = chain.last().and_then(|last| next(*last)) else { break None };
        match chain.iter().position(|known| *known == to) {
            Some(from) => break Some(from),
            None => chain.push(to),
        }
    };
    let tells: Vec<String> = chain
        .iter()
        .filter_map(|rank| {
            let lost = losers.get(rank)?;
            let Lost::Behind { rank: sets, line } = &lost.wait.why else { return None };
            Some(format!(
                "rank {rank} waits in {} for {}{}, which {} would set",
                lost.wait.call,
                lost.wait.awaited,
                place(plan, lost.at),
                at_line(plan, "rank", *sets, lost.at, *line),
            ))
        })
        .collect();
    let tells = tells.join("; ");
    match circle.and_then(|from| chain.get(from..)) {
        Some(circle) if circle.len() > 1 => claim(
            sorted(circle),
            sorted(chain.get(..chain.len() - circle.len()).unwrap_or_default()),
            format!(
                "{} wait for each other's keys, in a circle: {tells}. They raise {raised}, and \
                 the like.",
                cap_ranks(&sorted(circle))
            ),
            "Let each rank set what the others wait for before it waits itself.",
            seen(plan, &chain, "waits"),
        ),
        _ => {
            let culprit = chain.last().copied().unwrap_or(rank);
            let others: Vec<GlobalRank> =
                chain.iter().copied().filter(|other| *other != culprit).collect();
            claim(
                vec![culprit],
                sorted(&others),
                format!(
                    "{}, behind what waits for it. It raises {raised}.",
                    words::capital(&tells)
                ),
                "Set the key before the call that waits for the rank that reads it: a barrier, a \
                 collective, another key.",
                seen(plan, &chain, "waits"),
            )
        }
    }
}

/// Stores that do not meet.
fn elsewhere(plan: &Plan, losers: &BTreeMap<GlobalRank, Lose>, raised: &str) -> Claim {
    let mut sides: BTreeMap<&str, Vec<GlobalRank>> = BTreeMap::new();
    let mut at = None;
    for (rank, lost) in losers {
        if let Lost::Elsewhere { here } = &lost.wait.why {
            sides.entry(here).or_default().push(*rank);
            at = at.or(lost.at);
        }
    }
    let most = sides.values().map(Vec::len).max().unwrap_or(0);
    let tie = sides.values().filter(|ranks| ranks.len() == most).count() > 1;
    let to_blame = sides.values().filter(|ranks| tie || ranks.len() < most);
    let culprits: Vec<GlobalRank> = to_blame.flatten().copied().collect();
    let victims = losers.keys().copied().filter(|rank| !culprits.contains(rank)).collect();
    let mut shown: Vec<String> = sides
        .iter()
        .take(8)
        .map(|(here, ranks)| format!("{} in {here}", words::ranks(ranks)))
        .collect();
    if sides.len() > shown.len() {
        shown.push(format!("and {} more stores", sides.len() - shown.len()));
    }
    let message = format!(
        "The ranks do not meet, for they gave init_process_group different stores{}: {}. They wait \
         for each other until the timeout, and raise {raised}.",
        place(plan, at),
        shown.join(", ")
    );
    let fix = "Give every rank the same store: one TCPStore or FileStore that all reach, and one \
               prefix. A HashStore is a process's own.";
    let evidence = seen(plan, &sorted(&culprits), "waits");
    let made = claim(sorted(&culprits), victims, message, fix, evidence);
    Claim { alternatives: if tie { Alternatives::AsLikely } else { Alternatives::None }, ..made }
}

fn claim(
    culprits: Vec<GlobalRank>,
    also_victims: Vec<GlobalRank>,
    message: String,
    fix: &str,
    evidence: Vec<Evidence>,
) -> Claim {
    Claim {
        kind: Kind::StoreWait,
        culprits,
        also_victims,
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::None,
        message: message.into(),
        fix: fix.to_owned(),
        evidence,
    }
}

/// The waits of these ranks, as evidence.
fn seen(plan: &Plan, ranks: &[GlobalRank], verb: &str) -> Vec<Evidence> {
    let seen = |rank: &GlobalRank| {
        let lost = of_rank(plan, *rank)?;
        let frame = lost.at.map(|at| plan.describe_line(at));
        let LostWait { call, awaited, why } = lost.wait;
        let note = format!("{verb} in {call} for {awaited}, which {why}");
        Some(Evidence { frame, ..no_call(*rank, note) })
    };
    ranks.iter().take(16).filter_map(seen).collect()
}

/// ` (train.py:7)`.
fn place(plan: &Plan, at: Option<SourceLine>) -> String {
    words::at_line(at.map(|at| plan.describe_line(at)))
}

/// `Rank 1 (train.py:7)`, in the source that the other one stands in.
fn at_line(
    plan: &Plan,
    noun: &str,
    rank: GlobalRank,
    other: Option<SourceLine>,
    line: u32,
) -> String {
    let at = other.map(|other| SourceLine { line, ..other });
    format!("{noun} {rank}{}", place(plan, at))
}

fn sorted(ranks: &[GlobalRank]) -> Vec<GlobalRank> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks
}
