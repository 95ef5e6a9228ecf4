//! Findings of rows whose calls differ.

use crate::claim::deed_text::{
    FIX_EXTRA, FIX_SWAPPED, FIX_UNUSED, ONE_OF_MANY, extra, fix_skipped, skipped, swapped, unused,
};
use crate::claim::difference_text::{describe, fix_of, kind_of};
use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::call_sites::{
    OtherReading, in_one_statement, nobody_else, nobody_else_through, or_else,
};
use crate::facts::ddp_pass::of_pass;
use crate::facts::deed::{Deed, Reason};
use crate::facts::gave_up;
use crate::facts::loops;
use crate::facts::loops::fix_loop;
use crate::facts::other_readings::{doubt, late, one_of_many};
use crate::facts::pauses;
use crate::facts::program_order;
use crate::facts::reason::{further, reason};
use crate::facts::row_mismatch::{Decided, MAX_SIDES, Mismatch, Side};
use crate::kinds::Kind;
use crate::model::ddp_frames::{DdpPart, is_ddp};
use crate::model::index::{Made, Row};
use crate::rules::ddp_passes;
use crate::rules::ties::tie;
use crate::rules::wrong_group;
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;

/// The causes behind one mismatch: one a side, or one for all in a tie.
pub(crate) fn claims(facts: &Facts<'_, '_>, mismatch: &Mismatch) -> Vec<Claim> {
    let Some(row) = mismatch.row(facts) else { return Vec::new() };
    if mismatch.majority.is_empty() {
        return tie(facts, row, &mismatch.sides).into_iter().collect();
    }
    if let (true, Some(first)) = (mismatch.sides.len() > MAX_SIDES, mismatch.sides.first()) {
        // Everybody has a size of their own: one finding says it.
        let mut ranks: Vec<_> = mismatch.sides.iter().flat_map(|side| side.ranks.clone()).collect();
        ranks.sort_unstable();
        let all = Side { ranks, difference: first.difference };
        return minority(facts, row, mismatch, &all).into_iter().collect();
    }
    let sides = mismatch.sides.iter();
    sides.filter_map(|side| minority(facts, row, mismatch, side)).collect()
}

/// A side of a row whose calls differ from the majority's.
struct Deviation<'s, 'a, 'j> {
    facts: &'s Facts<'a, 'j>,
    row: &'s Row<'a>,
    mismatch: &'s Mismatch,
    side: &'s Side,
    /// The first rank of the side, which stands for all of them.
    culprit: GlobalRank,
    /// The rank of the majority whose later calls are compared with the culprit's.
    peer: GlobalRank,
    own: Made<'a>,
    theirs: Made<'a>,
}

/// The claim of one side of a row whose calls differ.
fn minority(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    mismatch: &Mismatch,
    side: &Side,
) -> Option<Claim> {
    let culprit = *side.ranks.first()?;
    let model = mismatch.model.filter(|rank| row.of(*rank).is_some());
    let peer = model.or(mismatch.majority.first().copied())?;
    let (own, theirs) = (row.of(culprit)?, row.of(peer)?);
    Some(Deviation { facts, row, mismatch, side, culprit, peer, own, theirs }.claim())
}

