//! Findings of ranks that others wait for and that wait for nobody: missing, or busy with something
//! else.

use crate::claim::deed_text::{FIX_UNUSED, fix_skipped, skipped, unused};
use crate::claim::message::{Guess, Message};
use crate::claim::{Claim, evidence, no_call};
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::{Deed, Reason};
use crate::facts::loops::{alike_since, fix_loop, left_out};
use crate::facts::pauses;
use crate::facts::reason::from_plan_of;
use crate::facts::skipped_line::skipped_by_lines;
use crate::facts::tally::Tally;
use crate::facts::{Facts, device_stall, full_rows, idle, rows_without};
use crate::kinds::Kind;
use crate::model::index::{Job, Made, Row};
use crate::report::Evidence;
use crate::rules::ddp_models;
use crate::rules::ddp_passes;
use crate::rules::ddp_waits;
use crate::rules::extra_callers;
use crate::rules::monitored_barrier;
use crate::rules::out_of_step::skipped_among_groups;
use crate::rules::rank_missing;
use crate::rules::send_recv_pairs;
use crate::rules::stuck_inside;
use crate::rules::unanswered_message::unanswered;
use crate::rules::wrong_group;
use crate::words;
use crate::words::{cap_ranks, capital, ranks, waits};
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, RankState};

/// The findings of ranks at which waiting ends. Ranks that are missed in the same call are one
/// finding.
pub(crate) fn claims(facts: &Facts<'_, '_>, alone: &[GlobalRank]) -> Vec<Claim> {
    let mut parts: Vec<(Vec<GlobalRank>, Vec<usize>)> = Vec::new();
    let unknown = |rank: &GlobalRank| {
        was_on_its_way(facts, *rank)
            || facts.job.rank(*rank).is_some_and(|own| own.recording.dumped_early)
    };
    for rank in alone.iter().filter(|rank| !unknown(rank)) {
        let recorded = facts.job.rank(*rank).is_some();
        let mut merged =
            (vec![*rank], rows_without(facts, *rank).map(|(_, at)| at).collect::<Vec<_>>());
        // Union with every part that shares a row; a rank with no dump is told apart.
        parts.retain(|(ranks, rows)| {
            let alike =
                ranks.first().is_some_and(|first| facts.job.rank(*first).is_some() == recorded);
            let shares = alike && rows.iter().any(|row| merged.1.binary_search(row).is_ok());
            if shares {
                merged.0.extend(ranks);
                merged.1.extend(rows);
                merged.1.sort_unstable();
                merged.1.dedup();
            }
            !shares
        });
        merged.0.sort_unstable();
        parts.push(merged);
    }
    let (mut found, mut alone_lost) = (Vec::new(), Vec::new());
    for (ranks, rows) in parts {
        let rows = rows.iter().filter_map(|at| facts.job.rows.get(*at));
        let lacking = |row: &Row<'_>| ranks.iter().filter(|rank| row.lacks(**rank)).count();
        // Of calls made at one time, the one that a rank made first.
        let first = |row: &Row<'_>| row.made.iter().map(|made| made.record.work).min();
        let row = rows.min_by_key(|row| {
            (std::cmp::Reverse(lacking(row)), row.first_ps(), first(row), row.group, row.seq)
        });
        match row {
            Some(row) => found.extend(never_joined(facts, &ranks, row).map(|mut claim| {
                if let Some(said) = monitored_barrier::said(facts, row, &claim.culprits) {
                    claim.message.added.push(format!("In the log: \"{said}\"."));
                }
                claim
            })),
            None => {
                let answered = ranks.iter().filter_map(|rank| unanswered(facts, *rank));
                found.extend(answered);
                alone_lost.extend(ranks);
            }
        }
    }
    found.extend(rank_missing::claims(facts, &alone_lost));
    found
}

