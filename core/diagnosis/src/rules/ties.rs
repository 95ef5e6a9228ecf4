//! Findings of rows in which no call has a majority: who is wrong cannot be told, and both sides are named.

use crate::claim::deed_text::fix_skipped;
use crate::claim::difference_text::{describe, fix_of, kind_of};
use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::ddp_pass::one_pass;
use crate::facts::deed::Reason;
use crate::facts::loops::fix_loop;
use crate::facts::other_readings::tied_sizes;
use crate::facts::reason::reason;
use crate::facts::row_mismatch::{MAX_SIDES, Side};
use crate::kinds::Kind;
use crate::model::ddp_frames::DdpPart;
use crate::model::index::Row;
use crate::rules::ddp_passes;
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Difference;
use lockstep_core::words::rank_list;

/// Said of a tie between those who reduce the gradients of a pass, and those who do not.
const ONE_PASS: &str = " With the one call DDP reduces gradients, and with the other it begins the next \
                        forward pass: some left out a backward pass, or ran it under no_sync(), and the \
                        others did not.";

/// A tie between ranks that left a loop and ranks that are still in it.
struct Uneven {
    left: Vec<GlobalRank>,
    stayed: Vec<GlobalRank>,
    /// True if the loop is one of DDP's training steps.
    ddp: bool,
}

/// The two sides of a tie as that, if their calls or programs show it.
fn uneven(facts: &Facts<'_, '_>, row: &Row<'_>, one: &Side, other: &Side) -> Option<Uneven> {
    let (first, second) = (*one.ranks.first()?, *other.ranks.first()?);
    let of = |left: &Side, stayed: &Side, ddp| {
        Some(Uneven { left: left.ranks.clone(), stayed: stayed.ranks.clone(), ddp })
    };
    let why = |rank, peer| {
        let why = reason(facts.job, row.group, row.seq, rank, peer, one.difference);
        // Passes that reduce nothing are no rounds less.
        let (why, passes) = ddp_passes::told(facts.job, row.group, rank, peer, why);
        if passes.is_some() { Reason::Other } else { why }
    };
    match (why(first, second), why(second, first)) {
        (Reason::LeftLoop { ddp, .. }, _) | (_, Reason::StayedInLoop { ddp }) => {
            of(one, other, ddp)
        }
        (_, Reason::LeftLoop { ddp, .. }) | (Reason::StayedInLoop { ddp }, _) => {
            of(other, one, ddp)
        }
        _ => None,
    }
}

/// The finding of a row in which no call has a majority.
pub(crate) fn tie(facts: &Facts<'_, '_>, row: &Row<'_>, sides: &[Side]) -> Option<Claim> {
    let log = facts.job.log;
    let difference = sides.first()?.difference;
    let mut culprits: Vec<GlobalRank> = sides.iter().flat_map(|side| side.ranks.clone()).collect();
    culprits.sort_unstable();
    let mut said = Vec::new();
    let mut shown = Vec::new();
    for side in sides.iter().take(MAX_SIDES) {
        let made = row.of(*side.ranks.first()?)?;
        said.push(format!(
            "rank{} {} called {}{}",
            if side.ranks.len() == 1 { "" } else { "s" },
            rank_list(&side.ranks),
            describe(log, made, difference),
            words::at_line(words::line_of(log, made.rank, made.record)),
        ));
        let ranks = side.ranks.iter().take(8);
        shown.extend(ranks.filter_map(|rank| Some(evidence(facts, row.of(*rank)?, "called"))));
    }
    let made = *row.made.first()?;
    let base = Claim {
        kind: kind_of(difference),
        culprits,
        also_victims: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: Alternatives::AsLikely,
        message: String::new().into(),
        fix: fix_of(difference).to_owned(),
        evidence: shown,
    };
    if let [one, other] = sides
        && let Some(uneven) = uneven(facts, row, one, other)
    {
        let (kind, fix) = match uneven.ddp {
            true => (Kind::DdpUnevenInputs, fix_loop(true)),
            false => (Kind::LoopShorter, fix_loop(false)),
        };
        return Some(Claim {
            kind,
            message: format!(
                "{} left the {}loop at #{} of {}, or a round of it out, and {} went on with it. As many \
                 did the one as the other, so who made the wrong number of rounds cannot be told: {}.",
                cap_ranks(&uneven.left),
                if uneven.ddp { "DDP training " } else { "" },
                row.seq,
                words::group_label(log, row.group),
                ranks(&uneven.stayed),
                said.join("; "),
            ).into(),
            fix: fix.to_owned(),
            ..base
        });
    }
    let mut fix = base.fix.clone();
    let mut or = match sides {
        [one, other] if difference == Difference::Size => {
            tied_sizes(facts.job, row, &one.ranks, &other.ranks)
        }
        _ => None,
    };
    if let [one, other] = sides
        && let (Some(own), Some(theirs)) =
            (row.of(*one.ranks.first()?), row.of(*other.ranks.first()?))
        && one_pass(&[own.record], &[theirs.record]).is_some()
    {
        fix = fix_skipped(Some(DdpPart::Backward));
        or = Some(ONE_PASS.to_owned());
    } else if or.is_some() {
        fix += &format!(" If a call was left out: {}", words::uncapital(&fix_skipped(None)));
    }
    Some(Claim {
        message: format!(
            "At #{} of {} the ranks disagree and no call has a majority, so who is wrong cannot be \
             told: {}.{}",
            row.seq,
            words::group_label(log, row.group),
            said.join("; "),
            or.unwrap_or_default(),
        )
        .into(),
        fix,
        ..base
    })
}
