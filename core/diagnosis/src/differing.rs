//! Findings of rows whose calls differ.

use super::apart::{doubt, late, one_of_many};
use super::causes::{Cause, Scene, evidence};
use super::explain::{Deed, Reason, further, is_ddp, reason};
use super::in_ddp;
use super::in_step;
use super::index::{Made, Row};
use super::mismatch::{Decided, Mismatch, Side};
use super::passes;
use super::places::{OR_LEFT, nobody_else, nobody_else_through, or_else};
use super::report::{Certainty, Kind};
use super::rounds::{self, fix_loop};
use super::tied::tie;
use super::which;
use super::words::{self, cap_ranks, ranks, s};
use super::wrong_group;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_core::trace::{CallSignature, Difference};

/// More different minorities than this become one finding.
pub(super) const MAX_SIDES: usize = 8;

/// The causes behind one mismatch: one a side, or one for all in a tie.
pub(super) fn causes(scene: &Scene<'_, '_>, mismatch: &Mismatch) -> Vec<Cause> {
    let Some(row) = mismatch.row(scene) else { return Vec::new() };
    if mismatch.majority.is_empty() {
        return tie(scene, row, &mismatch.sides).into_iter().collect();
    }
    if let (true, Some(first)) = (mismatch.sides.len() > MAX_SIDES, mismatch.sides.first()) {
        // Everybody has a size of their own: one finding says it.
        let mut ranks: Vec<_> = mismatch.sides.iter().flat_map(|side| side.ranks.clone()).collect();
        ranks.sort_unstable();
        let all = Side { ranks, difference: first.difference };
        return minority(scene, row, mismatch, &all).into_iter().collect();
    }
    let sides = mismatch.sides.iter();
    sides.filter_map(|side| minority(scene, row, mismatch, side)).collect()
}

/// `all_reduce of 300 float32`, as far as the difference is about that.
pub(super) fn describe(log: &CallLog, made: Made<'_>, difference: Difference) -> String {
    let signature = CallSignature::of(&made.record.call);
    let op = words::op(log, made);
    let known = |text: Option<String>| text.unwrap_or_else(|| "nothing".to_owned());
    match difference {
        Difference::Op => op,
        Difference::Size => {
            let numel = known(signature.numel.map(|numel| numel.to_string()));
            format!("{op} of {numel} elements")
        }
        Difference::Dtype => {
            format!("{op} of {}", known(signature.dtype.map(|dtype| dtype.name().to_owned())))
        }
        Difference::ReduceOp => {
            format!("{op} with {}", known(signature.reduce_op.map(|op| op.name().to_owned())))
        }
        Difference::Root => {
            format!("{op} with root {}", known(signature.root.map(|root| root.to_string())))
        }
    }
}

pub(super) fn kind_of(difference: Difference) -> Kind {
    match difference {
        Difference::Op => Kind::CollectiveMismatch,
        Difference::Size => Kind::SizeMismatch,
        Difference::Dtype => Kind::DtypeMismatch,
        Difference::ReduceOp => Kind::ReduceOpMismatch,
        Difference::Root => Kind::RootMismatch,
    }
}

pub(super) fn fix_of(difference: Difference) -> &'static str {
    match difference {
        Difference::Op => {
            "Find the branch that sends ranks to different calls, and make every rank of the group \
             call the same collective there."
        }
        Difference::Size => {
            "Give the call a tensor of the same number of elements on every rank: look for a last \
             batch that is smaller, a filter that keeps different counts, or a shape that depends \
             on the rank."
        }
        Difference::Dtype => {
            "Cast to one dtype on every rank before the call: look for autocast, a default dtype or \
             a checkpoint that differs between ranks."
        }
        Difference::ReduceOp => "Pass the same op= on every rank.",
        Difference::Root => {
            "Pass the same src= or dst= on every rank; it must not depend on the rank."
        }
    }
}

