//! Calls that have not ended and that the recorder's ring has dropped, behind so many later ones: its
//! count of what was called and what ended tells of them (`pg_status`).

use crate::claim::deed_text::{FIX_EXTRA, fix_skipped};
use crate::claim::{Claim, evidence, no_call};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::call_counts;
use crate::kinds::Kind;
use crate::model::index::{Made, Row};
use crate::report::Evidence;
use crate::words;
use crate::words::{cap_ranks, ranks, s};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallState, RankLog};
use std::collections::{BTreeMap, BTreeSet};

/// So many ranks are shown.
const SHOWN: usize = 16;

/// The ranks on either side of a call that the ring has dropped.
struct Dropped {
    group: GroupId,
    seq: u64,
    /// The ranks that wait in it.
    waiting: Vec<GlobalRank>,
    /// The ranks that are known not to have made it.
    absent: Vec<GlobalRank>,
    /// Of how many members nothing was recorded.
    unknown: usize,
}

/// The finding of the first such call, where nothing else is wrong.
pub(crate) fn claim(facts: &Facts<'_, '_>) -> Option<Claim> {
    let dropped = first(facts)?;
    let job = facts.job;
    let (waiting, absent) = (&dropped.waiting, &dropped.absent);
    let call = format!("#{} of {}", dropped.seq, words::group_label(job.log, dropped.group));
    let mut sides: Vec<GlobalRank> = waiting.iter().chain(absent).copied().collect();
    sides.sort_unstable();
    let odd = call_counts::odd_one(job, &sides);
    let is_odd = |side: &[GlobalRank], fewer: bool| {
        odd.as_ref().filter(|odd| odd.fewer == fewer && side == [odd.rank])
    };
    let outnumber = |a: &[GlobalRank], b: &[GlobalRank]| a.len() > b.len() + dropped.unknown;
    let (kind, culprits, said) = if absent.is_empty() {
        (Kind::CallNeverCompleted, Vec::new(), String::new())
    } else if let Some(odd) = is_odd(waiting, false) {
        (Kind::OpExtra, waiting.clone(), format!(" {}", odd.said))
    } else if let Some(odd) = is_odd(absent, true) {
        (Kind::OpSkipped, absent.clone(), format!(" {}", odd.said))
    } else if outnumber(waiting, absent) {
        (Kind::OpSkipped, absent.clone(), String::new())
    } else if outnumber(absent, waiting) {
        (Kind::OpExtra, waiting.clone(), String::new())
    } else {
        let either = " One side left a call out, or the other made one on top: as many did the one as \
                      may have done the other.";
        (Kind::OpSkipped, sides.clone(), either.to_owned())
    };
    let alternatives = match culprits.is_empty() || culprits == sides {
        true => Alternatives::AsLikely,
        false => Alternatives::LessLikely,
    };
    let never = match absent.as_slice() {
        [] => String::new(),
        absent => format!(", and {} never made it", ranks(absent)),
    };
    Some(Claim {
        kind,
        also_victims: sides.iter().filter(|rank| !culprits.contains(rank)).copied().collect(),
        culprits,
        group: Some(dropped.group),
        seq: Some(dropped.seq),
        op: None,
        alternatives,
        message: format!(
            "{} wait{} in {call}, as the count of what ended shows{never}. The recorder's ring has \
             dropped the call: it holds what was called behind it only.{said}",
            cap_ranks(waiting),
            s(waiting),
        ).into(),
        fix: match kind {
            Kind::OpExtra => FIX_EXTRA.to_owned(),
            Kind::OpSkipped => fix_skipped(None),
            _ => "Record with a larger ring (TORCH_FR_BUFFER_SIZE, or TORCH_NCCL_TRACE_BUFFER_SIZE), \
                  which still holds the call that hangs."
                .to_owned(),
        },
        evidence: seen(facts, &dropped),
    })
}

fn first(facts: &Facts<'_, '_>) -> Option<Dropped> {
    let job = facts.job;
    let mut waits: BTreeMap<(GroupId, u64), BTreeSet<GlobalRank>> = BTreeMap::new();
    for (rank, own) in job.log.logs() {
        for (group, ended) in &own.recording.unended {
            waits.entry((*group, ended.saturating_add(1))).or_default().insert(rank);
        }
    }
    // Of several, the one that others never made says most, unless these wait themselves.
    let all = waits.into_iter().map(|((group, seq), waiting)| {
        let members = job.group(group).map(|group| group.ranks()).unwrap_or_default();
        let known = |rank: &&GlobalRank| job.rank(**rank).is_some();
        let mut absent: Vec<GlobalRank> = members
            .iter()
            .filter(known)
            .filter(|rank| job.knows_last(group, **rank) && !job.has_made(group, **rank, seq))
            .copied()
            .collect();
        absent.sort_unstable();
        let unknown = members.iter().filter(|rank| job.rank(**rank).is_none()).count();
        // Others' rings may still hold it.
        let rows = job.rows_of(group).iter().filter(|row| row.seq == seq);
        let waiting = waiting.into_iter().chain(rows.flat_map(Row::waiting));
        let waiting = waiting.collect::<BTreeSet<_>>().into_iter().collect();
        Dropped { group, seq, waiting, absent, unknown }
    });
    let mut all: Vec<Dropped> = all.collect();
    let waits = |rank: &GlobalRank| {
        let pending = |own: &RankLog| own.calls.iter().any(|it| it.state != CallState::Completed);
        job.rank(*rank).is_some_and(|own| !own.recording.unended.is_empty() || pending(own))
    };
    let free = |it: &Dropped| !it.absent.is_empty() && !it.absent.iter().all(waits);
    let full = || all.iter().position(|it| it.absent.is_empty());
    let at = all.iter().position(free).or_else(full).unwrap_or(0);
    (at < all.len()).then(|| all.swap_remove(at))
}

/// The last calls of the ranks in the group, as far as the ring holds them.
fn seen(facts: &Facts<'_, '_>, dropped: &Dropped) -> Vec<Evidence> {
    let last = |rank: &GlobalRank| match facts.job.last_call(dropped.group, *rank) {
        Some(record) => evidence(facts, Made { rank: *rank, record }, "last called"),
        None => no_call(*rank, "has no call of the group left in its ring"),
    };
    dropped.waiting.iter().chain(&dropped.absent).take(SHOWN).map(last).collect()
}