/// True if a real run was ended by another rank's death while this one was at work: nobody knows
/// that it would not have come. Its plan may say so.
fn was_on_its_way(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let job = facts.job;
    let log = job.log;
    let ended_by_a_death = matches!(log.outcome, Outcome::RankDied { .. });
    if !ended_by_a_death || log.recorded || log.simulated {
        return false;
    }
    let Some(RankState::AtOp(_)) = job.rank(rank).map(|own| &own.state) else { return false };
    let told_by_plan = rows_without(facts, rank).any(|(row, _)| {
        let made = row.made.iter().find(|made| made.pending());
        made.is_some_and(|made| {
            !matches!(from_plan_of(job, row.group, rank, made.rank), Reason::Other)
        })
    });
    !told_by_plan
}

/// The finding of ranks that never made a call in which others wait, with the lines of their stacks.
pub(crate) fn never_joined(
    facts: &Facts<'_, '_>,
    culprits: &[GlobalRank],
    row: &Row<'_>,
) -> Option<Claim> {
    let mut claim = MissedCall::of(facts, culprits, row)?.claim();
    claim.add_stacks(facts.other_sources);
    Some(claim)
}

/// A call in which ranks wait, and the ranks that never made it.
struct MissedCall<'s, 'a, 'j> {
    facts: &'s Facts<'a, 'j>,
    row: &'s Row<'a>,
    culprits: &'s [GlobalRank],
    /// The first of the culprits: where they are told apart by nothing, it stands for all.
    first: GlobalRank,
    /// The first call that waits.
    made: Made<'a>,
    /// The ranks that wait in it.
    waiting: Vec<GlobalRank>,
    /// The call in words.
    call: String,
}

