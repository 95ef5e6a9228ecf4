//! Circles in who waits for whom: across groups, and in sends and receives.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::graph::{Graph, Sink};
use crate::model::index::{Made, Row};
use crate::model::messages::PendingP2p;
use crate::report::Evidence;
use crate::rules::never_joined;
use crate::rules::out_of_step;
use crate::rules::skipped_message;
use crate::words;
use crate::words::{cap_ranks, ranks, s};
use lockstep_core::group::ProcessGroup;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallState};
use lockstep_core::words::rank_list;
use std::collections::BTreeSet;

/// At most this many waits of a circle are spelled out.
const SHOWN: usize = 6;
/// Said of circles that a send or receive is in: whom it is for is the rank's own word.
const MAY_BE_ASTRAY: &str = " A send or receive of it may name another rank than the program means: then \
                             that closed the circle, and the others only wait.";
/// So many circles are held against what most ranks do.
pub(crate) const COMPARED: usize = 16;

/// A circle of ranks that wait for each other.
///
/// With `first`, it is held against what most ranks do.
pub(crate) fn claim(facts: &Facts<'_, '_>, sink: &Sink, first: bool) -> Option<Claim> {
    if sink.rows.is_empty() {
        return p2p_circle(facts, &sink.ranks);
    }
    let told =
        left_out(facts, &standing(facts, sink)).or_else(|| skipped_message::claim(facts, sink));
    told.or_else(|| {
        let tight = facts.graph.tightest(sink);
        let sides = standing(facts, &tight);
        let compared = first && !made_otherwise(facts, &tight, &sides);
        let claim = circle(facts, &tight, sides, Alternatives::None)?;
        Some(if compared { out_of_step::claim(facts, sink, claim) } else { claim })
    })
}

/// The finding of a cycle that closes only because a few ranks left calls out: they wait in a later
/// call for ranks that wait for them in an earlier one.
fn left_out(facts: &Facts<'_, '_>, sides: &[Standing<'_>]) -> Option<Claim> {
    // A rank that has never called in a group may know it by another name.
    let few = sides.iter().filter(|(made, waiting, lacks)| {
        let group = made.record.call.group;
        lacks.len() < waiting.len()
            && lacks.iter().all(|rank| facts.job.last_call(group, *rank).is_some())
    });
    let mut found = few.filter_map(|(made, _, lacks)| {
        let row = facts.job.rows.iter().find(|row| {
            row.group == made.record.call.group
                && row.of(made.rank).is_some_and(|own| own.record.work == made.record.work)
        })?;
        // A rank that has made the call, and is held up before it, left nothing out.
        let claim = lacks
            .iter()
            .all(|rank| row.lacks(*rank))
            .then_some(row)
            .and_then(|row| never_joined::never_joined(facts, lacks, row))?;
        let known = matches!(
            claim.kind,
            Kind::OpSkipped | Kind::LoopShorter | Kind::DdpUnusedParameters | Kind::DdpUnevenInputs
        );
        known.then_some(claim)
    });
    found.next()
}

/// Circles among ranks that have made all of their calls, where the calls of one rank queue behind
/// each other: on NCCL the process goes on, and its device carries out one call after the other.
pub(crate) fn queued(facts: &Facts<'_, '_>) -> Vec<Claim> {
    let graph = Graph::queued(facts.job);
    let circles = graph.sinks().into_iter().filter(|sink| sink.ranks.len() > 1);
    let circles = circles.enumerate().filter_map(|(number, sink)| {
        let sides = sides(facts, &sink, |at, row| {
            let in_it = |rank: &GlobalRank| graph.waits_in(*rank) == Some(at);
            row.waiting().into_iter().partition(in_it)
        });
        // A recording does not tell which call a device is in: that it is the first fits.
        let recorded = facts.job.log.recorded;
        let alternatives = if recorded { Alternatives::LessLikely } else { Alternatives::None };
        let compared = number < COMPARED && !made_otherwise(facts, &sink, &sides);
        let claim = circle(facts, &sink, sides, alternatives)?;
        Some(if compared { out_of_step::claim(facts, &sink, claim) } else { claim })
    });
    circles.collect()
}

/// The calls in which the ranks of a circle stand, with the ranks that these calls lack: those who
/// have not made them, or whose devices have not come to them.
fn standing<'a>(facts: &Facts<'a, '_>, sink: &Sink) -> Vec<Standing<'a>> {
    sides(facts, sink, |at, row| {
        let mut waiting = row.waiting();
        let lacks = match row.absent.is_empty() {
            true => facts.graph.awaited_in(at),
            false => row.absent.clone(),
        };
        waiting.retain(|rank| lacks.binary_search(rank).is_err());
        (waiting, lacks)
    })
}

/// The position of some ranks of a circle: a call, the ranks that wait in it, and the ranks that it lacks.
type Standing<'a> = (Made<'a>, Vec<GlobalRank>, Vec<GlobalRank>);

