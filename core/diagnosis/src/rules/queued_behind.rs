//! Circles that one side alone closes. On NCCL a process goes on, and its device carries out its calls
//! one behind the other: those who wait in a call that some never made are held up there, and with
//! them, in the calls behind that all have made, those who never made it. Only these have not made a
//! call.

use crate::claim::Claim;
use crate::claim::deed_text::{fix_skipped, skipped};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Deed;
use crate::facts::loops::alike_since;
use crate::facts::pauses::{pause, unbroken_since};
use crate::facts::program_order::all_of;
use crate::kinds::Kind;
use crate::model::graph::Sink;
use crate::model::index::Row;
use crate::words;
use crate::words::{cap_ranks, ranks, s, since};
use lockstep_core::rank::GlobalRank;

/// The circle, told as the fault of those who never made a call of a group; of both sides where as
/// many made it. `None` if it is another circle.
pub(crate) fn claim(facts: &Facts<'_, '_>, sink: &Sink, circle: &Claim) -> Option<Claim> {
    let job = facts.job;
    let rows = || sink.rows.iter().filter_map(|at| job.rows.get(*at));
    let lacking: Vec<&Row<'_>> = rows().filter(|row| row.lacks_somebody()).collect();
    let first = *lacking.first()?;
    let absent = &first.absent;
    let alike = |row: &&Row<'_>| {
        row.group == first.group && row.absent == *absent && row.unrecorded.is_empty()
    };
    let inside = |rank: &GlobalRank| sink.ranks.binary_search(rank).is_ok();
    if job.log.plan.is_some()
        || lacking.len() == rows().count()
        || absent.is_empty()
        || !lacking.iter().all(alike)
        || !absent.iter().all(inside)
    {
        return None;
    }
    let came = (job.group(first.group)?.size() as usize).checked_sub(absent.len())?;
    let waiting = first.waiting();
    let made = first.made.iter().find(|made| made.pending()).copied()?;
    let others = |culprits: &[GlobalRank]| {
        sink.ranks.iter().copied().filter(|rank| !culprits.contains(rank)).collect()
    };
    let op = &made.record.call.op;
    if absent.len() == came {
        let mut culprits: Vec<GlobalRank> = waiting.iter().chain(absent).copied().collect();
        culprits.sort_unstable();
        let said = format!(
            "{} never called {}, in which {} wait{}: {} left that call out or come{} to it later, or \
             {} should not have made it; the recording cannot tell which.",
            cap_ranks(absent),
            words::call(job.log, made),
            ranks(&waiting),
            s(&waiting),
            if absent.len() == 1 { "it" } else { "they" },
            s(absent),
            ranks(&waiting),
        );
        return Some(Claim {
            also_victims: others(&culprits),
            culprits,
            group: Some(first.group),
            seq: Some(first.seq),
            op: Some(op.clone()),
            alternatives: Alternatives::AsLikely,
            message: since(&said, &circle.message.said).into(),
            ..circle.clone()
        });
    }
    if absent.len() > came {
        return None;
    }
    let rank = *absent.first()?;
    let from = match all_of(job, rank, made.rank, first.group) {
        true => unbroken_since(job, first.group, made.rank, first.seq),
        false => alike_since(job, first.group, first.seq, rank),
    };
    let from = from.unwrap_or(first.seq);
    let deed = Deed {
        seq: from,
        last_seq: first.seq,
        pause: pause(job, first.group, rank, from, first.seq),
        count: lacking.len(),
        ..Deed::of(job, made.record, made.rank)
    };
    let label = words::group_label(job.log, first.group);
    let said = skipped(&cap_ranks(absent), &deed, &label);
    Some(Claim {
        kind: Kind::OpSkipped,
        culprits: absent.clone(),
        also_victims: others(absent),
        group: Some(first.group),
        seq: Some(deed.told_seq()),
        op: Some(op.clone()),
        alternatives: Alternatives::LessLikely,
        message: (since(&said, &circle.message.said) + MAY_COME).into(),
        fix: fix_skipped(deed.ddp),
        ..circle.clone()
    })
}

/// The other possibility.
pub(crate) const MAY_COME: &str = " Or it takes these groups in another order this time, and would have \
    come to that call later: the recording ends before that.";