impl<'s, 'a, 'j> MissedCall<'s, 'a, 'j> {
    /// Nothing if nobody waits in the call, or nobody is missed.
    fn of(
        facts: &'s Facts<'a, 'j>,
        culprits: &'s [GlobalRank],
        row: &'s Row<'a>,
    ) -> Option<MissedCall<'s, 'a, 'j>> {
        let made = row.made.iter().find(|made| made.pending()).copied()?;
        Some(MissedCall {
            facts,
            row,
            culprits,
            first: *culprits.first()?,
            made,
            waiting: row.waiting(),
            call: words::call(facts.job.log, made),
        })
    }

    /// The finding as the calls tell it: the reason that is surest goes first.
    fn claim(&self) -> Claim {
        let base = self.base();
        if self.facts.job.rank(self.first).is_none() {
            return self.without_dumps(base);
        }
        let (facts, row, culprits) = (self.facts, self.row, self.culprits);
        if let Some(claim) = stuck_inside::claim(facts, culprits)
            .or_else(|| self.waits_of_ddp(&base))
            .or_else(|| extra_callers::claim(facts, culprits, row, &base))
        {
            return claim;
        }
        let tally = Tally::of(facts, row, culprits);
        if facts.job.log.plan.is_none()
            && let Some(claim) = wrong_group::by_count(facts, row, &base)
                .or_else(|| extra_callers::by_count(facts, culprits, row, &tally, &base))
        {
            return claim;
        }
        let (why, passes) = self.reason();
        let otherwise = self.too_many_instead(&tally);
        match self.with_reason(&base, why, &otherwise) {
            Some(claim) => ddp_passes::with(claim, passes),
            None => self.unexplained(base, otherwise),
        }
    }

    /// A claim that the culprits never made the call, with everything but the message and the fix.
    fn base(&self) -> Claim {
        let (job, row) = (self.facts.job, self.row);
        let recorded = || self.culprits.iter().filter_map(|rank| job.rank(*rank));
        let may_be_elsewhere = job.members_are_worked_out(row.group)
            && job.last_call(row.group, self.first).is_none()
            // A call in which nobody is missing may hold it up as well, or one that the ring dropped.
            || self.culprits.iter().any(|rank| full_rows(self.facts, *rank).next().is_some())
            || self.culprits.iter().any(|rank| send_recv_pairs::stands_in_one(self.facts, *rank))
            || recorded().any(|own| !own.recording.unended.is_empty());
        let waiting = row.made.iter().filter(|made| made.pending()).take(4);
        let mut shown: Vec<Evidence> =
            waiting.map(|made| evidence(self.facts, *made, "waits in")).collect();
        let has_dump = job.rank(self.first).is_some();
        shown.extend(self.culprits.iter().take(16).map(|rank| match has_dump {
            true => last_call(self.facts, *rank, row),
            false => no_call(*rank, "left no dump"),
        }));
        Claim {
            kind: Kind::RankNeverJoined,
            culprits: self.culprits.to_vec(),
            also_victims: Vec::new(),
            group: Some(row.group),
            seq: Some(row.seq),
            op: Some(self.made.record.call.op.clone()),
            alternatives: match may_be_elsewhere {
                true => Alternatives::LessLikely,
                false => Alternatives::None,
            },
            message: String::new().into(),
            fix: String::new(),
            evidence: shown,
        }
    }

    /// The claim about ranks of which nothing was recorded.
    fn without_dumps(&self, base: Claim) -> Claim {
        let row = self.row;
        let (they, is, was) = match self.culprits {
            [_] => ("it", "is", "was"),
            _ => ("they", "are", "were"),
        };
        let needs_all = matches!(
            self.made.record.call.op.as_str(),
            "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier"
        );
        let completed = row.made.iter().filter(|made| needs_all && !made.pending());
        let completed: Vec<GlobalRank> = completed.map(|made| made.rank).collect();
        let on_gloo = is_on_gloo(self.facts, row);
        // A process that is stopped answers nobody who asks for its dump.
        let dead_or_stopped = format!(
            "Either {they} {is} dead, crashed or killed before the others noticed, or {is} stopped and \
             answer{} nobody, or only the dump is missing.",
            words::s(self.culprits),
        );
        let causes = match completed.as_slice() {
            [] => dead_or_stopped,
            completed if on_gloo => format!(
                "{dead_or_stopped} But {} came out of it: if it did not fail there, which gloo's recorder \
                 does not tell, {they} {was} in it, and only the dump is left out.",
                ranks(completed)
            ),
            completed => format!(
                "But {} came out of it, which needs everybody: {they} {was} in it, and only the dump is \
                 left out, or {they} crashed in it.",
                ranks(completed)
            ),
        };
        Claim {
            kind: Kind::RankMissing,
            // Without the missing ranks the call cannot have ended well for anybody.
            also_victims: row.made.iter().map(|made| made.rank).collect(),
            alternatives: match row.absent.is_empty() && (completed.is_empty() || on_gloo) {
                true => Alternatives::LessLikely,
                false => Alternatives::AsLikely,
            },
            message: Message {
                said: format!(
                    "Nothing was recorded of {}, and {} in {}.",
                    ranks(self.culprits),
                    waits(&self.waiting),
                    self.call
                ),
                guess: Some(Guess::Several(causes)),
                ..Message::default()
            },
            fix: "Look at the end of the missing rank's own log and at its machine (out of memory, a \
                  device error, a preemption; ps shows a stopped process as T). If its dump exists, add it."
                .to_owned(),
            ..base
        }
    }

    /// The claim where every culprit waits in DDP's own code for something else.
    fn waits_of_ddp(&self, base: &Claim) -> Option<Claim> {
        let reasons = self.culprits.iter();
        let reasons = reasons
            .map(|rank| ddp_waits::reason(self.facts, *rank, self.row.group, self.made))
            .collect::<Option<Vec<_>>>()?;
        let (kind, why, fix) = reasons.first().copied()?;
        let claim = Claim {
            kind,
            alternatives: Alternatives::LessLikely,
            message: format!("{} {why}", self.never_called()).into(),
            fix: fix.to_owned(),
            ..base.clone()
        };
        Some(match kind {
            Kind::DdpModelMismatch => ddp_models::of_raised(self.facts, self.row, claim),
            _ => claim,
        })
    }

    /// The deviation from the others that kept the culprits from the call, as the plan, the lines or the
    /// calls of other groups tell it.
    fn reason(&self) -> (Reason, Option<ddp_passes::Told>) {
        let (job, row, peer) = (self.facts.job, self.row, self.made.rank);
        let mut why = from_plan_of(job, row.group, self.first, peer);
        if why == Reason::Other {
            why = skipped_by_lines(job, row.group, row.seq, self.first, peer);
        }
        if why == Reason::Other {
            why = skipped_among_groups(self.facts, self.culprits, row);
        }
        ddp_passes::told(job, row.group, self.first, peer, why)
    }

    /// The other explanation where no majority made the call: it may be the one too many.
    fn too_many_instead(&self, tally: &Tally) -> Otherwise {
        let is_told = match self.facts.job.log.plan.is_some() {
            true => self.row.made.len() > self.culprits.len(),
            false => tally.tells(),
        };
        if is_told {
            return Otherwise::default();
        }
        Otherwise {
            weight: Alternatives::LessLikely,
            text: or_too_many(self.row, self.culprits, tally),
        }
    }

    /// The claim with a reason, if there is one.
    fn with_reason(&self, base: &Claim, why: Reason, otherwise: &Otherwise) -> Option<Claim> {
        let who = cap_ranks(self.culprits);
        let group = words::group_label(self.facts.job.log, self.row.group);
        match why {
            Reason::Skipped(deed) => Some(self.skipped(base, deed, otherwise)),
            Reason::Unused(deed) => Some(Claim {
                kind: Kind::DdpUnusedParameters,
                seq: Some(deed.seq),
                op: Some(deed.op.clone()),
                alternatives: deed.alternatives,
                message: format!("{} {}.", unused(&who, &deed, &group), self.they_wait()).into(),
                fix: FIX_UNUSED.to_owned(),
                ..base.clone()
            }),
            Reason::LeftLoop { ddp, short_by, .. } => Some(Claim {
                kind: if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter },
                message: format!(
                    "{who} left the {}loop before the others{}: {} in {}.{}",
                    if ddp { "DDP training " } else { "" },
                    left_out(short_by),
                    waits(&self.waiting),
                    self.call,
                    otherwise.text
                )
                .into(),
                fix: fix_loop(ddp).to_owned(),
                alternatives: base.alternatives.max(otherwise.weight).max(Alternatives::LessLikely),
                ..base.clone()
            }),
            Reason::Extra(_)
            | Reason::Swapped(_)
            | Reason::StayedInLoop { .. }
            | Reason::Replaced
            | Reason::Other => None,
        }
    }

    /// The claim that the culprits left calls out, this one or earlier ones of its group.
    fn skipped(&self, base: &Claim, mut deed: Deed, otherwise: &Otherwise) -> Claim {
        let wrong_group = match self.culprits {
            [rank] => wrong_group::of(self.facts, *rank, self.row)
                .filter(|wrong| wrong.meant == Some(self.row.group)),
            _ => None,
        };
        deed.alternatives = deed.alternatives.max(otherwise.weight);
        let then = if deed.seq == self.row.seq {
            let finished = finished(self.facts.job, self.culprits).unwrap_or_default();
            format!("{}.{finished}", capital(&self.they_wait()))
        } else {
            format!(
                "Its later calls were matched one too early, so that {} now wait{} in {}.",
                ranks(&self.waiting),
                words::s(&self.waiting),
                self.call
            )
        };
        let group = words::group_label(self.facts.job.log, self.row.group);
        let skipped = skipped(&cap_ranks(self.culprits), &deed, &group);
        Claim {
            kind: Kind::OpSkipped,
            seq: Some(deed.seq),
            op: Some(deed.op.clone()),
            alternatives: deed.alternatives,
            message: match &wrong_group {
                Some(wrong) => format!("{} {skipped} {then}", wrong.said),
                None => format!("{skipped} {then}{}", otherwise.text),
            }
            .into(),
            fix: match wrong_group {
                Some(wrong) => wrong.fix,
                None => fix_skipped(deed.ddp),
            },
            ..base.clone()
        }
    }

    /// The claim where nothing tells the reason: the position of the culprits, and other explanations.
    fn unexplained(&self, base: Claim, otherwise: Otherwise) -> Claim {
        // Of programs that are alike, whoever is not there is late.
        let otherwise = match self.facts.job.log.plan.is_some() {
            true => Otherwise::default(),
            false => otherwise,
        };
        Claim {
            message: format!(
                "{}{}{}{}",
                self.never_called(),
                self.position(),
                self.left_out_earlier(),
                otherwise.text
            )
            .into(),
            fix: fix_never_joined(self.facts, self.first, self.made),
            alternatives: base.alternatives.max(otherwise.weight),
            ..base
        }
    }

    /// `Rank 2 never called all_reduce #7 …; ranks 0 and 1 wait there.`
    fn never_called(&self) -> String {
        let who = cap_ranks(self.culprits);
        format!("{who} never called {}; {}.", self.call, self.they_wait())
    }

    /// `ranks 0 and 1 wait there`
    fn they_wait(&self) -> String {
        format!("{} there", waits(&self.waiting))
    }

    /// A sentence on the position of the culprits, with a space before it, or nothing.
    fn position(&self) -> String {
        let facts = self.facts;
        match self.culprits {
            [rank] => position_of(facts, *rank, self.row),
            many if many.iter().all(|rank| device_stall(facts, *rank)) => {
                " Their own last calls did not complete on them, though they did on others: most \
                 likely their devices or processes are stuck."
                    .to_owned()
            }
            many if many.iter().all(|rank| idle(facts, *rank)) => {
                let unseen = match is_unseen(facts, many, self.row) {
                    true => {
                        ", or in a send, a receive or new_group, which gloo's recorder leaves out,"
                    }
                    false => ",",
                };
                format!(
                    " They have no call under way: they are stuck in their own code{unseen} or ended."
                )
            }
            _ => String::new(),
        }
    }

    /// The other explanation of calls that are all alike for long: an earlier one was left out.
    fn left_out_earlier(&self) -> String {
        let (job, row) = (self.facts.job, self.row);
        let Some(from) = alike_since(job, row.group, row.seq, self.first) else {
            return String::new();
        };
        let last_was_here = |rank: &GlobalRank| {
            let last = job.rank(*rank).and_then(|log| log.calls.last());
            last.is_some_and(|last| last.call.group == row.group)
        };
        let told = job.log.plan.is_none()
            && from < row.seq
            && self.culprits.iter().all(|rank| idle(self.facts, *rank) && last_was_here(rank));
        match told {
            true => pauses::or_left_out(job, row, self.culprits, from),
            false => String::new(),
        }
    }
}