/// The positions of the ranks of a circle; `of` gives the ranks that wait in a row and those that it lacks.
fn sides<'a>(
    facts: &Facts<'a, '_>,
    sink: &Sink,
    of: impl Fn(usize, &Row<'a>) -> (Vec<GlobalRank>, Vec<GlobalRank>),
) -> Vec<Standing<'a>> {
    let mut sides: Vec<Standing<'a>> = Vec::new();
    for at in &sink.rows {
        let Some(row) = facts.job.rows.get(*at) else { continue };
        let (mut waiting, mut lacks) = of(*at, row);
        waiting.retain(|rank| sink.ranks.binary_search(rank).is_ok());
        lacks.retain(|rank| sink.ranks.binary_search(rank).is_ok());
        // Of calls that wait for the same ranks the first says it.
        let known = |(made, known, lacked): &Standing<'a>| {
            made.record.call.group == row.group && *known == waiting && *lacked == lacks
        };
        if sides.iter().any(known) {
            continue;
        }
        if let Some(made) = waiting.first().and_then(|rank| row.of(*rank)) {
            sides.push((made, waiting, lacks));
        }
    }
    sides.sort_by_key(|(made, _, _)| (made.record.scheduled_ps, made.rank));
    sides
}

/// True if some of a cycle's ranks have not made all groups: their calls are those of the others, in
/// groups that stand for theirs.
fn made_otherwise(facts: &Facts<'_, '_>, sink: &Sink, sides: &[Standing<'_>]) -> bool {
    fewer_groups(facts, sides, &groups_of(facts, sink)).is_some()
}

/// The groups of a circle.
fn groups_of<'s>(facts: &'s Facts<'_, '_>, sink: &Sink) -> Vec<&'s ProcessGroup> {
    let rows = sink.rows.iter().filter_map(|at| facts.job.rows.get(*at));
    rows.filter_map(|row| facts.job.group(row.group)).collect()
}

/// The claim of ranks that wait for each other in a circle.
fn circle<'a>(
    facts: &Facts<'a, '_>,
    sink: &Sink,
    sides: Vec<Standing<'a>>,
    mut alternatives: Alternatives,
) -> Option<Claim> {
    let log = facts.job.log;
    let first = sides.first()?.0;
    let mut culprits = sink.ranks.clone();
    if let [(_, one, _), (_, two, _)] = sides.as_slice()
        && one.len() != two.len()
        && one.len().min(two.len()) * 2 < sink.ranks.len()
    {
        // All but a few go one way round: the few took the other.
        culprits = if one.len() < two.len() { one.clone() } else { two.clone() };
        alternatives = Alternatives::LessLikely;
    }
    let members = Members::of(facts, sink);
    match members {
        Members::Recorded => {}
        // A rank that left no dump may be the one that is waited for.
        Members::WorkedOut { all_heard: false } => alternatives = Alternatives::AsLikely,
        Members::WorkedOut { all_heard: true } => alternatives = Alternatives::LessLikely,
        Members::Guessed => {
            (culprits, alternatives) = (sink.ranks.clone(), Alternatives::AsLikely);
        }
    }
    let messages: Vec<&PendingP2p<'_>> = facts
        .p2p
        .iter()
        .filter(|pending| {
            pending.partner.is_none()
                && sink.ranks.binary_search(&pending.made.rank).is_ok()
                && sink.ranks.binary_search(&pending.peer).is_ok()
        })
        .collect();
    let astray = if messages.is_empty() { "" } else { MAY_BE_ASTRAY };
    if !messages.is_empty() {
        alternatives = alternatives.max(Alternatives::LessLikely);
    }
    let groups = groups_of(facts, sink);
    if let Some(fewer) = fewer_groups(facts, &sides, &groups) {
        culprits = fewer;
    }
    let (why, fix) = why(facts, &sides, &groups);
    let in_circle = sink.ranks.iter().copied();
    Some(Claim {
        kind: Kind::GroupDeadlock,
        message: format!(
            "{} wait for each other in a circle: {}. {why}{astray}{}",
            cap_ranks(&sink.ranks),
            waits_in_words(log, &sides, &messages),
            members.note(),
        )
        .into(),
        fix: fix.to_owned(),
        also_victims: in_circle.filter(|rank| culprits.binary_search(rank).is_err()).collect(),
        culprits,
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        alternatives,
        evidence: calls_of_circle(facts, sink, &sides, &messages),
    })
}

