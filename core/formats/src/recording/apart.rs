//! Sources that are of different jobs, or of different times: a profile of another run that lies beside a job's dumps.
//!
//! Two recorders of one rank see a call at the same time, by the clock of the rank's machine. Training repeats itself, so
//! that the calls of another run, or of earlier steps, look the same.

use super::fill::{Clock, SharedCalls};
use crate::job_calls::Merged;
use lockstep_core::trace::{CallRecord, Origin, TraceHeader};

/// Two recorders see one call within this time.
const SAME_CALL_PS: u128 = 1_000_000_000_000;

/// A recording that begins before 2001 counts its times from something else than 1970.
const FIRST_EPOCH_NS: u64 = 1_000_000_000_000_000_000;

/// A sentence that says why `from` is not of the same job and time as `into`, and that it is left out; `None` if it may be.
/// `shared` are the calls that agree, `clock` is that of `from`.
pub(super) fn left_out_note(
    into: &Merged,
    from: &Merged,
    clock: Clock,
    shared: &SharedCalls,
) -> Option<String> {
    let why = reason(into, from, clock, shared)?;
    let files = files_of(&from.header);
    let are = if files.len() == 1 { "it is" } else { "they are" };
    let named = match files {
        [] => "The other recording".to_owned(),
        [one] => one.clone(),
        [first, second] => format!("{first} and {second}"),
        [first, others @ ..] => format!("{first} and {} more files", others.len()),
    };
    let dumps = match files_of(&into.header) {
        [one] => one.as_str(),
        _ => "the job's other files",
    };
    Some(format!("{named} and {dumps} do not belong together, so {are} left out: {why}."))
}

fn files_of(header: &TraceHeader) -> &[String] {
    match &header.origin {
        Origin::Recorded { files, .. } => files,
        _ => &[],
    }
}

fn reason(into: &Merged, from: &Merged, clock: Clock, shared: &SharedCalls) -> Option<String> {
    let both = || {
        into.log.logs().filter_map(|(rank, own)| {
            let other = from.log.ranks.get(rank.index())?.as_ref()?;
            (!own.calls.is_empty() && !other.calls.is_empty()).then_some((rank, own, other))
        })
    };
    both().next()?;
    let are_dated = [into, from].iter().all(|it| it.header.epoch_ns >= FIRST_EPOCH_NS);
    let later_ps = match clock {
        Clock::LaterBy(later_ps) => later_ps,
        Clock::None => return None,
    };
    let made = |record: &CallRecord| i128::from(record.scheduled_ps) + later_ps;
    if shared.is_empty() {
        let (own, other) = (into.header.world_size, from.header.world_size);
        if own != other {
            return Some(format!(
                "none of the calls is in both, and one shows a job of {other} ranks, the other a job of {own}"
            ));
        }
        // A ring keeps the last calls only: calls that are older than its first one are not in it.
        let is_newer = |own: &[CallRecord], other: &[CallRecord]| {
            let first_ps = own.iter().map(|record| i128::from(record.scheduled_ps)).min();
            other.iter().all(|record| Some(made(record)) >= first_ps)
        };
        let are_newer =
            are_dated && both().all(|(_, own, other)| is_newer(&own.calls, &other.calls));
        return are_newer.then(|| {
            "its calls were made after the first one of the other files, and none of them is there".to_owned()
        });
    }
    if !are_dated {
        return None;
    }
    // By how much the calls of `from` were made later, in the median of a rank's calls: the nearest of all ranks.
    let offsets = both().filter_map(|(rank, own, other)| {
        let pairs = shared.get(&rank)?.iter();
        let mut later: Vec<i128> = pairs
            .filter_map(|(at, there)| {
                let here_ps = i128::from(own.calls.get(*at)?.scheduled_ps);
                Some(made(other.calls.get(*there)?) - here_ps)
            })
            .collect();
        later.sort_unstable();
        later.get(later.len() / 2).copied()
    });
    let nearest = offsets.min_by_key(|later_ps| later_ps.unsigned_abs())?;
    (nearest.unsigned_abs() > SAME_CALL_PS).then(|| {
        format!(
            "calls that look the same were made {:.1} s {} there",
            nearest.unsigned_abs() as f64 / 1e12,
            if nearest > 0 { "later" } else { "earlier" }
        )
    })
}
