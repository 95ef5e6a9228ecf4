//! Uneven `all_to_all_single` calls whose parts disagree: what a rank sends to another is not what
//! that one expects. Only a plan tells; recordings have no splits.

use super::causes::{Cause, Scene, evidence};
use super::index::{Made, Row};
use super::inside::unequal_totals;
use super::report::{Certainty, Kind};
use super::words;
use crate::plan::{Call, Splits};
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

/// Two ranks that disagree on the elements between them.
struct Disagreement<'a> {
    from: Made<'a>,
    sends: u64,
    to: Made<'a>,
    expects: u64,
}

/// The causes of the open rows whose splits disagree, and those rows' indices.
pub(super) fn causes(scene: &Scene<'_, '_>) -> (Vec<Cause>, Vec<usize>) {
    let rows = scene.job.open_rows();
    let found = rows.filter_map(|(at, row)| {
        let totals = || unequal_totals(scene, row).filter(|_| stays(scene, row));
        Some((cause(scene, row).or_else(totals)?, at))
    });
    found.unzip()
}

/// True of a call that nobody comes out of, or nobody is seen to do anything after.
fn stays(scene: &Scene<'_, '_>, row: &Row<'_>) -> bool {
    row.made.iter().all(|made| {
        let last = scene.job.rank(made.rank).and_then(|log| log.calls.last());
        made.pending() || last.is_some_and(|last| last.work == made.record.work)
    })
}

fn cause(scene: &Scene<'_, '_>, row: &Row<'_>) -> Option<Cause> {
    let disagreements = disagreements(scene, row);
    let first = disagreements.first()?;
    // One rank that is a side of every disagreement, of several, is the odd one out.
    let mut sides: BTreeMap<GlobalRank, usize> = BTreeMap::new();
    for disagreement in &disagreements {
        *sides.entry(disagreement.from.rank).or_default() += 1;
        *sides.entry(disagreement.to.rank).or_default() += 1;
    }
    let all = disagreements.len();
    let odd = sides.iter().find(|(_, count)| all > 1 && **count == all).map(|(rank, _)| *rank);
    let (culprits, certainty) = match odd {
        Some(rank) => (vec![rank], Certainty::Likely),
        None => (sides.keys().copied().collect(), Certainty::Undecidable),
    };
    let log = scene.job.log;
    let more = match all - 1 {
        0 => String::new(),
        more => format!(" {} more between other ranks.", words::count(more, "pair")),
    };
    let blame = match odd {
        Some(rank) => format!(" Rank {rank} is a side of all of them."),
        None => " Which of the two is wrong cannot be told from the splits.".to_owned(),
    };
    Some(Cause {
        kind: Kind::SplitMismatch,
        culprits,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(first.from.record.call.op.clone()),
        certainty,
        message: format!(
            "In {} rank {} sends {} elements to rank {}, which expects {}.{more}{blame}",
            words::call(log, first.from),
            first.from.rank,
            first.sends,
            first.to.rank,
            first.expects,
        ),
        fix: "input_split_sizes[j] of rank i must equal output_split_sizes[i] of rank j: exchange \
              the sizes with an all_to_all_single of one number a rank first, and build the output \
              splits from what arrives."
            .to_owned(),
        evidence: disagreements
            .iter()
            .take(8)
            .flat_map(|disagreement| {
                let Disagreement { from, sends, to, expects } = disagreement;
                let sender = format!("sends {sends} elements to rank {} in", to.rank);
                let receiver = format!("expects {expects} elements from rank {} in", from.rank);
                [evidence(scene, *from, &sender), evidence(scene, *to, &receiver)]
            })
            .collect(),
    })
}

fn disagreements<'a>(scene: &Scene<'a, '_>, row: &Row<'a>) -> Vec<Disagreement<'a>> {
    let Some(group) = scene.job.group(row.group) else { return Vec::new() };
    let made: Vec<_> = row
        .made
        .iter()
        .filter_map(|made| {
            let place = group.group_rank(made.rank)?;
            Some((*made, place.index(), splits(scene, *made)?))
        })
        .collect();
    let mut found = Vec::new();
    for (from, from_place, sent) in &made {
        for (to, to_place, expected) in &made {
            let sends = sent.input.get(*to_place).copied().unwrap_or(0);
            let expects = expected.output.get(*from_place).copied().unwrap_or(0);
            if sends != expects {
                found.push(Disagreement { from: *from, sends, to: *to, expects });
            }
        }
    }
    found
}

/// The splits that a rank passed, as its plan has them.
fn splits<'a>(scene: &Scene<'a, '_>, made: Made<'a>) -> Option<&'a Splits> {
    let op = made.record.plan_op?;
    let op = scene.job.log.plan.as_ref()?.program(made.rank)?.ops.get(op as usize)?;
    op.action.calls().iter().find_map(|call| match call {
        Call::Collective { splits, .. } => splits.as_ref(),
        _ => None,
    })
}