/// The source of the members of a circle's groups.
#[derive(Clone, Copy)]
enum Members {
    Recorded,
    /// From the ranks that called the groups, which several did.
    WorkedOut {
        /// True if every rank left a dump.
        all_heard: bool,
    },
    /// A group has been called by one rank only: there is no majority in it.
    Guessed,
}

impl Members {
    fn of(facts: &Facts<'_, '_>, sink: &Sink) -> Members {
        let job = facts.job;
        let rows = || sink.rows.iter().filter_map(|at| job.rows.get(*at));
        let mut worked_out = rows().filter(|row| job.members_are_worked_out(row.group)).peekable();
        if worked_out.peek().is_none() {
            return Members::Recorded;
        }
        let has_one_caller = |row: &Row<'_>| {
            let calls = job.rows_of(row.group).iter().flat_map(|row| &row.made);
            calls.map(|made| made.rank).collect::<BTreeSet<GlobalRank>>().len() == 1
        };
        match worked_out.any(has_one_caller) {
            true => Members::Guessed,
            false => Members::WorkedOut { all_heard: job.log.ranks.iter().all(Option::is_some) },
        }
    }

    /// The note for the reader, with a space before it.
    fn note(self) -> &'static str {
        match self {
            Members::Recorded => "",
            Members::WorkedOut { all_heard: false } => {
                " (gloo does not record who is in a group; the members were worked out from who called it. A \
                 rank that left no dump may be what is waited for: add it.)"
            }
            Members::WorkedOut { all_heard: true } => {
                " (gloo does not record who is in a group; the members were worked out from who called it.)"
            }
            Members::Guessed => {
                " (gloo does not record who is in a group, nor how many ranks a job has; the members were \
                 worked out from who called it. If the job has more ranks than left a dump, one of them \
                 may be what is waited for: add the dumps of all.)"
            }
        }
    }
}

/// `ranks 0 and 1 wait in … for rank 2; rank 2 waits in … for rank 0`
fn waits_in_words(log: &CallLog, sides: &[Standing<'_>], messages: &[&PendingP2p<'_>]) -> String {
    let in_calls = sides.iter().take(SHOWN).map(|(made, waiting, lacks)| {
        format!(
            "{} wait{} in {} for {}",
            ranks(waiting),
            s(waiting),
            words::call(log, *made),
            ranks(lacks)
        )
    });
    let in_messages = messages.iter().take(SHOWN).map(|pending| {
        format!(
            "rank {} waits in {} for rank {}",
            pending.made.rank,
            words::call(log, pending.made),
            pending.peer
        )
    });
    in_calls.chain(in_messages).collect::<Vec<_>>().join("; ")
}

