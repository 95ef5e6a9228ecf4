//! The messages of NCCL's watchdog (`ProcessGroupNCCL.cpp`, and the other backends' that were made
//! after it): which collective timed out, and how far a rank has come in a group.
//!
//! Every release words it otherwise, and some leave the group out of the line that names the
//! collective; the line behind it has both the collective's number and the group.

use super::line_words::{after, number, word};
use super::statement::Said;
use super::writer::speaker;

/// The message in a line of the watchdog.
pub(super) enum Line {
    /// A collective timed out.
    Fired(Said),
    /// The progress of the rank in a group, and the number of the work that failed, if that is said.
    Stood { said: Said, failed: Option<u64> },
    /// The rank timed out in a collective, whichever it was.
    Signalled,
    /// Ranks of a group are behind the others, and never joined the call of a number:
    /// `TORCH_NCCL_DESYNC_DEBUG`.
    Behind { ranks: Vec<u64>, said: Said, next: Option<u64> },
    /// The watchdog's own thread stood still.
    Stuck(Said),
    /// The watchdog ended the process because of an error of the rank's own device.
    DeviceError(Said),
    /// The backend ended the process because of an error of its communicator.
    Aborted(Said),
}

/// A line of the watchdog, and the rank that it is about.
pub(super) fn of_line(line: &str, say: &mut dyn FnMut(u64, Line)) {
    let (group, in_group) = prefix(line);
    let spoken = speaker(line).map(|(rank, _)| rank);
    // Behind `Rank` stands the rank in the group, which is another one in groups of some ranks.
    let own = spoken.or(in_group.filter(|_| is_world(&group)));
    if line.contains("Watchdog caught collective operation timeout")
        && let Some(rank) = own.or_else(|| after(line, "Rank ").and_then(number))
        && let Some(seq) = after(line, "SeqNum=").and_then(number)
    {
        let say_number = |what: &str| after(line, what).and_then(number);
        let said = Said::TimedOut {
            group,
            seq,
            op: word(after(line, "OpType=").unwrap_or_default()),
            numel_in: say_number("NumelIn="),
            numel_out: say_number("NumelOut="),
        };
        return say(rank, Line::Fired(said));
    }
    if let Some(by) = after(line, "due to a collective timeout from  rank ").and_then(number) {
        say(by, Line::Signalled);
    }
    if let Some((rank, said)) = aborted(line, spoken) {
        return say(rank, said);
    }
    let Some(rank) = own else { return };
    if line.contains("Heartbeat monitor timed out") {
        let works = after(line, "workMetaList_.size()=").and_then(number);
        return say(rank, Line::Stuck(Said::StuckWatchdog { works }));
    }
    if let Some(error) = after(line, "watchdog thread terminated with exception: ")
        && error.starts_with("CUDA error")
    {
        let error = error.trim_end().to_owned();
        return say(rank, Line::DeviceError(Said::Raised { error, frame: None, source: None }));
    }
    if line.contains("due to a collective timeout from this local rank") {
        say(rank, Line::Signalled);
    }
    let Some(enqueued) = last(line, "ast enqueued ") else { return };
    let completed = last(line, "ast completed ");
    let at = ["at work sequence id: ", "at work: ", "at NCCL work: "];
    let failed = at.iter().find_map(|what| after(line, what)).and_then(number);
    // torch 2.3 prints memory that nobody set.
    let completed = completed.filter(|completed| *completed <= enqueued);
    say(rank, Line::Stood { said: Said::Stood { group, enqueued, completed }, failed });
}

/// The rank that torch 2.15's NCCL backend ends, and why (`ProcessGroupNCCL::abortProcess`):
/// `[TC][rank=3][name=0] Aborting process on rank 3 due to timeout - …`. The line counts ranks in its group.
fn aborted(line: &str, spoken: Option<u64>) -> Option<(u64, Line)> {
    let (before, rest) = line.split_once("Aborting process on rank ")?;
    let group = after(before, "[name=").and_then(|rest| rest.split(']').next());
    let rank = spoken.or(number(rest).filter(|_| is_world(group.unwrap_or_default())))?;
    let (_, reason) = rest.split_once(" due to ")?;
    if reason.starts_with("timeout") {
        return Some((rank, Line::Signalled));
    }
    // An error of the communicator: most often another rank is gone.
    let error = reason.strip_prefix("error - ")?.trim_end().to_owned();
    let said = Said::GaveUp { error, frame: None, source: None, call: None };
    Some((rank, Line::Aborted(said)))
}

