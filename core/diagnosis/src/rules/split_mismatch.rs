//! `all_to_all_single` calls whose parts disagree: what a rank sends to another is not what that one
//! expects, by the splits that they pass, or because one that passes none cuts a tensor of another
//! size into equal parts. Only a plan tells; recordings have no splits.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Made, Row};
use crate::rules::stuck_inside::{fitted_before, unequal_totals};
use crate::words;
use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::plan::Call;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::numel;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Two ranks that disagree on the elements between them.
struct Disagreement<'a> {
    /// True if neither of them passes splits.
    even: bool,
    from: Made<'a>,
    sends: u64,
    to: Made<'a>,
    expects: u64,
}

/// The causes of the open rows whose splits disagree, and those rows' indices.
pub(crate) fn claims(facts: &Facts<'_, '_>) -> (Vec<Claim>, Vec<usize>) {
    let rows = facts.job.open_rows();
    let found = rows.filter_map(|(at, row)| {
        let totals = || unequal_totals(facts, row).filter(|_| stays(facts, row));
        Some((claim(facts, row).or_else(totals)?, at))
    });
    found.unzip()
}

/// The first collective that all came out of, and in which more was sent than expected, or less: gloo lets
/// that pass, or fails it, and its recorder retires both.
pub(crate) fn ended_unequal(facts: &Facts<'_, '_>) -> Option<Claim> {
    /// After so many that never fitted before it is given up.
    const LOOKS: usize = 64;
    let ended = facts.job.rows.iter().filter(|row| !row.open());
    let unequal = ended.filter_map(|row| Some((row, unequal_totals(facts, row)?))).take(LOOKS);
    // If no call ever fits, a rank without a recording takes part in all of them.
    let found = unequal.filter(|(row, _)| fitted_before(facts, row).is_some());
    let found = found.map(|(row, claim)| (row.first_ps(), row.group, claim));
    let (_, _, mut claim) = found.min_by_key(|(first_ps, group, _)| (*first_ps, *group))?;
    claim.message.said +=
        " All came out of it: gloo lets that pass, with wrong data, or raises an error.";
    Some(claim)
}

/// True of a call that nobody comes out of, or nobody is seen to do anything after.
fn stays(facts: &Facts<'_, '_>, row: &Row<'_>) -> bool {
    row.made.iter().all(|made| {
        let last = facts.job.rank(made.rank).and_then(|log| log.calls.last());
        made.pending() || last.is_some_and(|last| last.work == made.record.work)
    })
}

fn claim(facts: &Facts<'_, '_>, row: &Row<'_>) -> Option<Claim> {
    let disagreements = disagreements(facts, row);
    let first = disagreements.first()?;
    // One rank that is a side of every disagreement, of several, is the odd one out.
    let mut sides: BTreeMap<GlobalRank, usize> = BTreeMap::new();
    for disagreement in &disagreements {
        *sides.entry(disagreement.from.rank).or_default() += 1;
        *sides.entry(disagreement.to.rank).or_default() += 1;
    }
    let all = disagreements.len();
    let odd = sides.iter().find(|(_, count)| all > 1 && **count == all).map(|(rank, _)| *rank);
    let (culprits, alternatives) = match odd {
        Some(rank) => (vec![rank], Alternatives::LessLikely),
        None => (sides.keys().copied().collect(), Alternatives::AsLikely),
    };
    let log = facts.job.log;
    let more = match all - 1 {
        0 => String::new(),
        more => format!(" {} more between other ranks.", words::count(more, "pair")),
    };
    let even = disagreements.iter().all(|disagreement| disagreement.even);
    let of = if even { "sizes" } else { "splits" };
    let blame = match odd {
        Some(rank) => format!(" Rank {rank} is a side of all of them."),
        None => format!(" Which of the two is wrong cannot be told from the {of}."),
    };
    let cut = match even {
        true => {
            " Without splits every rank cuts its tensors into as many equal parts as there are ranks."
        }
        false => "",
    };
    Some(Claim {
        kind: if even { Kind::SizeMismatch } else { Kind::SplitMismatch },
        culprits,
        also_victims: row.waiting(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(first.from.record.call.op.clone()),
        alternatives,
        message: format!(
            "In {} rank {} sends {} elements to rank {}, which expects {}.{more}{cut}{blame}",
            words::call(log, first.from),
            first.from.rank,
            first.sends,
            first.to.rank,
            first.expects,
        )
        .into(),
        fix: match even {
            true => FIX_EVEN,
            false => FIX,
        }
        .to_owned(),
        evidence: disagreements
            .iter()
            .take(8)
            .flat_map(|disagreement| {
                let Disagreement { from, sends, to, expects, .. } = disagreement;
                let sender = format!("sends {sends} elements to rank {} in", to.rank);
                let receiver = format!("expects {expects} elements from rank {} in", from.rank);
                [evidence(facts, *from, &sender), evidence(facts, *to, &receiver)]
            })
            .collect(),
    })
}

/// The fix of splits that disagree.
const FIX: &str = "input_split_sizes[j] of rank i must equal output_split_sizes[i] of rank j: exchange \
                   the sizes with an all_to_all_single of one number a rank first, and build the \
                   output splits from what arrives.";

/// The same where nobody passes splits.
const FIX_EVEN: &str = "Give the call tensors of the same size on every rank; or, where ranks have \
                        different numbers of elements for each other, pass input_split_sizes and \
                        output_split_sizes, exchanged with an all_to_all_single of one number a rank \
                        first.";

fn disagreements<'a>(facts: &Facts<'a, '_>, row: &Row<'a>) -> Vec<Disagreement<'a>> {
    let Some(group) = facts.job.group(row.group) else { return Vec::new() };
    let made: Vec<_> = row
        .made
        .iter()
        .filter_map(|made| {
            let place = group.group_rank(made.rank)?;
            Some((*made, place.index(), splits(facts, *made, group.size() as usize)?))
        })
        .collect();
    let mut found = Vec::new();
    for (from, from_place, (sent, cuts)) in &made {
        for (to, to_place, (expected, also)) in &made {
            let sends = sent.input.get(*to_place).copied().unwrap_or(0);
            let expects = expected.output.get(*from_place).copied().unwrap_or(0);
            if sends != expects {
                found.push(Disagreement {
                    even: *cuts && *also,
                    from: *from,
                    sends,
                    to: *to,
                    expects,
                });
            }
        }
    }
    found
}

/// The splits of a rank's call, as its plan has them, and whether they are the equal parts of one that
/// passes none.
fn splits<'a>(
    facts: &Facts<'a, '_>,
    made: Made<'a>,
    size: usize,
) -> Option<(Cow<'a, Splits>, bool)> {
    let call = &made.record.call;
    let op = made.record.plan_op?;
    let op = facts.job.log.plan.as_deref()?.program(made.rank)?.ops.get(op as usize)?;
    op.action.calls().iter().find_map(|planned| match planned {
        Call::Collective { splits: Some(splits), .. } => Some((Cow::Borrowed(&**splits), false)),
        Call::Collective { collective: Collective::AllToAll, .. } => {
            let part = |tensors| numel(tensors).checked_div(size as u64);
            let parts = |tensors| Some(vec![part(tensors)?; size]);
            let splits = Splits { input: parts(&call.inputs)?, output: parts(&call.outputs)? };
            Some((Cow::Owned(splits), true))
        }
        _ => None,
    })
}