/// The calls of a circle as evidence: those that wait, and those of the ranks that they wait for, which
/// have made the call as well and are in another one.
fn calls_of_circle(
    facts: &Facts<'_, '_>,
    sink: &Sink,
    sides: &[Standing<'_>],
    messages: &[&PendingP2p<'_>],
) -> Vec<Evidence> {
    let mut seen: Vec<Evidence> = Vec::new();
    for (made, waiting, lacks) in sides {
        let mut rows = sink.rows.iter().filter_map(|at| facts.job.rows.get(*at));
        let row = rows
            .find(|row| row.group == made.record.call.group && Some(row.seq) == made.record.seq);
        let of = |ranks: &[GlobalRank]| -> Vec<Made<'_>> {
            ranks.iter().take(8).filter_map(|rank| row.and_then(|row| row.of(*rank))).collect()
        };
        seen.extend(of(waiting).into_iter().map(|made| match made.record.state {
            CallState::Started => evidence(facts, made, "has started, and waits in"),
            _ => evidence(facts, made, "waits in"),
        }));
        seen.extend(of(lacks).into_iter().map(|made| evidence(facts, made, "has not started")));
    }
    let messages = messages.iter().take(8);
    seen.extend(messages.map(|pending| evidence(facts, pending.made, "waits in")));
    seen
}

/// The ranks that have made fewer groups than the others, where they wait for each other in groups of
/// the same members under several names: PyTorch names a group by how many a rank has made. A rank
/// that has called in two of them has made both.
fn fewer_groups(
    facts: &Facts<'_, '_>,
    sides: &[Standing<'_>],
    groups: &[&ProcessGroup],
) -> Option<Vec<GlobalRank>> {
    let job = facts.job;
    let ids: Vec<_> = sides.iter().map(|(made, _, _)| made.record.call.group).collect();
    let has_both = |rank: &GlobalRank| {
        ids.iter().filter(|id| job.last_call(**id, *rank).is_some()).count() > 1
    };
    let again = groups.windows(2).all(|pair| match pair {
        [a, b] => a.ranks() == b.ranks() && a.name() != b.name() && !described_apart(a, b),
        _ => false,
    });
    let both = sides.iter().any(|(_, waiting, _)| waiting.iter().any(has_both));
    if groups.len() < 2 || !again || both {
        return None;
    }
    let number = |made: &Made<'_>| job.group(made.record.call.group)?.name().parse::<u64>().ok();
    let most = sides.iter().filter_map(|(made, _, _)| number(made)).max()?;
    let fewer = sides.iter().filter(|(made, _, _)| number(made).is_some_and(|own| own < most));
    let mut fewer: Vec<GlobalRank> = fewer.flat_map(|(_, waiting, _)| waiting.clone()).collect();
    fewer.sort_unstable();
    fewer.dedup();
    (!fewer.is_empty()).then_some(fewer)
}

/// True of groups that were given different descriptions: whoever made them meant two groups.
fn described_apart(a: &ProcessGroup, b: &ProcessGroup) -> bool {
    let said = |desc: &str| !desc.is_empty() && desc != "undefined";
    said(a.desc()) && said(b.desc()) && a.desc() != b.desc()
}

/// The cause of the circle, and the way to break it.
fn why(
    facts: &Facts<'_, '_>,
    sides: &[Standing<'_>],
    groups: &[&ProcessGroup],
) -> (&'static str, &'static str) {
    let via = |made: &Made<'_>| -> Option<&str> {
        let plan = facts.job.log.plan.as_deref()?;
        let ops = &plan.program(made.rank)?.ops;
        ops.get(made.record.plan_op? as usize)?.via.as_deref()
    };
    if sides.iter().all(|(made, _, _)| via(made) == Some("ncclCommInitRank")) {
        return (
            "NCCL makes a communicator for each pair of ranks at their first send or receive that \
             is not batched, and holds both until the other one has come.",
            "Make the calls with batch_isend_irecv, which uses the group's own communicator; or \
             let even ranks send first and odd ranks receive first.",
        );
    }
    if devices_disagree(sides, facts) {
        return (
            "All of them made these calls, but their devices, which carry out one communicator's \
             call at a time, began them in different orders.",
            "Let a group's call end before another group's is made (work.wait() and a \
             synchronization of the streams, or one stream for both), or let NCCL keep the order of \
             the program with NCCL_LAUNCH_ORDER_IMPLICIT=1 (2.26 and newer).",
        );
    }
    if fewer_groups(facts, sides, groups).is_some() {
        return (
            "They mean the same group, but under different names: each rank numbers the groups \
             that it makes, and this one has not the same number on all: some had made fewer before \
             it, or made them in another order.",
            "Call new_group on every rank of the job, members or not, in the same order. \
             use_local_synchronization=True, with which members alone call it, has the same names \
             only where they have made equally many groups before.",
        );
    }
    (
        "Each would go on only after the other.",
        "Call the groups in the same order on every rank that is in several of them; for \
         pipelines, post receives before sends or batch them with batch_isend_irecv.",
    )
}

/// True if every rank of the circle has made the calls that it is missed in, and its device is in
/// another one that it was given later: the processes did not choose that order.
fn devices_disagree(sides: &[Standing<'_>], facts: &Facts<'_, '_>) -> bool {
    let lacking = sides.iter().flat_map(|(made, _, lacks)| {
        lacks.iter().map(|rank| {
            let rows = facts.job.open_rows().map(|(_, row)| row);
            let group = made.record.call.group;
            let mut rows =
                rows.filter(|row| row.group == group && Some(row.seq) == made.record.seq);
            let own = rows.find_map(|row| row.of(*rank));
            let is_in = sides.iter().find(|(_, waiting, _)| waiting.contains(rank));
            let is_in = is_in.and_then(|(made, _, _)| {
                let mut rows = facts.job.open_rows().map(|(_, row)| row);
                let is = |row: &&Row<'_>| {
                    row.group == made.record.call.group && Some(row.seq) == made.record.seq
                };
                rows.find(is).and_then(|row| row.of(*rank))
            });
            Some((own?.record, is_in?.record))
        })
    });
    let mut lacking = lacking.peekable();
    let mut overtaken = false;
    lacking.peek().is_some()
        && lacking.all(|pair| {
            overtaken |= pair.is_some_and(|(own, is_in)| own.work < is_in.work);
            pair.is_some_and(|(_, is_in)| is_in.state == CallState::Started)
        })
        && overtaken
}

fn p2p_circle(facts: &Facts<'_, '_>, circle: &[GlobalRank]) -> Option<Claim> {
    let log = facts.job.log;
    let waits = facts.p2p.iter().filter(|pending| {
        pending.partner.is_none()
            && circle.binary_search(&pending.made.rank).is_ok()
            && circle.binary_search(&pending.peer).is_ok()
    });
    let waits: Vec<_> = waits.collect();
    let first = waits.first()?.made;
    let said = waits.iter().take(SHOWN).map(|pending| {
        let to = if pending.made.record.call.op.contains("send") { "to" } else { "from" };
        let call = words::short_call(log, pending.made);
        format!("rank {} in {call} {to} rank {}", pending.made.rank, pending.peer)
    });
    let said: Vec<String> = said.collect();
    let queued = waits.iter().any(|pending| pending.queued);
    // Whoever only comes behind them is no part of it; one rank alone closes none.
    let in_it: BTreeSet<GlobalRank> = waits.iter().map(|pending| pending.made.rank).collect();
    let (circle, behind): (Vec<GlobalRank>, Vec<GlobalRank>) =
        circle.iter().partition(|rank| in_it.len() < 2 || in_it.contains(rank));
    let on_devices = match queued {
        true => {
            " On NCCL, calls of one communicator that are not batched run one after the other: the calls that \
             these wait for were made, and stand behind them."
        }
        false => "",
    };
    let more = waits.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(Claim {
        kind: Kind::P2pDeadlock,
        culprits: circle.clone(),
        also_victims: behind,
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        // A recorder finds out when a call began from time to time.
        alternatives: match queued && log.recorded {
            true => Alternatives::LessLikely,
            false => Alternatives::None,
        },
        message: format!(
            "Ranks {} wait for each other in sends and receives, in a circle: {}{more}.{on_devices}",
            rank_list(&circle),
            said.join("; "),
        ).into(),
        fix: match queued {
            true => {
                "Make both calls with batch_isend_irecv, which begins them together; or let one side send \
                 first and the other receive first. isend and irecv alone do not help: NCCL keeps their order."
            }
            false => {
                "Let one side receive first (even ranks send, odd ranks receive, then the reverse), or \
                 post both with isend/irecv or batch_isend_irecv and wait afterwards."
            }
        }
        .to_owned(),
        evidence: waits
            .iter()
            .take(16)
            .map(|pending| evidence(facts, pending.made, "waits in"))
            .collect(),
    })
}
