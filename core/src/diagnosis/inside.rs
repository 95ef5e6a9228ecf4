//! Ranks that are stuck inside a call that everybody made: what a recorder does not write down, the
//! root or the splits, may differ. How far the call got, and the sizes' sums, show it.

use super::causes::{Cause, Scene, evidence};
use super::index::Row;
use super::report::{Certainty, Kind};
use super::signature::numel;
use super::words::{self, cap_ranks};
use crate::group::BackendName;
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

/// The cause of ranks that all hang inside one call, while it ended on others.
pub(super) fn cause(scene: &Scene<'_, '_>, culprits: &[GlobalRank]) -> Option<Cause> {
    let job = scene.job;
    let full = |row: &Row<'_>| {
        let size = job.group(row.group).map_or(0, |group| group.size() as usize);
        row.made.len() == size && row.waiting() == culprits
    };
    let (_, row) = job.open_rows().find(|(_, row)| full(row))?;
    if let Some(cause) = unequal_totals(scene, row) {
        return Some(cause);
    }
    let made = row.made.first()?;
    let op = made.record.call.op.as_str();
    let rooted = matches!(op, "broadcast" | "reduce" | "gather" | "scatter");
    let gloo = job.group(row.group).is_some_and(|group| group.backend() == BackendName::Gloo);
    // NCCL's calls end on a device, which may be stuck by itself.
    if !(rooted && gloo && job.log.recorded && culprits.len() > 1) {
        return None;
    }
    Some(Cause {
        kind: Kind::RootMismatch,
        culprits: culprits.to_vec(),
        also_victims: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(op.to_owned()),
        certainty: Certainty::Undecidable,
        message: format!(
            "{} are stuck inside {}, which ended on the others. It looks as if they disagree on its \
             root: each of two roots sends, and one of them is not listened to. Recordings do not \
             hold the root, so who is wrong cannot be told.",
            cap_ranks(culprits),
            words::call(job.log, *made),
        ),
        fix: "Pass the same src= or dst= on every rank; it must not depend on the rank. \
              NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL logs the root of every call."
            .to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(scene, *made, "called")).collect(),
    })
}

/// The cause of an `all_to_all` in which more is sent than received, or less: some rank's splits do
/// not fit. The sizes are recorded, the splits are not.
pub(super) fn unequal_totals(scene: &Scene<'_, '_>, row: &Row<'_>) -> Option<Cause> {
    let size = scene.job.group(row.group).map_or(0, |group| group.size() as usize);
    let made = row.made.first()?;
    let planned = scene.job.log.plan.is_some();
    if planned || made.record.call.op != "all_to_all" || row.made.len() != size {
        return None;
    }
    let sides = |made: &super::index::Made<'_>| {
        (numel(&made.record.call.inputs), numel(&made.record.call.outputs))
    };
    let total = row.made.iter().map(sides).fold((0u64, 0u64), |(sent, received), (a, b)| {
        (sent.saturating_add(a), received.saturating_add(b))
    });
    if total.0 == total.1 {
        return None;
    }
    // Where all but one rank pass the same sizes, that one is the odd one out.
    let mut by_size: BTreeMap<(u64, u64), Vec<GlobalRank>> = BTreeMap::new();
    for made in &row.made {
        by_size.entry(sides(made)).or_default().push(made.rank);
    }
    let odd = by_size.values().filter(|ranks| ranks.len() == 1);
    let odd: Vec<GlobalRank> = match (by_size.len(), size) {
        (2, 3..) => odd.flatten().copied().collect(),
        _ => Vec::new(),
    };
    let (culprits, certainty) = match odd.is_empty() {
        false => (odd, Certainty::Likely),
        true => (row.waiting(), Certainty::Undecidable),
    };
    let who = match certainty {
        Certainty::Likely => {
            format!(" {} passes other sizes than all others.", cap_ranks(&culprits))
        }
        _ => " Which rank's splits are wrong cannot be told from the sizes.".to_owned(),
    };
    Some(Cause {
        kind: Kind::SplitMismatch,
        culprits,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        certainty,
        message: format!(
            "In {} the ranks send {} elements together and expect {}.{who}",
            words::call(scene.job.log, *made),
            total.0,
            total.1,
        ),
        fix: "input_split_sizes[j] of rank i must equal output_split_sizes[i] of rank j: exchange \
              the sizes with an all_to_all_single of one number a rank first."
            .to_owned(),
        evidence: row.made.iter().take(8).map(|made| evidence(scene, *made, "called")).collect(),
    })
}