/// Another explanation that is open: its weight, and a sentence with a space before it.
#[derive(Default)]
struct Otherwise {
    weight: Alternatives,
    text: String,
}

/// True if the group of a row is one of gloo's.
fn is_on_gloo(facts: &Facts<'_, '_>, row: &Row<'_>) -> bool {
    facts.job.group(row.group).is_some_and(|group| group.backend() == BackendName::Gloo)
}

/// The other possibility where no majority made a call.
fn or_too_many(row: &Row<'_>, culprits: &[GlobalRank], tally: &Tally) -> String {
    let made: Vec<GlobalRank> = row.made.iter().map(|made| made.rank).collect();
    if tally.unknown > 0 && row.made.len() > culprits.len() {
        return format!(
            " Or {} made calls too many: nothing was recorded of {}, which would tell.",
            ranks(&made),
            ranks(&row.unrecorded)
        );
    }
    format!(" Or {} made calls too many: no more ranks made this one than did not.", ranks(&made))
}

fn fix_never_joined(facts: &Facts<'_, '_>, rank: GlobalRank, made: Made<'_>) -> String {
    let fix = match facts.job.rank(rank).map(|log| &log.state) {
        Some(RankState::Finished) => {
            "Make every rank of the group make the call: look for a branch or a loop that ends \
             earlier on this rank."
        }
        _ => {
            "Look at what the rank does between its last call and this one: a data loader or a \
             checkpoint that blocks, a branch around the call, an exception that was swallowed, a \
             device error. py-spy dump --pid shows where it stands."
        }
    };
    let bucket = match made.record.call.is_ddp_bucket() {
        true => {
            " If it is past its backward pass, a parameter of this bucket got no gradient there: its \
             log says \"Expected to have finished reduction in the prior iteration\" then."
        }
        false => "",
    };
    format!("{fix}{bucket}")
}

