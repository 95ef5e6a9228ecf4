//! Tells recordings of a hung job from recordings of a job that was running.
//!
//! Their dumps look alike: one rank has not made a call yet, and others wait for it. The length of the
//! wait tells them apart. It shows only if something was recorded long after the call, or if a log says
//! that a call timed out.

use crate::claim::Claim;
use crate::claim::message::{Doubt, Reason};
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::Job;
use crate::words::ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, CallState, Outcome, RankLog, RankState};

/// A shorter wait is one that data, checkpoints or compilers cost a healthy job.
const LONG_PS: u64 = 30_000_000_000_000;

/// And it is so many times as long as the longest time between two calls of those who wait.
const LONG_TIMES: u64 = 4;

/// Makes a finding that somebody has not come no surer than the time that the others are seen to have
/// waited.
pub(crate) fn soften(job: &Job<'_>, claim: &mut Claim) {
    // An undecided claim needs no further doubt.
    if job.log.outcome == Outcome::TimedOut || claim.open() == Alternatives::AsLikely {
        return;
    }
    let Some(waiting) = waiting(job, claim) else { return };
    let Some((most, why)) = may_run(job, claim, &waiting) else { return };
    let told = |doubt: &&mut Doubt| doubt.reason == Reason::StillRunning;
    match claim.message.doubts.iter_mut().find(told) {
        Some(doubt) => doubt.weight = doubt.weight.max(most),
        None => {
            let text = format!("Or the job was still running when this was recorded: {why}.");
            claim.doubt(Doubt { reason: Reason::StillRunning, weight: most, text });
        }
    }
}

/// True if those who wait in the call of a finding are seen to have waited long, or a log says that it timed
/// out.
pub(crate) fn waited_long(job: &Job<'_>, claim: &Claim) -> bool {
    let timed_out = job.log.outcome == Outcome::TimedOut;
    timed_out
        || waiting(job, claim)
            .is_some_and(|waiting| waited_ps(job, claim, &waiting).is_some_and(|it| it >= LONG_PS))
}

/// The same of a real run that did not end by itself, of which it is known that each rank would have come
/// in its time: the plan says so. What ended with a rank's death is explained by it; and a run that somebody
/// cancels, or that is ended from outside ([`run_end`](crate::run_end) tells why), accuses nobody. Nor does a
/// simulation that was stopped, however long its ranks have waited: virtual time says nothing of how soon others come.
pub(crate) fn soften_run(job: &Job<'_>, claims: &mut Vec<Claim>) {
    let log = job.log;
    let stopped = log.simulated && log.outcome == Outcome::Cancelled;
    if log.recorded || log.simulated && !stopped {
        return;
    }
    let long_ps = if stopped { u64::MAX } else { LONG_PS };
    let cut = match &log.outcome {
        Outcome::Unknown => "the run went on behind what is seen of it, or was ended from outside",
        Outcome::Cancelled | Outcome::Failed { .. } | Outcome::RankDied { .. } => "",
        Outcome::Completed | Outcome::TimedOut | Outcome::RankStopped { .. } => return,
    };
    let never_comes = |rank: &GlobalRank| {
        let stands = |own: &RankLog| own.state == RankState::Finished || own.unresponsive.is_some();
        job.rank(*rank).is_some_and(stands)
    };
    let unsure = |claim: &Claim| {
        let waiting = waiting(job, claim)?;
        let comes = claim.culprits.is_empty() || !claim.culprits.iter().all(never_comes);
        waited_ps(job, claim, &waiting).filter(|waited_ps| comes && *waited_ps < long_ps)
    };
    if matches!(log.outcome, Outcome::Cancelled | Outcome::Failed { .. }) {
        claims.retain(|claim| {
            let in_it = claim.kind == Kind::CallNeverCompleted
                && waited_ps(job, claim, &[]).is_some_and(|waited_ps| waited_ps < long_ps);
            !in_it && unsure(claim).is_none()
        });
        return;
    }
    if let Outcome::RankDied { rank, .. } = &log.outcome {
        claims.retain(|claim| {
            let other = claim.kind == Kind::RankNeverJoined && !claim.culprits.contains(rank);
            !other || unsure(claim).is_none()
        });
        return;
    }
    for claim in claims {
        let Some(waited_ps) = unsure(claim) else { continue };
        let text = format!(
            "Or {} only had not come to it yet: {cut}, and the last that is seen of it is {} ms after that call.",
            ranks(&claim.culprits),
            waited_ps / 1_000_000_000
        );
        claim.doubt(Doubt::not_seen(Alternatives::AsLikely, text));
    }
}