fn minority(
    scene: &Scene<'_, '_>,
    row: &Row<'_>,
    mismatch: &Mismatch,
    side: &Side,
) -> Option<Cause> {
    let log = scene.job.log;
    let majority = mismatch.majority.as_slice();
    let history = match mismatch.decided {
        Decided::ByMajority => "",
        Decided::ByMajorityOfRecorded => {
            " Nothing was recorded of other members, who may have called either."
        }
        Decided::ByHistory => {
            " As many ranks called the one as the other, but all calls of that line before \
                 were as the latter."
        }
        Decided::ByHistoryOfRecorded => {
            " Nothing was recorded of other members, who may have called either, but all calls of that \
             line before were as the latter."
        }
        Decided::ByOrder => " No majority tells, but in all rounds before the latter came next.",
        Decided::Elsewhere { .. } => {
            " As many ranks called the one as the other, but the ranks of other groups go through \
             the program as the latter."
        }
    };
    let culprit = *side.ranks.first()?;
    let peer =
        mismatch.model.filter(|rank| row.of(*rank).is_some()).or(majority.first().copied())?;
    let (own, theirs) = (row.of(culprit)?, row.of(peer)?);
    let told = match mismatch.decided {
        // A plan tells by itself.
        Decided::Elsewhere { model, .. } if log.plan.is_none() => {
            in_step::reason(scene.job, culprit, model)
        }
        _ => None,
    };
    let told = told.filter(|(group, _)| *group == row.group).map(|(_, why)| why);
    let why = told
        .unwrap_or_else(|| reason(scene.job, row.group, row.seq, culprit, peer, side.difference));
    let (why, passes) =
        passes::told(scene.job, row.group, culprit, peer, mismatch.decided.doubted(why));
    let by_times = which::by_times(scene.job, (row.group, row.seq), culprit, peer, &why);
    let why = match by_times.filter(|deed| deed.pause.is_some()) {
        Some(deed) => Reason::Skipped(deed),
        None => why,
    };
    let group = words::group_label(log, row.group);
    let who = cap_ranks(&side.ranks);
    let [own_line, their_line] = words::lines_of_both(log, own, theirs);
    let here = format!(
        "At #{} of {group} {} called {}{} while {} called {}{}",
        row.seq,
        ranks(&side.ranks),
        describe(log, own, side.difference),
        words::at_line(own_line),
        ranks(majority),
        describe(log, theirs, side.difference),
        words::at_line(their_line),
    );
    let waits = words::and_who_waits(row);
    let doubt = match log.plan.is_some() || why == Reason::Replaced {
        true => None,
        false => doubt(scene.job, row, own, theirs, side.difference),
    };
    let mut cause = Cause {
        kind: kind_of(side.difference),
        culprits: side.ranks.clone(),
        also_victims: majority
            .iter()
            .copied()
            .filter(|rank| row.of(*rank).is_some_and(|m| m.pending()))
            .collect(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(theirs.record.call.op.clone()),
        certainty: match mismatch.decided {
            Decided::ByMajority if doubt.is_none() => Certainty::Certain,
            _ => Certainty::Likely,
        },
        message: format!("{here}{waits}.{history}{}", doubt.unwrap_or_default()),
        fix: fix_of(side.difference).to_owned(),
        evidence: sides_seen(scene, row, majority, &side.ranks),
    };
    if let [rank] = side.ranks.as_slice()
        && let Some(mut wrong) =
            wrong_group::differing(scene, row, mismatch.decided, *rank, &why, &cause)
    {
        wrong.message += &format!(" {here}{waits}.");
        return Some(wrong);
    }
    match why {
        Reason::Replaced | Reason::Other => {}
        Reason::Skipped(mut deed) => {
            let many = deed.pause.is_none() && one_of_many(scene.job, row, theirs, &deed);
            if many {
                deed.certainty = deed.certainty.max(Certainty::Likely);
            }
            let of_pass = in_ddp::of_pass(own.record, theirs.record, true);
            let or = match many {
                _ if !of_pass.is_empty() => of_pass,
                true => ONE_OF_MANY,
                false => late(scene.job, row, own, &deed),
            };
            cause.kind = Kind::OpSkipped;
            cause.seq = Some(deed.told_seq());
            cause.op = Some(deed.op.clone());
            cause.certainty = deed.certainty;
            cause.message = format!("{} {here}{waits}.{or}", skipped(&who, &deed, &group));
            cause.fix = match many && of_pass.is_empty() {
                true => fix_loop(deed.ddp).to_owned(),
                false => fix_skipped(deed.ddp),
            };
        }
        Reason::Unused(deed) => {
            cause.kind = Kind::DdpUnusedParameters;
            cause.seq = Some(deed.seq);
            cause.op = Some(deed.op.clone());
            cause.certainty = deed.certainty;
            cause.message = format!("{} {here}{waits}.", unused(&who, &deed, &group));
            cause.fix = FIX_UNUSED.to_owned();
        }
        Reason::Extra(deed) => {
            cause.kind = Kind::OpExtra;
            cause.seq = Some(deed.seq);
            cause.op = Some(deed.op.clone());
            cause.certainty = deed.certainty;
            let only = nobody_else(scene, row, &side.ranks, deed.line.as_deref());
            let or = or_else(scene, row, own, theirs, &deed);
            let of_pass = in_ddp::of_pass(own.record, theirs.record, false);
            let (only, or) = if of_pass.is_empty() { (only, or) } else { (String::new(), of_pass) };
            cause.message = format!("{}{only} {here}{waits}.{or}", extra(&who, &deed, &group));
            cause.fix = match of_pass.is_empty() {
                true if or == OR_LEFT => {
                    let ddp = is_ddp(&theirs.record.call.stack) && !is_ddp(&own.record.call.stack);
                    format!("{FIX_EXTRA} If it left the loop: {}", words::uncapital(fix_loop(ddp)))
                }
                true => FIX_EXTRA.to_owned(),
                false => fix_skipped(true),
            };
        }
        Reason::Swapped(deed) => {
            cause.kind = Kind::OpsSwapped;
            cause.certainty = deed.certainty;
            let line = deed.other.as_ref().and_then(|(_, line)| line.as_deref());
            let unsure = log.plan.is_none() && deed.certainty != Certainty::Certain;
            let other = line.filter(|_| unsure);
            let only = match nobody_else(scene, row, &side.ranks, other) {
                _ if deed.count > 2 => String::new(),
                only if !unsure => only,
                only => format!(
                    "{only} It may as well have made that call besides, or left the other out."
                ),
            };
            cause.message = format!("{}{only} {here}{waits}.", swapped(&who, &deed, &group));
            cause.fix = FIX_SWAPPED.to_owned();
        }
        Reason::StayedInLoop { ddp } => {
            cause.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::OpExtra };
            cause.op = Some(own.record.call.op.clone());
            cause.certainty = Certainty::Likely;
            // A plan tells which of them it is.
            let told = log.plan.is_some();
            cause.message = format!("{} {here}{waits}.", rounds::stayed(&who, ddp, told));
            cause.fix = fix_loop(ddp).to_owned();
        }
        Reason::LeftLoop { ddp, rounds, short_by } => {
            cause.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter };
            cause.certainty = Certainty::Likely;
            let who = (who.as_str(), side.ranks.as_slice());
            let left = rounds::left(who, ddp, rounds, short_by, passes.is_some());
            cause.message = format!("{left} {here}{waits}.");
            cause.fix = fix_loop(ddp).to_owned();
            let line = words::line_of(log, culprit, own.record);
            if short_by.is_none() && log.plan.is_none() {
                let only = nobody_else_through(scene, row, &side.ranks, own);
                cause.message += &only;
                // Nothing tells what stands behind the loop.
                if !only.is_empty() || line.is_none() {
                    cause.message +=
                        " If that is no call behind the loop, it is one call too many.";
                    cause.fix +=
                        &format!(" If the call is one too many: {}", words::uncapital(FIX_EXTRA));
                }
            }
        }
    }
    let told_as = cause.kind != kind_of(side.difference);
    if told_as && !cause.message.ends_with(history) {
        // What tells it is shown, whatever it is told as.
        cause.message += history;
    }
    cause.certainty = mismatch.decided.at_most(cause.certainty);
    if told_as && mismatch.decided == Decided::ByHistory {
        cause.message += &format!(" {} may be astray instead.", cap_ranks(majority));
    }
    let further = further(scene.job, row.group, row.seq, culprit, peer);
    if !further.is_empty() {
        let it = if side.ranks.len() == 1 { "it" } else { "they" };
        cause.message += &format!(" Further on {it} {}.", further.join("; "));
    }
    Some(passes::with(cause, passes))
}