/// ` Its last call was …`, or the position that its plan tells.
fn position_of(facts: &Facts<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> String {
    let log = facts.job.log;
    let Some(own) = facts.job.rank(rank) else { return String::new() };
    let last = own.calls.last().map(|record| Made { rank, record });
    match (&own.state, last) {
        (RankState::Finished, _) => finished(facts.job, &[rank]).unwrap_or_default().to_owned(),
        (RankState::AtOp(at), _) if !at.name.is_empty() => {
            format!(" It stands at {}{}.", at.name, words::at_line(at.line.clone()))
        }
        (_, Some(last)) if last.pending() => match device_stall(facts, rank) {
            true => format!(
                " Its own last calls, up to {}, did not complete on it, though they did on others: \
                 most likely its device or its process is stuck.",
                words::call(log, last)
            ),
            false => format!(" Its last call was {}.", words::call(log, last)),
        },
        (_, Some(last)) => {
            let same = last.record.call.group == row.group;
            let so = match (same, is_unseen(facts, &[rank], row)) {
                (true, true) => {
                    ", which completed: it is stuck after it, in its own code or in a send, a receive or \
                     new_group, which gloo's recorder leaves out, or it ended"
                }
                (true, false) => {
                    ", which completed: it is stuck in its own code after it, or ended"
                }
                (false, _) => "",
            };
            let unready = ddp_waits::unready(last.record, row);
            format!(" Its last call was {}{so}.{unready}", words::call(log, last))
        }
        (_, None) => " It has no call under way: it is stuck in its own code, or ended.".to_owned(),
    }
}

/// Of a rank that is at its program's end.
fn finished(job: &Job<'_>, culprits: &[GlobalRank]) -> Option<&'static str> {
    let [rank] = culprits else { return None };
    let ended = job.rank(*rank)?.state == RankState::Finished;
    ended.then_some(" It finished its program without it.")
}

/// True if these ranks may be in calls that their recorders leave out, as gloo's do.
fn is_unseen(facts: &Facts<'_, '_>, many: &[GlobalRank], row: &Row<'_>) -> bool {
    let own = many.iter().filter_map(|rank| facts.job.rank(*rank));
    let mut calls = own.flat_map(|own| &own.calls);
    facts.job.log.recorded && is_on_gloo(facts, row) && !calls.any(|record| record.call.p2p)
}

/// The last call of a rank, of the row's group if it made one, as evidence.
fn last_call(facts: &Facts<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> Evidence {
    let last = facts.job.last_call(row.group, rank).or_else(|| facts.job.rank(rank)?.calls.last());
    match last {
        Some(record) => {
            // Others have completed a call behind it: the rank has made that one too, unrecorded. What a
            // process that stops has written down last may not have left it.
            let passed = |seq: u64| record.call.group == row.group && seq + 1 < row.seq;
            let verb = if record.seq.is_some_and(passed) {
                "was last seen to call"
            } else {
                "last called"
            };
            evidence(facts, Made { rank, record }, verb)
        }
        None => no_call(rank, "made no call that is still recorded"),
    }
}