impl Deviation<'_, '_, '_> {
    fn claim(&self) -> Claim {
        let (why, passes) = self.reason();
        let decided = self.mismatch.decided;
        let mut claim = self.base(why == Reason::Replaced);
        if let [rank] = self.side.ranks.as_slice()
            && let Some(mut wrong) =
                wrong_group::differing(self.facts, self.row, decided, *rank, &why, &claim)
        {
            wrong.message.said += &format!(" {}.", self.both_calls());
            return wrong;
        }
        match why {
            Reason::Replaced | Reason::Other => {}
            Reason::Skipped(deed) => self.skipped(&mut claim, deed),
            Reason::Unused(deed) => {
                self.about(&mut claim, Kind::DdpUnusedParameters, &deed);
                self.say(&mut claim, &unused(&self.who(), &deed, &self.group()), "");
                claim.fix = FIX_UNUSED.to_owned();
            }
            Reason::Extra(deed) => self.extra(&mut claim, deed),
            Reason::Swapped(deed) => self.swapped(&mut claim, &deed),
            Reason::StayedInLoop { ddp } => {
                claim.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::OpExtra };
                claim.op = Some(self.own.record.call.op.clone());
                claim.alternatives = Alternatives::LessLikely;
                // A plan tells which of them it is.
                let is_told = self.is_planned();
                self.say(&mut claim, &loops::stayed(&self.who(), ddp, is_told), "");
                claim.fix = fix_loop(ddp).to_owned();
            }
            Reason::LeftLoop { ddp, rounds, short_by } => {
                let who = self.who();
                let who = (who.as_str(), self.side.ranks.as_slice());
                let left = loops::left(who, ddp, rounds, short_by, passes.is_some());
                self.say(&mut claim, &left, "");
                self.left_loop(&mut claim, ddp, short_by);
            }
        }
        if claim.kind != kind_of(self.side.difference) {
            // The evidence for the usual call is named, whatever the difference is told as.
            claim.message.said += self.evidence_for_majority();
            if decided == Decided::ByHistory {
                let majority = cap_ranks(&self.mismatch.majority);
                claim.message.said += &format!(" {majority} may be astray instead.");
            }
        }
        claim.alternatives = decided.at_most(claim.alternatives);
        claim.message.said += &self.further();
        ddp_passes::with(claim, passes)
    }

    /// The reason that the call differs, and two backward passes that differ, if they are behind it.
    fn reason(&self) -> (Reason, Option<ddp_passes::Told>) {
        let (job, row) = (self.facts.job, self.row);
        let (culprit, peer) = (self.culprit, self.peer);
        let elsewhere = match self.mismatch.decided {
            // A plan tells by itself.
            Decided::Elsewhere { model, .. } if !self.is_planned() => {
                program_order::reason(job, culprit, model)
            }
            _ => None,
        };
        let elsewhere = elsewhere.filter(|(group, _)| *group == row.group).map(|(_, why)| why);
        let why = elsewhere.unwrap_or_else(|| {
            reason(job, row.group, row.seq, culprit, peer, self.side.difference)
        });
        let why = self.mismatch.decided.doubted(why);
        let (why, passes) = ddp_passes::told(job, row.group, culprit, peer, why);
        let by_times = pauses::by_times(job, (row.group, row.seq), culprit, peer, &why);
        let why = match by_times.filter(|deed| deed.pause.is_some()) {
            Some(deed) => Reason::Skipped(deed),
            None => why,
        };
        let of_a_loop = matches!(why, Reason::LeftLoop { .. } | Reason::StayedInLoop { .. });
        let (own, theirs) = (self.own.record, self.theirs.record);
        match of_a_loop && in_one_statement(job, row.group, own, theirs, culprit) {
            true => (Reason::Replaced, passes),
            false => (why, passes),
        }
    }

    /// The claim that the calls differ, and nothing else is known.
    fn base(&self, is_replaced: bool) -> Claim {
        let (facts, row, difference) = (self.facts, self.row, self.side.difference);
        let doubt = match self.is_planned() || is_replaced {
            true => None,
            false => doubt(facts.job, row, self.own, self.theirs, difference),
        };
        let majority = self.mismatch.majority.as_slice();
        let waits = |rank: &GlobalRank| row.of(*rank).is_some_and(|made| made.pending());
        let gave_up = self.gave_up();
        let victim = |rank: &GlobalRank| waits(rank) || gave_up.contains(rank);
        Claim {
            kind: kind_of(difference),
            culprits: self.side.ranks.clone(),
            also_victims: majority.iter().copied().filter(victim).collect(),
            group: Some(row.group),
            seq: Some(row.seq),
            op: Some(self.theirs.record.call.op.clone()),
            alternatives: match self.mismatch.decided {
                Decided::ByMajority if doubt.is_none() => Alternatives::None,
                _ => Alternatives::LessLikely,
            },
            message: format!(
                "{}.{}{}",
                self.both_calls(),
                self.evidence_for_majority(),
                doubt.unwrap_or_default()
            )
            .into(),
            fix: fix_of(difference).to_owned(),
            evidence: sides_seen(facts, row, majority, &self.side.ranks),
        }
    }

    fn skipped(&self, claim: &mut Claim, mut deed: Deed) {
        let (job, row) = (self.facts.job, self.row);
        let one_of_many = deed.pause.is_none() && one_of_many(job, row, self.theirs, &deed);
        if one_of_many {
            deed.alternatives = deed.alternatives.max(Alternatives::LessLikely);
        }
        let of_pass = of_pass(self.own.record, self.theirs.record, true);
        let otherwise = match one_of_many {
            _ if !of_pass.is_empty() => of_pass,
            true => ONE_OF_MANY,
            false => late(job, row, self.own, &deed),
        };
        self.about(claim, Kind::OpSkipped, &deed);
        claim.seq = Some(deed.told_seq());
        self.say(claim, &skipped(&self.who(), &deed, &self.group()), otherwise);
        claim.fix = match one_of_many && of_pass.is_empty() {
            true => fix_loop(deed.ddp.is_some()).to_owned(),
            false => fix_skipped(deed.ddp),
        };
    }

    fn extra(&self, claim: &mut Claim, deed: Deed) {
        let (own, theirs) = (self.own, self.theirs);
        self.about(claim, Kind::OpExtra, &deed);
        let said = extra(&self.who(), &deed, &self.group());
        let of_pass = of_pass(own.record, theirs.record, false);
        if !of_pass.is_empty() {
            self.say(claim, &said, of_pass);
            claim.fix = fix_skipped(Some(DdpPart::Backward));
            return;
        }
        let only = nobody_else(self.facts, self.row, &self.side.ranks, deed.line.as_deref());
        let otherwise = or_else(self.facts, self.row, own, theirs, &deed);
        let text = otherwise.map(OtherReading::text).unwrap_or_default();
        self.say(claim, &format!("{said}{only}"), text);
        claim.fix = FIX_EXTRA.to_owned();
        if otherwise == Some(OtherReading::LeftLoop) {
            let ddp = is_ddp(&theirs.record.call.stack) && !is_ddp(&own.record.call.stack);
            claim.fix += &format!(" If it left the loop: {}", words::uncapital(fix_loop(ddp)));
        }
    }

    fn swapped(&self, claim: &mut Claim, deed: &Deed) {
        claim.kind = Kind::OpsSwapped;
        claim.alternatives = deed.alternatives;
        let unsure = !self.is_planned() && deed.alternatives != Alternatives::None;
        let line = deed.other.as_ref().and_then(|(_, line)| line.as_deref());
        let only = nobody_else(self.facts, self.row, &self.side.ranks, line.filter(|_| unsure));
        let otherwise =
            " It may as well have made that call besides, or left the other out.".to_owned();
        let only = match unsure {
            _ if deed.count > 2 => String::new(),
            true => only + &otherwise,
            false => only,
        };
        let said = swapped(&self.who(), deed, &self.group());
        self.say(claim, &format!("{said}{only}"), "");
        claim.fix = FIX_SWAPPED.to_owned();
    }

    fn left_loop(&self, claim: &mut Claim, ddp: bool, short_by: Option<usize>) {
        claim.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter };
        claim.alternatives = Alternatives::LessLikely;
        claim.fix = fix_loop(ddp).to_owned();
        if short_by.is_some() || self.is_planned() {
            return;
        }
        let only = nobody_else_through(self.facts, self.row, &self.side.ranks, self.own);
        claim.message.said += &only;
        let line = words::line_of(self.facts.job.log, self.culprit, self.own.record);
        // Without a line, or from a line of its own, it may be a call behind the loop or one on top.
        if !only.is_empty() || line.is_none() {
            claim.message.said += " If that is no call behind the loop, it is one call too many.";
            claim.fix += &format!(" If the call is one too many: {}", words::uncapital(FIX_EXTRA));
        }
    }

    /// Makes it a claim about the calls of a deed.
    fn about(&self, claim: &mut Claim, kind: Kind, deed: &Deed) {
        claim.kind = kind;
        claim.seq = Some(deed.seq);
        claim.op = Some(deed.op.clone());
        claim.alternatives = deed.alternatives;
    }

    /// Makes the text the deed, both calls, and another explanation (with a space before it).
    fn say(&self, claim: &mut Claim, deed: &str, otherwise: &str) {
        claim.message.said = format!("{deed} {}.{otherwise}", self.both_calls());
    }

    /// `At #7 of dp rank 2 called …, while ranks 0 and 1 called …`, and the ranks that wait there.
    fn both_calls(&self) -> String {
        let (log, difference) = (self.facts.job.log, self.side.difference);
        let [own_line, their_line] = words::lines_of_both(log, self.own, self.theirs);
        format!(
            "At #{} of {} {} called {}{} while {} called {}{}{}",
            self.row.seq,
            self.group(),
            ranks(&self.side.ranks),
            describe(log, self.own, difference),
            words::at_line(own_line),
            ranks(&self.mismatch.majority),
            describe(log, self.theirs, difference),
            words::at_line(their_line),
            words::and_who_waits(self.row),
        ) + &self.and_who_gave_up()
    }

    /// The ranks of the majority that gave up on the call, as their logs say, though the recorder has
    /// it as done: gloo retires a call that fails too (`ProcessGroupGloo.cpp`, `Work::finish`).
    fn gave_up(&self) -> Vec<GlobalRank> {
        let said = gave_up::who(&self.facts.other_sources.heard);
        let done = |rank: &GlobalRank| self.row.of(*rank).is_some_and(|made| !made.pending());
        let majority = self.mismatch.majority.iter().copied();
        majority.filter(|rank| said.contains(rank) && done(rank)).collect()
    }

    fn and_who_gave_up(&self) -> String {
        match self.gave_up().as_slice() {
            [] => String::new(),
            some => format!("; {} gave up, as the log says", ranks(some)),
        }
    }

    /// The evidence that the majority's call is the usual one, where it is not the number of ranks.
    fn evidence_for_majority(&self) -> &'static str {
        match self.mismatch.decided {
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
            Decided::ByOrder => {
                " No majority tells, but in all rounds before the latter came next."
            }
            Decided::Elsewhere { .. } => {
                " As many ranks called the one as the other, but the ranks of other groups go through \
                 the program as the latter."
            }
        }
    }

    /// The later deviations of the rank, in a sentence with a space before it.
    fn further(&self) -> String {
        let further =
            further(self.facts.job, self.row.group, self.row.seq, self.culprit, self.peer);
        if further.is_empty() {
            return String::new();
        }
        let it = if self.side.ranks.len() == 1 { "it" } else { "they" };
        format!(" Further on {it} {}.", further.join("; "))
    }

    fn who(&self) -> String {
        cap_ranks(&self.side.ranks)
    }

    fn group(&self) -> String {
        words::group_label(self.facts.job.log, self.row.group)
    }

    fn is_planned(&self) -> bool {
        self.facts.job.log.plan.is_some()
    }
}

/// A call of each side as evidence; of the majority a few are enough.
fn sides_seen(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    majority: &[GlobalRank],
    others: &[GlobalRank],
) -> Vec<crate::report::Evidence> {
    let shown = others.iter().take(16).chain(majority.iter().take(4));
    shown.filter_map(|rank| Some(evidence(facts, row.of(*rank)?, "called"))).collect()
}