/// Said of a call left out that is one of several in a row.
const ONE_OF_MANY: &str = " The calls before are like it: it may have left out any of them instead, or left \
                           their loop early, as with fewer batches (uneven data).";

/// `Rank 2 left out all_reduce #7 of dp (train.py:88).`
pub(super) fn skipped(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    let likely = if deed.certainty == Certainty::Certain { "" } else { " most likely" };
    if let Some(pause) = deed.pause {
        return format!(
            "{who}{likely} never called {} #{} of {group}{line}: it is one of #{} to #{}, which are all \
             alike, and {}.",
            deed.named(),
            pause.seq,
            deed.seq,
            deed.last_seq,
            pause.said()
        );
    }
    if deed.last_seq > deed.seq {
        return format!(
            "{who}{likely} never called one {} of {group} that the others call{line}: one of \
             #{} to #{}, which are all alike, so the recording cannot tell which.",
            deed.named(),
            deed.seq,
            deed.last_seq
        );
    }
    let more = if deed.count > 1 { format!(" and {} more", deed.count - 1) } else { String::new() };
    let op = deed.named();
    format!("{who}{likely} never called {op} #{} of {group}{line}{more}.", deed.seq)
}

/// `Rank 0 made 1 call more of dp than the others: …`; of a plan, whose later calls it may not have
/// come to, `Rank 0's program makes 8 calls …`. The others may make calls from that line as well:
/// [`super::places::nobody_else`] says where they do not.
pub(super) fn extra(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    let likely = if deed.certainty == Certainty::Certain { "" } else { " most likely" };
    let calls = words::count(deed.count, "call");
    let made = match deed.planned {
        true => format!("{who}'s program{likely} makes"),
        false => format!("{who}{likely} made"),
    };
    format!(
        "{made} {calls} more of {group} than the others: {} at #{}{line}.",
        deed.named(),
        deed.seq
    )
}