/// The ranks that wait in the call of a finding that somebody has not come to it; `None` for other findings.
fn waiting(job: &Job<'_>, claim: &Claim) -> Option<Vec<GlobalRank>> {
    let (group, seq) = claim.group.zip(claim.seq)?;
    let op = claim.op.as_deref().unwrap_or_default();
    let p2p = op.contains("send") || op.contains("recv");
    if p2p {
        return (claim.kind == Kind::RankNeverJoined).then(Vec::new);
    }
    let rows = job.rows_of(group);
    let row = rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?)?;
    let waiting = row.waiting();
    match claim.kind {
        Kind::RankNeverJoined => Some(waiting),
        // A rank that waits alone may be the first to have come.
        Kind::OpExtra if waiting == claim.culprits && row.open() => Some(waiting),
        // It may be a dump that is missing, and no rank.
        Kind::RankMissing if !waiting.is_empty() => {
            job.log.logs().any(|(_, own)| own.recording.dumped_early).then_some(waiting)
        }
        _ => None,
    }
}

/// The greatest certainty of a finding, with the reason.
fn may_run(job: &Job<'_>, claim: &Claim, waiting: &[GlobalRank]) -> Option<(Alternatives, String)> {
    let early = job.log.logs().filter(|(_, own)| own.recording.dumped_early).map(|(rank, _)| rank);
    let early: Vec<GlobalRank> = early.collect();
    let who = if waiting.is_empty() { "the others".to_owned() } else { ranks(waiting) };
    if let Some(waited_ps) = waited_ps(job, claim, waiting) {
        if waited_ps >= LONG_PS {
            return None;
        }
        if early.is_empty() {
            let why = match waited_ps / 1_000_000_000 {
                0 => format!("it does not show how long {who} had waited"),
                ms => format!("its newest time stamp is only {ms} ms after that call"),
            };
            let most = match at_the_start(job, claim, waiting) {
                true => Alternatives::AsLikely,
                false => Alternatives::LessLikely,
            };
            return Some((most, why));
        }
    }
    Some(match early.is_empty() {
        true => (Alternatives::LessLikely, format!("{who} had not waited unusually long")),
        false => {
            let why = format!("it was when {} dumped, and went on since", ranks(&early));
            (Alternatives::AsLikely, why)
        }
    })
}

/// True where nobody has come out of a call yet, and those who have not come to the first one may be as many
/// as those who have: nothing that they did before shows that they are late.
fn at_the_start(job: &Job<'_>, claim: &Claim, waiting: &[GlobalRank]) -> bool {
    let none = |rank: &GlobalRank| job.rank(*rank).is_some_and(|own| own.calls.is_empty());
    let started = |own: &RankLog| {
        own.is_cut() || own.calls.iter().any(|record| record.state == CallState::Completed)
    };
    let members = claim.group.and_then(|group| job.group(group)).map(|group| group.ranks());
    let unseen = members.unwrap_or_default().iter().filter(|rank| job.rank(**rank).is_none());
    claim.kind == Kind::RankNeverJoined
        && claim.culprits.iter().all(none)
        && waiting.len() <= claim.culprits.len() + unseen.count()
        && !job.log.logs().any(|(_, own)| started(own))
}

/// Time that the waiting ranks are seen to have waited, in picoseconds; `None` where that is long,
/// and they are seen to have paused about as long before.
fn waited_ps(job: &Job<'_>, claim: &Claim, waiting: &[GlobalRank]) -> Option<u64> {
    let is_it = |record: &CallRecord| {
        let same = Some(record.call.group) == claim.group && record.seq == claim.seq;
        same && record.state != CallState::Completed
    };
    let (mut since_ps, mut pause_ps) = (u64::MAX, 0);
    let mut newest_ps = job.log.ended_ps.unwrap_or_default();
    for (rank, own) in job.log.logs() {
        let waits = waiting.is_empty() || waiting.binary_search(&rank).is_ok();
        let mut last_ps = None;
        for record in &own.calls {
            let seen = [Some(record.scheduled_ps), record.started_ps, record.completed_ps];
            newest_ps = seen.into_iter().flatten().fold(newest_ps, u64::max);
            if waits {
                let before_ps = last_ps.replace(record.scheduled_ps);
                let pause = record.scheduled_ps.saturating_sub(before_ps.unwrap_or(u64::MAX));
                pause_ps = pause.max(pause_ps);
                if is_it(record) {
                    since_ps = record.scheduled_ps.min(since_ps);
                }
            }
        }
    }
    let waited_ps = newest_ps.saturating_sub(since_ps);
    (waited_ps < LONG_PS || waited_ps / LONG_TIMES >= pause_ps).then_some(waited_ps)
}