/// The group whose desync report begins below a line: one that ends behind the watchdog's prefix,
/// `[PG ID 0 PG GUID 0(default_pg) Rank 3]`, or `ProcessGroupNCCL.cpp:1937] Rank 0` of releases that name no
/// group.
pub(super) fn begins_report(line: &str) -> Option<String> {
    let line = line.trim_end();
    if line.contains("[PG ") && line.ends_with(']') {
        return Some(prefix(line).0);
    }
    let (_, behind) = line.rsplit_once("] Rank ")?;
    let is_number = !behind.is_empty() && behind.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && line.contains("ProcessGroupNCCL.cpp:")).then(String::new)
}

/// The report of `TORCH_NCCL_DESYNC_DEBUG=1` below the line of a group (`TraceUtils.h`); `group` is
/// that one's, and its ranks are the job's where it is the default group.
pub(super) fn of_report(line: &str, group: &str, say: &mut dyn FnMut(u64, Line)) {
    let (Some(ranks), true) = (listed(line), is_world(group)) else { return };
    let stood = |enqueued: u64, completed: u64| Said::Stood {
        group: group.to_owned(),
        enqueued,
        completed: Some(completed),
    };
    let (said, next) = if line.contains("are the lagging ranks that caused this timeout") {
        (stood(0, 0), None)
    } else if let Some(seq) =
        after(line, "] joined but didn't finish collective #").and_then(number)
    {
        (stood(seq, seq.saturating_sub(1)), None)
    } else if let Some(seq) = after(line, "] finished collective #").and_then(number)
        && let Some(next) = after(line, "but didn't join collective #").and_then(number)
    {
        (stood(seq, seq), Some(next))
    } else {
        return;
    };
    if let Some(first) = ranks.first().copied() {
        say(first, Line::Behind { ranks, said, next });
    }
}

/// The group that a line's prefix names, as `0(default_pg)`, and the rank in it:
/// `[PG ID 0 PG GUID 0(default_pg) Rank 3]`, `[PG 0 (default_pg) Rank 3]`, `[PG 0 Rank 3]`, `[Rank 3]`.
pub(super) fn prefix(line: &str) -> (String, Option<u64>) {
    let within = |what: &str| {
        let rest = after(line, what)?;
        let (group, rest) = rest.split_once(" Rank ")?;
        let rank = number(rest)?;
        // A description may hold brackets, but no line names two groups.
        (group.len() < 200).then(|| (group.replace(" (", "("), Some(rank)))
    };
    let found =
        within("PG GUID ").or_else(|| within("[PG ").filter(|(group, _)| !group.is_empty()));
    found.unwrap_or_else(|| (String::new(), after(line, "[Rank ").and_then(number)))
}

/// True of the group of all ranks, as far as the log says which it is.
pub fn is_world(group: &str) -> bool {
    group.is_empty() || group == "0" || group.contains("default_pg")
}

/// The number behind `last enqueued NCCL work: ` or `last enqueued work: `; none is -1.
fn last(line: &str, what: &str) -> Option<u64> {
    let (between, rest) = after(line, what)?.split_once("work: ")?;
    let is_backend = between.len() < 16 && !between.contains([',', '.', ':']);
    match rest.strip_prefix("-1") {
        Some(_) => Some(0),
        None => number(rest).filter(|_| is_backend),
    }
}

/// The ranks between a line's first brackets.
fn listed(line: &str) -> Option<Vec<u64>> {
    const MOST: usize = 1 << 16;
    let (list, _) = line.split_once('[')?.1.split_once(']')?;
    let ranks: Option<Vec<u64>> =
        list.split(", ").take(MOST).map(|rank| rank.trim().parse().ok()).collect();
    ranks.filter(|ranks| !ranks.is_empty())
}