/// What to do about calls in another order.
pub(super) const FIX_SWAPPED: &str = "Make the calls of a group in the same order on every rank; never \
    let the order depend on the rank, a set or a dict that ranks build differently.";

/// `Rank 1 made two calls of dp in the other order: …`
pub(super) fn swapped(who: &str, deed: &Deed, group: &str) -> String {
    let (other, other_line) = deed.other.clone().unwrap_or_default();
    let likely = if deed.certainty == Certainty::Certain { "" } else { " most likely" };
    if deed.count > 2 {
        let count = deed.count;
        let orders = if other.is_empty() { other } else { format!(": {other}") };
        return format!("{who}{likely} made {count} calls of {group} in another order{orders}.");
    }
    format!(
        "{who}{likely} made two calls of {group} in the other order: {other}{} before {}{}.",
        words::at_line(other_line),
        deed.named(),
        words::at_line(deed.line.clone()),
    )
}

/// What to do about a call that only some ranks make.
pub(super) const FIX_EXTRA: &str = "Make the call on every rank of the group, or on none: look for a \
                                    branch around it, such as `if rank == 0:` around logging or a \
                                    checkpoint.";

/// What to do about a call that a rank leaves out.
pub(super) fn fix_skipped(ddp: bool) -> String {
    if ddp {
        return "Run the same passes on every rank: look for a batch that one rank skips (an out of \
                memory error that is caught, a NaN), and for no_sync() around different steps."
            .to_owned();
    }
    "Make the call on every rank of the group, or on none: look for a `continue`, an early return, \
     an exception that is swallowed, or a condition that is not the same on all ranks."
        .to_owned()
}

/// What to do about parameters that get no gradient.
pub(super) const FIX_UNUSED: &str = "Pass find_unused_parameters=True to \
    DistributedDataParallel, or let every parameter take part in the loss on every rank (add \
    0 * output.sum() of the branch that is not taken).";

/// `Rank 2's backward pass left parameters without a gradient …`
pub(super) fn unused(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    format!(
        "{who} ran the backward pass like the others, but never called {} #{} of {group}{line}, \
         with which DDP reduces a bucket: some of the bucket's parameters got no gradient.",
        deed.op, deed.seq
    )
}

/// A call of each side as evidence; of the majority a few are enough.
fn sides_seen(
    scene: &Scene<'_, '_>,
    row: &Row<'_>,
    majority: &[GlobalRank],
    others: &[GlobalRank],
) -> Vec<super::report::Evidence> {
    let shown = others.iter().take(16).chain(majority.iter().take(4));
    shown.filter_map(|rank| Some(evidence(scene, row.of(*rank)?, "called"))).collect()
}

/// `Rank 2 waits` or `Ranks 0-1 wait`.
pub(super) fn waits(list: &[GlobalRank]) -> String {
    format!("{} wait{}", ranks(list), s(list))
}
